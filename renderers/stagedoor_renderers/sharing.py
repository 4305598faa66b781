"""How the facts of a row share its width, and which of them give way when their words are long.

In this order, as far as it takes:

1. each fact has its share;
2. each has the width that its words and its label need, and all words shrink a little;
3. labels shrink, and then are broken into two lines;
4. all words shrink further, or are broken into lines where that leaves them larger;
5. at the smallest size words are broken inside;
6. the longest words end in an ellipsis. What is short stays whole beside it: the
   number of a seat is never lost to the name of its block.
"""

import itertools
import math
import re
from collections.abc import Callable, Sequence

import attrs

from stagedoor_renderers.boxes import Facts
from stagedoor_renderers.kit.desk import Typesetter
from stagedoor_renderers.kit.scripts import has_right_to_left
from stagedoor_renderers.kit.sheet import MM
from stagedoor_renderers.kit.typeset import Block, break_lines, words_of

LABEL_FLOOR = 4.5
"""Labels shrink to this size, in points, before they are broken, and then end in an ellipsis."""

_LABEL_LINES = 2
_JOINTS = re.compile("[-/ ]+")
LABEL_LEADING = 1.2

_ONE_LINE = 0.75
"""Words stay on one line as long as that makes them no smaller than this part of what they could be on several,
and labels stay whole as long as words shrink to no less than this part of their size."""

_STEPS = 8
_HALVINGS = 40
_ROUNDING = 1e-6

Fill = Callable[[float, float], float]
"""Returns how wide a fact may be that needs the second, when the widest may be the first."""


@attrs.frozen(kw_only=True)
class Fact:
    """What one place of a row shows."""

    label: str
    words: str


@attrs.frozen(kw_only=True)
class Row:
    """The widths of the facts in a row, in points, and the size that their words have or begin with."""

    widths: tuple[float, ...]
    size: float


def tracking(words: str, wanted: float) -> float:
    """Return the extra space between letters, in thousandths; none between letters that are joined."""
    return 0.0 if has_right_to_left(words) else wanted


def label_block(label: str, box: Facts, *, width: float, setter: Typesetter) -> Block:
    """Return *label* in *width* points: on one line if it can be, else on two."""
    spaced = tracking(label, box.label_tracking)
    floor = min(LABEL_FLOOR, box.label_size)
    width += _ROUNDING
    block = setter.fit("regular", label, size=box.label_size, floor=floor, width=width, tracking=spaced)
    if not block.truncated:
        return block
    return setter.fit("regular", label, size=floor, floor=floor, width=width, tracking=spaced, max_lines=_LABEL_LINES)


def above_words(blocks: Sequence[Block], box: Facts, setter: Typesetter) -> float:
    """Return the points from the top of a row to its words, below labels that are set like *blocks*."""
    lines = max(len(block.lines) for block in blocks)
    return _above_words(box, setter, lines=lines)


def words_block(words: str, box: Facts, size: float, *, width: float, above: float, setter: Typesetter) -> Block:
    """Return *words* in *width* points, on one line if they fit as they are."""
    is_one_line = setter.width_of(box.font, words, size) <= width + _ROUNDING
    return setter.fit(
        box.font,
        words,
        size=size,
        floor=min(box.min_size, size),
        width=width + _ROUNDING,
        max_lines=1 if is_one_line else box.lines,
        height=max(0.0, box.h * MM - above),
        leading=box.leading,
    )


def _label_step(box: Facts) -> float:
    return LABEL_LEADING * min(LABEL_FLOOR, box.label_size)


def _above_words(box: Facts, setter: Typesetter, *, lines: int) -> float:
    # Labels that had to shrink stand on the line of their neighbours, so a row of them is as tall as a whole one.
    tall = setter.faces["regular"].cap_height / 1000 * box.label_size
    return tall + _label_step(box) * (lines - 1) + box.spacing * MM


def row_of(box: Facts, facts: Sequence[Fact], shares: Sequence[float], setter: Typesetter) -> Row:
    """Return how *facts* share the width of *box*; *shares* are theirs in points if none needs more."""
    sharing = _Sharing(box, facts, setter)
    if sharing.is_enough(shares):
        return Row(widths=tuple(shares), size=box.size)
    if len(facts) == 1:
        return Row(widths=(sharing.room,), size=box.size)
    return sharing.by_needs()


@attrs.frozen
class _Labels:
    """The least widths of the labels of a row, in one way to set them, and how many lines that takes."""

    widths: tuple[float, ...]
    lines: int = 1


class _Sharing:
    """The needs of the facts of one row; all widths are in points."""

    def __init__(self, box: Facts, facts: Sequence[Fact], setter: Typesetter) -> None:
        self._box = box
        self._facts = facts
        self._setter = setter
        self._face = setter.faces[box.font]
        self._floor = min(box.min_size, box.size)
        self.room = (box.w - box.gap * (len(facts) - 1)) * MM
        self._labels = _Labels(tuple(self._label_width(fact.label, box.label_size) for fact in facts))
        self._words = [setter.width_of(box.font, fact.words, 1.0) for fact in facts]

    def is_enough(self, shares: Sequence[float]) -> bool:
        """Tell whether all labels and words fit into *shares* as they are."""
        needs = self._needs(self._box.size, self._labels)
        return all(need <= share + _ROUNDING for need, share in zip(needs, shares, strict=True))

    def by_needs(self) -> Row:
        """Return the row in which the least is lost."""
        ways = (self._labels, self._shrunk(), self._broken())
        for labels in ways:
            row = self._in_one_line(labels)
            if row is not None and row.size >= self._box.size * _ONE_LINE:
                return row
        longest = [
            max(self._setter.width_of(self._box.font, word, 1.0) for word in words_of(fact.words))
            for fact in self._facts
        ]
        part = self.room / len(self._facts) / self._floor
        short = [words if words <= part else 0.0 for words in self._words]
        rows = itertools.chain(
            (self._whole(labels, longest) for labels in ways),
            (self._in_lines(self._floor, labels, least) for least in (short, [0.0] * len(short)) for labels in ways),
        )
        return next((row for row in rows if row is not None), None) or self._cut(ways[-1])

    # -- labels ---------------------------------------------------------------

    def _label_width(self, label: str, size: float) -> float:
        return self._setter.width_of("regular", label, size, tracking=tracking(label, self._box.label_tracking))

    def _shrunk(self) -> _Labels:
        size = min(LABEL_FLOOR, self._box.label_size)
        return _Labels(tuple(self._label_width(fact.label, size) for fact in self._facts))

    def _broken(self) -> _Labels:
        return _Labels(tuple(self._halved(fact.label) for fact in self._facts), _LABEL_LINES)

    def _halved(self, label: str) -> float:
        """Return the least width of two lines of a label that is not broken inside a word."""
        size = min(LABEL_FLOOR, self._box.label_size)
        ends = [match.end() for match in _JOINTS.finditer(label)] or [len(label)]
        widths = (max(self._label_width(part, size) for part in (label[:end].rstrip(" "), label[end:])) for end in ends)
        return min(widths)

    # -- words ----------------------------------------------------------------

    def _needs(self, size: float, labels: _Labels) -> list[float]:
        return [max(label, words * size) for label, words in zip(labels.widths, self._words, strict=True)]

    def _in_one_line(self, labels: _Labels) -> Row | None:
        size = self._box.size
        while size >= self._floor:
            needs = self._needs(size, labels)
            spare = self.room - sum(needs)
            if spare >= 0:
                return Row(widths=tuple(need + spare / len(needs) for need in needs), size=size)
            size = (math.ceil(4 * size) - 1) / 4
        return None

    def _whole(self, labels: _Labels, longest: Sequence[float]) -> Row | None:
        """Return a row in which no word is broken, with words as large as can be."""
        one = self._in_one_line(labels)
        for step in range(_STEPS + 1):
            size = self._box.size - (self._box.size - self._floor) * step / _STEPS
            if one is not None and size * _ONE_LINE <= one.size:
                break
            row = self._in_lines(size, labels, longest)
            if row is not None:
                return row
        return one

    def _in_lines(self, size: float, labels: _Labels, unbroken: Sequence[float]) -> Row | None:
        """Return a row in which all words have room in the lines of the box, and those of *unbroken* on one line."""
        rows = self._rows(size, labels.lines)
        least = [max(label, word * size) for label, word in zip(labels.widths, unbroken, strict=True)]
        if rows == 1 or sum(least) > self.room:
            return None
        needs = self._needs(size, labels)
        for fill in (_up_to, _in_proportion):
            widths = _filled(least, needs, self.room, fill)
            if all(self._has_room(index, size, width, rows) for index, width in enumerate(widths)):
                return Row(widths=widths, size=size)
        return None

    def _cut(self, labels: _Labels) -> Row:
        least = labels.widths if sum(labels.widths) <= self.room else [0.0] * len(self._facts)
        return Row(widths=_filled(least, self._needs(self._floor, labels), self.room, _up_to), size=self._floor)

    def _has_room(self, index: int, size: float, width: float, rows: int) -> bool:
        if self._words[index] * size <= width + _ROUNDING:
            return True
        return len(break_lines(self._face, self._facts[index].words, size, width=width, limit=rows + 1)) <= rows

    def _rows(self, size: float, label_lines: int) -> int:
        """Return how many lines of words have room below the labels."""
        height = self._box.h * MM - _above_words(self._box, self._setter, lines=label_lines)
        below = height - self._face.cap_height / 1000 * size
        return min(self._box.lines, max(1, 1 + int(below / (size * self._box.leading) + _ROUNDING)))


def _up_to(most: float, need: float) -> float:
    """Let the longest give way first: down to the width of the next longest, and so on."""
    del need
    return most


def _in_proportion(most: float, need: float) -> float:
    """Let all give way alike, so that long words have as many lines as longer ones."""
    return most * need


def _filled(least: Sequence[float], needs: Sequence[float], room: float, fill: Fill) -> tuple[float, ...]:
    """Return widths between *least* and *needs* that fill *room*, or the needs if they leave room."""

    def widths(most: float) -> tuple[float, ...]:
        return tuple(max(low, min(need, fill(most, need))) for low, need in zip(least, needs, strict=True))

    low, high = 0.0, max(1.0, *needs)
    if sum(needs) <= room:
        return widths(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if sum(widths(middle)) <= room:
            low = middle
        else:
            high = middle
    return widths(low)
