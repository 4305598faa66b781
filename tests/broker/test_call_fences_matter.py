"""Each check in the scripts about flow calls is there for a history that goes wrong without it.

As `test_fences_matter`, which explains the idea.
"""

from collections.abc import Callable

import pytest

from stagedoor.broker.calls import (
    Again,
    Begun,
    Calls,
    Ended,
    Kept,
    Looked,
    Pass,
    Refused,
    Running,
    TakenSignal,
    TimedOut,
    Told,
)
from stagedoor.broker.dead_letters import DeadLetters
from stagedoor.core.call import (
    CallOutcome,
    CallState,
    Finish,
    GoOn,
    Misfit,
    Park,
    Sleep,
    Step,
    StepState,
    StepWrite,
    Wait,
)
from stagedoor.core.outcome import Dead, Outcome, Reason, RetryLater, UnknownKind
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerUnavailable, FlowLimitExceeded, LeaseLost, NameTaken
from tests.broker.flow_harness import (
    begun,
    calls_of,
    done,
    end_lease,
    expire,
    is_now,
    lose_timer,
    make_look_due,
    new_call,
    picture,
    set_field,
    started,
    take_one,
    timers,
)
from tests.broker.harness import RedisHarness, settled
from tests.broker.test_fences_matter import Removal, check_goes_wrong

pytestmark = pytest.mark.redis

LATER = 4_102_444_800.0
FOR_EVER = Wait(waiting_for="signal go")
SLEEP = Sleep(until=LATER, waiting_for="sleep")
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


def entries(real: RedisHarness) -> int:
    """Return how many entries and delayed entries there are in all."""
    state = real.state()
    return len(state.jobs.entries) + len(state.critical.entries) + len(state.delayed)


def looks(real: RedisHarness, calls: Calls) -> Looked:
    make_look_due(real)
    return calls.look()


# -- starting and telling -----------------------------------------------------------------


def started_twice(real: RedisHarness) -> None:
    _, calls, _, _ = started(real)
    assert not calls.start(new_call()).created
    assert entries(real) == 1


def started_into_a_full_stream(real: RedisHarness) -> None:
    calls = calls_of(real, stream_maxlen=2)
    calls.start(new_call("a"))
    try:
        calls.start(new_call("b"))
    except BrokerUnavailable:
        return
    raise AssertionError("a call was started into a full stream")


def started_with_a_book(real: RedisHarness) -> None:
    assert too_much(lambda: calls_of(real, most_call_bytes=10).start(new_call(metadata={"a": "b" * 20})))


def started_call_is_queued(real: RedisHarness) -> None:
    calls_of(real).start(new_call())
    assert entries(real) == 1


def started_later(real: RedisHarness) -> None:
    calls_of(real).start(new_call(delay_s=5))
    assert len(timers(real)) == 1


def nobody_is_told(real: RedisHarness) -> None:
    assert sent(calls_of(real), "1") == [Told.UNKNOWN]
    assert picture(real) is None


def ended_call_is_told(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, DONE)
    assert calls.wake("c") is Told.ENDED
    assert entries(real) == 0


def decided_call_is_told(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.record_outcome(right, CallOutcome(state=CallState.DONE))
    assert sent(calls, "1") == [Told.ENDED]


def signal_is_sent_again(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    sent(calls, "1", "1")
    assert taken(calls, right) == TakenSignal("1")
    assert taken(calls, right, key="w2") != TakenSignal("1")


def signal_meets_a_pass_that_is_about_to_wait(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    taken(calls, right)
    sent(calls, "1")
    again = calls.end_pass(right, FOR_EVER)
    assert isinstance(again, Again)
    assert isinstance(calls.end_pass(right, FOR_EVER), Again), "and so after a lost reply"
    assert calls.end_pass(again.right, FOR_EVER) == Ended()


def two_signals_wake_once(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, FOR_EVER)
    sent(calls, "1", "2")
    assert entries(real) == 1


def signal_wakes(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, FOR_EVER)
    sent(calls, "1")
    assert entries(real) == 1


def parked_call_is_told(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, PARK)
    sent(calls, "1")
    assert entries(real) == 0


def running_call_is_resumed(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    assert calls.resume("c") is Told.NOT_PARKED
    assert calls.end_pass(right, FOR_EVER) == Ended()


def resumed_call_forgets_its_misfit(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, Sleep(until=LATER, waiting_for="x", misfit=Misfit(since=1.0, hops=1)))
    set_field(real, ".state", "parked")
    calls.resume("c")
    journal = calls.show("c")
    assert journal is not None
    assert journal.misfit is None


def many_signals(real: RedisHarness) -> None:
    _, calls, _, _ = started(real, most_signals=1)
    assert sent(calls, "1", "2") == [Told.TOLD, Told.FULL]


def large_signals(real: RedisHarness) -> None:
    _, calls, _, _ = started(real, most_call_bytes=100)
    assert sent(calls, "1" * 80, "2" * 80) == [Told.TOLD, Told.FULL]


def cancelled_twice(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.cancel("c")
    assert calls.record_step(right, done("a")).is_cancel_requested


# -- beginning ---------------------------------------------------------------------------------


def old_process_begins(real: RedisHarness) -> None:
    old = real.worker("w")
    calls = calls_of(real, old)
    calls.start(new_call())
    claimed = take_one(old)
    real.lapse("w")
    new = real.worker("w")
    real.destroy_group()
    new.ensure_groups()
    assert take_one(new).tenure == claimed.tenure
    assert lost(lambda: calls.begin_pass(claimed.tenure, "c"))


def stale_tenure_begins(real: RedisHarness) -> None:
    worker, other = real.worker("w"), real.worker("other")
    calls = calls_of(real, worker)
    calls.start(new_call())
    claimed = take_one(worker)
    worker.release([claimed])
    take_one(other)
    assert lost(lambda: calls.begin_pass(claimed.tenure, "c"))


def second_entry_begins(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    real.add(ENTRY, Stream.CRITICAL)
    assert calls.begin_pass(take_one(worker).tenure, "c") is Refused.BUSY
    calls.record_step(right, done("a"))


def second_entry_tells_the_pass(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    real.add(ENTRY, Stream.CRITICAL)
    calls.begin_pass(take_one(worker).tenure, "c")
    assert isinstance(calls.end_pass(right, FOR_EVER), Again)


def same_entry_takes_over(real: RedisHarness) -> None:
    worker, _, claimed, _ = started(real)
    worker.release([claimed])
    other = real.worker("other")
    assert isinstance(calls_of(real, other).begin_pass(take_one(other).tenure, "c"), Begun)


def lease_of_an_entry_that_is_gone(real: RedisHarness) -> None:
    worker, calls, claimed, _ = started(real)
    real.trim(claimed.entry.entry_id)
    real.add(ENTRY, Stream.CRITICAL)
    assert isinstance(calls.begin_pass(take_one(worker).tenure, "c"), Begun)


def zombie(real: RedisHarness) -> tuple[Calls, Pass, Calls, Pass]:
    """Return a pass that froze, and the one that has taken its call over through the same entry."""
    worker, calls, claimed, right = started(real)
    worker.release([claimed])
    other = real.worker("other")
    theirs = calls_of(real, other)
    return calls, right, theirs, begun(theirs, take_one(other)).right


def zombie_records(real: RedisHarness) -> None:
    calls, right, theirs, their_right = zombie(real)
    assert lost(lambda: calls.record_step(right, done("a", value="1")))
    theirs.record_step(their_right, done("a", value="2"))


def zombie_decides(real: RedisHarness) -> None:
    calls, right, _, _ = zombie(real)
    assert lost(lambda: calls.record_outcome(right, CallOutcome(state=CallState.FAILED)))


def zombie_takes_a_signal(real: RedisHarness) -> None:
    calls, right, theirs, their_right = zombie(real)
    sent(calls, "1")
    assert lost(lambda: taken(calls, right))
    assert taken(theirs, their_right) == TakenSignal("1")


def zombie_ends(real: RedisHarness) -> None:
    calls, right, theirs, their_right = zombie(real)
    assert lost(lambda: calls.end_pass(right, FOR_EVER))
    assert theirs.end_pass(their_right, DONE) == Ended()
    assert lost(lambda: calls.end_pass(right, FOR_EVER)), "and after the other's end it is still no repeat"


def zombie_keeps(real: RedisHarness) -> None:
    calls, right, _, _ = zombie(real)
    assert calls.keep([Running(right)]) == (Kept(holds=False),)


def finished_call_gets_an_entry(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    calls.end_pass(right, DONE)
    real.add(ENTRY)
    assert calls.begin_pass(take_one(worker).tenure, "c") is Refused.ENDED
    assert entries(real) == 0


def forgotten_call_gets_an_entry(real: RedisHarness) -> None:
    worker = real.worker()
    real.add(ENTRY)
    assert calls_of(real, worker).begin_pass(take_one(worker).tenure, "c") is Refused.UNKNOWN
    assert picture(real) is None


def parked_call_gets_an_entry(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    calls.end_pass(right, PARK)
    real.add(ENTRY)
    assert calls.begin_pass(take_one(worker).tenure, "c") is Refused.PARKED


def refused_entry_is_settled(real: RedisHarness) -> None:
    finished_call_gets_an_entry(real)
    assert real.state().jobs.pending == {}


def pass_begins_before_its_timer(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    calls.end_pass(right, SLEEP)
    calls.wake("c")
    begun(calls, take_one(worker))
    assert timers(real) == {}


# -- steps -----------------------------------------------------------------------------------------


def pass_that_has_ended_records(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, FOR_EVER)
    assert lost(lambda: calls.record_step(right, done("late")))


def step_is_something_else(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.record_step(right, is_now("a", StepState.RETRY))
    assert lost(lambda: calls.record_step(right, done("a", seen=None)))


def own_heartbeat_marks_a_step(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.keep([Running(right, (is_now("a", StepState.RUNNING),))])
    assert not lost(lambda: calls.record_step(right, done("a")))


def late_heartbeat_meets_a_recorded_step(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.record_step(right, is_now("a", StepState.RETRY))
    calls.keep([Running(right, (is_now("a", StepState.RUNNING),))])
    step = seen(calls, "a")
    assert step is not None
    assert step.state is StepState.RETRY


def write_is_repeated(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.record_step(right, done("a"))
    assert not lost(lambda: calls.record_step(right, done("a")))


def write_is_repeated_with_another_value(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.record_step(right, done("a", value="1"))
    assert lost(lambda: calls.record_step(right, done("a", value="2")))


def value_comes_with_its_step(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.record_step(right, done("a", value="[]"))
    journal = calls.show("c")
    assert journal is not None
    assert journal.value("a") == "[]"


def many_steps(real: RedisHarness) -> None:
    _, calls, _, right = started(real, most_steps=1)
    calls.record_step(right, done("a", 1))
    assert too_much(lambda: calls.record_step(right, done("b", 2)))


def large_values(real: RedisHarness) -> None:
    _, calls, _, right = started(real, most_call_bytes=300)
    calls.record_step(right, done("a", 1, value="1" * 150))
    assert too_much(lambda: calls.record_step(right, done("b", 2, value="1" * 150)))


def large_result(real: RedisHarness) -> None:
    _, calls, _, right = started(real, most_call_bytes=100)
    outcome = CallOutcome(state=CallState.DONE, result="1" * 200)
    assert too_much(lambda: calls.record_outcome(right, outcome))
    assert too_much(lambda: calls.end_pass(right, Finish(outcome=outcome)))


def outcome_is_decided_once(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.record_outcome(right, CallOutcome(state=CallState.FAILED, error="why"))
    assert lost(lambda: calls.record_outcome(right, CallOutcome(state=CallState.DONE)))


def decided_outcome_is_the_end(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.record_outcome(right, CallOutcome(state=CallState.FAILED, error="why"))
    calls.end_pass(right, DONE)
    journal = calls.show("c")
    assert journal is not None
    assert (journal.state, journal.outcome) == (CallState.FAILED, CallOutcome(state=CallState.FAILED, error="why"))


# -- signals -----------------------------------------------------------------------------------------


def signal_is_taken_once(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    sent(calls, "1", "2")
    assert [taken(calls, right, key=key) for key in ("w1", "w2")] == [TakenSignal("1"), TakenSignal("2")]
    journal = calls.show("c")
    assert journal is not None
    assert journal.mailbox == {}


def take_is_repeated(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    sent(calls, "1", "2")
    writes = [is_now("w", state) for state in (StepState.DONE, StepState.WAITING)]

    def take() -> None:
        found = calls.take_signal(right, "go", taken=writes[0], timed_out=None, waiting=writes[1])
        assert found == TakenSignal("1")

    take()
    assert not lost(take)


def time_out_is_repeated(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    states = (StepState.DONE, StepState.FAILED, StepState.WAITING)
    got, over, waiting = (is_now("w", state, due_at=1.0) for state in states)
    assert calls.take_signal(right, "go", taken=got, timed_out=over, waiting=waiting) == TimedOut()
    sent(calls, "1")
    assert not lost(lambda: calls.take_signal(right, "go", taken=got, timed_out=over, waiting=waiting))


def signal_and_time_out_meet(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    sent(calls, "1")
    assert taken(calls, right, due_at=1.0) == TakenSignal("1")


def time_is_not_over_yet(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    assert taken(calls, right, due_at=LATER) != TimedOut()


# -- ends -------------------------------------------------------------------------------------------


def end_is_repeated(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, SLEEP)
    assert not lost(lambda: calls.end_pass(right, SLEEP))


def step_is_written_with_the_end(real: RedisHarness) -> None:
    _, calls, _, right = started(real, most_steps=1)
    calls.end_pass(right, SLEEP, write=is_now("s", StepState.SLEEPING))
    assert seen(calls, "s") is not None


def pass_that_cannot_go_on(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    sent(calls, "1")
    assert calls.end_pass(right, SLEEP, must_leave=True) == Ended()
    assert len(real.state().critical.entries) == 1


def woken_call_ends(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    sent(calls, "1")
    assert calls.end_pass(right, DONE) == Ended()


def sleep_is_over_already(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, Sleep(until=1.0, waiting_for="x"))
    assert len(real.state().critical.entries) == 1


def sleeping_call_has_a_timer(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, SLEEP)
    assert list(timers(real)) == ["flow:c"]


def ended_pass_leaves_nothing(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, FOR_EVER)
    kept = picture(real)
    assert kept is not None
    assert (kept.lease, entries(real), real.state().jobs.pending) == (None, 0, {})


def ended_call_expires(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    kept = picture(real)
    assert kept is not None
    assert not kept.expires
    calls.end_pass(right, DONE)
    kept = picture(real)
    assert kept is not None
    assert kept.expires


def suspended_call_is_kept(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, FOR_EVER)
    kept = picture(real)
    assert kept is not None
    assert not kept.expires


def misfit_is_over(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    calls.end_pass(right, Sleep(until=1.0, waiting_for="x", misfit=Misfit(since=1.0, hops=1)))
    again = begun(calls, take_one(worker))
    assert again.journal.misfit is not None
    calls.end_pass(again.right, FOR_EVER)
    journal = calls.show("c")
    assert journal is not None
    assert journal.misfit is None


def lease_is_renewed(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    end_lease(real)
    calls.keep([Running(right)])
    kept = picture(real)
    assert kept is not None
    assert kept.lease is not None


# -- looking -----------------------------------------------------------------------------------------


def call_is_not_due_for_a_look(real: RedisHarness) -> None:
    """Two that look at once: what one has looked after, the other leaves alone."""
    _, calls, _, right = started(real)
    calls.end_pass(right, DONE)
    make_look_due(real)
    calls.look()
    assert calls.look() == Looked()
    reply = calls._scripts["look"](real.link.quick, *_look_at(real))  # type: ignore[attr-defined]  # as if it had been asked for before
    assert reply == [0, 0, 0, 0]


def _look_at(real: RedisHarness) -> tuple[list[str], list[object]]:
    keys = real.keys
    names = [keys.stream, keys.critical, keys.delayed, keys.delayed_body, keys.calls, keys.calls_states]
    return [*names, keys.call_status("c"), keys.call_lease("c")], [30000, 3600000, 1000, "c"]


def timer_is_lost(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, SLEEP)
    lose_timer(real)
    assert looks(real, calls).timers == 1
    assert len(timers(real)) == 1


def lost_timer_is_due(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, SLEEP)
    lose_timer(real)
    set_field(real, ".due", "1")
    assert looks(real, calls).woken == 1
    assert len(real.state().critical.entries) == 1


def timer_is_there(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, SLEEP)
    set_field(real, ".due", "1")
    assert looks(real, calls) == Looked(looked=1)
    assert real.state().critical.entries == {}


def queued_entry_is_lost(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, GoOn())
    real.trim(*real.state().critical.entries, stream=Stream.CRITICAL)
    assert looks(real, calls).woken == 1


def queued_entry_is_there(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, GoOn())
    assert looks(real, calls) == Looked(looked=1)


def lease_runs_and_entry_is_gone(real: RedisHarness) -> None:
    _, calls, claimed, right = started(real)
    real.trim(claimed.entry.entry_id)
    assert looks(real, calls) == Looked(looked=1)
    calls.record_step(right, done("a"))


def lease_is_over_and_entry_is_there(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    end_lease(real)
    assert looks(real, calls) == Looked(looked=1)
    calls.record_step(right, done("a"))


def nothing_runs_a_running_call(real: RedisHarness) -> None:
    _, calls, claimed, _ = started(real)
    end_lease(real)
    real.trim(claimed.entry.entry_id)
    assert looks(real, calls).woken == 1
    assert entries(real) == 1


def parked_call_is_looked_at(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, PARK)
    assert looks(real, calls) == Looked(looked=1)
    assert entries(real) == 0


def waiting_call_is_looked_at(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, FOR_EVER)
    assert looks(real, calls) == Looked(looked=1)
    assert entries(real) == 0


def ended_call_is_looked_at(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, DONE)
    assert looks(real, calls) == Looked(looked=1)
    score = real.client.zscore(real.keys.calls, "c")
    assert score is not None
    assert score / 1000 > calls_now(real) + 6 * 86400, "when it expires, and not before"


def calls_now(real: RedisHarness) -> float:
    return float(real.client.time()[0])


def expired_call_is_counted_off(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, SLEEP)
    expire(real)
    looks(real, calls)
    assert sum(calls.counts().values()) == 0
    assert (timers(real), calls.list_calls().calls) == ({}, ())
    assert calls.look() == Looked()


def handed_back_entry_was_promoted(real: RedisHarness) -> None:
    worker = real.worker()
    calls = calls_of(real, worker)
    calls.start(new_call())
    worker.settle(1, [settled(take_one(worker), UnknownKind(0, 1))])
    worker.promote()
    assert looks(real, calls) == Looked(looked=1)
    assert entries(real) == 1
    assert looks(real, calls).woken == 1, "nobody has met it again"


def handed_back_entry_is_delayed(real: RedisHarness) -> None:
    worker = real.worker()
    calls = calls_of(real, worker)
    calls.start(new_call())
    worker.settle(1, [settled(take_one(worker), UnknownKind(3600, 1))])
    calls.wake("c")
    assert entries(real) == 1


# -- what settling does to calls -----------------------------------------------------------------------


def both_held(real: RedisHarness, *, lease: bool) -> tuple[Calls, Pass, Callable[[Outcome], None]]:
    """Return a pass that runs, and how to settle another entry of its call, which is held too."""
    worker, calls, _, right = started(real)
    if not lease:
        end_lease(real)
    real.add(ENTRY, Stream.CRITICAL)
    stray = take_one(worker)

    def settle(outcome: Outcome) -> None:
        worker.settle(1, [settled(stray, outcome)])

    return calls, right, settle


def entry_dies(real: RedisHarness) -> None:
    worker, calls, claimed, right = started(real)
    worker.settle(1, [settled(claimed, Dead(Reason.POISON, "x"))])
    kept = picture(real)
    assert kept is not None
    assert (kept.status[".state"], kept.lease) == ("parked", None)
    assert lost(lambda: calls.record_step(right, done("late")))


def letters_of_a_parked_call(real: RedisHarness) -> tuple[Calls, DeadLetters]:
    worker, calls, claimed, _ = started(real)
    worker.settle(1, [settled(claimed, Dead(Reason.POISON, "x"))])
    return calls, DeadLetters(real.link, real.keys)


def letter_of_a_parked_call_is_put_back(real: RedisHarness) -> None:
    _, letters = letters_of_a_parked_call(real)
    letters.requeue(list(letters.newest_first()))
    kept = picture(real)
    assert kept is not None
    assert (kept.status[".state"], kept.counted_as) == ("waiting", CallState.WAITING)


def letter_of_a_resumed_call_is_put_back(real: RedisHarness) -> None:
    calls, letters = letters_of_a_parked_call(real)
    calls.resume("c")
    letters.requeue(list(letters.newest_first()))
    assert (real.length(), letters.count()) == (0, 1)


def letter_of_an_ended_call_is_put_back(real: RedisHarness) -> None:
    _, letters = letters_of_a_parked_call(real)
    set_field(real, ".state", "cancelled")
    letters.requeue(list(letters.newest_first()))
    kept = picture(real)
    assert kept is not None
    assert kept.status[".state"] == "cancelled"


def entry_of_an_ended_call_dies(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    calls.end_pass(right, DONE)
    real.add(ENTRY)
    worker.settle(1, [settled(take_one(worker), Dead(Reason.POISON, "x"))])
    kept = picture(real)
    assert kept is not None
    assert kept.status[".state"] == "done"


def other_entry_dies(real: RedisHarness) -> None:
    calls, right, settle = both_held(real, lease=True)
    settle(Dead(Reason.POISON, "x"))
    assert not lost(lambda: calls.record_step(right, done("a")))


def one_of_three_has_lapsed(real: RedisHarness) -> None:
    worker, calls = real.worker(), calls_of(real)
    for name in ("a", "b", "c"):
        calls.start(new_call(name))
    claimed = worker.read(3).claimed
    worker.release([claimed[1]])
    worker.settle(1, [settled(one, Dead(Reason.POISON, "x")) for one in claimed])
    states = [line.call_id for line in calls.list_calls(state=CallState.PARKED).calls]
    assert sorted(states) == ["a", "c"]


def dead_entry_leaves_no_timer(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    calls.end_pass(right, SLEEP)
    calls.wake("c")
    worker.settle(1, [settled(take_one(worker), Dead(Reason.POISON, "x"))])
    assert timers(real) == {}


def other_entry_is_handed_back(real: RedisHarness) -> None:
    calls, right, settle = both_held(real, lease=False)
    settle(UnknownKind(0, 1))
    assert real.state().delayed == {}
    assert not lost(lambda: calls.record_step(right, done("a")))


def two_entries_are_handed_back(real: RedisHarness) -> None:
    worker = real.worker()
    calls_of(real).start(new_call())
    real.add(ENTRY)
    worker.settle(1, [settled(one, UnknownKind(0, 1)) for one in worker.read(2).claimed])
    assert entries(real) == 1


def pass_fails_and_is_retried(real: RedisHarness) -> None:
    worker, calls, claimed, right = started(real)
    worker.settle(1, [settled(claimed, RetryLater(0, 2, "x"))])
    assert lost(lambda: calls.record_step(right, done("late")))


def entry_of_an_ended_call_is_handed_back(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    calls.end_pass(right, DONE)
    real.add(ENTRY)
    worker.settle(1, [settled(take_one(worker), UnknownKind(0, 1))])
    kept = picture(real)
    assert kept is not None
    assert kept.status[".state"] == "done"


# -- removals --------------------------------------------------------------------------------------------

MAY = "if not may_write(KEYS[1], ARGV[1]) then return 'lost' end"
STATE = "known[1] == 'running' and "
EPOCH = " and known[2] == epoch"

REMOVALS: dict[str, Removal] = {
    # Starting and telling.
    "start: there is one": Removal(
        "start_call", "if there[2] then return {'there', there[1], there[2]} end", "", started_twice
    ),
    "start: the cap": Removal(
        "start_call",
        "if delay == 0 and redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1])",
        "if false",
        started_into_a_full_stream,
    ),
    "start: its size": Removal("start_call", "if bytes > tonumber(ARGV[2]) then", "if false then", started_with_a_book),
    "start: its entry": Removal("start_call", "queue(KEYS[1], '1', status, call_id)", "", started_call_is_queued),
    "start: its timer": Removal(
        "start_call", "set_timer(KEYS[2], KEYS[3], status, call_id, now + delay, '1')", "", started_later
    ),
    "wake: nobody": Removal(
        "wake", "if not state then return 'unknown' end", "state = state or 'waiting'", nobody_is_told
    ),
    "wake: ended": Removal("wake", "if HAS_ENDED[state] then return 'ended' end", "", ended_call_is_told),
    "wake: decided": Removal("wake", "if known[2] and (verb", "if false and (verb", decided_call_is_told),
    "wake: the token": Removal(
        "wake", "redis.call('HEXISTS', status, '.t:' .. ARGV[6]) == 1", "false", signal_is_sent_again
    ),
    "wake: a pass runs": Removal(
        "wake", "redis.call('HINCRBY', status, '.wakes', 1)", "", signal_meets_a_pass_that_is_about_to_wait
    ),
    "wake: an entry is there": Removal(
        "wake", "elseif not is_queued(KEYS[1], KEYS[2], KEYS[7], known[3]) then", "else", two_signals_wake_once
    ),
    "wake: an entry is delayed": Removal(
        "wake", "if member then return", "if false then return", handed_back_entry_is_delayed
    ),
    "wake: an entry": Removal("wake", "queue(KEYS[2], '2', status, call_id)", "", signal_wakes),
    "wake: parked": Removal(
        "wake", "elseif state == 'parked' and (verb", "elseif false and (verb", parked_call_is_told
    ),
    "wake: not parked": Removal(
        "wake", "if verb == 'resume' and state ~= 'parked' then return 'not parked' end", "", running_call_is_resumed
    ),
    "wake: a resume forgets": Removal(
        "wake",
        "if verb == 'resume' then redis.call('HDEL', status, '.misfit') end",
        "",
        resumed_call_forgets_its_misfit,
    ),
    "wake: many": Removal(
        "wake", ">= tonumber(ARGV[7]) then return false end", ">= 1e9 then return false end", many_signals
    ),
    "wake: large": Removal(
        "wake", "if not take_bytes(status, #name + #value, tonumber(ARGV[8]))", "if false", large_signals
    ),
    "wake: a cancel": Removal("wake", "redis.call('HSETNX', status, '.cancel', now)", "", cancelled_twice),
    # Beginning.
    "begin: incarnation": Removal("begin_pass", "if why then return {why} end", "", old_process_begins),
    "begin: tenure": Removal("begin_pass", "if not holds(", "if false and not holds(", stale_tenure_begins),
    "begin: lease": Removal(
        "begin_pass", "if held and held ~= place", "if false and held ~= place", second_entry_begins
    ),
    "begin: the pass is told": Removal(
        "begin_pass", "redis.call('HINCRBY', status, '.wakes', 1)", "", second_entry_tells_the_pass
    ),
    "begin: the same entry": Removal("begin_pass", "and held ~= place ", "", same_entry_takes_over),
    "begin: the entry of the lease": Removal(
        "begin_pass", " and is_there(KEYS[1], KEYS[2], held)", "", lease_of_an_entry_that_is_gone
    ),
    "begin: the epoch": Removal("begin_pass", "or '0') + 1)", "or '0') + 0)", zombie_records),
    "begin: ended": Removal("begin_pass", "if HAS_ENDED[state] then", "if false then", finished_call_gets_an_entry),
    "begin: unknown": Removal(
        "begin_pass",
        "if not state then return turned_away('unknown') end",
        "state = state or 'waiting'",
        forgotten_call_gets_an_entry,
    ),
    "begin: parked": Removal("begin_pass", "if state == 'parked' then", "if false then", parked_call_gets_an_entry),
    "begin: what is refused is acknowledged": Removal(
        "begin_pass", "redis.call('XACK', stream, ARGV[1], entry)", "", refused_entry_is_settled
    ),
    "begin: what is refused is deleted": Removal(
        "begin_pass", "redis.call('XDEL', stream, entry)", "", refused_entry_is_settled
    ),
    "begin: the timer": Removal(
        "begin_pass", "drop_timer(KEYS[5], KEYS[6], call_id)", "", pass_begins_before_its_timer
    ),
    # Steps.
    "record: the epoch": Removal("record_step", EPOCH, "", zombie_records),
    "record: it runs": Removal("record_step", STATE, "", pass_that_has_ended_records),
    "record: the right": Removal("record_step", MAY, "", zombie_records),
    "record: as it was seen": Removal(
        "record_step",
        "if words ~= write.seen and words ~= 'running ' .. epoch then return 'lost' end",
        "",
        step_is_something_else,
    ),
    "record: its own mark": Removal("record_step", " and words ~= 'running ' .. epoch", "", own_heartbeat_marks_a_step),
    "record: a repeat": Removal("record_step", "if current == write.text and (", "if false and (", write_is_repeated),
    "record: a repeat with another value": Removal(
        "record_step",
        "redis.call('HGET', meta, 'v:' .. write.key) == write.value",
        "true",
        write_is_repeated_with_another_value,
    ),
    "record: its value": Removal(
        "record_step",
        "if write.value then redis.call('HSET', meta, 'v:' .. write.key, write.value) end",
        "",
        value_comes_with_its_step,
    ),
    "record: many": Removal("record_step", ">= limits.steps then", ">= 1e9 then", many_steps),
    "record: large": Removal("record_step", "if not take_bytes(status, more, limits.bytes)", "if false", large_values),
    "record: a cancel": Removal(
        "record_step", "== 1 and 'cancel' or 'ok'", "== 2 and 'cancel' or 'ok'", cancelled_twice
    ),
    "decide: the right": Removal("decide", MAY, "", zombie_decides),
    "decide: once": Removal("decide", "if decided then", "if false then", outcome_is_decided_once),
    "decide: large": Removal(
        "decide", "if not take_bytes(KEYS[1]", "if false and not take_bytes(KEYS[1]", large_result
    ),
    # Signals.
    "take: the right": Removal(
        "take_signal", "if not may_write(status, ARGV[1]) then return {'lost'} end", "", zombie_takes_a_signal
    ),
    "take: the letter goes": Removal("take_signal", "redis.call('HDEL', meta, letter)", "", signal_is_taken_once),
    "take: the next one": Removal(
        "take_signal", "redis.call('HSET', status, '.out:' .. name, number)", "", signal_is_taken_once
    ),
    "take: a repeat": Removal("take_signal", "if current == ARGV[8] then", "if false then", take_is_repeated),
    "take: a repeat of a time out": Removal(
        "take_signal", "if current and current == ARGV[9] then", "if false then", time_out_is_repeated
    ),
    "take: the signal wins": Removal(
        "take_signal",
        "if value then\n",
        "if value and (ARGV[5] == '' or now_ms() < tonumber(ARGV[5])) then\n",
        signal_and_time_out_meet,
    ),
    "take: the time": Removal("take_signal", "now_ms() >= tonumber(ARGV[5])", "true", time_is_not_over_yet),
    # Ends.
    "end: the right": Removal("end_pass", "if not may_write(status, epoch) then", "if false then", zombie_ends),
    "end: a repeat": Removal("end_pass", "and 'ended' or 'lost'}", "and 'lost' or 'lost'}", end_is_repeated),
    "end: no repeat of another's": Removal("end_pass", "last[1] == epoch and last[2] == epoch", "last[2]", zombie_ends),
    "end: its step": Removal("end_pass", "if ARGV[17] ~= '' then", "if false then", step_is_written_with_the_end),
    "end: the wakes": Removal(
        "end_pass",
        "(redis.call('HGET', status, '.wakes') or '0') ~= ARGV[4]",
        "false",
        signal_meets_a_pass_that_is_about_to_wait,
    ),
    "end: it must leave": Removal("end_pass", "if ARGV[5] ~= '1' then", "if true then", pass_that_cannot_go_on),
    "end: it leaves an entry": Removal("end_pass", "  end\n  verb = 'go'", "  end", pass_that_cannot_go_on),
    "end: what is over does not ask": Removal("end_pass", "if not is_over and ", "if ", woken_call_ends),
    "end: a sleep that is over": Removal(
        "end_pass", "if verb == 'sleep' and due <= now then verb = 'go' end", "", sleep_is_over_already
    ),
    "end: the timer": Removal(
        "end_pass", "set_timer(KEYS[4], KEYS[5], status, call_id, ARGV[11], '2')", "", sleeping_call_has_a_timer
    ),
    "end: the lease": Removal("end_pass", "redis.call('DEL', KEYS[10])", "", ended_pass_leaves_nothing),
    "end: the entry is acknowledged": Removal(
        "end_pass", "redis.call('XACK', KEYS[tonumber(number)], ARGV[1], entry)", "", ended_pass_leaves_nothing
    ),
    "end: the entry is deleted": Removal(
        "end_pass", "redis.call('XDEL', KEYS[tonumber(number)], entry)", "", ended_pass_leaves_nothing
    ),
    "end: what was decided": Removal("end_pass", "known[2] or verb", "verb", decided_outcome_is_the_end),
    "end: what was decided is not written again": Removal(
        "end_pass", "if not known[2] then", "if true then", decided_outcome_is_the_end
    ),
    "end: large": Removal(
        "end_pass", "if not take_bytes(status, #ARGV[14]", "if false and not take_bytes(status, #ARGV[14]", large_result
    ),
    "end: it expires": Removal("end_pass", "if HAS_ENDED[next_state] then", "if false then", ended_call_expires),
    "end: not before": Removal("end_pass", "if HAS_ENDED[next_state] then", "if true then", suspended_call_is_kept),
    "end: a misfit": Removal("end_pass", "'.entry', '.misfit'", "'.entry'", misfit_is_over),
    # Keeping.
    "keep: the right": Removal("keep", "if not may_write(status, epoch) then return 'lost' end", "", zombie_keeps),
    "keep: the lease": Removal(
        "keep", "redis.call('SET', lease, (known[1] or '') .. ' ' .. epoch, 'PX', ARGV[1])", "", lease_is_renewed
    ),
    "keep: what is recorded": Removal(
        "keep",
        "if words ~= write.seen and words ~= 'running ' .. epoch then return 'lost' end",
        "",
        late_heartbeat_meets_a_recorded_step,
    ),
    # Looking.
    "look: somebody has": Removal(
        "look", "if score and score <= now + 1 then", "if score then", call_is_not_due_for_a_look
    ),
    "look: a timer": Removal("look", "set_timer(KEYS[3], KEYS[4], status, call_id, known[4], '2')", "", timer_is_lost),
    "look: a timer that is due": Removal("look", "if due <= now then return nil end", "", lost_timer_is_due),
    "look: a timer that is there": Removal(
        "look", "if redis.call('ZSCORE', KEYS[3], timer_of(call_id)) then", "if false then", timer_is_there
    ),
    "look: an entry that is lost": Removal(
        "look", "if is_queued(KEYS[1], KEYS[2], KEYS[3], queued) then", "if true then", queued_entry_is_lost
    ),
    "look: an entry that is there": Removal(
        "look", "if is_queued(KEYS[1], KEYS[2], KEYS[3], queued) then", "if false then", queued_entry_is_there
    ),
    "look: a lease": Removal("look", "redis.call('GET', lease) or ", "", lease_runs_and_entry_is_gone),
    "look: an entry of a pass": Removal(
        "look", " or is_there(KEYS[1], KEYS[2], entry) then", " then", lease_is_over_and_entry_is_there
    ),
    "look: neither": Removal(
        "look", "if not again then", "again = again or now\n      if not again then", nothing_runs_a_running_call
    ),
    "look: for a signal": Removal(
        "look",
        "if not due then return now + tonumber(ARGV[2]) end",
        "if not due then return nil end",
        waiting_call_is_looked_at,
    ),
    "look: ended": Removal("look", "elseif HAS_ENDED[state] then", "elseif false then", ended_call_is_looked_at),
    "look: expired": Removal("look", "    forget(call_id, score)\n", "", expired_call_is_counted_off),
    "look: its count": Removal("look", "if own == number then", "if false then", expired_call_is_counted_off),
    "look: its timer": Removal("look", "drop_timer(KEYS[3], KEYS[4], call_id)", "", expired_call_is_counted_off),
    "look: missed once": Removal(
        "look", "if string.sub(queued, 1, 2) ~= 'd:' or ", "if true or ", handed_back_entry_was_promoted
    ),
    "look: missed twice": Removal(
        "look", "redis.call('HSET', status, '.missed', queued)", "", handed_back_entry_was_promoted
    ),
    # Putting back.
    "requeue: the call is parked": Removal(
        "requeue", "if state ~= 'parked' then return 'open' end", "", letter_of_a_resumed_call_is_put_back
    ),
    "requeue: an ended call": Removal(
        "requeue",
        "if HAS_ENDED[state] then return 'ended' end\n  if state ~= 'parked' then return 'open' end",
        "",
        letter_of_an_ended_call_is_put_back,
    ),
    "requeue: the call goes on": Removal(
        "requeue",
        "if status then resume(status, call_id, number .. ':' .. id) end",
        "",
        letter_of_a_parked_call_is_put_back,
    ),
    # Settling.
    "settle: a dead entry parks": Removal(
        "settle",
        "redis.call('HSET', status, '.state', 'parked',",
        "redis.call('HSET', status, '.x', 'parked',",
        entry_dies,
    ),
    "settle: its lease": Removal("settle", "redis.call('DEL', lease)\n  drop_timer", "drop_timer", entry_dies),
    "settle: an ended call": Removal(
        "settle",
        "if not state or HAS_ENDED[state] or state == 'parked' then return end",
        "",
        entry_of_an_ended_call_dies,
    ),
    "settle: another entry": Removal(
        "settle", "if held and string.match(held, '^%S+') ~= place then return end", "", other_entry_dies
    ),
    "settle: each its own": Removal(
        "settle",
        "if verb == 'park' or verb == 'again' then call_at = call_at + 2 end",
        "if holds(KEYS[tonumber(number)], group, consumer, id, tonumber(deliveries)) then call_at = call_at + 2 end",
        one_of_three_has_lapsed,
    ),
    "settle: its timer": Removal("settle", "drop_timer(KEYS[6], KEYS[7], call_id)", "", dead_entry_leaves_no_timer),
    "settle: handed back beside a pass": Removal(
        "settle",
        "if known[1] == 'running' then return known[3] ~= place and is_there(KEYS[1], KEYS[2], known[3]) end",
        "",
        other_entry_is_handed_back,
    ),
    "settle: handed back twice": Removal(
        "settle", "if is_open and has_another(known, place) then", "if false then", two_entries_are_handed_back
    ),
    "settle: a pass that is retried": Removal(
        "settle", "if is_open then pcall(wait_delayed", "if false then pcall(wait_delayed", pass_fails_and_is_retried
    ),
    "settle: handed back after the end": Removal(
        "settle", "not HAS_ENDED[known[1]] and ", "", entry_of_an_ended_call_is_handed_back
    ),
}


@pytest.mark.parametrize("what", REMOVALS)
def test_with_its_checks_the_history_is_right(real: RedisHarness, what: str) -> None:
    REMOVALS[what].history(real)


@pytest.mark.parametrize("what", REMOVALS)
def test_without_the_check_the_history_goes_wrong(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    check_goes_wrong(real, monkeypatch, REMOVALS[what])


def test_every_script_about_calls_has_a_removal() -> None:
    scripts = {removal.script for removal in REMOVALS.values()}
    assert scripts == {
        *(
            "start_call",
            "wake",
            "begin_pass",
            "record_step",
            "decide",
            "take_signal",
            "end_pass",
            "keep",
            "look",
            "requeue",
            "settle",
        ),
    }
