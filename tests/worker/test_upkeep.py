"""When chores are called."""

import random

import pytest
import trio
from trio.testing import MockClock

from stagedoor.errors import BrokerUnavailable
from stagedoor.events import EventStream
from stagedoor.weather import Weather
from stagedoor.worker.upkeep import Chore, Upkeep
from tests.support.recorder import Recorder

pytestmark = pytest.mark.usefixtures("inline")


async def called_within(
    seconds: float, recorder: Recorder, autojump_clock: MockClock, *, fails: range = range(0)
) -> list[float]:
    """Return when a chore of every 2 s was called, some of its calls failing."""
    calls: list[float] = []

    def once() -> None:
        calls.append(round(trio.current_time(), 3))
        if len(calls) in fails:
            raise BrokerUnavailable("gone")

    upkeep = Upkeep(
        Chore(name="chore", every_s=2.0, once=once),
        weather=Weather(events=EventStream(recorder), rng=random.Random(1)),
    )
    with trio.move_on_after(seconds):
        await upkeep.run()
    return calls


async def test_a_chore_is_called_after_each_pause(recorder: Recorder, autojump_clock: MockClock) -> None:
    began = trio.current_time()
    calls = await called_within(7, recorder, autojump_clock)
    assert [at - began for at in calls] == pytest.approx([2, 4, 6])


async def test_a_chore_that_does_not_go_through_is_called_again_soon(
    recorder: Recorder, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    calls = await called_within(5, recorder, autojump_clock, fails=range(1, 4))
    assert len([at for at in calls if at - began < 3]) == 4, "three failed, and the fourth went through"
