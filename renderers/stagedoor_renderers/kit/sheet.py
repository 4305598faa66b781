"""A PDF being drawn: pages of paths, text, codes and pictures, with ReportLab's canvas beneath.

One `Sheet` makes one document and belongs to one thread. Nothing in it is
shared with another but immutable bytes.
"""

import hashlib
import io
from typing import Any

from stagedoor_renderers.kit import settings  # isort: skip # first: it makes ReportLab safe before it is imported

from reportlab.pdfbase import pdfdoc
from reportlab.pdfgen.canvas import Canvas

from stagedoor_renderers.kit.images import Image
from stagedoor_renderers.kit.pages import Page
from stagedoor_renderers.kit.pen import BLACK, WHITE, Color, Pen, number
from stagedoor_renderers.kit.qr import QUIET_ZONE, QrCode
from stagedoor_renderers.kit.showing import Shown
from stagedoor_renderers.kit.text import spoken

MM = 72 / 25.4
"""Points in a millimetre."""

_PDF_VERSION = (1, 7)
"""Transparency came with 1.4, text for extraction with 1.5; every viewer reads 1.7."""

__all__ = ["MM", "Color", "Sheet", "settings"]


class _Canvas(Canvas):  # type: ignore[misc] # ReportLab has no types
    """A canvas that never mentions a font of its own: the standard 14 cannot be embedded."""

    def _make_preamble(self) -> None:
        self._preamble = "1 0 0 1 0 0 cm"


class _Info(pdfdoc.PDFInfo):  # type: ignore[misc] # as above
    """The document's information without a date: the true one would differ each time, a fixed one would lie."""

    def format(self, document: Any) -> bytes:
        entries = {
            "Title": pdfdoc.PDFString(self.title),
            "Creator": pdfdoc.PDFString(self.creator),
            "Producer": pdfdoc.PDFString(self.producer),
        }
        formatted: bytes = pdfdoc.PDFDictionary(entries).format(document)
        return formatted


class _Fixed(pdfdoc.PDFObject):  # type: ignore[misc] # as above
    """An object whose bytes are known."""

    __RefOnly__ = 1

    def __init__(self, data: bytes) -> None:
        self._data = data

    def format(self, document: Any) -> bytes:
        del document
        return self._data


def _stream(entries: str, content: bytes) -> bytes:
    """Return a stream object around *content*, which *entries* describe."""
    return f"<< {entries} >>\nstream\n".encode("ascii") + content + b"\nendstream\n"


def _deflated(entries: str, content: bytes) -> bytes:
    """Return a stream object around *content*, which has been compressed."""
    return _stream(f"{entries} /Filter /FlateDecode /Length {len(content)}", content)


class Sheet:
    """One document.

    Args:
        title: shown by viewers; drawable text.
        language: a BCP 47 tag, for screen readers.
    """

    def __init__(self, *, title: str, language: str) -> None:
        self._canvas = _Canvas(io.BytesIO(), invariant=1, pageCompression=1, lang=language, pdfVersion=_PDF_VERSION)
        document = self._canvas._doc  # noqa: SLF001 - ReportLab's only door to objects of one's own
        document.info = _Info()
        # The signature begins with the time of day unless SOURCE_DATE_EPOCH is set,
        # and with that if it is set; this begins with neither.
        document.signature = hashlib.md5(b"stagedoor", usedforsecurity=False)
        self._document = document
        self._canvas.setTitle(spoken(title))
        self._canvas.setCreator("Stagedoor")
        self._canvas.setViewerPreference("DisplayDocTitle", "true")
        self._pages: dict[str, Page] = {}
        self._pen = Pen()
        self._open = False

    @property
    def pen(self) -> Pen:
        """The pen of the page that is open."""
        return self._pen

    def begin_page(self, *, width: float, height: float) -> None:
        """Begin a page; the one before it is finished."""
        self._end_page()
        self._canvas._pagesize = (width, height)  # noqa: SLF001 - setPageSize would build the preamble again
        self._pen = Pen()
        self._open = True

    def finish(self) -> bytes:
        """Return the document."""
        self._end_page()
        self._embed_fonts()
        data: bytes = self._canvas.getpdfdata()
        return data

    def _end_page(self) -> None:
        if self._open:
            self._canvas._code.append(self._pen.operators)  # noqa: SLF001 - addLiteral does this and no more
            self._canvas.showPage()
            self._open = False

    # -- what needs more than a pen -------------------------------------------

    def text(self, x: float, y: float, shown: Shown, *, color: Color, tracking: float = 0.0) -> None:
        """Show a line with its left end at (*x*, *y*) on the baseline."""
        if not shown.operators:
            return
        for page in shown.pages:
            self._pages[page.resource] = page
        pen = self._pen
        pen.fill_color(color)
        # The outline of a thickened run has the colour of its inside.
        stroke = f"{color.numbers} RG " if shown.is_thickened else ""
        before, after = (f"{number(tracking)} Tc ", " 0 Tc") if tracking else ("", "")
        said, unsaid = (f"/Span << /ActualText <{_utf16(shown.says)}> >> BDC ", " EMC") if shown.says else ("", "")
        pen.draw(f"{said}BT {stroke}{before}1 0 0 1 {x:.2f} {y:.2f} Tm {shown.operators}{after} ET{unsaid}")

    def qr(self, x: float, y: float, side: float, *, code: QrCode) -> None:
        """Draw *code* into a white square of *side* points: quiet zone, white and black whatever is beneath."""
        pen = self._pen
        pen.rect(x, y, side, side, color=WHITE)
        module = side / code.total
        with pen.saved():
            pen.fill_color(BLACK)
            left, top = x + QUIET_ZONE * module, y + side - QUIET_ZONE * module
            pen.draw(f"{module:.5f} 0 0 {-module:.5f} {number(left)} {number(top)} cm\n{code.path()}\nf")

    def image(self, x: float, y: float, width: float, height: float, *, image: Image) -> None:
        """Draw *image* into a rectangle; its bytes are in the document once, however often it is drawn."""
        name = pdfdoc.xObjectName(image.name)
        if not self._document.hasForm(image.name):
            mask = f" /SMask {self._add(f'mask {name}', _stream(image.mask_entries, image.mask))}" if image.mask else ""
            self._add(name, _stream(image.entries + mask, image.data))
        if image.name not in self._canvas._formsinuse:  # noqa: SLF001 - the page's list of what it draws
            self._canvas._formsinuse.append(image.name)  # noqa: SLF001 - as above
        self._canvas._currentPageHasImages = 1  # noqa: SLF001 - as above
        pen = self._pen
        with pen.saved():
            pen.draw(f"{number(width)} 0 0 {number(height)} {number(x)} {number(y)} cm /{name} Do")

    # -- fonts ----------------------------------------------------------------

    def _embed_fonts(self) -> None:
        """Add the glyph pages that were used, in the order of their names."""
        fonts = self._document.idToObject["BasicFonts"].dict
        for resource, page in sorted(self._pages.items()):
            cut = page.cut()
            file = self._add(f"file {resource}", _deflated(f"/Length1 {cut.font_file_length}", cut.font_file))
            unicode = self._add(f"unicode {resource}", _deflated("", cut.to_unicode))
            descriptor = f"<< {cut.descriptor_entries} /FontFile2 {file} >>\n"
            described = self._add(f"descriptor {resource}", descriptor.encode("ascii"))
            font = f"<< {cut.font_entries} /FontDescriptor {described} /ToUnicode {unicode} >>\n"
            self._add(f"font {resource}", font.encode("ascii"))
            fonts[resource] = pdfdoc.PDFObjectReference(f"font {resource}")

    def _add(self, name: str, data: bytes) -> str:
        """Add an object and return the words that refer to it."""
        self._document.Reference(_Fixed(data), name)
        number_of, generation = self._document.idToObjectNumberAndVersion[name]
        return f"{number_of} {generation} R"


def _utf16(text: str) -> str:
    """Return *text* as PDF's strings hold what is to be read aloud or copied."""
    return ("\ufeff" + text).encode("utf-16-be").hex()
