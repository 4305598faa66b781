"""The journal of a call: how it is written down, and what a pass and people read of it.

Rule: scripts never look into JSON. What they compare stands before it, in plain words.

Every durable operation has a place: a number counted in the order in which the
function makes them. In a later pass the operation at a recorded place must be
the recorded one, or the function has changed under the call.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from stagedoor.core.call import MAX_STEPS, CallOutcome, CallState, Kind, Misfit, Step, StepState
from stagedoor.errors import BrokerError

CALL_ID_PATTERN = r"[A-Za-z0-9._-]{1,64}"
MAX_KEY = 512
"""Characters of a whole key: those of a sequence, its turn, a gather and its item, put together."""
_LONGEST_KEY = 200

CALLBACK_KEYS = (".on_success", ".on_failure")
"""The steps that the engine itself makes; all other keys with a leading dot are no steps."""


def step_text(step: Step, epoch: int) -> str:
    """Return a step as its field holds it: state and epoch in plain words, then JSON on the same line."""
    body: dict[str, Any] = {"kind": step.kind.value}
    if step.place is not None:
        body["place"] = step.place
    if step.attempts:
        body["attempts"] = step.attempts
    if step.error:
        body["error"] = step.error
    if step.due_at is not None:
        body["due_at"] = step.due_at
    if step.more:
        body["more"] = dict(step.more)
    return f"{step.state.value} {epoch} {_encode(body)}"


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def parse_step(text: str) -> Step:
    """Return the step that a field holds.

    Raises:
        BrokerError: it was not written by `step_text`.
    """
    try:
        state, epoch, body = text.split(" ", 2)
        known = json.loads(body)
        return Step(
            state=StepState(state),
            epoch=int(epoch),
            kind=Kind(known["kind"]),
            place=known.get("place"),
            attempts=known.get("attempts", 0),
            error=known.get("error", ""),
            due_at=known.get("due_at"),
            more=known.get("more", {}),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokerError(f"{text[:80]!r} is no record of a step: {error}") from error


def seen_words(seen: Step | None) -> str:
    """Return what a script compares with the first two words of a step's field; empty for no field."""
    return "" if seen is None else f"{seen.state.value} {seen.epoch}"


def is_key(key: str) -> bool:
    """Return whether steps, signals and metadata may be called so: 1 to 200 printable, no dot first."""
    return 1 <= len(key) <= _LONGEST_KEY and key.isprintable() and not key.startswith(".")


def is_step_field(field: str) -> bool:
    """Return whether a field of the status hash is a step."""
    return not field.startswith(".") or field in CALLBACK_KEYS


def is_call_id(call_id: str) -> bool:
    """Return whether a call may have this id."""
    return re.fullmatch(CALL_ID_PATTERN, call_id, re.ASCII) is not None


# -- reading it ----------------------------------------------------------------------------


@attrs.frozen
class Place:
    """Which operation stands at a place of the function."""

    place: int
    key: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.place}. {self.kind.value} {self.key!r}"


@attrs.frozen
class Journal:
    """One call as it was read: both of its hashes, whole.

    Nothing is parsed before it is asked for, so that a long history costs little.
    """

    call_id: str
    status: Mapping[str, str]
    meta: Mapping[str, str]

    @property
    def flow(self) -> str:
        """The name of the flow."""
        return self.status[".flow"]

    @property
    def state(self) -> CallState:
        """The call's state."""
        return CallState(self.status[".state"])

    @property
    def epoch(self) -> int:
        """How often a pass has begun."""
        return int(self.status.get(".epoch", "0"))

    @property
    def request_id(self) -> str:
        """The request that started it."""
        return self.status.get(".request_id", "")

    @property
    def trace(self) -> str:
        """The trace context of its start."""
        return self.status.get(".trace", "")

    @property
    def created_at(self) -> float:
        """When it was started, Unix seconds."""
        return _seconds(self.status.get(".created")) or 0.0

    @property
    def ended_at(self) -> float | None:
        """When it ended, Unix seconds."""
        return _seconds(self.status.get(".finished"))

    @property
    def starts_at(self) -> float:
        """When it was due to begin, Unix seconds: what a timeout of the call counts from."""
        return _seconds(self.status.get(".starts")) or self.created_at

    @property
    def due_at(self) -> float | None:
        """When its timer is due, Unix seconds; None where it has none."""
        return _seconds(self.status.get(".due"))

    @property
    def waiting_for(self) -> str:
        """What it waits for, as a phrase for people; empty while it runs."""
        return self.status.get(".for", "")

    @property
    def is_queued(self) -> bool:
        """Whether an entry of its own was added for a worker to take."""
        return bool(self.status.get(".queued"))

    @property
    def is_cancel_requested(self) -> bool:
        """Whether somebody wants it cancelled."""
        return ".cancel" in self.status

    @property
    def misfit(self) -> Misfit | None:
        """Since when the function has not fitted its history; None where it did when last looked at."""
        since, _, hops = self.status.get(".misfit", "").partition(" ")
        return Misfit(int(since) / 1000, int(hops)) if since else None

    @property
    def parked_reason(self) -> str:
        """Why it is parked, in one word; empty where it is not."""
        return self.status.get(".parked", "")

    @property
    def parked_error(self) -> str:
        """Why it is parked, for people; empty where it is not."""
        return self.status.get(".why", "")

    @property
    def outcome(self) -> CallOutcome | None:
        """How it ends, once that is decided; the callback may still have to run."""
        state = self.status.get(".outcome")
        if state is None:
            return None
        error = self.status.get(".error", "")
        return CallOutcome(state=CallState(state), result=self.meta.get("result"), error=error)

    @property
    def metadata(self) -> dict[str, str]:
        """What its starter gave along."""
        return {name[2:]: value for name, value in self.meta.items() if name.startswith("m:")}

    @property
    def mailbox(self) -> dict[str, tuple[str, ...]]:
        """Signals that were sent and not taken: name to JSON texts, oldest first."""
        letters: dict[str, list[tuple[int, str]]] = {}
        for field, value in self.meta.items():
            if field.startswith("s:"):
                name, _, number = field[2:].rpartition(":")
                letters.setdefault(name, []).append((int(number), value))
        return {name: tuple(value for _, value in sorted(found)) for name, found in letters.items()}

    def step(self, key: str) -> Step | None:
        """Return what is recorded of a step."""
        text = self.status.get(key)
        return None if text is None else parse_step(text)

    def value(self, key: str) -> str | None:
        """Return the JSON text of a step's value."""
        return self.meta.get(f"v:{key}")

    @property
    def steps(self) -> dict[str, Step]:
        """Every step; in the order of their places, then those without one by their keys."""
        found = {key: parse_step(text) for key, text in self.status.items() if is_step_field(key)}
        return dict(sorted(found.items(), key=lambda pair: _order(pair[0], pair[1])))

    @property
    def places(self) -> tuple[Place, ...]:
        """The recorded history, in order."""
        return tuple(Place(step.place, key, step.kind) for key, step in self.steps.items() if step.place is not None)


def _order(key: str, step: Step) -> tuple[int, str]:
    return (MAX_STEPS * 2 if step.place is None else step.place, key)


def _seconds(text: str | None) -> float | None:
    return None if text is None else int(text) / 1000


# -- does the function fit its history? ------------------------------------------------------


def why_misfit(recorded: Sequence[Place], made: Place) -> str | None:
    """Return why an operation does not fit the history, None where it does.

    New places after the last recorded one are legal, and so is a place at which nothing was recorded.
    """
    there = next((place for place in recorded if place.place == made.place), None)
    if there is not None and there != made:
        return f"expected {there}, got {made}"
    elsewhere = next((place for place in recorded if place.key == made.key and place.place != made.place), None)
    if elsewhere is not None:
        return f"expected {made.key!r} at place {elsewhere.place}, got it at place {made.place}"
    return None
