"""The flow journal in memory, for tests that need no Redis.

A conformance suite holds this and the real one to the same answers and the same
state after every verb.
"""

import sys
from collections.abc import Sequence

import attrs

from stagedoor.broker.call_texts import (
    IDLE_LOOK_MS,
    LOOK_MS,
    MOST_LOOKED_AT,
    MOST_METADATA,
    CallSettings,
    checked_outcome,
    checked_value,
    checked_write,
    limit_of,
    misfit_text,
    phrase,
    to_ms,
)
from stagedoor.broker.calls import (
    Again,
    Begun,
    CallLine,
    CallsPage,
    Ended,
    Kept,
    Looked,
    NewCall,
    Pass,
    Recorded,
    Refused,
    Running,
    SignalReply,
    Started,
    TakenSignal,
    TimedOut,
    Told,
    Unsent,
)
from stagedoor.broker.redis import CAP_SHARE
from stagedoor.core.call import CallOutcome, CallState, Ending, Finish, GoOn, Park, Sleep, StepWrite, Wait, state_after
from stagedoor.core.journal import Journal, step_text
from stagedoor.core.tenure import Stream, Tenure
from stagedoor.errors import BrokerError, BrokerUnavailable, FlowLimitExceeded, LeaseLost
from stagedoor.testing.fake_broker import FakeDeliveries
from stagedoor.testing.fake_call_store import CallStore, FakeCall, may_write, timer_of
from stagedoor.testing.fake_store import FakeBroker


class FakeCalls:
    """The calls of one pretend Redis; see `stagedoor.broker.calls.Calls`.

    Args:
        broker: the pretend Redis, shared by all workers of a test.
        settings: as for the real ones.
        owner: the worker whose passes these are; without one no pass can begin.
    """

    def __init__(
        self, broker: FakeBroker, *, settings: CallSettings | None = None, owner: FakeDeliveries | None = None
    ) -> None:
        self._broker = broker
        self._settings = settings or CallSettings()
        self._owner = owner

    # -- for everybody ------------------------------------------------------------------

    def start(self, call: NewCall) -> Started:
        """Start a call."""
        if len(call.metadata) > MOST_METADATA:
            raise FlowLimitExceeded(f"call {call.call_id}: more than {MOST_METADATA} metadata")
        with self._broker.call("start"):
            there = self._store.find(call.call_id)
            if there is not None:
                return Started(False, there.status[".flow"], CallState(there.status[".state"]))
            return self._create(call, to_ms(call.delay_s))

    def _create(self, call: NewCall, delay_ms: int) -> Started:
        jobs = self._broker.streams[Stream.JOBS]
        if delay_ms == 0 and len(jobs.entries) >= int(self._settings.stream_maxlen * CAP_SHARE):
            raise BrokerUnavailable("the stream is at its cap: no call is started before there is room")
        meta = {f"m:{name}": value for name, value in call.metadata.items()}
        size = sum(len(name.encode()) + len(value.encode()) for name, value in meta.items())
        if size > self._settings.most_call_bytes:
            raise limit_of(self._settings, call.call_id, "bytes")
        now = self._broker.now_ms()
        status = {
            ".flow": call.flow, ".created": str(now), ".starts": str(now + delay_ms),
            ".request_id": call.request_id, ".trace": call.trace, ".epoch": "0", ".bytes": str(size),
        }  # fmt: skip
        made = self._store.calls[call.call_id] = FakeCall(status, meta)
        if delay_ms > 0:
            status.update({".due": str(now + delay_ms), ".for": "its start"})
            self._store.set_timer(call.call_id, made, now + delay_ms, Stream.JOBS)
        else:
            self._store.queue(call.call_id, made, Stream.JOBS)
        state = CallState.SLEEPING if delay_ms > 0 else CallState.WAITING
        self._store.set_state(call.call_id, made, state, look_ms=now + delay_ms + LOOK_MS)
        return Started(True, call.flow, state)

    def signal(self, call_id: str, name: str, value: str, *, token: str) -> Told:
        """Put a signal into the mailbox."""
        checked_value(self._settings, call_id, name, value)
        with self._broker.call("signal"):
            return self._tell(call_id, "signal", name, value, token)

    def cancel(self, call_id: str) -> Told:
        """Ask for the call's end."""
        with self._broker.call("cancel"):
            return self._tell(call_id, "cancel")

    def resume(self, call_id: str) -> Told:
        """Let a parked call go on."""
        with self._broker.call("resume"):
            return self._tell(call_id, "resume")

    def wake(self, call_id: str) -> Told:
        """Let a pass look at it."""
        with self._broker.call("wake"):
            return self._tell(call_id, "wake")

    def _tell(self, call_id: str, verb: str, name: str = "", value: str = "", token: str = "") -> Told:
        call = self._store.find(call_id)
        if call is None:
            return Told.UNKNOWN
        status, state = call.status, CallState(call.status[".state"])
        if state.has_ended or (".outcome" in status and verb in ("signal", "cancel")):
            return Told.ENDED
        if verb == "signal" and not self._deliver(call, name, value, token):
            return Told.FULL
        if verb == "cancel":
            status.setdefault(".cancel", str(self._broker.now_ms()))
        if verb == "resume" and state is not CallState.PARKED:
            return Told.NOT_PARKED
        if state is CallState.RUNNING:
            _wake_up(call)
        elif state is CallState.PARKED and verb in ("signal", "wake"):
            return Told.TOLD
        elif not self._store.is_queued(status.get(".queued")):
            for field in (".parked", ".why", *([".misfit"] if verb == "resume" else [])):
                status.pop(field, None)
            self._queue_again(call_id, call)
        return Told.TOLD

    def _queue_again(self, call_id: str, call: FakeCall) -> None:
        self._store.queue(call_id, call, Stream.CRITICAL)
        self._store.set_state(call_id, call, CallState.WAITING, look_ms=self._broker.now_ms() + LOOK_MS)

    def _deliver(self, call: FakeCall, name: str, value: str, token: str) -> bool:
        status = call.status
        if f".t:{token}" in status:
            return True
        sent = int(status.get(".signals", "0"))
        size = len(name.encode()) + len(value.encode())
        if sent >= self._settings.most_signals or not self._store.take_bytes(
            call, size, self._settings.most_call_bytes
        ):
            return False
        number = int(status.get(f".in:{name}", "0")) + 1
        status.update({f".in:{name}": str(number), ".signals": str(sent + 1), f".t:{token}": "1"})
        call.meta[f"s:{name}:{number}"] = value
        return True

    def show(self, call_id: str) -> Journal | None:
        """Return a copy of both hashes."""
        with self._broker.call("show"):
            call = self._store.find(call_id)
            return None if call is None else _journal(call_id, call)

    def list_calls(self, *, state: CallState | None = None, after: str = "", limit: int = 100) -> CallsPage:
        """Return a page of the index."""
        with self._broker.call("list_calls"):
            ordered = sorted(
                (look_ms, _number(kept), call_id) for call_id, (look_ms, kept) in self._store.index.items()
            )
            if after:
                look_ms, number, call_id = after.split(" ", 2)
                ordered = [row for row in ordered if row > (int(look_ms), int(number), call_id)]
            page = ordered[:limit]
            following = " ".join(map(str, page[-1])) if len(ordered) > limit and page else ""
            lines = [_line(call_id, call) for _, _, call_id in page if (call := self._store.find(call_id)) is not None]
            return CallsPage(tuple(line for line in lines if state is None or line.state is state), following)

    def counts(self) -> dict[CallState, int]:
        """Return the counters."""
        with self._broker.call("counts"):
            return {state: self._store.states[state] for state in CallState}

    def look(self) -> Looked:
        """Look after up to 100 calls."""
        with self._broker.call("look"):
            now = self._broker.now_ms()
            ordered = sorted(
                (look_ms, _number(kept), call_id) for call_id, (look_ms, kept) in self._store.index.items()
            )
            due = [call_id for look_ms, _, call_id in ordered if look_ms <= now][:MOST_LOOKED_AT]
            did = [self._look_at(call_id, now) for call_id in due]
            woken, timers, forgotten = (did.count(word) for word in ("woken", "timer", "forgotten"))
            return Looked(len(due), woken, timers, forgotten, more=len(due) == MOST_LOOKED_AT)

    def _look_at(self, call_id: str, now: int) -> str:
        call = self._store.find(call_id)
        if call is None:
            self._store.forget(call_id)
            return "forgotten"
        state = CallState(call.status[".state"])
        if state.has_ended:
            call.expires_ms = call.expires_ms or now + self._settings.keep_ms
            self._store.index[call_id] = (call.expires_ms, state)
            return "ended"
        had_timer = timer_of(call_id) in self._broker.delayed
        at = self._next_look(call_id, call, now)
        if at is None:
            self._queue_again(call_id, call)
            call.status.pop(".entry", None)
            return "woken"
        self._store.index[call_id] = (at, state)
        return "timer" if timer_of(call_id) in self._broker.delayed and not had_timer else "fine"

    def _has_lost_entry(self, status: dict[str, str]) -> bool:
        """Whether the entry that a call waits for is gone; one that was delayed is missed twice first."""
        queued = status[".queued"]
        if self._store.is_queued(queued):
            return False
        if not queued.startswith("d:") or status.get(".missed") == queued:
            return True
        status[".missed"] = queued
        return False

    def _next_look(self, call_id: str, call: FakeCall, now: int) -> int | None:
        status = call.status
        if status[".state"] == "running":
            runs = self._store.lease(call) is not None or self._store.is_there(status.get(".entry"))
            return now + LOOK_MS if runs else None
        if ".queued" in status:
            return None if self._has_lost_entry(status) else now + LOOK_MS
        if ".due" not in status:
            return now + IDLE_LOOK_MS
        due = int(status[".due"])
        if timer_of(call_id) in self._broker.delayed:
            return max(now, due) + LOOK_MS
        if due <= now:
            return None
        self._store.set_timer(call_id, call, due, Stream.CRITICAL)
        return due + LOOK_MS

    # -- a worker's passes ----------------------------------------------------------------

    def begin_pass(self, tenure: Tenure, call_id: str) -> Begun | Refused:
        """Begin a pass."""
        if self._owner is None:
            raise BrokerError("no pass can begin without a worker")
        place = f"{tenure.stream.value}:{tenure.entry_id}"
        with self._broker.call("begin_pass"):
            if not self._owner.still_holds(tenure):
                raise LeaseLost(f"call {call_id}: the tenure of its entry has lapsed")
            refused = self._refusal(call_id, place)
            if refused is not None:
                self._store.settle_entry(place)
                return refused
            return self._begin(call_id, self._store.calls[call_id], place)

    def _refusal(self, call_id: str, place: str) -> Refused | None:
        call = self._store.find(call_id)
        if call is None:
            return Refused.UNKNOWN
        state = CallState(call.status[".state"])
        if state.has_ended:
            return Refused.ENDED
        if state is CallState.PARKED:
            return Refused.PARKED
        held = (self._store.lease(call) or place).split(" ")[0]
        if held != place and self._store.is_there(held):
            _wake_up(call)
            return Refused.BUSY
        return None

    def _begin(self, call_id: str, call: FakeCall, place: str) -> Begun:
        now, epoch = self._broker.now_ms(), int(call.status.get(".epoch", "0")) + 1
        call.lease = (f"{place} {epoch}", now + self._settings.lease_ms)
        call.status.update({".epoch": str(epoch), ".entry": place, ".beat": str(now)})
        for field in (".queued", ".due", ".for"):
            call.status.pop(field, None)
        self._store.drop_timer(call_id)
        self._store.set_state(call_id, call, CallState.RUNNING, look_ms=now + LOOK_MS)
        return Begun(_right(call_id, call, epoch), now / 1000, _journal(call_id, call))

    def record_step(self, right: Pass, write: StepWrite) -> Recorded:
        """Record one step."""
        self._check_write(right, write)
        with self._broker.call("record_step"):
            call = self._writable(right)
            self._accept(right, self._write_step(call, right, write))
            return Recorded(is_cancel_requested=".cancel" in call.status)

    def record_outcome(self, right: Pass, outcome: CallOutcome) -> None:
        """Decide how the call ends."""
        checked_outcome(self._settings, right.call_id, outcome)
        with self._broker.call("record_outcome"):
            call = self._writable(right)
            decided = call.status.get(".outcome")
            if decided is not None:
                self._accept(right, None if decided == outcome.state.value else "lost")
                return
            self._accept(right, self._decide(call, outcome))

    def _decide(self, call: FakeCall, outcome: CallOutcome) -> str | None:
        error = phrase(outcome.error)
        size = len(error.encode()) + len((outcome.result or "").encode())
        # A call that is full must still be able to end: an error, which is short, always fits.
        most = sys.maxsize if outcome.result is None else self._settings.most_call_bytes
        if not self._store.take_bytes(call, size, most):
            return "bytes"
        if outcome.result is not None:
            call.meta["result"] = outcome.result
        call.status.update({".outcome": outcome.state.value, ".error": error})
        return None

    def take_signal(
        self, right: Pass, name: str, *, taken: StepWrite, timed_out: StepWrite | None, waiting: StepWrite
    ) -> SignalReply:
        """Take a signal, time out, or wait."""
        checked_write(taken)
        with self._broker.call("take_signal"):
            call = self._writable(right)
            current = call.status.get(taken.key)
            if current == step_text(taken.step, right.epoch):
                return TakenSignal(call.meta[f"v:{taken.key}"])
            if timed_out is not None and current == step_text(timed_out.step, right.epoch):
                return TimedOut()
            number = int(call.status.get(f".out:{name}", "0")) + 1
            value = call.meta.get(f"s:{name}:{number}")
            if value is not None:
                write = StepWrite(key=taken.key, step=taken.step, seen=taken.seen, value=value)
                freed = len(name.encode()) + len(value.encode())
                self._accept(right, self._write_step(call, right, write, freed=freed))
                del call.meta[f"s:{name}:{number}"]
                call.status[f".out:{name}"] = str(number)
                return TakenSignal(value)
            due_at = waiting.step.due_at
            if timed_out is not None and due_at is not None and self._broker.now_ms() >= to_ms(due_at):
                self._accept(right, self._write_step(call, right, timed_out))
                return TimedOut()
            self._accept(right, self._write_step(call, right, waiting))
            return Unsent()

    def end_pass(
        self, right: Pass, ending: Ending, *, write: StepWrite | None = None, must_leave: bool = False
    ) -> Ended | Again:
        """End a pass."""
        if write is not None:
            self._check_write(right, write)
        if isinstance(ending, Finish):
            checked_outcome(self._settings, right.call_id, ending.outcome)
        with self._broker.call("end_pass"):
            call = self._store.find(right.call_id)
            if call is None or not may_write(call, right.epoch):
                words = (str(right.epoch), str(right.epoch))
                if call is not None and (call.status.get(".epoch"), call.status.get(".ended")) == words:
                    return Ended()
                raise _lost(right)
            if write is not None:
                self._accept(right, self._write_step(call, right, write))
            is_over = isinstance(ending, Park | Finish)
            if not is_over and int(call.status.get(".wakes", "0")) != right.wakes:
                if not must_leave:
                    now = self._broker.now_ms() / 1000
                    return Again(_right(right.call_id, call, right.epoch), now, _journal(right.call_id, call))
                ending = GoOn()
            self._end(right, call, ending)
            return Ended()

    def _end(self, right: Pass, call: FakeCall, ending: Ending) -> None:
        now = self._broker.now_ms()
        misfit = misfit_text(ending.misfit) if isinstance(ending, Sleep) else ""
        if isinstance(ending, Sleep) and to_ms(ending.until) <= now:
            ending = GoOn()
        entry = call.status.pop(".entry", None)
        call.status.pop(".misfit", None)
        look_ms, state = now + LOOK_MS, state_after(ending)
        match ending:
            case Finish(outcome=outcome):
                look_ms, state = now + self._settings.keep_ms, self._finish(right, call, outcome)
            case Park(reason=reason, error=error):
                call.status.update({".parked": reason, ".why": phrase(error)})
            case GoOn():
                self._store.queue(right.call_id, call, Stream.CRITICAL)
            case Sleep() | Wait():
                look_ms = self._suspend(right.call_id, call, ending) + LOOK_MS
        if misfit:
            call.status[".misfit"] = misfit
        call.status[".ended"] = str(right.epoch)
        call.lease = None
        self._store.set_state(right.call_id, call, state, look_ms=look_ms)
        self._store.settle_entry(entry)

    def _finish(self, right: Pass, call: FakeCall, outcome: CallOutcome) -> CallState:
        """Write the outcome, unless one is decided; return the state in which the call ends."""
        now = self._broker.now_ms()
        if ".outcome" not in call.status:
            self._accept(right, self._decide(call, outcome))
        call.status[".finished"] = str(now)
        call.expires_ms = now + self._settings.keep_ms
        return CallState(call.status[".outcome"])

    def _suspend(self, call_id: str, call: FakeCall, ending: Sleep | Wait) -> int:
        """Write what the call waits for, and its timer; return when it is due, or now."""
        call.status[".for"] = phrase(ending.waiting_for)
        if ending.until is None:
            return self._broker.now_ms()
        due_ms = to_ms(ending.until)
        call.status[".due"] = str(due_ms)
        self._store.set_timer(call_id, call, due_ms, Stream.CRITICAL)
        return due_ms

    def keep(self, passes: Sequence[Running]) -> tuple[Kept, ...]:
        """Renew leases, and mark long steps."""
        if not passes:
            return ()
        for one in passes:
            for write in one.steps:
                checked_write(write)
        with self._broker.call("keep"):
            return tuple(self._keep_one(one) for one in passes)

    def _keep_one(self, one: Running) -> Kept:
        call = self._store.find(one.right.call_id)
        if call is None or not may_write(call, one.right.epoch):
            return Kept(holds=False)
        now = self._broker.now_ms()
        call.lease = (f"{call.status.get('.entry', '')} {one.right.epoch}", now + self._settings.lease_ms)
        call.status[".beat"] = str(now)
        for write in one.steps:
            self._write_step(call, one.right, attrs.evolve(write, value=None))
        return Kept(holds=True, is_cancel_requested=".cancel" in call.status)

    # -- helpers --------------------------------------------------------------------------

    @property
    def _store(self) -> CallStore:
        return self._broker.calls

    def _writable(self, right: Pass) -> FakeCall:
        call = self._store.find(right.call_id)
        if call is None or not may_write(call, right.epoch):
            raise _lost(right)
        return call

    def _check_write(self, right: Pass, write: StepWrite) -> None:
        checked_write(write)
        checked_value(self._settings, right.call_id, write.key, write.value)

    def _write_step(self, call: FakeCall, right: Pass, write: StepWrite, *, freed: int = 0) -> str | None:
        most_steps, most_bytes = self._settings.most_steps, self._settings.most_call_bytes
        return self._store.write_step(
            call, right.epoch, write, most_steps=most_steps, most_bytes=most_bytes, freed=freed
        )

    def _accept(self, right: Pass, problem: str | None) -> None:
        if problem == "lost":
            raise _lost(right)
        if problem is not None:
            raise limit_of(self._settings, right.call_id, problem)


def _wake_up(call: FakeCall) -> None:
    call.status[".wakes"] = str(int(call.status.get(".wakes", "0")) + 1)


def _lost(right: Pass) -> LeaseLost:
    return LeaseLost(f"call {right.call_id}: this pass holds no longer, or the step is something else by now")


def _right(call_id: str, call: FakeCall, epoch: int) -> Pass:
    return Pass(call_id, epoch, int(call.status.get(".wakes", "0")))


def _journal(call_id: str, call: FakeCall) -> Journal:
    return Journal(call_id, dict(call.status), dict(call.meta))


def _number(state: CallState) -> int:
    """Return the number under which the index keeps a state."""
    return list(CallState).index(state) + 1


def _line(call_id: str, call: FakeCall) -> CallLine:
    due = call.status.get(".due")
    return CallLine(
        call_id=call_id,
        flow=call.status[".flow"],
        state=CallState(call.status[".state"]),
        waiting_for=call.status.get(".for", ""),
        created_at=int(call.status[".created"]) / 1000,
        due_at=int(due) / 1000 if due else None,
    )
