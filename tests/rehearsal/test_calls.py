"""The check of all calls at rest: whatever is not done as it should be is found."""

import stagedoor
from stagedoor.core.call import CallState
from stagedoor.rehearsal.calls import are_over, check_calls, with_calls
from stagedoor.rehearsal.watch import FULFIL
from tests.demo.test_show import CHECKED
from tests.flows.support import World


@stagedoor.flow("fulfil-order")
def fulfil(call: stagedoor.Call) -> str:
    call.step("reserve", lambda: None)
    return call.metadata["result"]


@stagedoor.flow("other")
def other(call: stagedoor.Call) -> int:
    if call.metadata["does"] == "fail":
        raise ValueError("no")
    if call.metadata["does"] == "wait":
        call.wait_signal("never")
    try:
        call.sleep("soon", 0.01)
    except BaseException:
        if call.metadata["does"] == "swallow":
            return 0
        raise
    return 7


def world(**does: str) -> World:
    made = World(fulfil, other)
    for call_id, what in does.items():
        made.start("other", call_id, metadata={"does": what})
    return made


def test_calls_that_are_done_as_they_should_are_right_and_counted() -> None:
    made = world(a="end", b="end")
    made.start(FULFIL, "outbox-1", metadata={"result": "issued"})
    made.run()
    found = check_calls(made.outside, expected={FULFIL: 1, "other": 2})
    assert (found.problems, found.done, found.parked, found.steps) == ((), 3, 0, 3)
    assert found.passes >= 5
    assert with_calls(CHECKED, found) == CHECKED


def test_calls_that_failed_wait_or_are_parked_are_wrong() -> None:
    made = world(a="fail", b="wait", c="swallow")
    made.run()
    found = check_calls(made.outside, expected={"other": 3})
    assert (found.done, found.parked, len(found.problems)) == (0, 1, 3)
    failed, waits, parked = sorted(found.problems)
    assert failed == "wrong: call a of other: it is failed: ValueError: no"
    assert waits == "wrong: call b of other: it is waiting: the signal 'never'"
    assert parked.startswith("wrong: call c of other: it is parked: SuspendSwallowed")
    assert with_calls(CHECKED, found).wrong == 3


def test_a_wrong_result_and_calls_too_few_or_too_many_are_wrong() -> None:
    made = world(a="end")
    made.start(FULFIL, "outbox-1", metadata={"result": "perhaps"})
    made.run()
    found = check_calls(made.outside, expected={FULFIL: 2, "other": 0}, judges={"other": lambda _journal: "not so"})
    assert sorted(found.problems) == [
        "wrong: 0 calls of other must be there, and 1 are",
        "wrong: 2 calls of fulfil-order must be there, and 1 are",
        "wrong: call a of other: not so",
        'wrong: call outbox-1 of fulfil-order: its result is "perhaps"',
    ]


def test_only_calls_that_go_on_by_themselves_keep_a_rehearsal_from_rest() -> None:
    none = dict.fromkeys(CallState, 0)
    assert are_over(none)
    assert are_over(none | {CallState.DONE: 3, CallState.PARKED: 1, CallState.FAILED: 1})
    assert not any(are_over(none | {state: 1}) for state in (CallState.WAITING, CallState.RUNNING, CallState.SLEEPING))
