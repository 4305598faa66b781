"""Measures, breaks and shrinks text; pure functions of a face and a string.

All loops are bounded by the length of the text or by a constant: text that does
not fit is first set smaller down to a floor, then broken inside its words, then
cut off with an ellipsis, which keeps whatever has room beside it. It never leaves
its box and never takes for ever.

Strings given to this module are drawable (see `text`): every character but the
line feed has a glyph.
"""

import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator

import attrs

from stagedoor_renderers.kit import scripts
from stagedoor_renderers.kit.faces import Face

ELLIPSIS = "…"

_SHRINK_STEPS = 8
_BALANCE_STEPS = 6
_LINES_THAT_FILL_UP = 2
"""A broken word fills half of its line or more, so the beginnings of this many lines fill one."""
_BLANK_ENDS = re.compile("[^ ]* *")
_WORD_ENDS = re.compile("[ \n]+")
_BREAK_AFTER = "-‐–—/"
_EAST_ASIAN = re.compile("[\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef]")
_NEVER_FIRST = "、。，．・：；？！）」』】〉》〕］｝ーぁぃぅぇぉっゃゅょァィゥェォッャュョ々…%,.!?:;)]}’”»"
_NEVER_LAST = "（「『【〈《〔［｛([{‘“«"


@attrs.frozen(kw_only=True)
class Line:
    """One line in the order of reading, and the way its paragraph runs.

    *after* is what stood between this line and the next: a line feed, blanks, or
    nothing where a word was broken.
    """

    text: str
    width: float
    right_to_left: bool = False
    after: str = "\n"


@attrs.frozen(kw_only=True)
class Block:
    """Text that has been set: its lines, the size that it took, and whether some of it was cut off."""

    lines: tuple[Line, ...]
    size: float
    truncated: bool = False


# -- measuring ----------------------------------------------------------------


def width_of(face: Face, text: str, size: float, *, tracking: float = 0.0) -> float:
    """Return how wide *text* is, in points.

    Args:
        face: the face that it is set in.
        text: drawable text.
        size: of the type, in points.
        tracking: extra space after every character, in thousandths of the size.
    """
    total = sum(map(face.advances.__getitem__, text))
    kerning = face.kerning
    for pair in map("".join, itertools.pairwise(text)):
        if pair in kerning:
            total += kerning[pair]
    return (total + tracking * len(text)) * size / 1000


# -- breaking -----------------------------------------------------------------


def break_lines(
    face: Face,
    text: str,
    size: float,
    *,
    width: float,
    tracking: float = 0.0,
    at_blanks: bool = False,
    limit: int = sys.maxsize,
) -> list[Line]:
    """Return *text* in lines of at most *width* points; line feeds in it end lines.

    A word that is wider than a line is broken inside. East Asian text may be broken
    between any two characters, unless *at_blanks* asks for blanks only. After *limit*
    lines the rest is left out: whoever has no room for it need not wait for it.
    """
    return _Ruler(face, size, tracking).lines_of(text, width=width, at_blanks=at_blanks, limit=limit)


def rejoined(lines: Iterable[Line]) -> str:
    """Return the text that was broken into *lines*, without blanks at the ends of its paragraphs."""
    return "".join(line.text + line.after for line in lines).removesuffix("\n")


@attrs.frozen
class _Ruler:
    """Measures text of one face, size and tracking."""

    face: Face
    size: float
    tracking: float

    def width_of(self, text: str) -> float:
        return width_of(self.face, text, self.size, tracking=self.tracking)

    def lines_of(self, text: str, *, width: float, at_blanks: bool = False, limit: int = sys.maxsize) -> list[Line]:
        """Do as `break_lines`."""
        lines: list[Line] = []
        for paragraph in text.split("\n"):
            right_to_left = scripts.is_right_to_left(paragraph)
            filled = _filled(self, paragraph, width=width, at_blanks=at_blanks)
            for line in itertools.islice(filled, limit - len(lines)):
                bare = line.rstrip(" ")
                wide = self.width_of(bare)
                lines.append(Line(text=bare, width=wide, right_to_left=right_to_left, after=line[len(bare) :]))
            if lines:
                lines[-1] = attrs.evolve(lines[-1], after="\n")
            if len(lines) >= limit:
                break
        return lines

    def end_that_fits(self, text: str, *, start: int = 0, width: float) -> int:
        """Return where to end the part of *text* that begins at *start* and fits: a letter with its marks at least."""
        advances, kerning = self.face.advances, self.face.kerning
        used, end, previous = 0.0, start, ""
        for index in range(start, len(text)):
            char = text[index]
            used += (advances[char] + kerning.get(previous + char, 0.0) + self.tracking) * self.size / 1000
            previous = char
            if used > width and end > start:
                break
            if index + 1 == len(text) or not scripts.is_mark(text[index + 1]):
                end = index + 1
        return max(end, start + 1)


def _filled(ruler: _Ruler, paragraph: str, *, width: float, at_blanks: bool) -> Iterator[str]:
    """Yield the lines of one paragraph, with the blanks at their ends; together they are the paragraph."""
    line, used = "", 0.0
    for piece in _BLANK_ENDS.findall(paragraph) if at_blanks else _pieces(paragraph):
        bare = piece.rstrip(" ")
        wide = ruler.width_of(bare)
        if line and used + wide > width:
            yield line
            line, used = "", 0.0
        if wide > width:
            *heads, bare = _chopped(ruler, bare, width=width)
            yield from heads
            wide = ruler.width_of(bare)
        blanks = piece[len(piece.rstrip(" ")) :]
        line += bare + blanks
        used += wide + ruler.width_of(blanks)
    yield line


def _chopped(ruler: _Ruler, word: str, *, width: float) -> Iterator[str]:
    """Yield *word* in parts that fit, in time that grows with its length and no faster.

    It is broken after a hyphen or a slash if that fills at least half of the line, else anywhere.
    """
    start = 0
    while start < len(word):
        end = ruler.end_that_fits(word, start=start, width=width)
        joint = max(word.rfind(sign, start, end) for sign in _BREAK_AFTER) + 1
        if end < len(word) and start + end <= 2 * joint and not scripts.is_mark(word[joint]):
            end = joint
        yield word[start:end]
        start = end


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
    if before in _NEVER_LAST or after in _NEVER_FIRST:
        return False
    return _EAST_ASIAN.match(before) is not None or _EAST_ASIAN.match(after) is not None


def words_of(text: str) -> list[str]:
    """Return the words of *text*: a space that does not break keeps its neighbours together."""
    return _WORD_ENDS.split(text)


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
        tracking: extra space after each character, in thousandths of the size.
        balanced: make the lines of a title about equally long.
    """
    if max_lines == 1:
        return _fit_one_line(face, text.replace("\n", " "), size=size, floor=floor, width=width, tracking=tracking)
    longest = max(width_of(face, word, 1.0, tracking=tracking) for word in words_of(text))
    for ruler in _shrinking(_Ruler(face, size, tracking), floor):
        rows = _rows(face, ruler.size, max_lines, height=height, leading=leading)
        lines = ruler.lines_of(text, width=width, limit=rows + 1)
        # Shrinking goes before breaking a word.
        if len(lines) <= rows and (longest * ruler.size <= width or ruler.size == floor):
            if balanced:
                lines = _balanced(ruler, text, width=width, count=len(lines), longest=longest * ruler.size)
            return Block(lines=tuple(lines), size=ruler.size)
    rows = _rows(face, floor, max_lines, height=height, leading=leading)
    return _cut_off(_Ruler(face, floor, tracking), text, width=width, rows=rows)


def _shrinking(ruler: _Ruler, floor: float) -> Iterator[_Ruler]:
    """Yield rulers of smaller and smaller type, *floor* last."""
    for step in range(_SHRINK_STEPS):
        yield attrs.evolve(ruler, size=ruler.size - (ruler.size - floor) * step / _SHRINK_STEPS)
    yield attrs.evolve(ruler, size=floor)


def _cut_off(ruler: _Ruler, text: str, *, width: float, rows: int) -> Block:
    """Return the lines that have room, the last one filled up and ended with an ellipsis."""
    lines = ruler.lines_of(text, width=width, limit=rows + _LINES_THAT_FILL_UP)
    rest, _, _ = rejoined(lines[rows - 1 :]).partition("\n")
    shortened = _with_ellipsis(ruler, rest, width=width)
    last = attrs.evolve(lines[rows - 1], text=shortened, width=ruler.width_of(shortened))
    return Block(lines=(*lines[: rows - 1], last), size=ruler.size, truncated=True)


def _rows(face: Face, size: float, most: int, *, height: float, leading: float) -> int:
    """Return how many lines have room, from the top of the first one's capitals to the last one's baseline."""
    if math.isinf(height):
        return most
    return min(most, max(1, 1 + int((height - face.cap_height / 1000 * size) / (size * leading) + 1e-6)))


def _fit_one_line(face: Face, text: str, *, size: float, floor: float, width: float, tracking: float) -> Block:
    right_to_left = scripts.is_right_to_left(text)
    wide = width_of(face, text, size, tracking=tracking)
    if wide > width:
        # Widths grow with the size, so the size that fits is known without searching.
        size = max(floor, int(4 * size * width / wide) / 4)
        wide = width_of(face, text, size, tracking=tracking)
    truncated = wide > width
    if truncated:
        ruler = _Ruler(face, size, tracking)
        text = _with_ellipsis(ruler, text, width=width)
        wide = ruler.width_of(text)
    return Block(lines=(Line(text=text, width=wide, right_to_left=right_to_left),), size=size, truncated=truncated)


def _with_ellipsis(ruler: _Ruler, text: str, *, width: float) -> str:
    """Return as much of *text* as has room, with an ellipsis: it may end after any letter."""
    if ruler.width_of(text + ELLIPSIS) <= width:
        return text + ELLIPSIS
    room = width - ruler.width_of(ELLIPSIS)
    return text[: ruler.end_that_fits(text, width=room)].rstrip(" ") + ELLIPSIS


def _balanced(ruler: _Ruler, text: str, *, width: float, count: int, longest: float) -> list[Line]:
    """Return the same number of lines, in the narrowest measure that gives no more of them.

    A title in East Asian characters is broken where its writer put a blank, if that
    takes no more lines.
    """
    at_blanks = longest <= width and _takes(ruler, text, width=width, at_blanks=True, count=count)
    low, high = max(longest if at_blanks else 0.0, width / 2), width
    for _ in range(_BALANCE_STEPS):
        middle = (low + high) / 2
        if _takes(ruler, text, width=middle, at_blanks=at_blanks, count=count):
            high = middle
        else:
            low = middle
    return ruler.lines_of(text, width=high, at_blanks=at_blanks)


def _takes(ruler: _Ruler, text: str, *, width: float, at_blanks: bool, count: int) -> bool:
    """Tell whether *text* takes at most *count* lines of this width."""
    return len(ruler.lines_of(text, width=width, at_blanks=at_blanks, limit=count + 1)) <= count


def from_the_right(line: Line) -> Line:
    """Return *line* as a language that is read from the right has it: its figures and signs run that way too."""
    if not line.right_to_left and scripts.is_neutral(line.text):
        return attrs.evolve(line, right_to_left=True)
    return line
