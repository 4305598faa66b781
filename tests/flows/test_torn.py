"""Each script about calls is one step: torn in two by a process that dies, something goes wrong that nobody mends.

What is torn is not said by hand: a flow that uses all that there is is run once whole, and
then once for each place in between two writes of a script.
"""

import functools
from collections.abc import Callable

import pytest

from stagedoor.broker.calls import NewCall
from stagedoor.core.tenure import Stream
from tests.broker.harness import RedisHarness
from tests.broker.torn import Killed, scripts_that_go_wrong, take_scissors
from tests.flows.test_crashes import Effects, RealWorld, check, real, ten_steps

__all__ = ["real"]

NOT_IN_TWO = {"start_call", "record_step", "take_signal", "end_pass", "wake"}
"""The others mend themselves: what they leave half done is done by whoever comes next."""


def again[T](act: Callable[[], T]) -> T:
    """Do it, and once more by another process if this one dies of it."""
    try:
        return act()
    except Killed:
        return act()


def tell(harness: RedisHarness) -> None:
    """Run a call to its end through processes of which one may die, and look at what it has left."""
    harness.flush()
    effects = Effects()
    world = RealWorld(harness, ten_steps(effects))
    again(lambda: world.outside.start(NewCall(call_id="c1", flow="ten")))
    worker = again(world.worker)
    for _ in range(60):
        try:
            world.run(worker, within_s=10)
        except Killed:
            worker = again(world.worker)
            again(functools.partial(world.take_over, worker))
        journal = world.outside.show("c1")
        assert journal is not None
        if journal.state.has_ended:
            check(journal, effects, crashes=1)
            break
        if journal.waiting_for == "the signal 'paid'":
            again(lambda: world.outside.signal("c1", "paid", '"card"', token="the only one"))
    else:
        pytest.fail("it is stuck")
    assert harness.length(Stream.CRITICAL) == harness.length(Stream.JOBS) == 0
    assert harness.state().delayed == {}


@pytest.mark.redis
def test_no_script_about_calls_may_be_two(real: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    scissors = take_scissors(monkeypatch, real.client)
    assert scripts_that_go_wrong(scissors, NOT_IN_TWO, functools.partial(tell, real)) == NOT_IN_TWO
