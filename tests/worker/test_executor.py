"""What becomes of deliveries: which handlers start when, and what each end of one means."""

import contextvars
import gc
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import trio

from stagedoor.broker import Pulse
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.keys import POOL
from stagedoor.core.outcome import Release, Settled
from stagedoor.core.tenure import Stream
from stagedoor.errors import LeaseLost, Permanent, Retry
from stagedoor.events import (
    DeliverySettled,
    DeliveryStarted,
    EntriesReturned,
    HandlerOrphaned,
    ResultIgnored,
    TenureLost,
)
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.worker.held import HeldDelivery
from stagedoor.worker.ready import first, pop
from stagedoor.worker.suspects import ALONE_FROM_CRASHES, FIRST_PATIENCE_S, LONGEST_PATIENCE_S
from tests.worker.support import Gate, Shop, eventually, identity, job_fields, open_shop, spec

LATER = "retry"


def nothing(job: Any, held: Any) -> None:
    """Be done at once."""


class Unspeakable(Exception):
    """Ends the process of whoever wants to show it."""

    def __str__(self) -> str:
        raise SystemExit("shown")

    __repr__ = __str__


class Evil:
    """A result that raises when it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt


def recurse() -> None:
    """Use up the stack."""
    recurse()


def raise_(error: BaseException) -> Callable[[], Any]:
    """Return a function that raises this."""

    def act() -> None:
        raise error

    return act


def leak_cancelled() -> None:
    """Raise a cancellation that belongs to nobody here."""
    raise trio.Cancelled._create(source="unknown")


ENDS: list[tuple[str, Callable[[], Any], str, str]] = [
    ("nothing", lambda: None, "done", ""),
    ("a value", lambda: 42, "done", ""),
    ("a settled pass", Settled, "settled", ""),
    ("an error", raise_(ValueError("no")), LATER, "ValueError: no"),
    ("a retry", raise_(Retry("soon", after=7)), LATER, "Retry: soon"),
    ("hopeless", raise_(Permanent("never")), "dead", "Permanent: never"),
    ("exit", raise_(SystemExit(3)), LATER, "SystemExit: 3"),
    ("interrupt", raise_(KeyboardInterrupt()), LATER, "KeyboardInterrupt"),
    ("stop iteration", raise_(StopIteration()), LATER, "StopIteration"),
    ("generator exit", raise_(GeneratorExit()), LATER, "GeneratorExit"),
    ("base exception", raise_(BaseException("odd")), LATER, "BaseException: odd"),
    ("a group", raise_(BaseExceptionGroup("g", [SystemExit(1), ValueError("x")])), LATER, "BaseExceptionGroup: g"),
    ("a group of one", raise_(ExceptionGroup("g", [Permanent("never")])), "dead", "Permanent: never"),
    ("memory", raise_(MemoryError()), LATER, "MemoryError"),
    ("recursion", recurse, LATER, "RecursionError"),
    ("unspeakable", raise_(Unspeakable()), LATER, "Unspeakable: (its text could not be shown: SystemExit)"),
    ("evil result", Evil, LATER, "KeyboardInterrupt"),
    ("somebody's cancellation", leak_cancelled, LATER, "Cancelled"),
    ("a lease of its own", raise_(LeaseLost("mine")), LATER, "LeaseLost: mine"),
]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("act, outcome, error", [case[1:] for case in ENDS], ids=[case[0] for case in ENDS])
async def test_whatever_a_handler_does_is_its_own_end_and_nobody_elses(
    act: Callable[[], Any], outcome: str, error: str, is_async: bool
) -> None:
    def plain(job: Any, held: Any) -> Any:
        return act()

    async def task(job: Any, held: Any) -> Any:
        return act()

    async with open_shop(spec(task if is_async else plain, "bad"), spec(nothing)) as shop:
        ids = shop.add_and_claim("work", "bad", "work", "work")
        await shop.recorder.wait(DeliverySettled, 4)
        settled = {event.entry_id: event for event in shop.recorder.of(DeliverySettled)}
        assert [settled[entry_id].outcome for entry_id in ids] == ["done", outcome, "done", "done"]
        assert error in (settled[ids[1]].error or "")
        # And the worker goes on.
        shop.add_and_claim("work")
        await shop.recorder.wait(DeliverySettled, 5)
    gc.collect()


async def test_a_retry_says_when() -> None:
    def retry(job: Any, held: Any) -> None:
        raise Retry(after=7)

    async with open_shop(spec(retry)) as shop:
        shop.add_and_claim("work")
        settled = await shop.recorder.wait(DeliverySettled)
        assert (settled.retry_in_s, settled.attempt) == (7, 1)


async def test_a_returned_value_is_told() -> None:
    async with open_shop(spec(lambda job, held: [1])) as shop:
        shop.add_and_claim("work")
        assert (await shop.recorder.wait(ResultIgnored)).returned == "list"


async def test_a_plain_function_that_returns_a_coroutine_has_not_done_its_work() -> None:
    async def late() -> None:
        raise AssertionError("nobody runs this")

    async with open_shop(spec(lambda job, held: late())) as shop:
        shop.add_and_claim("work")
        settled = await shop.recorder.wait(DeliverySettled)
        assert settled.outcome == LATER
        assert "async def" in (settled.error or "")


async def test_what_fails_in_making_the_context_is_the_deliverys_failure() -> None:
    def make_context(job: Any, held: Any) -> Any:
        if job.order_id == 2:
            raise SystemExit("no database")

    async with open_shop(spec(nothing), make_context=make_context) as shop:
        shop.add_and_claim("work", "work", "work")
        await shop.recorder.wait(DeliverySettled, 3)
        assert len(shop.recorder.of(DeliverySettled, outcome="done")) == 2


@pytest.mark.parametrize("kinds", [["plain"] * 3, ["task"] * 3, ["task", "plain", "task", "plain"]], ids="-".join)
async def test_what_a_job_sets_in_a_context_variable_the_next_in_its_slot_does_not_see(kinds: list[str]) -> None:
    variable = contextvars.ContextVar("variable", default="fresh")
    seen: list[str] = []

    def plain(job: Any, held: Any) -> None:
        seen.append(variable.get())
        variable.set("used")

    async def task(job: Any, held: Any) -> None:
        plain(job, held)
        await trio.lowlevel.checkpoint()
        seen.append("kept" if variable.get() == "used" else "lost")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    async def child() -> None:
        assert variable.get() == "used"

    async with open_shop(spec(plain, "plain"), spec(task, "task"), slots=1) as shop:
        shop.add_and_claim(*kinds)
        await shop.recorder.wait(DeliverySettled, len(kinds), outcome="done")
        # Also not those for which a slot is taken anew afterwards.
        shop.add_and_claim("plain")
        await shop.recorder.wait(DeliverySettled, len(kinds) + 1, outcome="done")
    assert [one for one in seen if one != "kept"] == ["fresh"] * (len(kinds) + 1)


async def test_what_ends_a_handler_from_outside_reaches_it_in_its_own_context() -> None:
    variable = contextvars.ContextVar("variable", default="lost")
    seen: list[str] = []

    async def handle(job: Any, held: Any) -> None:
        variable.set("kept")
        try:
            await trio.sleep_forever()
        finally:
            seen.append(variable.get())

    async with open_shop(spec(handle, timeout=0.01)) as shop:
        shop.add_and_claim("work")
        assert "JobTimeout" in ((await shop.recorder.wait(DeliverySettled)).error or "")
    assert seen == ["kept"]


# -- nurseries and cancellation ------------------------------------------------------


async def test_what_a_child_of_a_handlers_nursery_says_counts() -> None:
    async def give_up() -> None:
        raise Permanent("the child says no")

    async def handle(job: Any, held: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(give_up)

    async with open_shop(spec(handle)) as shop:
        shop.add_and_claim("work")
        settled = await shop.recorder.wait(DeliverySettled)
        assert (settled.outcome, settled.error) == ("dead", "Permanent: the child says no")


async def test_a_cancelled_worker_settles_nothing_even_where_a_handler_turns_that_into_errors() -> None:
    started = trio.Event()

    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while cleaning up")

    async def handle(job: Any, held: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_when_cancelled)
            nursery.start_soon(fail_when_cancelled)
            started.set()

    async with open_shop(spec(handle)) as shop:
        shop.add_and_claim("work")
        await started.wait()
    assert shop.recorder.of(DeliverySettled) == []
    assert shop.settler.owed == 0


async def test_a_cancelled_worker_does_not_wait_for_threads() -> None:
    gate = Gate()
    async with open_shop(spec(gate.handle)) as shop:
        shop.add_and_claim("work")
        await gate.wait_for(1)
    assert (len(gate.left), shop.recorder.of(DeliverySettled)) == (0, [])
    gate.open()


# -- timeouts and orphans --------------------------------------------------------------


class Hand:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_an_async_handler_is_cancelled_at_its_timeout_and_has_failed() -> None:
    async def handle(job: Any, held: Any) -> None:
        await trio.sleep_forever()

    async with open_shop(spec(handle, timeout=0.01)) as shop:
        shop.add_and_claim("work")
        settled = await shop.recorder.wait(DeliverySettled)
        assert settled.outcome == LATER
        assert "JobTimeout" in (settled.error or "")


async def test_an_async_handler_that_is_done_in_spite_of_its_timeout_is_done() -> None:
    async def handle(job: Any, held: Any) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 60):
            await trio.sleep(0.02)

    async with open_shop(spec(handle, timeout=0.01)) as shop:
        shop.add_and_claim("work")
        assert (await shop.recorder.wait(DeliverySettled)).outcome == "done"


async def test_a_plain_handler_that_asks_is_told_when_its_time_is_up() -> None:
    clock = Hand()

    def handle(job: Any, held: Any) -> None:
        held.check()
        clock.now += 6
        held.check()

    async with open_shop(spec(handle, timeout=5), clock=clock) as shop:
        shop.add_and_claim("work")
        settled = await shop.recorder.wait(DeliverySettled)
        assert "JobTimeout" in (settled.error or "")


async def test_a_thread_past_its_timeout_is_settled_once_and_its_slot_is_gone_until_it_ends() -> None:
    clock, gate = Hand(), Gate()
    async with open_shop(spec(gate.handle, timeout=5), clock=clock, slots=2, orphan_after_s=25) as shop:
        (entry_id,) = shop.add_and_claim("work")
        await gate.wait_for(1)
        clock.now += 29
        await trio.sleep(0.3)
        assert shop.executor.orphaned == 0
        clock.now += 2
        orphaned = await shop.recorder.wait(HandlerOrphaned)
        assert (orphaned.entry_id, orphaned.orphaned, orphaned.slots) == (entry_id, 1, 2)
        settled = await shop.recorder.wait(DeliverySettled)
        assert (settled.outcome, shop.executor.orphaned, shop.executor.room()) == (LATER, 1, 1)

        gate.open()
        await eventually(lambda: shop.executor.orphaned == 0)
        assert shop.executor.room() == 2
        # What the thread had to say came too late.
        shop.add_and_claim("work")
        await shop.recorder.wait(DeliverySettled, 2)
        assert [event.outcome for event in shop.recorder.of(DeliverySettled)] == [LATER, "done"]


async def test_beside_an_orphan_the_other_slots_work_on() -> None:
    clock, gate = Hand(), Gate()
    async with open_shop(spec(gate.handle, "stuck", timeout=5), spec(nothing), clock=clock, slots=2) as shop:
        shop.add_and_claim("stuck")
        await gate.wait_for(1)
        clock.now += 6
        await shop.recorder.wait(HandlerOrphaned)
        shop.add_and_claim("work", "work", "work")
        await shop.recorder.wait(DeliverySettled, 4)
        gate.open()


# -- lost tenures -------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_what_lapses_before_it_starts_is_not_started(is_async: bool) -> None:
    gate, late = Gate(), Gate()
    function = late.handle_async if is_async else late.handle
    async with open_shop(spec(gate.handle, "long"), spec(function), slots=1) as shop:
        shop.add_and_claim("long", "work")
        await gate.wait_for(1)
        shop.register.everything()[1].lost = True
        gate.open()
        await eventually(lambda: len(shop.register) == 0)
        assert late.came == []
        assert len(shop.recorder.of(DeliverySettled)) == 1


def check(job: Any, held: Any) -> None:
    """Ask whether to go on."""
    held.check()


async def test_a_handler_that_stops_because_its_tenure_has_lapsed_writes_nothing(broker: FakeBroker) -> None:
    gate = Gate()

    def handle(job: Any, held: Any) -> None:
        gate.handle(job, held)
        held.check()

    async with open_shop(spec(handle), broker=broker) as shop:
        (entry_id,) = shop.add_and_claim("work")
        await gate.wait_for(1)
        (held,) = shop.register.everything()
        shop.deliveries.release([held.claimed])
        thief = FakeDeliveries(broker, settings=DeliverySettings(wanted_name="thief"))
        thief.join(identity("i2"), Pulse(slots=8))
        assert len(thief.read(1).claimed) == 1
        held.lost = True
        gate.open()
        lost = await shop.recorder.wait(TenureLost)
        assert (lost.entry_id, lost.at) == (entry_id, "check")
        await eventually(lambda: len(shop.register) == 0)
        assert (shop.recorder.of(DeliverySettled), shop.recorder.of(EntriesReturned)) == ([], [])


async def test_a_flow_whose_write_was_refused_is_told_once_and_joins_its_request(broker: FakeBroker) -> None:
    """A flow's handler says so with `Release`: it is the first to know, before any renewal."""

    async with open_shop(spec(lambda job, held: Release()), broker=broker) as shop:
        (entry_id,) = shop.add_and_claim("work")
        lost = await shop.recorder.wait(TenureLost)
        assert (lost.entry_id, lost.at, lost.kind, lost.order_id) == (entry_id, "pass", "work", 1)
        await eventually(lambda: len(shop.register) == 0)
        assert (shop.recorder.of(DeliverySettled), len(shop.recorder.of(TenureLost))) == ([], 1)


async def test_it_is_told_also_where_a_renewal_was_refused_before(broker: FakeBroker) -> None:
    """That line knows no order, and is not the one of the delivery."""
    gate = Gate()

    def handle(job: Any, held: Any) -> Release:
        gate.handle(job, held)
        return Release()

    async with open_shop(spec(handle), broker=broker) as shop:
        shop.add_and_claim("work")
        await gate.wait_for(1)
        (held,) = shop.register.everything()
        held.lost = True
        gate.open()
        lost = await shop.recorder.wait(TenureLost)
        assert (lost.at, lost.order_id) == ("pass", 1)


async def test_what_a_thread_says_after_its_timeout_is_not_told() -> None:
    """Its delivery has been settled, and its line was told then; nobody has taken it from us."""
    clock, gate = Hand(), Gate()

    def handle(job: Any, held: Any) -> Release:
        gate.handle(job, held)
        return Release()

    async with open_shop(spec(handle, timeout=5), clock=clock, slots=2, orphan_after_s=25) as shop:
        shop.add_and_claim("work")
        await gate.wait_for(1)
        clock.now += 31
        await shop.recorder.wait(HandlerOrphaned)
        gate.open()
        await eventually(lambda: shop.executor.orphaned == 0)
        assert shop.recorder.of(TenureLost) == []


async def test_a_handler_that_stops_because_nobody_has_heard_of_us_gives_the_entry_back_where_it_is_still_ours() -> (
    None
):
    """After an outage that no other worker has survived either, the work must not wait for a minute of idling."""
    async with open_shop(spec(check)) as shop:
        shop.register._standing.beat_succeeded(0.0)
        (entry_id,) = shop.add_and_claim("work")
        await shop.recorder.wait(TenureLost)
        await shop.recorder.wait(EntriesReturned, why="released", count=1)
        assert [one.entry.entry_id for one in shop.deliveries.read(8).claimed] == [entry_id]
        assert shop.recorder.of(DeliverySettled) == []


# -- who starts when ------------------------------------------------------------------------


async def test_at_most_so_many_run_as_there_are_slots() -> None:
    gate = Gate()
    async with open_shop(spec(gate.handle), slots=3) as shop:
        shop.add_and_claim(*["work"] * 5)
        await gate.wait_for(3)
        assert (shop.executor.running, shop.executor.ready, shop.executor.room()) == (3, 2, 0)
        gate.open()
        await shop.recorder.wait(DeliverySettled, 5)
        await eventually(lambda: shop.executor.room() >= 3)


async def test_plain_and_async_handlers_start_in_the_order_in_which_they_were_claimed() -> None:
    async def task(job: Any, held: Any) -> None:
        pass

    kinds = ["work", "task", "work", "work", "task", "task", "work"] * 3
    async with open_shop(spec(nothing), spec(task, "task"), slots=1) as shop:
        ids = shop.add_and_claim(*kinds)
        await shop.recorder.wait(DeliverySettled, len(kinds))
        assert [event.entry_id for event in shop.recorder.of(DeliveryStarted)] == ids


async def test_an_async_job_is_not_starved_by_plain_ones_that_keep_coming() -> None:
    came = trio.Event()
    shop: Shop

    async def task(job: Any, held: Any) -> None:
        came.set()

    async with open_shop(spec(nothing), spec(task, "task"), slots=2) as shop:
        shop.add_and_claim(*["work"] * 50, "task")
        with trio.fail_after(60):
            while not came.is_set():
                shop.add_and_claim(*["work"] * 50)
                await trio.lowlevel.checkpoint()


async def test_jobs_of_a_kind_that_was_fast_get_slots_of_their_own_when_they_turn_out_slow() -> None:
    gate = Gate()
    async with open_shop(spec(gate.handle), slots=8) as shop:
        for _ in range(10):
            shop.executor._pace.note("work", 0.00001)
        shop.add_and_claim(*["work"] * 8)
        await gate.wait_for(8)
        gate.open()


async def test_a_job_that_ended_is_settled_while_its_thread_is_in_a_long_one() -> None:
    """Threads in a run of short jobs do not tell of each; the last before a long one must not be forgotten."""
    gate = Gate()
    # The clock stands still: no time ever seems to have passed since the last telling.
    async with open_shop(spec(nothing), spec(gate.handle, "long"), slots=1, clock=lambda: 5.0) as shop:
        shop.add_and_claim("work", "work", "work", "long")
        await gate.wait_for(1)
        await shop.recorder.wait(DeliverySettled, 3)
        gate.open()


async def test_what_was_read_ahead_and_waits_behind_slow_jobs_is_given_back() -> None:
    gate = Gate()
    async with open_shop(spec(gate.handle), slots=2) as shop:
        for _ in range(10):
            shop.executor._pace.note("work", 0.00001)
        assert shop.executor.is_reading_ahead
        shop.add_and_claim(*["work"] * 10)
        await gate.wait_for(2)
        assert shop.executor.release_surplus() == 0
        assert shop.executor.release_surplus() == 8
        await shop.recorder.wait(EntriesReturned, why="surplus", count=8)
        assert [held.tenure.entry_id for held in shop.register.everything()] == gate.came
        gate.open()


async def test_after_giving_back_no_more_is_read_ahead_until_the_slow_jobs_have_ended() -> None:
    """A slow job counts for the pace only when it ends: until then, what was given back would be read again."""
    gate, clock = Gate(), Hand()
    async with open_shop(spec(gate.handle), slots=2, clock=clock) as shop:
        for _ in range(10):
            shop.executor._pace.note("work", 0.00001)
        shop.add_and_claim(*["work"] * 10)
        await gate.wait_for(2)
        clock.now += 20  # long enough that even an average of many fast ones is no longer short
        shop.executor.release_surplus()
        shop.executor.release_surplus()
        assert not shop.executor.is_reading_ahead
        assert shop.executor.room() == 0
        gate.open()


def test_a_queue_that_a_thread_empties_while_we_look_is_empty() -> None:
    class Emptied(deque[HeldDelivery]):
        def __bool__(self) -> bool:
            return True

    assert (first(Emptied()), pop(Emptied())) == (None, None)


async def test_looking_for_surplus_while_threads_take_it_is_safe() -> None:
    async with open_shop(spec(nothing), slots=4) as shop:
        stream = shop.broker.streams[Stream.JOBS]
        for _ in range(40):
            shop.add_and_claim(*["work"] * 25)
            for _ in range(20):
                shop.executor.release_surplus()
            await trio.lowlevel.checkpoint()
        while stream.entries:
            shop.claim()
            await trio.sleep(0.001)
        await shop.recorder.wait(DeliverySettled, 1000)
        done = shop.recorder.of(DeliverySettled, outcome="done")
        assert len(done) == len({event.entry_id for event in done}) == 1000


# -- crashes ------------------------------------------------------------------------------------


def crashed(shop: Shop, entry_id: str, times: int) -> None:
    """Note that processes vanished while they held this entry, and put it into the pool."""
    broker, stream = shop.broker, shop.broker.streams[Stream.JOBS]
    entry = next(one for one in stream.entries if f"{one[0]}-{one[1]}" == entry_id)
    for number in range(times):
        broker.blame(Stream.JOBS, entry, name="w", incarnation=f"gone-{number}")
    if entry not in stream.require_group().pending:
        stream.take_new("w", 1)
    stream.claim(entry, "~pool", just_id=True)


async def test_an_entry_that_took_two_processes_along_runs_alone() -> None:
    others, suspect = Gate(), Gate()
    async with open_shop(spec(others.handle), spec(suspect.handle, "suspect"), slots=4) as shop:
        running = shop.add_and_claim("work", "work")
        await others.wait_for(2)
        entry_id = shop.broker.add(job_fields("suspect"))
        crashed(shop, entry_id, ALONE_FROM_CRASHES)
        neighbour = shop.broker.add(job_fields("work"))
        assert shop.claim() == [entry_id, neighbour]
        # The neighbour of the same read goes back, and nothing more is claimed while it waits or runs.
        await shop.recorder.wait(EntriesReturned, why="surplus", count=1)
        assert (shop.executor.room(), suspect.came) == (0, [])
        others.open()
        await suspect.wait_for(1)
        assert (sorted(others.left), shop.executor.running, shop.executor.room()) == (sorted(running), 1, 0)
        suspect.open()
        await shop.recorder.wait(DeliverySettled, 3)
        await eventually(lambda: shop.executor.room() >= 4)
        assert shop.claim() == [neighbour]
        await shop.recorder.wait(DeliverySettled, 4)


async def test_when_such_an_entry_starts_its_worker_holds_nothing_else() -> None:
    """If it takes the process along again, whatever else is held is blamed, too: ten of them must not end as poison."""
    held_beside: list[list[str]] = []
    shop: Shop

    def handle(job: Any, held: Any) -> None:
        with shop.broker.lock:
            pending = shop.broker.streams[Stream.JOBS].require_group().pending
            held_beside.append([line.consumer for line in pending.values() if line.consumer != POOL])

    async with open_shop(spec(handle), slots=4) as shop:
        for _ in range(6):
            crashed(shop, shop.broker.add(job_fields()), ALONE_FROM_CRASHES)
        shop.broker.add(job_fields())
        while shop.broker.streams[Stream.JOBS].entries:
            if shop.executor.room():
                shop.claim()
            await trio.sleep(0.001)
        await shop.recorder.wait(DeliverySettled, 7)
    assert held_beside[:6] == [["w"]] * 6


async def test_such_an_entry_waits_also_for_a_slot_that_an_orphan_has() -> None:
    clock, gate = Hand(), Gate()
    async with open_shop(spec(gate.handle, "stuck", timeout=5), spec(nothing), clock=clock, slots=1) as shop:
        shop.add_and_claim("stuck")
        await gate.wait_for(1)
        clock.now += 6
        await shop.recorder.wait(HandlerOrphaned)
        crashed(shop, shop.broker.add(job_fields()), ALONE_FROM_CRASHES)
        shop.claim()
        assert shop.executor.ready == 1
        gate.open()
        await shop.recorder.wait(DeliverySettled, outcome="done")


async def test_a_suspect_that_comes_during_a_long_job_goes_back_and_others_are_read_meanwhile() -> None:
    clock, gate = Hand(), Gate()
    async with open_shop(spec(gate.handle, "long"), spec(nothing), clock=clock, slots=4) as shop:
        shop.add_and_claim("long")
        await gate.wait_for(1)
        suspect = shop.broker.add(job_fields())
        crashed(shop, suspect, ALONE_FROM_CRASHES)
        assert shop.claim() == [suspect]
        clock.now += FIRST_PATIENCE_S / 2
        assert (shop.executor.release_suspects(), shop.executor.room()) == (0, 0)

        clock.now += FIRST_PATIENCE_S / 2
        assert shop.executor.release_suspects() == 1
        await shop.recorder.wait(EntriesReturned, why="suspect", count=1)
        assert shop.executor.room() == 3
        # It stays in the pool for others, and what is behind it comes.
        behind = shop.add_and_claim("work")
        assert (len(behind), suspect in behind) == (1, False)
        await shop.recorder.wait(DeliverySettled, outcome="done")
        # Until nothing else runs here.
        gate.open()
        await eventually(lambda: shop.executor.running == 0)
        await shop.settler.wait_idle()
        assert shop.claim() == [suspect]
        await shop.recorder.wait(DeliverySettled, 3, outcome="done")


async def test_at_most_a_tenth_of_the_time_is_spent_on_waiting_for_suspects() -> None:
    """A worker whose slots are never all free neither starves tickets nor claims and returns in a hot loop."""
    clock, gate = Hand(), Gate()
    async with open_shop(spec(gate.handle, "long"), spec(nothing), clock=clock, slots=4) as shop:
        shop.add_and_claim("long")
        await gate.wait_for(1)
        for _ in range(3):
            crashed(shop, shop.broker.add(job_fields()), ALONE_FROM_CRASHES)
        closed_s, claims = 0, 0
        patience: list[int] = []
        for _ in range(1500):
            if shop.executor.room():
                claims += len(shop.claim())
            else:
                closed_s += 1
                if shop.executor.release_suspects():
                    patience.append(closed_s - sum(patience))
            await shop.settler.wait_idle()
            clock.now += 1.0
        assert 1500 * 0.05 < closed_s < 1500 * 0.12
        assert patience[:5] == [1, 2, 4, 8, 16]
        assert max(patience) <= LONGEST_PATIENCE_S + 1
        assert claims < 1500 * 0.05
        gate.open()


async def test_a_suspect_that_comes_too_soon_after_another_goes_back_at_once() -> None:
    clock, gate = Hand(), Gate()
    async with open_shop(spec(gate.handle, "long"), spec(nothing), clock=clock, slots=4) as shop:
        shop.add_and_claim("long")
        await gate.wait_for(1)
        first, second = (shop.broker.add(job_fields()) for _ in range(2))
        crashed(shop, first, ALONE_FROM_CRASHES)
        assert shop.claim(1) == [first]
        clock.now += FIRST_PATIENCE_S
        shop.executor.release_suspects()
        crashed(shop, second, ALONE_FROM_CRASHES)
        await shop.recorder.wait(EntriesReturned, why="suspect")
        assert shop.claim(1) == [second]
        await shop.recorder.wait(EntriesReturned, 2, why="suspect")
        assert shop.executor.room() == 3
        assert shop.claim() == []
        gate.open()


async def test_one_crash_is_no_reason_to_run_alone() -> None:
    gate = Gate()
    async with open_shop(spec(gate.handle), slots=4) as shop:
        crashed(shop, shop.broker.add(job_fields()), ALONE_FROM_CRASHES - 1)
        shop.broker.add(job_fields())
        shop.claim()
        await gate.wait_for(2)
        gate.open()


async def test_after_five_crashes_an_entry_is_poison_and_never_starts_again() -> None:
    async with open_shop(spec(nothing)) as shop:
        entry_id = shop.broker.add(job_fields())
        crashed(shop, entry_id, 5)
        shop.claim()
        settled = await shop.recorder.wait(DeliverySettled)
        assert (settled.reason, settled.crashes) == ("poison", 5)
        assert shop.recorder.of(DeliveryStarted) == []
        (letter,) = (dict(one) for one in shop.broker.dead)
        assert letter[b"history"].count(b"gone-") == 5
        assert shop.broker.crashes == {}


async def test_an_alone_async_handler_leaves_the_worker_as_it_was() -> None:
    async def handle(job: Any, held: Any) -> None:
        raise SystemExit

    async with open_shop(spec(handle), slots=4) as shop:
        crashed(shop, shop.broker.add(job_fields()), ALONE_FROM_CRASHES)
        shop.claim()
        await shop.recorder.wait(DeliverySettled)
        await eventually(lambda: shop.executor.room() >= 4)


# -- stopping --------------------------------------------------------------------------------------


async def test_a_drain_gives_back_what_has_not_started_and_waits_for_what_has() -> None:
    gate = Gate()
    async with open_shop(spec(gate.handle), slots=2) as shop:
        ids = shop.add_and_claim(*["work"] * 5)
        await gate.wait_for(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shop.executor.drain)
            await shop.recorder.wait(EntriesReturned, why="released", count=3)
            assert shop.executor.room() == 0
            gate.open()
        await shop.recorder.wait(DeliverySettled, 2)
        assert sorted(event.entry_id for event in shop.recorder.of(DeliverySettled)) == ids[:2]
        assert shop.executor.given_back == 3


async def test_what_is_claimed_during_a_drain_is_given_back() -> None:
    async with open_shop(spec(nothing)) as shop:
        await shop.executor.drain()
        shop.add_and_claim("work", "work")
        await shop.recorder.wait(EntriesReturned, why="released", count=2)
        assert shop.recorder.of(DeliveryStarted) == []


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_what_still_runs_is_given_back_and_its_end_changes_nothing(is_async: bool) -> None:
    gate = Gate()
    async with open_shop(spec(gate.handle_async if is_async else gate.handle)) as shop:
        (entry_id,) = shop.add_and_claim("work")
        await gate.wait_for(1)
        (held,) = shop.register.everything()
        assert shop.executor.release_running() == 1
        await shop.recorder.wait(EntriesReturned, why="released", count=1)
        with pytest.raises(LeaseLost):
            held.check()
        assert [one.entry.entry_id for one in shop.deliveries.read(8).claimed] == [entry_id]
        gate.open()
        if not is_async:
            await eventually(lambda: gate.left)
        await trio.sleep(0.01)
        await shop.settler.wait_idle()
        assert (shop.recorder.of(DeliverySettled), shop.recorder.of(TenureLost)) == ([], [])
