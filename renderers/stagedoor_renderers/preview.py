"""What a layout looks like, as PDF and as picture, before anybody buys a ticket."""

import io
import re
import threading
from pathlib import Path
from typing import Any

import attrs

from stagedoor.errors import ConfigurationError
from stagedoor.rendering.api import Order, RenderRequest
from stagedoor_renderers import probe
from stagedoor_renderers.stock import LAYOUT_ENDINGS
from stagedoor_renderers.ticket_pdf import TicketPdf

DPI = 150
MAX_PICTURES = 20

_PAGE = re.compile(rb"/Type /Page\b")


@attrs.frozen(kw_only=True)
class Preview:
    """The document, a PNG of each of its first pages, and what could not be drawn.

    *lacks* says what is missing here that a preview could have, such as pictures.
    """

    pdf: bytes = attrs.field(repr=False)
    pictures: tuple[bytes, ...] = attrs.field(repr=False)
    notes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


class NoPictures(ConfigurationError):
    """What draws pictures is not installed."""


def preview(layout: str, *, order: Order | None = None, folder: Path | None = None, dpi: int = DPI) -> Preview:
    """Return what *layout* makes of *order*.

    Args:
        layout: the name of a layout, or the path of a TOML or JSON file.
        order: what to draw; a made-up order when None.
        folder: a folder of layouts besides those that ship.
        dpi: how fine the pictures are.

    Raises:
        ConfigurationError: the layout is wrong or unknown; says where.
        InvalidRequest: the order cannot be drawn; names the field.
    """
    name = layout
    file = Path(layout)
    if file.suffix in LAYOUT_ENDINGS:
        folder, name = file, file.stem
    renderer = TicketPdf(layout=name, layouts=folder)
    renderer.warm_up()
    drawn = order or probe.order()
    request = RenderRequest(order=drawn, layout=name, locale=drawn.locale)
    pdf = renderer.render(request, probe.no_check)
    notes = tuple(renderer.notes(request))
    try:
        pictures = pictures_of(pdf, dpi=dpi)
        pages = len(_PAGE.findall(pdf))
        lacks = (f"there are pictures of the first {MAX_PICTURES} of {pages} pages",) if pages > len(pictures) else ()
        return Preview(pdf=pdf, pictures=pictures, notes=notes, lacks=lacks)
    except NoPictures as error:
        return Preview(pdf=pdf, pictures=(), notes=notes, lacks=tuple(error.problems))


def pictures_of(pdf: bytes, *, dpi: int = DPI) -> tuple[bytes, ...]:
    """Return a PNG of each of the first pages of *pdf*.

    Raises:
        NoPictures: pypdfium2 is not installed.
    """
    pypdfium2 = _pypdfium2()
    with _PDFIUM:
        return _drawn(pypdfium2.PdfDocument(pdf), dpi)


def drawn_with() -> str:
    """Return the versions of what draws pictures: of pypdfium2, and of the PDFium that it brings.

    Raises:
        NoPictures: pypdfium2 is not installed.
    """
    versions = _pypdfium2().version
    return f"pypdfium2 {versions.PYPDFIUM_INFO} pdfium {versions.PDFIUM_INFO}"


def _pypdfium2() -> Any:
    try:
        import pypdfium2  # noqa: PLC0415 - only pictures need it, and it is not needed to print
    except ImportError:
        raise NoPictures("there is no picture, for that needs pypdfium2: pip install pypdfium2") from None
    return pypdfium2


_PDFIUM = threading.Lock()
"""PDFium is not thread-safe; this is its one lock, and holds nothing else."""


def _drawn(document: Any, dpi: int) -> tuple[bytes, ...]:
    pictures: list[bytes] = []
    try:
        for index in range(min(len(document), MAX_PICTURES)):
            buffer = io.BytesIO()
            document[index].render(scale=dpi / 72).to_pil().save(buffer, "PNG")
            pictures.append(buffer.getvalue())
    finally:
        document.close()
    return tuple(pictures)
