"""The receipt: what was bought, for how much, with the taxes as the shop computed them."""

import pytest

from stagedoor.errors import InvalidRequest
from stagedoor.order import TaxLine
from stagedoor.rendering.api import RenderRequest
from stagedoor.rendering.view import request_for
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
