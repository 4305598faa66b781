"""Values to rows and back; no SQL is run here.

The event, the seats and the tax lines are kept as JSON: nobody searches in them,
and a new field of an event needs no new column. What is read here was checked
when it was placed.
"""

import datetime as dt
import json
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import cattrs
import sqlalchemy as sa

from stagedoor.order import Event, NewOrder, NewPosition, Order, Position, Seat, TaxLine
from stagedoor.orders.schema import orders, positions

__all__ = ["new_token", "order_row", "placed", "position_row", "select_order", "to_orders"]

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_TOKEN_LENGTH = 26
"""26 characters of 5 bits: 130 bits, and a QR code of them needs only its alphanumeric mode."""


def new_token() -> str:
    """Return a fresh token: 130 random bits as 26 characters of A-Z and 2-7."""
    bits = secrets.randbits(5 * _TOKEN_LENGTH)
    return "".join(_LETTERS[bits >> 5 * place & 31] for place in range(_TOKEN_LENGTH))


def placed(new: NewOrder, order_id: int) -> Order:
    """Return the order as it is once *new* has been placed under this id, with fresh tokens."""
    return Order(
        order_id=order_id,
        version=1,
        status="placed",
        event=new.event,
        locale=new.locale,
        currency=new.currency,
        buyer=new.buyer,
        positions=tuple(_placed_position(position) for position in new.positions),
        receipt_number=new.receipt_number,
        taxes=new.taxes,
    )


def _placed_position(new: NewPosition) -> Position:
    return Position(
        id=new.id,
        holder=new.holder,
        category=new.category,
        amount_minor=new.amount_minor,
        token=new_token(),
        version=1,
        seat=new.seat,
        addon_to=new.addon_to,
    )


# -- to rows ------------------------------------------------------------------


def order_row(new: NewOrder, now: float) -> dict[str, Any]:
    """Return the row of a new order; its id is only in there if the shop chose one."""
    row: dict[str, Any] = {
        "version": 1,
        "status": "placed",
        "event": _dump(new.event),
        "locale": new.locale,
        "currency": new.currency,
        "buyer": new.buyer,
        "receipt_number": new.receipt_number,
        "taxes": _dump(new.taxes),
        "placed_at": now,
        "changed_at": now,
    }
    return row if new.order_id is None else {"id": new.order_id, **row}


def position_row(order_id: int, place: int, position: Position) -> dict[str, Any]:
    """Return the row of a position; *place* is its index in the order."""
    return {
        "order_id": order_id,
        "id": position.id,
        "place": place,
        "holder": position.holder,
        "category": position.category,
        "seat": None if position.seat is None else _dump(position.seat),
        "amount_minor": position.amount_minor,
        "addon_to": position.addon_to,
        "token": position.token,
        "version": position.version,
        "status": position.status,
    }


def _dump(value: Any) -> str:
    return json.dumps(_CONVERTER.unstructure(value), ensure_ascii=False, separators=(",", ":"))


# -- from rows ----------------------------------------------------------------


def select_order(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Return one statement that reads orders with their positions.

    One statement sees one state: two would see two, on PostgreSQL, and an order
    with the positions of its next version is a ticket that nobody ordered.
    """
    return (
        sa.select(
            *(orders.c[name].label(f"order_{name}") for name in _ORDER_COLUMNS),
            *(positions.c[name] for name in _POSITION_COLUMNS),
        )
        .select_from(orders.outerjoin(positions, positions.c.order_id == orders.c.id))
        .where(*conditions)
        .order_by(orders.c.id, positions.c.place)
    )


_ORDER_COLUMNS = (
    *("id", "version", "status", "event", "locale", "currency"),
    *("buyer", "receipt_number", "taxes", "issued"),
)
_POSITION_COLUMNS = ("id", "holder", "category", "seat", "amount_minor", "addon_to", "token", "version", "status")


def to_orders(rows: Iterable[sa.Row[Any]]) -> list[Order]:
    """Return the orders in the rows of `select_order`, in its order."""
    grouped: dict[int, list[sa.Row[Any]]] = {}
    for row in rows:
        grouped.setdefault(row.order_id, []).append(row)
    return [_to_order(group) for group in grouped.values()]


def _to_order(rows: Sequence[sa.Row[Any]]) -> Order:
    row = rows[0]
    return Order(
        order_id=row.order_id,
        version=row.order_version,
        status=row.order_status,
        event=_CONVERTER.structure(json.loads(row.order_event), Event),
        locale=row.order_locale,
        currency=row.order_currency,
        buyer=row.order_buyer,
        positions=tuple(_to_position(each) for each in rows if each.id is not None),
        receipt_number=row.order_receipt_number,
        taxes=_CONVERTER.structure(json.loads(row.order_taxes), tuple[TaxLine, ...]),
    )


def _to_position(row: sa.Row[Any]) -> Position:
    return Position(
        id=row.id,
        holder=row.holder,
        category=row.category,
        amount_minor=row.amount_minor,
        token=row.token,
        version=row.version,
        seat=None if row.seat is None else _CONVERTER.structure(json.loads(row.seat), Seat),
        addon_to=row.addon_to,
        status=row.status,
    )


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=False)
    converter.register_structure_hook(dt.datetime, lambda value, _: dt.datetime.fromisoformat(value))
    converter.register_unstructure_hook(dt.datetime, dt.datetime.isoformat)
    return converter


_CONVERTER = _make_converter()
"""Used like a constant: nothing is registered on it after this line."""

assert set(_POSITION_COLUMNS) == {field.name for field in attrs.fields(Position)}
