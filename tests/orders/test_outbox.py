"""Rows are written with the order or not at all, and the relay loses none."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from stagedoor.errors import InvalidOrder
from stagedoor.orders import OrderBook, TransactionRequired, open_engine, outbox
from stagedoor.orders.schema import metadata
from stagedoor.orders.schema import outbox as table
from tests.orders.support import Clock, Postgres, order_data

DAY = 24 * 3600


@pytest.fixture
def engine(book: OrderBook) -> sa.Engine:
    """The shop's own engine, on the same database."""
    return book._database.engine


def ids(book: OrderBook) -> list[int]:
    return [row.outbox_id for row in book.outbox.pending()]


def numbered(book: OrderBook, count: int) -> list[int]:
    """Place orders, mark their rows with sequence numbers from 1, and return the rows' ids."""
    book.place_many(order_data() for _ in range(count))
    rows = ids(book)
    book.outbox.mark_published((row, f"1-{seq}", seq) for seq, row in enumerate(rows, start=1))
    return rows


# -- the shop's side ----------------------------------------------------------


def test_a_row_is_there_once_the_transaction_has_committed(book: OrderBook, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        outbox_id = outbox.add(connection, "render_tickets", 4471, "7f3a9c2e", "4bf92f35")
        assert book.outbox.pending() == [], "others do not see it yet"
    [row] = book.outbox.pending()
    assert (row.outbox_id, row.kind, row.order_id, row.request_id, row.trace) == (
        outbox_id,
        "render_tickets",
        4471,
        "7f3a9c2e",
        "4bf92f35",
    )


def test_a_rollback_leaves_no_row(book: OrderBook, engine: sa.Engine) -> None:
    with engine.connect() as connection:
        transaction = connection.begin()
        outbox.add(connection, "render_tickets", 1)
        transaction.rollback()
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:
        _ = outbox.add(connection, "render_tickets", 2) / 0
    assert book.outbox.pending() == []


def test_a_rolled_back_savepoint_takes_its_row_with_it(book: OrderBook, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        outbox.add(connection, "kept", 1)
        savepoint = connection.begin_nested()
        outbox.add(connection, "undone", 2)
        savepoint.rollback()
        with connection.begin_nested():
            outbox.add(connection, "kept", 3)
    assert [(row.kind, row.order_id) for row in book.outbox.pending()] == [("kept", 1), ("kept", 3)]


def test_a_released_savepoint_is_undone_with_its_transaction(book: OrderBook, engine: sa.Engine) -> None:
    """The driver's own way of beginning would have committed the savepoint, for nothing was written before it."""
    with engine.connect() as connection:
        transaction = connection.begin()
        with connection.begin_nested():
            outbox.add(connection, "render_tickets", 1)
        transaction.rollback()
    assert book.outbox.pending() == []


def test_a_connection_without_a_transaction_is_refused(book: OrderBook, engine: sa.Engine) -> None:
    with engine.connect() as connection, pytest.raises(TransactionRequired, match="not inside a transaction"):
        outbox.add(connection, "render_tickets", 1)
    assert book.outbox.pending() == []


def test_a_connection_in_autocommit_mode_is_refused(book: OrderBook, engine: sa.Engine) -> None:
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    with connection, connection.begin(), pytest.raises(TransactionRequired, match="autocommit"):
        outbox.add(connection, "render_tickets", 1)
    assert book.outbox.pending() == []


def test_an_engine_in_autocommit_mode_is_refused(book: OrderBook, url: str) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    try:
        with engine.begin() as connection, pytest.raises(TransactionRequired, match="autocommit"):
            outbox.add(connection, "render_tickets", 1)
    finally:
        engine.dispose()
    assert book.outbox.pending() == []


def test_a_shop_with_an_ordinary_engine_may_add_rows(book: OrderBook, url: str) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            outbox.add(connection, "render_tickets", 1)
        with engine.connect() as connection:
            with connection.begin():
                outbox.add(connection, "render_tickets", 2)
                connection.rollback()
            with connection.begin():
                outbox.add(connection, "render_tickets", 3)
    finally:
        engine.dispose()
    assert [row.order_id for row in book.outbox.pending()] == [1, 3]


def test_a_shop_may_keep_the_table_in_a_database_of_its_own(folder: Path) -> None:
    engine = open_engine(f"sqlite:///{folder}/shop.db")
    try:
        metadata.create_all(engine, tables=[table])
        with engine.begin() as connection:
            assert outbox.add(connection, "render_tickets", 1, clock=lambda: 17.0) == 1
        with engine.connect() as connection:
            assert connection.execute(sa.select(table.c.created_at)).scalar_one() == 17.0
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("", 1), "kind: expected 1 to 64"),
        (("x" * 65, 1), "kind: "),
        (("render tickets", 1), "kind: "),
        (("rendér", 1), "kind: "),
        (("kind\n", 1), "kind: "),
        ((None, 1), "kind: "),
        (("x", 0), "order_id: expected 1 to"),
        (("x", 2**63), "order_id: expected 1 to"),
        (("x", "1"), "order_id: expected a whole number"),
        (("x", True), "order_id: expected a whole number"),
        (("x", 1, "r" * 129), "request_id: at most 128"),
        (("x", 1, "two\nlines"), "request_id: holds a character that cannot be printed"),
        (("x", 1, "\0"), "request_id: holds a NUL"),
        (("x", 1, "", "\ud800"), "trace: holds half"),
        (("x", 1, "", None), "trace: expected text"),
    ],
)
def test_what_the_stream_would_refuse_is_refused_here(
    arguments: tuple[Any, ...], message: str, book: OrderBook, engine: sa.Engine
) -> None:
    with engine.begin() as connection, pytest.raises(InvalidOrder, match=message):
        outbox.add(connection, *arguments)
    assert book.outbox.pending() == []


def test_what_the_stream_takes_is_taken(book: OrderBook, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        outbox.add(connection, "A.b-c_9" + "x" * 57, 2**63 - 1, "r" * 128, "spaced out € text")
    assert book.outbox.pending()[0].order_id == 2**63 - 1


# -- the relay's side ---------------------------------------------------------


def test_the_book_keeps_its_id(book: OrderBook, url: str, folder: Path) -> None:
    with OrderBook.open(url, tickets_dir=folder / "tickets") as again:
        assert again.outbox.book_id() == book.outbox.book_id()
    assert len(book.outbox.book_id()) == 16


def test_rows_wait_until_they_are_marked(book: OrderBook) -> None:
    book.place_many(order_data() for _ in range(5))
    first = ids(book)
    assert ids(book) == first, "looking changes nothing"
    assert [row.outbox_id for row in book.outbox.pending(2)] == first[:2]
    assert book.outbox.mark_published([(first[1], "1-1", 1), (first[0], "1-2", 2)]) == 2
    assert ids(book) == first[2:]


def test_a_mark_may_be_repeated_and_the_first_one_stays(book: OrderBook, engine: sa.Engine) -> None:
    [row] = (book.place(order_data()), ids(book))[1]
    assert book.outbox.mark_published([(row, "1-1", 1)]) == 1
    assert book.outbox.mark_published([(row, "9-9", 9)]) == 0
    assert book.outbox.mark_published([]) == 0
    assert book.outbox.mark_published([(4471, "1-1", 1)]) == 0
    with engine.connect() as connection:
        kept = connection.execute(sa.select(table.c.entry_id, table.c.seq)).one()
    assert tuple(kept) == ("1-1", 1)


def test_a_row_that_redis_had_already_is_marked_without_a_number(book: OrderBook) -> None:
    book.place(order_data())
    assert book.outbox.mark_published([(ids(book)[0], None, None)]) == 1
    assert book.outbox.highest_seq() == 0
    assert ids(book) == []


def test_a_parked_row_holds_up_nobody(book: OrderBook) -> None:
    book.place_many(order_data() for _ in range(3))
    rows = ids(book)
    book.outbox.park(rows[0], "fields too large: \ud800\0" + "x" * 5_000)
    assert ids(book) == rows[1:]
    [parked] = book.outbox.parked()
    assert parked.row.outbox_id == rows[0]
    assert parked.error.startswith("fields too large: \\ud800\\0")
    assert len(parked.error) <= 2_010
    assert book.outbox.unpark(rows[0])
    assert not book.outbox.unpark(rows[0])
    assert ids(book) == rows


def test_a_published_row_is_not_parked(book: OrderBook) -> None:
    [row] = numbered(book, 1)
    book.outbox.park(row, "too late")
    assert book.outbox.parked() == []
    assert book.outbox.backlog().parked == 0


def test_a_parked_row_that_another_relay_published_is_published(book: OrderBook) -> None:
    book.place(order_data())
    [row] = ids(book)
    book.outbox.park(row, "no")
    assert book.outbox.mark_published([(row, "1-1", 1)]) == 1
    assert book.outbox.parked() == []


def test_the_backlog_tells_the_age_of_the_oldest(book: OrderBook, clock: Clock) -> None:
    assert book.outbox.backlog().oldest_age_s is None
    book.place(order_data())
    clock.now += 10
    book.place_many(order_data() for _ in range(2))
    clock.now += 5
    backlog = book.outbox.backlog()
    assert (backlog.waiting, backlog.parked, backlog.oldest_age_s) == (3, 0, 15.0)
    book.outbox.park(ids(book)[0], "no")
    backlog = book.outbox.backlog()
    assert (backlog.waiting, backlog.parked, backlog.oldest_age_s) == (2, 1, 5.0)


def test_what_redis_has_lost_is_offered_again(book: OrderBook) -> None:
    rows = numbered(book, 6)
    assert book.outbox.highest_seq() == 6
    assert book.outbox.offer_again(4) == 2
    assert ids(book) == rows[4:]
    assert book.outbox.highest_seq() == 4
    assert book.outbox.offer_again(4) == 0, "safe to repeat"
    book.outbox.mark_published([(rows[4], "2-1", 5), (rows[5], "2-2", 6)])
    assert book.outbox.offer_again(6) == 0


def test_only_the_last_48_hours_are_offered_again_and_older_numbers_are_forgotten(
    book: OrderBook, clock: Clock
) -> None:
    old = numbered(book, 2)
    clock.now += 49 * 3600
    book.place_many(order_data() for _ in range(2))
    new = ids(book)
    book.outbox.mark_published([(new[0], "1-3", 3), (new[1], "1-4", 4)])
    assert book.outbox.offer_again(0) == 2
    assert ids(book) == new
    assert book.outbox.highest_seq() == 0, f"the old numbers of {old} would look like a loss for ever"


def test_a_row_that_becomes_visible_late_is_published(book: OrderBook, engine: sa.Engine) -> None:
    """Ids are handed out before commits: a cursor above the last seen id would have passed this row."""
    with engine.begin() as connection:
        connection.execute(table.insert(), {"id": 8, **outbox.make_row("b", 2, request_id="", trace="", now=0.0)})
    assert ids(book) == [8]
    book.outbox.mark_published([(8, "1-1", 1)])
    with engine.begin() as connection:
        connection.execute(table.insert(), {"id": 7, **outbox.make_row("a", 1, request_id="", trace="", now=0.0)})
    assert ids(book) == [7]


def test_on_postgresql_a_lower_id_that_commits_late_is_published(postgres: Postgres, folder: Path) -> None:
    with OrderBook.open(postgres.new_url(), tickets_dir=folder / "tickets") as book:
        engine = book._database.engine
        with engine.begin() as slow:
            low = outbox.add(slow, "render_tickets", 1)
            with engine.begin() as quick:
                high = outbox.add(quick, "render_tickets", 2)
            assert low < high
            assert ids(book) == [high]
            book.outbox.mark_published([(high, "1-1", 1)])
            assert ids(book) == []
        assert ids(book) == [low]


def test_on_postgresql_rows_that_another_relay_is_marking_are_skipped(postgres: Postgres, folder: Path) -> None:
    with OrderBook.open(postgres.new_url(), tickets_dir=folder / "tickets") as book:
        book.place_many(order_data() for _ in range(3))
        first, *others = ids(book)
        with book._database.engine.begin() as other_relay:
            other_relay.execute(table.update().where(table.c.id == first).values(published_at=1.0))
            assert ids(book) == others


def test_published_rows_are_pruned_and_their_ids_never_come_back(book: OrderBook, clock: Clock) -> None:
    rows = numbered(book, 3)
    book.place(order_data())
    waiting = ids(book)
    clock.now += 7 * DAY
    with pytest.raises(ValueError, match="at least 172800"):
        book.outbox.prune(DAY)
    assert book.outbox.prune(8 * DAY) == 0
    assert book.outbox.prune(6 * DAY) == 3
    assert ids(book) == waiting, "a waiting row stays, however old"
    book.outbox.mark_published([(waiting[0], "1-9", 9)])
    clock.now += 7 * DAY
    assert book.outbox.prune(6 * DAY) == 1
    book.place(order_data())
    assert ids(book)[0] > max(rows + waiting)


def test_pruning_goes_on_over_many_batches(book: OrderBook, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_PRUNE_BATCH", 4)
    numbered(book, 10)
    clock.now += 7 * DAY
    assert book.outbox.prune(6 * DAY) == 10
