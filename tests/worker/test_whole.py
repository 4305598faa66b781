"""The whole worker over a broker in memory: how it starts, works through trouble, and stops."""

import functools
from typing import Any

import pytest
import trio

from stagedoor.broker import Identity, Pulse
from stagedoor.broker.deliveries import ReadReply
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.keys import POOL
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerUnavailable, ConfigurationError, GroupMissing, LeaseLost
from stagedoor.events import (
    BrokerDown,
    BrokerUp,
    DeliverySettled,
    DeliveryStarted,
    EntriesReturned,
    EventStream,
    GroupRecreated,
    HandlerOrphaned,
    TenureLost,
    Warned,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
    WorkerSwept,
)
from stagedoor.settings import Settings
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.worker import ExitCode, Given, StopRequest, WorkerSettings, run_worker
from tests.support.recorder import LIMIT_S, Recorder
from tests.worker.support import Gate, eventually, identity, job_fields, living, spec

QUICK: dict[str, Any] = {"liveness_ttl_s": "0.4", "beat_every_s": "0.1", "sweep_every_s": "0.1"}
"""Short times for tests in which somebody lapses."""


@pytest.fixture(autouse=True)
def short_weather(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outages are told of and got over in less time: what is tested here is not how long that takes."""
    monkeypatch.setattr("stagedoor.weather.NOTABLE_S", 0.2)


def nothing(job: Any, held: Any) -> None:
    """Be done at once."""


async def nothing_async(job: Any, held: Any) -> None:
    """Be done at once."""


def left(broker: FakeBroker) -> int:
    """Return how many entries are in the streams."""
    return sum(len(stream.entries) for stream in broker.streams.values())


def owners(broker: FakeBroker) -> list[str]:
    """Return who holds what is pending on the stream of jobs."""
    with broker.lock:
        return [line.consumer for _entry, line in sorted(broker.streams[Stream.JOBS].require_group().pending.items())]


# -- working -----------------------------------------------------------------------------


async def test_it_runs_what_was_there_and_what_comes_and_leaves_nothing_behind(broker: FakeBroker) -> None:
    broker.add(job_fields())
    broker.add(job_fields("task", 2), stream=Stream.CRITICAL)
    async with living(broker, spec(nothing), spec(nothing_async, "task")) as life:
        await life.recorder.wait(DeliverySettled, 2)
        broker.add(job_fields(order_id=3))
        broker.add(job_fields("task", 4))
        await life.recorder.wait(DeliverySettled, 4)
        life.stop.ask("enough")
        assert await life.wait_ended() is ExitCode.OK
    assert (left(broker), broker.workers, broker.delayed, broker.dead) == (0, {}, {}, [])
    assert broker.streams[Stream.JOBS].require_group().consumers.keys() <= {POOL}
    started, *_others = life.recorder.of(WorkerStarted)
    assert (started.worker, started.kinds) == ("w", ("task", "work"))
    (stopped,) = life.recorder.of(WorkerStopped)
    assert (stopped.released, stopped.owed, stopped.orphaned) == (0, 0, 0)


async def test_a_job_that_fails_twice_and_then_succeeds_ran_three_attempts(broker: FakeBroker) -> None:
    attempts: list[int] = []

    def handle(job: Any, held: Any) -> None:
        attempts.append(job.attempt)
        if job.attempt < 3:
            raise OSError("not yet")

    origin = broker.add((*((k.encode(), v.encode()) for k, v in job_fields().items()), (b"colour", b"blue")))
    async with living(broker, spec(handle, base=0.01)) as life:
        done = await life.recorder.wait(DeliverySettled, outcome="done")
    assert attempts == [1, 2, 3]
    assert (done.origin, done.attempt, done.deliveries) == (origin, 3, 1)
    assert (left(broker), broker.delayed, broker.dead) == (0, {}, [])


async def test_a_job_that_always_fails_is_dead_after_its_attempts(broker: FakeBroker) -> None:
    def handle(job: Any, held: Any) -> None:
        raise OSError("never")

    broker.add(job_fields())
    async with living(broker, spec(handle, base=0.01, attempts=3)) as life:
        dead = await life.recorder.wait(DeliverySettled, outcome="dead")
        assert (dead.reason, dead.attempt) == ("attempts", 3)
    assert len(broker.dead) == 1


async def test_twenty_jobs_of_a_kind_unknown_here_run_where_it_is_known(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stagedoor.core.outcome.UNKNOWN_KIND_CAP_S", 0.2)
    done: list[int] = []

    def handle(job: Any, held: Any) -> None:
        done.append(job.order_id)

    for number in range(1, 21):
        broker.add(job_fields("new", number))
    async with living(broker, spec(nothing), name="old") as old:
        await old.recorder.wait(DeliverySettled, 20, outcome="unknown")
        async with living(broker, spec(handle, "new"), name="new", incarnation="i2"):
            await eventually(lambda: len(done) == 20)
            broker.add(job_fields())
            await old.recorder.wait(DeliverySettled, outcome="done")
    assert sorted(done) == list(range(1, 21))
    assert (left(broker), broker.delayed, broker.dead) == (0, {}, [])


async def test_a_kind_that_nobody_knows_is_no_hot_loop(broker: FakeBroker) -> None:
    broker.add(job_fields("nobodys"))
    async with living(broker, spec(nothing)) as life:
        settled = await life.recorder.wait(DeliverySettled, 3)
        pauses = [event.retry_in_s for event in life.recorder.of(DeliverySettled)]
        assert pauses == [0.1, 0.2, 0.4]
        assert settled.attempt == 1


# -- starting ------------------------------------------------------------------------------


async def test_a_stop_before_redis_answers_ends_it_at_once_and_owns_nothing(broker: FakeBroker) -> None:
    broker.cut()
    async with living(broker, spec(nothing), is_awaited=False) as life:
        await trio.testing.wait_all_tasks_blocked(0.01)
        life.stop.ask("changed my mind")
        assert await life.wait_ended() is ExitCode.OK
    assert (broker.workers, life.recorder.of(WorkerStarted)) == ({}, [])


async def test_a_stop_that_was_asked_for_before_the_start_is_heeded(broker: FakeBroker) -> None:
    entry_id = broker.add(job_fields())
    async with living(broker, spec(nothing), is_awaited=False) as life:
        life.stop.ask("changed my mind")
        assert await life.wait_ended() is ExitCode.OK
    assert [f"{e[0]}-{e[1]}" for e in broker.streams[Stream.JOBS].entries] == [entry_id]
    assert broker.workers == {}


async def test_it_starts_when_redis_comes(broker: FakeBroker) -> None:
    broker.add(job_fields())
    broker.cut()
    async with living(broker, spec(nothing), is_awaited=False) as life:
        await life.recorder.wait(BrokerDown)
        broker.restore()
        await life.recorder.wait(DeliverySettled)
        assert len(life.recorder.of(BrokerUp)) == 1


@pytest.mark.parametrize("error", [ConfigurationError("redis_url: this server is Redis 6.2"), ZeroDivisionError()])
async def test_what_makes_a_start_hopeless_is_raised_as_it_is(broker: FakeBroker, error: Exception) -> None:
    """Not in a group: the command line has to say it in one line."""

    def check_server() -> list[str]:
        raise error

    with pytest.raises(type(error)) as caught:
        await run(broker, check_server=check_server)
    assert caught.value is error


async def test_warnings_about_the_server_are_told(broker: FakeBroker, recorder: Recorder) -> None:
    stop = StopRequest()

    def check_server() -> list[str]:
        return ["this Redis evicts keys"]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            functools.partial(run, broker, stop=stop, check_server=check_server, events=EventStream(recorder))
        )
        assert (await recorder.wait(Warned)).message == "this Redis evicts keys"
        stop.ask("enough")


async def run(
    broker: FakeBroker,
    *,
    stop: StopRequest | None = None,
    events: EventStream | None = None,
    deliveries: FakeDeliveries | None = None,
    **options: Any,
) -> ExitCode:
    return await run_worker(
        Given(
            deliveries=deliveries or FakeDeliveries(broker, settings=DeliverySettings(wanted_name="w")),
            settings=WorkerSettings.of(Settings.load({})),
            identity=identity(),
            handlers={"work": spec(nothing)},
            make_context=lambda _job, held: held,
            stop=stop or StopRequest(),
            events=events or EventStream(),
        ),
        **options,
    )


async def test_two_workers_of_one_name_are_told_apart(broker: FakeBroker) -> None:
    async with (
        living(broker, spec(nothing), name="host") as one,
        living(broker, spec(nothing), name="host", incarnation="i2") as two,
    ):
        assert (one.name, two.name) == ("host", "host.2")


# -- trouble -------------------------------------------------------------------------------


async def test_an_outage_has_two_lines_keeps_what_is_owed_and_needs_no_restart(broker: FakeBroker) -> None:
    gate = Gate()
    for number in range(1, 4):
        broker.add(job_fields(order_id=number))
    async with living(broker, spec(gate.handle)) as life:
        await gate.wait_for(3)
        broker.cut()
        gate.open()
        await life.recorder.wait(BrokerDown)
        assert left(broker) == 3
        broker.restore()
        broker.add(job_fields(order_id=4))
        await life.recorder.wait(DeliverySettled, 4, outcome="done")
        await life.recorder.wait(BrokerUp)
        assert len(life.recorder.of(DeliveryStarted)) == 4
        assert (len(life.recorder.of(BrokerDown)), len(life.recorder.of(BrokerUp))) == (1, 1)
    assert left(broker) == 0


async def test_after_an_outage_longer_than_every_ttl_no_live_worker_has_been_robbed(broker: FakeBroker) -> None:
    gate = Gate()
    for number in range(1, 5):
        broker.add(job_fields(order_id=number))
    async with (
        living(broker, spec(gate.handle), name="a", slots="2", **QUICK) as a,
        living(broker, spec(gate.handle), name="b", slots="2", incarnation="i2", **QUICK) as b,
    ):
        await gate.wait_for(4)
        # Until both could judge others.
        await trio.sleep(0.6)
        broker.cut()
        await a.recorder.wait(BrokerDown)
        await b.recorder.wait(BrokerDown)
        broker.restore()
        await a.recorder.wait(BrokerUp)
        await b.recorder.wait(BrokerUp)
        await trio.sleep(0.6)
        assert a.recorder.of(WorkerSwept) == b.recorder.of(WorkerSwept) == []
        assert sorted(owners(broker)) == ["a", "a", "b", "b"]
        gate.open()
        await eventually(lambda: left(broker) == 0)
    assert len(gate.came) == 4


async def test_a_handler_that_asks_during_an_outage_longer_than_the_ttl_is_told_to_stop(broker: FakeBroker) -> None:
    told = trio.Event()

    async def handle(job: Any, held: Any) -> None:
        if held.tenure.deliveries > 1:
            return
        try:
            with trio.fail_after(LIMIT_S):
                while True:
                    await trio.sleep(0.01)
                    held.check()
        except LeaseLost:
            told.set()
            raise

    entry_id = broker.add(job_fields())
    async with living(broker, spec(handle), **QUICK) as life:
        await life.recorder.wait(DeliveryStarted)
        with broker.outage():
            await told.wait()
        done = await life.recorder.wait(DeliverySettled)
        assert (done.entry_id, done.outcome, done.deliveries) == (entry_id, "done", 2)


async def test_a_worker_that_was_heard_of_only_when_it_joined_is_cut_off_after_a_ttl_too(broker: FakeBroker) -> None:
    told = trio.Event()

    async def handle(job: Any, held: Any) -> None:
        while not told.is_set():
            await trio.sleep(0.01)
            try:
                held.check()
            except LeaseLost:
                told.set()

    broker.add(job_fields())
    broker.fail_next("beat", BrokerUnavailable("lost"), times=1000)
    async with living(broker, spec(handle), **QUICK):
        with trio.fail_after(LIMIT_S):
            await told.wait()
        broker._faults["beat"].clear()


@pytest.mark.parametrize("verb", ["read", "settle", "renew", "beat", "promote", "sweep", "wait", "release", "retire"])
@pytest.mark.parametrize("after_effect", [False, True], ids=["request", "reply"])
async def test_a_lost_request_or_reply_of_any_call_loses_and_doubles_nothing(
    broker: FakeBroker, verb: str, after_effect: bool
) -> None:
    async with living(broker, spec(nothing), renew_every_s="0.05", **QUICK) as life:
        broker.fail_next(verb, BrokerUnavailable("lost"), after_effect=after_effect, times=2)
        for number in range(1, 31):
            broker.add(job_fields(order_id=number))
        await life.recorder.wait(DeliverySettled, 30)
        await eventually(lambda: left(broker) == 0)
        life.stop.ask("enough")
        await life.wait_ended()
    assert len(life.recorder.of(DeliverySettled, outcome="done")) == 30
    assert len(life.recorder.of(DeliverySettled)) == 30
    assert (broker.workers, broker.dead) == ({}, [])


async def test_a_destroyed_group_is_made_anew_with_one_warning_and_running_jobs_are_adopted(broker: FakeBroker) -> None:
    gate = Gate()
    for number in range(1, 4):
        broker.add(job_fields(order_id=number))
    async with living(broker, spec(gate.handle), renew_every_s="0.05") as life:
        await gate.wait_for(3)
        broker.destroy_group()
        broker.add(job_fields(order_id=4))
        await gate.wait_for(4)
        await eventually(lambda: owners(broker) == ["w"] * 4)
        gate.open()
        await life.recorder.wait(DeliverySettled, 4)
        assert len(life.recorder.of(GroupRecreated)) == 1
        assert len(life.recorder.of(DeliveryStarted)) == 4
        assert life.recorder.of(DeliverySettled, outcome="done") == life.recorder.of(DeliverySettled)
    assert left(broker) == 0


async def test_after_a_flush_it_works_on_with_one_warning_and_what_was_lost_is_told(broker: FakeBroker) -> None:
    gate = Gate()
    broker.add(job_fields("long"))
    async with living(broker, spec(nothing), spec(gate.handle, "long")) as life:
        await gate.wait_for(1)
        broker.flush()
        entry_id = broker.add(job_fields(order_id=2))
        done = await life.recorder.wait(DeliverySettled)
        assert done.entry_id == entry_id
        gate.open()
        await life.recorder.wait(TenureLost)
        assert len(life.recorder.of(GroupRecreated)) == 1
        await eventually(lambda: "w" in broker.workers)


async def test_a_worker_whose_name_another_process_has_taken_goes_on_under_the_next_free_one(
    broker: FakeBroker,
) -> None:
    """As after a freeze for longer than the TTL."""
    lost: list[Any] = []

    async def handle(job: Any, held: Any) -> None:
        try:
            while True:
                held.check()
                await trio.sleep(0.001)
        except LeaseLost:
            lost.append(job.entry_id)
            raise

    entry_id = broker.add(job_fields("watched"))
    async with living(broker, spec(handle, "watched"), spec(nothing), **QUICK) as life:
        await life.recorder.wait(DeliveryStarted)
        thief = FakeDeliveries(broker, settings=DeliverySettings(wanted_name="w"), is_process_dead=lambda _record: True)
        thief.join(identity("somebody-else"), Pulse(slots=8))
        assert [one.entry.entry_id for one in thief.read(8).claimed] == [entry_id]

        warned = await life.recorder.wait(Warned)
        broker.add(job_fields())
        await life.recorder.wait(DeliverySettled, outcome="done", kind="work")
        await eventually(lambda: lost)
        life.stop.ask("enough")
        assert await life.wait_ended() is ExitCode.OK
    assert warned.message == "another process had the name 'w': this one goes on as 'w.2', without what it held"
    assert (lost, len(life.recorder.of(Warned))) == ([entry_id], 1)
    assert {name: record.identity.incarnation for name, record in broker.workers.items()} == {"w": "somebody-else"}
    # What it no longer owned it has neither settled nor given back.
    assert [line.consumer for line in broker.streams[Stream.JOBS].require_group().pending.values()] == ["w"]
    assert life.recorder.of(WorkerStopped)[0].worker == "w.2"


async def test_a_record_of_old_that_nobody_beats_for_does_not_cost_it_its_name(broker: FakeBroker) -> None:
    """As after Redis was restored from a copy: the job that runs is settled, if nobody else has it by then."""
    gate = Gate()
    entry_id = broker.add(job_fields())
    async with living(broker, spec(gate.handle), **QUICK) as life:
        await gate.wait_for(1)
        broker.write_record("w", identity("long-gone"), Pulse(slots=8))
        broker.workers["w"].beat_ms = 0
        warned = await life.recorder.wait(Warned)
        # The crash of the process of old is noted as at any start; the job itself goes on under its new tenure.
        await eventually(lambda: life.deliveries.name == "w" and broker.workers["w"].identity.incarnation == "i1")
        gate.open()
        settled = await life.recorder.wait(DeliverySettled)
    assert "this one goes on as 'w'" in warned.message
    assert (settled.entry_id, settled.outcome) == (entry_id, "done")
    assert broker.streams[Stream.JOBS].entries == {}


async def test_a_mistake_of_our_own_ends_it_and_settles_nothing(broker: FakeBroker) -> None:
    """As a crash: what is pending is taken over by others."""
    gate = Gate()
    broker.add(job_fields())
    stop = StopRequest()

    async def companion() -> None:
        await gate.wait_for(1)
        raise ZeroDivisionError("a bug")

    deliveries = FakeDeliveries(broker, settings=DeliverySettings(wanted_name="w"))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        await run_worker(
            Given(
                deliveries=deliveries,
                settings=WorkerSettings.of(Settings.load({})),
                identity=identity(),
                handlers={"work": spec(gate.handle_async)},
                make_context=lambda _job, held: held,
                stop=stop,
                events=EventStream(),
            ),
            companions=(companion,),
        )
    assert owners(broker) == ["w"]
    assert not deliveries.is_blocked


# -- lapsing ----------------------------------------------------------------------------------


async def test_a_worker_that_vanished_is_swept_and_its_jobs_run_elsewhere_with_the_crash_noted(
    broker: FakeBroker,
) -> None:
    gate = Gate()
    ids = [broker.add(job_fields(order_id=number)) for number in (1, 2)]
    async with living(broker, spec(gate.handle), name="a", **QUICK) as a:
        await gate.wait_for(2)
        async with living(broker, spec(nothing), name="b", incarnation="i2", **QUICK) as b:
            a.die()
            swept = await b.recorder.wait(WorkerSwept)
            assert (swept.worker, swept.entries, swept.crashed) == ("a", 2, True)
            await b.recorder.wait(DeliverySettled, 2)
            settled = b.recorder.of(DeliverySettled)
            assert sorted(event.entry_id for event in settled) == ids
            assert {(event.outcome, event.crashes, event.deliveries) for event in settled} == {("done", 1, 2)}
        gate.open()
    assert (left(broker), broker.crashes) == (0, {})


async def test_when_all_others_vanish_at_once_their_jobs_come_back_as_slots_get_free_and_not_all_together(
    broker: FakeBroker,
) -> None:
    for number in range(1, 201):
        broker.add(job_fields(order_id=number))
    for name in ("a1", "a2"):
        gone = FakeDeliveries(broker, settings=DeliverySettings(wanted_name=name))
        gone.ensure_groups()
        gone.join(identity(name), Pulse(slots=8))
        gone.read(100)
        broker.workers[name].beat_ms = 0
    taken: list[int] = []

    class Counted(FakeDeliveries):
        def read(self, limit: int, **more: Any) -> ReadReply:
            reply = super().read(limit, **more)
            taken.append(len(reply.claimed))
            return reply

    deliveries = Counted(broker, settings=DeliverySettings(wanted_name="b", liveness_ttl_ms=400))
    options = {"slots": "2", "read_ahead": "0", **QUICK}
    async with living(broker, spec(nothing), deliveries=deliveries, incarnation="i2", **options) as b:
        await b.recorder.wait(DeliverySettled, 200)
        assert {(event.outcome, event.crashes) for event in b.recorder.of(DeliverySettled)} == {("done", 1)}
    assert sum(event.entries for event in b.recorder.of(WorkerSwept)) == sum(taken) == 200
    assert max(taken) <= 2


async def test_a_worker_that_vanished_after_it_was_asked_to_stop_has_not_crashed(broker: FakeBroker) -> None:
    gate = Gate()
    broker.add(job_fields())
    async with living(broker, spec(gate.handle), name="a", **QUICK) as a:
        await gate.wait_for(1)
        a.stop.ask("a deploy")
        await eventually(lambda: broker.workers["a"].pulse.stopping)
        a.die()
        async with living(broker, spec(nothing), name="b", incarnation="i2", **QUICK) as b:
            assert not (await b.recorder.wait(WorkerSwept)).crashed
            assert (await b.recorder.wait(DeliverySettled)).crashes == 0
        gate.open()


async def test_a_job_that_outlasts_every_limit_on_a_live_worker_runs_once(broker: FakeBroker) -> None:
    """Reclaiming after an idle second, by both workers; the job takes longer and is renewed meanwhile."""
    gate = Gate()
    broker.add(job_fields())
    short: dict[str, Any] = {"reclaim_idle_s": "1", "reclaim_every_s": "0.1", "renew_every_s": "0.2"} | QUICK

    def deliveries(name: str) -> FakeDeliveries:
        return FakeDeliveries(
            broker, settings=DeliverySettings(wanted_name=name, liveness_ttl_ms=400, reclaim_idle_ms=1000)
        )

    async with (
        living(broker, spec(gate.handle), deliveries=deliveries("a"), **short) as a,
        living(broker, spec(gate.handle), deliveries=deliveries("b"), incarnation="i2", **short) as b,
    ):
        await gate.wait_for(1)
        await trio.sleep(2.5)
        gate.open()
        await eventually(lambda: left(broker) == 0)
        assert a.recorder.of(TenureLost) == b.recorder.of(TenureLost) == []
    assert len(gate.came) == 1


# -- stopping -----------------------------------------------------------------------------------


async def test_a_stop_lets_what_runs_end_and_gives_back_what_waits(broker: FakeBroker) -> None:
    gate = Gate()
    for number in range(1, 4):
        broker.add(job_fields(order_id=number))
    async with living(broker, spec(gate.handle), slots="3", beat_every_s="500", liveness_ttl_s="1000") as life:
        await gate.wait_for(3)
        life.stop.ask("a deploy")
        await life.recorder.wait(WorkerStopping, held=3, why="a deploy")
        await eventually(lambda: broker.workers["w"].pulse.stopping)
        broker.add(job_fields(order_id=4))
        gate.open()
        assert await life.wait_ended() is ExitCode.OK
    assert len(life.recorder.of(DeliverySettled, outcome="done")) == 3
    assert left(broker) == 1


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_what_does_not_end_in_time_is_released_and_runs_elsewhere(broker: FakeBroker, is_async: bool) -> None:
    """A thread that never returns does not keep the process: nothing waits for it."""
    gate = Gate()
    handler = spec(gate.handle_async if is_async else gate.handle)
    entry_id = broker.add(job_fields())
    async with living(broker, spec(nothing), name="b", incarnation="i2", slots="1") as b:
        await b.recorder.wait(DeliverySettled)
        broker.add(job_fields("long"))
    async with living(broker, attrs_evolve(handler, "long"), name="a", grace_s="2") as a:
        await gate.wait_for(1)
        async with living(broker, spec(nothing, "long"), name="b", incarnation="i3") as b:
            a.stop.ask("a deploy")
            assert await a.wait_ended() is ExitCode.OK
            settled = await b.recorder.wait(DeliverySettled)
            assert (settled.outcome, settled.deliveries, settled.crashes) == ("done", 2, 0)
        gate.open()
    assert entry_id != settled.entry_id
    assert a.recorder.of(WorkerStopped)[0].released == 1
    assert (left(broker), a.recorder.of(DeliverySettled)) == (0, [])


def attrs_evolve(handler: Any, kind: str) -> Any:
    """Return the same handler for another kind."""
    return spec(handler.function, kind)


async def test_a_second_request_releases_at_once(broker: FakeBroker) -> None:
    gate = Gate()
    broker.add(job_fields())
    async with living(broker, spec(gate.handle), grace_s="3600") as life:
        await gate.wait_for(1)
        life.stop.ask("a deploy")
        await life.recorder.wait(WorkerStopping)
        life.stop.ask("at once")
        assert await life.wait_ended() is ExitCode.OK
        gate.open()
    assert owners(broker) == [POOL]


async def test_fifty_requests_are_two(broker: FakeBroker) -> None:
    gate = Gate()
    broker.add(job_fields())
    async with living(broker, spec(gate.handle), grace_s="3600") as life:
        await gate.wait_for(1)
        for _ in range(50):
            life.stop.ask("SIGTERM")
        assert await life.wait_ended() is ExitCode.OK
        gate.open()
    assert (owners(broker), len(life.recorder.of(WorkerStopped))) == ([POOL], 1)


async def test_an_async_handler_that_does_not_heed_its_cancellation_does_not_keep_us_from_leaving_in_order(
    broker: FakeBroker,
) -> None:
    until = trio.Event()

    async def handle(job: Any, held: Any) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LIMIT_S):
            await until.wait()

    broker.add(job_fields())
    async with living(broker, spec(handle), grace_s="2") as life:
        await life.recorder.wait(DeliveryStarted)
        life.stop.ask("a deploy")
        await life.recorder.wait(WorkerStopped, released=1)
        assert (owners(broker), broker.workers) == ([POOL], {})
        until.set()
        await life.wait_ended()
    assert life.recorder.of(DeliverySettled) == []


async def test_an_idle_worker_leaves_soon_while_redis_is_away(broker: FakeBroker) -> None:
    async with living(broker, spec(nothing), grace_s="3600") as life:
        broker.cut()
        await life.recorder.wait(BrokerDown)
        life.stop.ask("a deploy")
        assert await life.wait_ended() is ExitCode.OK


async def test_a_stop_waits_within_its_grace_for_redis_to_take_what_is_owed(broker: FakeBroker) -> None:
    gate = Gate()
    broker.add(job_fields())
    async with living(broker, spec(gate.handle), grace_s="3600") as life:
        await gate.wait_for(1)
        broker.cut()
        gate.open()
        await eventually(lambda: gate.left)
        life.stop.ask("a deploy")
        await life.recorder.wait(BrokerDown)
        broker.restore()
        assert await life.wait_ended() is ExitCode.OK
    assert (left(broker), broker.workers) == (0, {})


async def test_what_redis_never_takes_is_told_at_the_end(broker: FakeBroker) -> None:
    gate = Gate()
    broker.add(job_fields())
    async with living(broker, spec(gate.handle), grace_s="2") as life:
        await gate.wait_for(1)
        broker.cut()
        gate.open()
        await eventually(lambda: gate.left)
        life.stop.ask("a deploy")
        assert await life.wait_ended() is ExitCode.OK
    assert life.recorder.of(WorkerStopped)[0].owed == 1
    assert owners(broker) == ["w"]


async def test_with_half_the_slots_orphaned_it_drains_and_asks_for_a_new_process(broker: FakeBroker) -> None:
    gate = Gate()
    ids = [broker.add(job_fields("stuck", number)) for number in (1, 2)]
    async with living(broker, spec(gate.handle, "stuck", timeout=0.01), spec(nothing), slots="4", grace_s="2") as life:
        await life.recorder.wait(HandlerOrphaned, 2)
        assert await life.wait_ended() is ExitCode.ORPHANED
        gate.open()
    assert "half the slots" in life.recorder.of(WorkerStopping)[0].why
    assert sorted(event.entry_id for event in life.recorder.of(DeliverySettled, outcome="retry")) == ids
    assert left(broker) + len(broker.delayed) == 2


async def test_orphans_found_during_a_stop_that_somebody_asked_for_do_not_hurry_it(broker: FakeBroker) -> None:
    gate, other = Gate(), Gate()
    broker.add(job_fields("stuck"))
    broker.add(job_fields())
    async with living(
        broker, spec(gate.handle, "stuck", timeout=0.01), spec(other.handle), slots="2", grace_s="3"
    ) as life:
        await other.wait_for(1)
        life.stop.ask("a deploy")
        await life.recorder.wait(WorkerStopping)
        other.open()
        await life.wait_ended()
        gate.open()
    assert life.code is ExitCode.OK
    assert len(life.recorder.of(DeliverySettled, outcome="done")) == 1


async def test_companions_stop_with_the_reader(broker: FakeBroker) -> None:
    gate, over = Gate(), trio.Event()
    broker.add(job_fields())
    stop, recorder = StopRequest(), Recorder()

    async def companion() -> None:
        try:
            await trio.sleep_forever()
        finally:
            over.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            functools.partial(
                run_worker,
                Given(
                    deliveries=FakeDeliveries(broker, settings=DeliverySettings(wanted_name="w")),
                    settings=WorkerSettings.of(Settings.load({})),
                    identity=identity(),
                    handlers={"work": spec(gate.handle)},
                    make_context=lambda _job, held: held,
                    stop=stop,
                    events=EventStream(recorder),
                ),
                companions=(companion,),
            )
        )
        await gate.wait_for(1)
        stop.ask("a deploy")
        await over.wait()
        assert gate.left == []
        gate.open()
    assert len(recorder.of(DeliverySettled)) == 1


async def test_nothing_of_a_worker_that_has_left_is_written_afterwards(broker: FakeBroker) -> None:
    """A beat or renewal under way would make its record anew."""
    for number in range(20):
        async with living(
            broker, spec(nothing), incarnation=f"i{number}", beat_every_s="0.05", renew_every_s="0.05"
        ) as life:
            broker.add(job_fields())
            await life.recorder.wait(DeliverySettled)
            life.stop.ask("enough")
            await life.wait_ended()
            assert broker.workers == {}


async def test_an_entry_that_nobody_could_release_is_not_forgotten(broker: FakeBroker) -> None:
    """Its reply was lost, or the stop came between: the last call gives back whatever the name holds."""
    async with living(broker, spec(nothing)) as life:
        fake = life.deliveries
        assert isinstance(fake, FakeDeliveries)
        await eventually(lambda: fake.is_blocked)
        with broker.lock:
            broker.streams[Stream.JOBS].add(tuple((k.encode(), v.encode()) for k, v in job_fields().items()))
            broker.streams[Stream.JOBS].take_new("w", 1)
        life.stop.ask("enough")
        await life.wait_ended()
    assert owners(broker) == [POOL]


async def test_a_record_that_vanishes_again_and_again_is_weather(broker: FakeBroker) -> None:
    async with living(broker, spec(nothing)) as life:
        broker.fail_next("promote", GroupMissing("the worker's record vanished twice in a row"), times=4)
        broker.add(job_fields())
        await life.recorder.wait(DeliverySettled)
        assert life.recorder.of(EntriesReturned) == []


def test_an_identity_is_a_value() -> None:
    assert isinstance(identity(), Identity)
