"""The same ticket in other forms: text, HTML, a picture; for passes, see `test_pass`."""

import html.parser
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from PIL import Image

from stagedoor.errors import ConfigurationError
from stagedoor.order import Seat
from stagedoor.testing import renderers as suite
from stagedoor.testing.renderers import Subject
from stagedoor_renderers.preview import pictures_of, preview
from stagedoor_renderers.ticket_png import TicketPng
from stagedoor_renderers.ticket_text import TicketHtml, TicketText
from tests.rendering.orders import TOKEN, event, named, no_check, position, request, token, whole
from tests.rendering.reading import codes_in

FAST_CHECKS = [
    check
    for check in suite.CHECKS
    if check not in (suite.same_bytes_in_another_process, suite.same_bytes_in_eight_threads)
]


@pytest.mark.parametrize("make", [TicketText, TicketHtml])
@pytest.mark.parametrize("check", FAST_CHECKS, ids=lambda check: check.__name__)
def test_text_and_html_conform(check: suite.Check, make: Callable[[], Any]) -> None:
    check(Subject(make))


# -- text ---------------------------------------------------------------------


def text_of(wanted: Any) -> str:
    return TicketText().render(wanted, no_check).decode()


def test_the_text_says_what_the_ticket_says() -> None:
    text = text_of(request(position(seat=Seat(zone="B", row="C", number="8")), locale="de-DE"))
    for words in (
        "Die Zauberflöte",
        "Zoë Šimková",
        "Mittwoch, 1. Juli 2026",
        "20:00 (UTC+2, Europe/Berlin)",
        "Block B · Reihe C · Platz 8",
        "45,00\u00a0€",
        token(1),
    ):
        assert words in text


def test_the_text_begins_with_event_part_and_number() -> None:
    wanted = request(position(1), position(2), event=event(sub_event="Premiere"))
    assert text_of(wanted).startswith("Die Zauberflöte\nPremiere\nTicket 1 of 2\n\n")
    refunded = request(position(1, status="refunded"), position(2))
    assert "Ticket 1" not in text_of(refunded)


def test_an_emoji_stays_in_the_text() -> None:
    assert "Anna 🎉" in text_of(named("Anna 🎉"))


# -- HTML ---------------------------------------------------------------------


class Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attributes]

    def handle_data(self, data: str) -> None:
        self.text += data


def read(wanted: Any) -> Reader:
    reader = Reader()
    reader.feed(TicketHtml().render(wanted, no_check).decode())
    return reader


def test_the_page_is_in_the_language_of_the_order() -> None:
    page = TicketHtml().render(attrs.evolve(named("Anna"), locale="ar-EG"), no_check).decode()
    assert '<html lang="ar-EG" dir="rtl">' in page


@pytest.mark.parametrize("words", ["<script>alert(1)</script>", "\"onload='x'", "<img src=x>", "AT&T", "&lt;b&gt;"])
def test_nothing_that_is_typed_acts_as_markup(words: str) -> None:
    quiet = read(
        request(position(holder="x", category="x"), event=event(name="x", venue="x", terms="x", sub_event="x"))
    )
    loud = read(
        request(
            position(holder=words, category=words), event=event(name=words, venue=words, terms=words, sub_event=words)
        )
    )
    assert loud.tags == quiet.tags
    assert loud.attributes == quiet.attributes
    assert loud.text.count(words) >= 5


def test_the_page_loads_nothing() -> None:
    page = TicketHtml().render(named("Anna"), no_check).decode()
    assert not {"script", "img", "link", "iframe", "a"} & set(read(named("Anna")).tags)
    assert "http" not in page.replace("http-equiv", "")


def test_the_code_of_the_page_is_the_tickets(ticket: Any) -> None:
    page = TicketHtml().render(request(position(token=TOKEN)), no_check).decode()
    assert 'aria-label="Code K7QF-2M3N"' in page
    assert page.count("M") > 100


# -- pictures and previews ----------------------------------------------------


def test_a_picture_shows_the_ticket_with_its_code() -> None:
    renderer = TicketPng()
    renderer.warm_up()
    image = Image.open(io.BytesIO(renderer.render(request(position(token=TOKEN)), no_check)))
    assert image.format == "PNG"
    assert codes_in(image.convert("L")) == [TOKEN]


def test_a_picture_has_all_pages_one_below_the_other() -> None:
    renderer = TicketPng()
    renderer.warm_up()
    short = request(position(token=TOKEN))
    long = request(position(token=TOKEN), event=event(terms="\n".join(f"{number}. rule" for number in range(99))))
    page, whole = (Image.open(io.BytesIO(renderer.render(of, no_check))) for of in (short, long))
    pages = len(pictures_of(renderer.pdf.render(long, no_check)))
    assert pages > 1
    assert whole.size == (page.width, pages * page.height)
    assert codes_in(whole.convert("L")) == [TOKEN]


def test_a_preview_needs_nothing_but_the_name_of_a_layout() -> None:
    shown = preview("wristband", dpi=72)
    assert shown.pdf.startswith(b"%PDF-")
    assert len(shown.pictures) == 3
    assert all(picture.startswith(b"\x89PNG") for picture in shown.pictures)
    assert shown.notes == ()


def test_a_preview_takes_the_path_of_a_layout(tmp_path: Path) -> None:
    from tests.rendering.test_layouts import GOOD

    (tmp_path / "own.toml").write_text(GOOD, encoding="utf-8")
    assert preview(str(tmp_path / "own.toml"), order=request().order, dpi=72).pdf
    (tmp_path / "own.toml").write_text(GOOD.replace("size = 12", "size = 0"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"own\.toml: box 1"):
        preview(str(tmp_path / "own.toml"))


def test_a_preview_of_many_tickets_has_pictures_of_the_first_and_says_so() -> None:
    many = whole(request(*(position(n) for n in range(1, 23)))).order
    shown = preview("wristband", order=many, dpi=30)
    assert len(shown.pictures) == 20
    assert shown.lacks == ("there are pictures of the first 20 of 22 pages",)
