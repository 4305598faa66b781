"""Opening an order book: by several processes at once, and when something is wrong."""

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from stagedoor.errors import ConfigurationError, InvalidOrder
from stagedoor.orders import OrderBook, OrderBookUnavailable, RefundPosition
from stagedoor.orders.engine import open_engine
from tests.orders.support import Postgres, order_data

ROOT = Path(__file__).parents[2]

OPEN = """
import sys
from pathlib import Path
from stagedoor.orders import OrderBook
print("ready", flush=True)
sys.stdin.readline()
with OrderBook.open(sys.argv[1], tickets_dir=Path(sys.argv[2])) as book:
    print(book.outbox.book_id())
"""


@pytest.mark.process
def test_several_processes_make_the_book_at_the_same_moment(url: str, folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, url, str(folder / "tickets")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert len(set(answers)) == 1


def open_book(url: str, folder: Path) -> None:
    OrderBook.open(url, tickets_dir=folder / "tickets").close()


@pytest.mark.parametrize(
    "url, message",
    [
        ("", "no database address"),
        ("stagedoor.db", "no database address"),
        ("mysql://root@host/db", "'mysql' is not supported"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///file:x?mode=memory&uri=true", "in memory"),
        ("sqlite+nothing:///x.db", r"there is no driver 'sqlite\+nothing'"),
        ("sqlite+aiosqlite:///x.db", "a driver for asyncio"),
        ("postgresql+asyncpg://host/db", "a driver for asyncio"),
        ("sqlite:////nowhere/at/all/book.db", "there is no folder /nowhere/at/all"),
    ],
)
def test_an_address_that_will_not_do_is_refused(url: str, message: str, folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        open_book(url, folder)
    assert str(caught.value).startswith("orders_url: ")


def test_a_missing_driver_says_what_to_install(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=re.escape("pip install 'stagedoor[postgres]'")) as caught:
        open_book("postgresql+pg8000://user:secret@host/db", folder)
    assert "'pg8000'" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_unreachable_server_is_named_without_its_password(postgres: Postgres, folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot open the order book") as caught:
        open_book(f"postgresql://stagedoor:secret@/book?host={folder}", folder)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_named(folder: Path) -> None:
    (folder / "book.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(ConfigurationError, match=r"cannot open the order book .*book\.db: file is not a database"):
        open_book(f"sqlite:///{folder}/book.db", folder)


def test_a_folder_in_place_of_the_file_is_named(folder: Path) -> None:
    (folder / "book.db").mkdir()
    with pytest.raises(ConfigurationError, match="cannot open the order book"):
        open_book(f"sqlite:///{folder}/book.db", folder)


def test_a_tickets_folder_that_cannot_be_made_is_named(folder: Path) -> None:
    (folder / "tickets").write_text("a file")
    with pytest.raises(ConfigurationError, match=r"tickets_dir: cannot write to .*/tickets \("):
        open_book(f"sqlite:///{folder}/book.db", folder)


def test_a_table_of_somebody_else_is_named(url: str, folder: Path) -> None:
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE orders (id INTEGER PRIMARY KEY, buyer TEXT)"))
    engine.dispose()
    with pytest.raises(ConfigurationError, match=r"table 'orders' that is not Stagedoor's \(no column"):
        open_book(url, folder)


def test_a_book_of_another_schema_is_refused(url: str, folder: Path) -> None:
    open_book(url, folder)
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE book SET value = '2' WHERE key = 'schema'"))
    engine.dispose()
    with pytest.raises(ConfigurationError, match="has schema '2', this release needs '1'"):
        open_book(url, folder)


def test_sqlite_is_set_up_to_keep_what_it_confirmed(folder: Path) -> None:
    with (
        OrderBook.open(f"sqlite:///{folder}/book.db", tickets_dir=folder) as book,
        book._database.engine.connect() as connection,
    ):
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 30_000, "foreign_keys": 1}


def test_the_database_refuses_a_second_valid_ticket(book: OrderBook) -> None:
    order = book.place(order_data())
    insert = sa.text(
        "INSERT INTO tickets (order_id, position_id, order_version, token, path, content_key, content_type, state,"
        f" issued_at) VALUES ({order.order_id}, 1, 1, 't', 'p', 'k', 'c', 'valid', 0)"
    )
    with book._database.engine.begin() as connection:
        connection.execute(insert)
    with pytest.raises(sa.exc.IntegrityError), book._database.engine.begin() as connection:
        connection.execute(insert)


def test_a_book_that_stays_locked_is_unavailable(folder: Path) -> None:
    url = f"sqlite:///{folder}/book.db"
    with OrderBook.open(url, tickets_dir=folder, busy_timeout_s=0.02) as book:
        order = book.place(order_data())
        holder = sqlite3.connect(folder / "book.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(OrderBookUnavailable, match="database is locked"):
            book.refund(order.order_id)
        assert book.get(order.order_id) == order, "readers do not wait"
        holder.execute("ROLLBACK")
        holder.close()
        assert book.refund(order.order_id).version == 2


def test_a_lost_connection_to_postgresql_is_unavailable_and_comes_back(postgres: Postgres, folder: Path) -> None:
    with OrderBook.open(postgres.new_url(), tickets_dir=folder) as book:
        order = book.place(order_data())
        with pytest.raises(OrderBookUnavailable), book._database.write() as connection:
            connection.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))
        assert book.refund(order.order_id).version == 2


def test_errors_of_the_database_do_not_quote_people(book: OrderBook) -> None:
    book.place(order_data(order_id=1))
    with pytest.raises(sa.exc.IntegrityError) as caught, book._database.write() as connection:
        connection.execute(sa.text("INSERT INTO book (key, value) VALUES ('id', :name)"), {"name": "Šimková"})
    assert "imkov" not in str(caught.value)


def test_the_shop_decides_what_has_its_tickets_made(url: str, folder: Path) -> None:
    with OrderBook.open(url, tickets_dir=folder / "tickets", issued_by="fulfil-order") as book:
        order_id = book.place(order_data(positions=2)).order_id
        book.change(order_id, RefundPosition(1))
        book.reissue(order_id)
        book.refund(order_id)
        assert [row.kind for row in book.outbox.pending()] == [*["fulfil-order"] * 3, "refund_order"]


def test_a_kind_that_none_can_have_is_refused_before_anything_is_placed(url: str, folder: Path) -> None:
    with OrderBook.open(url, tickets_dir=folder / "tickets", issued_by="two words") as book:
        with pytest.raises(InvalidOrder, match="kind"):
            book.place(order_data())
        assert book.summary().orders_placed == 0
