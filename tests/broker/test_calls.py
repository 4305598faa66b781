"""The flow journal: each verb, over the fake and over a real Redis."""

import json
from collections.abc import Sequence

import pytest

from stagedoor.broker.calls import (
    Again,
    Begun,
    Ended,
    Kept,
    Looked,
    Recorded,
    Refused,
    Running,
    Started,
    TakenSignal,
    TimedOut,
    Told,
    Unsent,
)
from stagedoor.broker.deliveries import Deliveries
from stagedoor.core.call import (
    CallOutcome,
    CallState,
    Ending,
    Finish,
    GoOn,
    Kind,
    Misfit,
    Park,
    Sleep,
    Step,
    StepState,
    StepWrite,
    Wait,
)
from stagedoor.core.codec import unpack
from stagedoor.core.entry import Entry
from stagedoor.core.job import parse_job
from stagedoor.core.journal import Place
from stagedoor.core.outcome import Dead, Reason, RetryLater, UnknownKind
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerError, BrokerUnavailable, FlowLimitExceeded, LeaseLost, NameTaken
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
from tests.broker.harness import Harness, accepted, settled

FOR_EVER = Wait(waiting_for="signal go")
DONE = Finish(outcome=CallOutcome(state=CallState.DONE, result='{"a":[]}'))
LATER = 4_102_444_800.0
"""The year 2100."""


def state_of(broker: Harness, call_id: str = "c") -> str:
    """Return the state that is kept, which the index and the counters must agree with."""
    kept = picture(broker, call_id)
    assert kept is not None
    assert kept.counted_as == CallState(kept.status[".state"])
    assert calls_of(broker).counts()[kept.counted_as] >= 1
    return kept.status[".state"]


def jobs_in(broker: Harness, stream: Stream) -> list[dict[str, str]]:
    """Return the fields of what is in a stream."""
    entries = broker.state().of(stream).entries
    return [{name.decode(): value.decode() for name, value in fields} for fields in entries.values()]


ENTRY = {"kind": "f", "call_id": "c", "request_id": "r-1", "trace": "t-1"}


# -- starting -----------------------------------------------------------------------------


def test_a_start_writes_hashes_index_and_entry(broker: Harness) -> None:
    calls = calls_of(broker)
    assert calls.start(new_call(metadata={"order": "7", "empty": ""})) == Started(True, "f", CallState.WAITING)
    assert jobs_in(broker, Stream.JOBS) == [ENTRY]
    assert state_of(broker) == "waiting"
    journal = calls.show("c")
    assert journal is not None
    assert journal.metadata == {"order": "7", "empty": ""}
    assert (journal.flow, journal.request_id, journal.trace) == ("f", "r-1", "t-1")
    assert (journal.is_queued, journal.waiting_for, journal.epoch) == (True, "a worker", 0)
    assert journal.created_at == journal.starts_at > 0


def test_the_entry_of_a_call_makes_a_job(broker: Harness) -> None:
    calls_of(broker).start(new_call())
    ((entry_id, fields),) = broker.state().jobs.entries.items()
    job = parse_job(Entry(Stream.JOBS, entry_id, fields))
    assert (job.kind, job.call_id, job.request_id, job.trace, job.order_id) == ("f", "c", "r-1", "t-1", None)


def test_a_start_of_a_call_that_is_there_changes_nothing(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    before = picture(broker)
    assert calls.start(new_call(flow="other", metadata={"order": "8"})) == Started(False, "f", CallState.RUNNING)
    assert picture(broker) == before
    calls.end_pass(right, DONE)
    assert calls.start(new_call()) == Started(False, "f", CallState.DONE)
    assert broker.length() == 0


def test_a_delayed_start_is_a_timer_that_brings_the_call_into_the_stream_of_jobs(broker: Harness) -> None:
    calls = calls_of(broker)
    assert calls.start(new_call(delay_s=3600)) == Started(True, "f", CallState.SLEEPING)
    assert broker.length() == 0
    (body,) = timers(broker).values()
    assert unpack(body)[0] == b"1"
    journal = calls.show("c")
    assert journal is not None
    assert journal.due_at == journal.starts_at == pytest.approx(journal.created_at + 3600)
    broker.make_due()
    worker = broker.worker()
    assert worker.promote().moved == 1
    assert jobs_in(broker, Stream.JOBS) == [ENTRY]
    assert isinstance(calls_of(broker, worker).begin_pass(take_one(worker).tenure, "c"), Begun)


def test_a_full_stream_starts_no_call_now_but_one_that_is_delayed(broker: Harness) -> None:
    calls = calls_of(broker, stream_maxlen=2)
    calls.start(new_call("a"))
    with pytest.raises(BrokerUnavailable, match="cap"):
        calls.start(new_call("b"))
    assert picture(broker, "b") is None
    assert calls.start(new_call("b", delay_s=1)).created


def test_metadata_that_is_too_large_is_refused(broker: Harness) -> None:
    calls = calls_of(broker, most_call_bytes=100)
    with pytest.raises(FlowLimitExceeded, match="100 bytes"):
        calls.start(new_call(metadata={"x": "y" * 200}))
    with pytest.raises(FlowLimitExceeded, match="metadata"):
        calls.start(new_call(metadata={str(number): "" for number in range(1001)}))
    assert picture(broker) is None
    assert broker.length() == 0


# -- beginning -------------------------------------------------------------------------------


def test_a_pass_begins_with_everything_that_is_remembered(broker: Harness) -> None:
    worker = broker.worker()
    calls = calls_of(broker, worker)
    calls.start(new_call(metadata={"order": "7"}))
    calls.signal("c", "go", '"early"', token="1")
    claimed = take_one(worker)
    first = begun(calls, claimed)
    assert (first.right.call_id, first.right.epoch) == ("c", 1)
    assert first.journal.metadata == {"order": "7"}
    assert first.journal.mailbox == {"go": ('"early"',)}
    assert first.journal.steps == {}
    assert abs(first.now - first.journal.created_at) < 60
    assert state_of(broker) == "running"
    kept = picture(broker)
    assert kept is not None
    assert kept.lease == f"1:{claimed.entry.entry_id} 1"
    calls.record_step(first.right, done("a", 1, value="[]"))
    second = begun(calls, claimed)
    assert second.right.epoch == 2
    assert second.journal.value("a") == "[]"
    assert second.journal.places == (Place(1, "a", Kind.STEP),)
    step = second.journal.step("a")
    assert step is not None
    assert (step.state, step.epoch, step.attempts) == (StepState.DONE, 1, 1)


def test_a_pass_begins_only_through_an_entry_that_is_held(broker: Harness) -> None:
    worker, other = broker.worker("w"), broker.worker("other")
    calls = calls_of(broker, worker)
    calls.start(new_call())
    claimed = take_one(worker)
    worker.release([claimed])
    take_one(other)
    before = picture(broker)
    with pytest.raises(LeaseLost):
        calls.begin_pass(claimed.tenure, "c")
    assert picture(broker) == before


def test_without_the_group_no_entry_is_held(broker: Harness) -> None:
    _, calls, claimed, _ = started(broker)
    broker.destroy_group()
    with pytest.raises(LeaseLost):
        calls.begin_pass(claimed.tenure, "c")
    broker.flush()
    with pytest.raises(LeaseLost):
        calls.begin_pass(claimed.tenure, "c")


def test_a_pass_of_a_call_that_was_flushed_is_told_so(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    broker.flush()
    for act in (
        lambda: calls.record_step(right, done("a")),
        lambda: calls.end_pass(right, FOR_EVER),
        lambda: calls.take_signal(right, "go", **signal_writes()),
    ):
        with pytest.raises(LeaseLost):
            act()
    assert calls.keep([Running(right)]) == (Kept(holds=False),)
    assert picture(broker) is None


def test_a_worker_whose_name_was_taken_begins_no_pass(broker: Harness) -> None:
    old = broker.worker("w")
    calls = calls_of(broker, old)
    calls.start(new_call())
    claimed = take_one(old)
    broker.lapse("w")
    broker.worker("w")
    with pytest.raises(NameTaken):
        calls.begin_pass(claimed.tenure, "c")


def test_a_worker_whose_record_is_lost_writes_it_anew_and_begins(broker: Harness) -> None:
    worker = broker.worker("w")
    calls = calls_of(broker, worker)
    calls.start(new_call())
    claimed = take_one(worker)
    broker.forget_record("w")
    assert isinstance(calls.begin_pass(claimed.tenure, "c"), Begun)
    assert broker.state().workers


def test_nobody_begins_a_pass_without_a_worker(broker: Harness) -> None:
    _, _, claimed, _ = started(broker)
    with pytest.raises(BrokerError, match="worker"):
        calls_of(broker).begin_pass(claimed.tenure, "c")


def test_while_one_pass_runs_another_entry_is_settled_and_the_pass_told(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    set_field(broker, ".state", "waiting")
    calls.wake("c")
    set_field(broker, ".state", "running")
    second = take_one(worker)
    assert calls.begin_pass(second.tenure, "c") is Refused.BUSY
    assert broker.state().critical.entries == {}
    assert broker.state().critical.pending == {}
    assert isinstance(calls.end_pass(right, FOR_EVER), Again)


def test_the_same_entry_takes_over_at_once_under_a_new_tenure(broker: Harness) -> None:
    worker, calls, claimed, right = started(broker)
    worker.release([claimed])
    other = broker.worker("other")
    theirs = calls_of(broker, other)
    again = begun(theirs, take_one(other))
    assert again.right.epoch == 2
    with pytest.raises(LeaseLost):
        calls.record_step(right, done("a"))
    assert theirs.record_step(again.right, done("a")) == Recorded()


def test_a_lease_that_was_taken_through_an_entry_that_is_gone_holds_nobody_up(broker: Harness) -> None:
    worker, calls, claimed, right = started(broker)
    worker.settle(1, [settled(claimed, RetryLater(0, 2, "an outage"))])
    worker.promote()
    again = begun(calls, take_one(worker))
    assert again.right.epoch == 2
    with pytest.raises(LeaseLost):
        calls.record_step(right, done("a"))


def test_once_the_lease_has_run_out_another_entry_begins(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    end_lease(broker)
    broker.add(tuple((name.encode(), value.encode()) for name, value in ENTRY.items()), Stream.CRITICAL)
    again = begun(calls, take_one(worker))
    assert again.right.epoch == 2
    with pytest.raises(LeaseLost):
        calls.end_pass(right, FOR_EVER)
    assert calls.end_pass(again.right, FOR_EVER) == Ended()


@pytest.mark.parametrize("is_expired, answer", [(True, Refused.UNKNOWN), (False, Refused.ENDED)])
def test_an_entry_of_a_call_that_is_over_is_settled(broker: Harness, answer: Refused, *, is_expired: bool) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, DONE)
    broker.add(tuple((name.encode(), value.encode()) for name, value in ENTRY.items()))
    if is_expired:
        expire(broker)
    assert calls.begin_pass(take_one(worker).tenure, "c") is answer
    assert broker.length() == 0
    assert broker.state().jobs.pending == {}


def test_an_entry_of_a_parked_call_is_settled(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, Park(reason="changed", error="x"))
    broker.add(tuple((name.encode(), value.encode()) for name, value in ENTRY.items()))
    assert calls.begin_pass(take_one(worker).tenure, "c") is Refused.PARKED
    assert broker.length() == 0
    assert state_of(broker) == "parked"


# -- steps ------------------------------------------------------------------------------------

TEXTS = [
    "[]",
    "{}",
    "[[]]",
    "9007199254740993",
    "0.1234567890123456789",
    '"\\u0000 \\ud83c"',
    "ü" * 100,
    "[" * 500 + "]" * 500,
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_value_comes_back_byte_for_byte(broker: Harness, text: str) -> None:
    _, calls, claimed, right = started(broker)
    calls.record_step(right, done("a b/ü", value=text))
    assert begun(calls, claimed).journal.value("a b/ü") == text


def test_a_step_keeps_all_that_is_said_of_it(broker: Harness) -> None:
    _, calls, claimed, right = started(broker)
    step = Step(
        state=StepState.RETRY,
        kind=Kind.GATHER,
        place=3,
        attempts=2,
        error='a "b" \n ü',
        due_at=1.5,
        more={"n": [1, {}]},
    )
    calls.record_step(right, StepWrite(key="g", step=step, seen=None))
    found = begun(calls, claimed).journal.step("g")
    assert found is not None
    assert (found.kind, found.place, found.attempts, found.error) == (step.kind, 3, 2, step.error)
    assert (found.due_at, found.more, found.epoch) == (1.5, {"n": [1, {}]}, 1)


def test_a_repeat_of_a_write_succeeds_and_is_counted_once(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    write = done("a", value="[1]")
    calls.record_step(right, write)
    before = picture(broker)
    assert calls.record_step(right, write) == Recorded()
    assert picture(broker) == before
    assert before is not None
    assert before.status[".steps"] == "1"


def seen_of(calls: object, right: object, key: str) -> Step:
    """Return a step as a pass has seen it."""
    journal = calls.show("c")  # type: ignore[attr-defined]  # any journal
    found: Step | None = journal.step(key)
    assert found is not None
    return found


def test_a_step_is_written_only_from_the_state_that_was_seen(broker: Harness) -> None:
    _, calls, claimed, right = started(broker)
    calls.record_step(right, is_now("a", StepState.RETRY))
    retry = seen_of(calls, right, "a")
    for wrong in (
        None,
        Step(state=StepState.RETRY, kind=Kind.STEP, epoch=9),
        Step(state=StepState.WAITING, kind=Kind.STEP, epoch=1),
    ):
        with pytest.raises(LeaseLost):
            calls.record_step(right, done("a", seen=wrong))
    later = begun(calls, claimed).right
    calls.record_step(later, done("a", seen=retry))
    over = seen_of(calls, later, "a")
    for change in (done("a", seen=over, value="2"), is_now("a", StepState.FAILED, seen=over)):
        with pytest.raises(BrokerError, match="'a' is done and cannot become"):
            calls.record_step(later, change)
    assert begun(calls, claimed).journal.value("a") == "1"


def test_a_write_tells_that_a_cancel_was_asked_for(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    assert not calls.record_step(right, done("a", 1)).is_cancel_requested
    assert calls.cancel("c") is Told.TOLD
    assert calls.record_step(right, done("b", 2)).is_cancel_requested


def test_more_steps_than_a_call_may_have_are_refused(broker: Harness) -> None:
    _, calls, _, right = started(broker, most_steps=2)
    calls.record_step(right, is_now("a", StepState.RETRY))
    calls.record_step(right, done("b", 2))
    with pytest.raises(FlowLimitExceeded, match="2 steps"):
        calls.record_step(right, done("c", 3))
    with pytest.raises(FlowLimitExceeded, match="2 steps"):
        calls.end_pass(right, FOR_EVER, write=is_now("c", StepState.SLEEPING))
    calls.record_step(right, done("a", seen=seen_of(calls, right, "a")))
    assert state_of(broker) == "running"


def test_a_value_that_is_too_large_is_refused_before_it_is_sent(broker: Harness) -> None:
    _, calls, _, right = started(broker, most_value_bytes=10)
    with pytest.raises(FlowLimitExceeded, match="12 bytes"):
        calls.record_step(right, done("a", value='"ääää ."'))
    with pytest.raises(FlowLimitExceeded, match="11 bytes"):
        calls.signal("c", "go", "1" * 11, token="t")
    with pytest.raises(FlowLimitExceeded, match="11 bytes"):
        calls.end_pass(right, Finish(outcome=CallOutcome(state=CallState.DONE, result="1" * 11)))
    with pytest.raises(FlowLimitExceeded, match="11 bytes"):
        calls.record_outcome(right, CallOutcome(state=CallState.DONE, result="1" * 11))
    calls.record_step(right, done("a", value="1" * 10))


def test_all_that_a_call_keeps_is_bounded(broker: Harness) -> None:
    _, calls, _, right = started(broker, most_call_bytes=700)
    for kept in range(4):
        calls.record_step(right, done(f"a{kept}", kept, value="1" * 100))
    with pytest.raises(FlowLimitExceeded, match="700 bytes in all"):
        calls.record_step(right, done("b", 4, value="1" * 100))
    assert calls.signal("c", "go", "1" * 200, token="t") is Told.FULL
    with pytest.raises(FlowLimitExceeded):
        calls.record_outcome(right, CallOutcome(state=CallState.DONE, result="1" * 300))
    with pytest.raises(FlowLimitExceeded):
        calls.end_pass(right, Finish(outcome=CallOutcome(state=CallState.DONE, result="1" * 300)))
    assert state_of(broker) == "running"
    journal = calls.show("c")
    assert journal is not None
    sent = sum(len(journal.status[key]) for key in journal.steps)
    sent += sum(len(value) + (len(name) if name.startswith("m:") else 0) for name, value in journal.meta.items())
    assert int(journal.status[".bytes"]) == sent


@pytest.mark.parametrize("is_decided_first", [False, True])
def test_a_call_that_is_full_can_still_end(broker: Harness, is_decided_first: bool) -> None:
    """Whoever may send it signals could keep it for ever otherwise."""
    _, calls, _, right = started(broker, most_call_bytes=200)
    told = [calls.signal("c", "go", "1" * 10, token=str(number)) for number in range(20)]
    assert told[-1] is Told.FULL
    outcome = CallOutcome(state=CallState.FAILED, error="x" * 1000)
    if is_decided_first:
        calls.record_outcome(right, outcome)
    assert calls.end_pass(right, Finish(outcome=outcome)) == Ended()
    journal = calls.show("c")
    assert journal is not None
    assert journal.outcome == outcome


def test_a_key_that_would_be_taken_for_the_engines_is_refused(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    for key in ("", ".state", ".epoch", "x" * 513):
        with pytest.raises(BrokerError):
            calls.record_step(right, done(key))
    calls.record_step(right, done(".on_success", None))
    journal = calls.show("c")
    assert journal is not None
    assert list(journal.steps) == [".on_success"]


# -- signals ------------------------------------------------------------------------------------


def signal_writes(*, due_at: float | None = None, seen: Step | None = None) -> dict[str, StepWrite]:
    def write(state: StepState) -> StepWrite:
        return is_now("w", state, kind=Kind.SIGNAL, due_at=due_at, seen=seen)

    return {"taken": write(StepState.DONE), "timed_out": write(StepState.FAILED), "waiting": write(StepState.WAITING)}


def test_a_signal_that_was_sent_before_is_taken_once(broker: Harness) -> None:
    _, calls, claimed, right = started(broker)
    calls.signal("c", "go", "[1]", token="1")
    calls.signal("c", "go", "[2]", token="2")
    assert calls.take_signal(right, "go", **signal_writes()) == TakenSignal("[1]")
    journal = begun(calls, claimed).journal
    assert journal.value("w") == "[1]"
    assert journal.mailbox == {"go": ("[2]",)}
    step = journal.step("w")
    assert step is not None
    assert step.state is StepState.DONE


def test_a_repeat_of_a_take_answers_the_same_and_takes_no_second_signal(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.signal("c", "go", "[1]", token="1")
    calls.signal("c", "go", "[2]", token="2")
    for _ in range(2):
        assert calls.take_signal(right, "go", **signal_writes()) == TakenSignal("[1]")
    journal = calls.show("c")
    assert journal is not None
    assert journal.mailbox == {"go": ("[2]",)}


def test_signals_are_taken_in_the_order_they_were_sent_and_by_their_names(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    for number in range(12):
        calls.signal("c", "go:1", str(number), token=str(number))
    calls.signal("c", "go", "99", token="x")
    taken = []
    for number in range(12):
        writes = {
            name: StepWrite(key=f"w{number}", step=write.step, seen=None) for name, write in signal_writes().items()
        }
        taken.append(calls.take_signal(right, "go:1", **writes))
    assert taken == [TakenSignal(str(number)) for number in range(12)]
    journal = calls.show("c")
    assert journal is not None
    assert journal.mailbox == {"go": ("99",)}


def test_without_a_signal_the_step_waits_and_a_signal_wakes_the_call_once(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    assert calls.take_signal(right, "go", **signal_writes()) == Unsent()
    assert calls.take_signal(right, "go", **signal_writes()) == Unsent()
    assert calls.end_pass(right, FOR_EVER) == Ended()
    assert state_of(broker) == "waiting"
    assert calls.signal("c", "go", "1", token="1") is Told.TOLD
    assert calls.signal("c", "go", "2", token="2") is Told.TOLD
    assert jobs_in(broker, Stream.CRITICAL) == [ENTRY]
    again = begun(calls, take_one(worker))
    waiting = again.journal.step("w")
    assert calls.take_signal(again.right, "go", **signal_writes(seen=waiting)) == TakenSignal("1")


def test_a_signal_between_the_look_into_the_mailbox_and_the_end_is_not_missed(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    assert calls.take_signal(right, "go", **signal_writes()) == Unsent()
    calls.signal("c", "go", "1", token="1")
    answers = [calls.end_pass(right, FOR_EVER) for _ in range(2)]
    for again in answers:
        assert isinstance(again, Again), "also a repeat, after a lost reply, is told"
        assert again.journal.mailbox == {"go": ("1",)}
    last = answers[-1]
    assert isinstance(last, Again)
    assert calls.end_pass(last.right, FOR_EVER) == Ended()


def test_a_time_that_is_over_is_recorded_once(broker: Harness) -> None:
    _, calls, claimed, right = started(broker)
    for _ in range(2):
        assert calls.take_signal(right, "go", **signal_writes(due_at=1.0)) == TimedOut()
    calls.signal("c", "go", "1", token="1")
    assert calls.take_signal(right, "go", **signal_writes(due_at=1.0)) == TimedOut()
    journal = begun(calls, claimed).journal
    step = journal.step("w")
    assert step is not None
    assert step.state is StepState.FAILED
    assert journal.mailbox == {"go": ("1",)}


def test_a_signal_wins_over_a_time_that_is_over(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.signal("c", "go", "1", token="1")
    assert calls.take_signal(right, "go", **signal_writes(due_at=1.0)) == TakenSignal("1")


def test_a_time_to_come_is_no_time_out(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    assert calls.take_signal(right, "go", **signal_writes(due_at=LATER)) == Unsent()


def test_a_signal_that_is_sent_again_with_its_token_is_delivered_once(broker: Harness) -> None:
    _, calls, _, _ = started(broker)
    for _ in range(3):
        assert calls.signal("c", "go", "1", token="same") is Told.TOLD
    journal = calls.show("c")
    assert journal is not None
    assert journal.mailbox == {"go": ("1",)}


def test_a_call_takes_no_more_signals_than_it_may(broker: Harness) -> None:
    _, calls, _, _ = started(broker, most_signals=2)
    answers = [calls.signal("c", "go", "1", token=str(number)) for number in range(3)]
    assert answers == [Told.TOLD, Told.TOLD, Told.FULL]


def test_what_is_told_to_nobody_or_to_a_call_that_has_ended_is_refused(broker: Harness) -> None:
    _, calls, _, right = started(broker)

    def answers(call_id: str) -> list[Told]:
        sent = calls.signal(call_id, "go", "1", token="t")
        return [sent, calls.cancel(call_id), calls.resume(call_id), calls.wake(call_id)]

    assert answers("nobody") == [Told.UNKNOWN] * 4
    calls.end_pass(right, DONE)
    before = picture(broker)
    assert answers("c") == [Told.ENDED] * 4
    assert picture(broker) == before
    assert broker.state().critical.entries == {}


def test_once_the_outcome_is_decided_nothing_more_is_told_but_a_wake(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.record_outcome(right, CallOutcome(state=CallState.FAILED, error="x"))
    assert calls.signal("c", "go", "1", token="t") is Told.ENDED
    assert calls.cancel("c") is Told.ENDED
    assert calls.wake("c") is Told.TOLD


# -- ends ----------------------------------------------------------------------------------------


def test_a_sleep_is_a_timer_that_brings_the_call_back_before_new_jobs(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    sleep = Sleep(until=LATER, waiting_for="sleep grace")
    write = is_now("grace", StepState.SLEEPING, kind=Kind.SLEEP, due_at=LATER)
    assert calls.end_pass(right, sleep, write=write) == Ended()
    assert state_of(broker) == "sleeping"
    kept = picture(broker)
    assert kept is not None
    assert (kept.lease, kept.expires) == (None, False)
    assert broker.length() == 0
    assert broker.state().jobs.pending == {}
    journal = calls.show("c")
    assert journal is not None
    assert (journal.due_at, journal.waiting_for) == (LATER, "sleep grace")
    (member,) = timers(broker)
    assert member == "flow:c"
    broker.make_due()
    assert worker.promote().moved == 1
    assert jobs_in(broker, Stream.CRITICAL) == [ENTRY]
    again = begun(calls, take_one(worker))
    step = again.journal.step("grace")
    assert step is not None
    assert step.due_at == LATER


def test_a_sleep_that_is_over_already_goes_on_at_once(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    assert calls.end_pass(right, Sleep(until=1.0, waiting_for="sleep")) == Ended()
    assert timers(broker) == {}
    assert jobs_in(broker, Stream.CRITICAL) == [ENTRY]
    assert state_of(broker) == "waiting"


def test_a_pass_that_begins_removes_the_timer(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, Wait(waiting_for="signal go", until=LATER))
    calls.signal("c", "go", "1", token="1")
    assert len(timers(broker)) == 1
    begun(calls, take_one(worker))
    assert timers(broker) == {}


@pytest.mark.parametrize("state", [CallState.DONE, CallState.FAILED, CallState.ABORTED, CallState.CANCELLED])
def test_a_call_that_ends_keeps_its_outcome_and_expires(broker: Harness, state: CallState) -> None:
    _, calls, _, right = started(broker)
    outcome = CallOutcome(
        state=state,
        result='{"a":[]}' if state is CallState.DONE else None,
        error="" if state is CallState.DONE else "why",
    )
    kept = picture(broker)
    assert kept is not None
    assert not kept.expires
    assert calls.end_pass(right, Finish(outcome=outcome)) == Ended()
    assert state_of(broker) == state.value
    kept = picture(broker)
    assert kept is not None
    assert (kept.lease, kept.expires) == (None, True)
    journal = calls.show("c")
    assert journal is not None
    assert journal.outcome == outcome
    assert journal.ended_at is not None
    assert broker.length() == 0


def test_an_outcome_is_decided_once_and_before_the_end(broker: Harness) -> None:
    _, calls, claimed, right = started(broker)
    failed = CallOutcome(state=CallState.FAILED, error="why")
    for _ in range(2):
        calls.record_outcome(right, failed)
    with pytest.raises(LeaseLost):
        calls.record_outcome(right, CallOutcome(state=CallState.DONE))
    again = begun(calls, claimed)
    assert again.journal.outcome == failed
    calls.record_step(again.right, done(".on_failure", None))
    calls.end_pass(again.right, DONE)
    assert state_of(broker) == "failed"
    journal = calls.show("c")
    assert journal is not None
    assert journal.outcome == failed


def test_an_outcome_is_one_of_the_ends(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    for state in (CallState.RUNNING, CallState.PARKED):
        with pytest.raises(BrokerError, match="no end"):
            calls.record_outcome(right, CallOutcome(state=state))


def test_a_repeat_of_an_end_succeeds_until_another_pass_begins(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    for _ in range(2):
        assert calls.end_pass(right, GoOn()) == Ended()
    assert len(jobs_in(broker, Stream.CRITICAL)) == 1
    begun(calls, take_one(worker))
    with pytest.raises(LeaseLost):
        calls.end_pass(right, GoOn())


ENDINGS: Sequence[Ending] = [
    FOR_EVER,
    Sleep(until=LATER, waiting_for="sleep"),
    GoOn(),
    Park(reason="x", error="y"),
    DONE,
]


@pytest.mark.parametrize("ending", ENDINGS)
def test_after_its_end_a_pass_writes_nothing_more(broker: Harness, ending: Ending) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, ending)
    before = picture(broker)
    for write in (
        lambda: calls.record_step(right, done("late")),
        lambda: calls.record_outcome(right, CallOutcome(state=CallState.DONE)),
        lambda: calls.take_signal(right, "go", **signal_writes()),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert calls.keep([Running(right, (is_now("late", StepState.RUNNING),))]) == (Kept(holds=False),)
    assert picture(broker) == before


def test_a_pass_that_cannot_go_on_leaves_an_entry_where_the_call_was_woken(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.signal("c", "go", "1", token="1")
    write = is_now("a", StepState.FAILED, error="timed out")
    assert calls.end_pass(right, Sleep(until=LATER, waiting_for="x"), write=write, must_leave=True) == Ended()
    assert jobs_in(broker, Stream.CRITICAL) == [ENTRY]
    assert timers(broker) == {}
    journal = calls.show("c")
    assert journal is not None
    assert "a" in journal.steps


def test_a_park_and_an_end_do_not_ask_whether_the_call_was_woken(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.signal("c", "go", "1", token="1")
    assert calls.end_pass(right, Park(reason="changed", error="both histories")) == Ended()
    journal = calls.show("c")
    assert journal is not None
    assert (journal.parked_reason, journal.parked_error) == ("changed", "both histories")


def test_a_parked_call_is_woken_by_resume_and_cancel_alone(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, Park(reason="changed", error="x"))
    assert calls.signal("c", "go", "1", token="1") is Told.TOLD
    assert calls.wake("c") is Told.TOLD
    assert broker.state().critical.entries == {}
    assert state_of(broker) == "parked"
    assert calls.resume("c") is Told.TOLD
    assert calls.resume("c") is Told.NOT_PARKED
    assert state_of(broker) == "waiting"
    again = begun(calls, take_one(worker))
    assert again.journal.mailbox == {"go": ("1",)}
    assert (again.journal.parked_reason, again.journal.parked_error) == ("", "")
    calls.end_pass(again.right, Park(reason="changed", error="x"))
    assert calls.cancel("c") is Told.TOLD
    assert begun(calls, take_one(worker)).journal.is_cancel_requested


def test_a_misfit_is_kept_until_a_pass_ends_without_one(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    misfit = Misfit(since=1_700_000_000.25, hops=3)
    calls.end_pass(right, Sleep(until=1.0, waiting_for="x", misfit=misfit))
    again = begun(calls, take_one(worker))
    assert again.journal.misfit == misfit
    calls.end_pass(again.right, GoOn())
    last = begun(calls, take_one(worker))
    assert last.journal.misfit is None
    calls.end_pass(last.right, Sleep(until=LATER, waiting_for="x", misfit=misfit))
    calls.cancel("c")
    journal = calls.show("c")
    assert journal is not None
    assert journal.misfit == misfit


# -- keeping -------------------------------------------------------------------------------------


def test_keeping_renews_the_lease_and_marks_long_steps(broker: Harness) -> None:
    _, calls, claimed, right = started(broker)
    calls.record_step(right, done("b", 2))
    end_lease(broker)
    marks = (is_now("a", StepState.RUNNING), is_now("b", StepState.RUNNING, place=2))
    assert calls.keep([]) == ()
    assert calls.keep([Running(right, marks)]) == (Kept(holds=True),)
    kept = picture(broker)
    assert kept is not None
    assert kept.lease == f"1:{claimed.entry.entry_id} 1"
    journal = calls.show("c")
    assert journal is not None
    assert {key: step.state for key, step in journal.steps.items()} == {"a": StepState.RUNNING, "b": StepState.DONE}
    assert calls.record_step(right, done("a")) == Recorded(), "the mark of its own heartbeat is no other pass"


def test_keeping_says_who_has_lost_and_whose_cancel_was_asked_for(broker: Harness) -> None:
    _, calls, claimed, right = started(broker)
    calls.cancel("c")
    assert calls.keep([Running(right)]) == (Kept(holds=True, is_cancel_requested=True),)
    again = begun(calls, claimed).right
    before = picture(broker)
    lost = Running(right, (is_now("a", StepState.RUNNING),))
    assert calls.keep([lost, Running(again)]) == (Kept(holds=False), Kept(holds=True, is_cancel_requested=True))
    after = picture(broker)
    assert before is not None
    assert after is not None
    assert "a" not in after.status
    assert after.lease == before.lease


# -- looking after them ------------------------------------------------------------------------------


def test_a_call_that_has_what_runs_it_is_left_alone(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.start(new_call("queued"))
    calls.start(new_call("later", delay_s=3600))
    assert calls.look() == Looked(), "nobody is due yet"
    everyone = ["c", "queued", "later"]
    before = [picture(broker, call_id) for call_id in everyone]
    make_look_due(broker, *everyone)
    assert calls.look() == Looked(looked=3)
    assert calls.look() == Looked()
    assert [picture(broker, call_id) for call_id in everyone] == before
    end_lease(broker)
    make_look_due(broker)
    assert calls.look() == Looked(looked=1), "its entry is still there, and will be handed out again"
    calls.end_pass(begun(calls, take_one(worker), "queued").right, FOR_EVER)
    make_look_due(broker, "queued")
    assert calls.look() == Looked(looked=1)
    calls.end_pass(right, Park(reason="x", error="y"))
    make_look_due(broker)
    assert calls.look() == Looked(looked=1)
    assert broker.state().critical.entries == {}


def test_a_lost_timer_is_made_anew(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, Sleep(until=LATER, waiting_for="sleep"))
    before = timers(broker)
    lose_timer(broker)
    make_look_due(broker)
    assert calls.look() == Looked(looked=1, timers=1)
    assert timers(broker) == before
    assert state_of(broker) == "sleeping"


def test_a_lost_timer_that_is_due_wakes_the_call_once(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, Sleep(until=LATER, waiting_for="sleep"))
    lose_timer(broker)
    set_field(broker, ".due", "1")
    for _ in range(2):
        make_look_due(broker)
        calls.look()
    assert jobs_in(broker, Stream.CRITICAL) == [ENTRY]
    assert state_of(broker) == "waiting"
    begun(calls, take_one(worker))


def test_a_queued_call_whose_entry_was_deleted_gets_another(broker: Harness) -> None:
    worker = broker.worker()
    calls = calls_of(broker, worker)
    calls.start(new_call())
    broker.trim(*broker.state().jobs.entries)
    make_look_due(broker)
    assert calls.look() == Looked(looked=1, woken=1)
    begun(calls, take_one(worker))


def test_a_running_call_without_lease_and_entry_gets_an_entry(broker: Harness) -> None:
    worker, calls, claimed, right = started(broker)
    worker.settle(1, [settled(claimed)])
    make_look_due(broker)
    assert calls.look() == Looked(looked=1), "its lease still runs"
    end_lease(broker)
    make_look_due(broker)
    assert calls.look() == Looked(looked=1, woken=1)
    with pytest.raises(LeaseLost):
        calls.record_step(right, done("late"))
    assert begun(calls, take_one(worker)).right.epoch == 2


def test_an_expired_call_is_forgotten(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, DONE)
    make_look_due(broker)
    assert calls.look() == Looked(looked=1)
    assert calls.look() == Looked(), "not before its keys expire"
    expire(broker)
    make_look_due(broker)
    assert calls.look() == Looked(looked=1, forgotten=1)
    assert calls.counts() == dict.fromkeys(CallState, 0)
    assert calls.list_calls().calls == ()


def test_an_open_call_whose_keys_somebody_deleted_is_forgotten_with_its_timer(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, Sleep(until=LATER, waiting_for="sleep"))
    expire(broker)
    make_look_due(broker)
    assert calls.look() == Looked(looked=1, forgotten=1)
    assert timers(broker) == {}
    assert calls.counts() == dict.fromkeys(CallState, 0)


def test_a_look_takes_a_bounded_number_of_calls(broker: Harness) -> None:
    calls = calls_of(broker)
    names = [f"c{number:03}" for number in range(130)]
    for name in names:
        calls.start(new_call(name))
    make_look_due(broker, *names)
    assert calls.look() == Looked(looked=100, more=True)
    assert calls.look() == Looked(looked=30)


# -- looking at them ------------------------------------------------------------------------------------


def test_calls_are_listed_and_counted_by_their_states(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, DONE)
    for number in range(25):
        calls.start(new_call(f"s{number:02}", delay_s=3600))
    calls.start(new_call("q", flow="other"))
    assert calls.counts() == {
        **dict.fromkeys(CallState, 0),
        CallState.DONE: 1,
        CallState.SLEEPING: 25,
        CallState.WAITING: 1,
    }
    for limit in (1, 7, 27, 100):
        found, after, pages = [], "", 0
        while True:
            page = calls.list_calls(after=after, limit=limit)
            found += [line.call_id for line in page.calls]
            after, pages = page.after, pages + 1
            if not after:
                break
        assert sorted(found) == sorted(["c", "q", *[f"s{number:02}" for number in range(25)]])
        assert pages == -(-27 // limit)
    (line,) = calls.list_calls(state=CallState.WAITING).calls
    assert (line.call_id, line.flow, line.waiting_for, line.due_at) == ("q", "other", "a worker", None)
    sleeping = calls.list_calls(state=CallState.SLEEPING).calls[0]
    assert sleeping.due_at == pytest.approx(sleeping.created_at + 3600)


def test_a_call_that_is_not_there_is_not_shown(broker: Harness) -> None:
    assert calls_of(broker).show("nobody") is None
    assert calls_of(broker).list_calls().calls == ()


# -- what the stream does with a call's entries ----------------------------------------------------------


def test_a_dead_entry_parks_its_call(broker: Harness) -> None:
    worker, calls, claimed, right = started(broker)
    dead = Dead(Reason.ATTEMPTS, "RuntimeError: no \n luck")
    assert worker.settle(1, [settled(claimed, dead)]).answers == accepted(1)
    assert state_of(broker) == "parked"
    journal = calls.show("c")
    assert journal is not None
    assert (journal.parked_reason, journal.parked_error) == ("attempts", "RuntimeError: no \n luck")
    assert [letter[b"reason".decode()] for letter in broker.state().dead] == [b"attempts"]
    with pytest.raises(LeaseLost):
        calls.record_step(right, done("late"))
    assert calls.resume("c") is Told.TOLD
    begun(calls, take_one(worker))


def test_each_dead_entry_parks_its_own_call_also_where_another_has_lapsed(broker: Harness) -> None:
    worker, calls = broker.worker(), calls_of(broker)
    for name in ("a", "b", "c"):
        calls.start(new_call(name))
    claimed = worker.read(3).claimed
    worker.release([claimed[1]])
    dead = Dead(Reason.POISON, "x")
    worker.settle(1, [settled(one, dead) for one in claimed])
    states = {line.call_id: line.state for line in calls.list_calls().calls}
    assert states == {"a": CallState.PARKED, "b": CallState.WAITING, "c": CallState.PARKED}


def test_a_dead_entry_leaves_a_call_alone_that_runs_through_another_or_has_ended(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    broker.add(tuple((name.encode(), value.encode()) for name, value in ENTRY.items()), Stream.CRITICAL)
    stray = take_one(worker)
    worker.settle(1, [settled(stray, Dead(Reason.POISON, "x"))])
    assert state_of(broker) == "running"
    calls.end_pass(right, DONE)
    broker.add(tuple((name.encode(), value.encode()) for name, value in ENTRY.items()))
    worker.settle(2, [settled(take_one(worker), Dead(Reason.POISON, "x"))])
    assert state_of(broker) == "done"


def test_a_dead_entry_of_a_sleeping_call_takes_its_timer_along(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, Wait(waiting_for="signal go", until=LATER))
    calls.wake("c")
    worker.settle(1, [settled(take_one(worker), Dead(Reason.UNKNOWN_KIND, "nobody knows it"))])
    assert state_of(broker) == "parked"
    assert timers(broker) == {}


@pytest.mark.parametrize("call_id", ["", "a b", "x" * 65, "ü", "nobody"])
def test_a_dead_entry_that_names_no_call_is_just_dead(broker: Harness, call_id: str) -> None:
    worker = broker.worker()
    broker.add(((b"kind", b"f"), (b"call_id", call_id.encode())))
    worker.settle(1, [settled(take_one(worker), Dead(Reason.MALFORMED, "x"))])
    assert len(broker.state().dead) == 1
    assert calls_of(broker).counts() == dict.fromkeys(CallState, 0)


def hand_back(broker: Harness, worker: Deliveries, batch: int) -> None:
    """Let a worker that does not know the flow meet every entry there is, and its delay be over."""
    claimed = worker.read(100).claimed
    worker.settle(batch, [settled(one, UnknownKind(5, batch)) for one in claimed])
    broker.make_due()


def test_an_entry_that_is_handed_back_for_ever_stays_one_entry(broker: Harness) -> None:
    worker = broker.worker()
    calls = calls_of(broker, worker)
    calls.start(new_call())
    for batch in range(1, 11):
        hand_back(broker, worker, batch)
        make_look_due(broker)
        assert calls.look() == Looked(looked=1)
        journal = calls.show("c")
        assert journal is not None
        assert (journal.state, journal.waiting_for) == (CallState.WAITING, "a worker that knows its flow")
        assert worker.promote().moved == 1
    assert len(worker.read(100).claimed) == 1


def test_entries_of_one_call_that_are_handed_back_become_one(broker: Harness) -> None:
    worker = broker.worker()
    calls = calls_of(broker, worker)
    calls.start(new_call())
    for number in range(4):
        broker.add(tuple((name.encode(), value.encode()) for name, value in ENTRY.items()), list(Stream)[number % 2])
    hand_back(broker, worker, 1)
    assert len(broker.state().delayed) == 1
    assert worker.promote().moved == 1
    calls.wake("c")
    hand_back(broker, worker, 2)
    assert len(broker.state().delayed) == 1
    worker.promote()
    begun(calls, take_one(worker))


def test_a_promoted_entry_that_nobody_meets_again_is_missed_twice_before_there_is_another(broker: Harness) -> None:
    worker = broker.worker()
    calls = calls_of(broker, worker)
    calls.start(new_call())
    hand_back(broker, worker, 1)
    worker.promote()
    broker.trim(*broker.state().jobs.entries)
    found = []
    for _ in range(3):
        make_look_due(broker)
        found.append(calls.look())
    assert found == [Looked(looked=1), Looked(looked=1, woken=1), Looked(looked=1)]
    begun(calls, take_one(worker))


def test_an_entry_of_a_timer_that_is_handed_back_is_what_its_call_waits_for(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, Sleep(until=LATER, waiting_for="sleep"))
    broker.make_due()
    worker.promote()
    hand_back(broker, worker, 1)
    assert state_of(broker) == "waiting"
    make_look_due(broker)
    assert calls.look() == Looked(looked=1)
    assert calls.signal("c", "go", "1", token="t") is Told.TOLD
    assert len(broker.state().delayed) == 1
    assert broker.state().critical.entries == {}


def test_a_pass_whose_entry_is_retried_is_over(broker: Harness) -> None:
    worker, calls, claimed, right = started(broker)
    worker.settle(1, [settled(claimed, RetryLater(0, 2, "an outage"))])
    assert state_of(broker) == "waiting"
    with pytest.raises(LeaseLost):
        calls.record_step(right, done("late"))
    worker.promote()
    assert begun(calls, take_one(worker)).right.epoch == 2


def test_an_entry_of_a_call_that_another_pass_runs_is_not_handed_back(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    end_lease(broker)
    broker.add(tuple((name.encode(), value.encode()) for name, value in ENTRY.items()))
    hand_back(broker, worker, 1)
    assert broker.state().delayed == {}
    assert isinstance(calls.end_pass(right, FOR_EVER), Again)


@pytest.mark.parametrize("ending", [DONE, Park(reason="x", error="y")])
def test_an_entry_of_a_call_at_rest_is_handed_back_and_changes_nothing(broker: Harness, ending: Ending) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, ending)
    before = picture(broker)
    broker.add(tuple((name.encode(), value.encode()) for name, value in ENTRY.items()))
    hand_back(broker, worker, 1)
    assert len(broker.state().delayed) == 1
    assert picture(broker) == before


def test_the_journal_is_plain_text(broker: Harness) -> None:
    """What the layout promises: state and epoch in words, then JSON; values as they were given."""
    _, calls, _, right = started(broker)
    calls.record_step(right, done("a", value="[]"))
    kept = picture(broker)
    assert kept is not None
    state, epoch, body = kept.status["a"].split(" ", 2)
    assert (state, epoch, json.loads(body)) == ("done", "1", {"kind": "step", "place": 1, "attempts": 1})
    assert kept.meta == {"m:order": "7", "v:a": "[]"}
