"""From what a buyer typed to what can be drawn: the one way that text takes.

`cleaned` makes text harmless and unambiguous: composed (NFC), without control
characters, without marks that are invisible or turn the direction of what
follows. `drawable` puts joined Arabic forms in place and a visible mark where no
font has a glyph. After line breaking, `direction` puts each line into the order in
which its glyphs stand on paper.

There is no markup anywhere on this way: a less-than sign is a less-than sign.
"""

import itertools
import re
import unicodedata
from collections.abc import Container

import arabic_reshaper
import attrs

from stagedoor_renderers.kit import scripts

_LINE_ENDS = re.compile(r"\r\n|[\r\n\x0b\x0c\x85\u2028\u2029]")
_BLANKS = re.compile(r"[\t\x1f]")
_INVISIBLE = re.compile(
    "["
    "\x00-\x09\x0b-\x1f\x7f-\x9f"  # C0 and C1, all but the line feed
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners and fillers
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"  # zero width, direction marks, overrides, isolates
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb"  # variation selectors, byte order mark, annotations
    "\U000e0000-\U000e0fff\U0001d173-\U0001d17a"  # tags, more selectors, musical controls
    "]"
)
# ESC and what follows it, as terminals understand it: without this "[31m" would stay behind.
_TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_JOINERS = re.compile(r"(?<![\u0620-\u06ff])[\u200c\u200d]|[\u200c\u200d](?![\u0620-\u06ff])")
_WITHOUT_GLYPHS = "\n" + scripts.SEAM + scripts.DIRECTION_MARKS
_ARABIC = re.compile(r"[\u0620-\u06ff]")
_PRESENTATION_FORMS = re.compile(r"[\ufb50-\ufdff\ufe70-\ufefc]+")

_RESHAPER = arabic_reshaper.ArabicReshaper(
    {
        "language": "Arabic",
        "delete_harakat": False,
        "delete_tatweel": False,
        "support_zwj": True,
        # The one ligature that no Arabic text can do without is made here: theirs mixes up the points.
        "support_ligatures": False,
    }
)
_POINTS = "[\u064b-\u065f\u0670]*"
_LAM_ALEF = re.compile(f"([\ufedf\ufee0])({_POINTS})([\ufe82\ufe84\ufe88\ufe8e])")
_JOINERS_BEFORE_POINTS = re.compile("([\u200c\u200d]+)([\u064b-\u065f\u0670]+)")
_LIGATURES = dict(
    zip(
        itertools.product("\ufe82\ufe84\ufe88\ufe8e", "\ufedf\ufee0"),
        "\ufef5\ufef6\ufef7\ufef8\ufef9\ufefa\ufefb\ufefc",
        strict=True,
    )
)
"""By the alef, with or without its signs, and the lam, which is joined to what is before it or not."""
_SEAMS = re.compile(f"([\ufef5-\ufefc])({_POINTS}){scripts.SEAM}")


@attrs.frozen
class Drawable:
    """Text of which every character has a glyph; *missing* are the ones that had none."""

    text: str
    missing: tuple[str, ...] = ()


def cleaned(text: str) -> str:
    """Return *text* composed, with line feeds as its only line ends and nothing invisible in it.

    Two spellings of one text (NFC, NFD) come out as one.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _TERMINAL.sub("", text)
    text = _BLANKS.sub(" ", _LINE_ENDS.sub("\n", text))
    # Somebody may have typed joined forms; the letters are what they mean.
    text = _PRESENTATION_FORMS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    text = _JOINERS.sub(_joiner_of_a_picture, text)
    return unicodedata.normalize("NFC", _INVISIBLE.sub("", text))


def _joiner_of_a_picture(match: re.Match[str]) -> str:
    """Keep the joiner inside an emoji sequence, for `drawable` counts those as one; drop all others."""
    before = match.string[match.start() - 1 : match.start()]
    return match[0] if before > "\u2190" and match[0] == "\u200d" and match.end() < len(match.string) else ""


def one_line(text: str) -> str:
    """Return *text* cleaned, on one line."""
    return cleaned(text).replace("\n", " ").strip()


def drawable(text: str, glyphs: Container[str]) -> Drawable:
    """Return cleaned *text* with a glyph for every character: joined forms, and marks for what is missing."""
    if _ARABIC.search(text):
        # The reshaper would give a point behind a joiner to the next letter.
        text = _RESHAPER.reshape(_JOINERS_BEFORE_POINTS.sub(r"\2\1", text)).replace("\u200c", "")
        text = _LAM_ALEF.sub(_ligature, text)
    if all(char in glyphs or char in _WITHOUT_GLYPHS for char in text):
        return Drawable(text)
    missing: list[str] = []

    def picture(match: re.Match[str]) -> str:
        if all(char in glyphs for char in match[0]):
            return match[0]
        missing.append(match[0])
        return scripts.REPLACEMENT

    text = scripts.EMOJI_SEQUENCE.sub(picture, text)
    shown: list[str] = []
    for char in text.replace("\u200d", ""):
        known = char in glyphs or char in _WITHOUT_GLYPHS
        shown.append(char if known else scripts.REPLACEMENT)
        if not known:
            missing.append(char)
    return Drawable("".join(shown), tuple(missing))


def _ligature(match: re.Match[str]) -> str:
    """Join lam and alef; the points of the lam are told from those of the alef, which follow."""
    lam, points, alef = match.groups()
    return _LIGATURES[alef, lam] + (points + scripts.SEAM if points else "")


def spoken(text: str) -> str:
    """Return the letters and points that were typed for *text*, which is drawable."""
    return _PRESENTATION_FORMS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), _SEAMS.sub(_parted, text))


def _parted(match: re.Match[str]) -> str:
    ligature, points = match.groups()
    letters = unicodedata.normalize("NFKC", ligature)
    return letters[0] + points + letters[1:]


def warm_up() -> None:
    """Have the reshaper build its tables, in one thread."""
    drawable("\u0644\u0627\u0645 \u0628\u064a\u062a", frozenset())
