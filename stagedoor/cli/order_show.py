"""Orders, tickets and tokens, shown to people and to programs."""

import zoneinfo
from collections.abc import Iterator
from typing import Any

import attrs
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from stagedoor.cli import output
from stagedoor.cli.output import facts, print_json, safe, table, utc
from stagedoor.cli.text import printable
from stagedoor.order import Event, Order, Position, Seat
from stagedoor.orders import OrderBook, Ticket, TokenState

_STYLES = {"placed": "green", "valid": "green", "void": "dim", "refunded": "red", "unknown": "yellow"}


def tell_change(order: Order, what: str, *, as_json: bool) -> None:
    """Say what has become of an order that was changed."""
    if as_json:
        print_json(order_data(order))
    else:
        print(f"order {order.order_id} is {what}; it has version {order.version}")


def token_of(code: str) -> str:
    """Return the token of a code as it was scanned: a signed one has it inside, any other one is it.

    Who signed it does not matter here: the order book is asked about the token, as it is about a plain one.

    Raises:
        ConfigurationError: it looks like a signed code, and the engine that reads those is not installed.
    """
    if not code.strip().upper().startswith(_SIGNED):
        return code
    from stagedoor.cli.engine import needs_engine  # noqa: PLC0415 - only signed codes need the engine

    with needs_engine("order check of a signed code"):
        from stagedoor_renderers import signing  # noqa: PLC0415 - as above
    try:
        return signing.token_in(code)
    except signing.InvalidToken:
        return code


_SIGNED = "S1"
"""How signed codes begin, and no token does: those have no 1."""


def tell_token(token: TokenState, *, as_json: bool) -> int:
    """Say whether a token is valid, and return the exit code."""
    if as_json:
        print_json(attrs.asdict(token))
    elif token.state == "valid":
        holder = printable(token.holder or "")
        print(f"valid: order {token.order_id}, position {token.position_id}, {holder}")
    else:
        where = f" (order {token.order_id}, position {token.position_id})" if token.order_id is not None else ""
        print(f"{token.state}: {token.reason}{where}")
    return 0 if token.state == "valid" else 1


def show(book: OrderBook, order_id: int, *, as_json: bool) -> None:
    """Show an order with its tickets."""
    order, tickets = book.get(order_id), book.tickets(order_id)
    if as_json:
        print_json(order_data(order) | {"tickets": [ticket_data(ticket, book) for ticket in tickets]})
        return
    parts = [_heading(order), _facts(order), Text(), _Positions(order), Text(), _tickets(order, tickets, book)]
    output.show(*parts)
    if any(ticket.state == "valid" for ticket in tickets):
        print()
        _print_files(tickets, book)


# -- for programs -------------------------------------------------------------------


def order_data(order: Order) -> dict[str, Any]:
    """Return an order as JSON has it: the fields of its line, and what has become of it."""
    data = attrs.asdict(order)
    data["event"] = attrs.asdict(order.event) | {
        "starts_at": utc(order.event.starts_at),
        "doors_at": utc(order.event.doors_at),
    }
    return data


def ticket_data(ticket: Ticket, book: OrderBook) -> dict[str, Any]:
    """Return a ticket as JSON has it, with the place of its file and whether that is there."""
    data = attrs.asdict(ticket)
    times = {"issued_at": utc(ticket.issued_at), "voided_at": utc(ticket.voided_at)}
    file = {"file": str(book.store.file(ticket.path)), "file_present": book.store.is_present(ticket.path)}
    return data | times | file


# -- for people ----------------------------------------------------------------------


def _heading(order: Order) -> Text:
    return Text.assemble(
        (f"Order {order.order_id}", "bold"), "  ", (order.status, _STYLES[order.status]), f"  version {order.version}"
    )


def _facts(order: Order) -> Any:
    event = order.event
    return facts(
        [
            ("event", event.name if event.sub_event is None else f"{event.name}, {event.sub_event}"),
            ("venue", event.venue),
            ("starts", _local(event)),
            ("buyer", order.buyer),
            ("receipt", order.receipt_number),
            ("prices", f"{order.currency}, {order.locale}"),
        ]
    )


def _local(event: Event) -> str:
    try:
        zone: Any = zoneinfo.ZoneInfo(event.tz)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return f"{utc(event.starts_at)} ({event.tz} is not known here)"
    return f"{event.starts_at.astimezone(zone):%a %d %b %Y %H:%M} {event.tz}"


@attrs.frozen
class _Positions:
    """The positions of an order; a token is never broken, for it is there to be copied."""

    order: Order

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield a table with the tokens, or, where that is too narrow, the tokens on lines of their own."""
        is_wide = options.max_width >= _WIDE
        yield _positions(self.order, has_tokens=is_wide)
        if not is_wide:
            yield Text()
            for position in self.order.positions:
                yield Text(f"token {position.id:>3}  ", style="dim").append_text(safe(position.token))


_WIDE = 95
"""Columns from which on a token has one of its own and leaves enough for the others."""


def _positions(order: Order, *, has_tokens: bool) -> Any:
    made = table("pos", "holder", "category", "seat", "amount", right=("pos", "amount"))
    if has_tokens:
        made.add_column("token", no_wrap=True)
    made.add_column("state", no_wrap=True)
    for position in order.positions:
        style = "" if position in order.placed_positions else "dim strike"
        status = position.status if order.status == "placed" else order.status
        made.add_row(
            safe(position.id),
            safe(position.holder, style),
            safe(_category(position), style),
            safe(seat_text(position.seat), style),
            safe(amount_text(position.amount_minor, order.currency), style),
            *([safe(position.token, "dim")] if has_tokens else []),
            safe(status, _STYLES[status]),
        )
    return made


def _category(position: Position) -> str:
    return position.category if position.addon_to is None else f"{position.category} (with {position.addon_to})"


def seat_text(seat: Seat | None) -> str:
    """Return a seat in words; parts that the hall does not use are left out."""
    if seat is None:
        return ""
    parts = [("", seat.zone), ("row ", seat.row), ("seat ", seat.number)]
    return ", ".join(f"{name}{value}" for name, value in parts if value)


def amount_text(amount_minor: int, currency: str) -> str:
    """Return an amount in the currency's own unit; how a ticket writes it is its renderer's business."""
    if amount_minor == 0:
        return "free"
    if amount_minor > _EXACT:
        return f"{amount_minor} of the smallest unit"
    digits = 0 if currency in _WHOLE else 3 if currency in _THOUSANDTHS else 2
    return f"{amount_minor / 10**digits:,.{digits}f}"


_EXACT = 10**15
"""Larger amounts would lose digits on the way; no ticket costs that."""
_WHOLE = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"
_THOUSANDTHS = "BHD IQD JOD KWD LYD OMR TND"
"""Currencies without two digits after the point (ISO 4217)."""


def _tickets(order: Order, tickets: tuple[Ticket, ...], book: OrderBook) -> Any:
    if not tickets:
        return Text("no tickets yet" if order.status == "placed" else "no tickets", style="dim")
    made = table("ticket", "pos", "version", "state", "issued", "file", right=("ticket", "pos", "version"))
    for ticket in tickets:
        style = _STYLES[ticket.state]
        state = ticket.state if ticket.void_reason is None else f"{ticket.state} ({ticket.void_reason})"
        made.add_row(
            safe(ticket.ticket_id),
            safe(ticket.position_id),
            safe(ticket.order_version),
            safe(state, style),
            safe(utc(ticket.issued_at)),
            _file(ticket, book),
        )
    return made


def _file(ticket: Ticket, book: OrderBook) -> Text:
    is_there = book.store.is_present(ticket.path)
    if ticket.state == "void":
        return Text("to be removed" if is_there else "removed", style="dim")
    return Text("there", style="green") if is_there else Text("missing", style="red")


def _print_files(tickets: tuple[Ticket, ...], book: OrderBook) -> None:
    """Print where the valid tickets' files are, each path on a line that can be copied."""
    for ticket in tickets:
        if ticket.state == "valid":
            print(printable(str(book.store.file(ticket.path)), _LONGEST_PATH))


_LONGEST_PATH = 4096
