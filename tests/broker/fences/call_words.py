"""What several histories of flow calls say."""

from collections.abc import Callable

from stagedoor.broker.calls import Calls, Looked, Pass, Told
from stagedoor.core.call import CallOutcome, CallState, Finish, Park, Sleep, Step, StepState, StepWrite, Wait
from stagedoor.errors import FlowLimitExceeded, LeaseLost, NameTaken
from tests.broker.flow_harness import is_now, make_look_due
from tests.broker.harness import Harness

LATER_AT = 4_102_444_800.0
FOR_EVER = Wait(waiting_for="signal go")
SLEEP = Sleep(until=LATER_AT, waiting_for="sleep")
DONE = Finish(outcome=CallOutcome(state=CallState.DONE, result="1"))
PARK = Park(reason="changed", error="x")
ENTRY = tuple((name.encode(), value.encode()) for name, value in {"kind": "f", "call_id": "c"}.items())


def lost(act: Callable[[], object]) -> bool:
    """Whether the pass is told that it holds no longer."""
    try:
        act()
    except (LeaseLost, NameTaken):
        return True
    return False


def too_much(act: Callable[[], object]) -> bool:
    """Whether the call may keep no more."""
    try:
        act()
    except FlowLimitExceeded:
        return True
    return False


def sent(calls: Calls, *tokens: str) -> list[Told]:
    """Send signals whose values are their tokens."""
    return [calls.signal("c", "go", token, token=token) for token in tokens]


def seen(calls: Calls, key: str) -> Step | None:
    journal = calls.show("c")
    return journal.step(key) if journal else None


def taken(calls: Calls, right: Pass, *, due_at: float | None = None, key: str = "w") -> object:
    """Take a signal; with a due time, time out."""
    before = seen(calls, key)

    def write(state: StepState) -> StepWrite:
        return is_now(key, state, due_at=due_at, seen=before)

    timed_out = write(StepState.FAILED) if due_at is not None else None
    waiting, got = write(StepState.WAITING), write(StepState.DONE)
    return calls.take_signal(right, "go", taken=got, timed_out=timed_out, waiting=waiting)


def entries(broker: Harness) -> int:
    """Return how many entries and delayed entries there are in all."""
    state = broker.state()
    return len(state.jobs.entries) + len(state.critical.entries) + len(state.delayed)


def looks(broker: Harness, calls: Calls) -> Looked:
    make_look_due(broker)
    return calls.look()
