"""The shop of a rehearsal: what is planned happens, once, and at its moment."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagedoor.orders import OrderBook
from stagedoor.rehearsal.evening import Evening
from stagedoor.rehearsal.plan import Act, Deed, Moment
from stagedoor.rehearsal.programme import make_orders
from stagedoor.rehearsal.watch import RENDER, Settled, Started

ORDERS = list(make_orders(6, seed=3))


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    with OrderBook.open(f"sqlite:///{tmp_path}/orders.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


def deed(act: Act, moment: Moment, **more: object) -> Deed:
    return Deed(act=act, moment=moment, delay_s=0.0, **more)  # type: ignore[arg-type]  # a test's shorthand


def started(order_id: int) -> Started:
    return Started(at=1.0, worker="w", kind=RENDER, entry_id=f"{order_id}-0", order_id=order_id)


def done(order_id: int, outcome: str = "done") -> Settled:
    return Settled(at=2.0, worker="w", kind=RENDER, entry_id=f"{order_id}-0", order_id=order_id, outcome=outcome)


def work_until(evening: Evening, condition: object) -> None:
    deadline = time.monotonic() + 20
    while not condition():  # type: ignore[operator]  # a callable, told by its use
        evening.work()
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_all_orders_are_placed_once(book: OrderBook) -> None:
    with Evening(book, ORDERS, [()] * 6, window=100) as evening:
        work_until(evening, lambda: evening.is_over)
        assert (evening.placed, evening.rows_written) == (6, 6)
    assert book.summary().orders_placed == 6


def test_no_more_are_placed_than_may_wait_for_their_tickets(book: OrderBook) -> None:
    with Evening(book, ORDERS, [()] * 6, window=2) as evening:
        work_until(evening, lambda: evening.placed == 2)
        for _ in range(50):
            evening.work()
        assert evening.placed == 2
        evening.take_news([started(1), done(1)])
        work_until(evening, lambda: evening.placed == 3)


def test_a_deed_waits_for_its_moment(book: OrderBook) -> None:
    plan = [
        (deed(Act.REFUND, Moment.BEFORE),),
        (deed(Act.REFUND, Moment.RENDERING),),
        (deed(Act.REFUND, Moment.AFTER),),
    ]
    with Evening(book, ORDERS[:3], plan, window=100) as evening:
        work_until(evening, lambda: evening.placed == 3 and evening.refunded == 1)
        assert evening.to_refund == 3
        evening.take_news([started(order_id) for order_id in (1, 2, 3)])
        work_until(evening, lambda: evening.refunded == 2)
        # Two threads sell, so which order has which id is theirs to say.
        (waiting,) = (order_id for order_id in (1, 2, 3) if book.get(order_id).status == "placed")
        evening.take_news([done(waiting)])
        work_until(evening, lambda: evening.refunded == 3)
        assert evening.is_over


def test_an_attempt_that_failed_is_not_after(book: OrderBook) -> None:
    with Evening(book, ORDERS[:1], [(deed(Act.REFUND, Moment.AFTER),)], window=9) as evening:
        work_until(evening, lambda: evening.placed == 1)
        evening.take_news([started(1), done(1, outcome="retry_later")])
        for _ in range(20):
            evening.work()
        assert evening.refunded == 0
        assert evening.issued == 0


def test_the_deeds_of_one_order_come_one_after_the_other(book: OrderBook) -> None:
    plan = [(deed(Act.RENAME, Moment.BEFORE, holder="Ann Other"), deed(Act.REFUND, Moment.BEFORE))]
    with Evening(book, ORDERS[:1], plan, window=9) as evening:
        work_until(evening, lambda: evening.is_over)
        assert evening.rows_written == 3
    order = book.get(1)
    assert order.version == 3
    assert order.status == "refunded"
    assert order.position(1).holder == "Ann Other"


def test_a_moment_that_has_passed_unseen_is_made_up_for_at_rest(book: OrderBook) -> None:
    with Evening(book, ORDERS[:1], [(deed(Act.ROTATE, Moment.RENDERING),)], window=9) as evening:
        work_until(evening, lambda: evening.placed == 1)
        assert not evening.is_over
        evening.hurry()
        evening.hurry()
        work_until(evening, lambda: evening.is_over)
    assert book.get(1).version == 2


@pytest.mark.parametrize("act", [Act.RENAME, Act.RESEAT, Act.ROTATE, Act.REISSUE, Act.REFUND_POSITION])
def test_every_act_raises_the_version_and_leaves_the_order_placed(book: OrderBook, act: Act) -> None:
    order = next(order for order in ORDERS if len(order.positions) > 1)
    with Evening(book, [order], [(deed(act, Moment.BEFORE, holder="Ann Other"),)], window=9) as evening:
        work_until(evening, lambda: evening.is_over)
    assert (book.get(1).version, book.get(1).status) == (2, "placed")


def test_what_the_order_book_refuses_is_raised_and_not_lost(book: OrderBook) -> None:
    plan = [(deed(Act.ROTATE, Moment.BEFORE, position=77),)]
    with Evening(book, ORDERS[:1], plan, window=9) as evening, pytest.raises(KeyError):
        work_until(evening, lambda: evening.is_over)
