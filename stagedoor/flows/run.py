"""One run of a flow's function, from the top, within a pass: what stands behind the `call` object.

A run ends in one of four ways. The function returns or raises, which is the
call's outcome. Or the run is *stopped*: it has to wait (`Suspended`), it does
not fit its history (`Changed`), it may not write any more (`Lost`), the call is
full (`Full`), or Redis serves and does not do as it should (`Broken`). A stop is
raised as `Suspend` by the operation that found it and by each one after it, and
it decides what becomes of the pass however the function leaves.
"""

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import CoroutineType, GeneratorType
from typing import Any, NoReturn

import attrs

from stagedoor.broker.calls import Calls, SignalReply
from stagedoor.core.call import GoOn, Kind, Sleep, Step, StepState, StepWrite, Wait
from stagedoor.core.journal import Journal
from stagedoor.errors import (
    Abort,
    BrokerError,
    CallCancelled,
    CallTimeout,
    FlowChanged,
    FlowLimitExceeded,
    FlowMisused,
    LeaseLost,
    StepFailed,
    Suspend,
)
from stagedoor.flows.attempts import Policy, Unit, after_failure, check_policy
from stagedoor.flows.delivery import Delivery
from stagedoor.flows.history import History
from stagedoor.flows.insist import insist
from stagedoor.flows.live import LivePass
from stagedoor.flows.values import Kept, Values

__all__ = ["Broken", "Changed", "Full", "Kit", "Lost", "Run", "Stop", "Suspended"]


@attrs.frozen(kw_only=True)
class Kit:
    """What all passes of a process share; *clock* is monotonic seconds, *pause* waits in a thread."""

    calls: Calls
    values: Values
    defaults: Policy
    clock: Callable[[], float]
    rng: random.Random
    pause: Callable[[float], None]


@attrs.frozen(kw_only=True)
class Suspended:
    """The call has to wait: how the pass ends, and a change of a step that is written with it."""

    ending: Sleep | Wait | GoOn
    what: str
    write: StepWrite | None = None


@attrs.frozen
class Changed:
    """The function does not fit its history."""

    error: FlowChanged


@attrs.frozen
class Lost:
    """Another pass has the call."""


@attrs.frozen
class Full:
    """The call keeps as much as it may."""

    error: FlowLimitExceeded


@attrs.frozen
class Broken:
    """Redis serves, but will not have this write, or has answered something else: nobody knows what it keeps."""

    error: BrokerError


Stop = Suspended | Changed | Lost | Full | Broken


class Run:
    """One run; belongs to the thread that made it, but for what gather's threads do."""

    def __init__(
        self, kit: Kit, *, live: LivePass, delivery: Delivery, journal: Journal, timeout_s: float | None
    ) -> None:
        self.kit = kit
        self.live = live
        self.delivery = delivery
        self.journal = journal
        self.history = History(journal)
        self.stop: Stop | None = None
        self.suspend: Suspend | None = None
        self.aborted: Abort | None = None
        self.is_past_outcome = False
        self.interrupted: type[CallCancelled | CallTimeout] | None = None
        self.deadline_at = None if timeout_s is None else journal.starts_at + timeout_s
        self.ctx = delivery.make_ctx(self.check)
        self._letters = {name for name, texts in journal.mailbox.items() if texts} if journal.meta else set()
        self._is_cancelled = journal.is_cancel_requested
        self._thread = threading.get_ident()
        self._inside: str | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    # -- what every operation begins with ---------------------------------------------

    def enter(self, key: str, kind: Kind) -> Step | None:
        """Begin an operation: return what is recorded of it.

        Raises:
            Suspend: the run is stopped, or stops here because it does not fit its history.
            FlowMisused: not here, not now, or not under this key.
        """
        self._check_caller(key)
        if self.stop is not None or self.live.is_lost:
            self.stop_with(self.stop or Lost())
        try:
            return self.history.next_step(key, kind)
        except FlowChanged as error:
            self.stop_with(Changed(error))

    def _check_caller(self, key: str) -> None:
        if threading.get_ident() != self._thread:
            raise FlowMisused(f"{key!r}: called from another thread, or from an item of a gather")
        if self._inside is not None:
            raise FlowMisused(f"{key!r}: called inside {self._inside!r}; a step cannot have steps of its own")
        if self._is_closed:
            raise FlowMisused(f"{key!r}: the pass is over; a call must not be kept after its function has ended")

    def interrupt(self) -> None:
        """Return if the call may do something new.

        Raises:
            CallCancelled: somebody has asked for its end.
            CallTimeout: its time is over.
            Suspend: this worker stops, and another one goes on.
        """
        why = self.interruption()
        if why is None:
            if self.delivery.is_stopping():
                self.suspend_with(GoOn(), what="another worker, for this one stops")
            return
        self.interrupted = why
        if why is CallCancelled:
            raise CallCancelled(f"the call {self.journal.call_id} was cancelled")
        raise CallTimeout(f"the call {self.journal.call_id} has taken longer than its flow's timeout")

    def interruption(self) -> type[CallCancelled] | type[CallTimeout] | None:
        """Return what `interrupt` would raise; may be asked in any thread."""
        if self.is_past_outcome:
            return None
        if self.interrupted is not None:
            return self.interrupted
        if self._is_cancelled or self.live.is_cancel_requested:
            return CallCancelled
        if self.deadline_at is not None and self.now() >= self.deadline_at:
            return CallTimeout
        return None

    def now(self) -> float:
        """Return the time by Redis' clock, as far as this process can tell."""
        return self.live.now()

    def until(self, due_at: float | None) -> float | None:
        """Return when to look again: when it is due, or when the call's time is over before that."""
        if due_at is None or self.deadline_at is None:
            return self.deadline_at if due_at is None else due_at
        return min(due_at, self.deadline_at)

    def check(self) -> None:
        """Return when the step in this thread may go on: what ``call.ctx.check`` asks.

        Raises:
            LeaseLost: somebody else has the call.
            JobTimeout: the step's timeout has passed.
        """
        try:
            self.delivery.check()
        except LeaseLost:
            self.live.was_refused = True
            raise
        self.live.check()

    def claim_items(self, keys: Sequence[str]) -> None:
        """Note that these keys are a gather's items'.

        Raises:
            Suspend: another operation has one of them.
        """
        try:
            self.history.claim_items(keys)
        except FlowChanged as error:
            self.stop_with(Changed(error))

    @property
    def is_closed(self) -> bool:
        """Whether the function has ended."""
        return self._is_closed

    # -- stopping ------------------------------------------------------------------------

    def stop_with(self, stop: Stop) -> NoReturn:
        """Stop the run, unless it is stopped already; the first reason counts, but a loss outdoes all."""
        with self._lock:
            if self.stop is None or isinstance(stop, Lost):
                self.stop = stop
            raised = Suspend(f"the pass ends here: {_reason(self.stop)}")
            if self.suspend is None:
                self.suspend = raised
        raise raised

    def suspend_until(self, due_at: float, *, waiting_for: str, write: StepWrite | None = None) -> NoReturn:
        """Stop the run; it goes on when that is due."""
        until = self.until(due_at)
        assert until is not None, "it was given a time"
        self.suspend_with(Sleep(until=until, waiting_for=waiting_for), what=waiting_for, write=write)

    def suspend_with(self, ending: Sleep | Wait | GoOn, *, what: str, write: StepWrite | None = None) -> NoReturn:
        """Stop the run with this ending, unless recorded operations have not been made yet."""
        try:
            if not self.is_past_outcome:
                self.history.check_end()
        except FlowChanged as error:
            self.stop_with(Changed(error))
        if write is not None:
            write = self._stamped(write)
            self.live.count(write.step)
        self.stop_with(Suspended(ending=ending, what=what, write=write))

    def close(self) -> None:
        """Refuse all further operations: the function has ended."""
        self._is_closed = True

    # -- writing --------------------------------------------------------------------------

    def record(self, write: StepWrite) -> Step:
        """Record a step; return it as it will be found.

        Raises:
            Suspend: the pass is lost, or the call is full.
        """
        return self._as_found(self.note(write))

    def _as_found(self, written: StepWrite) -> Step:
        return attrs.evolve(written.step, epoch=self.live.right.epoch)

    def note(self, write: StepWrite) -> StepWrite:
        """As `record`; return what was written."""
        write = self._stamped(write)
        recorded = self.write(lambda: self.kit.calls.record_step(self.live.right, write))
        self.live.count(write.step)
        if recorded.is_cancel_requested:
            self._is_cancelled = True
        return write

    def take_signal(
        self, name: str, *, taken: StepWrite, timed_out: StepWrite | None, waiting: StepWrite
    ) -> SignalReply:
        """Take the oldest signal of this name, or time out, or wait; see the port.

        Raises:
            Suspend: as `record`.
        """
        stamped = (self._stamped(taken), timed_out and self._stamped(timed_out), self._stamped(waiting))

        def take() -> SignalReply:
            taken, timed_out, waiting = stamped
            return self.kit.calls.take_signal(self.live.right, name, taken=taken, timed_out=timed_out, waiting=waiting)

        return self.write(take)

    def _stamped(self, write: StepWrite) -> StepWrite:
        """Return a change of a step with its time, and that of its first record: for people, nobody decides by them."""
        step, before = write.step, write.seen.more if write.seen is not None else {}
        times = {"at": round(self.now(), 3)}
        since = before.get("since", before.get("at"))
        if since is not None:
            times["since"] = since
        return attrs.evolve(write, step=attrs.evolve(step, more={**step.more, **times}))

    def write[T](self, function: Callable[[], T]) -> T:
        """Make a call of the port until it is answered; a refusal stops the run."""
        if self.live.is_lost:
            self.stop_with(Lost())
        try:
            return insist(function, is_ours=self.delivery.is_ours, pause=self.kit.pause)
        except LeaseLost:
            self.live.lose()
            self.stop_with(Lost())
        except FlowLimitExceeded as error:
            self.stop_with(Full(error))
        except BrokerError as error:
            self.stop_with(Broken(error))

    def has_letter(self, signal: str) -> bool:
        """Return whether a signal of this name was in the mailbox when the pass began."""
        return signal in self._letters

    # -- running a step --------------------------------------------------------------------

    def policy(self, *, attempts: int | None, timeout: float | None, base: float | None, cap: float | None) -> Policy:
        """Return a step's policy, with the worker's defaults for what it does not say."""
        own = self.kit.defaults
        return Policy(
            attempts=own.attempts if attempts is None else attempts,
            base=own.base if base is None else base,
            cap=own.cap if cap is None else cap,
            timeout=timeout,
        )

    def result_of(self, unit: Unit, function: Callable[..., Any], args: Iterable[Any]) -> Any:
        """Return the value of a step: remembered, or made now.

        Raises:
            StepFailed: for good.
            Suspend: it is tried again later.
        """
        if unit.seen is not None and unit.seen.state is StepState.DONE:
            return self.remembered(unit.key, function)
        if unit.seen is not None and unit.seen.state is StepState.FAILED:
            raise StepFailed(unit.key, unit.seen.attempts, unit.seen.error)
        check_policy(unit.key, function, unit.policy)
        waiting_for = f"the next attempt of {unit.kind.value} {unit.key!r}"
        while True:
            self.interrupt()
            if unit.seen is not None and _is_due_later(unit.seen, self.now()):
                self.suspend_until(unit.seen.due_at or 0.0, waiting_for=waiting_for)
            step, kept = self.attempt(unit, function, args)
            write = _write_of(unit, step, kept)
            if _is_due_later(step, self.now()):
                self.suspend_until(step.due_at or 0.0, waiting_for=waiting_for, write=write)
            written = self.note(write)
            if kept is not None:
                return kept.value
            unit = attrs.evolve(unit, seen=self._as_found(written))
            if step.state is StepState.FAILED:
                raise StepFailed(unit.key, step.attempts, step.error)

    def remembered(self, key: str, function: Callable[..., Any]) -> Any:
        """Return the value that is kept of a step which is done."""
        return self.revived(key, self.journal.value(key) or "null", self.kit.values.returned_by(function))

    def revived(self, key: str, text: str, kind: Any) -> Any:
        """Return a remembered value as its type."""
        try:
            return self.kit.values.revive(text, kind)
        except Exception as error:  # noqa: BLE001 - the type's own code, which is not the one that wrote it
            what = f"the value of {key!r} cannot be read as {kind}: {type(error).__name__}: {error}"
            self.stop_with(Changed(self.history.differs(what)))

    def attempt(self, unit: Unit, function: Callable[..., Any], args: Iterable[Any]) -> tuple[Step, Kept | None]:
        """Run a step's function once; return what the step is then, and its value if it has one.

        Raises:
            Abort: it said so.
            Suspend: the pass was lost meanwhile.
        """
        if self.live.is_lost or not self.delivery.is_ours():
            self.live.lose()
            self.stop_with(Lost())
        began_at = self.kit.clock()
        try:
            with self._running(unit):
                kept = self._kept(function, function(*args))
        except Abort as error:
            self.aborted = error
            raise
        except BaseException as error:  # noqa: BLE001 - sys.exit in a step is this step's failure only
            if self._says_lost(error):
                self.live.lose()
                self.stop_with(Lost())
            failed = after_failure(unit, error, now=self.now(), rng=self.kit.rng)
            return attrs.evolve(failed, more={**failed.more, "ran_s": self._since(began_at)}), None
        attempts = (unit.seen.attempts if unit.seen is not None else 0) + 1
        more = {"ran_s": self._since(began_at)}
        return Step(state=StepState.DONE, kind=unit.kind, place=unit.place, attempts=attempts, more=more), kept

    def _since(self, began_at: float) -> float:
        return round(self.kit.clock() - began_at, 6)

    def _says_lost(self, error: BaseException) -> bool:
        """Return whether a step's exception only says that the pass is lost."""
        return self.live.is_lost or (isinstance(error, LeaseLost) and self.live.was_refused)

    def _kept(self, function: Callable[..., Any], value: Any) -> Kept:
        if isinstance(value, CoroutineType | GeneratorType):
            value.close()
            raise FlowMisused(f"{function!r} returned a {type(value).__name__}; a step is a plain function")
        return self.kit.values.keep(value, self.kit.values.returned_by(function))

    @contextmanager
    def _running(self, unit: Unit) -> Iterator[None]:
        is_own = threading.get_ident() == self._thread
        timeout = unit.policy.timeout
        if is_own:
            self._inside = unit.key
            if timeout is not None:
                self.delivery.limit(timeout)
        try:
            with self.live.running(unit):
                yield
        finally:
            if is_own:
                self._inside = None
                if timeout is not None:
                    self.delivery.limit(None)


def _write_of(unit: Unit, step: Step, kept: Kept | None) -> StepWrite:
    return StepWrite(key=unit.key, step=step, seen=unit.seen, value=None if kept is None else kept.text)


def _is_due_later(step: Step, now: float) -> bool:
    return step.state is StepState.RETRY and step.due_at is not None and step.due_at > now


def _reason(stop: Stop) -> str:
    match stop:
        case Suspended(what=what):
            return f"it waits for {what}"
        case Changed(error=error):
            return str(error)
        case Full(error=error):
            return str(error)
        case Broken(error=broken):
            return str(broken)
        case Lost():
            return "somebody else has the call"
