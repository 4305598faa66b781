"""The journal of a flow call: what is remembered between two passes, and what may follow what.

Rule 1: everything that decides which state of a call or of a step may follow is in this file.
Rule 2: this file writes nothing and knows no Redis; the broker turns each change into one
script that compares the call's epoch and the step's state first.
Rule 3: scripts never look into JSON. What they compare stands before it, in plain words.

Theory
------
A call is a plain function that is run again from the top for each event, and
remembers what it has done. One such run is a *pass*. Exactly one pass at a time
may write: the one whose epoch is the call's, while the call is ``running``.
Every pass that begins raises the epoch, and every pass that ends leaves
``running``, so what a frozen process, an orphaned thread or a late helper still
sends is refused.

* Idle, a call is ``waiting`` (for a signal, or for a worker that takes its entry),
  ``sleeping`` (until a due time) or ``parked`` (until an operator resumes it).
  Whatever happens to it ends in one wake: an entry, unless there is one already.
* Running, it holds a lease and an entry. What happens to it is counted, and a pass
  that would suspend finds that the count has grown, and goes on instead.
* Ended, nothing changes it any more, and its keys expire.

A step is recorded when it has been done, not when it begins: a step that was
never recorded runs again, one that was recorded never does. A step that takes
longer than a second is marked ``running``, so that people can see it.

Every durable operation has a place: a number counted in the order in which the
function makes them. In a later pass the operation at a recorded place must be
the recorded one, or the function has changed under the call.
"""

import enum
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from stagedoor.errors import BrokerError

MAX_STEPS = 10_000
MAX_VALUE_BYTES = 256 * 1024
MAX_CALL_BYTES = 16 * 1024 * 1024
"""All values, errors, metadata and waiting signals of one call: what one read of it may carry."""
MAX_SIGNALS = 10_000
"""Signals sent to one call, in all."""

CALL_ID_PATTERN = r"[A-Za-z0-9._-]{1,64}"
MAX_KEY = 512
"""Characters of a whole key: those of a sequence, its turn, a gather and its item, put together."""
_LONGEST_KEY = 200

CALLBACK_KEYS = (".on_success", ".on_failure")
"""The steps that the engine itself makes; all other keys with a leading dot are no steps."""


class CallState(enum.Enum):
    """Where a call is in its life."""

    WAITING = "waiting"
    """For a signal; or, while an entry of its own is queued, for a worker."""
    RUNNING = "running"
    SLEEPING = "sleeping"
    DONE = "done"
    FAILED = "failed"
    ABORTED = "aborted"
    CANCELLED = "cancelled"
    PARKED = "parked"
    """It cannot go on by itself: somebody has to look, then resume or cancel it."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing can change it any more."""
        return self in ENDED


ENDED = frozenset((CallState.DONE, CallState.FAILED, CallState.ABORTED, CallState.CANCELLED))


class StepState(enum.Enum):
    """Where a step is; a step that was never written about has none."""

    RUNNING = "running"
    RETRY = "retry"
    SLEEPING = "sleeping"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


class Kind(enum.Enum):
    """What kind of durable operation a step is."""

    STEP = "step"
    MEMO = "memo"
    SLEEP = "sleep"
    SIGNAL = "signal"
    GATHER = "gather"
    ITEM = "item"
    """One item of a gather; it has no place of its own."""
    SEQUENCE = "sequence"
    CALLBACK = "callback"


@attrs.frozen(kw_only=True)
class Step:
    """What is recorded of one step, without its value.

    *place* is None for items of a gather and for callbacks. *due_at* is Unix
    seconds: when a sleep ends, a retry is due, a wait times out. *more* holds what
    the engine needs besides, as JSON values (a gather's length and digest).
    *epoch* is 0 in what is to be written: the pass's own is put in.
    """

    state: StepState
    kind: Kind
    place: int | None = None
    attempts: int = 0
    error: str = ""
    due_at: float | None = None
    more: Mapping[str, Any] = attrs.field(factory=dict)
    epoch: int = 0


@attrs.frozen(kw_only=True)
class StepWrite:
    """One change of a step.

    Args:
        key: of the step.
        step: what it is from now on.
        seen: what the pass knows it to be, None for nothing. Refused where it is something else by
            now; that its own heartbeat has marked it running in the meantime is no difference.
        value: JSON text to be kept with it; None keeps what is there.
    """

    key: str
    step: Step
    seen: Step | None
    value: str | None = None


# -- how a pass ends ----------------------------------------------------------------


@attrs.frozen(kw_only=True)
class CallOutcome:
    """How a call ends: *state* is one of `ENDED`; *result* is JSON text."""

    state: CallState
    result: str | None = None
    error: str = ""


@attrs.frozen(kw_only=True)
class Sleep:
    """Go on at *until* (Unix seconds), or when woken.

    *waiting_for* is a phrase for people. *misfit* is kept when the pass ended because the
    function does not fit its history here; any other end forgets it.
    """

    until: float
    waiting_for: str
    misfit: "Misfit | None" = None


@attrs.frozen
class Misfit:
    """Since when (Unix seconds) the function has not fitted its history, and how often it was handed back."""

    since: float
    hops: int


@attrs.frozen(kw_only=True)
class Wait:
    """Go on when woken, or at *until* (Unix seconds) where there is one."""

    waiting_for: str
    until: float | None = None


@attrs.frozen
class GoOn:
    """Go on at once, through an entry of its own: this pass cannot."""


@attrs.frozen(kw_only=True)
class Park:
    """Stand still until an operator resumes it; *reason* is one word, *error* a text for people."""

    reason: str
    error: str


@attrs.frozen(kw_only=True)
class Finish:
    """The call has ended."""

    outcome: CallOutcome


Ending = Sleep | Wait | GoOn | Park | Finish

# -- transitions ------------------------------------------------------------------------


class Happening(enum.Enum):
    """What can happen to a call."""

    BEGINS = "a pass begins"
    WOKEN = "is woken"
    RESUMED = "is resumed"
    CANCEL = "cancel is asked for"
    SLEEPS = "sleeps"
    WAITS = "waits"
    GOES_ON = "goes on elsewhere"
    PARKS = "parks"
    ENTRY_DIES = "its entry is a dead letter"
    RETURNS = "returns"
    RAISES = "raises"
    ABORTS = "aborts"
    CANCELLED = "is cancelled"


_IDLE: Mapping[Happening, CallState] = {
    Happening.BEGINS: CallState.RUNNING,
    Happening.WOKEN: CallState.WAITING,
    Happening.CANCEL: CallState.WAITING,
    Happening.ENTRY_DIES: CallState.PARKED,
}

TRANSITIONS: Mapping[CallState, Mapping[Happening, CallState]] = {
    CallState.WAITING: _IDLE,
    CallState.SLEEPING: _IDLE,
    CallState.PARKED: {
        Happening.WOKEN: CallState.PARKED,
        Happening.RESUMED: CallState.WAITING,
        Happening.CANCEL: CallState.WAITING,
        Happening.ENTRY_DIES: CallState.PARKED,
    },
    CallState.RUNNING: {
        Happening.BEGINS: CallState.RUNNING,
        Happening.WOKEN: CallState.RUNNING,
        Happening.CANCEL: CallState.RUNNING,
        Happening.SLEEPS: CallState.SLEEPING,
        Happening.WAITS: CallState.WAITING,
        Happening.GOES_ON: CallState.WAITING,
        Happening.PARKS: CallState.PARKED,
        Happening.ENTRY_DIES: CallState.PARKED,
        Happening.RETURNS: CallState.DONE,
        Happening.RAISES: CallState.FAILED,
        Happening.ABORTS: CallState.ABORTED,
        Happening.CANCELLED: CallState.CANCELLED,
    },
    CallState.DONE: {},
    CallState.FAILED: {},
    CallState.ABORTED: {},
    CallState.CANCELLED: {},
}

_OPEN_STEP = frozenset(StepState)

STEP_TRANSITIONS: Mapping[StepState | None, frozenset[StepState]] = {
    None: _OPEN_STEP,
    StepState.RUNNING: _OPEN_STEP,
    StepState.RETRY: _OPEN_STEP - {StepState.SLEEPING, StepState.WAITING},
    StepState.SLEEPING: frozenset((StepState.SLEEPING, StepState.DONE)),
    StepState.WAITING: frozenset((StepState.WAITING, StepState.DONE, StepState.FAILED)),
    StepState.DONE: frozenset(),
    StepState.FAILED: frozenset(),
}
"""What a step may become; None is a step that was never written about."""


def state_after(ending: Ending) -> CallState:
    """Return the state in which an ending leaves the call."""
    match ending:
        case Sleep():
            return CallState.SLEEPING
        case Wait() | GoOn():
            return CallState.WAITING
        case Park():
            return CallState.PARKED
        case Finish(outcome=outcome):
            return outcome.state


# -- how it is written --------------------------------------------------------------------


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
