"""Where a font wants its marks: the anchors of its OpenType table `GPOS`.

An anchor is a point of a letter, and one of a mark, that are laid upon each other.
Of the table only the three attachments are read (mark to base, to ligature, to
mark; OpenType 1.9, "GPOS"), without features, languages and device tables.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence

import attrs

_TO_BASE, _TO_LIGATURE, _TO_MARK, _EXTENSION = 4, 5, 6, 9

type Point = tuple[int, int]
type _Points = tuple[Point | None, ...]
"""By class of mark."""


@attrs.frozen
class Attachment:
    """One subtable: marks with their class and point; what they attach to, part by part, with its points."""

    marks: Mapping[int, tuple[int, Point]]
    bases: Mapping[int, Sequence[_Points]]

    def shift(self, base: int, mark: int, part: int) -> Point | None:
        """Return how far *mark* is moved to sit on a part of *base*; None where the subtable does not say."""
        if base not in self.bases or mark not in self.marks:
            return None
        kind, (x, y) = self.marks[mark]
        parts = self.bases[base]
        point = parts[min(part, len(parts) - 1)][kind]
        return None if point is None else (point[0] - x, point[1] - y)


@attrs.frozen
class Anchors:
    """The anchors of a font, in its own units; glyphs are numbers."""

    on_letters: tuple[Attachment, ...] = ()
    on_marks: tuple[Attachment, ...] = ()

    def on_letter(self, letter: int, mark: int, *, part: int = 0) -> Point | None:
        """Return the shift that puts *mark* onto *letter*; a ligature's parts count from its first letter."""
        return _first(self.on_letters, letter, mark, part)

    def on_mark(self, below: int, mark: int) -> Point | None:
        """Return the shift that puts *mark* onto the mark *below*."""
        return _first(self.on_marks, below, mark, 0)


def _first(attachments: Sequence[Attachment], base: int, mark: int, part: int) -> Point | None:
    return next((found for each in attachments if (found := each.shift(base, mark, part)) is not None), None)


def read_anchors(gpos: bytes) -> Anchors:
    """Return the anchors in a `GPOS` table; none where it is empty.

    Raises:
        struct.error: it is damaged.
    """
    if not gpos:
        return Anchors()
    letters: list[Attachment] = []
    marks: list[Attachment] = []
    for kind, at in _subtables(gpos):
        if kind in (_TO_BASE, _TO_LIGATURE):
            letters.append(_attachment(gpos, at, ligatures=kind == _TO_LIGATURE))
        elif kind == _TO_MARK:
            marks.append(_attachment(gpos, at, ligatures=False))
    return Anchors(tuple(letters), tuple(marks))


def _u16s(data: bytes, at: int, count: int) -> tuple[int, ...]:
    return struct.unpack_from(f">{count}H", data, at)


def _offsets(data: bytes, at: int) -> Iterator[int]:
    """Yield where the tables of a list begin: a count, then offsets from the list's own beginning."""
    (count,) = _u16s(data, at, 1)
    for offset in _u16s(data, at + 2, count):
        yield at + offset


def _subtables(gpos: bytes) -> Iterator[tuple[int, int]]:
    """Yield the kind and the place of every subtable of every lookup."""
    (lookups,) = _u16s(gpos, 8, 1)
    for lookup in _offsets(gpos, lookups):
        kind, _ = _u16s(gpos, lookup, 2)
        (count,) = _u16s(gpos, lookup + 4, 1)
        for offset in _u16s(gpos, lookup + 6, count):
            at = lookup + offset
            if kind == _EXTENSION:
                real, far = struct.unpack_from(">HL", gpos, at + 2)
                yield real, at + far
            else:
                yield kind, at


def _attachment(data: bytes, at: int, *, ligatures: bool) -> Attachment:
    """Read one subtable; the three kinds differ only in how many parts a base has."""
    mark_coverage, base_coverage, classes, mark_array, base_array = _u16s(data, at + 2, 5)
    marks: dict[int, tuple[int, Point]] = {}
    for index, glyph in enumerate(_covered(data, at + mark_coverage)):
        kind, anchor = _u16s(data, at + mark_array + 2 + 4 * index, 2)
        marks[glyph] = kind, _point(data, at + mark_array + anchor)
    bases: dict[int, Sequence[_Points]] = {}
    for index, glyph in enumerate(_covered(data, at + base_coverage)):
        if ligatures:
            (offset,) = _u16s(data, at + base_array + 2 + 2 * index, 1)
            array = at + base_array + offset
            (parts,) = _u16s(data, array, 1)
            bases[glyph] = [_points(data, array, array + 2 + 2 * classes * part, classes) for part in range(parts)]
        else:
            array = at + base_array
            bases[glyph] = [_points(data, array, array + 2 + 2 * classes * index, classes)]
    return Attachment(marks, bases)


def _points(data: bytes, array: int, at: int, classes: int) -> _Points:
    return tuple(_point(data, array + offset) if offset else None for offset in _u16s(data, at, classes))


def _point(data: bytes, at: int) -> Point:
    _, x, y = struct.unpack_from(">Hhh", data, at)
    return x, y


def _covered(data: bytes, at: int) -> Iterator[int]:
    """Yield the glyphs of a coverage table in the order in which the rest refers to them."""
    form, count = _u16s(data, at, 2)
    if form == 1:
        yield from _u16s(data, at + 4, count)
        return
    for index in range(count):
        first, last, _ = _u16s(data, at + 4 + 6 * index, 3)
        yield from range(first, last + 1)
