"""The ticket that the README shows; ``python -m tests.docs.ticket`` draws it anew."""

import datetime as dt
import sys

from stagedoor.order import Event, Order, Position, Seat
from stagedoor.rendering.api import RenderRequest
from stagedoor.rendering.pool import no_check
from tests.docs.generated import ROOT

PICTURE = ROOT / "docs" / "ticket.png"
TOKEN = "STAGEDOOR2README2SPECIMEN2"
PIXELS = 1120

ORDER = Order(
    order_id=4471,
    version=1,
    status="placed",
    event=Event(
        name="Twelfth Night, or What You Will",
        venue="The Wharf Playhouse, London",
        starts_at=dt.datetime(2027, 3, 28, 18, 30, tzinfo=dt.UTC),
        doors_at=dt.datetime(2027, 3, 28, 18, 0, tzinfo=dt.UTC),
        tz="Europe/London",
        terms="Latecomers are seated at a suitable break. No re-admission.\n"
        "Bags larger than A4 & umbrellas stay in the cloakroom.",
    ),
    locale="en-GB",
    currency="GBP",
    buyer="Siân O’Brien",
    positions=(
        Position(
            id=1,
            holder="Siân O’Brien",
            category="Stalls",
            seat=Seat(zone="Stalls", row="C", number="8"),
            amount_minor=5250,
            token=TOKEN,
            version=1,
        ),
        Position(id=2, holder="", category="Programme", amount_minor=500, token="B" * 26, version=1, addon_to=1),
    ),
)


def draw() -> None:
    """Draw the picture."""
    import pypdfium2

    from stagedoor_renderers.ticket_pdf import TicketPdf

    renderer = TicketPdf()
    renderer.warm_up()
    request = RenderRequest(order=ORDER, position=ORDER.positions[0], locale=ORDER.locale)
    document = pypdfium2.PdfDocument(renderer.render(request, no_check))
    page = document[0]
    image = page.render(scale=PIXELS / page.get_width()).to_pil()
    document.close()
    # Few colours and no smooth gradients: a palette halves the file.
    image.convert("RGB").quantize(64).save(PICTURE, optimize=True)
    print(f"written: {PICTURE.name}, {PICTURE.stat().st_size // 1024} KiB", file=sys.stderr)


if __name__ == "__main__":
    draw()
