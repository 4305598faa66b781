"""A page of glyphs: a complete font of at most 223 codes, cut once and embedded as it is."""

import hashlib
import threading
import unicodedata
import zlib
from collections.abc import Sequence

import attrs

from stagedoor_renderers.kit.cutting import Shape, advance_of, cut
from stagedoor_renderers.kit.sfnt import TrueType

FIRST_CODE = 33
PAGE_SIZE = 223

_SYMBOLIC = 4


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
    """One glyph page; its codes are fixed, its font is cut when it is first embedded.

    Args:
        resource: its name in a document; pages of one name are the same, byte by byte.
        font: the font that it is cut from.
        shapes: what its codes show, from `FIRST_CODE` on.
        says: what is copied for each of them.
        needs_thickening: whether the font has no bold sister: a bold run of it is drawn
            with a thin outline of its own colour.
    """

    def __init__(
        self, resource: str, *, font: TrueType, shapes: Sequence[Shape], says: Sequence[str], needs_thickening: bool
    ) -> None:
        self.resource = resource
        self.font = font
        self.needs_thickening = needs_thickening
        self._shapes = shapes
        self._says = says
        self._lock = threading.Lock()
        self._cut: CutPage | None = None

    def cut(self) -> CutPage:
        """Return the font of this page; the first thread that asks cuts it, others wait for that."""
        if self._cut is None:
            with self._lock:
                if self._cut is None:
                    self._cut = _cut_page(self.font, self._shapes, self._says)
        return self._cut


def _cut_page(font: TrueType, shapes: Sequence[Shape], says: Sequence[str]) -> CutPage:
    """Return the font of a page: a pure function, so it does not matter when and where it runs."""
    data = cut(font, shapes, first_code=FIRST_CODE, space=font.cmap.get(32, 0))
    scale = 1000 / font.units_per_em
    widths = [font.advances[font.cmap.get(32, 0)], *(advance_of(font, shape) for shape in shapes)]
    base_font = f"{_tag(data)}+{font.postscript_name}"
    box = " ".join(str(round(value * scale)) for value in font.bbox)
    return CutPage(
        base_font=base_font,
        font_file=zlib.compress(data),
        font_file_length=len(data),
        to_unicode=zlib.compress(_to_unicode(says)),
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


def _to_unicode(says: Sequence[str]) -> bytes:
    """Return the map by which a viewer copies and searches text."""
    lines = [f"<{32:02X}> <0020>"]
    for code, text in enumerate(says, start=FIRST_CODE):
        lines.append(f"<{code:02X}> <{text.encode('utf-16-be').hex().upper()}>")
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


def meaning_of(char: str) -> str:
    """Return what is copied for a character as the fonts have it: of a joined form, its letters."""
    if "\ufb50" <= char <= "\ufefc" and unicodedata.category(char) == "Lo":
        # Glyphs of such a line stand from left to right, and programs that extract
        # text turn them round one character at a time: a ligature's letters too.
        return unicodedata.normalize("NFKC", char)[::-1]
    return char
