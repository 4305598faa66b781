"""How long it took until what a killed worker held had started again."""

import math
from collections.abc import Sequence

import attrs

from stagedoor.rehearsal.kill import Killed
from stagedoor.rehearsal.watch import Watch


@attrs.define
class _Open:
    """A kill of which not everything has started again; *left* are the entries."""

    at: float
    left: set[str]
    is_disturbed: bool


class Recoveries:
    """The kills of a run, and how each was recovered from.

    *seconds* are of all kills that could be measured, *undisturbed* of those during which nothing
    else failed and somebody was there to take over: what a single failure costs.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._looked_at = 0
        self._open: list[_Open] = []
        self.seconds: list[float] = []
        self.undisturbed: list[float] = []
        self.held = 0
        self.unmeasured = 0

    def disturb(self) -> None:
        """Take note that something else has failed."""
        self.look()
        for kill in self._open:
            kill.is_disturbed = True

    def add(self, killed: Killed, *, is_disturbed: bool = False) -> None:
        """Measure this kill; call it when all that was told before it has been looked at.

        One that held nothing has nothing to recover. *is_disturbed* says that nobody else is there.
        """
        self.look()
        if killed.held:
            self.held += len(killed.held)
            self._open.append(_Open(killed.at, set(killed.held), is_disturbed))

    def give_up(self) -> None:
        """Measure no open kill any more: Redis has lost their entries, or the run is over."""
        self.look()
        self.unmeasured += len(self._open)
        self._open.clear()

    def look(self) -> None:
        """Take note of what has started since the last look."""
        news = self._watch.starts[self._looked_at :]
        self._looked_at += len(news)
        for started in news:
            for kill in self._open:
                kill.left.discard(started.entry_id)
                if not kill.left:
                    self._recovered(kill, max(0.0, started.at - kill.at))
            self._open = [kill for kill in self._open if kill.left]

    def _recovered(self, kill: _Open, seconds: float) -> None:
        self.seconds.append(seconds)
        if not kill.is_disturbed:
            self.undisturbed.append(seconds)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values do not exceed, None of no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
