"""Shows a line: the PDF operators that draw it, glyph by glyph from left to right."""

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator

import attrs

from stagedoor_renderers.kit import scripts
from stagedoor_renderers.kit.direction import visual
from stagedoor_renderers.kit.faces import Face, Glyph
from stagedoor_renderers.kit.pages import Page
from stagedoor_renderers.kit.pen import number
from stagedoor_renderers.kit.text import spoken
from stagedoor_renderers.kit.typeset import Line

_ABOVE, _BELOW = 230, 220
"""Unicode's combining classes of accents above and below a letter."""
_MARK_GAP = 40
"""Between a letter and its accent, in thousandths of the size."""
_MARKS = re.compile(
    f"[{scripts.SEAM}\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u3099\u309a\ufb1e]"
)


@attrs.frozen(kw_only=True)
class Shown:
    """The PDF operators that show a line from where the text matrix stands, and the pages they need.

    *says* is the line's text where programs that extract it could not tell: where
    glyphs were moved about to put accents onto letters.
    """

    operators: str
    pages: tuple[Page, ...]
    is_thickened: bool = False
    says: str = ""


def show(face: Face, line: Line, size: float) -> Shown:
    """Return the operators that show *line*, glyph by glyph from left to right."""
    text = visual(line.text, right_to_left=line.right_to_left)
    seen = scripts.unmarked(line.text)
    # From figures alone nobody can tell that they are read from the right.
    turned = seen if text != seen and not scripts.has_right_to_left(seen) else ""
    if face.home.has_all(text):
        return attrs.evolve(_show_on_one_page(face, text, size), says=turned)
    if _MARKS.search(text) is None:
        items, are_moved = list(_plain(face, text)), False
    else:
        items, are_moved = _with_marks(face, text)
    # What is read from the right is put into its order by whoever extracts it, said or shown;
    # said, it is put so twice.
    says = spoken(seen) if are_moved and not line.right_to_left else turned
    return attrs.evolve(_joined(items, size, thicken=face.weight == "bold"), says=says)


def _show_on_one_page(face: Face, text: str, size: float) -> Shown:
    """Do the same for a line of which all is on the first page: most lines of most tickets."""
    if not text:
        return Shown(operators="", pages=())
    codes = face.home.codes(text).hex()
    array: list[str] = []
    start = 0
    kerning = face.kerning
    for index, pair in enumerate(map("".join, itertools.pairwise(text)), start=1):
        if pair in kerning:
            array.append(f"<{codes[2 * start : 2 * index]}>{-kerning[pair]:g}")
            start = index
    array.append(f"<{codes[2 * start :]}>")
    page = face.home.page
    return Shown(operators=f"/{page.resource} {number(size)} Tf [{''.join(array)}] TJ", pages=(page,))


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
        self._pages: dict[Page, None] = {}
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
        thick = self._thicken and any(page.needs_thickening for page in self._pages)
        return Shown(operators=" ".join(self._out), pages=tuple(self._pages), is_thickened=thick)

    def _change(self, page: Page, rise: float) -> None:
        if rise != self._rise:
            self._rise = rise
            self._out.append(f"{number(rise * self._size / 1000)} Ts")
        if page is not self._page:
            self._out.append(_font_change(page, self._page, self._size, thicken=self._thicken))
            self._page = page
            self._pages[page] = None

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


def _with_marks(face: Face, text: str) -> tuple[list[_Item], bool]:
    """Return the items of a line with accents or points, and whether any of them had to be moved.

    What is written from the right has its points on the letter's own glyph (see `pointing`).
    Any other mark is centred on its letter; an accent above a tall letter, or above
    another accent, is raised until it clears it.
    """
    clusters = list(_clusters(text))
    pointed = face.pointed(frozenset(marks + base for base, marks in clusters if _is_pointed(marks)))
    items: list[_Item] = []
    owed = 0.0
    are_moved = False
    for base, marks in clusters:
        letter = pointed.get(marks + base) or face.glyphs[base]
        items.append(_Item(letter, owed))
        owed = 0.0
        if not marks or marks + base in pointed:
            continue
        are_moved = True
        pen = letter.advance
        for mark in marks.replace(scripts.SEAM, ""):
            glyph = face.glyphs[mark]
            at, rise = _over(letter, glyph, mark)
            items.append(_Item(glyph, at - pen, rise))
            pen = at + glyph.advance
        owed = letter.advance - pen
    return items, are_moved


def _is_pointed(marks: str) -> bool:
    return bool(marks) and scripts.belongs_to_next(marks[0])


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
