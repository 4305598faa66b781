"""One call from its start to its end: what each operation does in the first pass, and in later ones."""

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

import stagedoor
from stagedoor.broker.calls import Told
from stagedoor.core.call import CallState, StepState
from stagedoor.errors import BrokerUnavailable, Retry, Unavailable
from tests.flows.support import FakeCtx, World


class Ran:
    """Steps that tell how often they ran."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __call__(self, name: str, value: Any = None) -> Any:
        self.log.append(name)
        return value


def test_a_call_runs_from_its_start_to_its_result() -> None:
    ran = Ran()

    @stagedoor.flow("close")
    def close(call: stagedoor.Call) -> dict[str, Any]:
        opened = call.memo("opened", lambda: ran("opened", 5))
        seats = call.step("reserve", ran, "reserve", [opened, 2], attempts=5)
        call.sleep("grace", 900)
        paid = call.wait_signal("paid", timeout=3600)
        files = call.gather("render", [1, 2], lambda item: ran("render", item * 2))
        return {"seats": seats, "paid": paid, "files": files, "order": call.metadata["order"], "id": call.id}

    world = World(close)
    world.start("close", metadata={"order": "7"})
    worker = world.worker()
    assert world.run_ready(worker) == 1
    assert (world.state(), world.show().waiting_for) == (CallState.SLEEPING, "sleep 'grace'")
    assert worker.calls.log == ["begin_pass", "record_step", "record_step", "end_pass"]
    world.advance(899)
    assert world.run_ready(worker) == 0
    world.advance(1)
    assert world.run_ready(worker) == 1
    assert (world.state(), world.show().waiting_for) == (CallState.WAITING, "the signal 'paid'")
    assert world.signal("paid", '{"by":"card"}') is Told.TOLD
    world.run_ready(worker)
    assert world.result() == '{"seats":[5,2],"paid":{"by":"card"},"files":[2,4],"order":"7","id":"c1"}'
    assert world.state() is CallState.DONE
    assert ran.log == ["opened", "reserve", "render", "render"]
    assert not world.broker.delayed


def test_a_pass_of_n_steps_makes_n_plus_two_round_trips() -> None:
    @stagedoor.flow("many")
    def many(call: stagedoor.Call) -> None:
        for number in range(40):
            call.step(f"s{number}", lambda: None)

    world = World(many)
    world.start("many")
    worker = world.run()
    assert len(worker.calls.log) == 42
    assert world.state() is CallState.DONE


def test_a_step_that_fails_is_tried_again_after_a_backoff_and_then_its_value_counts() -> None:
    attempts = 0

    def unsure() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise ValueError(f"no {attempts}")
        return "yes"

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        return call.step("unsure", unsure, attempts=3, base=60, cap=60)

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    step = world.show().step("unsure")
    assert step is not None
    assert (step.state, step.attempts, step.error) == (StepState.RETRY, 1, "ValueError: no 1")
    assert world.state() is CallState.SLEEPING
    assert world.show().waiting_for == "the next attempt of step 'unsure'"
    world.run(worker)
    assert (world.result(), attempts) == ('"yes"', 3)


def test_a_step_that_waits_for_its_next_attempt_is_not_run_early() -> None:
    ran = Ran()

    def fails() -> None:
        ran("fails")
        raise Retry(after=1000)

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.step("s", fails, attempts=9)

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    world.signal("anything")  # it wakes the call, and that is all
    assert world.run_ready(worker) == 1
    assert ran.log == ["fails"]
    assert world.next_due_s() == pytest.approx(1000, abs=2)


def test_an_exhausted_step_fails_on_this_and_on_every_later_pass_and_may_be_caught() -> None:
    ran = Ran()

    def fails() -> None:
        ran("fails")
        raise ValueError("broken")

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[Any]:
        told: list[Any] = []
        try:
            call.step("s", fails, attempts=2, base=0)
        except stagedoor.StepFailed as failed:
            told = [failed.key, failed.attempts, failed.error]
        call.sleep("nap", 1)
        return told

    world = World(f)
    world.start("f")
    world.run()
    assert world.result() == '["s",2,"ValueError: broken"]'
    assert ran.log == ["fails", "fails"]


def test_an_outage_of_what_a_step_needs_counts_no_attempt_however_long_it_lasts() -> None:
    attempts = 0

    def away() -> str:
        nonlocal attempts
        attempts += 1
        if attempts <= 20:
            raise Unavailable("the database restarts")
        return "there"

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        return call.memo("s", away)

    world = World(f)
    world.start("f")
    world.run()
    assert world.result() == '"there"'
    step = world.show().step("s")
    assert step is not None
    assert (step.state, step.attempts) == (StepState.DONE, 1)


def test_permanent_ends_the_attempts_at_once() -> None:
    ran = Ran()

    def fails() -> None:
        ran("fails")
        raise stagedoor.Permanent("never")

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.step("s", fails, attempts=50)

    world = World(f)
    world.start("f")
    world.run()
    assert world.state() is CallState.FAILED
    assert "StepFailed: step 's' failed after 1 attempt: Permanent: never" in world.error()
    assert ran.log == ["fails"]


@pytest.mark.parametrize("seconds", [0, 0.0, 0.4, 366 * 24 * 3600, 400 * 24 * 3600])
def test_sleeps_from_nothing_to_more_than_a_year(seconds: float) -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        call.sleep("nap", seconds)
        return "awake"

    world = World(f)
    world.start("f")
    before = world.now()
    world.run()
    assert world.result() == '"awake"'
    assert world.now() - before == pytest.approx(seconds, abs=0.01)


def test_a_sleep_of_nothing_does_not_end_the_pass() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.sleep("nap", 0)

    world = World(f)
    world.start("f")
    assert world.run().calls.log == ["begin_pass", "record_step", "end_pass"]


def test_a_sleep_that_was_over_while_nothing_ran_fires_once() -> None:
    ran = Ran()

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.sleep("nap", 10)
        call.step("after", ran, "after")

    world = World(f)
    world.start("f")
    world.run_ready(world.worker())
    world.advance(5000)
    second = world.worker()
    assert world.run_ready(second) == 1
    assert (world.state(), ran.log) == (CallState.DONE, ["after"])


@pytest.mark.parametrize("moment", ["before the start of the pass", "in a step before the wait", "after the pass"])
def test_a_signal_is_delivered_once_whenever_it_comes(moment: str) -> None:
    world = World()

    def earlier() -> None:
        if moment == "in a step before the wait":
            world.signal("paid", "1")

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> Any:
        call.step("earlier", earlier)
        got = call.wait_signal("paid")
        try:
            call.wait_signal("paid", timeout=5, key="again")
        except stagedoor.SignalTimeout as error:
            return [got, error.signal, error.timeout_s]
        return "twice"

    world.know(f)
    world.start("f")
    if moment.startswith("before"):
        world.signal("paid", "1")
    worker = world.worker()
    world.run_ready(worker)
    if moment == "after the pass":
        world.signal("paid", "1")
    world.run(worker)
    assert world.result() == '[1,"paid",5.0]'


def test_signals_of_one_name_come_in_their_order() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[Any]:
        return [call.wait_signal("n", key=f"k{number}") for number in range(3)]

    world = World(f)
    world.start("f")
    for value in ("1", "2", "3"):
        world.signal("n", value)
    world.run()
    assert world.result() == "[1,2,3]"


def test_a_signal_that_came_wins_over_a_time_that_is_over() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> Any:
        return call.wait_signal("paid", timeout=10)

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    world.signal("paid", '"late"')
    world.advance(20)
    world.run(worker)
    assert world.result() == '"late"'


def test_values_come_back_as_what_the_function_says_it_returns() -> None:
    @attrs.frozen
    class Seat:
        row: str
        number: int

    seen: list[Any] = []

    def seats() -> tuple[Seat, ...]:
        return (Seat("C", 8), Seat("C", 9))

    def moment() -> datetime:
        return datetime(2026, 7, 1, tzinfo=UTC)

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        seen.append((call.step("seats", seats), call.step("moment", moment), call.memo("none", list)))
        call.sleep("nap", 1)

    world = World(f)
    world.start("f")
    world.run()
    assert world.state() is CallState.DONE, world.error()
    assert seen == [((Seat("C", 8), Seat("C", 9)), datetime(2026, 7, 1, tzinfo=UTC), [])] * 2


def test_a_loop_is_as_long_as_it_was() -> None:
    ran = Ran()

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[int]:
        turns = []
        for turn in call.sequence("page", limit=10):
            size = turn.step("fetch", ran, f"fetch {turn.number}", 3 - turn.number)
            turn.sleep("pause", 60)
            for inner in turn.sequence("inner", limit=2):
                inner.memo("m", ran, "m", inner.number)
            turns.append(size)
            if size == 0:
                break
        else:
            turns.append(-1)
        return turns

    world = World(f)
    world.start("f")
    world.run()
    assert world.result() == "[3,2,1,0]"
    assert ran.log.count("m") == 8
    assert ran.log[:3] == ["fetch 0", "m", "m"]
    assert "page/2/inner/1/m" in world.show().steps


def test_a_loop_that_reaches_its_limit_goes_on_behind_it() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        for turn in call.sequence("page", limit=3):
            turn.step("s", lambda: None)
        else:  # noqa: PLW0120 - what a reader would write who breaks in other cases
            return "limit"

    world = World(f)
    world.start("f")
    world.run()
    assert world.result() == '"limit"'
    assert len(world.show().steps) == 3


def test_an_outbox_row_starts_its_call_once_however_often_it_is_delivered() -> None:
    ran = Ran()

    @stagedoor.flow("fulfil")
    def fulfil(call: stagedoor.Call) -> dict[str, str]:
        ran(call.id)
        return dict(call.metadata)

    world = World(fulfil)
    fields = {"kind": "fulfil", "order_id": "7", "outbox_id": "12", "request_id": "r-1", "trace": "t-1"}
    for _ in range(3):
        world.broker.add(fields)
    world.run()
    assert ran.log == ["outbox-12"]
    assert world.result("outbox-12") == (
        '{"kind":"fulfil","order_id":"7","outbox_id":"12","request_id":"r-1","trace":"t-1"}'
    )
    assert (world.show("outbox-12").request_id, world.show("outbox-12").trace) == ("r-1", "t-1")


def test_the_context_is_that_of_the_pass_and_its_check_the_step_s() -> None:
    seen: list[FakeCtx] = []

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        seen.append(call.ctx)
        call.step("s", call.ctx.check)

    world = World(f)
    world.start("f")
    world.run()
    assert world.state() is CallState.DONE
    assert isinstance(seen[0], FakeCtx)


@pytest.mark.parametrize("verb", ["begin_pass", "record_step", "end_pass", "take_signal"])
@pytest.mark.parametrize("after_effect", [False, True])
def test_what_was_done_is_remembered_through_an_outage(verb: str, *, after_effect: bool) -> None:
    ran = Ran()

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> Any:
        call.step("s", ran, "s")
        return call.wait_signal("go")

    world = World(f)
    world.start("f")
    world.signal("go", "5")
    world.broker.fail_next(verb, BrokerUnavailable("gone"), after_effect=after_effect, times=3)
    world.run()
    assert (world.result(), ran.log) == ("5", ["s"])
    assert world.paused == [0.05, 0.1, 0.2]


def test_a_flow_that_starts_itself_starts_another_call() -> None:
    world = World()

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        if call.metadata.get("depth") != "2":
            deeper = str(int(call.metadata.get("depth", "0")) + 1)
            call.step("start", lambda: world.start("f", f"c-{deeper}", metadata={"depth": deeper}))
            call.step("itself", lambda: world.start("f", call.id))
        return call.metadata.get("depth", "0")

    world.know(f)
    world.start("f")
    world.run()
    assert [world.result(name) for name in ("c1", "c-1", "c-2")] == ['"0"', '"1"', '"2"']


def test_a_flow_that_this_worker_does_not_know_is_handed_back() -> None:
    @stagedoor.flow("other")
    def other(call: stagedoor.Call) -> str:
        return "done"

    world = World()
    world.start("other")
    world.run_ready(world.worker())
    assert world.state() is CallState.WAITING
    world.know(other)
    world.run()
    assert world.state() is CallState.DONE
