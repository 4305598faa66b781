"""What no renderer begins to draw: every limit is refused with its field, before anything grows with it."""

from typing import Any

import pytest

from stagedoor.errors import InvalidRequest
from stagedoor.order import Position, Seat, TaxLine
from stagedoor.orders import parse
from stagedoor.rendering.api import RenderRequest
from stagedoor_renderers import limits
from stagedoor_renderers.limits import MAX_AMOUNT, MAX_NAME, MAX_POSITIONS, MAX_TAXES, checked
from tests.rendering.orders import event, position, request, whole


def tax(**changes: Any) -> TaxLine:
    return TaxLine(**{"label": "7 %", "amount_minor": 1, **changes})


@pytest.mark.parametrize(
    "wanted, said",
    [
        (request(*(position(n) for n in range(1, MAX_POSITIONS + 2))), "order.positions: 501 are too many"),
        (request(taxes=(tax(),) * (MAX_TAXES + 1)), "order.taxes: 51 are too many"),
        (request(taxes=(tax(label="x" * (MAX_NAME + 1)),)), "order.taxes.label: too long"),
        (request(taxes=(tax(amount_minor=-MAX_AMOUNT - 1),)), "order.taxes.amount_minor: must be within"),
        (request(position(amount_minor=MAX_AMOUNT + 1)), "position.amount_minor: must be within"),
        (request(event=event(sub_event="x" * (MAX_NAME + 1))), "event.sub_event: too long"),
        (request(position(seat=Seat(zone="x" * (MAX_NAME + 1)))), "position.seat.zone: too long"),
    ],
)
def test_what_is_beyond_a_limit_is_refused_by_its_field(wanted: RenderRequest, said: str) -> None:
    for one in (wanted, whole(wanted)):
        with pytest.raises(InvalidRequest) as raised:
            checked(one)
        assert str(raised.value).startswith(said)


def test_what_is_at_the_limits_is_drawn() -> None:
    positions = [position(n, amount_minor=MAX_AMOUNT, holder="x" * MAX_NAME) for n in range(1, MAX_POSITIONS + 1)]
    wanted = request(*positions, taxes=(tax(amount_minor=MAX_AMOUNT),) * MAX_TAXES)
    assert checked(wanted) is wanted.order


def test_every_order_that_can_be_placed_can_be_drawn() -> None:
    assert (limits.MAX_POSITIONS, limits.MAX_TAXES) == (parse.MAX_POSITIONS, parse.MAX_TAXES)


def chain(length: int) -> tuple[Position, ...]:
    return tuple(position(n, addon_to=n - 1 or None, seat=None, holder="") for n in range(1, length + 1))


@pytest.mark.parametrize(
    "positions, said",
    [
        ((position(1, addon_to=9),), "position 1 extends 9, which is not there"),
        ((position(1, addon_to=1),), "position 1 extends 1, which is itself"),
        ((position(1, addon_to=2), position(2, addon_to=1)), "position 1 extends 2, which is an add-on itself"),
        (chain(3), "position 3 extends 2, which is an add-on itself"),
        (chain(MAX_POSITIONS), "position 3 extends 2, which is an add-on itself"),
    ],
)
def test_an_addon_extends_a_position_that_is_none(positions: tuple[Position, ...], said: str) -> None:
    """As the order book has it; a chain that is followed from each of its links takes longer than anybody waits."""
    for wanted in (request(*positions), whole(request(*positions))):
        with pytest.raises(InvalidRequest) as raised:
            checked(wanted)
        assert str(raised.value) == f"position.addon_to: {said}"


def test_addons_of_one_position_are_as_many_as_there_are_positions() -> None:
    wanted = request(position(1), *(position(n, addon_to=1) for n in range(2, MAX_POSITIONS + 1)))
    assert checked(wanted) is wanted.order
