"""When a worker beats, and what its standing learns of it."""

import random
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from stagedoor.broker import Pulse
from stagedoor.broker.redis import DeliverySettings
from stagedoor.errors import BrokerUnavailable, NameTaken
from stagedoor.events import EventStream
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.weather import Weather
from stagedoor.worker.liveness import Liveness
from stagedoor.worker.standing import Standing

pytestmark = pytest.mark.usefixtures("inline")


class Heart(FakeDeliveries):
    """Notes beats; may be away, or take its time."""

    def __init__(self) -> None:
        super().__init__(FakeBroker(), settings=DeliverySettings(wanted_name="w"))
        self.beats: list[tuple[float, bool]] = []
        self.error: Exception | None = None
        self.on_beat: Callable[[], None] = lambda: None

    def beat(self, pulse: Pulse) -> None:
        if self.error is not None:
            raise self.error
        self.beats.append((round(trio.current_time(), 6), pulse.stopping))
        self.on_beat()


class Chest:
    def __init__(self, heart: Heart, clock: Callable[[], float] | None = None) -> None:
        self.is_stopping = False
        self.standing = Standing(10, clock or trio.current_time)
        self.liveness = Liveness(
            heart,
            pulse=lambda: Pulse(slots=8, stopping=self.is_stopping),
            standing=self.standing,
            weather=Weather(events=EventStream(), rng=random.Random(1)),
            every_s=2.5,
        )

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.liveness.run()


async def test_it_beats_at_once_and_then_steadily(autojump_clock: MockClock) -> None:
    heart = Heart()
    await Chest(heart).run_for(6)
    assert heart.beats == [(0, False), (2.5, False), (5.0, False)]


async def test_it_beats_at_once_when_it_has_something_to_say(autojump_clock: MockClock) -> None:
    heart = Heart()
    chest = Chest(heart)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(chest.run_for, 4)
        await trio.sleep(1)
        chest.is_stopping = True
        chest.liveness.beat_now()
    assert heart.beats == [(0, False), (1, True), (3.5, True)]


async def test_what_it_has_to_say_during_a_beat_is_said_in_the_next_at_once(autojump_clock: MockClock) -> None:
    heart = Heart()
    chest = Chest(heart)

    def stop_now() -> None:
        if not chest.is_stopping:
            chest.is_stopping = True
            chest.liveness.beat_now()

    heart.on_beat = stop_now
    await chest.run_for(1)
    assert heart.beats == [(0, False), (0, True)]


async def test_once_stopped_it_never_beats_again(autojump_clock: MockClock) -> None:
    heart = Heart()
    chest = Chest(heart)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(chest.liveness.run)
        await trio.sleep(1)
        await chest.liveness.stop()
        await trio.sleep(60)
    assert len(heart.beats) == 1


async def test_failed_beats_are_repeated_and_tell_the_standing(autojump_clock: MockClock) -> None:
    heart = Heart()
    chest = Chest(heart)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(chest.run_for, 60)
        await trio.sleep(12)
        assert chest.standing.may_judge()
        heart.error = BrokerUnavailable("away")
        await trio.sleep(3)
        assert not chest.standing.may_judge()
        await trio.sleep(10)
        assert chest.standing.is_cut_off()
        heart.error = None
        await trio.sleep(3)
        assert not chest.standing.is_cut_off()
        assert not chest.standing.may_judge()
        await trio.sleep(10)
        assert chest.standing.may_judge()


async def test_a_freeze_during_a_beat_does_not_count_as_being_heard(autojump_clock: MockClock) -> None:
    heart = Heart()
    now = [0.0]
    chest = Chest(heart, clock=lambda: now[0])

    def freeze() -> None:
        now[0] += 30

    heart.on_beat = freeze
    await chest.liveness.beat_once()
    assert chest.standing.is_cut_off()


async def test_another_process_with_our_name_ends_it(autojump_clock: MockClock) -> None:
    heart = Heart()
    heart.error = NameTaken("another process runs as 'w'")
    with pytest.raises(NameTaken):
        await Chest(heart).liveness.run()
