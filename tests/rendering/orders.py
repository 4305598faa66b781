"""Orders to draw."""

import datetime as dt
from typing import Any

import attrs

from stagedoor.order import Event, Order, Position, Seat
from stagedoor.rendering.api import RenderRequest

TOKEN = "K7QF2M3NZX4ABCDEFGHIJ234YZ"

AUTUMN = dt.datetime(2026, 10, 25, 1, 30, tzinfo=dt.UTC)
"""The second 02:30 of that night in Berlin."""


def token(number: int) -> str:
    """A token of the right form that is its number's alone."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    digits = []
    for _ in range(26):
        number, digit = divmod(number * 2654435761 + 12345, 2**40)[1], number % 32
        digits.append(alphabet[digit])
    return "".join(digits)


def event(**changes: Any) -> Event:
    values: dict[str, Any] = {
        "name": "Die Zauberflöte",
        "venue": "Theater am Goetheplatz, Bremen",
        "starts_at": dt.datetime(2026, 7, 1, 18, 0, tzinfo=dt.UTC),
        "tz": "Europe/Berlin",
    }
    return Event(**{**values, **changes})


def position(number: int = 1, **changes: Any) -> Position:
    values: dict[str, Any] = {
        "id": number,
        "holder": "Zoë Šimková",
        "category": "Parkett",
        "amount_minor": 4500,
        "token": token(number),
        "version": 1,
        "seat": Seat(row="C", number="8"),
    }
    return Position(**{**values, **changes})


def order(*positions: Position, **changes: Any) -> Order:
    values: dict[str, Any] = {
        "order_id": 4471,
        "version": 1,
        "status": "placed",
        "event": event(),
        "locale": "en-GB",
        "currency": "EUR",
        "buyer": "Zoë Šimková",
        "positions": positions or (position(),),
    }
    return Order(**{**values, **changes})


def request(*positions: Position, locale: str = "en-GB", layout: str | None = None, **changes: Any) -> RenderRequest:
    """A request for the first position of an order of these positions."""
    whole = order(*positions, **changes)
    return RenderRequest(order=whole, position=whole.positions[0], locale=locale, layout=layout)


def named(holder: str, **changes: Any) -> RenderRequest:
    """A request for the ticket of somebody of this name."""
    return request(position(holder=holder, **changes))


def rich(**changes: Any) -> RenderRequest:
    """A ticket that has something to say in every field that can be there at once with the others."""
    seated = position(
        1,
        category="Logenplatz",
        holder="Zoë Šimková",
        amount_minor=4567,
        seat=Seat(zone="Z77", row="R66", number="N55"),
    )
    return request(
        seated,
        position(2, category="Programmheft", holder="", seat=None, addon_to=1),
        position(3, category="Stehplatz", holder="Łucja", seat=None, amount_minor=0),
        event=event(
            sub_event="Großes Haus",
            starts_at=AUTUMN,
            doors_at=AUTUMN - dt.timedelta(minutes=50),
            terms="Kein Einlass nach Beginn.",
        ),
        **changes,
    )


def whole(of: RenderRequest) -> RenderRequest:
    """The same order, all of it."""
    return attrs.evolve(of, position=None)


def no_check() -> None:
    """Want the result."""
