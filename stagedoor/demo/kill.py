"""Kill one worker in mid-work, and see when the other has taken over what it held."""

import time

from stagedoor.broker.scratch import Scratch
from stagedoor.rehearsal.crew import Crew
from stagedoor.rehearsal.kill import Killed, kill_holding
from stagedoor.rehearsal.watch import Watch

KILL_FROM_SHARE = 0.25
"""Of the orders that must be placed before: the workers are at it, and much is still to come."""
AT_LEAST = 3
"""Entries that the victim should hold; fewer are taken when many attempts have found no more."""
RETRY_S = 0.05
PATIENT_ATTEMPTS = 60


class Killer:
    """Kills *victim* once, at a moment when it really holds and runs something."""

    def __init__(self, crew: Crew, scratch: Scratch, watch: Watch, *, victim: str) -> None:
        self._crew = crew
        self._scratch = scratch
        self._watch = watch
        self._victim = victim
        self._attempts = 0
        self._next_at = 0.0
        self.killed: Killed | None = None

    def try_once(self) -> Killed | None:
        """Kill the victim if this is a good moment; return what it held then."""
        running = len(self._watch.workers[self._victim].running)
        if self.killed is not None or running == 0 or time.monotonic() < self._next_at:
            return None
        self._attempts += 1
        least = AT_LEAST if self._attempts < PATIENT_ATTEMPTS else 1
        self.killed = kill_holding(self._crew, self._scratch, self._victim, at_least=least, running=running)
        if self.killed is None:
            self._next_at = time.monotonic() + RETRY_S
        return self.killed

    def recovery_s(self) -> float | None:
        """Return the time from the kill to the start of the last of its entries elsewhere; None before that."""
        if self.killed is None:
            return None
        at = self._watch.recovered_at(self.killed.held, after=self.killed.at, not_at=self.killed.worker)
        return None if at is None else at - self.killed.at
