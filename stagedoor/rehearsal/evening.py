"""One evening of a shop: places orders, does to them what is planned, and knows how far everything is.

Everything that speaks SQL on the shop's side runs in threads of its own, as a
shop's requests would: some sell, others do to orders what is planned. The caller's
loop gives them work and reads the logs.
"""

import heapq
import itertools
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import attrs

from stagedoor.order import NewOrder, Seat
from stagedoor.orders import Change, OrderBook, RefundPosition, Rename, Reseat, RotateToken
from stagedoor.rehearsal.plan import Act, Deed, Moment
from stagedoor.rehearsal.watch import Settled, Started

TILL_THREADS = 2
COUNTER_THREADS = 2
MOST_BEING_PLACED = 3
"""Orders on their way into the book at once: a queue would let the moments of what is planned pass by."""


@attrs.define
class _Sold:
    """One order of the evening: what is still to happen to it, and where its tickets are."""

    order_id: int
    left: deque[Deed]
    is_rendering: bool = False
    is_issued: bool = False


class Evening:
    """The shop's side of a rehearsal; a context manager that ends its threads.

    Args:
        book: the order book.
        orders: what is sold, in this sequence.
        plan: what happens to each of them.
        window: how many orders may wait for their tickets at once.
        books: the same order book, opened so that the tickets of what is placed and changed are made
            otherwise; each act takes one of them and *book* by chance. None for *book* alone.

    *rows* counts the outbox rows that have tickets made, by which of the books has written them.
    *allowance* is how many orders may have been sold by now; raise it to sell at a pace.
    """

    def __init__(
        self,
        book: OrderBook,
        orders: Sequence[NewOrder],
        plan: Sequence[tuple[Deed, ...]],
        *,
        window: int,
        books: Sequence[OrderBook] = (),
    ) -> None:
        self._books = (book, *books)
        self._rng = random.Random(f"evening {len(orders)}")
        self._to_sell = deque(zip(orders, plan, strict=True))
        self._window = window
        self._sold: dict[int, _Sold] = {}
        self._due: list[tuple[float, int, int]] = []
        self._tie = itertools.count()
        self._asked: set[Future[Callable[[], None]]] = set()
        self._being_placed = 0
        self._till = ThreadPoolExecutor(TILL_THREADS, thread_name_prefix="till")
        self._counter = ThreadPoolExecutor(COUNTER_THREADS, thread_name_prefix="counter")
        self.orders = len(orders)
        self.to_refund = sum(deed.act is Act.REFUND for deeds in plan for deed in deeds)
        self.placed = 0
        self.issued = 0
        self.refunded = 0
        self.rows_written = 0
        self.rows: Counter[OrderBook] = Counter()
        self.allowance = float("inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for threads in (self._till, self._counter):
            threads.shutdown(wait=True, cancel_futures=True)

    @property
    def is_over(self) -> bool:
        """Whether all is sold and done on the shop's side; the tickets may still be on their way."""
        return not self._to_sell and not self._asked and not self._due and not any(self._waiting())

    def take_news(self, news: Sequence[Started | Settled]) -> None:
        """Take note of what the workers have done, and set what waited for it on its way."""
        for event in news:
            sold = self._sold.get(event.order_id or 0)
            if sold is None or not event.makes_tickets:
                continue
            sold.is_rendering = isinstance(event, Started)
            if isinstance(event, Started):
                self._reached(sold, Moment.RENDERING)
            elif event.outcome in {"done", "settled"}:
                self.issued += not sold.is_issued
                sold.is_issued = True
                self._reached(sold, Moment.AFTER)

    def work(self) -> None:
        """Place what there is room for, and do what is due; returns at once, what was asked for comes later.

        Raises:
            Exception: whatever the order book has raised since the last call.
        """
        for done in [future for future in self._asked if future.done()]:
            self._asked.remove(done)
            done.result()()
        while self._due and self._due[0][0] <= time.monotonic():
            _at, _tie, order_id = heapq.heappop(self._due)
            self._do_next(self._sold[order_id])
        while self._has_room():
            order, deeds = self._to_sell.popleft()
            self._being_placed += 1
            self._asked.add(self._till.submit(self._place, self._rng.choice(self._books), order, deeds))

    def close(self) -> None:
        """Sell no more; what was planned for the orders sold is still done."""
        self._to_sell.clear()

    def hurry(self) -> None:
        """Do what waits for a moment that has passed unseen: called when all is at rest."""
        for sold in list(self._waiting()):
            self._schedule(sold, delay_s=0.0)

    # -- inside -------------------------------------------------------------------

    def _has_room(self) -> bool:
        waiting = self.placed - self.issued + self._being_placed
        is_allowed = self.placed + self._being_placed < self.allowance
        return bool(self._to_sell) and is_allowed and waiting < self._window and self._being_placed < MOST_BEING_PLACED

    def _waiting(self) -> Iterator[_Sold]:
        scheduled = {order_id for _at, _tie, order_id in self._due}
        return (sold for sold in self._sold.values() if sold.left and sold.order_id not in scheduled)

    def _place(self, book: OrderBook, order: NewOrder, deeds: tuple[Deed, ...]) -> Callable[[], None]:
        order_id = book.place(order, request_id="rehearsal").order_id
        return lambda: self._is_placed(book, _Sold(order_id, deque(deeds)))

    def _is_placed(self, book: OrderBook, sold: _Sold) -> None:
        self._being_placed -= 1
        self.placed += 1
        self.rows_written += 1
        self.rows[book] += 1
        self._sold[sold.order_id] = sold
        self._reached(sold, Moment.BEFORE)

    def _reached(self, sold: _Sold, moment: Moment) -> None:
        if sold.left and sold.left[0].moment is moment:
            self._schedule(sold, delay_s=sold.left[0].delay_s)

    def _schedule(self, sold: _Sold, *, delay_s: float) -> None:
        if all(order_id != sold.order_id for _at, _tie, order_id in self._due):
            heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._tie), sold.order_id))

    def _do_next(self, sold: _Sold) -> None:
        self._asked.add(self._counter.submit(self._do, self._rng.choice(self._books), sold, sold.left.popleft()))

    def _do(self, book: OrderBook, sold: _Sold, deed: Deed) -> Callable[[], None]:
        do(book, sold.order_id, deed)
        return lambda: self._is_done(book, sold, deed)

    def _is_done(self, book: OrderBook, sold: _Sold, deed: Deed) -> None:
        self.rows_written += 1
        if deed.act is Act.REFUND:
            self.refunded += 1
        else:
            self.rows[book] += 1
        if sold.left:
            self._reached(sold, Moment.BEFORE)
            if sold.is_rendering:
                self._reached(sold, Moment.RENDERING)


def do(book: OrderBook, order_id: int, deed: Deed) -> None:
    """Do one deed to one order, as a person at the counter would."""
    match deed.act:
        case Act.REFUND:
            book.refund(order_id, request_id="rehearsal")
        case Act.REISSUE:
            book.reissue(order_id, request_id="rehearsal")
        case _:
            book.change(order_id, change_of(book, order_id, deed), request_id="rehearsal")


def change_of(book: OrderBook, order_id: int, deed: Deed) -> Change:
    """Return the change that a deed makes."""
    position = book.get(order_id).position(deed.position)
    match deed.act:
        case Act.RENAME:
            return Rename(position.id, deed.holder)
        case Act.RESEAT:
            seat = position.seat or Seat(zone=None, row=None, number=None)
            return Reseat(position.id, attrs.evolve(seat, number=str(30 + position.id)))
        case Act.REFUND_POSITION:
            return RefundPosition(position.id)
        case _:
            return RotateToken(position.id)
