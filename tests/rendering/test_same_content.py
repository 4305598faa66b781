"""The same ticket in all forms: whatever shows all of a ticket says the same of it."""

import datetime as dt
from collections.abc import Callable

import attrs
import pytest

from stagedoor.order import Seat
from stagedoor.rendering.api import RenderRequest
from stagedoor_renderers.fields import FIELDS, SEPARATOR
from stagedoor_renderers.stock import Stock
from stagedoor_renderers.telling import told
from stagedoor_renderers.ticket_pdf import TicketPdf
from stagedoor_renderers.ticket_text import TicketText
from tests.rendering.orders import AUTUMN, event, no_check, position, request, rich, whole
from tests.rendering.reading import text_of as pdf_text
from tests.rendering.test_outputs import read
from tests.rendering.test_pass import pass_of

FACTS = (
    "event",
    "sub_event",
    "venue",
    "date",
    "start",
    "offset",
    "zone_name",
    "doors",
    "terms",
    "holder",
    "category",
    "price",
    "seat_zone",
    "seat_row",
    "seat_number",
    "general_admission",
    "addons",
    "addon_to",
    "order_code",
    "short_code",
    "number",
)
"""What a ticket says; whatever shows all of a ticket says each of them, in one form or another."""

OTHER_FORMS = {"short_date": "date", "when": "date", "seat": "seat_zone", "addon_list": "addons", "ticket_of": "number"}
"""Fields that say what one of the facts says."""

NOT_IN_WORDS = {"token": "it is in the code", "buyer": "it is on the receipt"}


def test_every_field_is_a_fact_or_another_form_of_one() -> None:
    assert {*FACTS, *OTHER_FORMS, *NOT_IN_WORDS} == FIELDS.keys()


def of_text(wanted: RenderRequest) -> str:
    return TicketText().render(wanted, no_check).decode()


def of_html(wanted: RenderRequest) -> str:
    return read(wanted).text


def of_pass(wanted: RenderRequest) -> str:
    made = pass_of(wanted)
    fields = [field for group in made["eventTicket"].values() for field in group]
    words = [word for field in fields for word in (field.get("label", ""), field["value"])]
    return "\n".join([*words, made["barcodes"][0]["altText"]])


def of_layout(layout: str) -> Callable[[RenderRequest], str]:
    def read_back(wanted: RenderRequest) -> str:
        return pdf_text(TicketPdf(layout=layout).render(wanted, no_check))

    return read_back


OUTPUTS: dict[str, Callable[[RenderRequest], str]] = {
    "text": of_text,
    "html": of_html,
    "pass": of_pass,
    "a4-fold": of_layout("a4-fold"),
    "a5": of_layout("a5"),
}


def squeezed(words: str) -> str:
    """Return *words* without what differs by where they stand: blanks, ends of lines, capitals."""
    return "".join(words.split()).casefold()


@pytest.mark.parametrize("locale", ["de-DE", "en-GB", "ja-JP"])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["seated", "add-on", "standing"])
def test_every_output_says_the_same(stock: Stock, which: int, locale: str) -> None:
    """The facts that each of them says are all those that the ticket has, and so those of every other."""
    wanted = rich(locale=locale)
    wanted = attrs.evolve(wanted, position=wanted.order.positions[which])
    ((_, content),) = told(wanted, stock.values).tickets
    forms = {fact: [fact, *(name for name, of in OTHER_FORMS.items() if of == fact == "number")] for fact in FACTS}

    def says(output: str, fact: str) -> bool:
        parts = (content[form].split(SEPARATOR) for form in forms[fact] if content[form])
        return any(all(squeezed(part) in output for part in form) for form in parts)

    found = {name: {fact for fact in FACTS if says(squeezed(make(wanted)), fact)} for name, make in OUTPUTS.items()}
    expected = {fact for fact in FACTS if content[fact]}
    assert found == dict.fromkeys(OUTPUTS, expected)


def test_the_facts_of_these_tickets_are_all_there_are(stock: Stock) -> None:
    """What no ticket of the test above has, it would not miss."""
    tickets = told(whole(rich()), stock.values).tickets
    assert {fact for _, content in tickets for fact in FACTS if content[fact]} == set(FACTS)


def test_doors_on_other_clocks_than_the_start_say_so_everywhere(stock: Stock) -> None:
    """In the night when 02:30 comes twice, the doors open in the first hour and it starts in the second."""
    night = event(starts_at=AUTUMN, doors_at=AUTUMN - dt.timedelta(hours=1))
    wanted = request(event=night, locale="de-DE")
    for name, make in OUTPUTS.items():
        assert squeezed("02:30 (UTC+2)") in squeezed(make(wanted)), name
    for layout in ("phone", "thermal-80"):
        assert squeezed("02:30 (UTC+2)") in squeezed(of_layout(layout)(wanted)), layout
    assert "Einlass:    02:30 (UTC+2)\n" in of_text(wanted)
    assert "Beginn:     02:30 (UTC+1, Europe/Berlin)\n" in of_text(wanted)


@pytest.mark.parametrize("make", [of_text, of_html])
def test_what_looks_like_the_start_is_not_given_its_offset(make: Callable[[RenderRequest], str]) -> None:
    wanted = request(
        position(category="20:00", holder="20:00", seat=Seat(number="20:00")),
        event=event(venue="20:00", doors_at=dt.datetime(2026, 7, 1, 18, 0, tzinfo=dt.UTC)),
        locale="de-DE",
    )
    assert make(wanted).count("(UTC+2, Europe/Berlin)") == 1


@pytest.mark.parametrize("make", [of_text, of_html, of_pass])
def test_a_negative_price_keeps_the_marks_that_order_its_sign(make: Callable[[RenderRequest], str]) -> None:
    wanted = request(position(amount_minor=-500, holder="\u200e\u200fAnna"), locale="ar-KW", currency="KWD")
    assert "\u200f\u200e-0.500\xa0د.ك.\u200f" in make(wanted)
    assert "\u200fAnna" not in make(wanted), "only those of the language, never typed ones"


def test_a_negative_price_is_drawn_with_its_sign_before_it() -> None:
    wanted = request(position(amount_minor=-500), locale="ar-KW", currency="KWD")
    assert "-0.500" in of_layout("a5")(wanted)
    assert not TicketPdf().notes(wanted)
