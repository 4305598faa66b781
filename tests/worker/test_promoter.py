"""When delayed jobs are promoted."""

import random
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from stagedoor.broker import Promoted
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.codec import pack
from stagedoor.core.tenure import Stream
from stagedoor.events import EventStream, JobsPromoted
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.weather import Weather
from stagedoor.worker.promoter import TICK_S, Promoter
from tests.support.recorder import Recorder

pytestmark = pytest.mark.usefixtures("inline")


class Planned(FakeDeliveries):
    """Answers promotions as planned, then that nothing is delayed; *on_call* runs during each."""

    def __init__(self, *answers: Promoted) -> None:
        super().__init__(FakeBroker(), settings=DeliverySettings(wanted_name="w"))
        self._answers = list(answers)
        self.calls: list[float] = []
        self.on_call: Callable[[], None] = lambda: None

    def promote(self) -> Promoted:
        self.calls.append(round(trio.current_time(), 6))
        answer = self._answers.pop(0) if self._answers else Promoted()
        self.on_call()
        return answer


class Desk:
    """A promoter and what it has told."""

    def __init__(self, deliveries: FakeDeliveries, recorder: Recorder) -> None:
        events = EventStream(recorder)
        self.pokes = 0
        self.ticks = 0
        self.promoter = Promoter(
            deliveries,
            weather=Weather(events=events, rng=random.Random(1)),
            events=events,
            on_pool=self._poke,
            on_tick=self._tick,
        )

    def _poke(self) -> None:
        self.pokes += 1

    def _tick(self) -> None:
        self.ticks += 1

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.promoter.run()


async def test_it_looks_twice_a_second_when_nothing_is_delayed(autojump_clock: MockClock, recorder: Recorder) -> None:
    deliveries = Planned()
    desk = Desk(deliveries, recorder)
    await desk.run_for(1.9)
    assert deliveries.calls == [0, 0.5, 1.0, 1.5]
    assert desk.ticks == 4
    assert TICK_S == 0.5


async def test_it_sleeps_until_the_next_job_is_due(autojump_clock: MockClock, recorder: Recorder) -> None:
    deliveries = Planned(Promoted(next_due_s=0.12), Promoted(moved=1), Promoted(next_due_s=40))
    await Desk(deliveries, recorder).run_for(1.0)
    assert deliveries.calls == [0, 0.12, 0.62]
    assert [event.count for event in recorder.of(JobsPromoted)] == [1]


async def test_retries_that_were_spread_come_back_as_spread_and_not_together_at_its_ticks(
    autojump_clock: MockClock, recorder: Recorder
) -> None:
    """Also those that another worker has delayed, which does not tell."""
    broker = FakeBroker(lambda: round(trio.current_time() * 1000))
    deliveries = FakeDeliveries(broker, settings=DeliverySettings(wanted_name="w"))
    deliveries.ensure_groups()
    rng = random.Random(57)
    due_ms = sorted(rng.randrange(1, 10_000) for _ in range(300))
    for number, at in enumerate(due_ms, 1):
        broker.delayed[f"1:{number}-0"] = at
        broker.delayed_bodies[f"1:{number}-0"] = pack([b"1", b"kind", b"k"])
    await Desk(deliveries, recorder).run_for(11)
    assert [came_ms for came_ms, _ in broker.streams[Stream.JOBS].entries] == due_ms


async def test_while_more_is_due_it_does_not_sleep(autojump_clock: MockClock, recorder: Recorder) -> None:
    deliveries = Planned(*[Promoted(moved=100, next_due_s=0.0)] * 30)
    await Desk(deliveries, recorder).run_for(0.4)
    assert deliveries.calls == [0] * 31


async def test_a_job_that_is_delayed_while_it_sleeps_wakes_it_in_time(
    autojump_clock: MockClock, recorder: Recorder
) -> None:
    deliveries = Planned()
    desk = Desk(deliveries, recorder)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.run_for, 0.4)
        await trio.sleep(0.1)
        desk.promoter.wake_in(0.05)
    assert deliveries.calls == [0, 0.15]


async def test_a_job_that_is_delayed_during_a_promotion_wakes_it_in_time(
    autojump_clock: MockClock, recorder: Recorder
) -> None:
    """The answer on its way does not know of that job yet."""
    deliveries = Planned()
    desk = Desk(deliveries, recorder)

    def delay_one() -> None:
        if len(deliveries.calls) == 2:
            desk.promoter.wake_in(0.03)

    deliveries.on_call = delay_one
    await desk.run_for(0.9)
    assert deliveries.calls == [0, 0.5, 0.53]


async def test_a_job_that_is_delayed_for_longer_does_not_keep_it_asleep(
    autojump_clock: MockClock, recorder: Recorder
) -> None:
    deliveries = Planned()
    desk = Desk(deliveries, recorder)
    deliveries.on_call = lambda: desk.promoter.wake_in(100)
    await desk.run_for(0.9)
    assert deliveries.calls == [0, 0.5]


async def test_entries_in_the_pool_poke_the_reader(autojump_clock: MockClock, recorder: Recorder) -> None:
    desk = Desk(Planned(Promoted(), Promoted(pool=3), Promoted()), recorder)
    await desk.run_for(1.4)
    assert desk.pokes == 1


async def test_members_that_cannot_be_used_are_told(autojump_clock: MockClock, recorder: Recorder) -> None:
    await Desk(Planned(Promoted(broken=2)), recorder).run_for(0.1)
    assert [(event.count, event.broken) for event in recorder.of(JobsPromoted)] == [(0, 2)]
