"""The fixtures of the shop half; the conftest files of its folders take them from here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stagedoor.orders import OrderBook
from tests.orders.support import Clock, Postgres, fast_folder, private_postgres

__all__ = ["book", "clock", "folder", "postgres", "url"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A new folder, in memory where that is possible."""
    with fast_folder() as path:
        yield path


@pytest.fixture
def postgres(request: pytest.FixtureRequest) -> Postgres:
    """The run's private PostgreSQL; its tests are skipped where there is none."""
    return private_postgres(request.config)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    """The address of a new order book, on each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{folder}/book.db"
    return private_postgres(request.config).new_url()


@pytest.fixture
def clock() -> Clock:
    """The clock of `book`."""
    return Clock()


@pytest.fixture
def book(url: str, folder: Path, clock: Clock) -> Iterator[OrderBook]:
    """A new order book on each kind of database."""
    with OrderBook.open(url, tickets_dir=folder / "tickets", clock=clock) as opened:
        yield opened
