"""What becomes of a delivery: the decisions, and the table that they follow."""

import math
import random
from datetime import timedelta
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.core.handler import HandlerSpec
from stagedoor.core.job import Job
from stagedoor.core.outcome import (
    OUTAGE_BASE_S,
    OUTAGE_CAP_S,
    TRANSITIONS,
    UNKNOWN_KIND_CAP_S,
    UNKNOWN_KIND_PATIENCE_S,
    Dead,
    Done,
    Happening,
    Limits,
    Reason,
    Release,
    RetryLater,
    Settled,
    State,
    UnknownKind,
    describe,
    of_crashes,
    of_exception,
    of_malformed,
    of_unknown_kind,
)
from stagedoor.errors import BrokerUnavailable, JobTimeout, MalformedEntry, Permanent, Retry, Unavailable

LIMITS = Limits(max_attempts=5, max_crashes=5, backoff_base_s=1, backoff_cap_s=300)
JOB = Job(
    kind="print",
    order_id=1,
    outbox_id=1,
    request_id="",
    trace="",
    attempt=1,
    entry_id="1000-0",
    origin="1000-0",
    queued_at=1.0,
)


def spec(**policy: Any) -> HandlerSpec:
    return HandlerSpec(kind="print", function=lambda _job, _ctx: None, **policy)


def after(error: BaseException, *, attempt: int = 1, **policy: Any) -> RetryLater | Dead:
    job = attrs.evolve(JOB, attempt=attempt)
    return of_exception(error, job, spec(**policy), limits=LIMITS, rng=random.Random(3), now=job.queued_at)


# -- exceptions ------------------------------------------------------------------------


def test_an_exception_is_retried_with_the_next_attempt() -> None:
    outcome = after(ValueError("out of paper"), attempt=2)
    assert isinstance(outcome, RetryLater)
    assert outcome.attempt == 3
    assert 0 <= outcome.after_s <= 2
    assert outcome.error == "ValueError: out of paper"


def test_the_last_attempt_is_the_last() -> None:
    assert isinstance(after(ValueError("x"), attempt=4), RetryLater)
    assert after(ValueError("x"), attempt=5) == Dead(Reason.ATTEMPTS, "ValueError: x (attempt 5 of 5)")
    assert isinstance(after(ValueError("x"), attempt=10**9), Dead)


def test_a_kind_may_have_attempts_and_waits_of_its_own() -> None:
    assert isinstance(after(ValueError("x"), attempts=1), Dead)
    assert isinstance(after(ValueError("x"), attempt=7, attempts=8), RetryLater)
    waits = [after(ValueError("x"), attempt=4, base=10, cap=20) for _ in range(3)]
    assert all(isinstance(wait, RetryLater) and wait.after_s <= 20 for wait in waits)
    never_waits = after(ValueError("x"), base=0)
    assert isinstance(never_waits, RetryLater)
    assert never_waits.after_s == 0


def test_permanent_is_dead_at_once() -> None:
    assert after(Permanent("no such event")) == Dead(Reason.PERMANENT, "Permanent: no such event")


def test_give_up_on_is_dead_at_once_and_retry_on_retries_nothing_else() -> None:
    assert isinstance(after(KeyError("x"), give_up_on=(LookupError,)), Dead)
    assert isinstance(after(ValueError("x"), give_up_on=(LookupError,)), RetryLater)
    assert isinstance(after(OSError("x"), retry_on=(OSError,)), RetryLater)
    refused = after(ValueError("x"), retry_on=(OSError,))
    assert isinstance(refused, Dead)
    assert refused.reason is Reason.PERMANENT


@pytest.mark.parametrize("error", [Retry("later"), JobTimeout("30 s are over")])
def test_a_wanted_retry_and_a_timeout_are_retried_whatever_the_policy(error: Exception) -> None:
    assert isinstance(after(error, retry_on=(OSError,)), RetryLater)


def test_a_wanted_retry_counts_as_an_attempt() -> None:
    assert isinstance(after(Retry("later", after=1), attempt=5), Dead)


def test_a_handler_chooses_its_wait() -> None:
    outcome = after(Retry("later", after=90))
    assert outcome == RetryLater(90, 2, "Retry: later")
    assert after(Retry("now", after=0)) == RetryLater(0, 2, "Retry: now")


@pytest.mark.parametrize("wanted", [math.inf, 1e300, 10**30])
def test_a_wait_past_a_year_is_a_year(wanted: float) -> None:
    outcome = after(Retry("later", after=wanted))
    assert isinstance(outcome, RetryLater)
    assert outcome.after_s == 366 * 24 * 3600


@pytest.mark.parametrize(
    "wanted", [None, math.nan, -1, -math.inf, "5s", b"s", timedelta(seconds=5), [], 10**400, Decimal("NaN"), object()]
)
def test_a_wait_that_is_no_number_of_seconds_takes_the_backoff(wanted: Any) -> None:
    outcome = after(Retry("later", after=wanted))
    assert isinstance(outcome, RetryLater)
    assert 0 <= outcome.after_s <= 1


@given(st.integers(min_value=1), st.one_of(st.none(), st.floats()), st.floats(0, 1e300), st.floats(0, 1e300))
def test_every_wait_is_a_finite_number_of_seconds_that_redis_can_score(
    attempt: int, wanted: float | None, base: float, cap: float
) -> None:
    outcome = after(Retry("x", after=wanted), attempt=attempt, attempts=attempt + 1, base=base, cap=cap)
    assert isinstance(outcome, RetryLater)
    assert math.isfinite(outcome.after_s)
    assert outcome.after_s >= 0
    round(outcome.after_s * 1000)


class Rude(Exception):
    """An exception whose text does what it is told to."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def __str__(self) -> str:
        result: str = self.act()
        return result


def _raise(error: BaseException) -> Any:
    raise error


def _recurse() -> str:
    return _recurse()


class _OddText(str):
    __slots__ = ()

    def split(self, *_: Any) -> Any:
        raise ValueError("no")

    def __getitem__(self, _: Any) -> Any:
        raise ValueError("no")


@pytest.mark.parametrize(
    "act",
    [
        lambda: _raise(ValueError("no")),
        lambda: _raise(KeyboardInterrupt()),
        lambda: _raise(SystemExit(3)),
        lambda: _raise(GeneratorExit()),
        lambda: 7,
        lambda: None,
        _recurse,
        lambda: _OddText("x"),
    ],
)
def test_an_exception_whose_text_raises_is_that_jobs_failure_all_the_same(act: Any) -> None:
    outcome = after(Rude(act))
    assert isinstance(outcome, RetryLater)
    assert outcome.error.startswith("Rude")
    assert outcome.error.isprintable()


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration("x"),
        BaseExceptionGroup("several", [SystemExit(1), ValueError("x")]),
        RecursionError("maximum recursion depth exceeded"),
        MemoryError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_of_every_class_are_retried(error: BaseException) -> None:
    assert isinstance(after(error), RetryLater)


@given(st.text())
def test_an_error_is_one_printable_line_of_bounded_length(text: str) -> None:
    shown = describe(ValueError(text))
    assert shown.startswith("ValueError")
    assert shown.isprintable()
    assert len(shown) <= 2000


def test_a_long_error_is_cut() -> None:
    assert len(describe(ValueError("x" * 10**6))) == 2000


def test_an_errors_text_cannot_forge_a_line() -> None:
    assert describe(ValueError("a\r\n2026 INFO\x1b[2J\u2028b\x00")) == "ValueError: a 2026 INFO\\x1b[2J b\\x00"


# -- the other decisions ------------------------------------------------------------------


def test_a_malformed_entry_is_dead_with_what_was_wrong() -> None:
    assert of_malformed(MalformedEntry("kind", "the field is missing")) == Dead(
        Reason.MALFORMED, "kind: the field is missing"
    )


def test_an_unknown_kind_comes_back_later_and_later_up_to_a_cap() -> None:
    waits = []
    job = JOB
    for _ in range(12):
        outcome = of_unknown_kind(job, now=2.0)
        assert isinstance(outcome, UnknownKind)
        waits.append(outcome.after_s)
        job = attrs.evolve(job, hops=outcome.hops)
    assert waits == sorted(waits)
    assert waits[0] == 0.1
    assert waits[-1] == UNKNOWN_KIND_CAP_S
    assert job.attempt == 1


def test_an_unknown_kind_is_dead_a_day_after_it_was_first_queued() -> None:
    assert isinstance(of_unknown_kind(JOB, now=JOB.queued_at + UNKNOWN_KIND_PATIENCE_S), UnknownKind)
    dead = of_unknown_kind(JOB, now=JOB.queued_at + UNKNOWN_KIND_PATIENCE_S + 0.001)
    assert isinstance(dead, Dead)
    assert dead.reason is Reason.UNKNOWN_KIND
    assert "'print'" in dead.error


def test_hops_never_grow_past_what_their_field_can_say() -> None:
    outcome = of_unknown_kind(attrs.evolve(JOB, hops=999_999_999), now=2.0)
    assert isinstance(outcome, UnknownKind)
    assert outcome.hops == 999_999_999


def test_the_fifth_crash_is_the_last() -> None:
    assert [of_crashes(crashes, LIMITS) for crashes in range(5)] == [None] * 5
    for crashes in (5, 6, 999_999_999):
        dead = of_crashes(crashes, LIMITS)
        assert isinstance(dead, Dead)
        assert dead.reason is Reason.POISON


# -- the table -------------------------------------------------------------------------------

OUTCOMES = {Done, RetryLater, Dead, UnknownKind, Release, Settled}


def test_every_state_is_in_the_table_and_only_settled_is_an_end() -> None:
    assert set(TRANSITIONS) == set(State)
    assert [state for state, row in TRANSITIONS.items() if not row] == [State.SETTLED]


def test_every_happening_is_in_the_table() -> None:
    assert {happening for row in TRANSITIONS.values() for happening in row} == set(Happening)


def test_an_outcome_is_written_exactly_where_a_delivery_is_settled() -> None:
    for row in TRANSITIONS.values():
        for target, outcomes in row.values():
            assert bool(outcomes) == (target is State.SETTLED)
            assert set(outcomes) <= OUTCOMES


def test_every_outcome_can_be_reached_and_every_state_leads_to_the_end() -> None:
    assert {outcome for row in TRANSITIONS.values() for _, outcomes in row.values() for outcome in outcomes} == OUTCOMES
    for state in (State.CLAIMED, State.PARSED, State.STARTED):
        assert State.SETTLED in {target for target, _ in TRANSITIONS[state].values()}


def test_a_worker_may_stop_in_every_state_and_then_gives_the_entry_back() -> None:
    for state in (State.CLAIMED, State.PARSED, State.STARTED):
        assert TRANSITIONS[state][Happening.WORKER_STOPS] == (State.SETTLED, (Release,))


def test_a_delivery_goes_forward_only() -> None:
    order = list(State)
    for state, row in TRANSITIONS.items():
        for target, _ in row.values():
            assert order.index(target) > order.index(state)


def _may(state: State, happening: Happening) -> set[type]:
    return set(TRANSITIONS[state][happening][1])


def test_the_functions_return_what_the_table_says_and_nothing_else() -> None:
    raised = {
        type(after(error, attempt=attempt, **policy))
        for error in (ValueError("x"), Retry("x"), JobTimeout("x"), KeyboardInterrupt())
        for attempt in (1, 5)
        for policy in ({}, {"attempts": 1}, {"retry_on": (OSError,)})
    }
    assert raised == _may(State.STARTED, Happening.RAISES)
    assert {type(after(Permanent("x")))} == _may(State.STARTED, Happening.GIVES_UP)
    unknown = {type(of_unknown_kind(JOB, now=now)) for now in (1.0, 1e9)}
    assert unknown == _may(State.PARSED, Happening.KIND_UNKNOWN)
    assert {type(of_crashes(5, LIMITS))} == _may(State.PARSED, Happening.TOO_MANY_CRASHES)
    assert {type(of_malformed(MalformedEntry("a", "b")))} == _may(State.CLAIMED, Happening.DOES_NOT_PARSE)


@pytest.mark.parametrize("error", [Unavailable("the bank is closed"), BrokerUnavailable("LOADING")])
@given(attempt=st.integers(1, 10**9 - 1), waited_s=st.floats(-1e6, 1e9))
def test_an_outage_is_waited_out_and_counts_as_no_attempt(error: Unavailable, attempt: int, waited_s: float) -> None:
    job = attrs.evolve(JOB, attempt=attempt)
    outcome = of_exception(
        error, job, spec(attempts=1), limits=LIMITS, rng=random.Random(3), now=job.queued_at + waited_s
    )
    assert isinstance(outcome, RetryLater)
    assert outcome.attempt == attempt
    assert OUTAGE_BASE_S / 2 <= outcome.after_s <= OUTAGE_CAP_S
