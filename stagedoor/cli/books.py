"""The order book, opened by commands that look: where there is none, none is made."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from stagedoor.errors import ConfigurationError, OrderError
from stagedoor.orders import OrderBook, open_engine
from stagedoor.orders.engine import Database
from stagedoor.orders.history import History, is_book
from stagedoor.settings import Settings


@attrs.frozen
class Books:
    """An order book, and what its outbox remembers."""

    orders: OrderBook
    history: History


@contextlib.contextmanager
def books_of(settings: Settings) -> Iterator[Books | None]:
    """Open the order book; None where the address leads to none.

    Raises:
        ConfigurationError: there is one, but it or its tickets folder will not do.
    """
    if not has_book(settings.orders_url):
        yield None
        return
    database = Database(open_engine(settings.orders_url))
    try:
        with OrderBook.open(settings.orders_url, tickets_dir=settings.tickets_dir) as book:
            yield Books(book, History(database))
    finally:
        database.close()


def has_book(url: str) -> bool:
    """Return whether there is an order book at this address."""
    try:
        check_book(url)
    except (ConfigurationError, NoOrderBook):
        return False
    return True


class NoOrderBook(OrderError):
    """There is no order book at an address: it is mistyped, or no order has been placed yet."""


def check_book(url: str) -> None:
    """Find an order book at this address, and make none.

    Raises:
        ConfigurationError: the address, its driver or the database will not do.
        NoOrderBook: there is none.
    """
    engine = open_engine(url)
    database = Database(engine)
    try:
        is_there = not database.is_sqlite or Path(str(engine.url.database)).is_file()
        if not is_there or not is_book(database):
            where = engine.url.render_as_string(hide_password=True)
            raise NoOrderBook(f"there is no order book at {where}; the first order that is placed makes one")
    finally:
        database.close()
