"""The keeper: keeps the passes of this process alive, and gives up steps that do not end.

It is no service: `keep_once` and `look_once` are plain functions that whoever
has a clock calls now and then, from a thread of its own, so that neither a slow
step nor a full worker keeps a lease from being renewed.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from stagedoor.broker.calls import Calls, Looked, Running
from stagedoor.core.call import Ending, GoOn, Sleep, Step, StepState, StepWrite
from stagedoor.errors import FlowLimitExceeded, JobTimeout, LeaseLost
from stagedoor.flows.attempts import after_failure
from stagedoor.flows.live import LivePass, RunningStep

__all__ = ["KEEP_EVERY_S", "LONG_S", "LOOK_EVERY_S", "Keeper"]

KEEP_EVERY_S = 1.0
"""How often `keep_once` wants to be called; it asks Redis only when there is something to say."""
LOOK_EVERY_S = 5.0
MOST_LOOKS = 20
"""Batches of calls that one look takes, each a script of its own; what is left waits for the next."""
LONG_S = 1.0
"""A step that takes longer is marked as running, so that people can see it."""


class Keeper:
    """Knows the passes of this process.

    Args:
        calls: the journal.
        clock: monotonic seconds.
        renew_every_s: pause between two renewals of a lease.
        grace_s: how long after its timeout a step is given up.
        rng: for jitter.
    """

    def __init__(
        self,
        calls: Calls,
        *,
        clock: Callable[[], float],
        renew_every_s: float,
        grace_s: float,
        rng: random.Random,
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._renew_every_s = renew_every_s
        self._grace_s = grace_s
        self._rng = rng
        self._passes: dict[int, LivePass] = {}
        self._renewed_at: dict[int, float] = {}

    @contextmanager
    def keeping(self, live: LivePass) -> Iterator[None]:
        """Keep a pass alive while it runs."""
        number = id(live)
        self._renewed_at[number] = self._clock()
        self._passes[number] = live
        try:
            yield
        finally:
            self._passes.pop(number, None)
            self._renewed_at.pop(number, None)

    def keep_once(self) -> int:
        """Give up what has not ended in time, renew the leases that are due for it, and mark long steps.

        Returns:
            How many passes Redis was asked about.

        **Durability**: safe to repeat.
        """
        for live in list(self._passes.copy().values()):
            for step in live.running_steps():
                if step.deadline is not None and self._clock() > step.deadline + self._grace_s:
                    self._give_up(live, step)
        due = [live for live in self._passes.copy().values() if not live.is_lost and self._is_due(live)]
        if not due:
            return 0
        now = self._clock()
        asked = [Running(live.right, tuple(_marks(live, now))) for live in due]
        for live, answer in zip(due, self._calls.keep(asked), strict=True):
            if not answer.holds:
                live.lose()
            if answer.is_cancel_requested:
                live.is_cancel_requested = True
            if id(live) in self._passes:
                self._renewed_at[id(live)] = now
        for live, running in zip(due, asked, strict=True):
            live.note_marked(write.key for write in running.steps)
        return len(due)

    def look_once(self) -> Looked:
        """Look after calls that are due for it: lost timers and entries are made anew.

        Returns:
            What was done in all; *more* when there was more than one look should do.

        **Durability**: safe to repeat and to race; any number of workers may look.
        """
        total = Looked()
        for _ in range(MOST_LOOKS):
            looked = self._calls.look()
            total = Looked(
                total.looked + looked.looked,
                total.woken + looked.woken,
                total.timers + looked.timers,
                total.forgotten + looked.forgotten,
                more=looked.more,
            )
            if not looked.more:
                break
        return total

    def _is_due(self, live: LivePass) -> bool:
        now = self._clock()
        if now - self._renewed_at.get(id(live), now) >= self._renew_every_s:
            return True
        return any(not live.is_marked(step) for step in _long(live, now))

    def _give_up(self, live: LivePass, step: RunningStep) -> None:
        """End the pass of a step that is long past its timeout: its thread may go on, but writes nothing more."""
        live.lose()
        timeout = JobTimeout(f"given up {self._grace_s:g} s after its timeout of {step.unit.policy.timeout:g} s")
        became = after_failure(step.unit, timeout, now=live.now(), rng=self._rng)
        write = StepWrite(key=step.unit.key, step=became, seen=step.unit.seen)
        ending: Ending = GoOn()
        if became.state is StepState.RETRY:
            waiting_for = f"the next attempt of {step.unit.kind.value} {step.unit.key!r}"
            ending = Sleep(until=became.due_at or 0.0, waiting_for=waiting_for)
        # Lost, if it has ended after all or somebody else has it: then there is nothing to give up.
        with contextlib.suppress(LeaseLost, FlowLimitExceeded):
            self._calls.end_pass(live.right, ending, write=write, must_leave=True)
        self._passes.pop(id(live), None)


def _long(live: LivePass, now: float) -> list[RunningStep]:
    return [step for step in live.running_steps() if now - step.started_at > LONG_S]


def _marks(live: LivePass, now: float) -> Iterator[StepWrite]:
    for step in _long(live, now):
        unit = step.unit
        before = unit.seen
        running = Step(
            state=StepState.RUNNING,
            kind=unit.kind,
            place=unit.place,
            attempts=before.attempts if before is not None else 0,
            error=before.error if before is not None else "",
            more=attrs.asdict(before)["more"] if before is not None else {},
        )
        yield StepWrite(key=unit.key, step=running, seen=before)
