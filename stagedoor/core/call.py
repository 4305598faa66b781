"""A call of a flow: where it and its steps can be, and what may follow what.

Rule 1: everything that decides which state of a call or of a step may follow is in this file.
Rule 2: this file writes nothing and knows no Redis; the broker turns each change into one
script that compares the call's epoch and the step's state first.

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
"""

import enum
from collections.abc import Mapping
from typing import Any

import attrs

MAX_STEPS = 10_000
MAX_VALUE_BYTES = 256 * 1024
MAX_CALL_BYTES = 16 * 1024 * 1024
"""All values, errors, metadata and waiting signals of one call: what one read of it may carry."""
MAX_SIGNALS = 10_000
"""Signals sent to one call, in all."""


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
