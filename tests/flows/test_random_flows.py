"""Random flows under random deaths, against what the same function does when nothing ever stops it."""

import functools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import stagedoor
from stagedoor.core.call import CallState
from stagedoor.errors import Unavailable
from tests.flows.support import Counted, Killed, World

FLOWS = 100


class Plain:
    """What `call` is where nothing stops: operations are done on the spot."""

    def __init__(self, signals: dict[str, list[Any]]) -> None:
        self._signals = signals

    def step(self, _key: str, function: Callable[..., Any], *args: Any, attempts: int = 5, **_policy: Any) -> Any:
        error = ""
        for _ in range(attempts):
            while True:
                try:
                    return function(*args)
                except Unavailable:
                    continue
                except ValueError as raised:
                    error = f"ValueError: {raised}"
                    break
        raise stagedoor.StepFailed("", attempts, error)

    def memo(self, key: str, function: Callable[..., Any], *args: Any) -> Any:
        return self.step(key, function, *args, attempts=1)

    def sleep(self, _key: str, _seconds: float) -> None:
        """Nothing."""

    def wait_signal(self, name: str, **_more: Any) -> Any:
        if not self._signals.get(name):
            raise stagedoor.SignalTimeout(name, 0)
        return self._signals[name].pop(0)

    def gather(self, key: str, items: Sequence[Any], function: Callable[[Any], Any], **policy: Any) -> list[Any]:
        policy.pop("limit")
        return [self.step(key, function, item, **policy) for item in items]

    def sequence(self, _key: str, *, limit: int) -> list["Plain"]:
        return [self] * limit


class Outside:
    """What the steps of one run act on: how often each has been tried."""

    def __init__(self) -> None:
        self._tried: dict[str, int] = {}

    def act(self, name: str, value: Any, *, fails: int = 0, away: int = 0, attempts: int = 1) -> Any:
        """Fail as often as told in all, or for ever where that is more than the attempts; else return the value.

        A try that nobody remembers, because the process died, counts here and not there.
        """
        self._tried[name] = self._tried.get(name, 0) + 1
        if self._tried[name] <= away:
            raise Unavailable("away")
        if fails >= attempts or self._tried[name] <= away + fails:
            raise ValueError(f"{name} failed")
        return value


def random_program(rng: random.Random, depth: int = 0) -> list[tuple[Any, ...]]:
    """Return a list of operations."""
    kinds = ["step", "step", "memo", "sleep", "wait", "gather", *([] if depth else ["sequence"])]
    program: list[tuple[Any, ...]] = []
    for number in range(rng.randrange(1, 6)):
        kind = rng.choice(kinds)
        name = f"{kind}{number}"
        if kind == "step":
            program.append((kind, name, rng.choice([0, 0, 1, 2]), rng.choice([0, 0, 1]), rng.choice([1, 3])))
        elif kind == "gather":
            program.append((kind, name, rng.randrange(4), rng.choice([0, 0, 1]), rng.choice([1, 2])))
        elif kind == "sequence":
            program.append((kind, name, rng.randrange(4), random_program(rng, 1)))
        else:
            program.append((kind, name))
    return program


def interpret(call: Any, program: list[tuple[Any, ...]], outside: Outside, where: str = "") -> list[Any]:
    """Do what a program says; the same function is the flow and what it is compared with."""
    took: list[Any] = []
    for kind, name, *more in program:
        try:
            took += _done(call, kind, name, more, outside=outside, full=f"{where}{name}")
        except stagedoor.StepFailed:
            took.append(f"{name} failed")
        except stagedoor.SignalTimeout:
            took.append(f"{name} timed out")
    return took


def _done(call: Any, kind: str, name: str, more: list[Any], *, outside: Outside, full: str) -> list[Any]:
    match kind:
        case "step":
            fails, away, attempts = more
            act = functools.partial(outside.act, full, [full], fails=fails, away=away, attempts=attempts)
            return [call.step(name, act, attempts=attempts, base=0.01)]
        case "memo":
            return [call.memo(name, outside.act, full, {"memo": full})]
        case "sleep":
            return [call.sleep(name, 5)]
        case "wait":
            return [call.wait_signal("s", timeout=3, key=name)]
        case "gather":
            count, fails, attempts = more

            def item(number: int) -> Any:
                return outside.act(f"{full}/{number}", number, fails=fails, attempts=attempts)

            return [call.gather(name, list(range(count)), item, attempts=attempts, base=0.01, limit=3)]
    turns = enumerate(call.sequence(name, limit=more[0]))
    return [interpret(turn, more[1], outside, f"{full}/{number}/") for number, turn in turns]


def _dying(rng: random.Random) -> Callable[[Any], Any]:
    dies_at, after_effect = rng.randrange(1, 30), rng.random() < 0.5
    return lambda calls: Counted(calls, dies_at=dies_at, after_effect=after_effect)


def _run_with_deaths(world: World, rng: random.Random) -> None:
    for _ in range(40):
        worker = world.worker(counted=_dying(rng))
        world.take_over(worker)
        try:
            for _ in range(50):
                world.run(worker, most=3)
                if rng.random() < 0.3:
                    world.outside.wake("c1")
                worker.keeper.keep_once()
        except Killed:
            continue
        return
    world.run()


@pytest.mark.parametrize("seed", range(FLOWS))
def test_a_random_flow_ends_as_if_nothing_had_happened(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng)
    signals = [rng.randrange(100) for _ in range(rng.randrange(4))]
    expected = interpret(Plain({"s": list(signals)}), program, Outside())
    outside = Outside()

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[Any]:
        return interpret(call, program, outside)

    world = World(f)
    world.start("f")
    for value in signals:
        world.signal("s", str(value))
    _run_with_deaths(world, rng)
    assert world.state() is CallState.DONE, world.error()
    assert json.loads(world.result() or "null") == expected
