"""The ticket itself: what it says, in any script, on paper that any viewer and scanner can read."""

import datetime as dt
import hashlib
import io
import unicodedata
from typing import Any

import attrs
import pypdf
import pytest

from stagedoor.errors import InvalidRequest
from stagedoor.order import Seat
from stagedoor.rendering.api import RenderRequest
from stagedoor_renderers.kit.typeset import ELLIPSIS
from stagedoor_renderers.limits import MAX_POSITIONS, MAX_TERMS
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import event, named, no_check, order, position, request, whole
from tests.rendering.reading import codes_of, edges_of, fonts_of, glyph_boxes, lines_of, page_count, text_of


def drawn(renderer: TicketPdf, wanted: RenderRequest) -> bytes:
    return renderer.render(wanted, no_check)


def test_a_ticket_is_a_pdf_of_one_page(ticket: TicketPdf) -> None:
    pdf = drawn(ticket, named("Anna"))
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")
    assert page_count(pdf) == 1


def test_everything_that_admits_is_on_it(ticket: TicketPdf) -> None:
    """20:00 is Berlin's clock for 18:00 UTC in July; the zone stands beside it."""
    text = text_of(drawn(ticket, request(position(seat=Seat(zone="B", row="C", number="8")))))
    for words in ("Die Zauberflöte", "Theater am Goetheplatz, Bremen", "Wednesday, 1 July 2026", "20:00", "UTC+2"):
        assert words in text
    for words in ("Zoë Šimková", "Parkett", "PARKETT", "BLOCK\nB\nROW\nC\nSEAT\n8", "€45.00", "4471"):
        assert words in text or words == "Parkett"


def test_the_code_is_the_token_and_nothing_else(ticket: TicketPdf) -> None:
    wanted = named("Anna")
    assert wanted.position is not None
    assert codes_of(drawn(ticket, wanted)) == [wanted.position.token]


def test_three_positions_have_three_codes_in_their_order(ticket: TicketPdf) -> None:
    positions = [position(n, holder=f"Guest {n}") for n in (1, 2, 3)]
    pdf = drawn(ticket, whole(request(*positions)))
    assert page_count(pdf) == 3
    assert codes_of(pdf) == [p.token for p in positions]
    assert len(set(codes_of(pdf))) == 3
    for page in range(3):
        assert f"Guest {page + 1}" in lines_of(pdf, page)
        assert f"{page + 1} / 3" in lines_of(pdf, page)


def test_only_placed_positions_are_in_the_document_of_an_order(ticket: TicketPdf) -> None:
    pdf = drawn(ticket, whole(request(position(1), position(2, status="refunded"), position(3))))
    assert codes_of(pdf) == [position(1).token, position(3).token]


def test_an_order_without_a_placed_position_has_no_ticket(ticket: TicketPdf) -> None:
    with pytest.raises(InvalidRequest, match=r"order\.positions: none is placed"):
        drawn(ticket, RenderRequest(order=order(status="refunded")))


# -- scripts ------------------------------------------------------------------

NAMES = [
    "Zoë Šimková Řehoř",
    "Nguyễn Thị Ánh",
    "Łukasz Żółć-Błaszczyk",
    "Þórður Æsir Øst",
    "Ağrı İstanbul ğışçöü",
    "Αθηνά Παπαδοπούλου",
    "Ольга Їжакевич",
    "Արամ Խաչատրյան",
    "ნინო",
    "山田太郎",
    "さくらカタカナ",
    "王小明 臺灣",
    "김민준",
    "שלום עולם",
    "(שלום) עולם",
    "مرحبا بالعالم",
    "لا إله",
    "پژمان گلچین",
    "n̈ata ẹ̃x x̌ X̌",
    "שָׁלוֹם עוֹלָם",
    "מֹשֶׁה בֶּן־מַיְמוֹן",
    "שִׂמְחָה כֹּהֵן",
    "مُحَمَّد الأَمِين",
    "فَاطِمَةُ الزَّهْرَاء",
    "سَلَام لِأَحْمَد",
    "José n̈o",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_extracted_as_it_was_typed(ticket: TicketPdf, name: str) -> None:
    pdf = drawn(ticket, named(name))
    # A long name has two lines; where a line ends, a blank was.
    assert unicodedata.normalize("NFC", name) in " ".join(lines_of(pdf))
    assert ticket.notes(named(name)) == ()


def test_joined_arabic_forms_are_copied_as_letters(ticket: TicketPdf) -> None:
    """Also by programs that do not know joined forms; this one shows lines in the order of their glyphs."""
    extracted = pypdf.PdfReader(io.BytesIO(drawn(ticket, named("مرحبا بالعالم")))).pages[0].extract_text()
    assert not [char for char in extracted if "\ufb50" <= char <= "\ufefc"]
    assert set("مرحبا بالعالم") <= set(extracted)


@pytest.mark.parametrize(
    "name",
    [
        "Noa שָׁלוֹם Levi مُحَمَّد",
        "Hamlet: המלט (2026)",
        "ألف ليلة (Live) 2026",
        "שלום, World!",
        "Noa (נועה) Levi",
        "Oper [אופרה] 12",
        "תל אביב / Tel Aviv",
        "مسرح (القاعة A)",
    ],
)
def test_a_line_of_two_directions_is_copied_word_by_word(ticket: TicketPdf, name: str) -> None:
    """Signs between words of two directions are put where each viewer thinks best, and brackets turned."""

    def words(text: str) -> list[str]:
        return sorted("".join(char if char.isalnum() or unicodedata.combining(char) else " " for char in text).split())

    assert words(unicodedata.normalize("NFC", name)) in [words(line) for line in lines_of(drawn(ticket, named(name)))]


def test_a_language_from_the_right_begins_at_the_right_edge(ticket: TicketPdf) -> None:
    """Labels, texts, rows and paragraphs; the first fact of a row is its rightmost."""
    of = request(
        position(holder="נועה"),
        locale="he-IL",
        layout="a5",
        event=event(name="חליל הקסם", venue="תל אביב", terms="אין לצלם."),
    )
    edges = edges_of(ticket.render(of, no_check))
    for words in ("חליל", "תל", "אין", "התחלה", "20:00"):
        assert edges[words][1] == pytest.approx(138, abs=1.5), words
    for words in ("שם", "נועה"):
        assert edges[words][1] == pytest.approx(200, abs=1), words
    assert edges["מחיר"][1] < edges["UTC+2"][0]


def test_figures_alone_run_from_the_right_in_such_a_language_and_are_copied_as_they_are(ticket: TicketPdf) -> None:
    of = request(position(amount_minor=4500), position(2), locale="he-IL", layout="a5", currency="ILS")
    pdf = ticket.render(of, no_check)
    assert "1 / 2" in lines_of(pdf)
    contents: Any = pypdf.PdfReader(io.BytesIO(pdf)).pages[0]["/Contents"]
    assert f"<{b'2 / 1'.hex()}>".encode() in contents.get_object().get_data()


@pytest.mark.parametrize("name", ["Nguyễn Thị Ánh", "Zoë", "김민준", "Šimková"])
def test_composed_and_decomposed_names_give_the_same_bytes(ticket: TicketPdf, name: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert drawn(ticket, named(composed)) == drawn(ticket, named(decomposed))


@pytest.mark.parametrize(
    "name, shown",
    [
        ("Add-on 🎉 VIP", "Add-on \ufffd VIP"),
        ("Eva 👩\u200d💻 Huber", "Eva \ufffd Huber"),
        ("Eva 🇩🇪", "Eva \ufffd"),
        ("Eva 👍🏽!", "Eva \ufffd!"),
    ],
)
def test_an_emoji_is_one_visible_mark_and_a_note(ticket: TicketPdf, name: str, shown: str) -> None:
    assert shown in lines_of(drawn(ticket, named(name)))
    (note,) = ticket.notes(named(name))
    assert note.startswith("holder: 1 replaced by a mark")
    assert "Eva" not in note


@pytest.mark.parametrize("name", ["क्षत्रिय नियुक्ति", "น้ำ ปี่ ปี๊", "ខ្មែរ", "தமிழ்", "မြန်မာ", "ສະບາຍດີ", "ߒߞߏ"])
def test_scripts_that_need_shaping_are_marked_and_noted_never_wrong(ticket: TicketPdf, name: str) -> None:
    """Lao and N'Ko have glyphs in the fonts that ship; one after the other they are not the words."""
    pdf = drawn(ticket, named(name))
    assert not set(name) - {" "} & set(text_of(pdf))
    assert "\ufffd" in text_of(pdf)
    assert ticket.notes(named(name))


def test_a_shop_may_have_such_names_refused_instead() -> None:
    strict = TicketPdf(missing="refuse")
    strict.warm_up()
    with pytest.raises(InvalidRequest, match=r"holder: 1 replaced by a mark, for no font here draws U\+1F389"):
        drawn(strict, named("🎉"))
    assert drawn(strict, named("Anna"))


@pytest.mark.parametrize(
    "name, shown",
    [
        ("A\tB\x07\x1b[31m\x00", "A B"),
        ("A\u202egnp.exe", "Agnp.exe"),
        ("\u2066Anna\u2069\u200b\ufeff", "Anna"),
        ("Anna\x0cMüller", "Anna Müller"),
        ("Anna\r\nMüller", "Anna Müller"),
        ("soft\u00adhyphen", "softhyphen"),
    ],
)
def test_what_is_invisible_or_turns_the_text_round_is_gone(ticket: TicketPdf, name: str, shown: str) -> None:
    assert shown in lines_of(drawn(ticket, named(name)))


def test_a_lone_surrogate_is_a_mark_not_an_error(ticket: TicketPdf) -> None:
    assert "A\ufffdB" in lines_of(drawn(ticket, named("A\ud800B")))


# -- markup -------------------------------------------------------------------

MARKUP = [
    "AT&T",
    "R&D <Dept>",
    "<3 Anna",
    "<b>Anna",
    "</para>",
    "0.1 <A <0.9",
    "&#99999999999;",
    "<seq id='x'/>",
    "<img src='/etc/hostname'/>",
    "<font color='red'>",
    r"(a) \(b\) \n",
]


@pytest.mark.parametrize("name", MARKUP)
def test_markup_is_printed_as_it_was_typed(ticket: TicketPdf, name: str) -> None:
    wide = attrs.evolve(named("x"), order=order(event=event(name=name)))
    joined = "".join(lines_of(drawn(ticket, wide))).replace(" ", "")
    assert name.replace(" ", "") in joined


# -- fit ----------------------------------------------------------------------

LONG = [
    "Supporter " * 12,
    "W" * 300,
    "Maximilian Alexander Johannes Freiherr von und zu Hohenlohe-Waldenburg-Schillingsfürst der Jüngere",
    "山" * 200,
    "a" + "\u0301" * 500,
    "שלום " * 60,
]


@pytest.mark.parametrize("words", LONG)
def test_nothing_leaves_the_page_however_long_it_is(ticket: TicketPdf, words: str) -> None:
    """All four places that hold a buyer's or organiser's words at once; the code still scans."""
    long = position(holder=words, category=words, seat=Seat(zone=words, row=words, number=words))
    wanted = request(long, event=event(name=words, venue=words, sub_event=words, terms=words))
    pdf = drawn(ticket, wanted)
    (width, height), boxes = glyph_boxes(pdf)
    for left, bottom, right, top in boxes:
        assert left >= 0
        assert bottom >= 0
        assert right <= width
        assert top <= height
    assert codes_of(pdf) == [long.token]


def test_what_does_not_fit_at_the_floor_ends_in_an_ellipsis(ticket: TicketPdf) -> None:
    assert any(line.endswith(ELLIPSIS) for line in lines_of(drawn(ticket, named("W" * 300))))


def test_long_terms_go_to_further_pages_with_their_line_breaks(ticket: TicketPdf) -> None:
    terms = "\n".join(f"§ {number} Nothing is allowed that is not allowed elsewhere." for number in range(120))
    pdf = drawn(ticket, request(event=event(terms=terms)))
    assert page_count(pdf) > 1
    found = [line for page in range(page_count(pdf)) for line in lines_of(pdf, page) if line.startswith("§")]
    assert found == terms.split("\n")
    assert len(codes_of(pdf)) == 1


def test_the_rest_of_the_terms_is_printed_once_in_the_document_of_an_order(ticket: TicketPdf) -> None:
    terms = "\n".join(f"§ {number} Nothing is allowed." for number in range(80))
    positions = [position(n) for n in range(1, 6)]
    pdf = drawn(ticket, whole(request(*positions, event=event(terms=terms))))
    assert text_of(pdf).count("§ 79 ") == 1


# -- limits -------------------------------------------------------------------


def test_too_many_positions_are_refused_by_name(ticket: TicketPdf) -> None:
    many = tuple(position(n) for n in range(1, MAX_POSITIONS + 2))
    with pytest.raises(InvalidRequest, match=r"order\.positions: 501 are too many"):
        drawn(ticket, whole(request(*many)))


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"event": event(terms="x" * (MAX_TERMS + 1))}, r"event\.terms"),
        ({"event": event(terms="\n" * 2000)}, r"event\.terms"),
        ({"event": event(name="x" * 2000)}, r"event\.name"),
        ({"event": event(tz="Europe/Atlantis")}, r"event\.tz"),
        ({"event": event(starts_at=dt.datetime(2026, 1, 1))}, r"event\.starts_at"),  # noqa: DTZ001 - the case
        ({"currency": "XXZ"}, r"order\.currency"),
    ],
)
def test_what_can_never_be_drawn_names_its_field(ticket: TicketPdf, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        drawn(ticket, request(**changes))


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"holder": "x" * 2000}, r"position\.holder"),
        ({"seat": Seat(row="x" * 2000)}, r"position\.seat\.row"),
        ({"token": "Zoë"}, r"position\.token"),
        ({"token": ""}, r"position\.token"),
        ({"token": "two words"}, r"position\.token"),
        ({"addon_to": 99}, r"position\.addon_to"),
        ({"addon_to": 1}, r"position\.addon_to"),
    ],
)
def test_a_position_that_can_never_be_drawn_names_its_field(
    ticket: TicketPdf, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest, match=field):
        drawn(ticket, request(position(1, **changes)))


def test_an_unknown_layout_is_refused_by_name(ticket: TicketPdf) -> None:
    with pytest.raises(InvalidRequest, match=r"layout: there is none called 'a0'; there are .*a5"):
        drawn(ticket, request(layout="a0"))


def test_the_check_is_called_between_pages(ticket: TicketPdf) -> None:
    class Lost(Exception):
        pass

    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Lost

    with pytest.raises(Lost):
        ticket.render(whole(request(*(position(n) for n in range(1, 9)))), check)


# -- the file -----------------------------------------------------------------


def test_every_font_is_embedded_and_none_is_one_of_the_standard_fourteen(ticket: TicketPdf) -> None:
    fonts = list(
        fonts_of(drawn(ticket, whole(request(*(position(n, holder=name) for n, name in enumerate(NAMES, 1))))))
    )
    assert fonts
    for font in fonts:
        descriptor = font["/FontDescriptor"].get_object()
        assert len(descriptor["/FontFile2"].get_object().get_data()) > 1000
        assert font["/BaseFont"][7:8] == "+"
        assert "/ToUnicode" in font
    assert b"Helvetica" not in drawn(ticket, named("Anna"))


def test_fonts_of_different_pages_never_share_a_name(ticket: TicketPdf) -> None:
    """Programs that merge PDFs take fonts of one name for one font."""
    seen: dict[str, bytes] = {}
    for name in NAMES:
        for font in fonts_of(drawn(ticket, named(name))):
            data = font["/FontDescriptor"].get_object()["/FontFile2"].get_object().get_data()
            digest = hashlib.sha256(data).digest()
            assert seen.setdefault(font["/BaseFont"], digest) == digest


def test_title_and_language_are_set_and_no_date(ticket: TicketPdf) -> None:
    reader = pypdf.PdfReader(io.BytesIO(drawn(ticket, attrs.evolve(named("Anna"), locale="de-AT"))))
    assert reader.metadata is not None
    assert reader.metadata.title == "Die Zauberflöte · Bestellung 4471"
    assert "/CreationDate" not in reader.metadata
    root: Any = reader.trailer["/Root"]
    assert root["/Lang"] == "de-AT"
    assert root["/ViewerPreferences"]["/DisplayDocTitle"]


def test_a_title_in_any_script_is_a_valid_one(ticket: TicketPdf) -> None:
    pdf = drawn(ticket, request(event=event(name="東京 (テスト) \\ \ud800")))
    metadata = pypdf.PdfReader(io.BytesIO(pdf)).metadata
    assert metadata is not None
    assert metadata.title == "東京 (テスト) \\ \ufffd · Order 4471"


def test_the_same_request_gives_the_same_bytes(ticket: TicketPdf) -> None:
    assert drawn(ticket, named("Zoë")) == drawn(ticket, named("Zoë"))


def test_another_instance_gives_the_same_bytes(ticket: TicketPdf) -> None:
    assert drawn(TicketPdf(), named("Zoë")) == drawn(ticket, named("Zoë"))


def test_a_change_of_the_day_or_of_source_date_epoch_changes_nothing(
    ticket: TicketPdf, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn(ticket, named("Zoë"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1234567890")
    assert drawn(ticket, named("Zoë")) == before


@pytest.mark.parametrize("name", ["Zoë Šimková", "山田太郎 황보 شهرزاد Ἀθηνᾶ"])
@pytest.mark.parametrize("layout", ["a4-fold", "a5", "phone", "thermal-80", "wristband"])
def test_a_ticket_is_small_enough_for_any_mailbox(ticket: TicketPdf, layout: str, name: str) -> None:
    """Fonts are cut into pages of one script, so the largest does not come with a name in Chinese."""
    assert len(drawn(ticket, request(position(holder=name), layout=layout))) < 250_000
