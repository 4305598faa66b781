"""Layouts: what ships works with any content, and what is wrong with a file is said with file and box."""

import importlib.resources
import json
import re
import tomllib
from pathlib import Path

import attrs
import pytest

from stagedoor.errors import ConfigurationError, InvalidRequest
from stagedoor.order import Seat
from stagedoor_renderers.boxes import BOX_TYPES, Entry, Fact, PageSize
from stagedoor_renderers.layout import read_layout
from stagedoor_renderers.stock import Stock, built_in_layouts
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import TOKEN, event, no_check, position, request, token, whole
from tests.rendering.reading import codes_in, codes_of, glyph_boxes, lines_of, page_count, picture_of, text_of
from tests.rendering.reference import keys_of

LAYOUTS = ("a4-fold", "a5", "phone", "thermal-80", "wristband")

LONG = (
    "Supporter " * 12,
    "W" * 300,
    "山" * 200,
    "Maximilian Alexander Johannes Freiherr von und zu Hohenlohe-Waldenburg-Schillingsfürst",
    "שלום " * 60,
)

GOOD = """
[page]
width = 100
height = 100

[[box]]
name = "who"
type = "text"
text = "{holder}"
x = 10
y = 10
w = 80
h = 10
size = 12

[[box]]
name = "code"
type = "qr"
x = 30
y = 40
side = 40
"""


def test_the_layouts_that_ship_are_the_ones_that_are_tested() -> None:
    assert tuple(built_in_layouts()) == LAYOUTS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_shows_who_what_where_and_when_and_its_code_scans(ticket: TicketPdf, layout: str) -> None:
    pdf = ticket.render(request(position(seat=Seat(zone="B", row="C", number="8")), layout=layout), no_check)
    text = text_of(pdf)
    for words in ("Zoë Šimková", "Die Zauberflöte", "Theater am Goetheplatz", "20:00", "UTC+2", token(1)[:4]):
        assert words in text
    assert codes_of(pdf) == [token(1)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("words", LONG)
def test_nothing_leaves_the_page_in_any_layout(ticket: TicketPdf, layout: str, words: str) -> None:
    long = position(holder=words, category=words, seat=Seat(zone=words, row=words, number=words))
    wanted = request(long, layout=layout, event=event(name=words, venue=words, sub_event=words, terms=words))
    pdf = ticket.render(wanted, no_check)
    (width, height), boxes = glyph_boxes(pdf)
    for left, bottom, right, top in boxes:
        assert 0 <= left <= right <= width
        assert 0 <= bottom <= top <= height
    assert codes_of(pdf) == [token(1)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_order_is_one_document_with_one_page_for_each_ticket(ticket: TicketPdf, layout: str) -> None:
    pdf = ticket.render(whole(request(*(position(n) for n in (1, 2, 3)), layout=layout)), no_check)
    assert page_count(pdf) == 3
    assert codes_of(pdf) == [token(n) for n in (1, 2, 3)]


def test_the_code_is_pure_black_on_white_also_on_the_dark_page(ticket: TicketPdf) -> None:
    """Between the modules, and four modules around them, nothing but white."""
    image = picture_of(ticket.render(request(layout="phone"), no_check), dpi=254)
    side = image.crop((150, 960, 750, 1560))
    assert side.getpixel((1, 1)) == side.getpixel((598, 598)) == 255
    assert side.getextrema() == (0, 255)


# -- what can be wrong --------------------------------------------------------


def test_a_good_layout_is_read() -> None:
    layout = read_layout(GOOD, name="own", file="own.toml")
    assert (layout.name, layout.page.width, len(layout.boxes)) == ("own", 100, 2)


def test_a_shop_draws_with_a_layout_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(GOOD, encoding="utf-8")
    renderer = TicketPdf(layouts=tmp_path, layout="own", name="own-ticket")
    renderer.warm_up()
    pdf = renderer.render(request(position(token=TOKEN)), no_check)
    assert lines_of(pdf) == ["Zoë Šimková"]
    assert codes_of(pdf) == [TOKEN]


def test_a_code_brings_its_own_white_to_a_dark_design(tmp_path: Path) -> None:
    """The layout paints the whole page black and leaves no light place for the code."""
    ground = '[[box]]\ntype = "rect"\nx = 0\ny = 0\nw = 100\nh = 100\ncolor = "#000000"\n\n[[box]]\nname = "who"'
    (tmp_path / "own.toml").write_text(GOOD.replace('[[box]]\nname = "who"', ground), encoding="utf-8")
    renderer = TicketPdf(layouts=tmp_path, layout="own")
    renderer.warm_up()
    image = picture_of(renderer.render(request(), no_check), dpi=254)
    assert codes_in(image) == [token(1)]
    assert image.getpixel((305, 405)) == 255
    assert image.getpixel((295, 395)) == 0


def test_terms_that_would_take_too_many_pages_are_refused_by_their_box(tmp_path: Path) -> None:
    terms = '[[box]]\nname = "terms"\ntype = "paragraph"\ntext = "{terms}"\noverflow = "page"\n'
    place = "x = 10\ny = 90\nw = 80\nh = 9\nsize = 12\nmin_size = 12\n"
    (tmp_path / "own.toml").write_text(GOOD.replace("[page]", "[page]\nmargin = 40") + terms + place, encoding="utf-8")
    renderer = TicketPdf(layouts=tmp_path, layout="own")
    renderer.warm_up()
    with pytest.raises(InvalidRequest, match="layout own: the rest of box terms needs more than 50 pages"):
        renderer.render(request(event=event(terms="word " * 2000)), no_check)


def test_a_changed_layout_changes_the_fingerprint(tmp_path: Path, ticket: TicketPdf) -> None:
    (tmp_path / "own.toml").write_text(GOOD, encoding="utf-8")
    before = TicketPdf(layouts=tmp_path, layout="own").fingerprint()
    (tmp_path / "own.toml").write_text(GOOD.replace("size = 12", "size = 13"), encoding="utf-8")
    after = TicketPdf(layouts=tmp_path, layout="own").fingerprint()
    assert len({before, after, ticket.fingerprint()}) == 3


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere cannot be read"):
        TicketPdf(layouts=tmp_path / "nowhere").warm_up()


def test_a_default_layout_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match="there is none called 'a0'; there are a4-fold, a5"):
        TicketPdf(layout="a0").warm_up()


def test_a_label_goes_with_its_value(stock: Stock, ticket: TicketPdf) -> None:
    """No doors, no word for doors."""
    assert "DOORS" not in text_of(ticket.render(request(), no_check))


def test_turned_text_is_drawn_where_its_box_is(tmp_path: Path) -> None:
    turned = GOOD.replace("w = 80\nh = 10", "w = 10\nh = 80").replace("size = 12", "size = 12\nrotate = 90")
    (tmp_path / "own.toml").write_text(turned.replace("x = 30", "x = 40"), encoding="utf-8")
    renderer = TicketPdf(layouts=tmp_path, layout="own")
    renderer.warm_up()
    _, boxes = glyph_boxes(renderer.render(request(), no_check))
    millimetres = [(left / 72 * 25.4, right / 72 * 25.4) for left, _, right, _ in boxes]
    assert all(9 <= left <= right <= 21 for left, right in millimetres)


# -- the same as JSON ----------------------------------------------------------


def as_json(text: str) -> str:
    return json.dumps(tomllib.loads(text))


def test_a_layout_may_be_json_and_draws_the_same(tmp_path: Path) -> None:
    (tmp_path / "toml").mkdir()
    (tmp_path / "json").mkdir()
    (tmp_path / "toml" / "own.toml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "json" / "own.json").write_text(as_json(GOOD), encoding="utf-8")
    drawn = [TicketPdf(layout="own", layouts=tmp_path / form).render(request(), no_check) for form in ("toml", "json")]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    "text, said",
    [
        ("{,}", "layout own.json is no JSON"),
        ("[" * 100_000, "layout own.json is no JSON"),
        ("[]", "layout own.json must be one object"),
        ('{"page": {"width": 1e999, "height": 50}}', "must be a number from 20 to 1000, found inf"),
        ('{"page": {"width": 50, "width": 60}}', "the key 'width' is there twice"),
    ],
)
def test_what_is_no_layout_in_json_is_refused_in_a_line(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        read_layout(text, name="own", file="own.json")


def test_one_layout_in_both_forms_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "own.json").write_text(as_json(GOOD), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"own is there twice, as own\.toml and as own\.json"):
        TicketPdf(layout="own", layouts=tmp_path).warm_up()


def test_a_shop_may_name_the_file_of_one_layout_and_nothing_beside_it_is_read(
    tmp_path: Path, ticket: TicketPdf
) -> None:
    (tmp_path / "own.json").write_text(as_json(GOOD), encoding="utf-8")
    (tmp_path / "orders.json").write_text("{}", encoding="utf-8")
    renderer = TicketPdf(layout="own", layouts=tmp_path / "own.json")
    renderer.warm_up()
    (tmp_path / "orders.json").write_text("{ }", encoding="utf-8")
    assert TicketPdf(layout="own", layouts=tmp_path / "own.json").fingerprint() == renderer.fingerprint()
    (tmp_path / "own.json").write_text(as_json(GOOD) + " ", encoding="utf-8")
    assert TicketPdf(layout="own", layouts=tmp_path / "own.json").fingerprint() != renderer.fingerprint()


# -- add-ons -------------------------------------------------------------------

ADDONS = """
[page]
width = 100
height = 100

[[box]]
name = "code"
type = "qr"
x = 30
y = 55
side = 40

[[box]]
name = "with-it"
type = "addons"
x = 10
y = 10
w = 60
h = 20
size = 10
min_size = 6
"""


def with_addons(tmp_path: Path, *categories: str) -> bytes:
    (tmp_path / "own.toml").write_text(ADDONS, encoding="utf-8")
    addons = (position(n, category=name, addon_to=1, seat=None) for n, name in enumerate(categories, start=2))
    return TicketPdf(layout="own", layouts=tmp_path).render(request(position(), *addons), no_check)


def test_add_ons_have_a_line_each_under_their_label_and_equal_ones_are_counted(tmp_path: Path) -> None:
    pdf = with_addons(tmp_path, "Programme", "Parking <P1>", "Programme")
    assert [line for line in lines_of(pdf) if line] == ["INCLUDES", "2 × Programme", "Parking <P1>"]


def test_add_ons_that_find_no_room_are_counted_in_the_last_line(tmp_path: Path) -> None:
    pdf = with_addons(tmp_path, *(f"Number {n}" for n in range(30)))
    lines = [line for line in lines_of(pdf) if line][1:]
    shown = len(lines) - 1
    assert lines == [*(f"Number {n}" for n in range(shown)), f"+ {30 - shown}"]
    assert shown > 3


@pytest.mark.parametrize("name", ["W" * 200, "山" * 100, "שלום " * 40])
def test_long_add_ons_stay_in_their_box(tmp_path: Path, name: str) -> None:
    _, boxes = glyph_boxes(with_addons(tmp_path, name, "Parking"))
    right = 70 * 72 / 25.4
    assert all(box[2] <= right + 0.5 for box in boxes)


def test_a_ticket_without_add_ons_has_no_label_for_them(tmp_path: Path) -> None:
    assert [line for line in lines_of(with_addons(tmp_path)) if line] == []


# -- words ---------------------------------------------------------------------


def test_every_language_has_every_word_with_the_places_for_numbers() -> None:
    words = tomllib.loads(
        (Path(str(importlib.resources.files("stagedoor_renderers"))) / "words.toml").read_text("utf-8")
    )
    places = {name: set(re.findall(r"{\w+}", word)) for name, word in words["en"].items()}
    for language, own in words.items():
        assert own.keys() == places.keys(), language
        assert {name: set(re.findall(r"{\w+}", word)) for name, word in own.items()} == places, language


# -- the guide -----------------------------------------------------------------


def test_the_guide_says_of_every_key_what_it_is() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "renderers.md").read_text("utf-8")
    told = {key for row in re.findall(r"^\| (`[^|]*`) \|", guide, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)}
    kinds = (*BOX_TYPES.values(), Fact, Entry, PageSize)
    assert {key.name for kind in kinds for key in keys_of(kind)} - told == set()


def test_a_paragraph_is_turned_too(tmp_path: Path) -> None:
    box = '[[box]]\ntype = "paragraph"\ntext = "{holder}"\nx = 5\ny = 10\nw = 20\nh = 80\nsize = 9\nrotate = 90\n'
    upright = GOOD[: GOOD.index('[[box]]\nname = "who"')] + GOOD[GOOD.index('[[box]]\nname = "code"') :] + box
    (tmp_path / "own.toml").write_text(upright, encoding="utf-8")
    words = "Zoë Šimková " * 4
    pdf = TicketPdf(layout="own", layouts=tmp_path).render(request(position(holder=words)), no_check)
    _, boxes = glyph_boxes(pdf)
    assert max(box[2] for box in boxes) - min(box[0] for box in boxes) < 20 * 72 / 25.4
    assert max(box[3] for box in boxes) - min(box[1] for box in boxes) > 40 * 72 / 25.4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_names_the_addons_and_what_an_addon_extends(layout: str, ticket: TicketPdf) -> None:
    addon = position(2, category="Programme", holder="", seat=None, addon_to=1)
    of = request(position(1), addon, layout=layout)
    assert "Programme" in text_of(ticket.render(of, no_check))
    of_addon = text_of(ticket.render(attrs.evolve(of, position=addon), no_check))
    assert {word for word in ("PROGRAMME", "Parkett", "Zoë Šimková") if word not in of_addon} == set()
