"""What a pass costs: calls of the port, and work for each step that is remembered. Counted, not timed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import stagedoor
from stagedoor.core import journal
from stagedoor.core.call import Step
from stagedoor.flows import history
from tests.flows.support import World


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Count the lines of Python that are run meanwhile."""
    count = [0]

    def trace(_frame: object, event: str, _arg: object) -> object:
        count[0] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]  # it takes what it is given
    try:
        yield count
    finally:
        sys.settrace(before)


def many_steps(number: int) -> World:
    """Return a world with a call that has done so many steps, and waits."""

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        for step in range(number):
            call.step(f"s{step}", lambda: 1)
        call.wait_signal("one")
        call.wait_signal("two")

    world = World(f)
    world.start("f")
    return world


@pytest.mark.parametrize("number", [1, 10, 300])
def test_a_pass_of_n_steps_makes_at_most_n_and_three_calls(number: int) -> None:
    world = many_steps(number)
    worker = world.worker()
    world.run_ready(worker)
    assert len(worker.calls.log) == number + 2  # the wait is written as the pass ends


def test_replaying_finished_steps_costs_one_read_and_parses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    world = many_steps(300)
    worker = world.worker()
    world.run_ready(worker)
    parsed: list[str] = []
    plain = journal.parse_step

    def parse(text: str) -> Step:
        parsed.append(text)
        return plain(text)

    monkeypatch.setattr(journal, "parse_step", parse)
    monkeypatch.setattr(history, "parse_step", parse)
    world.signal("one")
    del worker.calls.log[:]
    world.run_ready(worker)
    assert worker.calls.log == ["begin_pass", "take_signal", "end_pass"]
    assert [text.split(" ")[0] for text in parsed] == ["waiting"], "only what is not finished"


def test_work_grows_with_the_steps_and_no_faster() -> None:
    lines = {}
    for number in (100, 1000):
        world = many_steps(number)
        worker = world.worker()
        with counted_lines() as first:
            world.run_ready(worker)
        world.signal("one")
        with counted_lines() as again:
            world.run_ready(worker)
        lines[number] = (first[0] / number, again[0] / number)
    assert lines[1000][0] < lines[100][0] * 1.05
    assert lines[1000][1] < lines[100][1] * 1.05
