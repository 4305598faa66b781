"""The receipt: what was bought, for how much, with the taxes as the shop computed them."""

import io
from typing import Any

import attrs
import pypdf
import pytest

from stagedoor.errors import InvalidRequest
from stagedoor.order import TaxLine
from stagedoor.rendering.api import RenderRequest
from stagedoor.rendering.view import request_for
from stagedoor_renderers.kit.sheet import MM
from stagedoor_renderers.limits import MAX_TAXES
from stagedoor_renderers.receipt_pdf import ReceiptPdf
from tests.rendering.orders import no_check, order, position, request, whole
from tests.rendering.reading import edges_of, fonts_of, glyph_boxes, lines_of, page_count, text_of
from tests.rendering.test_layouts import LONG


def test_it_has_number_buyer_items_total_and_every_tax_line(receipt: ReceiptPdf) -> None:
    taxes = (TaxLine(label="7 %", amount_minor=589), TaxLine(label="19 %", amount_minor=128))
    wanted = request(
        position(1),
        position(2, amount_minor=0),
        position(3, amount_minor=800, category="Programme", addon_to=1),
        receipt_number="2026-0815",
        taxes=taxes,
        buyer="Łucja Nguyễn",
    )
    text = text_of(receipt.render(whole(wanted), no_check))
    for words in (
        "Receipt",
        "2026-0815",
        "Łucja Nguyễn",
        "Programme",
        "Free",
        "€45.00",
        "€53.00",
        "7 %",
        "€5.89",
        "€1.28",
    ):
        assert words in text


def test_taxes_are_taken_from_the_order_and_never_computed(receipt: ReceiptPdf) -> None:
    text = text_of(receipt.render(request(taxes=(TaxLine(label="odd", amount_minor=1),)), no_check))
    assert "€0.01" in text


def taxed(count: int, positions: int, locale: str = "en-GB") -> RenderRequest:
    taxes = tuple(TaxLine(label=f"No. {n}.", amount_minor=10_000 + n) for n in range(1, count + 1))
    wanted = request(*(position(n, holder=f"Guest {n}.") for n in range(1, positions + 1)), taxes=taxes, locale=locale)
    return whole(wanted)


@pytest.mark.parametrize("count", range(1, MAX_TAXES + 1))
def test_tax_lines_go_on_over_further_pages_and_none_leaves_them(receipt: ReceiptPdf, count: int) -> None:
    """Wherever on its page the table of items ends: there are other numbers of items for each number of taxes."""
    for positions in (1 + count % 12, 13 + count % 16):
        pdf = receipt.render(taxed(count, positions), no_check)
        text = text_of(pdf)
        assert all(text.count(f"No. {n}.") == text.count(f"€{100 + n / 100:.2f}") == 1 for n in range(1, count + 1))
        for page in range(page_count(pdf)):
            (width, height), boxes = glyph_boxes(pdf, page)
            assert boxes
            for left, bottom, right, top in boxes:
                assert 0 <= left <= right <= width
                assert 0 <= bottom <= top <= height


def test_tax_lines_never_run_into_the_number_of_the_page(receipt: ReceiptPdf) -> None:
    for positions in range(1, 14):
        pdf = receipt.render(taxed(MAX_TAXES, positions), no_check)
        for page in range(1, page_count(pdf)):
            _, boxes = glyph_boxes(pdf, page)
            low = [(bottom, top) for _, bottom, _, top in boxes if bottom < 17 * MM]
            assert low
            assert all(top < 14 * MM for _, top in low)


def test_a_few_tax_lines_are_on_one_page_with_the_total(receipt: ReceiptPdf) -> None:
    for positions in range(1, 30):
        pdf = receipt.render(taxed(10, positions), no_check)
        (page,) = [page for page in range(page_count(pdf)) if any("Total" in line for line in lines_of(pdf, page))]
        shown = "\n".join(lines_of(pdf, page))
        assert all(f"No. {n}." in shown for n in range(1, 11)), positions


def test_more_tax_lines_than_the_limit_are_refused_by_name(receipt: ReceiptPdf) -> None:
    with pytest.raises(InvalidRequest, match=r"order\.taxes: 51 are too many; at most 50 are drawn"):
        receipt.render(taxed(MAX_TAXES + 1, 1), no_check)


def test_the_check_is_asked_before_each_further_page(receipt: ReceiptPdf) -> None:
    calls = []
    pdf = receipt.render(taxed(MAX_TAXES, 1), lambda: calls.append(1))
    assert len(calls) == page_count(pdf) == 2


@pytest.mark.parametrize(
    "locale, currency, amounts",
    [
        ("ar-KW", "KWD", ("-0.500", "-1.234")),
        ("fa-IR", "EUR", ("−€\xa05.00", "−€\xa012.34")),
        ("sv-SE", "SEK", ("−5,00", "−12,34")),
    ],
)
def test_the_sign_of_a_negative_amount_is_printed_before_it(
    receipt: ReceiptPdf, locale: str, currency: str, amounts: tuple[str, str]
) -> None:
    wanted = request(
        position(1),
        position(2, amount_minor=-500),
        currency=currency,
        locale=locale,
        taxes=(TaxLine(label="x", amount_minor=-1234),),
    )
    pdf = receipt.render(whole(wanted), no_check)
    text = text_of(pdf)
    assert all(amount in text for amount in amounts)
    assert receipt.notes(whole(wanted)) == ()


def test_title_and_language_are_set_and_no_date(receipt: ReceiptPdf) -> None:
    wanted = whole(request(receipt_number="2026-0815", locale="de-AT"))
    reader = pypdf.PdfReader(io.BytesIO(receipt.render(wanted, no_check)))
    assert reader.metadata is not None
    assert reader.metadata.title == "Beleg 2026-0815"
    assert not {"/CreationDate", "/ModDate", "/Author"} & set(reader.metadata)
    root: Any = reader.trailer["/Root"]
    assert root["/Lang"] == "de-AT"
    assert root["/ViewerPreferences"]["/DisplayDocTitle"]
    numberless = receipt.render(attrs.evolve(wanted, order=attrs.evolve(wanted.order, receipt_number=None)), no_check)
    metadata = pypdf.PdfReader(io.BytesIO(numberless)).metadata
    assert metadata is not None
    assert metadata.title == "Beleg 4471"


def test_what_was_refunded_is_marked_and_not_in_the_total(receipt: ReceiptPdf) -> None:
    text = text_of(receipt.render(request(position(1), position(2, amount_minor=700, status="refunded")), no_check))
    assert text.count("Refunded") == 1
    assert text.split("Total")[1].strip().startswith("€45.00")
    all_of_it = text_of(receipt.render(request(position(1), status="refunded"), no_check))
    assert all_of_it.split("Total")[1].strip().startswith("€0.00")


def test_many_items_take_several_pages_and_none_is_lost(receipt: ReceiptPdf) -> None:
    pdf = receipt.render(request(*(position(n, holder=f"Guest {n}.") for n in range(1, 101))), no_check)
    assert page_count(pdf) > 3
    text = text_of(pdf)
    assert all(f"Guest {n}." in text for n in range(1, 101))


def test_an_order_without_a_receipt_number_is_known_by_its_own(receipt: ReceiptPdf) -> None:
    assert "4471" in text_of(receipt.render(request(), no_check))


@pytest.mark.parametrize("words", LONG)
def test_nothing_leaves_the_page(receipt: ReceiptPdf, words: str) -> None:
    wanted = request(position(holder=words, category=words), buyer=words, receipt_number=words[:300])
    (width, height), boxes = glyph_boxes(receipt.render(wanted, no_check))
    for left, bottom, right, top in boxes:
        assert 0 <= left <= right <= width
        assert 0 <= bottom <= top <= height


def test_every_font_is_embedded(receipt: ReceiptPdf) -> None:
    for font in fonts_of(receipt.render(request(position(holder="山田太郎 שלום")), no_check)):
        assert font["/FontDescriptor"].get_object()["/FontFile2"]


def test_what_cannot_be_drawn_is_noted(receipt: ReceiptPdf) -> None:
    assert receipt.notes(request()) == ()
    (note,) = receipt.notes(request(position(holder="🎉")))
    assert "U+1F389" in note


def test_a_note_names_the_letter_that_was_typed_not_its_joined_form(receipt: ReceiptPdf) -> None:
    (note,) = receipt.notes(request(position(holder="ڵڵ")))
    assert note == "details: 2 replaced by a mark, for no font here draws U+06B5"
    (joined,) = receipt.notes(request(position(holder="ﮨﮩﮨ")))
    assert "U+06C1" in joined
    assert "U+FB" not in joined


def test_a_receipt_in_hebrew_is_mirrored(receipt: ReceiptPdf) -> None:
    made = receipt.render(RenderRequest(order=order(position(), currency="ILS"), locale="he-IL"), no_check)
    edges = edges_of(made)
    assert edges["פריט"][1] == pytest.approx(190, abs=1)
    assert edges["סכום"][0] == pytest.approx(24, abs=1)
    assert "45.00\xa0₪" in lines_of(made)


def test_a_receipt_of_one_position_of_a_narrowed_order_is_refused(receipt: ReceiptPdf) -> None:
    """Its sums would be those of what the position sees."""
    whole = order(position(1), position(2))
    with pytest.raises(InvalidRequest, match="position: a receipt is of the whole order"):
        receipt.render(request_for(whole, whole.positions[0]), no_check)
