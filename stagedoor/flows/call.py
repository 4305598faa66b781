"""The `call` object that a flow's function gets, and the turns of its sequences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from stagedoor.broker.calls import TakenSignal, TimedOut
from stagedoor.core.call import Kind, Step, StepState, StepWrite, Wait
from stagedoor.core.journal import MAX_KEY, is_key
from stagedoor.errors import FlowMisused, SignalTimeout
from stagedoor.flows.attempts import Unit, is_seconds, is_whole
from stagedoor.flows.gather import gather
from stagedoor.flows.run import Changed, Run
from stagedoor.flows.values import PLAIN

__all__ = ["FlowCall", "FlowTurn"]

LONGEST_S = 10 * 366 * 24 * 3600.0
"""Ten years: longer is a mistake, and it keeps due times within what Redis counts exactly."""


class _Operations:
    """See `stagedoor.core.flow.Operations`."""

    def __init__(self, run: Run, prefix: str = "") -> None:
        self._run = run
        self._prefix = prefix

    def step[T](
        self,
        key: str,
        function: Callable[..., T],
        *args: Any,
        attempts: int | None = None,
        timeout: float | None = None,
        base: float | None = None,
        cap: float | None = None,
    ) -> T:
        """Return what ``function(*args)`` returned, in this pass or in an earlier one."""
        run, full = self._run, self._full(key)
        seen = run.enter(full, Kind.STEP)
        if seen is not None and seen.state is StepState.DONE:
            return run.remembered(full, function)  # type: ignore[no-any-return]  # revived as T
        policy = run.policy(attempts=attempts, timeout=timeout, base=base, cap=cap)
        unit = Unit(key=full, kind=Kind.STEP, place=run.history.reached, policy=policy, seen=seen)
        return run.result_of(unit, function, args)  # type: ignore[no-any-return]  # made by function

    def memo[T](self, key: str, function: Callable[..., T], *args: Any) -> T:
        """Return what ``function(*args)`` returned the first time: a step with one attempt."""
        run, full = self._run, self._full(key)
        seen = run.enter(full, Kind.MEMO)
        if seen is not None and seen.state is StepState.DONE:
            return run.remembered(full, function)  # type: ignore[no-any-return]  # revived as T
        policy = run.policy(attempts=1, timeout=None, base=None, cap=None)
        unit = Unit(key=full, kind=Kind.MEMO, place=run.history.reached, policy=policy, seen=seen)
        return run.result_of(unit, function, args)  # type: ignore[no-any-return]  # made by function

    def sleep(self, key: str, seconds: float) -> None:
        """Return after so many seconds; no thread waits meanwhile."""
        run, full = self._run, self._full(key)
        seen = run.enter(full, Kind.SLEEP)
        if seen is not None and seen.state is StepState.DONE:
            return
        run.interrupt()
        due_at = seen.due_at if seen is not None else None
        if due_at is None:
            due_at = run.now() + _checked_seconds(full, "sleep", seconds)
        place = run.history.reached
        if run.now() >= due_at:
            run.record(StepWrite(key=full, step=Step(state=StepState.DONE, kind=Kind.SLEEP, place=place), seen=seen))
            return
        asleep = Step(state=StepState.SLEEPING, kind=Kind.SLEEP, place=place, due_at=due_at)
        write = StepWrite(key=full, step=asleep, seen=None) if seen is None else None
        run.suspend_until(due_at, waiting_for=f"sleep {full!r}", write=write)

    def wait_signal(self, name: str, *, timeout: float | None = None, key: str | None = None) -> Any:
        """Return the value of the oldest signal of this name that no other wait has had."""
        run, full = self._run, self._full(name if key is None else key)
        if not _is_key(name):
            raise FlowMisused(f"the signal {name!r}: {_KEYS}")
        seen = run.enter(full, Kind.SIGNAL)
        if seen is not None:
            if seen.more.get("signal") != name:
                what = f"{full!r} waited for the signal {seen.more.get('signal')!r}, and now for {name!r}"
                run.stop_with(Changed(run.history.differs(what)))
            if seen.state is StepState.DONE:
                return run.revived(full, run.journal.value(full) or "null", PLAIN)
            if seen.state is StepState.FAILED:
                raise SignalTimeout(name, seen.more.get("timeout", 0.0))
        run.interrupt()
        return _taken(run, full, name, timeout, seen)

    def gather[I, T](
        self,
        key: str,
        items: Sequence[I],
        function: Callable[[I], T],
        *,
        limit: int = 8,
        attempts: int | None = None,
        timeout: float | None = None,
        base: float | None = None,
        cap: float | None = None,
    ) -> list[T]:
        """Return ``[function(item) for item in items]``, each item a step of its own."""
        policy = self._run.policy(attempts=attempts, timeout=timeout, base=base, cap=cap)
        return gather(self._run, self._full(key), items, function, limit=limit, policy=policy)

    def sequence(self, key: str, *, limit: int = 1000) -> "Iterator[FlowTurn]":
        """Yield turns 0, 1, 2 …, at most *limit*."""
        full = self._full(key)
        if not is_whole(limit) or limit < 0:
            raise FlowMisused(f"sequence {key!r}: limit is {limit!r}; it must be 0 or more")
        return (FlowTurn(self._run, f"{full}/{number}/", number) for number in range(limit))

    def _full(self, key: str) -> str:
        if not _is_key(key):
            raise FlowMisused(f"the key {key!r}: {_KEYS}")
        full = self._prefix + key
        if len(full) > MAX_KEY:
            raise FlowMisused(f"the key {key!r} is {len(full)} characters long with its sequence, at most {MAX_KEY}")
        return full


class FlowTurn(_Operations):
    """One turn of a sequence; see `stagedoor.core.flow.Turn`."""

    def __init__(self, run: Run, prefix: str, number: int) -> None:
        super().__init__(run, prefix)
        self.number = number


class FlowCall(_Operations):
    """One run of a flow; see `stagedoor.core.flow.Call`."""

    @property
    def id(self) -> str:
        """The call's id."""
        return self._run.journal.call_id

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the call was started with."""
        return MappingProxyType(self._run.journal.metadata)

    @property
    def ctx(self) -> Any:
        """The handler context of this pass."""
        return self._run.ctx


_KEYS = "expected 1 to 200 printable characters, the first no dot"


def _checked_seconds(key: str, what: str, seconds: object) -> float:
    if not is_seconds(seconds) or not 0 <= float(seconds) <= LONGEST_S:  # type: ignore[arg-type]  # a number by then
        raise FlowMisused(f"{what} {key!r}: expected 0 to {LONGEST_S:.0f} seconds (ten years), got {seconds!r}")
    return float(seconds)  # type: ignore[arg-type]  # it is one


def _taken(run: Run, key: str, name: str, timeout: float | None, seen: Step | None) -> Any:
    """Take the signal, or wait for it.

    Raises:
        SignalTimeout: none has come in time.
        Suspend: it has not come yet.
    """
    if seen is not None:
        due_at, more = seen.due_at, dict(seen.more)
    else:
        timeout = None if timeout is None else _checked_seconds(key, "wait_signal", timeout)
        due_at = None if timeout is None else run.now() + timeout
        more = {"signal": name, "timeout": timeout}
    place = run.history.reached

    def write(state: StepState, due_at: float | None) -> StepWrite:
        step = Step(state=state, kind=Kind.SIGNAL, place=place, due_at=due_at, more=more)
        return StepWrite(key=key, step=step, seen=seen)

    waiting: StepWrite | None = write(StepState.WAITING, due_at)
    # What was not in the mailbox when it was read, and came since, has woken the call: then it does not suspend.
    if run.has_letter(name) or (due_at is not None and run.now() >= due_at):
        reply = run.take_signal(
            name,
            taken=write(StepState.DONE, None),
            timed_out=None if due_at is None else write(StepState.FAILED, due_at),
            waiting=write(StepState.WAITING, due_at),
        )
        if isinstance(reply, TakenSignal):
            return run.revived(key, reply.value, PLAIN)
        if isinstance(reply, TimedOut):
            raise SignalTimeout(name, more.get("timeout", 0.0))
        waiting = None
    what = f"the signal {name!r}"
    ending = Wait(waiting_for=what, until=run.until(due_at))
    return run.suspend_with(ending, what=what, write=waiting if seen is None else None)


def _is_key(key: object) -> bool:
    return isinstance(key, str) and is_key(key)
