"""Does the function still make the operations that are recorded? Checked place by place, cheaply."""

import functools
from collections.abc import Sequence

from stagedoor.core.journal import Journal, Kind, Place, Step, missing, why_misfit
from stagedoor.errors import FlowChanged

__all__ = ["History"]

_SHOWN = 12
"""Operations shown of each history, the last ones before the misfit: enough to find the line, short enough to read."""


class History:
    """What is recorded of a call, and what this run of the function has made so far."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._made: dict[str, Kind] = {}
        self._items: set[str] = set()

    def next_step(self, key: str, kind: Kind) -> Step | None:
        """Return what is recorded of the next operation, None where nothing is.

        Raises:
            FlowChanged: at this place, or under this key, something else is recorded.
        """
        if key in self._made or key in self._items:
            raise self._changed(f"the key {key!r} is used twice in one pass", Place(self.reached + 1, key, kind))
        self._made[key] = kind
        place = len(self._made)
        step = self._journal.step(key)
        if step is not None:
            if step.place == place and step.kind is kind:
                return step
            if step.place is None:
                raise self._changed(f"{key!r} is recorded as {step.kind.value}", Place(place, key, kind))
        elif place > self._last:
            return None
        problem = why_misfit(self._recorded, Place(place, key, kind))
        if problem is not None:
            raise self._changed(problem, Place(place, key, kind))
        return step

    def claim_items(self, keys: Sequence[str]) -> None:
        """Note that these keys are a gather's items'.

        Raises:
            FlowChanged: another operation has one of them.
        """
        for key in keys:
            if key in self._made:
                raise self._changed(f"the key {key!r} is an item's of a gather and another operation's", None)
            self._items.add(key)

    @property
    def reached(self) -> int:
        """The place of the last operation that this run has made; 0 before the first."""
        return len(self._made)

    def check_end(self) -> None:
        """Return if a pass may end here.

        Raises:
            FlowChanged: operations are recorded that this run has not made.
        """
        if self.reached >= self._last:
            return
        lost = missing(self._recorded, self.reached)
        if lost:
            raise self._changed(f"the function ended its pass before it made {lost[0]}", None)

    def differs(self, what: str) -> FlowChanged:
        """Return the error for something else that does not fit at the present place."""
        return self._changed(what, None)

    @functools.cached_property
    def _recorded(self) -> tuple[Place, ...]:
        return self._journal.places

    @functools.cached_property
    def _last(self) -> int:
        return self._recorded[-1].place if self._recorded else 0

    def _changed(self, problem: str, now: Place | None) -> FlowChanged:
        made = [Place(number, key, kind) for number, (key, kind) in enumerate(self._made.items(), 1)]
        if now is not None and (not made or made[-1] != now):
            made.append(now)
        recorded, by_now = (_listed(places, len(made)) for places in (self._recorded, tuple(made)))
        return FlowChanged(f"{problem}; recorded: {recorded}; this code made: {by_now}")


def _listed(places: tuple[Place, ...], around: int) -> str:
    first = max(0, around - _SHOWN)
    shown = places[first : around + _SHOWN // 2]
    before = f"… {first} before, " if first and shown else ""
    after = f", … {len(places) - first - len(shown)} after" if first + len(shown) < len(places) else ""
    return (before + ", ".join(map(str, shown)) + after) or "nothing"
