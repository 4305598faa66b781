"""Measures, breaks, shrinks and shows text; pure functions of a face and a string.

All loops are bounded by the length of the text or by a constant: text that does
not fit is first set smaller down to a floor, then broken inside its words, then
cut off with an ellipsis. It never leaves its box and never takes for ever.

Strings given to this module are drawable (see `text`): every character but the
line feed has a glyph.
"""

# ruff: noqa: RUF001 - signs that look alike are told apart by what they are, here above all

import itertools
import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator

import attrs

from stagedoor_renderers.kit import scripts
from stagedoor_renderers.kit.faces import Face, Glyph, Page
from stagedoor_renderers.kit.text import visual

ELLIPSIS = "…"

_SHRINK_STEPS = 8
_BALANCE_STEPS = 6
_BREAK_AFTER = "-‐–—/"
_EAST_ASIAN = re.compile("[\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef]")
_NEVER_FIRST = "、。，．・：；？！）」』】〉》〕］｝ーぁぃぅぇぉっゃゅょァィゥェォッャュョ々…%,.!?:;)]}’”»"
_NEVER_LAST = "（「『【〈《〔［｛([{‘“«"
_ABOVE, _BELOW = 230, 220
"""Unicode's combining classes of accents above and below a letter."""
_MARK_GAP = 40
"""Between a letter and its accent, in thousandths of the size."""
_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u3099\u309a\ufb1e]"
)


@attrs.frozen(kw_only=True)
class Line:
    """One line in the order of reading, and the way its paragraph runs."""

    text: str
    width: float
    right_to_left: bool = False


@attrs.frozen(kw_only=True)
class Block:
    """Text that has been set: its lines, the size that it took, and whether some of it was cut off."""

    lines: tuple[Line, ...]
    size: float
    truncated: bool = False


# -- measuring ----------------------------------------------------------------


def width_of(face: Face, text: str, size: float, *, tracking: float = 0.0) -> float:
    """Return how wide *text* is, in points; *tracking* is added after every character, in points."""
    total = sum(map(face.advances.__getitem__, text))
    kerning = face.kerning
    for pair in map("".join, itertools.pairwise(text)):
        if pair in kerning:
            total += kerning[pair]
    return total * size / 1000 + tracking * len(text)


# -- breaking -----------------------------------------------------------------


def break_lines(face: Face, text: str, size: float, *, width: float) -> list[Line]:
    """Return *text* in lines of at most *width* points; line feeds in it end lines.

    A word that is wider than a line is broken inside.
    """
    lines: list[Line] = []
    for paragraph in text.split("\n"):
        right_to_left = scripts.is_right_to_left(paragraph)
        lines += [
            Line(text=line, width=width_of(face, line, size), right_to_left=right_to_left)
            for line in _filled(face, paragraph, size, width=width)
        ]
    return lines


def _filled(face: Face, paragraph: str, size: float, *, width: float) -> Iterator[str]:
    line, used = "", 0.0
    for piece in _pieces(paragraph):
        rest = piece
        wide = width_of(face, rest.rstrip(" "), size)
        if line and used + wide > width:
            yield line.rstrip(" ")
            line, used = "", 0.0
        while not line and wide > width and len(rest.rstrip(" ")) > 1:
            head = _head_that_fits(face, rest.rstrip(" "), size, width=width)
            yield head
            rest = rest[len(head) :]
            wide = width_of(face, rest.rstrip(" "), size)
        line += rest
        used += width_of(face, rest, size)
    yield line.rstrip(" ")


def _pieces(paragraph: str) -> Iterator[str]:
    """Split at every place where a line may end; the pieces together are the paragraph."""
    start = 0
    for index in range(1, len(paragraph)):
        if _may_break(paragraph, index):
            yield paragraph[start:index]
            start = index
    yield paragraph[start:]


def _may_break(text: str, index: int) -> bool:
    """Tell whether a line may end before the character at *index*."""
    before, after = text[index - 1], text[index]
    if after == " ":
        return False
    if before == " ":
        return True
    if before in _BREAK_AFTER and index > 1 and text[index - 2].isalpha() and after.isalpha():
        return True
    if before in _NEVER_LAST or after in _NEVER_FIRST:
        return False
    return _EAST_ASIAN.match(before) is not None or _EAST_ASIAN.match(after) is not None


def _head_that_fits(face: Face, word: str, size: float, *, width: float) -> str:
    """Return as much of *word* as fits, at least one character with its marks."""
    used, end = 0.0, 0
    for index, char in enumerate(word):
        used += face.advances[char] * size / 1000
        if used > width and end:
            break
        if index + 1 == len(word) or not scripts.is_mark(word[index + 1]):
            end = index + 1
    return word[:end] or word[0]


# -- fitting ------------------------------------------------------------------


def fit(
    face: Face,
    text: str,
    *,
    size: float,
    floor: float,
    width: float,
    max_lines: int = 1,
    height: float = math.inf,
    leading: float = 1.2,
    tracking: float = 0.0,
    balanced: bool = False,
) -> Block:
    """Return *text* set in at most *max_lines* lines of at most *width* points.

    Args:
        face: the face to set it in.
        text: drawable text.
        size: the size to begin with, in points.
        floor: the smallest size to shrink to.
        width: of the box, in points.
        max_lines: of the box.
        height: of the box, in points; a smaller size has room for more lines.
        leading: from line to line, in sizes.
        tracking: extra space after each character, in points; single lines only.
        balanced: make the lines of a title about equally long.
    """
    if max_lines == 1:
        return _fit_one_line(face, text.replace("\n", " "), size=size, floor=floor, width=width, tracking=tracking)
    longest = max((width_of(face, word, 1.0) for word in text.split()), default=0.0)
    for step in range(_SHRINK_STEPS + 1):
        now = size - (size - floor) * step / _SHRINK_STEPS
        lines = break_lines(face, text, now, width=width)
        rows = min(max_lines, _rows(face, now, height=height, leading=leading))
        # Shrinking goes before breaking a word.
        if len(lines) <= rows and (longest * now <= width or step == _SHRINK_STEPS):
            if balanced:
                lines = _balanced(face, text, now, width=width, count=len(lines), longest=longest * now)
            return Block(lines=tuple(lines), size=now)
    rows = min(max_lines, _rows(face, floor, height=height, leading=leading))
    kept = break_lines(face, text, floor, width=width)[:rows]
    last = kept[-1]
    shortened = _with_ellipsis(face, last.text, floor, width=width)
    kept[-1] = attrs.evolve(last, text=shortened, width=width_of(face, shortened, floor))
    return Block(lines=tuple(kept), size=floor, truncated=True)


def _rows(face: Face, size: float, *, height: float, leading: float) -> int:
    """Return how many lines have room, from the top of the first one's capitals to the last one's baseline."""
    if math.isinf(height):
        return sys.maxsize
    return max(1, 1 + int((height - face.cap_height / 1000 * size) / (size * leading) + 1e-6))


def _fit_one_line(face: Face, text: str, *, size: float, floor: float, width: float, tracking: float) -> Block:
    right_to_left = scripts.is_right_to_left(text)
    wide = width_of(face, text, size, tracking=tracking)
    if wide > width:
        # Widths grow with the size, so the size that fits is known without searching.
        size = max(floor, int(4 * size * width / wide) / 4)
        wide = width_of(face, text, size, tracking=tracking)
    truncated = wide > width
    if truncated:
        text = _with_ellipsis(face, text, size, width=width)
        wide = width_of(face, text, size, tracking=tracking)
    return Block(lines=(Line(text=text, width=wide, right_to_left=right_to_left),), size=size, truncated=truncated)


def _with_ellipsis(face: Face, text: str, size: float, *, width: float) -> str:
    room = width - width_of(face, ELLIPSIS, size)
    return _head_that_fits(face, text, size, width=room).rstrip(" ") + ELLIPSIS


def _balanced(face: Face, text: str, size: float, *, width: float, count: int, longest: float) -> list[Line]:
    """Return the same number of lines, in the narrowest measure that gives no more of them."""
    low, high = max(longest, width / 2), width
    for _ in range(_BALANCE_STEPS):
        middle = (low + high) / 2
        if len(break_lines(face, text, size, width=middle)) <= count:
            high = middle
        else:
            low = middle
    return break_lines(face, text, size, width=high)


# -- showing ------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Shown:
    """The PDF operators that show a line from where the text matrix stands, and the pages they need."""

    operators: str
    pages: frozenset[Page]


def show(face: Face, line: Line, size: float) -> Shown:
    """Return the operators that show *line*, glyph by glyph from left to right."""
    text = visual(line.text, right_to_left=line.right_to_left)
    items = _with_marks(face, text) if _MARKS.search(text) else _plain(face, text)
    return _joined(items, size, thicken=face.weight == "bold")


@attrs.frozen
class _Item:
    """A glyph, after a move of *before* thousandths to the right, *rise* thousandths above the line."""

    glyph: Glyph
    before: float = 0.0
    rise: float = 0.0


def _plain(face: Face, text: str) -> Iterator[_Item]:
    glyphs, kerning, previous = face.glyphs, face.kerning, ""
    for char in text:
        yield _Item(glyphs[char], kerning.get(previous + char, 0.0))
        previous = char


def _joined(items: Iterable[_Item], size: float, *, thicken: bool) -> Shown:
    """Write the items with as few operators as they need."""
    writer = _Writer(size, thicken=thicken)
    for item in items:
        writer.add(item)
    return writer.finish()


class _Writer:
    """Collects glyphs into strings, strings and moves into arrays, arrays and changes into operators."""

    def __init__(self, size: float, *, thicken: bool) -> None:
        self._size = size
        self._thicken = thicken
        self._out: list[str] = []
        self._array: list[str] = []
        self._codes = bytearray()
        self._page: Page | None = None
        self._pages: set[Page] = set()
        self._rise = 0.0

    def add(self, item: _Item) -> None:
        page = item.glyph.page
        if item.before:
            self._end_codes()
            self._array.append(number(-item.before))
        if page is not self._page or item.rise != self._rise:
            self._end_array()
            self._change(page, item.rise)
        self._codes.append(item.glyph.code)

    def finish(self) -> Shown:
        self._end_array()
        if self._rise:
            self._out.append("0 Ts")
        if self._thicken and self._page is not None and self._page.needs_thickening:
            self._out.append("0 Tr")
        return Shown(operators=" ".join(self._out), pages=frozenset(self._pages))

    def _change(self, page: Page, rise: float) -> None:
        if rise != self._rise:
            self._rise = rise
            self._out.append(f"{number(rise * self._size / 1000)} Ts")
        if page is not self._page:
            self._out.append(_font_change(page, self._page, self._size, thicken=self._thicken))
            self._page = page
            self._pages.add(page)

    def _end_codes(self) -> None:
        if self._codes:
            self._array.append(f"<{self._codes.hex()}>")
            self._codes.clear()

    def _end_array(self) -> None:
        self._end_codes()
        if self._array:
            # A move may stand alone here, before a change of font: an array may hold that too.
            self._out.append(f"[{''.join(self._array)}] TJ")
        self._array.clear()


def _font_change(page: Page, previous: Page | None, size: float, *, thicken: bool) -> str:
    was_thick = thicken and previous is not None and previous.needs_thickening
    change = f"/{page.resource} {number(size)} Tf"
    if thicken and page.needs_thickening and not was_thick:
        # Fill and outline: the bold that a font without a bold sister has.
        return f"2 Tr {number(size / 40)} w {change}"
    return f"0 Tr {change}" if was_thick and not page.needs_thickening else change


# -- marks that have no composed letter ---------------------------------------


def _with_marks(face: Face, text: str) -> list[_Item]:
    """Return the items of a line with accents or vowel points that have glyphs of their own.

    Each mark is centred on its letter; an accent above a tall letter, or above
    another accent, is raised until it clears it.
    """
    items: list[_Item] = []
    owed = 0.0
    for base, marks in _clusters(text):
        letter = face.glyphs[base]
        drawn = [_over(letter, face.glyphs[mark], mark) for mark in marks]
        if marks and scripts.belongs_to_next(marks[0]):
            pen = owed
            for glyph, (at, rise) in zip((face.glyphs[mark] for mark in marks), drawn, strict=True):
                items.append(_Item(glyph, at + pen, rise))
                pen = -(at + glyph.advance)
            items.append(_Item(letter, pen))
            owed = 0.0
            continue
        items.append(_Item(letter, owed))
        owed = 0.0
        pen = letter.advance
        for glyph, (at, rise) in zip((face.glyphs[mark] for mark in marks), drawn, strict=True):
            items.append(_Item(glyph, at - pen, rise))
            pen = at + glyph.advance
        owed = letter.advance - pen if marks else 0.0
    return items


def _clusters(text: str) -> Iterator[tuple[str, str]]:
    """Yield letters with the marks that sit on them, in a line that is in visual order."""
    base, marks, coming = "", "", ""
    for char in text:
        if scripts.is_mark(char) and scripts.belongs_to_next(char):
            coming += char
        elif scripts.is_mark(char):
            marks += char
        else:
            if base:
                yield base, marks
            base, marks, coming = char, coming, ""
    if base or marks or coming:
        yield base or " ", marks + coming


def _over(letter: Glyph, mark: Glyph, char: str) -> tuple[float, float]:
    """Return where *mark* goes: its place from the letter's left edge, and its rise."""
    left, bottom, right, top = letter.box
    mark_left, mark_bottom, mark_right, mark_top = mark.box
    at = round((left + right) / 2 - (mark_left + mark_right) / 2)
    if unicodedata.combining(char) == _ABOVE:
        return at, max(0.0, round(top + _MARK_GAP - mark_bottom))
    if unicodedata.combining(char) == _BELOW:
        return at, min(0.0, round(bottom - _MARK_GAP - mark_top))
    return at, 0.0


def number(value: float) -> str:
    """Write a number as PDF wants it: no exponent, no needless digits, the same everywhere."""
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
