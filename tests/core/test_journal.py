"""The journal without a broker: its tables, its texts, and whether a function fits its history."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.core.call import (
    ENDED,
    STEP_TRANSITIONS,
    TRANSITIONS,
    CallOutcome,
    CallState,
    Ending,
    Finish,
    GoOn,
    Happening,
    Kind,
    Misfit,
    Park,
    Sleep,
    Step,
    StepState,
    Wait,
    state_after,
)
from stagedoor.core.journal import (
    CALLBACK_KEYS,
    Journal,
    Place,
    is_call_id,
    is_key,
    parse_step,
    seen_words,
    step_text,
    why_misfit,
)
from stagedoor.errors import BrokerError

# -- tables -----------------------------------------------------------------------------


def test_every_state_of_a_call_has_a_row_and_every_happening_happens() -> None:
    assert set(TRANSITIONS) == set(CallState)
    assert {happening for row in TRANSITIONS.values() for happening in row} == set(Happening)


def test_nothing_leads_out_of_an_end_and_an_end_can_be_reached_from_everywhere() -> None:
    for state in CallState:
        assert state.has_ended == (state in ENDED) == (not TRANSITIONS[state])
        reached, ahead = {state}, [state]
        while ahead:
            new = set(TRANSITIONS[ahead.pop()].values()) - reached
            reached |= new
            ahead += new
        assert reached & ENDED


def test_only_a_call_that_runs_ends_suspends_or_parks_itself() -> None:
    own = {Happening.SLEEPS, Happening.WAITS, Happening.GOES_ON, Happening.PARKS, Happening.RETURNS, Happening.RAISES}
    for state, row in TRANSITIONS.items():
        assert state is CallState.RUNNING or not own & set(row)


@pytest.mark.parametrize(
    "ending, happening",
    [
        (Sleep(until=1.0, waiting_for="x"), Happening.SLEEPS),
        (Wait(waiting_for="x"), Happening.WAITS),
        (GoOn(), Happening.GOES_ON),
        (Park(reason="x", error="y"), Happening.PARKS),
        (Finish(outcome=CallOutcome(state=CallState.DONE)), Happening.RETURNS),
        (Finish(outcome=CallOutcome(state=CallState.FAILED)), Happening.RAISES),
        (Finish(outcome=CallOutcome(state=CallState.ABORTED)), Happening.ABORTS),
        (Finish(outcome=CallOutcome(state=CallState.CANCELLED)), Happening.CANCELLED),
    ],
)
def test_an_ending_leaves_a_call_where_the_table_says(ending: Ending, happening: Happening) -> None:
    assert state_after(ending) is TRANSITIONS[CallState.RUNNING][happening]


def test_a_step_that_is_over_becomes_nothing_else_and_all_others_may_be_done() -> None:
    assert set(STEP_TRANSITIONS) == {None, *StepState}
    for state, following in STEP_TRANSITIONS.items():
        if state in {StepState.DONE, StepState.FAILED}:
            assert not following
        else:
            assert StepState.DONE in following


# -- texts -------------------------------------------------------------------------------

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
steps = st.builds(
    Step,
    state=st.sampled_from(StepState),
    kind=st.sampled_from(Kind),
    place=st.none() | st.integers(0, 10_000),
    attempts=st.integers(0, 1000),
    error=st.text(max_size=50),
    due_at=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    more=st.dictionaries(st.text(max_size=5), values, max_size=3),
    epoch=st.integers(0, 2**53),
)


@given(steps)
def test_a_step_comes_back_equal_and_its_first_words_are_what_scripts_compare(step: Step) -> None:
    text = step_text(step, step.epoch)
    assert parse_step(text) == step
    assert " ".join(text.split(" ")[:2]) == seen_words(step)
    assert text.isascii()
    assert "\n" not in text


def test_nothing_seen_is_no_words() -> None:
    assert seen_words(None) == ""


@pytest.mark.parametrize(
    "text",
    ["", "done", "done 1", "done 1 ", "done 1 {}", 'done x {"kind":"step"}', 'gone 1 {"kind":"step"}', "done 1 []",
     'done 1 {"kind":"x"}', "done 1 " + "[" * 50],
)  # fmt: skip
def test_a_text_that_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(BrokerError, match="no record of a step"):
        parse_step(text)


@pytest.mark.parametrize("key", ["a", "x" * 200, "a b", "ü/1", "v:1", "a:b", '"', "1."])
def test_keys_that_are_allowed(key: str) -> None:
    assert is_key(key)


@pytest.mark.parametrize("key", ["", "x" * 201, ".state", "a\n", "\x00", "\ud800", *CALLBACK_KEYS])
def test_keys_that_are_refused(key: str) -> None:
    assert not is_key(key)


@pytest.mark.parametrize(
    "call_id, allowed", [("a", True), ("A-b_c.9", True), ("x" * 64, True), ("", False), ("x" * 65, False),
                         ("a b", False), ("a\n", False), ("ü", False), ("٣", False), ("a/b", False)],
)  # fmt: skip
def test_ids_of_calls(call_id: str, *, allowed: bool) -> None:
    assert is_call_id(call_id) == allowed


# -- reading ------------------------------------------------------------------------------


def journal(**status: str) -> Journal:
    known = {".flow": "f", ".state": "running", ".created": "1500", **status}
    return Journal(
        "c", known, {"m:order": "7", "v:a": "[]", "result": "1", "s:go:2": "2", "s:go:10": "10", "s:a:b:1": "3"}
    )


def test_a_journal_says_what_its_fields_say() -> None:
    fields = {".epoch": "3", ".request_id": "r", ".trace": "t", ".starts": "2500", ".due": "3500", ".for": "x"}
    fields |= {
        ".cancel": "1",
        ".queued": "1:1-1",
        ".finished": "4500",
        ".misfit": "1250 4",
        ".parked": "p",
        ".why": "w",
    }
    full = journal(**fields)
    assert (full.call_id, full.flow, full.state, full.epoch) == ("c", "f", CallState.RUNNING, 3)
    assert (full.request_id, full.trace, full.waiting_for) == ("r", "t", "x")
    assert (full.created_at, full.starts_at, full.due_at, full.ended_at) == (1.5, 2.5, 3.5, 4.5)
    assert (full.is_queued, full.is_cancel_requested, full.misfit) == (True, True, Misfit(1.25, 4))
    assert (full.parked_reason, full.parked_error) == ("p", "w")
    assert full.metadata == {"order": "7"}
    assert full.mailbox == {"go": ("2", "10"), "a:b": ("3",)}
    assert (full.value("a"), full.value("b")) == ("[]", None)


def test_what_a_journal_does_not_say_is_nothing() -> None:
    bare = journal()
    assert (bare.epoch, bare.request_id, bare.trace, bare.waiting_for) == (0, "", "", "")
    assert (bare.starts_at, bare.due_at, bare.ended_at, bare.misfit) == (1.5, None, None, None)
    assert (bare.is_queued, bare.is_cancel_requested, bare.parked_reason, bare.outcome) == (False, False, "", None)
    assert (bare.steps, bare.places, bare.step("a")) == ({}, (), None)


def test_an_outcome_is_what_was_decided() -> None:
    decided = journal(**{".outcome": "failed", ".error": "why"}).outcome
    assert decided == CallOutcome(state=CallState.FAILED, result="1", error="why")


def test_steps_come_in_the_order_of_their_places_and_fields_of_the_engine_are_none() -> None:
    def text(place: int | None) -> str:
        return step_text(Step(state=StepState.DONE, kind=Kind.STEP, place=place), 1)

    full = journal(b=text(10), a=text(9), **{"g/1": text(None), ".on_success": text(None), ".in:x": "1", ".t:x": "1"})
    assert list(full.steps) == ["a", "b", ".on_success", "g/1"]
    assert full.places == (Place(9, "a", Kind.STEP), Place(10, "b", Kind.STEP))


def test_the_record_of_a_step_is_what_the_layout_promises() -> None:
    step = Step(state=StepState.RETRY, kind=Kind.GATHER, place=2, attempts=1, error="e", due_at=1.5, more={"n": 3})
    state, epoch, body = step_text(step, 7).split(" ", 2)
    assert (state, epoch) == ("retry", "7")
    assert json.loads(body) == {
        "kind": "gather", "place": 2, "attempts": 1, "error": "e", "due_at": 1.5, "more": {"n": 3},
    }  # fmt: skip


# -- does a function fit? ---------------------------------------------------------------------

RECORDED = [Place(1, "a", Kind.STEP), Place(2, "b", Kind.SLEEP), Place(4, "c", Kind.STEP)]


@pytest.mark.parametrize(
    "made",
    [*RECORDED, Place(3, "new", Kind.STEP), Place(5, "last", Kind.SIGNAL)],
)
def test_what_is_recorded_and_what_is_new_fits(made: Place) -> None:
    assert why_misfit(RECORDED, made) is None


@pytest.mark.parametrize(
    "made, why",
    [
        (Place(1, "z", Kind.STEP), "expected 1. step 'a', got 1. step 'z'"),
        (Place(1, "a", Kind.MEMO), "expected 1. step 'a', got 1. memo 'a'"),
        (Place(2, "a", Kind.STEP), "expected 2. sleep 'b', got 2. step 'a'"),
        (Place(3, "a", Kind.STEP), "expected 'a' at place 1, got it at place 3"),
        (Place(5, "c", Kind.STEP), "expected 'c' at place 4, got it at place 5"),
    ],
)
def test_what_is_renamed_moved_or_of_another_kind_does_not_fit(made: Place, why: str) -> None:
    assert why_misfit(RECORDED, made) == why
