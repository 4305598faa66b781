"""A journal as JSON and back: nothing by which a function decides is lost, and what is no history is refused."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.core.call import Kind, Step, StepState
from stagedoor.core.history_data import data_of, journal_of
from stagedoor.core.journal import Journal, step_text
from stagedoor.errors import InvalidHistory

KEYS = ["id", "flow", "state", "waiting_for", "due_at", "steps", "memos", "signals", "result", "error", "places"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20).filter(
    lambda text: not text.startswith(".")
)


def journal(**status: str) -> Journal:
    """Return the journal of a call that waits for a signal."""
    meta = {"m:order": "4471", "v:opened": "12.5", "s:paid:2": '"late"', "s:paid:10": '"later"'}
    steps = {
        "opened": Step(state=StepState.DONE, kind=Kind.MEMO, place=1, attempts=1),
        "render": Step(state=StepState.RUNNING, kind=Kind.GATHER, place=2, more={"length": 2, "digest": "abc"}),
        "render/0": Step(state=StepState.FAILED, kind=Kind.ITEM, attempts=5, error="ValueError: no"),
        "paid": Step(state=StepState.WAITING, kind=Kind.SIGNAL, place=3, due_at=1_800_000_000.25),
    }
    fields = {".flow": "close-order", ".state": "waiting", ".created": "1790000000123", ".for": "signal 'paid'"}
    return Journal("c-1", fields | {key: step_text(step, 7) for key, step in steps.items()} | status, meta)


def test_the_object_has_exactly_its_keys_and_says_what_is_recorded() -> None:
    data = data_of(journal(**{".due": "1800000000250"}))
    assert list(data) == KEYS
    assert data["steps"][2] == {"key": "paid", "state": "waiting", "attempts": 0, "error": None}
    assert data["steps"][3] == {"key": "render/0", "state": "failed", "attempts": 5, "error": "ValueError: no"}
    assert (data["waiting_for"], data["due_at"]) == ("signal 'paid'", "2027-01-15T08:00:00.250Z")
    assert (data["memos"], data["signals"]) == ({"opened": 12.5}, {"paid": ["late", "later"]})
    assert [(place["place"], place["kind"]) for place in data["places"]] == [
        (0, "start"), (1, "memo"), (2, "gather"), (3, "signal"),
    ]  # fmt: skip
    assert data["places"][0]["metadata"] == {"order": "4471"}


@pytest.mark.parametrize(
    "status,error",
    [
        ({".state": "parked", ".parked": "changed", ".why": "expected a, got b"}, "changed: expected a, got b"),
        ({".state": "failed", ".outcome": "failed", ".error": "StepFailed: x"}, "StepFailed: x"),
        ({}, None),
    ],
)
def test_why_a_call_stands_still_or_has_failed_is_its_error(status: dict[str, str], error: str | None) -> None:
    assert data_of(journal(**status))["error"] == error


def test_a_call_whose_entry_is_queued_waits_for_a_worker() -> None:
    fresh = Journal("c", {".flow": "f", ".state": "waiting", ".queued": "1-0", ".created": "1"}, {})
    assert data_of(fresh)["waiting_for"] == "a worker"


@given(st.dictionaries(NAMES, st.tuples(st.sampled_from(StepState), VALUES), max_size=6), VALUES, st.text(max_size=20))
def test_what_a_function_decides_by_comes_back(
    steps: dict[str, tuple[StepState, Any]], signal: object, metadata: str
) -> None:
    status = {".flow": "f", ".state": "failed", ".outcome": "failed", ".error": "no", ".created": "1"}
    for place, (key, (state, _value)) in enumerate(steps.items(), 1):
        status[key] = step_text(Step(state=state, kind=Kind.STEP, place=place, attempts=place), 1)
    meta = {f"v:{key}": json.dumps(value) for key, (_state, value) in steps.items()}
    before = Journal("c", status, meta | {"s:go:1": json.dumps(signal), "m:a": metadata})
    after = journal_of(json.loads(json.dumps(data_of(before))))
    assert (after.call_id, after.flow, after.state) == (before.call_id, before.flow, before.state)
    assert (after.steps, after.places, after.metadata) == (before.steps, before.places, before.metadata)
    assert [json.loads(after.value(key) or "") for key in steps] == [value for _state, value in steps.values()]
    assert {name: [*map(json.loads, texts)] for name, texts in after.mailbox.items()} == {"go": [signal]}
    assert after.outcome is not None
    assert after.outcome.error == "no"


def test_gathers_items_and_callbacks_come_back_as_what_they_are() -> None:
    called = {".on_success": step_text(Step(state=StepState.DONE, kind=Kind.CALLBACK, attempts=1), 7)}
    after = journal_of(data_of(journal(**called)))
    kinds = {key: step.kind for key, step in after.steps.items()}
    assert kinds == {
        "opened": Kind.MEMO, "render": Kind.GATHER, "render/0": Kind.ITEM, "paid": Kind.SIGNAL,
        ".on_success": Kind.CALLBACK,
    }  # fmt: skip
    assert after.steps["render"].more == {"length": 2, "digest": "abc"}
    assert after.steps["paid"].due_at == 1_800_000_000.25
    assert after.created_at == 1_790_000_000.123


def _with(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda data: data | {name: value}


@pytest.mark.parametrize(
    "change,said",
    [
        (lambda _data: [], "a history: expected an object, found []"),
        (_with("id", "a b"), "id: 'a b' is no id"),
        (_with("id", None), "id: expected a text, found None"),
        (_with("state", "happy"), "state: expected one of waiting running"),
        (_with("state", ["waiting"]), "state: expected one of"),
        (_with("steps", "none"), "steps: expected a list"),
        (_with("steps", [3]), "steps[0]: expected an object"),
        (_with("steps", [{"key": "a", "state": "done", "attempts": -1}]), "expected a count of attempts, found -1"),
        (_with("steps", []), "is not among the steps"),
        (_with("places", [{"place": "1"}]), "places[0]: expected the number of a place, found '1'"),
        (_with("places", [{"place": 1, "key": "a", "kind": "jump"}]), "kind: expected one of step memo"),
        (_with("places", [{"place": 0, "key": "f", "at": "yesterday"}]), "expected a time such as"),
        (_with("memos", {"a": float("nan")}), "memos: 'a': "),
    ],
)
def test_what_is_no_history_is_refused_with_the_place(change: Callable[[dict[str, Any]], object], said: str) -> None:
    with pytest.raises(InvalidHistory) as caught:
        journal_of(change(data_of(journal())))
    assert said in str(caught.value)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES) | VALUES)
def test_anything_is_a_history_or_refused(data: object) -> None:
    whole = data_of(journal()) | data if isinstance(data, dict) else data
    with contextlib.suppress(InvalidHistory):
        journal_of(whole)
