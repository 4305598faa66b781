"""What one position sees of its order: itself, its relatives, and how many others there are."""

from typing import Any

import attrs
import pytest

from stagedoor.order import Order, Position, Seat
from stagedoor.rendering.key import content_key
from stagedoor.rendering.view import request_for
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import no_check, order, position
from tests.rendering.reading import text_of
from tests.rendering.test_registry import Plain

ORDER = order(
    position(1, version=3),
    position(2, category="Programme", addon_to=1, holder="", seat=None),
    position(3),
    position(4, status="refunded"),
    version=5,
)


def keys(of: Order) -> dict[int, str]:
    return {one.id: content_key(request_for(of, one), Plain()) for one in of.placed_positions}


def changed(number: int, **changes: Any) -> Order:
    positions = tuple(attrs.evolve(one, version=6, **changes) if one.id == number else one for one in ORDER.positions)
    return attrs.evolve(ORDER, version=6, positions=positions)


def test_a_position_sees_itself_and_its_relatives_without_their_tokens() -> None:
    seen = request_for(ORDER, ORDER.positions[1])
    assert [(one.id, one.holder, bool(one.token)) for one in seen.order.positions] == [
        (1, "Zoë Šimková", False),
        (2, "", True),
    ]
    assert (seen.order.version, seen.number, seen.total) == (1, 2, 3)
    assert [one.id for one in request_for(ORDER, ORDER.positions[0]).order.positions] == [1, 2]
    assert [one.id for one in request_for(ORDER, ORDER.positions[2]).order.positions] == [3]


def test_the_document_of_an_order_has_all_of_it() -> None:
    request = request_for(ORDER)
    assert (request.order, request.position, request.total) == (ORDER, None, None)


@pytest.mark.parametrize(
    "number, changes, others",
    [
        (1, {"token": "A" * 26}, set()),
        (2, {"token": "A" * 26}, set()),
        (3, {"token": "A" * 26}, set()),
        (3, {"holder": "Ada"}, set()),
        (3, {"seat": Seat(row="D", number="1")}, set()),
        (1, {"holder": "Ada"}, {2}),  # an add-on has its parent's holder
        (2, {"category": "Drink"}, {1}),  # a ticket names its add-ons
        (3, {"status": "refunded"}, {1, 2}),  # "1 / 3" becomes "1 / 2"
    ],
)
def test_only_tickets_that_show_a_change_get_another_key(
    number: int, changes: dict[str, Any], others: set[int]
) -> None:
    before, after = keys(ORDER), keys(changed(number, **changes))
    assert {one for one in after if after[one] != before[one]} - {number} == others
    assert after.get(number) != before[number]


def test_a_circle_of_addons_ends() -> None:
    one, two = position(1, addon_to=2), position(2, addon_to=1)
    assert [seen.id for seen in request_for(order(one, two), one).order.positions] == [1, 2]


@pytest.mark.parametrize("who", ORDER.placed_positions, ids=lambda one: f"position {one.id}")
def test_what_is_drawn_from_the_view_is_what_is_drawn_from_the_order(who: Position, ticket: TicketPdf) -> None:
    whole = attrs.evolve(request_for(ORDER), position=who)
    narrowed = ticket.render(request_for(ORDER, who), no_check)
    assert narrowed == ticket.render(whole, no_check)
    assert " / 3" in text_of(narrowed)
