"""The check of the invariant sees each way to break it."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from stagedoor.order import Order
from stagedoor.orders import OrderBook, RefundPosition, Rename
from tests.orders.support import issue, order_data


def execute(book: OrderBook, statement: str) -> None:
    with book._database.engine.begin() as connection:
        connection.execute(sa.text(statement))


def second_valid(book: OrderBook, order: Order) -> None:
    execute(book, "DROP INDEX tickets_one_valid")
    columns = "order_id, position_id, order_version, token, path, content_key, content_type, state, issued_at"
    execute(book, f"INSERT INTO tickets ({columns}) SELECT {columns} FROM tickets WHERE position_id = 1")


BREAKS: dict[str, tuple[Callable[[OrderBook, Order], Any], list[str], list[str]]] = {
    "nothing": (lambda book, order: None, [], []),
    "a file removed": (
        lambda book, order: book.store.remove(book.tickets(order.order_id)[0].path),
        ["0 valid tickets of version 1 with a readable file"],
        ["is not readable"],
    ),
    "a file emptied": (
        lambda book, order: book.store.write(book.tickets(order.order_id)[0].path, b""),
        ["0 valid tickets"],
        ["is not readable"],
    ),
    "a ticket void that should be valid": (
        lambda book, order: execute(book, "UPDATE tickets SET state = 'void' WHERE position_id = 1"),
        ["0 valid tickets"],
        [],
    ),
    "a refund whose handler has not run": (
        lambda book, order: book.refund(order.order_id),
        [],
        ["of a refunded order", "of a refunded order"],
    ),
    "a position refunded and not handled": (
        lambda book, order: book.change(order.order_id, RefundPosition(1)),
        ["0 valid tickets of version 2"],
        ["a valid ticket of a position not placed", "a valid ticket of version 1, the order has version 2"],
    ),
    "a change not handled": (
        lambda book, order: book.change(order.order_id, Rename(1, "Ada")),
        ["0 valid tickets of version 2", "0 valid tickets of version 2"],
        ["a valid ticket of version 1", "a valid ticket of version 1"],
    ),
    "two valid tickets": (second_valid, ["2 valid tickets"], ["2 valid tickets"]),
    "a token of nobody": (
        lambda book, order: execute(book, "UPDATE tickets SET token = 'X' WHERE position_id = 2"),
        ["0 valid tickets"],
        ["a token that is not the position's"],
    ),
}


@pytest.mark.parametrize("break_it, lost, wrong", BREAKS.values(), ids=BREAKS.keys())
def test_each_way_to_break_the_invariant_is_found(
    break_it: Callable[[OrderBook, Order], Any], lost: list[str], wrong: list[str], book: OrderBook
) -> None:
    order = book.place(order_data(positions=2))
    issue(book, order)
    break_it(book, order)
    report = book.check_invariant()
    for found, expected in ((report.lost, lost), (report.wrong, wrong)):
        assert len(found) == len(expected), found
        assert all(part in finding.problem for part, finding in zip(expected, found, strict=True)), found
    assert report.is_sound == (not lost and not wrong)


def test_an_order_without_tickets_is_lost(book: OrderBook) -> None:
    order = book.place(order_data(positions=2))
    assert [finding.position_id for finding in book.check_invariant([order.order_id]).lost] == [1, 2]


def test_everything_is_counted(book: OrderBook) -> None:
    orders = [book.place(order_data(positions=3)) for _ in range(4)]
    for order in orders:
        issue(book, order)
    book.refund(orders[0].order_id)
    book.void_refunded(orders[0].order_id)
    book.store.tidy(book.get(orders[0].order_id))
    issue(book, book.reissue(orders[1].order_id))
    book.store.tidy(book.get(orders[1].order_id))
    report = book.check_invariant()
    assert report.is_sound
    assert (report.orders, report.refunded, report.positions) == (4, 1, 9)
    assert (report.tickets_valid, report.tickets_void) == (9, 6)
    assert report.stray == ()


def test_files_that_nobody_needs_are_listed(book: OrderBook) -> None:
    order = book.place(order_data())
    issue(book, order)
    stray = book.store.path(order.order_id, 1, version=1, key="other", suffix=".pdf")
    book.store.write(stray, b"x")
    assert book.check_invariant().stray == (stray,)
    assert book.check_invariant([order.order_id]).stray == ()


def test_an_order_that_is_not_there_is_lost(book: OrderBook) -> None:
    order = book.place(order_data())
    issue(book, order)
    report = book.check_invariant([order.order_id, 4471])
    assert [(finding.order_id, finding.position_id) for finding in report.lost] == [(4471, None)]
    assert report.orders == 1


def test_many_orders_are_checked_page_by_page(book: OrderBook) -> None:
    ids = book.place_many(order_data() for _ in range(450))
    assert len(book.check_invariant().lost) == 450
    assert len(book.check_invariant(reversed(ids)).lost) == 450
