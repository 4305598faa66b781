"""Suspects: entries that have taken processes along, and so run alone.

Whatever a process holds when it vanishes is blamed for it. So that the
neighbours of an entry that does this never collect more blame, it starts only
where nothing else runs and nothing else is held.
"""

from collections import deque
from collections.abc import Iterator

from stagedoor.worker.held import HeldDelivery
from stagedoor.worker.ready import pop
from stagedoor.worker.slot import Slot

ALONE_FROM_CRASHES = 2
"""One crash may be anybody's; an entry that was there twice runs alone."""


def is_suspect(held: HeldDelivery) -> bool:
    """Return whether this delivery must run alone."""
    return held.crashes >= ALONE_FROM_CRASHES


class Suspects:
    """Those that wait to run alone, and the one that does; belongs to the trio thread, other threads only ask."""

    def __init__(self) -> None:
        self._waiting: deque[HeldDelivery] = deque()
        self._slot: Slot | None = None

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def is_running(self) -> bool:
        """Whether one runs: then nothing else may start."""
        return self._slot is not None

    @property
    def are_there(self) -> bool:
        """Whether one waits or runs; may be asked in any thread."""
        return bool(self._waiting) or self._slot is not None

    def put(self, held: HeldDelivery) -> None:
        """Let one wait behind the others."""
        self._waiting.append(held)

    def take(self) -> HeldDelivery | None:
        """Take the first."""
        return pop(self._waiting)

    def take_others(self) -> Iterator[HeldDelivery]:
        """Take all but the first."""
        while len(self._waiting) > 1:
            yield self._waiting.pop()

    def take_all(self) -> Iterator[HeldDelivery]:
        """Take one after the other until there is none."""
        while (held := pop(self._waiting)) is not None:
            yield held

    def started(self, slot: Slot) -> None:
        """Note the slot in which one runs."""
        self._slot = slot

    def ended(self, slot: Slot) -> None:
        """Note that what this slot ran has ended, whatever it was."""
        if self._slot is slot:
            self._slot = None
