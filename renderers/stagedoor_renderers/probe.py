"""A made-up order that uses everything: warm-ups draw it, previews show it."""

import datetime as dt

from stagedoor.rendering.api import Event, Order, Position, Seat, TaxLine

TOKEN = "K7QF2M3NZX4ABCDEFGHIJ234YZ"  # noqa: S105 - it admits nobody
"""A made-up token, as long as every other."""


def no_check() -> None:
    """Want the result, whatever happens."""


def order() -> Order:
    """Return an order with a seat, an add-on, a free ticket, and names in several scripts."""
    return Order(
        order_id=4471,
        version=3,
        status="placed",
        event=Event(
            name="Die Zauberflöte",
            sub_event="Premiere · Großes Haus",
            venue="Theater am Goetheplatz, Bremen",
            starts_at=dt.datetime(2026, 7, 1, 18, 0, tzinfo=dt.UTC),
            doors_at=dt.datetime(2026, 7, 1, 17, 0, tzinfo=dt.UTC),
            tz="Europe/Berlin",
            terms=(
                "Der Einlass endet mit Beginn der Vorstellung. Verspätete Gäste werden nach dem ersten Akt "
                "eingelassen.\nBild- und Tonaufnahmen sind nicht gestattet. Das Ticket ist übertragbar, der Code gilt "
                "einmal."
            ),
        ),
        locale="de-DE",
        currency="EUR",
        buyer="Zoë Šimková",
        positions=_positions(),
        receipt_number="2026-004471",
        taxes=(TaxLine(label="7 %", amount_minor=347),),
    )


def _positions() -> tuple[Position, ...]:
    return (
        Position(
            id=1,
            holder="Zoë Šimková",
            category="Parkett",
            amount_minor=4500,
            token=TOKEN,
            version=3,
            seat=Seat(zone="B", row="C", number="8"),
        ),
        Position(
            id=2,
            holder="",
            category="Programmheft",
            amount_minor=800,
            token="Q3WE5RTZUIOPASDFGHJKLYXC67",  # noqa: S106 - a made-up token
            version=3,
            addon_to=1,
        ),
        Position(
            id=3,
            holder="山田太郎 / ألف ليلة / שלום",
            category="Begleitperson",
            amount_minor=0,
            token="MNBVCXYLKJHGFDSAPOIUZTREW2",  # noqa: S106 - as above
            version=3,
        ),
    )
