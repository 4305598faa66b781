"""An order as it was read: frozen values, no SQL, no PDF, no clock.

The order book builds these from its rows, handlers act on them, and renderers
draw them. They carry everything a ticket shows, so that the same values always
lead to the same bytes.
"""

import datetime as dt
from typing import Literal

import attrs

OrderStatus = Literal["placed", "refunded"]
PositionStatus = Literal["placed", "refunded"]


@attrs.frozen(kw_only=True)
class Seat:
    """Where the holder sits; a part that the hall does not use is None."""

    zone: str | None = None
    row: str | None = None
    number: str | None = None


@attrs.frozen(kw_only=True)
class Event:
    """What the ticket admits to; times are aware and in UTC, *tz* is an IANA name."""

    name: str
    venue: str
    starts_at: dt.datetime
    tz: str
    doors_at: dt.datetime | None = None
    sub_event: str | None = None
    terms: str = ""


@attrs.frozen(kw_only=True)
class Position:
    """One admission of an order.

    *amount_minor* counts the currency's smallest unit (cents for EUR, yen for
    JPY); 0 is free. *addon_to* is the id of the position that this one extends.
    *version* is the order version that last changed this position, or had its ticket drawn again.
    """

    id: int
    holder: str
    category: str
    amount_minor: int
    token: str
    version: int
    seat: Seat | None = None
    addon_to: int | None = None
    status: PositionStatus = "placed"


@attrs.frozen(kw_only=True)
class TaxLine:
    """One line of tax as the shop computed it; never recomputed here."""

    label: str
    amount_minor: int


@attrs.frozen(kw_only=True)
class Order:
    """The current state of one order.

    *version* grows with every change; a ticket belongs to one version.
    *locale* is a BCP 47 tag such as ``de-DE``, *currency* an ISO 4217 code.
    """

    order_id: int
    version: int
    status: OrderStatus
    event: Event
    locale: str
    currency: str
    buyer: str
    positions: tuple[Position, ...]
    receipt_number: str | None = None
    taxes: tuple[TaxLine, ...] = ()

    @property
    def placed_positions(self) -> tuple[Position, ...]:
        """The positions that admit somebody: none when the order is refunded."""
        if self.status != "placed":
            return ()
        return tuple(p for p in self.positions if p.status == "placed")

    def position(self, position_id: int) -> Position:
        """Return the position with this id.

        Raises:
            KeyError: the order has no such position.
        """
        for candidate in self.positions:
            if candidate.id == position_id:
                return candidate
        raise KeyError(position_id)


@attrs.frozen(kw_only=True)
class NewPosition:
    """One admission that is about to be ordered; its token is made when it is placed."""

    id: int
    holder: str
    category: str
    amount_minor: int
    seat: Seat | None = None
    addon_to: int | None = None


@attrs.frozen(kw_only=True)
class NewOrder:
    """An order that is about to be placed: one line of ``orders.jsonl``.

    *order_id* None lets the order book choose one.
    """

    event: Event
    locale: str
    currency: str
    buyer: str
    positions: tuple[NewPosition, ...]
    order_id: int | None = None
    receipt_number: str | None = None
    taxes: tuple[TaxLine, ...] = ()
