"""Letters of Hebrew and Arabic with their points, each as one glyph.

A point has no place of its own in its line: the font says where on which letter it
sits. Drawn as a glyph of its own it would have to be moved there, and programs
that extract text take such a move for a blank. So a letter and its points are put
together into one glyph that says all of them: a line's clusters become a page of
their own, a pure function of the font and the clusters.

A cluster is a string in the order of the paper, from left to right, as in `visual`:
points, then their letter. In that of a ligature of two letters, the points of the
second stand before those of the first, with `scripts.SEAM` between them.
"""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence

import attrs

from stagedoor_renderers.kit.cutting import Composite
from stagedoor_renderers.kit.pages import FIRST_CODE, PAGE_SIZE, Page, meaning_of
from stagedoor_renderers.kit.scripts import SEAM
from stagedoor_renderers.kit.sfnt import TrueType

_SHADDA = "\u0651"

_COMPOSED = sorted(
    ((parts, char) for char in map(chr, range(0xFB1D, 0xFB4F)) if len(parts := unicodedata.normalize("NFD", char)) > 1),
    key=lambda pair: -len(pair[0]),
)
"""Hebrew letters with points as some fonts have them: what they are made of; the longest first."""


@attrs.frozen
class _Point:
    """A point of a cluster, and of which part of its letter."""

    char: str
    part: int


def pointed_page(font: TrueType, letter: str, clusters: Sequence[str]) -> tuple[Page, Mapping[str, int]]:
    """Return a page of *clusters*, and its codes.

    Args:
        font: has all letters and points.
        letter: that names the font's pages.
        clusters: up to 223 different ones; any more are left out.
    """
    shown = sorted(set(clusters))[:PAGE_SIZE]
    digest = hashlib.sha256("\n".join(shown).encode()).hexdigest()
    page = Page(
        f"{letter}x{digest[:16]}",
        font=font,
        shapes=[composed(font, cluster) for cluster in shown],
        says=[_said(cluster) for cluster in shown],
        needs_thickening=False,
    )
    return page, {cluster: FIRST_CODE + index for index, cluster in enumerate(shown)}


def _said(cluster: str) -> str:
    """Return what is copied of a cluster: its letters from left to right, as of any ligature.

    Not so the points of one letter: PDFium turns letters round and leaves what is between
    them as it stands. Whoever turns these round too gets a text that is canonically the same.
    """
    letters = meaning_of(cluster[-1])
    last, first = _shared_out(cluster[:-1])
    return last[::-1] + letters[:1] + first[::-1] + letters[1:]


def _shared_out(points: str) -> tuple[str, str]:
    """Return the points of a ligature's last letter, which are those of any other, and of its first."""
    last, seam, first = points.partition(SEAM)
    return (last, first) if seam else (points, "")


def _points(cluster: str) -> Sequence[_Point]:
    """Return the points from their letter outwards: what doubles it sits below its vowel."""
    last, first = _shared_out(cluster[:-1])
    found = [_Point(char, 0) for char in reversed(first)] + [_Point(char, 1) for char in reversed(last)]
    return sorted(found, key=lambda point: (point.part, point.char != _SHADDA))


def composed(font: TrueType, cluster: str) -> Composite:
    """Return letter and points as one glyph: as the font composes them, by its anchors, or where it draws them."""
    letter, points = cluster[-1], _points(cluster)
    anchored = font.cmap[ord(letter)]
    letter, points = _precomposed(font, letter, points)
    parts = [(font.cmap[ord(letter)], 0, 0)]
    on: dict[int, list[tuple[int, int, int]]] = {}
    for point in points:
        mark = font.cmap[ord(point.char)]
        x, y = _place(font, anchored, mark, part=point.part, below=on.get(point.part, ()))
        on.setdefault(point.part, []).append((mark, x, y))
        parts.append((mark, x, y))
    return Composite(tuple(parts))


def _precomposed(font: TrueType, letter: str, points: Sequence[_Point]) -> tuple[str, Sequence[_Point]]:
    """Return the font's own glyph for a letter with some of its points, and the points that are left."""
    for chars, composed in _COMPOSED:
        left = [point for point in points if point.char not in chars[1:]]
        if chars[0] == letter and len(left) == len(points) - len(chars) + 1 and ord(composed) in font.cmap:
            return composed, left
    return letter, points


def _place(
    font: TrueType, letter: int, mark: int, *, part: int, below: Sequence[tuple[int, int, int]]
) -> tuple[int, int]:
    for other, x, y in reversed(below):
        stacked = font.anchors.on_mark(other, mark)
        if stacked is not None:
            return x + stacked[0], y + stacked[1]
    return font.anchors.on_letter(letter, mark, part=part) or (0, 0)
