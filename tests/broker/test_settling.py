"""What `settle`, `renew`, `release` and `retire` write, and who may write it."""

from collections.abc import Callable

import attrs
import pytest

from stagedoor.broker.deliveries import Answer, Answers, Deliveries, Pulse, Renewal
from stagedoor.core.codec import pack, pack_fields, unpack, unpack_fields
from stagedoor.core.entry import Claimed
from stagedoor.core.keys import POOL
from stagedoor.core.outcome import Dead, Done, Outcome, Reason, Release, RetryLater, Settled, UnknownKind
from stagedoor.core.tenure import Stream, Tenure
from stagedoor.errors import GroupMissing, NameTaken
from tests.broker.harness import Harness, State, StreamState, accepted, ids, job, settled

BAD = Dead(Reason.PERMANENT, "no such event")
LATER = RetryLater(60, 2, "out of paper")
UNKNOWN = UnknownKind(5, 1)
OUTCOMES: list[Outcome] = [Done(), LATER, UNKNOWN, BAD]


def one_claimed(broker: Harness, worker: Deliveries, stream: Stream = Stream.JOBS) -> Claimed:
    broker.add(job(), stream)
    (claimed,) = worker.read(1).claimed
    return claimed


# -- each outcome --------------------------------------------------------------------


@pytest.mark.parametrize("stream", Stream)
def test_done_acknowledges_and_deletes(broker: Harness, stream: Stream) -> None:
    worker = broker.worker("w", incarnation="i1")
    claimed = one_claimed(broker, worker, stream)

    assert worker.settle(1, [settled(claimed)]) == Answers((Answer.ACCEPTED,), None, ())

    assert broker.state() == State(workers={"w": "i1"})


@pytest.mark.parametrize("stream", Stream)
def test_a_retry_is_delayed_with_its_attempt_and_origin(broker: Harness, stream: Stream) -> None:
    worker = broker.worker("w", incarnation="i1")
    claimed = one_claimed(broker, worker, stream)
    origin = claimed.entry.entry_id

    assert worker.settle(1, [settled(claimed, LATER)]) == Answers((Answer.ACCEPTED,), 60.0, ())

    state = broker.state()
    member = f"{stream.value}:{origin}"
    assert state == State(delayed={member: state.delayed[member]}, workers={"w": "i1"})
    number, *flat = unpack(state.delayed[member])
    assert number == b"%d" % stream.value
    assert dict(unpack_fields(pack(flat))) == dict(job(attempt="2", origin=origin))


def test_a_job_that_was_run_is_no_more_one_that_nobody_knows(broker: Harness) -> None:
    """Handed back by workers without its module, then run by one that has it, and retried."""
    worker = broker.worker("w")
    broker.add(job(hops="8"))
    (claimed,) = worker.read(1).claimed
    worker.settle(1, [settled(claimed, LATER)])
    (body,) = broker.state().delayed.values()
    fields = dict(unpack_fields(pack(unpack(body)[1:])))
    assert (fields[b"hops"], fields[b"attempt"]) == (b"0", b"2")


def test_an_unknown_kind_is_delayed_with_its_hops_and_the_same_attempt(broker: Harness) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    assert worker.settle(1, [settled(claimed, UNKNOWN)]).next_due_s == 5.0
    broker.make_due()
    worker.promote()
    (again,) = worker.read(1).claimed
    assert dict(again.entry.fields) == dict(job(hops="1", origin=claimed.entry.entry_id))


def test_the_answers_say_when_the_first_delayed_job_is_due(broker: Harness) -> None:
    worker = broker.worker("w")
    settlements = [
        settled(one_claimed(broker, worker), outcome)
        for outcome in (RetryLater(7.5, 2, ""), Done(), RetryLater(0.25, 2, ""), UNKNOWN)
    ]
    assert worker.settle(1, settlements).next_due_s == 0.25


@pytest.mark.parametrize("stream", Stream)
def test_a_dead_letter_says_what_and_why_and_keeps_the_fields(broker: Harness, stream: Stream) -> None:
    worker = broker.worker("w", incarnation="i1")
    claimed = one_claimed(broker, worker, stream)

    assert worker.settle(1, [settled(claimed, BAD)]) == Answers((Answer.ACCEPTED,), None, ())

    packed = pack_fields(claimed.entry.fields)
    letter = {
        "reason": b"permanent",
        "error": b"no such event",
        "stream": b"%d" % stream.value,
        "entry_id": claimed.entry.entry_id.encode(),
        "consumer": b"w",
        "deliveries": b"1",
        "history": b"",
        "fields_bytes": b"%d" % len(packed),
        "fields": packed,
    }
    assert broker.state() == State(dead=(letter,), workers={"w": "i1"})
    assert unpack_fields(packed) == job()


@pytest.mark.parametrize("reason", Reason)
def test_a_dead_letter_names_each_reason_by_its_word(broker: Harness, reason: Reason) -> None:
    worker = broker.worker("w")
    worker.settle(1, [settled(one_claimed(broker, worker), Dead(reason, "x"))])
    assert broker.state().dead[0]["reason"] == reason.value.encode()


def test_an_error_text_with_anything_in_it_can_be_written(broker: Harness) -> None:
    worker = broker.worker("w")
    error = "\ud800 \x00 \n \u2028 ü 券"
    assert worker.settle(1, [settled(one_claimed(broker, worker), Dead(Reason.PERMANENT, error))]).answers == accepted(
        1
    )
    assert broker.state().dead[0]["error"].decode() == "\\ud800 \x00 \n \u2028 ü 券"


@pytest.mark.parametrize("outcome", [Release(), Settled()])
def test_outcomes_that_settle_does_not_write_are_refused(broker: Harness, outcome: Outcome) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    with pytest.raises(TypeError, match=type(outcome).__name__):
        worker.settle(1, [settled(claimed, outcome)])
    assert broker.state().jobs.pending == {claimed.entry.entry_id: ("w", 1)}


def test_an_empty_batch_has_no_answers(broker: Harness) -> None:
    assert broker.worker("w").settle(1, []) == Answers((), None, ())


def test_a_whole_batch_is_settled_at_once(broker: Harness) -> None:
    worker = broker.worker("w")
    for number in range(500):
        broker.add(job(outbox_id=str(number + 1)))
    claimed = worker.read(500).claimed
    answers = worker.settle(1, [settled(one, OUTCOMES[i % 4]) for i, one in enumerate(claimed)])
    assert answers.answers == accepted(500)
    state = broker.state()
    assert (broker.length(), state.jobs.pending, len(state.delayed), len(state.dead)) == (0, {}, 250, 125)


# -- the fence ------------------------------------------------------------------------


def _settle(outcome: Outcome) -> Callable[[Deliveries, Claimed], object]:
    return lambda worker, claimed: worker.settle(1, [settled(claimed, outcome)]).answers


WRITES: dict[str, tuple[Callable[[Deliveries, Claimed], object], object]] = {
    **{f"settle {type(outcome).__name__}": (_settle(outcome), (Answer.LOST,)) for outcome in OUTCOMES},
    "renew": (lambda worker, claimed: worker.renew([claimed.tenure]), (Renewal.LOST,)),
    "release": (lambda worker, claimed: worker.release([claimed]), 0),
}
UNHELD: dict[str, Callable[[Deliveries, Claimed], object]] = {
    "beat": lambda worker, _: worker.beat(Pulse(slots=8)),
    "read": lambda worker, _: worker.read(8),
    "stray": lambda worker, _: worker.stray([]),
}


def _unchanged(broker: Harness, before: State) -> None:
    assert broker.state() == before


@pytest.mark.parametrize("write", WRITES)
def test_a_stale_count_writes_nothing(broker: Harness, write: str) -> None:
    """The entry went through the pool and came back to the same process: its earlier tenure has lapsed."""
    worker = broker.worker("w")
    stale = one_claimed(broker, worker)
    worker.release([stale])
    worker.read(1)
    before = broker.state()
    act, answer = WRITES[write]

    assert act(worker, stale) == answer

    _unchanged(broker, before)


@pytest.mark.parametrize("write", WRITES)
def test_a_count_from_the_future_writes_nothing(broker: Harness, write: str) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    before = broker.state()
    act, answer = WRITES[write]
    ahead = attrs.evolve(claimed, tenure=attrs.evolve(claimed.tenure, deliveries=2))
    assert act(worker, ahead) == answer
    _unchanged(broker, before)


@pytest.mark.parametrize("write", WRITES)
def test_another_consumer_writes_nothing(broker: Harness, write: str) -> None:
    owner, other = broker.worker("owner"), broker.worker("other")
    claimed = one_claimed(broker, owner)
    before = broker.state()
    act, answer = WRITES[write]

    assert act(other, claimed) == answer

    _unchanged(broker, before)
    assert owner.settle(1, [settled(claimed)]).answers == accepted(1)


@pytest.mark.parametrize("write", WRITES)
def test_the_holder_of_a_pooled_entry_writes_nothing(broker: Harness, write: str) -> None:
    """A worker that lapsed and came back under its own record: what it held was given away."""
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    broker.lapse("w")
    broker.worker("sweeper").sweep()
    worker.beat(Pulse(slots=8))
    before = broker.state()
    act, answer = WRITES[write]

    assert act(worker, claimed) == answer

    _unchanged(broker, before)


@pytest.mark.parametrize("write", WRITES)
def test_an_entry_that_is_settled_already_is_lost_to_a_second_batch(broker: Harness, write: str) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    worker.settle(0, [settled(claimed)])
    before = broker.state()
    act, answer = WRITES[write]
    assert act(worker, claimed) == answer
    _unchanged(broker, before)


@pytest.mark.parametrize("write", [*WRITES, *UNHELD])
def test_a_stale_incarnation_writes_nothing_even_with_the_right_consumer_and_count(broker: Harness, write: str) -> None:
    """The new process of the name holds the entry with the very count that the old one remembers."""
    stale = broker.worker("w")
    claimed = one_claimed(broker, stale)
    broker.lapse("w")
    fresh = broker.worker("w")
    broker.destroy_group()
    fresh.ensure_groups()
    (again,) = fresh.read(1).claimed
    assert again.tenure == claimed.tenure
    before = broker.state()
    act = WRITES[write][0] if write in WRITES else UNHELD[write]

    with pytest.raises(NameTaken, match="'w'"):
        act(stale, claimed)

    _unchanged(broker, before)
    assert fresh.settle(1, [settled(again)]).answers == accepted(1)


@pytest.mark.parametrize("write", [*WRITES, *UNHELD])
def test_where_the_record_was_lost_it_is_written_anew_and_the_write_goes_on(broker: Harness, write: str) -> None:
    worker = broker.worker("w", incarnation="i1")
    claimed = one_claimed(broker, worker)
    broker.forget_record("w")
    act = WRITES[write][0] if write in WRITES else UNHELD[write]

    result = act(worker, claimed)

    assert result in (accepted(1), (Renewal.RENEWED,), 1, None) or write == "read"
    assert broker.state().workers == {"w": "i1"}


def test_a_batch_settles_what_holds_and_loses_the_rest(broker: Harness) -> None:
    worker, other = broker.worker("w"), broker.worker("other")
    mine, stale, third = (one_claimed(broker, worker) for _ in range(3))
    worker.release([stale])
    other.read(1)
    answers = worker.settle(1, [settled(mine), settled(stale, BAD), settled(third, LATER)])
    assert answers.answers == (Answer.ACCEPTED, Answer.LOST, Answer.ACCEPTED)
    state = broker.state()
    assert state.jobs.pending == {stale.entry.entry_id: ("other", 2)}
    assert (len(state.delayed), state.dead) == (1, ())


def test_critical_and_jobs_with_the_same_id_are_two_entries(broker: Harness) -> None:
    """A tenure names its stream: the count of one stream's entry never passes for the other's."""
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    crossed = attrs.evolve(claimed, tenure=Tenure(Stream.CRITICAL, claimed.entry.entry_id, 1))
    assert worker.settle(1, [settled(crossed)]).answers == (Answer.LOST,)
    assert worker.renew([crossed.tenure]) == (Renewal.LOST,)
    assert worker.release([crossed]) == 0
    assert broker.length() == 1


# -- repeats ---------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_a_repeated_batch_returns_the_first_answers_and_writes_nothing(broker: Harness, outcome: Outcome) -> None:
    worker, other = broker.worker("w"), broker.worker("other")
    mine, stale = one_claimed(broker, worker), one_claimed(broker, worker)
    worker.release([stale])
    other.read(1)
    batch = [settled(mine, outcome), settled(stale, outcome)]
    first = worker.settle(7, batch)
    assert first.answers == (Answer.ACCEPTED, Answer.LOST)
    before = broker.state()

    assert worker.settle(7, batch) == first
    assert worker.settle(7, batch) == first

    _unchanged(broker, before)


def test_a_beat_between_two_repeats_does_not_forget_the_answers(broker: Harness) -> None:
    worker = broker.worker("w")
    batch = [settled(one_claimed(broker, worker), LATER)]
    first = worker.settle(1, batch)
    worker.beat(Pulse(slots=8))
    assert worker.settle(1, batch) == first


def test_a_repeat_keeps_the_answer_of_what_could_not_be_written(broker: Harness) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    broker.break_dead()
    first = worker.settle(1, [settled(claimed, BAD)])
    assert first.answers == (Answer.FAILED,)
    broker.heal_dead()
    assert worker.settle(1, [settled(claimed, BAD)]) == first
    assert worker.settle(2, [settled(claimed, BAD)]).answers == accepted(1)
    assert len(broker.state().dead) == 1


def test_a_repeat_that_comes_after_the_next_batch_writes_nothing_and_forgets_nothing(broker: Harness) -> None:
    """A packet that was held up on the way: its caller has long gone on."""
    worker = broker.worker("w")
    early, late = [settled(one_claimed(broker, worker), LATER)], [settled(one_claimed(broker, worker), LATER)]
    worker.settle(1, early)
    second = worker.settle(2, late)
    before = broker.state()

    assert worker.settle(1, early).answers == (Answer.LOST,)

    _unchanged(broker, before)
    assert worker.settle(2, late) == second


def test_a_late_repeat_does_not_write_a_bodiless_job_again(broker: Harness) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    broker.trim(claimed.entry.entry_id)
    batch = [settled(claimed, LATER, body_gone=True)]
    assert worker.settle(1, batch).answers == accepted(1)
    broker.make_due()
    worker.promote()
    worker.settle(2, [])
    before = broker.state()
    worker.settle(1, batch)
    _unchanged(broker, before)


def test_a_new_process_of_the_name_may_begin_its_batches_at_one(broker: Harness) -> None:
    worker = broker.worker("w")
    worker.settle(9, [settled(one_claimed(broker, worker))])
    broker.lapse("w")
    fresh = broker.worker("w")
    assert fresh.settle(1, [settled(one_claimed(broker, fresh))]).answers == accepted(1)


def test_a_group_that_is_missing_shows_before_anything_of_a_batch_is_written(broker: Harness) -> None:
    worker = broker.worker("w")
    batch = [
        settled(one_claimed(broker, worker, Stream.JOBS), BAD),
        settled(one_claimed(broker, worker, Stream.CRITICAL), BAD),
    ]
    broker.destroy_group(Stream.CRITICAL)
    before = broker.state()

    with pytest.raises(GroupMissing):
        worker.settle(1, batch)

    _unchanged(broker, before)
    worker.ensure_groups()
    assert worker.settle(1, batch).answers == (Answer.ACCEPTED, Answer.LOST)


# -- what cannot be written ---------------------------------------------------------------


def test_where_the_dead_letters_are_no_stream_that_item_fails_and_its_neighbours_are_settled(broker: Harness) -> None:
    worker = broker.worker("w")
    first, bad, last = (one_claimed(broker, worker) for _ in range(3))
    broker.break_dead()

    answers = worker.settle(1, [settled(first), settled(bad, BAD), settled(last, LATER)])

    assert answers.answers == (Answer.ACCEPTED, Answer.FAILED, Answer.ACCEPTED)
    assert [problem.startswith("WRONGTYPE") for problem in answers.problems] == [True]
    assert "\n" not in answers.problems[0]
    state = broker.state()
    assert state.jobs.pending == {bad.entry.entry_id: ("w", 1)}
    assert list(state.jobs.entries) == [bad.entry.entry_id]


# -- bodies that are gone --------------------------------------------------------------------


@pytest.mark.parametrize("stream", Stream)
def test_renewal_says_that_the_body_is_gone_and_leaves_the_tenure(broker: Harness, stream: Stream) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker, stream)
    broker.trim(claimed.entry.entry_id, stream=stream)
    assert worker.renew([claimed.tenure]) == (Renewal.GONE,)
    assert worker.renew([claimed.tenure]) == (Renewal.GONE,)
    assert broker.state().of(stream).pending == {claimed.entry.entry_id: ("w", 1)}


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
@pytest.mark.parametrize("was_told", [False, True])
def test_a_holder_settles_an_entry_whose_body_is_gone(broker: Harness, outcome: Outcome, *, was_told: bool) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    broker.trim(claimed.entry.entry_id)
    assert worker.settle(1, [settled(claimed, outcome, body_gone=was_told)]).answers == accepted(1)
    _expect_only(broker, outcome, buried=0)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_a_holder_that_was_told_settles_it_even_after_it_was_taken_for_lost(broker: Harness, outcome: Outcome) -> None:
    """Such an entry's idle clock cannot be reset, so a reclaim may bury it under a live holder, who has the body."""
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    broker.age(claimed.entry.entry_id)
    broker.trim(claimed.entry.entry_id)
    assert worker.renew([claimed.tenure]) == (Renewal.GONE,)
    assert [one.entry_id for one in broker.worker("other").reclaim().trimmed] == [claimed.entry.entry_id]

    assert worker.settle(1, [settled(claimed, outcome, body_gone=True)]).answers == accepted(1)

    _expect_only(broker, outcome, buried=1)


def _expect_only(broker: Harness, outcome: Outcome, *, buried: int) -> None:
    state = broker.state()
    assert (state.jobs, state.critical) == (StreamState(), StreamState())
    assert len(state.delayed) == int(isinstance(outcome, RetryLater | UnknownKind))
    assert len(state.dead) == int(isinstance(outcome, Dead)) + buried


def test_body_gone_is_believed_only_where_the_body_is_gone(broker: Harness) -> None:
    """Somebody else holds the entry, body and all: no flag makes a lapsed tenure pass."""
    worker, other = broker.worker("w"), broker.worker("other")
    claimed = one_claimed(broker, worker)
    worker.release([claimed])
    other.read(1)
    before = broker.state()
    assert worker.settle(1, [settled(claimed, BAD, body_gone=True)]).answers == (Answer.LOST,)
    assert broker.state() == before


def test_body_gone_is_not_believed_while_another_holds_the_entry(broker: Harness) -> None:
    worker, other = broker.worker("w"), broker.worker("other")
    claimed = one_claimed(broker, worker)
    worker.release([claimed])
    other.read(1)
    broker.trim(claimed.entry.entry_id)
    before = broker.state()
    assert worker.settle(1, [settled(claimed, LATER, body_gone=True)]).answers == (Answer.LOST,)
    assert broker.state() == before


def test_settling_a_bodiless_entry_after_the_group_was_lost_too(broker: Harness) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    broker.trim(claimed.entry.entry_id)
    worker.renew([claimed.tenure])
    broker.destroy_group()
    worker.ensure_groups()
    assert worker.settle(1, [settled(claimed, LATER, body_gone=True)]).answers == accepted(1)
    assert len(broker.state().delayed) == 1


def test_releasing_an_entry_whose_body_is_gone_adds_it_anew_with_origin(broker: Harness) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    broker.trim(claimed.entry.entry_id)

    assert worker.release([claimed]) == 1

    state = broker.state()
    (added,) = state.jobs.unread
    assert (state.jobs.pending, state.dead) == ({}, ())
    assert dict(state.jobs.entries[added]) == dict(job(origin=claimed.entry.entry_id))
    assert worker.release([claimed]) == 0
    assert broker.length() == 1


def test_a_released_bodiless_entry_keeps_its_first_origin_and_its_crashes(broker: Harness) -> None:
    crashed = broker.worker("crashed")
    broker.add(job(origin="5-0", crashes="1", attempt="3"))
    crashed.read(1)
    broker.lapse("crashed")
    worker = broker.worker("w")
    worker.sweep()
    (claimed,) = worker.read(1).claimed
    broker.trim(claimed.entry.entry_id)

    assert worker.release([claimed]) == 1

    (again,) = worker.read(1).claimed
    assert dict(again.entry.fields) == dict(job(origin="5-0", crashes="2", attempt="3"))


def test_an_entry_of_unknown_fields_without_a_body_is_left_to_the_reclaimer(broker: Harness) -> None:
    """A stray has no fields to add: it stays pending, and becomes a dead letter when it has been idle."""
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    broker.age(claimed.entry.entry_id)
    broker.trim(claimed.entry.entry_id)
    assert worker.stray([]) == 0
    assert broker.state().jobs.pending == {claimed.entry.entry_id: ("w", 1)}
    assert [one.entry_id for one in worker.reclaim().trimmed] == [claimed.entry.entry_id]
    assert broker.state().jobs.pending == {}


# -- renewing and releasing -------------------------------------------------------------------


def test_renewal_resets_the_idle_clock_and_nothing_else(broker: Harness) -> None:
    worker, other = broker.worker("w"), broker.worker("other")
    claimed = one_claimed(broker, worker)
    broker.age(claimed.entry.entry_id)
    before = broker.state()

    assert worker.renew([claimed.tenure]) == (Renewal.RENEWED,)

    assert broker.state() == before
    assert other.reclaim().moved == 0
    assert broker.state() == before


def test_renewal_answers_each_tenure_in_its_place(broker: Harness) -> None:
    worker, other = broker.worker("w"), broker.worker("other")
    kept, given, gone = (one_claimed(broker, worker) for _ in range(3))
    worker.release([given])
    other.read(1)
    broker.trim(gone.entry.entry_id)
    answers = worker.renew([gone.tenure, kept.tenure, given.tenure])
    assert answers == (Renewal.GONE, Renewal.RENEWED, Renewal.LOST)
    assert worker.renew([]) == ()


@pytest.mark.parametrize("stream", Stream)
def test_a_released_entry_is_in_the_pool_and_claimable_at_once(broker: Harness, stream: Stream) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker, stream)

    assert worker.release([claimed]) == 1

    state = broker.state()
    assert state.of(stream).pending == {claimed.entry.entry_id: (POOL, 1)}
    assert state.crashes == {}
    (again,) = broker.worker("other").read(1).claimed
    assert (again.entry, again.tenure.deliveries, again.crash_log) == (claimed.entry, 2, ())


def test_release_counts_what_was_still_ours_and_may_be_repeated(broker: Harness) -> None:
    worker, other = broker.worker("w"), broker.worker("other")
    kept, given = one_claimed(broker, worker), one_claimed(broker, worker)
    worker.release([given])
    other.read(1)
    assert worker.release([kept, given]) == 1
    before = broker.state()
    assert worker.release([kept, given]) == 0
    assert broker.state() == before
    assert worker.release([]) == 0


def test_the_count_never_falls(broker: Harness) -> None:
    worker = broker.worker("w")
    broker.add(job())
    for deliveries in range(1, 6):
        (claimed,) = worker.read(1).claimed
        assert claimed.tenure.deliveries == deliveries
        worker.release([claimed])
        assert next(iter(broker.state().jobs.pending.values())) == (POOL, deliveries)


# -- leaving ------------------------------------------------------------------------------------


def test_retiring_gives_back_everything_and_leaves_no_trace(broker: Harness) -> None:
    worker, other = broker.worker("w"), broker.worker("other", incarnation="i9")
    held = [one_claimed(broker, worker, stream).entry.entry_id for stream in Stream]

    worker.retire()

    state = broker.state()
    assert state.jobs.pending == {held[0]: (POOL, 1)}
    assert state.critical.pending == {held[1]: (POOL, 1)}
    assert (state.crashes, state.workers) == ({}, {"other": "i9"})
    assert broker.consumers() == {"other", POOL}
    assert sorted(ids(other.read(8))) == sorted(held)


def test_retiring_gives_back_more_than_one_call_moves(broker: Harness) -> None:
    worker = broker.worker("w")
    for number in range(230):
        broker.add(job(outbox_id=str(number + 1)))
    worker.read(230)
    worker.retire()
    assert [owner for owner, _ in broker.state().jobs.pending.values()] == [POOL] * 230


def test_a_stale_incarnation_retires_nothing_of_the_process_that_has_its_name(broker: Harness) -> None:
    stale = broker.worker("w")
    broker.lapse("w")
    fresh = broker.worker("w")
    one_claimed(broker, fresh)
    before = broker.state()
    stale.retire()
    _unchanged(broker, before)


def test_where_the_record_was_lost_retiring_gives_back_all_the_same_and_is_no_crash(broker: Harness) -> None:
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    broker.forget_record("w")
    worker.retire()
    state = broker.state()
    assert (state.jobs.pending, state.workers) == ({claimed.entry.entry_id: (POOL, 1)}, {})
    broker.worker("other").sweep()
    assert broker.state().crashes == {}


def test_retiring_twice_is_the_same_as_once(broker: Harness) -> None:
    worker = broker.worker("w")
    one_claimed(broker, worker)
    worker.retire()
    before = broker.state()
    worker.retire()
    assert broker.state() == before


def test_retiring_never_deletes_a_consumer_that_still_holds_an_entry(broker: Harness) -> None:
    """What could not be buried stays on the list, for a list that went with its consumer is a lost job."""
    worker = broker.worker("w")
    claimed = one_claimed(broker, worker)
    broker.trim(claimed.entry.entry_id)
    broker.break_dead()
    worker.retire()
    assert broker.state().jobs.pending == {claimed.entry.entry_id: ("w", 1)}
