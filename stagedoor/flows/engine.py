"""The engine: makes a pass of an entry. Start reading here.

    run_entry
     ├ an outbox row          starts its call, and is done
     └ a call's entry         begin_pass → the function, from the top → end_pass
                                            └ each operation reads the journal, or records

A pass begins with one call of the broker and ends with one. In between there is
one for each operation that is done for the first time, and none for those that
are remembered. Whatever the function does, the pass ends in exactly one of the
ways below:

* it was stopped while it ran: suspended, misfit, lost, full or broken (`stagedoor.flows.run`);
* it returned or raised: the outcome is recorded, then a callback runs as a step, then the call has ended;
* it swallowed `Suspend`: the call is parked, for nobody can say what such a function did.
"""

import random
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from stagedoor.broker.calls import Again, Begun, Calls, Ended, NewCall, Refused
from stagedoor.core.call import (
    CallOutcome,
    CallState,
    Ending,
    Finish,
    GoOn,
    Kind,
    Misfit,
    Park,
    Sleep,
    StepWrite,
    state_after,
)
from stagedoor.core.flow import Failure, FlowSpec
from stagedoor.core.journal import CALLBACK_KEYS
from stagedoor.core.outcome import Release, Settled, describe
from stagedoor.errors import (
    Abort,
    CallCancelled,
    FlowChanged,
    FlowLimitExceeded,
    InvalidValue,
    LeaseLost,
    StepFailed,
    Suspend,
    SuspendSwallowed,
)
from stagedoor.flows.attempts import Policy, Unit
from stagedoor.flows.call import FlowCall
from stagedoor.flows.delivery import Delivery, FlowJob
from stagedoor.flows.insist import insist
from stagedoor.flows.keeper import Keeper
from stagedoor.flows.live import LivePass
from stagedoor.flows.run import Broken, Changed, Full, Kit, Lost, Run, Suspended
from stagedoor.flows.values import Values

__all__ = ["Engine", "OnPass", "outbox_call_id"]

OnPass = Callable[[str, str, float, Mapping[str, int]], None]

MISFIT_PATIENCE_S = 600.0
"""A rolling deploy is over in less; what does not fit anywhere after that needs a person."""
MISFIT_BASE_S = 0.1
MISFIT_CAP_S = 5.0


def _tell_nobody(_flow: str, _ended: str, _seconds: float, _outcomes: Mapping[str, int]) -> None:
    """Measure nothing."""


def outbox_call_id(outbox_id: int) -> str:
    """Return the id of the call that an outbox row starts: the same however often the row is delivered."""
    return f"outbox-{outbox_id}"


class Engine:
    """Runs passes; one serves all handler threads of a process.

    Args:
        calls: the journal.
        keeper: told of each pass while it runs.
        defaults: the policy of steps that say nothing else.
        clock: monotonic seconds.
        rng: for jitter.
        pause: waits so many seconds in the thread that asks.
        on_pass: told of each pass, in its thread: the flow, the state in which the call is left or ``lost``,
            seconds, and how many attempts of steps were ``done``, ``retry`` or ``failed``.
    """

    def __init__(
        self,
        calls: Calls,
        *,
        keeper: Keeper,
        defaults: Policy,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        pause: Callable[[float], None] = time.sleep,
        on_pass: OnPass = _tell_nobody,
    ) -> None:
        self._calls = calls
        self._keeper = keeper
        self._clock = clock
        self._pause = pause
        self._on_pass = on_pass
        self._kit = Kit(
            calls=calls,
            values=Values(),
            defaults=defaults,
            clock=clock,
            rng=rng or random.Random(),
            pause=pause,
        )

    def run_entry(self, spec: FlowSpec, job: FlowJob, delivery: Delivery) -> Settled | Release | None:
        """Do what one entry asks for.

        Returns:
            `Settled` when the entry is acknowledged; `Release` when somebody else has the call;
            None for an outbox row, whose entry is done.

        **Durability**: see `Calls`: a crash anywhere leaves an entry, a timer, or an ended call.
        """
        try:
            if job.call_id is None:
                self._start(spec, job, delivery)
                return None
            return self._run_pass(spec, job.call_id, delivery)
        except LeaseLost:
            return Release()

    def _start(self, spec: FlowSpec, job: FlowJob, delivery: Delivery) -> None:
        metadata = {"order_id": job.order_id, "outbox_id": job.outbox_id}
        call = NewCall(
            call_id=outbox_call_id(job.outbox_id or 0),
            flow=spec.name,
            metadata={
                "kind": job.kind,
                **{name: str(value) for name, value in metadata.items() if value is not None},
                "request_id": job.request_id,
                "trace": job.trace,
            },
            request_id=job.request_id,
            trace=job.trace,
        )
        insist(lambda: self._calls.start(call), is_ours=delivery.is_ours, pause=self._pause)

    def _run_pass(self, spec: FlowSpec, call_id: str, delivery: Delivery) -> Settled | Release:
        begun = insist(
            lambda: self._calls.begin_pass(delivery.tenure(), call_id), is_ours=delivery.is_ours, pause=self._pause
        )
        if isinstance(begun, Refused):
            return Settled()
        live, began_at, ended = LivePass(begun.right, self._clock, now=begun.now), self._clock(), "lost"
        try:
            with self._keeper.keeping(live):
                settled = self._run_until_ended(spec, begun, live, delivery)
            ended = settled.ended or ended
        finally:
            self._on_pass(spec.name, ended, self._clock() - began_at, live.outcomes)
        return settled

    def _run_until_ended(self, spec: FlowSpec, begun: Begun, live: LivePass, delivery: Delivery) -> Settled:
        """Run the function, again and again while something has happened to the call in the meantime.

        Returns:
            In which state the call is left, and why where that is not well.

        Raises:
            LeaseLost: another pass has the call.
        """
        at: Begun | Again = begun
        while True:
            live.right = at.right
            live.tell_time(at.now)
            run = Run(self._kit, live=live, delivery=delivery, journal=at.journal, timeout_s=spec.timeout)
            ending, write = self._once(spec, run)
            answer = self._end(live, delivery, ending, write)
            if isinstance(answer, Ended):
                return Settled(ended=state_after(ending).value, error=_error_of(ending))
            at = answer

    def _end(self, live: LivePass, delivery: Delivery, ending: Ending, write: StepWrite | None) -> Ended | Again:
        if live.is_lost:
            raise LeaseLost(f"call {live.right.call_id}: another pass has begun")
        try:
            return insist(
                lambda: self._calls.end_pass(live.right, ending, write=write),
                is_ours=delivery.is_ours,
                pause=self._pause,
            )
        except FlowLimitExceeded as error:
            # Its last step does not fit any more: then the call ends with that.
            return self._end(live, delivery, Finish(outcome=_failed(error)), None)

    # -- one run ----------------------------------------------------------------------

    def _once(self, spec: FlowSpec, run: Run) -> tuple[Ending, StepWrite | None]:
        if run.journal.flow != spec.name:
            # Somebody has put another kind beside this call's id: it goes on through an entry of its own flow.
            return GoOn(), None
        decided = run.journal.outcome
        if decided is None:
            ending = self._function(spec, run)
            if not isinstance(ending, CallOutcome):
                return ending
            decided = ending
            if _callback_of(spec, decided) is None:
                return Finish(outcome=decided), None
            decided = self._decide(run, decided)
        return self._callback(spec, run, decided)

    def _decide(self, run: Run, outcome: CallOutcome) -> CallOutcome:
        try:
            insist(
                lambda: self._calls.record_outcome(run.live.right, outcome),
                is_ours=run.delivery.is_ours,
                pause=self._pause,
            )
        except FlowLimitExceeded as error:
            return self._decide(run, _failed(error))
        return outcome

    def _function(self, spec: FlowSpec, run: Run) -> tuple[Ending, StepWrite | None] | CallOutcome:
        """Run the function; return how the pass ends, or how the call does."""
        result: Any = None
        error: BaseException | None = None
        try:
            result = spec.function(FlowCall(run))
        except BaseException as raised:  # noqa: BLE001 - sys.exit in a flow is this call's failure only
            error = raised
        run.close()
        if run.live.is_lost or isinstance(run.stop, Lost):
            raise LeaseLost(f"call {run.journal.call_id}: another pass has begun")
        match run.stop:
            case Changed(error=misfit):
                return _misfit(run, misfit)
            case Full(error=full):
                return _failed(full)
            case Broken(error=broken):
                raise broken
            case Suspended() as suspended if isinstance(error, Suspend):
                return suspended.ending, suspended.write
            case Suspended() as suspended:
                return _swallowed(run, suspended, error)
        if run.interrupted is None and run.aborted is None:
            try:
                run.history.check_end()
            except FlowChanged as changed:
                return _misfit(run, changed)
        return self._outcome(spec, run, result=result, error=error)

    def _outcome(self, spec: FlowSpec, run: Run, *, result: Any, error: BaseException | None) -> CallOutcome:
        """Return how the call ends when its function has ended by itself."""
        if run.interrupted is not None:
            state = CallState.CANCELLED if run.interrupted is CallCancelled else CallState.FAILED
            return CallOutcome(state=state, error=_interruption(spec, run))
        aborted = run.aborted or (error if isinstance(error, Abort) else None)
        if aborted is not None:
            return CallOutcome(state=CallState.ABORTED, error=describe(aborted))
        if error is not None:
            return _failed(error)
        try:
            kept = self._kit.values.keep(result, self._kit.values.returned_by(spec.function))
        except InvalidValue as invalid:
            return CallOutcome(state=CallState.FAILED, error=f"its result cannot be kept: {describe(invalid)}")
        return CallOutcome(state=CallState.DONE, result=kept.text)

    def _callback(self, spec: FlowSpec, run: Run, outcome: CallOutcome) -> tuple[Ending, StepWrite | None]:
        """Run the callback as a step of the call; whatever becomes of it, the outcome stays."""
        callback = _callback_of(spec, outcome)
        finish = Finish(outcome=outcome)
        if callback is None:
            return finish, None
        key = CALLBACK_KEYS[0] if outcome.state is CallState.DONE else CALLBACK_KEYS[1]
        unit = Unit(
            key=key, kind=Kind.CALLBACK, place=None, policy=self._kit.defaults, seen=run.journal.step(key)
        )  # fmt: skip
        _leave_the_function(run)

        def called() -> None:
            callback(FlowCall(run), self._told(spec, outcome))

        try:
            run.result_of(unit, called, ())
        except (StepFailed, Abort):
            return finish, None
        except Suspend:
            match run.stop:
                case Suspended() as suspended:
                    return suspended.ending, suspended.write
                case Full():
                    return finish, None
                case Broken(error=broken):
                    raise broken from None
            raise LeaseLost(f"call {run.journal.call_id}: another pass has begun") from None
        finally:
            run.close()
        return finish, None

    def _told(self, spec: FlowSpec, outcome: CallOutcome) -> Any:
        if outcome.state is not CallState.DONE:
            return Failure(outcome.state.value, outcome.error)
        return self._kit.values.revive(outcome.result or "null", self._kit.values.returned_by(spec.function))


def _error_of(ending: Ending) -> str | None:
    match ending:
        case Finish(outcome=outcome):
            return outcome.error
        case Park(reason=reason, error=error):
            return f"{reason}: {error}"
        case _:
            return None


def _leave_the_function(run: Run) -> None:
    """Let a run go on to its callback: neither the call's time nor what stopped its function counts there."""
    run.deadline_at, run.is_past_outcome = None, True
    run.stop, run.suspend = None, None


def _callback_of(spec: FlowSpec, outcome: CallOutcome) -> Callable[[Any, Any], Any] | None:
    return spec.on_success if outcome.state is CallState.DONE else spec.on_failure


def _failed(error: BaseException) -> CallOutcome:
    return CallOutcome(state=CallState.FAILED, error=describe(error))


def _interruption(spec: FlowSpec, run: Run) -> str:
    if run.interrupted is CallCancelled:
        return "CallCancelled: somebody asked for it"
    return f"CallTimeout: not done {spec.timeout:g} s after its start, in operation {run.history.reached}"


def _misfit(run: Run, error: FlowChanged) -> tuple[Ending, StepWrite | None] | CallOutcome:
    """Hand the call back for a worker with other code; park it when none has come in ten minutes.

    If its cancel was asked for by then it is cancelled all the same: code that fits may never come again.
    """
    before, now = run.journal.misfit, run.now()
    since, hops = (before.since, before.hops + 1) if before is not None else (now, 1)
    if now - since > MISFIT_PATIENCE_S:
        if run.interruption() is CallCancelled:
            told = f"CallCancelled: somebody asked for it, and no code here fits its history: {describe(error)}"
            return CallOutcome(state=CallState.CANCELLED, error=told)
        return Park(reason="flow_changed", error=describe(error)), None
    after_s = min(MISFIT_CAP_S, MISFIT_BASE_S * 2.0 ** min(hops - 1, 10))
    waiting_for = f"a worker whose code fits its history; here: {describe(error)}"
    return Sleep(until=now + after_s, waiting_for=waiting_for, misfit=Misfit(since, hops)), None


def _swallowed(run: Run, suspended: Suspended, error: BaseException | None) -> tuple[Ending, StepWrite | None]:
    caught = _first_line(run.suspend)
    if error is None:
        then = "and the function returned"
    else:
        then = f"and the function raised {describe(error)} at {_last_line(error)}"
    problem = SuspendSwallowed(
        f"the suspension for {suspended.what} was caught at {caught}, {then}; expected it to pass: "
        "catch Exception at most, and let `finally` raise nothing"
    )
    return Park(reason="suspend_swallowed", error=describe(problem)), None


def _first_line(error: BaseException | None) -> str:
    """Return where an exception was caught: the outermost frame that it has passed through."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    return _place(frames[0]) if frames else "an unknown line"


def _last_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return _place(frames[-1]) if frames else "an unknown line"


def _place(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno} in {frame.name}"
