"""Measures, breaks and shrinks text; pure functions of a face and a string.

All loops are bounded by the length of the text or by a constant: text that does
not fit is first set smaller down to a floor, then broken inside its words, then
cut off with an ellipsis. It never leaves its box and never takes for ever.

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
_BLANK_ENDS = re.compile("[^ ]* *")
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
    face: Face, text: str, size: float, *, width: float, at_blanks: bool = False, limit: int = sys.maxsize
) -> list[Line]:
    """Return *text* in lines of at most *width* points; line feeds in it end lines.

    A word that is wider than a line is broken inside. East Asian text may be broken
    between any two characters, unless *at_blanks* asks for blanks only. After *limit*
    lines the rest is left out: whoever has no room for it need not wait for it.
    """
    lines: list[Line] = []
    for paragraph in text.split("\n"):
        right_to_left = scripts.is_right_to_left(paragraph)
        filled = _filled(face, paragraph, size, width=width, at_blanks=at_blanks)
        for line in itertools.islice(filled, limit - len(lines)):
            bare = line.rstrip(" ")
            wide = width_of(face, bare, size)
            lines.append(Line(text=bare, width=wide, right_to_left=right_to_left, after=line[len(bare) :]))
        if lines:
            lines[-1] = attrs.evolve(lines[-1], after="\n")
        if len(lines) >= limit:
            break
    return lines


def rejoined(lines: Iterable[Line]) -> str:
    """Return the text that was broken into *lines*, without blanks at the ends of its paragraphs."""
    return "".join(line.text + line.after for line in lines).removesuffix("\n")


def _filled(face: Face, paragraph: str, size: float, *, width: float, at_blanks: bool) -> Iterator[str]:
    """Yield the lines of one paragraph, with the blanks at their ends; together they are the paragraph."""
    line, used = "", 0.0
    for piece in _BLANK_ENDS.findall(paragraph) if at_blanks else _pieces(paragraph):
        bare = piece.rstrip(" ")
        wide = width_of(face, bare, size)
        if line and used + wide > width:
            yield line
            line, used = "", 0.0
        if wide > width:
            *heads, bare = _chopped(face, bare, size, width=width)
            yield from heads
            wide = width_of(face, bare, size)
        blanks = piece[len(piece.rstrip(" ")) :]
        line += bare + blanks
        used += wide + width_of(face, blanks, size)
    yield line


def _chopped(face: Face, word: str, size: float, *, width: float) -> Iterator[str]:
    """Yield *word* in parts that fit, in time that grows with its length and no faster."""
    start = 0
    while start < len(word):
        end = _end_that_fits(face, word, size, start=start, width=width)
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


def _end_that_fits(face: Face, word: str, size: float, *, start: int = 0, width: float, tracking: float = 0.0) -> int:
    """Return where to end the part of *word* that begins at *start* and fits: at least one character with its marks.

    A word is broken after a hyphen or a slash if there is one, else anywhere.
    """
    used, end = 0.0, start
    for index in range(start, len(word)):
        used += (face.advances[word[index]] + tracking) * size / 1000
        if used > width and end > start:
            break
        if index + 1 == len(word) or not scripts.is_mark(word[index + 1]):
            end = index + 1
    end = max(end, start + 1)
    joint = max(word.rfind(sign, start, end) for sign in _BREAK_AFTER) + 1
    return joint if start < joint < end < len(word) else end


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
        tracking: extra space after each character, in thousandths of the size; single lines only.
        balanced: make the lines of a title about equally long.
    """
    if max_lines == 1:
        return _fit_one_line(face, text.replace("\n", " "), size=size, floor=floor, width=width, tracking=tracking)
    longest = max((width_of(face, word, 1.0) for word in text.split()), default=0.0)
    for step in range(_SHRINK_STEPS + 1):
        now = size - (size - floor) * step / _SHRINK_STEPS
        rows = _rows(face, now, max_lines, height=height, leading=leading)
        lines = break_lines(face, text, now, width=width, limit=rows + 1)
        # Shrinking goes before breaking a word.
        if len(lines) <= rows and (longest * now <= width or step == _SHRINK_STEPS):
            if balanced:
                lines = _balanced(face, text, now, width=width, count=len(lines), longest=longest * now)
            return Block(lines=tuple(lines), size=now)
    return _cut_off(face, text, floor, width=width, rows=_rows(face, floor, max_lines, height=height, leading=leading))


def _cut_off(face: Face, text: str, size: float, *, width: float, rows: int) -> Block:
    """Return the lines that have room, the last one with an ellipsis."""
    kept = break_lines(face, text, size, width=width, limit=rows + 1)[:rows]
    last = kept[-1]
    shortened = _with_ellipsis(face, last.text, size, width=width)
    kept[-1] = attrs.evolve(last, text=shortened, width=width_of(face, shortened, size))
    return Block(lines=tuple(kept), size=size, truncated=True)


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
        text = _with_ellipsis(face, text, size, width=width, tracking=tracking)
        wide = width_of(face, text, size, tracking=tracking)
    return Block(lines=(Line(text=text, width=wide, right_to_left=right_to_left),), size=size, truncated=truncated)


def _with_ellipsis(face: Face, text: str, size: float, *, width: float, tracking: float = 0.0) -> str:
    room = width - width_of(face, ELLIPSIS, size, tracking=tracking)
    return text[: _end_that_fits(face, text, size, width=room, tracking=tracking)].rstrip(" ") + ELLIPSIS


def _balanced(face: Face, text: str, size: float, *, width: float, count: int, longest: float) -> list[Line]:
    """Return the same number of lines, in the narrowest measure that gives no more of them.

    A title in East Asian characters is broken where its writer put a blank, if that
    takes no more lines.
    """
    at_blanks = longest <= width and _takes(face, text, size, width=width, at_blanks=True, count=count)
    low, high = max(longest if at_blanks else 0.0, width / 2), width
    for _ in range(_BALANCE_STEPS):
        middle = (low + high) / 2
        if _takes(face, text, size, width=middle, at_blanks=at_blanks, count=count):
            high = middle
        else:
            low = middle
    return break_lines(face, text, size, width=high, at_blanks=at_blanks)


def _takes(face: Face, text: str, size: float, *, width: float, at_blanks: bool, count: int) -> bool:
    """Tell whether *text* takes at most *count* lines of this width."""
    return len(break_lines(face, text, size, width=width, at_blanks=at_blanks, limit=count + 1)) <= count


def from_the_right(line: Line) -> Line:
    """Return *line* as a language that is read from the right has it: its figures and signs run that way too."""
    if not line.right_to_left and scripts.is_neutral(line.text):
        return attrs.evolve(line, right_to_left=True)
    return line
