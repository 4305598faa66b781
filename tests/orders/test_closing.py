"""Closing an order book while a call is still at work: its connection is closed when the call is over."""

import gc
import sqlite3
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from stagedoor.orders import OrderBook
from stagedoor.orders.engine import Database
from tests.orders.support import order_data

LIMIT_S = 20.0
WAYS: list[Callable[[Database], AbstractContextManager[Connection]]] = [
    Database.read,
    Database.snapshot,
    Database.write,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_connection_that_is_out_at_the_close_is_closed_when_its_call_is_over(
    tmp_path: Path, way: Callable[[Database], AbstractContextManager[Connection]]
) -> None:
    file = tmp_path / "orders.db"
    log = tmp_path / "orders.db-wal"
    is_out, may_end = threading.Event(), threading.Event()

    def call(database: Database) -> None:
        with way(database) as connection:
            connection.execute(
                sa.text("UPDATE orders SET version = version") if way is Database.write else sa.select(1)
            )
            is_out.set()
            assert may_end.wait(LIMIT_S)

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with OrderBook.open(f"sqlite:///{file}", tickets_dir=tmp_path / "tickets") as book:
            book.place(order_data())
            thread = threading.Thread(target=call, args=(book._database,))
            thread.start()
            assert is_out.wait(LIMIT_S)
        assert log.exists()
        may_end.set()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        # SQLite removes the log with the last connection; nothing had to be collected for that.
        assert not log.exists()
        del book
        gc.collect()
    file.unlink()


def test_a_call_that_comes_after_the_close_leaves_nothing_open(tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    book = OrderBook.open(f"sqlite:///{file}", tickets_dir=tmp_path / "tickets")
    order = book.place(order_data())
    book.close()
    book.close()
    assert book.get(order.order_id) == order
    assert not (tmp_path / "orders.db-wal").exists()


def test_closing_leaves_no_row_behind_in_the_log(tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    with OrderBook.open(f"sqlite:///{file}", tickets_dir=tmp_path / "tickets") as book:
        book.place(order_data())
    alone = tmp_path / "copy.db"
    alone.write_bytes(file.read_bytes())
    connection = sqlite3.connect(alone)
    try:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    finally:
        connection.close()
