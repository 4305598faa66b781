"""Which writing can be set without a shaping engine, and which cannot.

The fonts have glyphs for more than can be set well: a Devanagari or Thai word
is not its characters one after the other. Such scripts are left out on purpose,
so that they follow the one policy for what cannot be drawn, and are never
silently wrong.
"""

import re
import unicodedata

REPLACEMENT = "\ufffd"
"""The visible mark for what no font here can draw."""

SEAM = "\u034f"
"""Between the points of a ligature's two letters; cleaned text never has this joiner."""

DIRECTION_MARKS = "\u200e\u200f"
"""They order the signs of an amount as its language means them, and are not drawn; cleaned text never has any."""

_UNMARKED = str.maketrans("", "", DIRECTION_MARKS)

_NEEDS_SHAPING = (
    (0x0700, 0x08FF),  # Syriac, Thaana, N'Ko, Samaritan, Mandaic, Arabic extensions without joined forms
    (0x0900, 0x0DFF),  # Devanagari to Sinhala
    (0x0E00, 0x109F),  # Thai, Lao, Tibetan, Myanmar
    (0x1100, 0x11FF),  # Hangul letters that make no modern syllable (NFC has composed the others)
    (0x1700, 0x18AF),  # the Philippines' scripts, Khmer, Mongolian
    (0x1900, 0x1CFF),  # Limbu to Vedic
    (0x20D0, 0x20FF),  # enclosing marks: keycaps and the like
    (0x2DE0, 0x2DFF),  # Cyrillic letters above others
    (0xA800, 0xABFF),  # Syloti Nagri to Meetei Mayek
    (0xD7B0, 0xD7FF),  # more Hangul letters
    (0x10000, 0x1D3FF),  # historic scripts, notation
    (0x1F1E6, 0x1F1FF),  # flags are pairs of these
    (0x1F3FB, 0x1F3FF),  # skin tones
)

_ARABIC_LETTERS = (
    (0x0620, 0x063F),
    (0x0641, 0x064A),
    (0x066E, 0x06D3),
    (0x06D5, 0x06D5),
    (0x06EE, 0x06EF),
    (0x06FA, 0x06FF),
)
"""Never drawn as they are: the text pipeline puts joined forms in their place, or the mark."""

_PLAIN = ((0x0041, 0x005A), (0x0061, 0x007A), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3))
"""Letters, Han and Hangul: most of what fonts have, and never in question."""

_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")

EMOJI_SEQUENCE = re.compile(
    r"[\U0001f1e6-\U0001f1ff]{2}"
    r"|[\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
    r"(?:[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]|\u200d[\u2190-\u2bff\U0001f000-\U0001faff])*"
)
"""One picture, however many code points it takes."""


def may_be_drawn(code: int) -> bool:
    """Tell whether showing the glyph of *code* alone shows what its writer meant."""
    if any(first <= code <= last for first, last in _PLAIN):
        return True
    if any(first <= code <= last for first, last in (*_NEEDS_SHAPING, *_ARABIC_LETTERS)):
        return False
    return unicodedata.category(chr(code)) not in ("Cc", "Cf", "Cs", "Co", "Cn")


def has_right_to_left(text: str) -> bool:
    """Tell whether any character of *text* is written from right to left."""
    return _RIGHT_TO_LEFT.search(text) is not None


def is_right_to_left(text: str) -> bool:
    """Tell which way a paragraph runs: by its first character that has a direction."""
    for char in text:
        direction = unicodedata.bidirectional(char)
        if direction in ("R", "AL"):
            return True
        if direction == "L":
            return False
    return False


def is_neutral(text: str) -> bool:
    """Tell whether nothing in *text* has a direction of its own: figures, signs and blanks."""
    return not any(unicodedata.bidirectional(char) in ("L", "R", "AL") for char in text)


def unmarked(text: str) -> str:
    """Return *text* without marks of direction: what is seen of it."""
    return text.translate(_UNMARKED)


def is_mark(char: str) -> bool:
    """Tell whether *char* sits on its neighbour: an accent, a vowel point."""
    return unicodedata.category(char) == "Mn"


def belongs_to_next(mark: str) -> bool:
    """Tell whether, in a line in visual order, *mark* comes before its letter: so it is from right to left."""
    return mark == SEAM or _RIGHT_TO_LEFT.match(mark) is not None
