"""Orders and changes as they come from files and flags; all of it is checked before anything is placed."""

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import click

from stagedoor.cli.output import print_json
from stagedoor.cli.text import printable
from stagedoor.errors import InvalidOrder, OrderStateError
from stagedoor.order import NewOrder, Seat
from stagedoor.orders import (
    Change,
    OrderBook,
    RefundPosition,
    Rename,
    Reseat,
    RotateToken,
    parse_line,
    parse_order,
)

BATCH = 500
"""Orders in one transaction of the order book."""
MOST_COMPLAINTS = 50
SEAT_PARTS = 3


@attrs.frozen
class Numbered:
    """An order and the line that it came from, for messages."""

    line: int
    order: NewOrder


# -- from a file ------------------------------------------------------------------


def read_orders(lines: Iterable[bytes]) -> list[Numbered]:
    """Return the orders of a file; empty lines are passed over.

    Raises:
        InvalidOrder: every bad line by its number, and that nothing was placed.
    """
    orders: list[Numbered] = []
    complaints: list[str] = []
    for number, raw in enumerate(lines, start=1):
        line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if not line.strip():
            continue
        try:
            orders.append(Numbered(number, parse_line(line)))
        except InvalidOrder as error:
            complaints.append(f"line {number}: {error}")
    complaints += _given_twice(orders)
    if complaints:
        raise ManyInvalid(complaints)
    if not orders:
        raise InvalidOrder("the file holds no order; nothing was placed")
    return orders


class ManyInvalid(InvalidOrder):
    """Bad lines of a file; the message has a line for each."""

    def __init__(self, complaints: Sequence[str]) -> None:
        self.complaints = [*complaints[:MOST_COMPLAINTS]]
        if len(complaints) > MOST_COMPLAINTS:
            self.complaints.append(f"and {len(complaints) - MOST_COMPLAINTS} more bad lines")
        self.complaints.append("nothing was placed: all lines are checked first")
        super().__init__("; ".join(self.complaints))


def _given_twice(orders: Iterable[Numbered]) -> list[str]:
    first: dict[int, int] = {}
    complaints = []
    for numbered in orders:
        order_id = numbered.order.order_id
        if order_id is None:
            continue
        earlier = first.setdefault(order_id, numbered.line)
        if earlier != numbered.line:
            complaints.append(f"line {numbered.line}: order_id: {order_id} is the id of line {earlier}, too")
    return complaints


# -- from flags --------------------------------------------------------------------


def one_order(flags: Mapping[str, Any]) -> Numbered:
    """Return the order that the flags of ``order place`` describe.

    Raises:
        InvalidOrder: names each field that will not do.
    """
    holders, seats = flags["holders"] or ("",), flags["seats"]
    if len(seats) > len(holders):
        raise click.UsageError(f"--seat: {len(seats)} seats for {len(holders)} holders")
    positions = [
        {
            "id": number,
            "holder": holder,
            "category": flags["category"],
            "amount_minor": flags["amount_minor"],
            "seat": _seat_data(seat),
        }
        for number, (holder, seat) in enumerate(itertools.zip_longest(holders, seats), start=1)
    ]
    missing = [name for name in ("venue", "starts_at") if not flags[name]]
    if missing:
        raise click.UsageError(
            "one order also needs " + " and ".join("--" + name.replace("_", "-") for name in missing)
        )
    event = {name: flags[name] for name in ("venue", "starts_at", "tz")}
    data = {
        "order_id": flags["order_id"],
        "event": {"name": flags["event"], **event},
        "locale": flags["locale"],
        "currency": flags["currency"],
        "buyer": flags["buyer"] if flags["buyer"] is not None else holders[0],
        "positions": positions,
    }
    return Numbered(1, parse_order(data))


def _seat_data(text: str | None) -> dict[str, str | None] | None:
    seat = None if text is None else seat_of(text, flag="--seat")
    return None if seat is None else attrs.asdict(seat)


def seat_of(text: str, *, flag: str) -> Seat | None:
    """Return the seat that ``ZONE/ROW/NUMBER`` names; parts may be empty, ``-`` is none at all."""
    if text in {"-", ""}:
        return None
    parts = [part.strip() or None for part in text.split("/")]
    if len(parts) != SEAT_PARTS:
        raise click.UsageError(
            f"{flag}: expected ZONE/ROW/NUMBER such as Balcony/C/8 or /C/8, or - for none, found {printable(text)!r}"
        )
    return Seat(zone=parts[0], row=parts[1], number=parts[2])


def changes_of(
    *, renames: Sequence[str], reseats: Sequence[str], rotates: Sequence[int], refunds: Sequence[int]
) -> list[Change]:
    """Return what the flags of ``order change`` ask for."""
    changes: list[Change] = []
    for text in renames:
        position, name = _assignment(text, flag="--rename", example="1=Ana Núñez")
        changes.append(Rename(position, name))
    for text in reseats:
        position, seat = _assignment(text, flag="--reseat", example="1=Balcony/C/8")
        changes.append(Reseat(position, seat_of(seat, flag="--reseat")))
    return [*changes, *map(RotateToken, rotates), *map(RefundPosition, refunds)]


def _assignment(text: str, *, flag: str, example: str) -> tuple[int, str]:
    position, equals, value = text.partition("=")
    if not equals or not position.isascii() or not position.isdigit():
        raise click.UsageError(f"{flag}: expected POS=… such as {example!r}, found {printable(text)!r}")
    return int(position), value


# -- placing -------------------------------------------------------------------------


def place_all(book: OrderBook, orders: Sequence[Numbered], *, as_json: bool) -> None:
    """Place the orders, 500 to a transaction, and print their ids.

    Raises:
        OrderStateError: an id is taken; says which orders were placed before it.
    """
    placed: list[int] = []
    for batch in itertools.batched(orders, BATCH, strict=False):
        try:
            placed += book.place_many([numbered.order for numbered in batch])
        except OrderStateError as error:
            lines = f"lines {batch[0].line} to {batch[-1].line}" if len(batch) > 1 else f"line {batch[0].line}"
            # The order book has said that nothing of these lines is placed.
            after = ", nor anything after it" if len(orders) > len(batch) and not placed else ""
            before = f"; the {len(placed)} orders before them are placed" if placed else after
            raise OrderStateError(f"{lines}: {error}{before}" if len(orders) > 1 else str(error)) from None
    if as_json:
        print_json({"placed": placed})
        return
    # A script takes the ids one by one; a person wants to be told what they are.
    line = "order {} is placed" if sys.stdout.isatty() else "{}"
    for order_id in placed:
        print(line.format(order_id))
