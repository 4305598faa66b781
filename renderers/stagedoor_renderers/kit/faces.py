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

import functools
import hashlib
import importlib.resources
import re
import threading
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Literal

import attrs

from stagedoor_renderers.kit import scripts
from stagedoor_renderers.kit.cutting import cut
from stagedoor_renderers.kit.sfnt import FontError, TrueType, read_truetype

Weight = Literal["regular", "bold"]

FIRST_CODE = 33
PAGE_SIZE = 223

_SYMBOLIC = 4
_EAST_ASIA = ("\u4e00", "\ud7a3")
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


@attrs.frozen(kw_only=True, eq=False)
class CutPage:
    """A complete font of at most 223 characters, ready to be embedded."""

    base_font: str
    font_file: bytes = attrs.field(repr=False)
    font_file_length: int
    to_unicode: bytes = attrs.field(repr=False)
    font_entries: str = attrs.field(repr=False)
    descriptor_entries: str = attrs.field(repr=False)


class Page:
    """One glyph page; its characters and codes are fixed, its font is cut when it is first embedded.

    *needs_thickening* is true for a font without a bold sister: a bold run of it
    is drawn with a thin outline of its own colour.
    """

    def __init__(self, resource: str, *, needs_thickening: bool, cut_out: Callable[[], CutPage]) -> None:
        self.resource = resource
        self.needs_thickening = needs_thickening
        self._cut_out = cut_out
        self._lock = threading.Lock()
        self._cut: CutPage | None = None

    def cut(self) -> CutPage:
        """Return the font of this page; the first thread that asks cuts it, others wait for that."""
        if self._cut is None:
            with self._lock:
                if self._cut is None:
                    self._cut = self._cut_out()
        return self._cut


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

    @home.default
    def _home(self) -> Home:
        return Home(self.glyphs["a"].page, self.glyphs)


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
        advances={char: 0.0 if scripts.is_mark(char) else glyph.advance for char, glyph in glyphs.items()},
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
        needs_thickening="bold" in file.weights and "regular" in file.weights,
        cut_out=functools.partial(_cut_page, font, chars),
    )


def _cut_page(font: TrueType, chars: Sequence[str]) -> CutPage:
    """Return the font of a page: a pure function, so it does not matter when and where it runs."""
    indices = [font.cmap[ord(char)] for char in chars]
    data = cut(font, indices, first_code=FIRST_CODE, space=font.cmap.get(32, 0))
    scale = 1000 / font.units_per_em
    widths = [font.advances[font.cmap.get(32, 0)], *(font.advances[i] for i in indices)]
    base_font = f"{_tag(data)}+{font.postscript_name}"
    box = " ".join(str(round(value * scale)) for value in font.bbox)
    return CutPage(
        base_font=base_font,
        font_file=zlib.compress(data),
        font_file_length=len(data),
        to_unicode=zlib.compress(_to_unicode(chars)),
        font_entries=(
            f"/Type /Font /Subtype /TrueType /BaseFont /{base_font} /FirstChar 32 /LastChar {31 + len(widths)} "
            f"/Widths [{' '.join(f'{width * scale:.0f}' for width in widths)}]"
        ),
        descriptor_entries=(
            f"/Type /FontDescriptor /FontName /{base_font} /Flags {_SYMBOLIC} /FontBBox [{box}] /ItalicAngle 0 "
            f"/Ascent {font.ascent * scale:.0f} /Descent {font.descent * scale:.0f} "
            f"/CapHeight {font.cap_height * scale:.0f} /StemV {50 + (font.weight // 65) ** 2}"
        ),
    )


def _tag(data: bytes) -> str:
    """Return the six letters before a subset's name, made from its content.

    Fonts of two documents have one name only if they are one font: programs that
    merge PDFs may then join them without mixing up glyphs.
    """
    number = int.from_bytes(hashlib.sha256(data).digest()[:8])
    letters = []
    for _ in range(6):
        number, letter = divmod(number, 26)
        letters.append(chr(65 + letter))
    return "".join(letters)


def _to_unicode(chars: Sequence[str]) -> bytes:
    """Return the map by which a viewer copies and searches text: joined forms are their letters again."""
    lines = [f"<{32:02X}> <0020>"]
    for code, char in enumerate(chars, start=FIRST_CODE):
        lines.append(f"<{code:02X}> <{_meaning(char).encode('utf-16-be').hex().upper()}>")
    blocks = [
        f"{len(block)} beginbfchar\n" + "\n".join(block) + "\nendbfchar"
        # The specification allows 100 lines in a block.
        for block in (lines[i : i + 100] for i in range(0, len(lines), 100))
    ]
    return (
        "/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n"
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def\n"
        "/CMapName /Adobe-Identity-UCS def\n/CMapType 2 def\n"
        "1 begincodespacerange\n<00> <FF>\nendcodespacerange\n"
        + "\n".join(blocks)
        + "\nendcmap\nCMapName currentdict /CMap defineresource pop\nend\nend\n"
    ).encode("ascii")


def _meaning(char: str) -> str:
    if "\ufb50" <= char <= "\ufefc" and unicodedata.category(char) == "Lo":
        # Glyphs of such a line stand from left to right, and programs that extract
        # text turn them round one character at a time: a ligature's letters too.
        return unicodedata.normalize("NFKC", char)[::-1]
    return char
