"""Suspects: entries that have taken processes along, and so run alone.

Whatever a process holds when it vanishes is blamed for it. So that the
neighbours of an entry that does this never collect more blame, it starts only
where nothing else runs and nothing else is held.

A worker that is at work has to stop reading for that, until what runs has ended.
Were it a job of an hour, tickets would wait for it. So it has patience for a
second; then the suspect goes back to the pool, for a worker that has nothing to
do, and this one leaves it there while it is at work itself. It tries again, with
twice the patience, after nine times as long: waiting for suspects never takes
more than a tenth of its time, and none goes to and fro faster than that.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator

from stagedoor.core.tenure import Stream
from stagedoor.worker.held import HeldDelivery
from stagedoor.worker.ready import pop
from stagedoor.worker.slot import Slot

ALONE_FROM_CRASHES = 2
"""One crash may be anybody's; an entry that was there twice runs alone."""
FIRST_PATIENCE_S = 1.0
"""As long as an entry that is released may take to start elsewhere."""
LONGEST_PATIENCE_S = 30.0
SHARE = 10
"""A worker at work spends one part in so many on waiting for suspects."""
MOST_LEFT = 500
"""As many as one process holds; each costs a read some 50 bytes and a look at the pending list."""


def is_suspect(held: HeldDelivery) -> bool:
    """Return whether this delivery must run alone."""
    return held.crashes >= ALONE_FROM_CRASHES


class Suspects:
    """Those that wait to run alone, the one that does, and those that were given back.

    Belongs to the trio thread; other threads only ask whether `are_there`.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[HeldDelivery] = deque()
        self._slot: Slot | None = None
        self._since = 0.0
        self._patience_s = FIRST_PATIENCE_S
        self._again_at = float("-inf")
        self._left: dict[tuple[Stream, str], None] = {}

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

    @property
    def are_unwelcome(self) -> bool:
        """Whether a worker at work should wait for none now, having waited for one in vain not long ago."""
        return self._clock() < self._again_at

    @property
    def left(self) -> Collection[tuple[Stream, str]]:
        """Those that a worker at work should leave in the pool."""
        return tuple(self._left) if self.are_unwelcome else ()

    def put(self, held: HeldDelivery) -> None:
        """Let one wait behind the others."""
        if not self._waiting:
            self._since = self._clock()
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

    def leave(self, held: HeldDelivery) -> None:
        """Note that it goes back to the pool, for others."""
        self._left[held.tenure.entry] = None
        if len(self._left) > MOST_LEFT:
            del self._left[next(iter(self._left))]

    def give_up(self) -> list[HeldDelivery]:
        """Take all that wait where they have waited for too long; they go back to the pool, for others."""
        now = self._clock()
        waited_s = now - self._since
        if not self._waiting or waited_s < self._patience_s:
            return []
        self._again_at = now + waited_s * (SHARE - 1)
        self._patience_s = min(self._patience_s * 2, LONGEST_PATIENCE_S)
        self._left.clear()
        given_up = list(self.take_all())
        for held in given_up:
            self.leave(held)
        return given_up

    def started(self, slot: Slot) -> None:
        """Note the slot in which one runs: the next is waited for as patiently as the first was."""
        self._slot = slot
        self._patience_s, self._again_at = FIRST_PATIENCE_S, float("-inf")

    def ended(self, slot: Slot) -> None:
        """Note that what this slot ran has ended, whatever it was."""
        if self._slot is slot:
            self._slot = None
