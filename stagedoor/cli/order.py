"""``order``: what a shop does to orders, from a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stagedoor.cli.options import BOOK, SettingsCommand, number_of_id
from stagedoor.settings import Settings

if TYPE_CHECKING:
    from stagedoor.orders import OrderBook

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
ORDER_ID = click.argument("order_id", metavar="ID", type=number_of_id)


@click.group("order", help="Place, refund, change, show and check orders.")
def command() -> None:
    """Group what is done to orders."""


def _in_group(name: str, help_line: str) -> Callable[[Callable[..., Any]], click.Command]:
    return command.command(name, cls=SettingsCommand, setting_names=BOOK, help=help_line)


@contextlib.contextmanager
def _book(settings: Settings, *, is_made: bool = False) -> "Iterator[OrderBook]":
    """Open the order book; where there is none, it is made only for who places orders.

    Raises:
        ConfigurationError: the address, the database or the tickets folder will not do.
        OrderError: there is no order book at this address.
    """
    from stagedoor.cli.books import check_book  # noqa: PLC0415 - SQLAlchemy takes its time, and --help needs none
    from stagedoor.orders import OrderBook  # noqa: PLC0415 - as above

    if not is_made:
        check_book(settings.orders_url)
    with OrderBook.open(settings.orders_url, tickets_dir=settings.tickets_dir) as book:
        yield book


@_in_group(
    "place",
    "Place the orders of a file, or one that is described by flags. "
    "All lines of a file are checked first: if one is bad, none is placed.",
)
@click.option("--file", "file", metavar="FILE", help="One order to a line, as in orders.jsonl; - reads stdin.")
@click.option("--event", metavar="NAME", help="One order: the event's name.")
@click.option("--venue", metavar="NAME", help="… where it is.")
@click.option("--starts-at", metavar="TIME", help="… when it begins, such as 2026-07-01T18:00:00Z.")
@click.option("--tz", metavar="ZONE", default="UTC", show_default=True, help="… in which time zone it is.")
@click.option("--holder", "holders", metavar="NAME", multiple=True, help="… one position for each holder.")
@click.option("--seat", "seats", metavar="ZONE/ROW/NUMBER", multiple=True, help="… their seats, in the same order.")
@click.option("--category", metavar="NAME", default="Standard", show_default=True, help="… of all positions.")
@click.option("--amount-minor", metavar="N", type=int, default=0, show_default=True, help="… price of each, in cents.")
@click.option("--currency", metavar="CODE", default="EUR", show_default=True, help="… of the price.")
@click.option("--locale", metavar="TAG", default="en", show_default=True, help="… language of the tickets.")
@click.option("--buyer", metavar="NAME", help="… who paid; the first holder by default.")
@click.option("--order-id", metavar="ID", type=int, help="… its id; the order book chooses one by default.")
@AS_JSON
def place(settings: Settings, file: str | None, *, as_json: bool, **one: Any) -> None:
    """Place orders and print their ids."""
    from stagedoor.cli import order_place  # noqa: PLC0415 - not for --help

    if (file is None) == (one["event"] is None):
        raise click.UsageError("take either --file, or --event with the flags that describe one order")
    new = order_place.read_orders(_lines(file)) if file is not None else [order_place.one_order(one)]
    with _book(settings, is_made=True) as book:
        order_place.place_all(book, new, as_json=as_json)


def _lines(file: str) -> list[bytes]:
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).split(b"\n")
    except OSError as error:
        raise click.UsageError(f"--file: cannot read {file}: {error.strerror}") from None


@_in_group("refund", "Refund a whole order: the door refuses its tickets from now on.")
@ORDER_ID
@AS_JSON
def refund(settings: Settings, order_id: int, *, as_json: bool) -> None:
    """Refund an order."""
    from stagedoor.cli import order_show  # noqa: PLC0415 - not for --help

    with _book(settings) as book:
        order_show.tell_change(book.refund(order_id), "refunded", as_json=as_json)


@_in_group("reissue", "Have all tickets of an order made again; their tokens stay.")
@ORDER_ID
@AS_JSON
def reissue(settings: Settings, order_id: int, *, as_json: bool) -> None:
    """Make tickets again."""
    from stagedoor.cli import order_show  # noqa: PLC0415 - not for --help

    with _book(settings) as book:
        order_show.tell_change(book.reissue(order_id), "to be issued again", as_json=as_json)


@_in_group("change", "Change positions of an order, all of it at once; tickets that show it are made again.")
@ORDER_ID
@click.option("--rename", "renames", metavar="POS=NAME", multiple=True, help="Another holder.")
@click.option("--reseat", "reseats", metavar="POS=ZONE/ROW/NUMBER", multiple=True, help="Another seat; - for none.")
@click.option(
    "--rotate", "rotates", metavar="POS", type=number_of_id, multiple=True, help="A fresh token; the old one is void."
)
@click.option(
    "--refund-position", "refunds", metavar="POS", type=number_of_id, multiple=True, help="Refund it and its add-ons."
)
@AS_JSON
def change(settings: Settings, order_id: int, *, as_json: bool, **asked: tuple[Any, ...]) -> None:
    """Change an order."""
    from stagedoor.cli import order_place, order_show  # noqa: PLC0415 - not for --help

    changes = order_place.changes_of(**asked)
    if not changes:
        raise click.UsageError("take at least one of --rename, --reseat, --rotate, --refund-position")
    with _book(settings) as book:
        order_show.tell_change(book.change(order_id, *changes), "changed", as_json=as_json)


@_in_group("show", "Show an order: its event, its positions, and all its tickets.")
@ORDER_ID
@AS_JSON
def show(settings: Settings, order_id: int, *, as_json: bool) -> None:
    """Show an order."""
    from stagedoor.cli import order_show  # noqa: PLC0415 - not for --help

    with _book(settings) as book:
        order_show.show(book, order_id, as_json=as_json)


@_in_group("check", "Say whether a token, plain or in a signed code, opens the door: exit code 0 if it does, 1 if not.")
@click.argument("token", metavar="TOKEN")
@AS_JSON
def check(settings: Settings, token: str, *, as_json: bool) -> int:
    """Check a token."""
    from stagedoor.cli import order_show  # noqa: PLC0415 - not for --help

    with _book(settings) as book:
        return order_show.tell_token(book.check_token(order_show.token_of(token)), as_json=as_json)
