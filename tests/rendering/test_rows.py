"""Rows of facts: labels have room, long words give way, and no row or seat is lost to the name of its block."""

import datetime as dt
import importlib.resources
import tomllib
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.order import Seat
from stagedoor_renderers.stock import built_in_layouts
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import event, no_check, position, request
from tests.rendering.reading import edges_of, glyph_boxes, lines_of, page_count, picture_of, text_of

LAYOUTS = tuple(built_in_layouts())

ZONES = (
    "Rang A/B rechts mit eingeschränkter Sicht",
    "Zweiter Rang Mitte-Links, Loge 14 (Sichtbehinderung)",
    "Unterrangtribünenblockseitenplatz-Nordwestkurve",
)

WORDS = tomllib.loads((Path(str(importlib.resources.files("stagedoor_renderers"))) / "words.toml").read_text("utf-8"))

LETTERS = "aeinrtWM mil0123456789-/.éŠ山"
ANY = st.text(alphabet=LETTERS, max_size=300)
SHORT = st.text(alphabet=LETTERS, min_size=1, max_size=12).map(str.strip).filter(bool)


def squeezed(words: str) -> str:
    """Without blanks and line ends; a hyphen at the end of a line is read as a sign of its own."""
    return "".join(words.replace("\ufffe", "-").split()).upper()


def squeezed_text_of(pdf: bytes) -> str:
    return squeezed("".join(lines_of(pdf)))


ZONE = st.builds(
    lambda words, times: "B" + (words * times)[:400], st.text(alphabet=LETTERS, max_size=40), st.integers(1, 40)
)
SEATS = st.builds(Seat, zone=ZONE, row=SHORT, number=SHORT)


@given(st.sampled_from(LAYOUTS), SEATS, ANY)
def test_row_and_seat_are_whole_and_so_are_all_labels(
    ticket: TicketPdf, layout: str, seat: Seat, category: str
) -> None:
    text = squeezed_text_of(ticket.render(request(position(seat=seat, category=category), layout=layout), no_check))
    wanted = squeezed(f"ROW {seat.row} SEAT {seat.number}")
    # What is torn off has it once more.
    assert text.count(wanted) >= (2 if layout.startswith("a") else 1)
    assert "BLOCKB" in text


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("language", WORDS)
def test_labels_are_whole_in_every_language(ticket: TicketPdf, layout: str, language: str) -> None:
    seat = Seat(zone="Supporter " * 20, row="12", number="1234")
    opens = event(doors_at=dt.datetime(2026, 7, 1, 17, 0, tzinfo=dt.UTC))
    of = request(position(seat=seat), locale=language, layout=layout, event=opens)
    text = squeezed_text_of(ticket.render(of, no_check))
    names = ["zone", "row", "seat"] + ([] if layout == "wristband" else ["start", "doors"])
    assert [name for name in names if squeezed(WORDS[language][name]) not in text] == []


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("zone", ZONES)
def test_a_long_block_is_broken_before_it_is_cut(ticket: TicketPdf, layout: str, zone: str) -> None:
    for seat in (Seat(zone=zone, row="1", number="2"), Seat(zone=zone, row="XXXVIII", number="1234–1239")):
        pdf = ticket.render(request(position(seat=seat), layout=layout), no_check)
        assert squeezed(zone) in squeezed_text_of(pdf)
        assert "…" not in text_of(pdf)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_long_zone_of_time_and_doors_of_another_day_are_whole(ticket: TicketPdf, layout: str) -> None:
    """With the longest price besides, where there is one, in a language of long dates."""
    yesterday = dt.datetime(2026, 6, 30, 17, 0, tzinfo=dt.UTC)
    for zone in ("America/Argentina/Buenos_Aires", "America/North_Dakota/New_Salem", "America/New_York"):
        of = request(
            position(amount_minor=10**12), layout=layout, locale="fr-FR", event=event(tz=zone, doors_at=yesterday)
        )
        pdf = ticket.render(of, no_check)
        assert squeezed(zone) in squeezed_text_of(pdf)
        assert "…" not in text_of(pdf)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tz", ["Europe/Berlin", "America/Argentina/Buenos_Aires"])
def test_long_words_of_a_row_leave_neither_it_nor_the_page(ticket: TicketPdf, layout: str, tz: str) -> None:
    """Rows end where the boxes above them do; no two facts of one share a place."""
    long = Seat(zone="W" * 300, row="W" * 300, number="W" * 300)
    of = request(position(seat=long, amount_minor=10**14), layout=layout, event=event(tz=tz))
    (width, height), boxes = glyph_boxes(ticket.render(of, no_check))
    for left, bottom, right, top in boxes:
        assert 0 <= left <= right <= width
        assert 0 <= bottom <= top <= height
    places = [(box[0], box[1]) for box in boxes if box[2] > box[0]]
    assert len(places) == len(set(places))


def test_all_words_of_a_row_have_one_size_and_begin_on_one_line(ticket: TicketPdf) -> None:
    seat = Seat(zone="WWWWWW WWWWWW WWWWWW WWWWWW", row="WW", number="WWW")
    _, boxes = glyph_boxes(ticket.render(request(position(seat=seat), layout="phone"), no_check))
    # All that stands between the labels and the card, in points from the bottom of the page.
    words = [box for box in boxes if 290 < box[1] < 325 and box[2] - box[0] > 5]
    assert len(words) == 29
    assert len({round(top - bottom, 1) for _, bottom, _, top in words}) == 1
    lines = sorted({round(bottom, 1) for _, bottom, _, _ in words})
    assert len(lines) == 2
    assert sum(round(bottom, 1) == lines[-1] for _, bottom, _, _ in words) == 12 + 2 + 3


# -- what is on which layout ---------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_order_number_offset_and_zone(ticket: TicketPdf, layout: str) -> None:
    of = request(position(1), position(2), position(3), layout=layout)
    text = text_of(ticket.render(of, no_check)).upper()
    assert [words for words in ("4471", "1 / 3", "UTC+2", "EUROPE/BERLIN") if words not in text] == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_terms_are_on_every_layout_but_the_wristband(ticket: TicketPdf, layout: str) -> None:
    terms = [f"§ {number} Nothing is allowed." for number in range(130)]
    pdf = ticket.render(request(layout=layout, event=event(terms="\n".join(terms))), no_check)
    found = [line for line in text_of(pdf).split("\n") if line.startswith("§")]
    assert found == ([] if layout == "wristband" else terms)
    assert page_count(pdf) == 1 or layout != "wristband"


def test_short_terms_need_no_page_of_their_own_on_a_telephone(ticket: TicketPdf) -> None:
    pdf = ticket.render(request(layout="phone", event=event(terms="No umbrellas.\nNo re-admission.")), no_check)
    assert page_count(pdf) == 1
    assert "No re-admission." in lines_of(pdf)


def test_the_pages_of_light_words_are_as_dark_as_the_first(ticket: TicketPdf) -> None:
    """Words that are light would be lost on white paper."""
    terms = event(terms="word " * 2000)

    def light_part(layout: str) -> float:
        counts = picture_of(ticket.render(request(layout=layout, event=terms), no_check), page=1).histogram()
        return sum(counts[128:]) / sum(counts)

    assert 0.01 < light_part("phone") < 0.3
    assert 0.7 < light_part("a5") < 1


def test_a_row_from_the_right_keeps_its_figures_beside_a_long_block(ticket: TicketPdf) -> None:
    seat = Seat(zone="יציע מערבי עליון עם נוף מוגבל לבמה", row="12", number="114")
    for layout in LAYOUTS:
        pdf = ticket.render(request(position(seat=seat), locale="he-IL", layout=layout), no_check)
        edges = edges_of(pdf)
        assert edges["114"][1] < edges["12"][0]
        assert "…" not in text_of(pdf)
    addon = attrs.evolve(position(2), addon_to=1, seat=None, holder="")
    of = request(position(1, seat=seat), addon, locale="he-IL", layout="wristband")
    assert "114" in edges_of(ticket.render(attrs.evolve(of, position=addon), no_check))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_long_category_leaves_room_for_a_long_name(ticket: TicketPdf, layout: str) -> None:
    category = "24/7 Concierge Supporter Package including Backstage Tour and Dinner with the Artists"
    holder = "Jean-Luc Berthelot de la Rochefoucauld et de Montmorency-Laval, Comte"
    of = request(position(category=category, holder=holder), layout=layout)
    text = squeezed_text_of(ticket.render(of, no_check))
    assert [words for words in (category, holder) if squeezed(words) not in text] == []


def test_a_paragraph_with_room_for_one_line_ends_in_an_ellipsis(tmp_path: Path) -> None:
    (tmp_path / "slip.toml").write_text(
        """
[page]
width = 90
height = 60

[[box]]
type = "qr"
x = 5
y = 15
side = 40

[[box]]
type = "paragraph"
text = "{terms}"
x = 5
y = 5
w = 60
h = 3.4
size = 6
min_size = 6
""",
        encoding="utf-8",
    )
    renderer = TicketPdf(layout="slip", layouts=tmp_path)
    renderer.warm_up()
    drawn = renderer.render(request(position(), event=event(terms="no cameras " * 40)), no_check)
    (line,) = [line for line in lines_of(drawn) if "cameras" in line]
    assert line.endswith(("…", "..."))
