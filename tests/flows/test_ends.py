"""How calls end: results, failures, aborts, cancels, timeouts, callbacks, and what cannot be kept."""

import contextlib
import sys
from typing import Any

import pytest

import stagedoor
from stagedoor.broker.calls import Told
from stagedoor.core.call import CallState, StepState
from tests.flows.support import World


def test_an_exception_that_leaves_the_function_fails_the_call() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.step("s", lambda: 1)
        raise ValueError("no such\nthing")

    world = World(f)
    world.start("f")
    world.run()
    assert (world.state(), world.error()) == (CallState.FAILED, "ValueError: no such thing")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), stagedoor.Suspend("kept")])
@pytest.mark.parametrize("where", ["flow", "step"])
def test_base_exceptions_fail_the_call_and_nothing_else(error: BaseException, where: str) -> None:
    def raises() -> None:
        raise error

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        if where == "flow":
            raises()
        call.step("s", raises, attempts=1)

    world = World(f)
    world.start("f")
    world.run()
    assert world.state() is CallState.FAILED
    assert type(error).__name__ in world.error()


@pytest.mark.parametrize("where", ["flow", "step", "item"])
def test_abort_ends_the_call_as_aborted_wherever_it_is_raised(where: str) -> None:
    def aborts(*_: Any) -> None:
        raise stagedoor.Abort("sold out")

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        if where == "flow":
            aborts()
        elif where == "step":
            call.step("s", aborts, attempts=9)
        else:
            call.gather("g", [1, 2], aborts)

    world = World(f)
    world.start("f")
    world.run()
    assert (world.state(), world.error()) == (CallState.ABORTED, "Abort: sold out")


def test_an_abort_that_the_flow_swallows_is_an_abort_all_the_same() -> None:
    def aborts() -> None:
        raise stagedoor.Abort("sold out")

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        with contextlib.suppress(Exception):
            call.step("s", aborts)
        return "fine"

    world = World(f)
    world.start("f")
    world.run()
    assert world.state() is CallState.ABORTED


def test_a_result_that_cannot_be_kept_fails_the_call_and_says_why() -> None:
    @stagedoor.flow("f")
    def f(_call: stagedoor.Call) -> Any:
        return {1, 2}

    world = World(f)
    world.start("f")
    world.run()
    assert world.state() is CallState.FAILED
    assert "its result cannot be kept: InvalidValue: {1, 2} makes no JSON" in world.error()


# -- cancel and timeout -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sleep", "wait_signal", "retry"])
def test_a_cancelled_call_ends_at_its_next_operation_and_cleans_up(kind: str) -> None:
    cleaned: list[str] = []

    def fails() -> None:
        raise ValueError

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        try:
            if kind == "sleep":
                call.sleep("nap", 1000)
            elif kind == "retry":
                call.step("s", fails, attempts=99, base=500, cap=500)
            else:
                call.wait_signal("never")
        except stagedoor.CallCancelled:
            cleaned.append("up")
            raise

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    assert world.outside.cancel("c1") is Told.TOLD
    world.run_ready(worker)
    assert (world.state(), cleaned) == (CallState.CANCELLED, ["up"])
    assert world.error() == "CallCancelled: somebody asked for it"
    assert world.outside.cancel("c1") is Told.ENDED


def test_a_cancel_during_a_long_pass_is_heard_at_the_next_operation() -> None:
    ran: list[int] = []
    world = World()

    def step(number: int) -> None:
        ran.append(number)
        if number == 3:
            world.outside.cancel("c1")

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        for number in range(100):
            call.step(f"s{number}", step, number)

    world.know(f)
    world.start("f")
    world.run()
    assert (world.state(), ran) == (CallState.CANCELLED, [0, 1, 2, 3])


def test_a_cancel_that_the_flow_swallows_is_a_cancel_all_the_same() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        try:
            call.sleep("nap", 1000)
        except BaseException as error:
            if isinstance(error, stagedoor.Suspend):
                raise
        return "done"

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    world.outside.cancel("c1")
    world.run_ready(worker)
    assert world.state() is CallState.CANCELLED


def test_a_call_that_takes_too_long_fails_with_its_timeout_also_while_it_sleeps() -> None:
    caught: list[str] = []

    @stagedoor.flow("f", timeout=100)
    def f(call: stagedoor.Call) -> None:
        try:
            call.sleep("nap", 1000)
        except stagedoor.CallTimeout:
            caught.append("timeout")
            call.step("not any more", caught.append, "step")

    world = World(f)
    world.start("f")
    began = world.now()
    world.run()
    assert (world.state(), caught) == (CallState.FAILED, ["timeout"])
    assert world.error().startswith("CallTimeout: not done 100 s after its start")
    assert world.now() - began == pytest.approx(100, abs=1)


def test_a_call_s_time_counts_from_when_it_was_to_begin() -> None:
    @stagedoor.flow("f", timeout=100)
    def f(call: stagedoor.Call) -> str:
        call.sleep("nap", 50)
        return "in time"

    world = World(f)
    world.start("f", delay_s=5000)
    assert world.state() is CallState.SLEEPING
    world.run()
    assert world.result() == '"in time"'


# -- callbacks ------------------------------------------------------------------------------


def test_on_success_runs_after_the_outcome_is_recorded_until_it_has_run_once() -> None:
    told: list[Any] = []
    world = World()

    def success(call: stagedoor.Call, result: Any) -> object:
        shown = world.show()
        assert shown.outcome is not None
        told.append((call.id, result, shown.outcome.state, shown.state))
        if len(told) < 3:
            raise ValueError("not yet")
        return object()  # what it returns is nobody's business

    @stagedoor.flow("f", on_success=success)
    def f(call: stagedoor.Call) -> tuple[int, int]:
        ran = call.step("s", lambda: 1)
        return (ran, 2)

    world.know(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    assert world.outside.cancel("c1") is Told.ENDED
    world.run(worker)
    assert told == [("c1", (1, 2), CallState.DONE, CallState.RUNNING)] * 3
    assert world.state() is CallState.DONE


@pytest.mark.parametrize("state", ["failed", "aborted", "cancelled", "timeout"])
def test_on_failure_hears_how_the_call_ended(state: str) -> None:
    told: list[tuple[str, str]] = []

    @stagedoor.flow("f", timeout=50, on_failure=lambda _call, failure: told.append((failure.state, failure.error)))
    def f(call: stagedoor.Call) -> None:
        if state == "failed":
            raise ValueError("no")
        if state == "aborted":
            raise stagedoor.Abort("no")
        call.sleep("nap", 1000)

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    if state == "cancelled":
        world.outside.cancel("c1")
    world.run(worker)
    expected = {"failed": ("failed", "ValueError: no"), "aborted": ("aborted", "Abort: no")}
    expected["cancelled"] = ("cancelled", "CallCancelled: somebody asked for it")
    expected["timeout"] = ("failed", "CallTimeout: not done 50 s after its start, in operation 1")
    assert told == [expected[state]]
    assert world.state().value == expected[state][0]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), stagedoor.Abort("no"), stagedoor.Permanent("no")])
def test_a_callback_that_fails_for_good_leaves_the_outcome_as_it_is(error: BaseException) -> None:
    def fails(_call: stagedoor.Call, _result: Any) -> None:
        raise error

    @stagedoor.flow("f", on_success=fails)
    def f(_call: stagedoor.Call) -> int:
        return 5

    world = World(f)
    world.start("f")
    world.run()
    assert (world.state(), world.result()) == (CallState.DONE, "5")
    step = world.show().step(".on_success")
    if not isinstance(error, stagedoor.Abort):
        assert step is not None
        assert (step.state, type(error).__name__ in step.error) == (StepState.FAILED, True)


def test_a_callback_has_no_operations_of_its_own() -> None:
    def asks(call: stagedoor.Call, _result: Any) -> None:
        call.step("s", lambda: 1)

    @stagedoor.flow("f", on_success=asks)
    def f(_call: stagedoor.Call) -> None:
        pass

    world = World(f)
    world.start("f")
    world.run()
    step = world.show().step(".on_success")
    assert step is not None
    assert "FlowMisused: 's': called inside '.on_success'" in step.error
    assert world.state() is CallState.DONE


# -- what a suspension must not meet ----------------------------------------------------------


def test_a_swallowed_suspension_parks_the_call_and_names_the_line() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        try:
            call.sleep("nap", 10)
        except BaseException:  # noqa: BLE001 - what a careless flow does
            return "caught"
        return "fine"

    world = World(f)
    world.start("f")
    world.run()
    line = sys._getframe().f_lineno - 8
    assert (world.state(), world.show().parked_reason) == (CallState.PARKED, "suspend_swallowed")
    assert f"the suspension for sleep 'nap' was caught at {__file__}:{line} in f, and the function returned" in (
        world.error()
    )


def test_an_exception_in_the_place_of_a_suspension_parks_the_call() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        try:
            call.sleep("nap", 10)
        finally:
            raise ValueError("in finally")

    world = World(f)
    world.start("f")
    world.run()
    assert world.state() is CallState.PARKED
    assert "the function raised ValueError: in finally at" in world.error()


def test_every_operation_after_a_suspension_raises_it_again() -> None:
    ran: list[str] = []

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        try:
            call.sleep("nap", 10)
        finally:
            call.step("cleanup", ran.append, "cleanup")
        return "fine"

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    assert (world.state(), ran) == (CallState.SLEEPING, [])
    world.run(worker)
    assert (world.result(), ran) == ('"fine"', ["cleanup"])


def test_a_parked_call_goes_on_after_a_fix() -> None:
    world = World()

    @stagedoor.flow("f")
    def broken(call: stagedoor.Call) -> str:
        try:
            call.sleep("nap", 10)
        except BaseException:  # noqa: BLE001 - what a careless flow does
            return "caught"
        return "broken"

    @stagedoor.flow("f")
    def fixed(call: stagedoor.Call) -> str:
        call.sleep("nap", 10)
        return "fixed"

    world.know(broken)
    world.start("f")
    worker = world.run()
    assert world.state() is CallState.PARKED
    world.know(fixed)
    assert world.outside.resume("c1") is Told.TOLD
    world.run(worker)
    assert world.result() == '"fixed"'


def test_an_ended_call_s_keys_expire_after_its_end_and_never_before() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.sleep("nap", 30 * 24 * 3600)

    world = World(f)
    world.start("f")
    world.run()
    assert world.state() is CallState.DONE
    world.advance(7 * 24 * 3600 + 1)
    assert world.outside.show("c1") is None
