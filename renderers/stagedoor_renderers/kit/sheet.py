"""A PDF being drawn: pages of paths, text, codes and pictures, with ReportLab's canvas beneath.

One `Sheet` makes one document and belongs to one thread. Nothing in it is
shared with another but immutable bytes.
"""

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from stagedoor_renderers.kit import settings  # isort: skip # first: it makes ReportLab safe before it is imported

from reportlab.pdfbase import pdfdoc
from reportlab.pdfgen.canvas import Canvas

from stagedoor_renderers.kit.faces import Face, Page
from stagedoor_renderers.kit.qr import QUIET_ZONE, QrCode
from stagedoor_renderers.kit.typeset import Line, number, show

MM = 72 / 25.4
"""Points in a millimetre."""

_CIRCLE = 0.5522847498
"""How far a Bézier's handles reach to make a quarter of a circle."""

__all__ = ["MM", "Color", "Sheet", "settings"]


@attrs.frozen
class Color:
    """A colour on the screen: red, green, blue from 0 to 1."""

    red: float
    green: float
    blue: float

    @classmethod
    def of(cls, text: str) -> "Color":
        """Return the colour of ``#rrggbb``."""
        red, green, blue = (int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return cls(red, green, blue)

    @property
    def numbers(self) -> str:
        """The three numbers as PDF writes them."""
        return f"{number(self.red)} {number(self.green)} {number(self.blue)}"


BLACK = Color(0.0, 0.0, 0.0)
WHITE = Color(1.0, 1.0, 1.0)


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


def stream(entries: str, content: bytes) -> bytes:
    """Return a stream object around compressed *content*."""
    head = f"<< {entries} /Filter /FlateDecode /Length {len(content)} >>\nstream\n"
    return head.encode("ascii") + content + b"\nendstream\n"


class Sheet:
    """One document.

    Coordinates are in points from the bottom left corner of the page.

    Args:
        title: shown by viewers; drawable text.
        language: a BCP 47 tag, for screen readers.
    """

    def __init__(self, *, title: str, language: str) -> None:
        self._canvas = _Canvas(io.BytesIO(), invariant=1, pageCompression=1, lang=language)
        document = self._canvas._doc  # noqa: SLF001 - ReportLab's only door to objects of one's own
        document.info = _Info()
        # The signature begins with the time of day unless SOURCE_DATE_EPOCH is set,
        # and with that if it is set; this begins with neither.
        document.signature = hashlib.md5(b"stagedoor", usedforsecurity=False)
        self._document = document
        self._canvas.setTitle(title)
        self._canvas.setCreator("Stagedoor")
        self._canvas.setViewerPreference("DisplayDocTitle", "true")
        self._pages: dict[str, Page] = {}
        self._fill: Color | None = None
        self._open = False

    def begin_page(self, *, width: float, height: float) -> None:
        """Begin a page; the one before it is finished."""
        if self._open:
            self._canvas.showPage()
        self._canvas._pagesize = (width, height)  # noqa: SLF001 - setPageSize would build the preamble again
        self._fill = None
        self._open = True

    def finish(self) -> bytes:
        """Return the document."""
        if self._open:
            self._canvas.showPage()
        self._embed_fonts()
        data: bytes = self._canvas.getpdfdata()
        return data

    # -- shapes ---------------------------------------------------------------

    def draw(self, operators: str) -> None:
        """Add PDF operators as they are."""
        self._canvas._code.append(operators)  # noqa: SLF001 - addLiteral does this and no more

    def fill_color(self, color: Color) -> None:
        """Fill what follows with *color*."""
        if color != self._fill:
            self.draw(f"{color.numbers} rg")
            self._fill = color

    @contextmanager
    def saved(self) -> Iterator[None]:
        """Restore the graphics state afterwards."""
        fill = self._fill
        self.draw("q")
        yield
        self.draw("Q")
        self._fill = fill

    def rect(self, x: float, y: float, width: float, height: float, *, color: Color, radius: float = 0.0) -> None:
        """Fill a rectangle, its corners rounded by *radius*."""
        self.fill_color(color)
        if radius:
            self.draw(_rounded(x, y, width, height, radius) + " f")
        else:
            self.draw(f"{number(x)} {number(y)} {number(width)} {number(height)} re f")

    def circle(self, x: float, y: float, radius: float, *, color: Color) -> None:
        """Fill a circle round (*x*, *y*)."""
        self.rect(x - radius, y - radius, 2 * radius, 2 * radius, color=color, radius=radius)

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        *,
        color: Color,
        width: float,
        dash: Sequence[float] = (),
        round_caps: bool = False,
    ) -> None:
        """Draw a straight line, dashed by *dash* (lengths of dashes and gaps, in points)."""
        style = f"{number(width)} w {color.numbers} RG"
        if dash:
            style += f" [{' '.join(map(number, dash))}] 0 d"
        if round_caps:
            style += " 1 J"
        with self.saved():
            self.draw(f"{style} {number(start[0])} {number(start[1])} m {number(end[0])} {number(end[1])} l S")

    # -- text -----------------------------------------------------------------

    def text(
        self, x: float, y: float, line: Line, *, face: Face, size: float, color: Color, tracking: float = 0.0
    ) -> None:
        """Show *line* with its left end at (*x*, *y*) on the baseline."""
        if not line.text:
            return
        shown = show(face, line, size)
        for page in shown.pages:
            self._pages[page.resource] = page
        self.fill_color(color)
        # The outline of a thickened run has the colour of its inside.
        stroke = f"{color.numbers} RG " if " Tr " in shown.operators else ""
        before, after = (f"{number(tracking)} Tc ", " 0 Tc") if tracking else ("", "")
        self.draw(f"BT {stroke}{before}1 0 0 1 {number(x)} {number(y)} Tm {shown.operators}{after} ET")

    # -- codes ----------------------------------------------------------------

    def qr(self, x: float, y: float, side: float, *, code: QrCode) -> None:
        """Draw *code* into a white square of *side* points: quiet zone, white and black whatever is beneath."""
        self.rect(x, y, side, side, color=WHITE)
        module = side / code.total
        with self.saved():
            self.fill_color(BLACK)
            left, top = x + QUIET_ZONE * module, y + side - QUIET_ZONE * module
            self.draw(f"{module:.5f} 0 0 {-module:.5f} {number(left)} {number(top)} cm\n{code.path}\nf")

    # -- fonts ----------------------------------------------------------------

    def _embed_fonts(self) -> None:
        """Add the glyph pages that were used, in the order of their names."""
        fonts = self._document.idToObject["BasicFonts"].dict
        for resource, page in sorted(self._pages.items()):
            file = self._add(f"file {resource}", stream(f"/Length1 {page.font_file_length}", page.font_file))
            unicode = self._add(f"unicode {resource}", stream("", page.to_unicode))
            descriptor = f"<< {page.descriptor_entries} /FontFile2 {file} >>\n"
            described = self._add(f"descriptor {resource}", descriptor.encode("ascii"))
            font = f"<< {page.font_entries} /FontDescriptor {described} /ToUnicode {unicode} >>\n"
            self._add(f"font {resource}", font.encode("ascii"))
            fonts[resource] = pdfdoc.PDFObjectReference(f"font {resource}")

    def _add(self, name: str, data: bytes) -> str:
        """Add an object and return the words that refer to it."""
        self._document.Reference(_Fixed(data), name)
        number_of, generation = self._document.idToObjectNumberAndVersion[name]
        return f"{number_of} {generation} R"


def _rounded(x: float, y: float, width: float, height: float, radius: float) -> str:
    """Return the path of a rectangle with round corners."""
    r, k = radius, radius * (1 - _CIRCLE)
    right, top = x + width, y + height

    def points(*values: float) -> str:
        return " ".join(map(number, values))

    return (
        f"{points(x + r, y)} m {points(right - r, y)} l "
        f"{points(right - k, y, right, y + k, right, y + r)} c {points(right, top - r)} l "
        f"{points(right, top - k, right - k, top, right - r, top)} c {points(x + r, top)} l "
        f"{points(x + k, top, x, top - k, x, top - r)} c {points(x, y + r)} l "
        f"{points(x, y + k, x + k, y, x + r, y)} c h"
    )
