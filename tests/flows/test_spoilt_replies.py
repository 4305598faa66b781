"""Redis answers with an error that nobody has asked for: the call does not end by it, and forgets nothing."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import stagedoor
from stagedoor.broker.calls import Calls
from stagedoor.core.call import CallState
from stagedoor.errors import BrokerError
from tests.flows.support import Counted, World

SPOILT = "unknown subcommand 'SETINFO'. Try CLIENT HELP."


class Spoiling(Counted):
    """A port of which so many calls from the k-th on, those that begin a pass left out, get the reply of another."""

    def __init__(self, calls: Calls, at: int, times: int) -> None:
        super().__init__(calls)
        self._at = at
        self._times = times
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        made = super().__getattr__(name)
        if name == "begin_pass":
            return made

        def call(*args: Any, **kwargs: Any) -> Any:
            self._count += 1
            if self._at <= self._count < self._at + self._times:
                raise BrokerError(SPOILT)
            return made(*args, **kwargs)

        return call


def flow_of(runs: Counter[str]) -> Callable[[Any], Any]:
    def once(key: str) -> str:
        runs[key] += 1
        return key

    @stagedoor.flow("f", on_success=lambda _call, _result: runs.update(["told"]))
    def f(call: stagedoor.Call) -> str:
        call.memo("memo", once, "memo")
        call.step("step", once, "step")
        call.sleep("sleep", 0.01)
        call.gather("parts", ["parts/0", "parts/1"], once)
        paid: str = call.wait_signal("paid")
        return paid

    return f


def play(at: int, times: int) -> tuple[World, Counter[str]]:
    runs: Counter[str] = Counter()
    world = World(flow_of(runs))
    world.start("f")
    world.signal("paid", '"card"')
    world.run(world.worker(counted=lambda calls: Spoiling(calls, at, times)))
    return world, runs


@pytest.mark.parametrize("at", range(1, 13))
def test_one_error_is_asked_again_and_nothing_runs_twice(at: int) -> None:
    world, runs = play(at, 1)
    assert (world.state(), world.result()) == (CallState.DONE, '"card"')
    assert set(runs.values()) == {1}


@pytest.mark.parametrize("at", range(1, 13))
def test_errors_that_go_on_for_a_while_cost_a_pass_and_never_the_call(at: int) -> None:
    world, runs = play(at, 6)
    assert (world.state(), world.result()) == (CallState.DONE, '"card"')
    assert max(runs.values()) <= 3


def test_errors_that_never_end_do_not_end_the_call_as_failed() -> None:
    world, _runs = play(2, 10_000)
    assert not world.state().has_ended
