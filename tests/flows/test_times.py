"""What is told of passes and steps to people and metrics: times, and what became of attempts. Nobody decides by it."""

from collections.abc import Mapping
from typing import Any

import pytest

import stagedoor
from stagedoor.core.call import Step
from tests.flows.support import Worker, World, handle


def told(worker: Worker) -> list[tuple[str, str, dict[str, int]]]:
    """Note from now on what a worker's engine tells of its passes, but for how long they took."""
    found: list[tuple[str, str, dict[str, int]]] = []

    def note(flow: str, ended: str, seconds: float, outcomes: Mapping[str, int]) -> None:
        assert seconds >= 0
        found.append((flow, ended, dict(outcomes)))

    worker.engine._on_pass = note
    return found


def times(step: Step | None) -> dict[str, Any]:
    assert step is not None
    return {name: step.more[name] for name in ("since", "at", "ran_s") if name in step.more}


def test_a_step_says_when_it_was_done_and_how_long_it_ran() -> None:
    @stagedoor.flow("f")
    def f(call: Any) -> None:
        call.step("s", world.advance, 2.5)

    world = World(f)
    world.start("f")
    world.run()
    step = world.show().step("s")
    assert times(step) == {"at": round(world.now(), 3), "ran_s": pytest.approx(2.5)}


def test_a_step_says_since_when_it_was_tried_and_how_long_its_last_attempt_ran() -> None:
    tried: list[float] = []

    @stagedoor.flow("f")
    def f(call: Any) -> None:
        call.step("s", work, attempts=3)

    def work() -> None:
        tried.append(world.now())
        world.advance(0.5)
        if len(tried) < 3:
            raise OSError

    world = World(f)
    world.start("f")
    world.run()
    first, last = tried[0], tried[2]
    assert times(world.show().step("s")) == {
        "since": pytest.approx(first + 0.5, abs=0.002), "at": pytest.approx(last + 0.5, abs=0.002),
        "ran_s": pytest.approx(0.5),
    }  # fmt: skip


def test_a_sleep_and_a_wait_keep_when_they_began() -> None:
    @stagedoor.flow("f")
    def f(call: Any) -> None:
        call.sleep("s", 60)
        call.wait_signal("go")

    world = World(f)
    world.start("f")
    began_at = world.now()
    worker = world.run()
    slept = times(world.show().step("s"))
    assert slept["at"] - slept["since"] == pytest.approx(60, abs=0.01)
    assert slept["since"] == pytest.approx(began_at, abs=0.01)
    world.advance(30)
    world.signal("go")
    world.run(worker)
    waited = times(world.show().step("go"))
    assert waited["at"] - waited["since"] == pytest.approx(30, abs=0.01)


def test_each_pass_is_told_with_how_it_left_the_call_and_what_became_of_its_attempts() -> None:
    tried: list[int] = []

    @stagedoor.flow("f")
    def f(call: Any) -> None:
        call.memo("m", int)
        call.step("s", work, attempts=2)
        call.gather("g", [1, 2], str)
        call.wait_signal("go")
        call.step("last", exit, "no", attempts=1)

    def work() -> None:
        tried.append(1)
        if len(tried) < 2:
            raise OSError

    world = World(f)
    worker = world.worker()
    passes = told(worker)
    world.start("f")
    world.run(worker)
    world.signal("go")
    world.run(worker)
    assert {flow for flow, *_ in passes} == {"f"}
    assert [ended for _, ended, _ in passes] == ["sleeping", "waiting", "failed"]
    assert passes[-1][2] == {"failed": 1}
    assert sum(outcomes.get("done", 0) for *_, outcomes in passes) == 4
    assert sum(outcomes.get("retry", 0) for *_, outcomes in passes) == 1


def test_a_pass_that_was_lost_is_told_as_lost() -> None:
    @stagedoor.flow("f")
    def f(call: Any) -> None:
        call.step("s", take_away)
        call.step("never", int)

    def take_away() -> None:
        worker.is_ours = False

    world = World(f)
    worker = world.worker()
    passes = told(worker)
    world.start("f")
    [claimed] = worker.deliveries.read(1).claimed
    handle(worker, claimed, specs=world.specs, now=world.now())
    assert [(flow, ended) for flow, ended, _ in passes] == [("f", "lost")]
