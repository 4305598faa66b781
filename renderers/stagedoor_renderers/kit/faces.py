"""The fonts, cut once into fixed pages of glyphs that documents embed whole.

A PDF shows text through fonts of at most 256 characters. ReportLab cuts such a
subset for every document, from a face that all threads share; here, what is on
which page is fixed when the fonts are loaded, and each page is cut and
compressed once, when the first document needs it. A document embeds the pages
that it uses, byte by byte as they are. That takes the race out (a page is a pure
function of the font, and cut under a lock of its own), makes documents the same
everywhere, and is where most of the speed comes from. There are over 200 pages,
most of them Han and Hangul: cutting all of them at start took longer than
everything else, for pages that most theatres never print.

A page has at most 223 characters, the codes 33 to 255; code 32 is the space in
every page. The first pages of Latin hold what belongs together, so that a
ticket in one language needs one page, seldom two.
"""

import hashlib
import importlib.resources
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Literal

import attrs

from stagedoor_renderers.kit import scripts
from stagedoor_renderers.kit.memory import Remembered
from stagedoor_renderers.kit.pages import FIRST_CODE, PAGE_SIZE, Page, meaning_of
from stagedoor_renderers.kit.pointing import pointed_page
from stagedoor_renderers.kit.sfnt import FontError, TrueType, read_truetype

Weight = Literal["regular", "bold"]

_EAST_ASIA = ("\u4e00", "\ud7a3")
_POINTED_LINES = 1024
_NO_BREAK_SPACES = "\u00a0\u202f"


@attrs.frozen(kw_only=True)
class FontFile:
    """One font that ships, and the part it plays."""

    path: str
    letter: str
    weights: tuple[Weight, ...]


SHIPPED = (
    FontFile(path="lato/Lato-Regular.ttf", letter="L", weights=("regular",)),
    FontFile(path="lato/Lato-Bold.ttf", letter="M", weights=("bold",)),
    FontFile(path="dejavu/DejaVuSans.ttf", letter="D", weights=("regular",)),
    FontFile(path="dejavu/DejaVuSans-Bold.ttf", letter="E", weights=("bold",)),
    FontFile(path="droid/DroidSansFallback.ttf", letter="C", weights=("regular", "bold")),
)
"""In the order in which they are asked for a character."""

_MUST_COVER = (
    "Ağrı Đặng Šimková Řehoř Łódź Ørsted Þór ß €"  # Latin
    "Αθήνα Москва Україна Երևան თბილისი"  # Greek, Cyrillic, Armenian, Georgian
    "שלום\ufedf\ufee0\ufee2\ufee1\ufbfe"  # Hebrew; Arabic and Persian in joined forms
    "山田太郎北京臺灣さくらカタカナ서울"  # Han, kana, Hangul
) + scripts.REPLACEMENT
"""A fonts folder that lacks any of these is not the one that was shipped."""


@attrs.frozen(eq=False)
class Glyph:
    """One character of a face: where it is, how wide it is, and its outline's box.

    *advance* (as the PDF states it) and *box* (left, bottom, right, top) are
    thousandths of the type size.
    """

    page: Page
    code: int
    advance: float
    box: tuple[float, float, float, float]


class Home:
    """The page that holds all of most lines, and a quick way to its codes."""

    def __init__(self, page: Page, glyphs: Mapping[str, Glyph]) -> None:
        on_page = {char: glyph.code for char, glyph in glyphs.items() if glyph.page is page}
        self.page = page
        self._codes = {ord(char): code for char, code in on_page.items()}
        self._pattern = re.compile(f"[{re.escape(''.join(sorted(on_page)))}]*")

    def has_all(self, text: str) -> bool:
        """Tell whether every character of *text* is on this page."""
        return self._pattern.fullmatch(text) is not None

    def codes(self, text: str) -> bytes:
        """Return the codes of *text*, all of which is on this page."""
        return text.translate(self._codes).encode("latin-1")


@attrs.frozen(kw_only=True, eq=False)
class Face:
    """One weight: a glyph for every character that can be drawn, from whichever font has it."""

    weight: Weight
    glyphs: Mapping[str, Glyph] = attrs.field(repr=False)
    advances: Mapping[str, float] = attrs.field(repr=False)
    kerning: Mapping[str, float] = attrs.field(repr=False)
    ascent: float
    descent: float
    cap_height: float
    home: Home = attrs.field(init=False, repr=False)
    _pointed: Callable[[frozenset[str]], Mapping[str, Glyph]] = attrs.field(init=False, repr=False)

    @home.default
    def _home(self) -> Home:
        return Home(self.glyphs["a"].page, self.glyphs)

    @_pointed.default
    def _remembered(self) -> Callable[[frozenset[str]], Mapping[str, Glyph]]:
        # A pure function: remembering it saves the time of cutting such a page anew.
        return Remembered(self._pointed_now, _POINTED_LINES)

    def pointed(self, clusters: frozenset[str]) -> Mapping[str, Glyph]:
        """Return glyphs of letters with their points, as far as one font has all of each; see `pointing`."""
        return self._pointed(clusters) if clusters else {}

    def _pointed_now(self, clusters: frozenset[str]) -> Mapping[str, Glyph]:
        by_font: dict[str, list[str]] = {}
        for cluster in clusters:
            letters = {self.glyphs[char].page.resource[0] for char in cluster if char != scripts.SEAM}
            if len(letters) == 1:
                by_font.setdefault(letters.pop(), []).append(cluster)
        found: dict[str, Glyph] = {}
        for letter, members in by_font.items():
            page, codes = pointed_page(self.glyphs[members[0][-1]].page.font, letter, members)
            for cluster, code in codes.items():
                alone = self.glyphs[cluster[-1]]
                found[cluster] = Glyph(page, code, alone.advance, alone.box)
        return found


@attrs.frozen(kw_only=True, eq=False)
class Faces:
    """Both weights, and a hash of the files that they were cut from."""

    regular: Face
    bold: Face
    fingerprint: str
    common: frozenset[str] = attrs.field(init=False, repr=False)

    @common.default
    def _common(self) -> frozenset[str]:
        """Return the characters that both weights have."""
        return frozenset(self.regular.glyphs.keys() & self.bold.glyphs.keys())

    def __getitem__(self, weight: Weight) -> Face:
        return self.bold if weight == "bold" else self.regular


def load_faces(folder: Traversable | None = None, *, files: Sequence[FontFile] = SHIPPED) -> Faces:
    """Read and check the fonts, and share out their characters on pages; takes about half a second.

    Args:
        folder: where the font files are; those of this package when None.
        files: the fonts, in the order in which they are asked for a character.

    Raises:
        FontError: a font is missing, has the wrong kind of outlines, may not be
            embedded, or the fonts together lack characters that they should have.
            Names the file.
    """
    root = folder or importlib.resources.files("stagedoor_renderers") / "fonts"
    digest = hashlib.sha256()
    loaded: list[tuple[FontFile, TrueType]] = []
    for file in files:
        data = _bytes_of(root / file.path, file.path)
        digest.update(hashlib.sha256(data).digest())
        loaded.append((file, read_truetype(data, file.path)))
    cut_already: dict[str, Mapping[str, Glyph]] = {}
    regular, bold = (_face(weight, loaded, cut_already) for weight in ("regular", "bold"))
    return Faces(regular=regular, bold=bold, fingerprint=digest.hexdigest())


def _bytes_of(file: Traversable, name: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise FontError(f"font file {name} cannot be read: {error}; install stagedoor-renderers again") from error


def _face(
    weight: Weight, loaded: Sequence[tuple[FontFile, TrueType]], cut_already: dict[str, Mapping[str, Glyph]]
) -> Face:
    chain = [(file, font) for file, font in loaded if weight in file.weights]
    if not chain:
        raise FontError(f"no font file for the weight {weight}")
    glyphs: dict[str, Glyph] = {}
    for file, font in chain:
        if file.letter not in cut_already:
            # A font that serves both weights is cut once, with all that it has:
            # what the fonts before it lack is not the same in both weights.
            covered = glyphs if len(file.weights) == 1 else {}
            wanted = [chr(code) for code in font.cmap if chr(code) not in covered and scripts.may_be_drawn(code)]
            cut_already[file.letter] = _cut_all(file, font, wanted)
        glyphs |= {char: glyph for char, glyph in cut_already[file.letter].items() if char not in glyphs}
    missing = [char for char in _MUST_COVER if char not in glyphs]
    if missing:
        names = ", ".join(file.path for file, _ in chain)
        raise FontError(f"the font files {names} lack {' '.join(f'U+{ord(char):04X}' for char in missing)}")
    first = chain[0][1]
    scale = 1000 / first.units_per_em
    return Face(
        weight=weight,
        glyphs=glyphs,
        # A mark takes no room of its own: typesetting puts it onto its letter.
        advances={char: 0.0 if scripts.is_mark(char) else glyph.advance for char, glyph in glyphs.items()}
        | dict.fromkeys(scripts.SEAM + scripts.DIRECTION_MARKS, 0.0),
        kerning=_kerning(first),
        ascent=first.ascent * scale,
        descent=first.descent * scale,
        cap_height=first.cap_height * scale,
    )


def _kerning(font: TrueType) -> Mapping[str, float]:
    """Return kerning by pairs of characters, in thousandths of the type size."""
    chars: dict[int, list[str]] = {}
    for code, glyph in font.cmap.items():
        chars.setdefault(glyph, []).append(chr(code))
    scale = 1000 / font.units_per_em
    return {
        left + right: round(value * scale, 1)
        for (first, second), value in font.kerning.items()
        for left in chars.get(first, ())
        for right in chars.get(second, ())
    }


# -- cutting a font into pages ------------------------------------------------


def _cut_all(file: FontFile, font: TrueType, wanted: Iterable[str]) -> Mapping[str, Glyph]:
    glyphs: dict[str, Glyph] = {}
    for index, chars in enumerate(_pages(sorted(set(wanted) - {" "}))):
        page = _page(file, font, index=index, chars=chars)
        for offset, char in enumerate(chars):
            glyphs[char] = _glyph(font, page, char, code=FIRST_CODE + offset)
        if " " in wanted and " " not in glyphs:
            glyphs[" "] = _glyph(font, page, " ", code=32)
    return glyphs


def _pages(chars: Sequence[str]) -> Iterator[list[str]]:
    """Split sorted *chars* into pages: groups of characters that are used together stay together."""
    groups: dict[int, list[str]] = {}
    for char in chars:
        groups.setdefault(_group(char), []).append(char)
    for _, members in sorted(groups.items()):
        for start in range(0, len(members), PAGE_SIZE):
            yield members[start : start + PAGE_SIZE]


def _group(char: str) -> int:
    """Number the company that *char* keeps; pages are filled group by group.

    Group 0 is ASCII, Latin-1 and typographic signs: 223 characters at most.
    Group 1 is Latin Extended-A and all of Vietnamese: exactly 223. Han and Hangul
    are grouped by the standards of their countries, the common ones first.
    """
    code = ord(char)
    if char <= "\u00ff" or char in "–—‘’‚“”„†‡•…‰‹›€™\u202f":
        return 0
    if char <= "\u017f" or "\u1ea0" <= char <= "\u1ef9" or char in "ƠơƯưẞ":
        return 1
    for number, (first, last) in enumerate(_BLOCKS, start=2):
        if first <= code <= last:
            return number
    return 20 + _group_of_east_asia(char)


_BLOCKS = (
    (0x0370, 0x03FF),  # Greek
    (0x0400, 0x04FF),  # Cyrillic
    (0x0530, 0x05FF),  # Armenian, Hebrew
    (0x0600, 0x06FF),  # Arabic digits and signs
    (0xFB50, 0xFEFC),  # Arabic, joined
    (0x10A0, 0x10FF),  # Georgian
    (0x3000, 0x30FF),  # kana and East Asian punctuation
)


def _group_of_east_asia(char: str) -> int:
    if "\uac00" <= char <= "\ud7a3":
        return 3 if _has_code(char, "euc_kr") else 4
    if "\u4e00" <= char <= "\u9fff":
        # The first level of each standard holds the characters in daily use.
        chinese = _has_code(char, "gb2312", below=0xD8)
        japanese = _has_code(char, "euc_jp", below=0xD0)
        taiwanese = _has_code(char, "big5", below=0xC9)
        return {3: 0, 2: 1, 1: 2}.get(chinese + japanese + taiwanese, 5)
    return 6


def _has_code(char: str, codec: str, *, below: int = 0xFF) -> bool:
    try:
        encoded = char.encode(codec)
    except UnicodeEncodeError:
        return False
    is_double_byte = len(encoded) == len("xx")
    return is_double_byte and encoded[0] < below


def _glyph(font: TrueType, page: Page, char: str, *, code: int) -> Glyph:
    scale = 1000 / font.units_per_em
    index = font.cmap[ord(char)]
    advance = round(font.advances[index] * scale)
    if _EAST_ASIA[0] <= char <= _EAST_ASIA[1]:
        # No accent is ever put onto these, so nobody asks for their boxes.
        return Glyph(page, code, advance, (0.0, 0.0, advance, 1000.0))
    left, bottom, right, top = (round(value * scale, 1) for value in font.glyph_bbox(index))
    return Glyph(page, code, advance, (left, bottom, right, top))


def _page(file: FontFile, font: TrueType, *, index: int, chars: Sequence[str]) -> Page:
    return Page(
        f"{file.letter}{index}",
        font=font,
        shapes=[font.cmap[ord(char)] for char in chars],
        says=[meaning_of(char) for char in chars],
        needs_thickening="bold" in file.weights and "regular" in file.weights,
    )
