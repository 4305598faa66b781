"""When a worker judges others."""

import random

import pytest
import trio
from trio.testing import MockClock

from stagedoor.broker import Reclaimed, Swept, Trimmed
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerUnavailable
from stagedoor.events import EntriesReclaimed, EntryTrimmed, EventStream, WorkerSwept
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.weather import Weather
from stagedoor.worker.reclaimer import Reclaimer
from stagedoor.worker.standing import Standing
from tests.support.recorder import Recorder
from tests.worker.support import trust

pytestmark = pytest.mark.usefixtures("inline")

TTL_S = 10.0
AWAY_AT = 30.1


class Judge(FakeDeliveries):
    """Notes when it judged; may be away."""

    def __init__(self) -> None:
        super().__init__(FakeBroker(), settings=DeliverySettings(wanted_name="w"))
        self.sweeps: list[float] = []
        self.reclaims: list[float] = []
        self.is_away = False
        self.swept = Swept()
        self.reclaimed = Reclaimed()

    def sweep(self) -> Swept:
        if self.is_away:
            raise BrokerUnavailable("away")
        self.sweeps.append(trio.current_time())
        return self.swept

    def reclaim(self) -> Reclaimed:
        if self.is_away:
            raise BrokerUnavailable("away")
        self.reclaims.append(trio.current_time())
        return self.reclaimed


class Court:
    def __init__(self, judge: Judge, recorder: Recorder) -> None:
        self.pokes = 0
        self.judge = judge
        self.standing = Standing(TTL_S, trio.current_time)
        events = EventStream(recorder)
        self.reclaimer = Reclaimer(
            judge,
            standing=self.standing,
            weather=Weather(events=events, rng=random.Random(1)),
            events=events,
            sweep_every_s=2,
            reclaim_every_s=30,
            rng=random.Random(1),
            on_moved=self._poke,
        )

    def _poke(self) -> None:
        self.pokes += 1

    async def beat(self) -> None:
        while True:
            if self.judge.is_away:
                self.standing.failed()
            else:
                self.standing.beat_succeeded(trio.current_time())
            await trio.sleep(2.5)


@pytest.fixture
def judge() -> Judge:
    return Judge()


async def test_nobody_is_judged_before_a_whole_ttl_of_good_beats(
    autojump_clock: MockClock, judge: Judge, recorder: Recorder
) -> None:
    court = Court(judge, recorder)
    with trio.move_on_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(court.beat)
            nursery.start_soon(court.reclaimer.run)
    assert TTL_S <= judge.sweeps[0] <= TTL_S + 2
    assert all(later - earlier <= 2 for earlier, later in zip(judge.sweeps, judge.sweeps[1:], strict=False))
    assert len(judge.reclaims) in (2, 3)
    assert judge.reclaims[0] >= 27


async def test_without_beats_nobody_is_ever_judged(autojump_clock: MockClock, judge: Judge, recorder: Recorder) -> None:
    court = Court(judge, recorder)
    with trio.move_on_after(100):
        await court.reclaimer.run()
    assert judge.sweeps == judge.reclaims == []


@pytest.mark.parametrize("outage_s", [1, 11, 60])
async def test_after_an_outage_nobody_is_judged_for_a_ttl_also_not_by_a_call_that_was_under_way(
    autojump_clock: MockClock, judge: Judge, recorder: Recorder, outage_s: float
) -> None:
    """Whoever retries a sweep until it goes through is the first one back, and robs everybody."""
    court = Court(judge, recorder)
    with trio.move_on_after(200):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(court.beat)
            nursery.start_soon(court.reclaimer.run)
            # Just after a beat: the next sweep is the first to find out, and is repeated until it goes through.
            await trio.sleep(AWAY_AT)
            judge.is_away = True
            await trio.sleep(outage_s)
            judge.is_away = False
    back_at = AWAY_AT + outage_s
    after = [at for at in judge.sweeps + judge.reclaims if at > AWAY_AT]
    assert min(after) >= (back_at + TTL_S - 2.5 if outage_s > TTL_S else back_at)


async def test_what_a_sweep_found_is_told_and_pokes_the_reader(judge: Judge, recorder: Recorder) -> None:
    court = Court(judge, recorder)
    trust(court.standing)
    judge.swept = Swept((("gone", 3, True), ("leaver", 1, False)), (Trimmed(Stream.CRITICAL, "5-0"),))
    await court.reclaimer.sweep_once()
    assert recorder.events == [
        WorkerSwept(worker="gone", entries=3, crashed=True),
        WorkerSwept(worker="leaver", entries=1, crashed=False),
        EntryTrimmed(stream="critical", entry_id="5-0"),
    ]
    assert court.pokes == 1


async def test_what_a_reclaim_found_is_told_and_pokes_the_reader(judge: Judge, recorder: Recorder) -> None:
    court = Court(judge, recorder)
    trust(court.standing)
    judge.reclaimed = Reclaimed(2, (Trimmed(Stream.JOBS, "5-0"),))
    await court.reclaimer.reclaim_once()
    assert recorder.events == [EntryTrimmed(stream="jobs", entry_id="5-0"), EntriesReclaimed(count=2)]
    assert court.pokes == 1


async def test_finding_nothing_is_not_worth_a_word(judge: Judge, recorder: Recorder) -> None:
    court = Court(judge, recorder)
    trust(court.standing)
    await court.reclaimer.sweep_once()
    await court.reclaimer.reclaim_once()
    assert (len(judge.sweeps), len(judge.reclaims)) == (1, 1)
    assert (recorder.events, court.pokes) == ([], 0)
