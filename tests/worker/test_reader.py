"""How entries are claimed: when to block, how a blocked read ends, and what a lost reply costs."""

import random
import threading
import time
from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from stagedoor.broker.deliveries import ReadReply, Trimmed
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerError, BrokerUnavailable
from stagedoor.events import BrokerDown, BrokerUp, DeliverySettled, EntriesReturned, EntryTrimmed, EventStream
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.weather import Weather
from stagedoor.worker.reader import GIVE_UP_S, READ_AHEAD_COUNT, Reader
from tests.support.recorder import LIMIT_S, Recorder
from tests.worker.support import Gate, Shop, eventually, job_fields, living, open_shop, spec


def nothing(job: object, held: object) -> None:
    """Be done at once."""


class Window(FakeDeliveries):
    """Reads nothing; notes what it was asked, and blocks only for a moment of virtual time."""

    def __init__(self) -> None:
        super().__init__(FakeBroker(), settings=DeliverySettings(wanted_name="w"))
        self.asked: list[tuple[int, int]] = []
        self.waits: list[float] = []
        self.wait_error: Exception | None = None
        self.on_read: Callable[[], None] = lambda: None
        self.on_wait: Callable[[], None] = lambda: None
        self.reply = ReadReply(())

    def read(self, limit: int, *, for_jobs: int = 0, leave: object = ()) -> ReadReply:
        self.asked.append((limit, for_jobs))
        self.on_read()
        return self.reply

    def wait(self, block_ms: int) -> ReadReply:
        self.waits.append(trio.current_time())
        self.on_wait()
        if self.wait_error is not None:
            raise self.wait_error
        return ReadReply(())

    def stray(self, held: object) -> int:
        return 0


def reader_of(
    shop: Shop,
    deliveries: FakeDeliveries,
    *,
    read_count: int = 10,
    is_cut_off: Callable[[], bool] = lambda: False,
) -> Reader:
    events = EventStream(shop.recorder)
    return Reader(
        deliveries,
        executor=shop.executor,
        register=shop.register,
        weather=Weather(events=events, rng=random.Random(1), unavailable=BrokerError),
        events=events,
        read_count=read_count,
        block_ms=5000,
        clock=time.monotonic,
        is_cut_off=is_cut_off,
    )


async def test_who_is_taken_for_dead_claims_nothing_before_a_beat_has_gone_through_again() -> None:
    """Its handlers would be told to stop at once, and it would claim what it gives back again and again."""
    gate = Gate()
    is_cut_off = threading.Event()
    is_cut_off.set()
    looks: list[None] = []

    def look() -> bool:
        looks.append(None)
        return is_cut_off.is_set()

    async with open_shop(spec(gate.handle)) as shop, trio.open_nursery() as nursery:
        reader = reader_of(shop, shop.deliveries, is_cut_off=look)
        shop.broker.add(job_fields())
        await nursery.start(reader.run)
        await eventually(lambda: len(looks) >= 4)
        assert gate.came == []
        is_cut_off.clear()
        await gate.wait_for(1)
        gate.open()
        reader.stop()
        await reader.wait_ended()


@pytest.mark.usefixtures("inline")
async def test_who_pokes_during_a_read_keeps_it_from_blocking() -> None:
    """The pool may have been filled after the read has looked at it."""
    window = Window()
    async with open_shop(spec(nothing)) as shop:
        reader = reader_of(shop, window)
        window.on_read = reader.poke
        await reader.read_once()
        assert window.waits == []
        window.on_read = lambda: None
        await reader.read_once()
        assert len(window.waits) == 1


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("read_count, slots, limit", [(10, 8, 8), (10, 64, 10), (3, 8, 3)])
async def test_an_ordinary_read_takes_at_most_the_setting_and_the_free_slots(
    read_count: int, slots: int, limit: int
) -> None:
    window = Window()
    async with open_shop(spec(nothing), slots=slots) as shop:
        await reader_of(shop, window, read_count=read_count).read_once()
    assert window.asked == [(limit, max(1, limit // 8))]


@pytest.mark.usefixtures("inline")
async def test_reading_ahead_takes_a_hundred() -> None:
    window = Window()
    async with open_shop(spec(nothing)) as shop:
        shop.executor._pace.note("work", 0.00001)
        await reader_of(shop, window).read_once()
    assert window.asked == [(READ_AHEAD_COUNT, READ_AHEAD_COUNT // 8)]


@pytest.mark.usefixtures("inline")
async def test_one_in_eight_single_reads_is_kept_for_jobs() -> None:
    window = Window()
    async with open_shop(spec(nothing), slots=1) as shop:
        reader = reader_of(shop, window)
        for _ in range(16):
            await reader.read_once()
    assert [for_jobs for _limit, for_jobs in window.asked] == [0, 0, 0, 0, 0, 0, 0, 1] * 2


@pytest.mark.usefixtures("inline")
async def test_a_blocked_read_that_always_fails_at_once_is_no_hot_loop_and_is_told(autojump_clock: MockClock) -> None:
    """As when no more connections are allowed: every other call goes through."""
    window = Window()
    window.wait_error = BrokerUnavailable("ConnectionError: max number of clients reached")
    async with open_shop(spec(nothing)) as shop:
        reader = reader_of(shop, window)
        started = trio.current_time()
        while trio.current_time() < started + 60:
            await reader.read_once()
        assert len(window.waits) < 45
        assert [event.call for event in shop.recorder.of(BrokerDown)] == ["wait"]
        window.wait_error = None
        await reader.read_once()
        assert len(shop.recorder.of(BrokerUp)) == 1


@pytest.mark.usefixtures("inline")
async def test_one_failed_blocked_read_is_not_worth_a_line(autojump_clock: MockClock) -> None:
    window = Window()
    window.wait_error = BrokerUnavailable("closed")
    async with open_shop(spec(nothing)) as shop:
        reader = reader_of(shop, window)
        await reader.read_once()
        window.wait_error = None
        await reader.read_once()
        assert shop.recorder.events == []


@pytest.mark.usefixtures("inline")
async def test_an_unexpected_error_of_a_blocked_read_is_that_error(autojump_clock: MockClock) -> None:
    window = Window()
    window.wait_error = ZeroDivisionError()
    async with open_shop(spec(nothing)) as shop:
        with pytest.RaisesGroup(ZeroDivisionError):
            await reader_of(shop, window).read_once()


@pytest.mark.usefixtures("inline")
async def test_bodies_found_gone_are_told(recorder: Recorder) -> None:
    window = Window()
    window.reply = ReadReply((), (Trimmed(Stream.CRITICAL, "5-0"),))
    async with open_shop(spec(nothing)) as shop:
        await reader_of(shop, window).read_once()
        assert shop.recorder.events == [EntryTrimmed(stream="critical", entry_id="5-0")]


# -- with threads -----------------------------------------------------------------------


async def test_a_stop_ends_a_blocked_read_and_claims_nothing_more(broker: FakeBroker) -> None:
    async with open_shop(spec(nothing), broker=broker) as shop, trio.open_nursery() as nursery:
        reader = reader_of(shop, shop.deliveries)
        await nursery.start(reader.run)
        await eventually(lambda: shop.deliveries.is_blocked)
        reader.stop()
        await reader.wait_ended()
        broker.add(job_fields())
        assert broker.streams[Stream.JOBS].require_group().pending == {}


async def test_a_cancellation_ends_a_blocked_read_before_it_passes(broker: FakeBroker) -> None:
    async with open_shop(spec(nothing), broker=broker) as shop:
        async with trio.open_nursery() as nursery:
            reader = reader_of(shop, shop.deliveries)
            await nursery.start(reader.run)
            await eventually(lambda: shop.deliveries.is_blocked)
            nursery.cancel_scope.cancel()
        assert not shop.deliveries.is_blocked


async def test_an_entry_that_arrives_with_the_stop_is_accepted(broker: FakeBroker) -> None:
    for _ in range(30):
        async with open_shop(spec(nothing), broker=broker) as shop, trio.open_nursery() as nursery:
            reader = reader_of(shop, shop.deliveries)
            await nursery.start(reader.run)
            await eventually(lambda shop=shop: shop.deliveries.is_blocked)  # type: ignore[misc]  # bound on purpose
            broker.add(job_fields())
            reader.stop()
            await reader.wait_ended()
            await eventually(lambda shop=shop: len(shop.register) == 0)  # type: ignore[misc]  # as above
            # It was either read and settled, or never read.
            assert broker.streams[Stream.JOBS].require_group().pending == {}
            broker.trim(e for e in map(_text, list(broker.streams[Stream.JOBS].entries)))


def _text(entry: tuple[int, int]) -> str:
    return f"{entry[0]}-{entry[1]}"


class Deaf(FakeDeliveries):
    """A blocked read that nothing ends, as on a connection whose other end is gone."""

    def __init__(self, broker: FakeBroker) -> None:
        super().__init__(broker, settings=DeliverySettings(wanted_name="deaf"))
        self.over = threading.Event()
        self.asked_to_end = 0

    def wait(self, block_ms: int) -> ReadReply:
        self.over.wait(LIMIT_S)
        return ReadReply(())

    def unblock(self) -> None:
        self.asked_to_end += 1


async def test_a_stop_asks_a_blocked_read_to_end_again_and_again_and_leaves_a_deaf_one_behind(
    broker: FakeBroker,
) -> None:
    deaf = Deaf(broker)
    started = trio.current_time()
    async with living(broker, spec(nothing), deliveries=deaf) as life:
        await trio.testing.wait_all_tasks_blocked(0.01)
        life.stop.ask("enough")
        await life.wait_ended()
    deaf.over.set()
    assert deaf.asked_to_end > 5
    assert trio.current_time() - started >= GIVE_UP_S


async def test_what_a_blocked_read_has_claimed_whose_reply_was_lost_runs_once_from_the_pool(broker: FakeBroker) -> None:
    """Nobody in this process knows of it, and its name is alive: it would wait until it has idled for a minute."""
    async with living(broker, spec(nothing)) as life:
        fake = life.deliveries
        assert isinstance(fake, FakeDeliveries)
        await eventually(lambda: fake.is_blocked)
        broker.fail_next("wait", BrokerUnavailable("the reply is lost"), after_effect=True)
        fake.unblock()
        await eventually(lambda: not broker._faults["wait"] and fake.is_blocked)
        entry_id = broker.add(job_fields())
        settled = await life.recorder.wait(DeliverySettled)
        assert (settled.entry_id, settled.outcome, settled.deliveries) == (entry_id, "done", 2)
        assert [event.count for event in life.recorder.of(EntriesReturned, why="stray")] == [1]


async def test_after_a_lost_reply_the_strays_are_returned_before_the_next_read(broker: FakeBroker) -> None:
    """Otherwise that read would find nothing and block for seconds over entries that are ours."""
    async with open_shop(spec(nothing), broker=broker) as shop:
        reader = reader_of(shop, shop.deliveries)
        ids = [broker.add(job_fields(order_id=number)) for number in (1, 2, 3)]
        broker.fail_next("read", BrokerUnavailable("the reply is lost"), after_effect=True)
        await reader.read_once()
        await shop.recorder.wait(DeliverySettled, 3)
        assert sorted(event.entry_id for event in shop.recorder.of(DeliverySettled, deliveries=2)) == ids
        assert [event.count for event in shop.recorder.of(EntriesReturned)] == [3]


async def test_what_is_held_is_no_stray(broker: FakeBroker) -> None:
    gate = Gate()
    async with open_shop(spec(gate.handle), broker=broker, slots=2) as shop:
        reader = reader_of(shop, shop.deliveries)
        shop.add_and_claim("work")
        await gate.wait_for(1)
        broker.add(job_fields(order_id=2))
        broker.fail_next("read", BrokerUnavailable("the reply is lost"), after_effect=True)
        await reader.read_once()
        await gate.wait_for(2)
        assert len(set(gate.came)) == 2
        assert [attrs.astuple(tenure)[2] for tenure in shop.register.tenures()] == [1, 2]
        gate.open()


async def test_endless_flows_do_not_starve_jobs(broker: FakeBroker) -> None:
    job_done = trio.Event()

    async def handle(job: object, held: object) -> None:
        job_done.set()

    async def continue_for_ever(job: object, held: object) -> None:
        broker.add(job_fields("flow"), stream=Stream.CRITICAL)
        await trio.lowlevel.checkpoint()

    for number in range(200):
        broker.add(job_fields("flow", number + 1), stream=Stream.CRITICAL)
    broker.add(job_fields())
    async with living(broker, spec(handle), spec(continue_for_ever, "flow"), slots="1"):
        with trio.fail_after(LIMIT_S):
            await job_done.wait()
