"""Kill a worker in mid-work: frozen first, so that what it holds is known."""

import time

import attrs

from stagedoor.broker.scratch import Scratch
from stagedoor.rehearsal.crew import Crew

FROZEN_S = 0.02
"""How long a frozen worker is watched: what it has sent by then has arrived."""


@attrs.frozen(kw_only=True)
class Killed:
    """A worker that was killed while it held these entries; *at* is Unix seconds."""

    worker: str
    at: float
    held: frozenset[str]
    slots_in_use: int


def kill_holding(crew: Crew, scratch: Scratch, worker: str, *, at_least: int, running: int) -> Killed | None:
    """Kill a worker with SIGKILL if it holds enough, else let it go on and return None.

    It is frozen first: what it holds cannot change while we look, and it dies holding it.

    Args:
        crew: whose worker it is.
        scratch: the namespace it works in.
        worker: its name.
        at_least: entries that it has to hold; 0 kills it whatever it holds.
        running: handlers that it is known to run, for the record.
    """
    crew.freeze(worker)
    time.sleep(FROZEN_S)
    if len(scratch.held_by(worker)) < at_least:
        crew.thaw(worker)
        return None
    at = crew.kill(worker)
    return Killed(worker=worker, at=at, held=frozenset(scratch.held_by(worker)), slots_in_use=running)
