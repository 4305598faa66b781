"""Pace: how fast the kinds at hand are, and so how far to read ahead.

Reading ahead pays only where a job takes less than the read that fetches it.
A kind counts with an average that forgets slowly; the slowest kind seen lately
decides, so that a fast kind never makes us hoard slow entries.
"""

import math

FAST_S = 0.0005
"""A job this short takes less than the read that fetches it: worth reading ahead."""
AHEAD_S = 0.05
"""Measured work to have in hand: what one read and one settle take, many times over."""
SLOT_WORTH_S = 0.001
"""Waking a thread takes some 0.1 ms: less work than this is done sooner by the threads that run already."""
_WEIGHT = 0.1
_LATELY = 1000
"""Runs after which a kind that has not come again no longer counts."""


class Pace:
    """Averages of run times by kind; `note` may be called from any thread.

    A lost update under threads changes nothing that matters.
    """

    def __init__(self, most_ahead: int) -> None:
        self._most_ahead = most_ahead
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
        """Return how many entries to have in hand beyond the free slots."""
        slowest = self._slowest_s()
        if slowest is None or slowest > FAST_S:
            return 0
        return min(self._most_ahead, int(AHEAD_S / max(slowest, 1e-6)))
