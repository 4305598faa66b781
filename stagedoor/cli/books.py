"""The order book, opened by commands that look: where there is none, none is made."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from stagedoor.errors import ConfigurationError
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
        engine = open_engine(url)
    except ConfigurationError:
        return False
    database = Database(engine)
    try:
        if database.is_sqlite and not Path(str(engine.url.database)).is_file():
            return False
        return is_book(database)
    finally:
        database.close()
