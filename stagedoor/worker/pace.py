"""Pace: how long the kinds at hand take, and so how far to read ahead and how often to hand over.

A read and a settle for each job cost a worker of short documents a seventh of
its processor time; a few entries in hand let its threads go on by themselves,
and one read and one settle serve several jobs. A kind counts with an average
that forgets slowly; the slowest kind seen lately decides, so that a fast kind
never makes us hoard slow entries.
"""

import math

FAST_S = 0.0005
"""A job this short takes less than the read that fetches it, and less than waking a thread for it is worth."""
AHEAD_S = 0.05
"""Measured work of fast jobs to have in hand: what one read and one settle take, many times over."""
BUSY_AHEAD_S = 0.1
"""The same of jobs that fill their slots: the time in which all slots together start what is in hand."""
FAST_TELL_S = 0.001
BUSY_TELL_S = BUSY_AHEAD_S / 2
"""How often threads that go on by themselves have the trio thread settle and read: before what is ahead runs out."""
SLOT_WORTH_S = 0.001
"""Waking a thread takes some 0.1 ms: less work than this is done sooner by the threads that run already."""
_WEIGHT = 0.1
_LATELY = 1000
"""Runs after which a kind that has not come again no longer counts."""


class Pace:
    """Averages of run times by kind; `note` may be called from any thread.

    A lost update under threads changes nothing that matters.

    Args:
        most_ahead: entries to have in hand at the most.
        slots: handlers that run at once.
    """

    def __init__(self, most_ahead: int, *, slots: int) -> None:
        self._most_ahead = most_ahead
        self._slots = slots
        self._runs = 0
        self._seen: dict[str, tuple[float, int]] = {}

    def note(self, kind: str, run_s: float) -> None:
        """Note one run."""
        self._runs += 1
        mean, _at = self._seen.get(kind, (run_s, 0))
        self._seen[kind] = (mean + _WEIGHT * (run_s - mean), self._runs)

    def _slowest_s(self) -> float | None:
        return max((mean for mean, at in list(self._seen.values()) if self._runs - at < _LATELY), default=None)

    def slots_for(self, waiting: int) -> int:
        """Return how many slots are worth having for this many waiting jobs: one per millisecond of work."""
        slowest = self._slowest_s()
        if slowest is None or slowest > FAST_S:
            return waiting
        return math.ceil(waiting * slowest / SLOT_WORTH_S)

    def ahead(self) -> int:
        """Return how many entries to have in hand beyond the free slots: none where jobs take long."""
        slowest = self._slowest_s()
        if slowest is None:
            return 0
        worth = BUSY_AHEAD_S * self._slots / slowest if slowest > FAST_S else AHEAD_S / max(slowest, 1e-6)
        return min(self._most_ahead, int(worth))

    def tell_every_s(self) -> float:
        """Return how often threads that have a next job at hand interrupt the trio thread."""
        slowest = self._slowest_s()
        return BUSY_TELL_S if slowest is not None and slowest > FAST_S else FAST_TELL_S
