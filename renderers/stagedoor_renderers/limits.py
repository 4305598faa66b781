"""How much an order may ask for, so that no render takes for ever.

A thread cannot be stopped from outside, so what a renderer is given is bounded
before it begins. Every limit is far beyond what a shop needs; what exceeds it is
an accident or an attack, and refused for good, with the name of the field.
"""

from collections.abc import Iterable, Iterator

from stagedoor.errors import InvalidRequest
from stagedoor.rendering.api import Order, Position, RenderRequest

MAX_POSITIONS = 500
MAX_TAXES = 50
MAX_NAME = 1_000
MAX_TERMS = 30_000
MAX_TERMS_LINES = 1_000
MAX_AMOUNT = 10**15


def checked(request: RenderRequest) -> Order:
    """Return the order of *request*.

    Raises:
        InvalidRequest: it is beyond a limit; names the field.
    """
    order = request.order
    _check_count("order.positions", len(order.positions), MAX_POSITIONS)
    _check_count("order.taxes", len(order.taxes), MAX_TAXES)
    if len(order.event.terms) > MAX_TERMS or order.event.terms.count("\n") > MAX_TERMS_LINES:
        raise InvalidRequest(
            f"event.terms: too long with {len(order.event.terms)} characters; "
            f"at most {MAX_TERMS} characters and {MAX_TERMS_LINES} lines are drawn"
        )
    positions = order.positions if request.position is None else (*order.positions, request.position)
    for field, value in _names(order):
        _check_name(field, value)
    for position in positions:
        for field, value in _names_of(position):
            _check_name(field, value)
        _check_amount("position.amount_minor", position.amount_minor)
    for tax in order.taxes:
        _check_amount("order.taxes.amount_minor", tax.amount_minor)
    _check_addons(order, positions)
    return order


def _check_count(field: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidRequest(f"{field}: {count} are too many; at most {most} are drawn")


def _check_amount(field: str, amount_minor: int) -> None:
    if abs(amount_minor) > MAX_AMOUNT:
        raise InvalidRequest(f"{field}: must be within {MAX_AMOUNT} of 0")


def _check_addons(order: Order, positions: Iterable[Position]) -> None:
    """Refuse what extends nothing, itself, or an add-on: seat and holder are looked for one step up and no further."""
    parents = {position.id: position.addon_to for position in order.positions}
    for position in positions:
        parent = position.addon_to
        if parent is None:
            continue
        if parent not in parents:
            problem = "which is not there"
        elif parent == position.id:
            problem = "which is itself"
        elif parents[parent] is not None:
            problem = "which is an add-on itself"
        else:
            continue
        raise InvalidRequest(f"position.addon_to: position {position.id} extends {parent}, {problem}")


def _check_name(field: str, value: str | None) -> None:
    if value is not None and len(value) > MAX_NAME:
        raise InvalidRequest(f"{field}: too long with {len(value)} characters; at most {MAX_NAME} are drawn")


def _names(order: Order) -> Iterator[tuple[str, str | None]]:
    yield "event.name", order.event.name
    yield "event.venue", order.event.venue
    yield "event.sub_event", order.event.sub_event
    yield "order.buyer", order.buyer
    yield "order.receipt_number", order.receipt_number
    for tax in order.taxes:
        yield "order.taxes.label", tax.label


def _names_of(position: Position) -> Iterator[tuple[str, str | None]]:
    yield "position.holder", position.holder
    yield "position.category", position.category
    if position.seat is not None:
        yield "position.seat.zone", position.seat.zone
        yield "position.seat.row", position.seat.row
        yield "position.seat.number", position.seat.number
