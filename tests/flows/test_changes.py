"""Code that changes under a running call: what is legal, what is not, and how it is found out before a deploy."""

import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

import stagedoor
from stagedoor.broker.calls import Told
from stagedoor.broker.deliveries import Pulse
from stagedoor.core.call import CallState
from stagedoor.core.flow import FlowSpec, flow_of
from stagedoor.core.history_data import data_of
from stagedoor.flows import check_history, check_source
from tests.flows.support import World

_PULSE = Pulse(slots=4)


def make(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return stagedoor.flow("f")(body)


def spec_of(body: Callable[[Any], Any]) -> FlowSpec:
    spec = flow_of(make(body))
    assert spec is not None
    return spec


def ops(*names: str) -> Callable[[Any], Any]:
    """Return a flow that makes these operations: ``kind:key``."""

    def body(call: Any) -> str:
        for name in names:
            kind, _, key = name.partition(":")
            match kind:
                case "step":
                    call.step(key, int)
                case "memo":
                    call.memo(key, int)
                case "nap":
                    call.sleep(key, 100)
                case "gather":
                    call.gather(key, [1, 2], int)
                case "signal":
                    call.wait_signal(key)
        return "done"

    return body


OLD = ("step:a", "memo:b", "nap:c", "step:d")

MISFITS = [
    (("step:a", "step:x", "memo:b", "nap:c"), "expected 2. memo 'b', got 2. step 'x'"),  # inserted
    (("memo:b", "nap:c"), "expected 1. step 'a', got 1. memo 'b'"),  # removed
    (("step:z", "memo:b", "nap:c"), "expected 1. step 'a', got 1. step 'z'"),  # renamed
    (("memo:b", "step:a", "nap:c"), "expected 1. step 'a', got 1. memo 'b'"),  # moved
    (("memo:a", "memo:b", "nap:c"), "expected 1. step 'a', got 1. memo 'a'"),  # of another kind
    (("step:a",), "ended its pass before it made 2. memo 'b'"),  # ends early
    ((), "ended its pass before it made 1. step 'a'"),
    (("step:a", "step:a"), "the key 'a' is used twice in one pass"),
    (("step:a", "signal:b"), "expected 2. memo 'b', got 2. signal 'b'"),
    (("step:a", "nap:c"), "expected 2. memo 'b', got 2. sleep 'c'"),
]
LEGAL = [
    ("step:a", "memo:b", "nap:c", "step:d"),
    ("step:a", "memo:b", "nap:c"),  # what was not reached may go
    ("step:a", "memo:b", "nap:c", "gather:x", "step:y"),  # and others may come
]


def sleeping(old: tuple[str, ...] = OLD) -> World:
    """Return a world with a call that sleeps in its third operation."""
    world = World(make(ops(*old)))
    world.start("f")
    world.run_ready(world.worker())
    assert world.state() is CallState.SLEEPING
    return world


@pytest.mark.parametrize("new, told", MISFITS)
def test_a_misfit_is_handed_back_and_both_histories_are_shown(new: tuple[str, ...], told: str) -> None:
    world = sleeping()
    world.know(make(ops(*new)))
    world.advance(100)
    worker = world.worker()
    world.run_ready(worker)
    assert world.state() is CallState.SLEEPING
    for part in (told, "recorded: 1. step 'a', 2. memo 'b', 3. sleep 'c'", "this code made: "):
        assert part in world.show().waiting_for
    world.know(make(ops(*OLD)))
    world.run(worker)
    assert world.result() == '"done"'


def test_a_misfit_is_handed_back_with_growing_pauses_then_parked_and_resumed_after_a_fix() -> None:
    world = sleeping()
    world.know(make(ops("memo:b")))
    world.advance(100)
    worker = world.worker()
    world.run_ready(worker)
    began, passes = world.now(), world.show().epoch
    pauses: list[float] = []
    while world.state() is not CallState.PARKED:
        due = world.next_due_s()
        assert due is not None
        pauses.append(round(due, 1))
        world.advance(due)
        worker.deliveries.beat(_PULSE)
        world.run_ready(worker)
    assert pauses[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert world.now() - began == pytest.approx(600, abs=6)
    assert world.show().epoch - passes < 140, "a few looks a minute, no hot loop"
    assert world.show().parked_reason == "flow_changed"
    assert "expected 1. step 'a', got 1. memo 'b'" in world.error()
    world.know(make(ops(*OLD)))
    assert world.outside.resume("c1") is Told.TOLD
    worker.deliveries.beat(_PULSE)
    world.run(worker)
    assert world.result() == '"done"'


def test_a_call_that_no_code_fits_any_more_can_be_cancelled_and_its_callback_is_tried_again() -> None:
    told: list[stagedoor.Failure] = []

    def tell(_call: Any, failure: stagedoor.Failure) -> None:
        told.append(failure)
        if len(told) == 1:
            raise ValueError("not yet")

    world = sleeping()
    world.know(stagedoor.flow("f", on_failure=tell)(ops("memo:b")))
    assert world.outside.cancel("c1") is Told.TOLD
    worker = world.worker()
    began = world.now()
    world.run_ready(worker)
    while not world.state().has_ended:
        assert world.state() is CallState.SLEEPING, "another worker may have code that fits"
        due = world.next_due_s()
        assert due is not None
        world.advance(due)
        worker.deliveries.beat(_PULSE)
        world.run_ready(worker)
    assert world.state() is CallState.CANCELLED
    assert world.now() - began == pytest.approx(600, abs=10)
    assert [failure.state for failure in told] == ["cancelled", "cancelled"]
    assert "no code here fits its history: FlowChanged: expected 1. step 'a', got 1. memo 'b'" in told[0].error


@pytest.mark.parametrize("new", LEGAL)
def test_what_was_not_reached_may_change(new: tuple[str, ...]) -> None:
    world = sleeping()
    world.know(make(ops(*new)))
    world.run()
    assert world.result() == '"done"'


def test_a_worker_with_the_old_code_may_take_it_meanwhile() -> None:
    world = sleeping()
    new, old = make(ops("memo:b")), make(ops(*OLD))
    world.know(new)
    world.advance(100)
    worker = world.worker()
    world.run_ready(worker)
    assert world.show().misfit is not None
    world.know(old)
    world.run(worker)
    assert world.result() == '"done"'


def test_no_misfit_is_caught_by_a_flow() -> None:
    world = sleeping()

    def careless(call: Any) -> str:
        try:
            call.step("x", int)
        except Exception:  # noqa: BLE001 - what a careless flow does
            return "caught"
        return "made"

    world.know(make(careless))
    world.advance(100)
    world.run_ready(world.worker())
    assert world.show().misfit is not None
    assert world.state() is CallState.SLEEPING


def test_an_exception_before_the_recorded_end_is_a_misfit_and_no_failure() -> None:
    world = sleeping()

    def raises(call: Any) -> None:
        call.step("a", int)
        raise ValueError("new check")

    world.know(make(raises))
    world.advance(100)
    world.run_ready(world.worker())
    assert world.show().misfit is not None


def test_a_pass_that_would_wait_before_the_recorded_end_is_a_misfit() -> None:
    def old(call: Any) -> None:
        with contextlib.suppress(stagedoor.FlowMisused):
            call.sleep("x", -1)  # it has a place, and is never recorded
        call.sleep("nap", 100)

    def new(call: Any) -> None:
        call.sleep("x", 50)
        call.sleep("nap", 100)

    world = World(make(old))
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    world.know(make(new))
    world.advance(100)
    world.run_ready(worker)
    assert "ended its pass before it made 2. sleep 'nap'" in world.show().waiting_for


def test_a_remembered_value_that_the_new_type_cannot_take_is_a_misfit() -> None:
    world = World()

    def text(call: Any) -> None:
        call.step("a", lambda: "text")
        call.sleep("nap", 10)

    def number() -> dict[str, int]:
        return {}

    def typed(call: Any) -> None:
        call.step("a", number)
        call.sleep("nap", 10)

    world.know(make(text))
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    world.know(make(typed))
    world.advance(10)
    world.run_ready(worker)
    assert "the value of 'a' cannot be read as dict[str, int]" in world.show().waiting_for


def test_branching_on_what_is_remembered_never_is_a_change() -> None:
    rng = random.Random(7)

    def fails() -> None:
        raise ValueError

    def body(call: Any) -> list[str]:
        took = []
        for turn in call.sequence("turn", limit=call.memo("turns", rng.randrange, 2, 6)):
            if turn.step("coin", rng.random) < 0.5:
                turn.sleep("nap", 10)
                took.append("slept")
            try:
                turn.wait_signal("go", timeout=5)
            except stagedoor.SignalTimeout:
                took.append("timed out")
            try:
                turn.step("fails", fails, attempts=turn.memo("attempts", rng.randrange, 1, 3))
            except stagedoor.StepFailed:
                turn.gather("g", list(range(turn.memo("n", rng.randrange, 4))), str)
        return took

    for number in range(30):
        world = World(make(body))
        world.start("f")
        if number % 3 == 0:
            world.signal("go")
        world.run()
        assert world.state() is CallState.DONE, world.error()


# -- offline ------------------------------------------------------------------------------------


@pytest.mark.parametrize("new, told", MISFITS)
def test_a_misfit_is_found_offline_in_the_printed_history(new: tuple[str, ...], told: str) -> None:
    printed = json.loads(json.dumps(data_of(sleeping().show())))
    (finding,) = check_history(spec_of(ops(*new)), printed)
    assert finding.level == "misfit"
    assert told in finding.text


@pytest.mark.parametrize("new", LEGAL)
def test_what_fits_has_no_finding_and_runs_nothing(new: tuple[str, ...]) -> None:
    assert check_history(spec_of(ops(*new)), sleeping().show()) == ()


def full_history() -> tuple[World, Callable[[Any], Any], list[str]]:
    ran: list[str] = []

    def fails() -> None:
        ran.append("fails")
        raise ValueError

    def tells(name: str, value: Any) -> Any:
        ran.append(name)
        return value

    def body(call: Any) -> Any:
        number = call.memo("m", tells, "m", 3)
        items = call.gather("g", list(range(number)), lambda item: tells("item", item))
        paid = call.wait_signal("paid")
        try:
            call.step("fails", fails, attempts=1)
        except stagedoor.StepFailed:
            call.sleep("nap", 10)
        for turn in call.sequence("s", limit=number):
            turn.step("x", lambda: ran.append("x"))
        return [items, paid]

    world = World(make(body))
    world.start("f")
    world.signal("paid", '"card"')
    return world, body, ran


def test_the_whole_history_of_an_ended_call_is_replayed_offline_without_running_a_step() -> None:
    world, body, ran = full_history()
    world.run()
    assert world.result() == '[[0,1,2],"card"]'
    before = list(ran)
    printed = json.loads(json.dumps(data_of(world.show())))
    assert check_history(spec_of(body), printed) == ()
    assert ran == before


def test_every_half_way_history_fits_its_own_code() -> None:
    world, body, _ran = full_history()
    worker = world.worker()
    for _ in range(5):
        world.run_ready(worker, most=1)
        assert check_history(spec_of(body), data_of(world.show())) == ()
        world.advance(world.next_due_s() or 0)
    assert world.state() is CallState.DONE


def test_a_shorter_list_of_a_gather_is_found_offline() -> None:
    world, _body, _ran = full_history()
    world.run()

    def shorter(call: Any) -> None:
        call.memo("m", int)
        call.gather("g", [0, 1], str)

    (finding,) = check_history(spec_of(shorter), world.show())
    assert "gather 'g' had 3 items when it began, and has 2 now" in finding.text


def test_a_history_of_another_flow_is_none_of_this_one() -> None:
    other = flow_of(stagedoor.flow("g")(ops(*OLD)))
    assert other is not None
    (finding,) = check_history(other, sleeping().show())
    assert finding.text == "a call of the flow 'f', and this is 'g'"


def test_the_context_outside_a_step_is_a_warning() -> None:
    def body(call: Any) -> None:
        if call.ctx.orders.get(5):
            call.step("a", int)

    findings = check_history(spec_of(body), just_started())
    assert [(finding.level, finding.text) for finding in findings] == [
        ("warning", "call.ctx.orders is used outside a step: what it gives is not remembered")
    ]


def just_started() -> Any:
    world = World()
    world.start("f")
    return world.show()


def test_a_flow_that_would_now_fail_is_a_warning() -> None:
    def body(_call: Any) -> None:
        raise ValueError("no")

    (finding,) = check_history(spec_of(body), just_started())
    assert (finding.level, finding.text) == ("warning", "the call would fail after operation 0: ValueError: no")


def test_finally_with_and_greedy_excepts_around_a_suspension_are_warned_of() -> None:
    def body(call: Any) -> None:
        try:
            call.sleep("a", 1)
        finally:
            print("again")
        with contextlib.nullcontext():
            for turn in call.sequence("s"):
                turn.step("b", int)
        try:
            call.wait_signal("c")
        except BaseException:  # noqa: BLE001 - that is the case
            print("swallowed")
        try:
            call.step("fine", int)
        except Exception:  # noqa: BLE001 - allowed
            print("fine")
        try:
            print("no operation")
        finally:
            print("fine")
        try:
            call.step("again", int)
        except BaseException:
            print("and lets it pass")
            raise

    first = body.__code__.co_firstlineno
    found = [
        (finding.where.rpartition(":")[2], finding.text.split(" around")[0]) for finding in check_source(spec_of(body))
    ]
    assert found == [
        (str(first + 4), "`finally`"),
        (str(first + 5), "`with`"),
        (str(first + 10), "this `except` would swallow a suspension: catch Exception at most"),
    ]
    assert check_source(spec_of(lambda call: None)) == ()
