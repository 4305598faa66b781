"""Does the function still make the operations that are recorded? Checked place by place, cheaply."""

import functools
from collections.abc import Sequence

from stagedoor.core.call import Kind, Step, StepState
from stagedoor.core.journal import Journal, Place, is_step_field, parse_step, why_misfit
from stagedoor.errors import FlowChanged

__all__ = ["History"]

_SHOWN = 12
"""Operations shown of each history, the last ones before the misfit: enough to find the line, short enough to read."""


_FINISHED = {kind: Step(state=StepState.DONE, kind=kind) for kind in (Kind.STEP, Kind.MEMO, Kind.SLEEP)}
"""What is returned for an operation that is done: that it is, is all that anybody asks of these."""
_BEGINNINGS = {kind: f'{{"kind":"{kind.value}","place":' for kind in _FINISHED}
"""How their records begin: compared as text, a finished step costs a microsecond; parsed, it costs ten."""


class History:
    """What is recorded of a call, and what this run of the function has made so far."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._status = journal.status
        self._made: dict[str, Kind] = {}
        self._items: set[str] = set()
        self._left: dict[str, Place] | None = None

    def next_step(self, key: str, kind: Kind) -> Step | None:
        """Return what is recorded of the next operation, None where nothing is.

        Raises:
            FlowChanged: at this place, or under this key, something else is recorded.
        """
        if key in self._made or key in self._items:
            raise self._changed(f"the key {key!r} is used twice in one pass", Place(self.reached + 1, key, kind))
        self._made[key] = kind
        place = len(self._made)
        text = self._status.get(key)
        if text is None:
            if self._unmade():
                self._check(Place(place, key, kind))
            return None
        if self._left:
            self._left.pop(key, None)
        if _is_finished(text, kind, place):
            return _FINISHED[kind]
        step = parse_step(text)
        if step.place is None:
            raise self._changed(f"{key!r} is recorded as {step.kind.value}", Place(place, key, kind))
        if step.place != place or step.kind is not kind:
            self._check(Place(place, key, kind))
        return step

    def _check(self, made: Place) -> None:
        problem = why_misfit(self._recorded, made)
        if problem is not None:
            raise self._changed(problem, made)

    def _unmade(self) -> dict[str, Place]:
        """Return the recorded operations that this run has not made."""
        if self._left is None:
            # Mostly there are none: what is left then are a dozen fields of the call's own.
            steps = {key: self._journal.step(key) for key in self._others()}
            self._left = {
                key: Place(step.place, key, step.kind)
                for key, step in steps.items()
                if step is not None and step.place is not None
            }
        return self._left

    def _others(self) -> list[str]:
        return [key for key in self._status.keys() - self._made.keys() - self._items if is_step_field(key)]

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
        lost = self._unmade()
        if lost:
            first = min(lost.values(), key=lambda place: place.place)
            raise self._changed(f"the function ended its pass before it made {first}", None)

    def differs(self, what: str) -> FlowChanged:
        """Return the error for something else that does not fit at the present place."""
        return self._changed(what, None)

    @functools.cached_property
    def _recorded(self) -> tuple[Place, ...]:
        return self._journal.places

    def _changed(self, problem: str, now: Place | None) -> FlowChanged:
        made = [Place(number, key, kind) for number, (key, kind) in enumerate(self._made.items(), 1)]
        if now is not None and (not made or made[-1] != now):
            made.append(now)
        recorded, by_now = (_listed(places, len(made)) for places in (self._recorded, tuple(made)))
        return FlowChanged(f"{problem}; recorded: {recorded}; this code made: {by_now}")


def _is_finished(text: str, kind: Kind, place: int) -> bool:
    beginning = _BEGINNINGS.get(kind)
    if beginning is None or not text.startswith("done "):
        return False
    body = text.find(" ", 5) + 1
    full = f"{beginning}{place}"
    return text.startswith(full, body) and text[body + len(full) : body + len(full) + 1] in ",}"


def _listed(places: tuple[Place, ...], around: int) -> str:
    first = max(0, around - _SHOWN)
    shown = places[first : around + _SHOWN // 2]
    before = f"… {first} before, " if first and shown else ""
    after = f", … {len(places) - first - len(shown)} after" if first + len(shown) < len(places) else ""
    return (before + ", ".join(map(str, shown)) + after) or "nothing"
