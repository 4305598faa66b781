"""`ticket-png`: the ticket as a picture, for mails and shop pages; further pages stand below the first.

It needs PDFium, which not everybody has, so it is no entry point: name this
module in the setting ``plugins``, and install ``stagedoor-renderers[png]``.
"""

import io
from collections.abc import Iterable, Sequence

import attrs
from PIL import Image

from stagedoor.errors import InvalidRequest
from stagedoor.rendering.api import Check, RenderRequest
from stagedoor_renderers import probe
from stagedoor_renderers.preview import DPI, drawn_with, pictures_of
from stagedoor_renderers.ticket_pdf import TicketPdf


@attrs.define(eq=False)
class TicketPng:
    """Draws what `TicketPdf` draws, and takes its picture; needs pypdfium2.

    PDFium draws one page at a time in a process, so eight threads gain nothing here.

    Args:
        pdf: the renderer whose page is taken.
        dpi: how fine.
        name: what handlers and settings call it.
    """

    pdf: TicketPdf = attrs.field(factory=lambda: TicketPdf(layout="phone"))
    dpi: int = DPI
    name: str = "ticket-png"
    version: str = attrs.field(default="1", init=False)
    content_type: str = attrs.field(default="image/png", init=False)
    suffix: str = attrs.field(default=".png", init=False)

    def fingerprint(self) -> str:
        """Return a hash of all that the page is drawn with, how fine the picture is, and what takes it.

        Raises:
            ConfigurationError: pypdfium2 is not installed.
        """
        return f"{self.pdf.fingerprint()} {self.dpi} {drawn_with()}"

    def warm_up(self) -> None:
        """Warm up the page's renderer, and take one picture.

        Raises:
            ConfigurationError: pypdfium2 is not installed.
        """
        self.pdf.warm_up()
        order = probe.order()
        self.render(RenderRequest(order=order, position=order.positions[0], locale="de-DE"), probe.no_check)

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the PNG of one ticket.

        Raises:
            InvalidRequest: no position is asked for, or the order cannot be drawn; names the field.
        """
        if request.position is None:
            raise InvalidRequest("position: a picture is of one ticket; ask for each of them")
        return _one_below_the_other(pictures_of(self.pdf.render(request, check), dpi=self.dpi))

    def notes(self, request: RenderRequest) -> Iterable[str]:
        """Return a sentence for every field of which something could not be drawn."""
        return self.pdf.notes(request)


def _one_below_the_other(pictures: Sequence[bytes]) -> bytes:
    if len(pictures) == 1:
        return pictures[0]
    pages = [Image.open(io.BytesIO(picture)) for picture in pictures]
    whole = Image.new(pages[0].mode, (max(page.width for page in pages), sum(page.height for page in pages)), "white")
    top = 0
    for page in pages:
        whole.paste(page, (0, top))
        top += page.height
    buffer = io.BytesIO()
    whole.save(buffer, "PNG")
    return buffer.getvalue()


def renderers() -> tuple[TicketPng, ...]:
    """Return what this module brings when it is named in the setting ``plugins``."""
    return (TicketPng(),)
