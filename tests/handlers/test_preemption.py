"""Somebody else acts between any two SQL statements of a handler.

The other tests stop between transactions. These stop inside them, before each
statement and before each commit, and let an intruder with connections of its own
try to act there. Where the handler has locked the order, the intruder waits in
vain and acts afterwards; where it has not, it acts at once. The result must be
right in both cases.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from stagedoor.orders import OrderBook, OrderBookUnavailable, Rename
from tests.handlers.support import broken, run
from tests.orders.support import order_data

RENDER = "render_tickets"
REFUND = "refund_order"


class Preemption:
    """Counts the statements of an engine, and acts before the one with a given number."""

    def __init__(self, engine: sa.Engine) -> None:
        self.at: int | None = None
        self.seen = 0
        self.act: Callable[[], object] = lambda: None
        sa.event.listen(engine, "before_cursor_execute", self._statement)
        sa.event.listen(engine, "commit", self._commit)

    def arm(self, at: int, act: Callable[[], object]) -> None:
        self.at, self.seen, self.act = at, 0, act

    def disarm(self) -> bool:
        """Stop counting, and return whether there was such a statement."""
        reached = self.at is not None and self.seen > self.at
        self.at = None
        return reached

    def _statement(self, *_: Any) -> None:
        self._count()

    def _commit(self, _: Any) -> None:
        self._count()

    def _count(self) -> None:
        if self.at is not None:
            self.seen += 1
            if self.seen == self.at + 1:
                self.act()


def refund(book: OrderBook, order_id: int) -> None:
    book.refund(order_id)


def refund_and_handle(book: OrderBook, order_id: int) -> None:
    if book.get(order_id).status == "placed":
        book.refund(order_id)
    run(book, REFUND, order_id)


def change(book: OrderBook, order_id: int) -> None:
    book.change(order_id, Rename(1, "Ada"))


def change_and_handle(book: OrderBook, order_id: int) -> None:
    if book.get(order_id).version == 1:
        book.change(order_id, Rename(1, "Ada"))
    run(book, RENDER, order_id)


def deliver_again(book: OrderBook, order_id: int) -> None:
    run(book, RENDER, order_id)


INTRUDERS: dict[str, tuple[Callable[[OrderBook, int], None], tuple[str, ...]]] = {
    "a refund": (refund, (REFUND,)),
    "a refund and its handler": (refund_and_handle, ()),
    "a change": (change, (RENDER,)),
    "a change and its handler": (change_and_handle, ()),
    "the same job": (deliver_again, ()),
}


@pytest.mark.parametrize("intruder, owed", INTRUDERS.values(), ids=INTRUDERS.keys())
def test_the_invariant_holds_whoever_acts_between_two_statements_of_the_render(
    intruder: Callable[[OrderBook, int], None], owed: tuple[str, ...], book: OrderBook, url: str, folder: Path
) -> None:
    short_wait = url.replace("5000", "100")
    with OrderBook.open(short_wait, tickets_dir=folder / "tickets", busy_timeout_s=0.05) as other:
        preemption = Preemption(book._database.engine)
        at, outcomes = 0, set()
        while True:
            order_id = book.place(order_data()).order_id
            acted: list[str] = []
            preemption.arm(at, partial(attempt, other, intruder, order_id, acted))
            run(book, RENDER, order_id)
            if not preemption.disarm():
                break
            outcomes.update(acted)
            if acted == ["locked out"]:
                intruder(other, order_id)
            for kind in owed:
                run(book, kind, order_id)
            assert broken(book, order_id) == [], f"the intruder was {acted} before statement {at}"
            at += 1
    assert outcomes == {"done", "locked out"}, "the intruder met a lock here and none there"


def attempt(book: OrderBook, intruder: Callable[[OrderBook, int], None], order_id: int, outcomes: list[str]) -> None:
    """Let the intruder act, unless it meets a lock."""
    try:
        intruder(book, order_id)
    except OrderBookUnavailable:
        outcomes.append("locked out")
    else:
        outcomes.append("done")


def test_the_first_statement_of_a_commit_is_the_whole_condition(book: OrderBook) -> None:
    """A statement that looks at the order before the UPDATE would make a decision that can be out of date."""
    order = book.place(order_data())
    statements: list[str] = []
    engine = book._database.engine
    sa.event.listen(engine, "begin", lambda _: statements.append("(begin)"))
    sa.event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    run(book, RENDER, order.order_id)
    book.refund(order.order_id)
    run(book, REFUND, order.order_id)
    # On SQLite the beginning is a statement as well.
    statements = [statement for statement in statements if not statement.startswith("BEGIN")]
    updates = [statement for statement in statements if statement.startswith("UPDATE orders SET issued")]
    assert len(updates) == 2
    assert "status" in updates[0]
    assert "version" in updates[0]
    assert "issued IS" in updates[0].partition("WHERE")[2]
    assert "status" in updates[1]
    assert [statements[statements.index(update) - 1] for update in updates] == ["(begin)", "(begin)"]
