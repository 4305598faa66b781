"""The port of the flow journal: what an engine, a starter and an operator may ask of the broker.

Each method is one atomic call and says what is durable when it returns. All are
synchronous and may be called from several threads at once.

Every method may raise `BrokerUnavailable`: nothing is known of its effect; repeat
it as it stands, each is safe to repeat. Those that take a tenure may also raise
`NameTaken`. Times are Unix seconds of Redis' clock.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from stagedoor.core.call import CallOutcome, CallState, Ending, StepWrite
from stagedoor.core.journal import Journal
from stagedoor.core.tenure import Tenure

__all__ = [
    "Again",
    "Begun",
    "CallLine",
    "Calls",
    "CallsPage",
    "Ended",
    "Kept",
    "Looked",
    "NewCall",
    "Pass",
    "Recorded",
    "Refused",
    "Running",
    "SignalReply",
    "Started",
    "TakenSignal",
    "TimedOut",
    "Told",
    "Unsent",
]


@attrs.frozen(kw_only=True)
class NewCall:
    """A call to be started.

    *call_id* is the idempotency key; *delay_s* is at least 0. *request_id* and *trace* travel with it
    into each of its entries.
    """

    call_id: str
    flow: str
    metadata: Mapping[str, str] = attrs.field(factory=dict)
    delay_s: float = 0.0
    request_id: str = ""
    trace: str = ""


@attrs.frozen
class Started:
    """The answer to a start: whether it was created now, and what the call of this id is."""

    created: bool
    flow: str
    state: CallState


@attrs.frozen
class Pass:
    """By what right a pass writes: the epoch that it was given.

    *wakes* is how often the call had been woken when the pass last read it.
    """

    call_id: str
    epoch: int
    wakes: int


@attrs.frozen
class Begun:
    """A pass has begun; *now* is the time then, *journal* all that is remembered."""

    right: Pass
    now: float
    journal: Journal


class Refused(enum.Enum):
    """No pass begins, and the entry has been acknowledged and deleted: the delivery is settled."""

    BUSY = "busy"
    """Another pass of this call runs; it has been told to look again before it suspends."""
    ENDED = "ended"
    PARKED = "parked"
    """It stands still until it is resumed or cancelled, which adds an entry of its own."""
    UNKNOWN = "unknown"
    """There is no such call: it has expired, or Redis has lost it."""


@attrs.frozen
class Running:
    """A pass to be kept alive, and those of its steps that have been running for over a second."""

    right: Pass
    steps: tuple[StepWrite, ...] = ()


@attrs.frozen
class Recorded:
    """A step was recorded; the call's cancel may have been asked for in the meantime."""

    is_cancel_requested: bool = False


@attrs.frozen
class Kept:
    """Whether a pass still holds, and whether the call's cancel was asked for."""

    holds: bool
    is_cancel_requested: bool = False


@attrs.frozen
class TakenSignal:
    """A signal was in the mailbox; *value* is its JSON text, recorded as the step's value."""

    value: str


@attrs.frozen
class TimedOut:
    """No signal, and the time is over: recorded as the step's failure."""


@attrs.frozen
class Unsent:
    """No signal yet; the step is recorded as waiting."""


SignalReply = TakenSignal | TimedOut | Unsent


@attrs.frozen
class Ended:
    """The pass is over and its entry settled."""


@attrs.frozen
class Again:
    """Something has happened to the call since it was read: the pass still runs; begin at the top with this.

    *right* takes the place of the one before.
    """

    right: Pass
    now: float
    journal: Journal


class Told(enum.Enum):
    """What became of something that was told to a call."""

    TOLD = "told"
    UNKNOWN = "unknown"
    """There is no such call, or no longer."""
    ENDED = "ended"
    """Its outcome is decided: nothing changes it any more."""
    FULL = "full"
    """Its mailbox, or all that it may keep, is full."""
    NOT_PARKED = "not parked"


@attrs.frozen
class Looked:
    """What one look at the calls did; *more* says that others are due for a look now."""

    looked: int = 0
    woken: int = 0
    timers: int = 0
    """Lost timers made anew."""
    forgotten: int = 0
    """Calls whose keys have expired."""
    more: bool = False


@attrs.frozen(kw_only=True)
class CallLine:
    """One call in a list."""

    call_id: str
    flow: str
    state: CallState
    waiting_for: str
    created_at: float
    due_at: float | None


@attrs.frozen
class CallsPage:
    """Some calls; *after* is where the next page begins, empty at the end."""

    calls: tuple[CallLine, ...]
    after: str = ""


class Calls(Protocol):
    """The calls of one namespace; passes belong to the worker process that asks for them."""

    # -- for everybody ------------------------------------------------------------------

    def start(self, call: NewCall) -> Started:
        """Start a call, unless there is one of this id, which is then left as it is.

        Raises:
            BrokerUnavailable: also while the stream is at its cap.
            FlowLimitExceeded: the metadata is too large.

        **Durability**: hashes, index and the entry (or, with a delay, the timer) are written together.
        """
        ...

    def signal(self, call_id: str, name: str, value: str, *, token: str) -> Told:
        """Put a signal into the call's mailbox and wake the call.

        Args:
            call_id: of the call.
            name: of the signal.
            value: JSON text, at most 256 KiB.
            token: names this sending: repeated with the same one it is delivered once; random where
                the sender knows no better.

        Raises:
            FlowLimitExceeded: the value is too large.

        **Durability**: mailbox, and entry or mark, are written together.
        """
        ...

    def cancel(self, call_id: str) -> Told:
        """Ask for the call's end and wake it; it ends at its next operation that is not recorded.

        **Durability**: the wish, and entry or mark, are written together.
        """
        ...

    def resume(self, call_id: str) -> Told:
        """Let a parked call go on: forget why it was parked, and wake it.

        **Durability**: both are one write. A repeat after a lost reply answers `NOT_PARKED`.
        """
        ...

    def wake(self, call_id: str) -> Told:
        """Make sure that a pass looks at the call from now on: adds an entry, unless there is one.

        **Durability**: the entry, or the mark for the pass that runs, is there when it returns.
        """
        ...

    def show(self, call_id: str) -> Journal | None:
        """Return all that is remembered of a call, None where there is none."""
        ...

    def list_calls(self, *, state: CallState | None = None, after: str = "", limit: int = 100) -> CallsPage:
        """Return calls, those first that are due first for a look; one whose keys are no call's is left out.

        Args:
            state: only those; a page may then have fewer than *limit*, or none, and still not be the last.
            after: what the page before said; empty for the first.
            limit: calls looked at.
        """
        ...

    def counts(self) -> dict[CallState, int]:
        """Return how many calls are in each state; every state is there."""
        ...

    def look(self) -> Looked:
        """Look after up to 100 calls that are due for it: make lost timers and entries anew, forget expired ones.

        **Durability**: each call is looked after in one step; safe to repeat and to race.
        """
        ...

    # -- a worker's passes -----------------------------------------------------------------

    def begin_pass(self, tenure: Tenure, call_id: str) -> Begun | Refused:
        """Begin a pass through an entry that is held: take the lease, raise the epoch, read everything.

        The lease is free, or was taken through this same entry, whose earlier tenure has then lapsed, or
        through an entry that is gone, for whoever runs a pass holds its entry.

        Raises:
            LeaseLost: the tenure has lapsed; nothing was written.

        **Durability**: repeating it begins another pass under a higher epoch; that is safe.
        """
        ...

    def record_step(self, right: Pass, write: StepWrite) -> Recorded:
        """Record one step and its value in one write, if it is what the pass has seen and the pass still holds.

        Returns:
            Whether a cancel was asked for by now.

        Raises:
            LeaseLost: another pass has begun, this one has ended, or the step is something else by now.
                Nothing was written: stop, and give the entry back with `Release`.
            FlowLimitExceeded: too many steps, or too many bytes; nothing was written.
            BrokerError: no step may become this from what was seen: see `stagedoor.core.call`.

        **Durability**: state and value are on Redis together; a repeat of the same write succeeds.
        """
        ...

    def record_outcome(self, right: Pass, outcome: CallOutcome) -> None:
        """Decide how the call ends, before its callback runs; from here on it is told nothing more.

        Raises:
            LeaseLost: as `record_step`; also where another outcome is decided.
            FlowLimitExceeded: the result is too large.

        **Durability**: outcome and result are on Redis together; a repeat of the same outcome succeeds.
        """
        ...

    def take_signal(
        self, right: Pass, name: str, *, taken: StepWrite, timed_out: StepWrite | None, waiting: StepWrite
    ) -> SignalReply:
        """Take the oldest signal of this name, or time out, or wait: decided and recorded in one script.

        A signal that is there wins over a time that is over. Which of the three writes was made is the
        reply; all have the same key and *seen*. *waiting.step.due_at* is when the time is over.
        *taken.value* and the others' are not looked at: the signal's own value is recorded.

        Raises:
            LeaseLost, FlowLimitExceeded: as `record_step`.

        **Durability**: the signal leaves the mailbox in the write that records it; a repeat answers the
        same and takes no second one.
        """
        ...

    def end_pass(
        self, right: Pass, ending: Ending, *, write: StepWrite | None = None, must_leave: bool = False
    ) -> Ended | Again:
        """End the pass: next state, timer, lease and entry in one script.

        Where the call was woken since the pass last read it, it is not suspended: the answer is
        `Again`, the pass still holds, and *write* has been made. A `Park` or `Finish` is always an end.

        Args:
            right: of the pass.
            ending: how it ends.
            write: a last change of a step, in the same script (a sleep begun, a retry due).
            must_leave: never answer `Again`, add a continuation instead: for who ends a pass that it
                does not run, such as one whose step is past its timeout.

        Raises:
            LeaseLost, FlowLimitExceeded: as `record_step`; the pass has not ended.

        **Durability**: a repeat after a lost reply answers `Ended`, as long as no other pass has begun.
        Once it has ended, every write of this pass is refused.
        """
        ...

    def keep(self, passes: Sequence[Running]) -> tuple[Kept, ...]:
        """Renew the leases of running passes, and mark their long steps; an answer for each.

        Args:
            passes: all of this process; their steps' writes make them `RUNNING`, and are left out where
                the step has been recorded in the meantime.

        **Durability**: the lease lives another 30 s (`flow_lease_s`); it is renewed also where it had
        run out and nobody had taken it.
        """
        ...
