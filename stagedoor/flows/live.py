"""A pass that is alive in this process: its right to write, and what its threads run just now.

The thread that runs the pass, the helpers of a gather and the keeper all look at
it; whoever finds that the pass is lost says so here, and the others stop.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import attrs

from stagedoor.broker.calls import Pass
from stagedoor.core.call import Kind, Step, StepState
from stagedoor.errors import JobTimeout, LeaseLost
from stagedoor.flows.attempts import Unit

__all__ = ["LivePass", "RunningStep"]

_OUTCOMES = frozenset((StepState.DONE, StepState.RETRY, StepState.FAILED))


@attrs.frozen
class RunningStep:
    """A step that a thread runs; times are monotonic seconds, *deadline* None for no limit."""

    unit: Unit
    started_at: float
    deadline: float | None


class LivePass:
    """One pass of this process.

    *was_refused* says that the delivery's own check has told a step to stop,
    *is_cancel_requested* that somebody wants the call's end; *outcomes* counts what became of attempts.
    """

    def __init__(self, right: Pass, clock: Callable[[], float], *, now: float) -> None:
        self.right = right
        self.was_refused = False
        self.is_cancel_requested = False
        self._clock = clock
        self.tell_time(now)
        self.outcomes: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._is_lost = False
        self._running: dict[int, RunningStep] = {}
        self._marked: dict[str, None] = {}

    def tell_time(self, now: float) -> None:
        """Note what time it is by Redis' clock, in Unix seconds: it alone says when something is due."""
        self._time = (now, self._clock())

    def now(self) -> float:
        """Return the time by Redis' clock, as far as this process can tell; may be asked in any thread."""
        then, at = self._time
        return then + (self._clock() - at)

    @property
    def is_lost(self) -> bool:
        """Whether nothing that this pass writes counts any more."""
        return self._is_lost

    def lose(self) -> None:
        """Note that the pass may not write any more."""
        self._is_lost = True

    def count(self, step: Step) -> None:
        """Count what became of an attempt; in any thread."""
        if step.attempts and step.state in _OUTCOMES and step.kind is not Kind.GATHER:
            with self._lock:
                self.outcomes[step.state.value] += 1

    @contextmanager
    def running(self, unit: Unit) -> Iterator[None]:
        """Note that this thread runs a step."""
        now, timeout = self._clock(), unit.policy.timeout
        thread = threading.get_ident()
        self._running[thread] = RunningStep(unit, now, None if timeout is None else now + timeout)
        try:
            yield
        finally:
            self._running.pop(thread, None)
            self._marked.pop(unit.key, None)

    def running_steps(self) -> list[RunningStep]:
        """Return what runs just now; may be asked in any thread."""
        return list(self._running.copy().values())

    def note_marked(self, keys: Iterable[str]) -> None:
        """Note that these steps are marked as running on Redis."""
        self._marked.update(dict.fromkeys(keys))

    def is_marked(self, step: RunningStep) -> bool:
        """Return whether it is."""
        return step.unit.key in self._marked

    def check(self) -> None:
        """Return when the step in this thread may go on.

        Raises:
            LeaseLost: the pass is lost.
            JobTimeout: the step's timeout has passed.
        """
        if self._is_lost:
            self.was_refused = True
            raise LeaseLost(f"call {self.right.call_id}: another pass has begun")
        step = self._running.get(threading.get_ident())
        if step is not None and step.deadline is not None and self._clock() > step.deadline:
            raise JobTimeout(f"step {step.unit.key!r}: its timeout of {step.unit.policy.timeout:g} s has passed")
