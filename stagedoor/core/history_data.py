"""A call's journal as one JSON object, and back: what ``flow show --json`` prints and ``flow check`` reads.

The object has everything by which the function may have decided: the values of
its steps, its metadata, and what is in its mailbox. What only the writing of it
needs (epochs, the lease, the timer) is left out.
"""

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import Any

from stagedoor.core.call import CallState, Kind, Step, StepState
from stagedoor.core.journal import CALLBACK_KEYS, Journal, is_call_id, step_text
from stagedoor.errors import BrokerError, InvalidHistory

__all__ = ["data_of", "error_of", "journal_of", "readable", "waiting_for"]

_START = "start"
"""The kind of place 0, which is no operation: the call's start, with its metadata."""
_EPOCH = 1
"""Of every step in a journal that was read back: nobody writes to it."""
_LATEST_S = 253_402_300_799
"""The end of the year 9999: nothing is due later."""


def waiting_for(journal: Journal) -> str:
    """Return what a call waits for, as a phrase; empty while it runs and once it has ended."""
    if journal.state is CallState.WAITING and not journal.waiting_for:
        return "a worker"
    return journal.waiting_for


def error_of(journal: Journal) -> str:
    """Return why a call has failed, or is parked; empty where neither."""
    if journal.state is CallState.PARKED:
        return ": ".join(filter(None, (journal.parked_reason, journal.parked_error)))
    outcome = journal.outcome
    return outcome.error if outcome is not None else ""


def readable(journal: Journal) -> Journal:
    """Return the journal, every field of which can be read.

    Raises:
        BrokerError: somebody else has written into it; `flow cancel` may still end the call.
    """
    try:
        _ = journal.flow, journal.state, journal.epoch, journal.misfit
        for text in _values_of(journal):
            json.loads(text)
        due_at = [step.due_at for step in journal.steps.values() if _is_sound(step)]
        times = [journal.created_at, journal.starts_at, journal.ended_at, journal.due_at, *due_at]
        for at in filter(None, times):
            _check_time(at)
    except (BrokerError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        what = str(error)[:200]
        raise BrokerError(f"call {journal.call_id}: what is kept of it cannot be read: {what}") from error
    return journal


def _values_of(journal: Journal) -> Iterator[str]:
    """Yield every JSON text that is kept: of steps, of waiting signals, and the result."""
    yield from (text for key in journal.steps if (text := journal.value(key)) is not None)
    for texts in journal.mailbox.values():
        yield from texts
    if journal.outcome is not None and journal.outcome.result is not None:
        yield journal.outcome.result


def _check_time(at: float) -> None:
    if not 0 <= at <= _LATEST_S:
        raise ValueError(f"{at!r} is no time")


def _is_sound(step: Step) -> bool:
    """Return True.

    Raises:
        TypeError: something of it is of another type than it says.
    """
    kinds = ((step.place, int | None), (step.attempts, int), (step.error, str), (step.due_at, float | int | None))
    for found, kind in (*kinds, (step.more, dict)):
        if not isinstance(found, kind):
            raise TypeError(f"{str(found)[:40]!a} is in a step where something else belongs")
    return True


def data_of(journal: Journal) -> dict[str, Any]:
    """Return a journal as values that make JSON.

    ``memos`` holds every value that is kept, by the key of its step; ``signals`` what was sent
    and not taken; ``places`` begins with the start of the call, as place 0.
    """
    outcome, steps = journal.outcome, journal.steps
    return {
        "id": journal.call_id,
        "flow": journal.flow,
        "state": journal.state.value,
        "waiting_for": waiting_for(journal) or None,
        "due_at": _moment(journal.due_at),
        "steps": [
            {"key": key, "state": step.state.value, "attempts": step.attempts, "error": step.error or None}
            for key, step in steps.items()
        ],
        "memos": {key: json.loads(text) for key in steps if (text := journal.value(key)) is not None},
        "signals": {name: [json.loads(text) for text in texts] for name, texts in journal.mailbox.items()},
        "result": json.loads(outcome.result) if outcome is not None and outcome.result is not None else None,
        "error": error_of(journal) or None,
        "places": [
            _start_of(journal),
            *(_place_of(key, step) for key, step in steps.items() if step.place is not None),
        ],
    }


def _start_of(journal: Journal) -> dict[str, Any]:
    started = {"place": 0, "key": journal.flow, "kind": _START, "at": _moment(journal.created_at)}
    return started | {"metadata": journal.metadata}


def _place_of(key: str, step: Step) -> dict[str, Any]:
    place: dict[str, Any] = {"place": step.place, "key": key, "kind": step.kind.value}
    if step.due_at is not None:
        place["due_at"] = _moment(step.due_at)
    return place | ({"more": dict(step.more)} if step.more else {})


def _moment(at: float | None) -> str | None:
    if at is None:
        return None
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- back again ----------------------------------------------------------------------------


def journal_of(data: object) -> Journal:
    """Return the journal that such an object was made from, but for what only its writing needs.

    Raises:
        InvalidHistory: it is none; says where and what was expected.
    """
    root = _mapping(data, "a history")
    call_id = _text(root, "id")
    if not is_call_id(call_id):
        raise InvalidHistory(f"id: {call_id[:80]!r} is no id of a call")
    places = list(_places(root))
    start = next((place for place in places if place["place"] == 0), {})
    status = {".flow": _text(root, "flow"), ".state": _word(root, "state", CallState), ".epoch": str(_EPOCH)}
    status |= {".created": _ms(start.get("at")), ".for": str(root.get("waiting_for") or "")}
    status |= _ended(root, CallState(status[".state"]))
    status |= dict(_steps(root, {place["key"]: place for place in places if place["place"] != 0}))
    return Journal(call_id, status, dict(_meta(root, _mapping(start.get("metadata", {}), "metadata of place 0"))))


def _ended(root: Mapping[str, Any], state: CallState) -> Iterator[tuple[str, str]]:
    error = str(root.get("error") or "")
    if state.has_ended:
        yield from ((".outcome", state.value), (".error", error))
    elif state is CallState.PARKED:
        yield from ((".parked", "parked"), (".why", error))


def _places(root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for number, item in enumerate(_sequence(root, "places")):
        place = _mapping(item, f"places[{number}]")
        if not _is_count(place.get("place")):
            raise InvalidHistory(f"places[{number}]: expected the number of a place, found {place.get('place')!r:.80}")
        _text(place, "key")
        if place["place"] != 0:
            _word(place, "kind", Kind)
        yield place


def _steps(root: Mapping[str, Any], places: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    found = set[str]()
    for number, item in enumerate(_sequence(root, "steps")):
        told = _mapping(item, f"steps[{number}]")
        key, place = _text(told, "key"), places.get(_text(told, "key"), {})
        if not _is_count(told.get("attempts")):
            raise InvalidHistory(f"steps[{number}]: expected a count of attempts, found {told.get('attempts')!r:.80}")
        found.add(key)
        step = Step(
            state=StepState(_word(told, "state", StepState)),
            kind=_kind_of(key, place),
            place=place.get("place"),
            attempts=told["attempts"],
            error=str(told.get("error") or ""),
            due_at=None if place.get("due_at") is None else int(_ms(place["due_at"])) / 1000,
            more=_mapping(place.get("more", {}), f"more of {key!r}"),
        )
        yield key, _written(key, step)
    if lost := sorted(places.keys() - found):
        raise InvalidHistory(f"places: {lost[0]!r} is not among the steps")


def _kind_of(key: str, place: Mapping[str, Any]) -> Kind:
    if place:
        return Kind(place["kind"])
    return Kind.CALLBACK if key in CALLBACK_KEYS else Kind.ITEM


def _written(key: str, step: Step) -> str:
    try:
        return step_text(step, _EPOCH)
    except ValueError as error:
        raise InvalidHistory(f"places: more of {key!r}: {error}") from error


def _meta(root: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in metadata.items():
        yield f"m:{name}", str(value)
    for key, value in _mapping(root.get("memos", {}), "memos").items():
        yield f"v:{key}", _json(value, f"memos: {key!r}")
    for name, values in _mapping(root.get("signals", {}), "signals").items():
        for number, value in enumerate(values if isinstance(values, list) else ()):
            yield f"s:{name}:{number}", _json(value, f"signals: {name!r}")
    if root.get("result") is not None:
        yield "result", _json(root["result"], "result")


def _json(value: object, what: str) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise InvalidHistory(f"{what}: {error}") from error


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidHistory(f"{what}: expected an object, found {value!r:.80}")
    return value


def _sequence(root: Mapping[str, Any], name: str) -> list[Any]:
    found = root.get(name)
    if not isinstance(found, list):
        raise InvalidHistory(f"{name}: expected a list, found {found!r:.80}")
    return found


def _text(root: Mapping[str, Any], name: str) -> str:
    found = root.get(name)
    if not isinstance(found, str):
        raise InvalidHistory(f"{name}: expected a text, found {found!r:.80}")
    return found


def _word(root: Mapping[str, Any], name: str, words: type[CallState] | type[StepState] | type[Kind]) -> str:
    found, known = root.get(name), [word.value for word in words]
    if not isinstance(found, str) or found not in known:
        raise InvalidHistory(f"{name}: expected one of {' '.join(known)}, found {found!r:.80}")
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _ms(moment: object) -> str:
    try:
        return str(round(dt.datetime.fromisoformat(str(moment)).timestamp() * 1000)) if moment is not None else "0"
    except (ValueError, OverflowError) as error:
        raise InvalidHistory(f"expected a time such as 2026-07-01T18:00:00Z, found {moment!r:.80}") from error
