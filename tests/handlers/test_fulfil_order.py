"""The flow that fulfils an order: what it issues, whatever happens to the order or to its process meanwhile."""

from collections.abc import Callable

import attrs
import pytest

from stagedoor.broker.calls import Calls
from stagedoor.broker.deliveries import Settlement
from stagedoor.core.call import CallState
from stagedoor.core.entry import Claimed
from stagedoor.core.flow import flow_of
from stagedoor.core.job import parse_job
from stagedoor.core.outcome import Done, Settled
from stagedoor.errors import InvalidRequest
from stagedoor.handlers.fulfil_order import fulfil_order
from stagedoor.order import Order
from stagedoor.orders import OrderBook, Rename
from tests.flows.support import Counted, Killed, Worker, World, delivery
from tests.handlers.support import FakeContext, broken, run
from tests.orders.support import order_data

SPEC = flow_of(fulfil_order)
assert SPEC is not None

type Hook = Callable[[Order], None]


class Shop(World):
    """A world whose flow works with an order book; calls are started from entries of outbox rows."""

    def __init__(self, book: OrderBook) -> None:
        super().__init__(fulfil_order)
        self.book = book
        self.context = FakeContext(book)
        self.rows = 0

    def publish(self, order_id: object, *, call_id: str = "") -> str:
        """Start a call, as the entry of an outbox row does; return its id."""
        self.rows += 1
        call_id = call_id or f"outbox-{self.rows}"
        self.start("fulfil-order", call_id, metadata={"order_id": str(order_id)})
        return call_id

    def handle(self, worker: Worker, claimed: Claimed) -> None:
        """Run a pass with the shop's context, and settle it as the worker would."""
        given = attrs.evolve(delivery(worker, claimed.tenure), make_ctx=self._context)
        assert SPEC is not None
        outcome = worker.engine.run_entry(SPEC, parse_job(claimed.entry), given) or Done()
        if not isinstance(outcome, Settled):
            settlement = Settlement(tenure=claimed.tenure, fields=claimed.entry.fields, outcome=outcome)
            worker.deliveries.settle(next(self._batches), [settlement])

    def _context(self, check: Callable[[], None]) -> FakeContext:
        self.context.on_check = check
        return self.context


@pytest.fixture
def shop(book: OrderBook) -> Shop:
    return Shop(book)


def once(deed: Callable[[], object]) -> Hook:
    """Return a hook of the renderer that does something at its first call."""
    left = [deed]

    def hook(_order: Order) -> None:
        if left:
            left.pop()()

    return hook


def test_each_position_gets_its_ticket_and_the_buyer_is_told(shop: Shop, book: OrderBook) -> None:
    order = book.place(order_data(positions=5))
    call_id = shop.publish(order.order_id)
    shop.run()
    assert shop.result(call_id) == '"issued"'
    assert broken(book, order.order_id) == []
    assert sorted(shop.context.rendered) == [(1, position.id) for position in order.positions]
    steps = {"reserve", "render", *(f"render/{number}" for number in range(5)), "commit", "notify"}
    assert shop.show(call_id).steps.keys() == steps
    assert shop.context.log.events[-1] == (
        "order_fulfilled", {"order_id": order.order_id, "version": 1, "tickets": 5},
    )  # fmt: skip


def test_of_two_calls_for_one_version_one_issues_and_the_other_finds_it_done(shop: Shop, book: OrderBook) -> None:
    order = book.place(order_data())
    calls = [shop.publish(order.order_id), shop.publish(order.order_id)]
    shop.run()
    assert sorted(str(shop.result(call_id)) for call_id in calls) == ['"issued"', '"present"']
    assert broken(book, order.order_id) == []


def test_a_refund_while_tickets_are_drawn_leaves_none_valid(shop: Shop, book: OrderBook) -> None:
    order = book.place(order_data(positions=3))

    def refund() -> None:
        book.refund(order.order_id)
        run(book, "refund_order", order.order_id)

    shop.context.on_render = once(refund)
    call_id = shop.publish(order.order_id)
    shop.run()
    assert shop.result(call_id) == '"outdated"'
    assert book.tickets(order.order_id) == ()
    assert broken(book, order.order_id) == []
    assert len(shop.context.rendered) == 1, "the other positions need not be drawn any more"


def test_a_refund_between_the_last_look_and_the_commit_leaves_none_valid(
    shop: Shop, book: OrderBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = book.place(order_data(positions=2))
    commit = book.commit_tickets

    def refund_first(*args: object, **kwargs: object) -> bool:
        book.refund(order.order_id)
        return commit(*args, **kwargs)  # type: ignore[arg-type]  # what the handler has given

    monkeypatch.setattr(book, "commit_tickets", refund_first)
    call_id = shop.publish(order.order_id)
    shop.run()
    assert shop.result(call_id) == '"outdated"'
    assert book.tickets(order.order_id) == ()
    run(book, "refund_order", order.order_id)
    assert broken(book, order.order_id) == []


def test_a_change_while_tickets_are_drawn_is_left_to_its_own_call(shop: Shop, book: OrderBook) -> None:
    order = book.place(order_data(positions=2))
    shop.context.on_render = once(lambda: book.change(order.order_id, Rename(1, "Ada Lovelace")))
    first, second = shop.publish(order.order_id), "outbox-2"
    shop.run()
    assert shop.result(first) == '"outdated"'
    assert book.tickets(order.order_id) == ()
    shop.publish(order.order_id, call_id=second)
    shop.run()
    assert shop.result(second) == '"issued"'
    assert broken(book, order.order_id) == []


def test_a_refunded_order_loses_its_tickets_and_gets_none(shop: Shop, book: OrderBook) -> None:
    order = book.place(order_data())
    run(book, "render_tickets", order.order_id)
    book.refund(order.order_id)
    call_id = shop.publish(order.order_id)
    shop.run()
    assert shop.result(call_id) == '"refunded"'
    assert broken(book, order.order_id) == []


def test_a_file_that_is_gone_before_the_commit_is_drawn_again(
    shop: Shop, book: OrderBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = book.place(order_data(positions=2))
    look = book.issue_state
    drawn: list[str] = []

    def swept_before(seen: Order) -> object:
        drawn.extend(name.path for name in book.store._names(order.order_id))
        for path in drawn:
            book.store.remove(path)
        return look(seen)

    monkeypatch.setattr(book, "issue_state", swept_before)
    call_id = shop.publish(order.order_id)
    shop.run()
    assert len(drawn) == 2
    assert shop.result(call_id) == '"issued"'
    assert broken(book, order.order_id) == []


@pytest.mark.parametrize("order_id", ["", "0", "7 ", "-1", "٣", "1e3", "9223372036854775808", "4711", "9" * 5000])
def test_an_order_that_is_none_ends_the_call_with_its_reason(shop: Shop, order_id: str) -> None:
    call_id = shop.publish(order_id)
    shop.run()
    assert shop.state(call_id) is CallState.FAILED
    assert "order" in shop.error(call_id)
    assert shop.show(call_id).steps["reserve"].attempts == 1


def test_what_can_never_be_drawn_ends_the_call_at_once(shop: Shop, book: OrderBook) -> None:
    order = book.place(order_data())

    def refuse(_order: Order) -> None:
        raise InvalidRequest("locale: there is no such language")

    shop.context.on_render = refuse
    call_id = shop.publish(order.order_id)
    shop.run()
    assert shop.state(call_id) is CallState.FAILED
    assert "no such language" in shop.error(call_id)


def dying(at: int, *, after_effect: bool) -> Callable[[Calls], Counted]:
    return lambda calls: Counted(calls, dies_at=at, after_effect=after_effect)


@pytest.mark.parametrize("after_effect", [False, True])
def test_a_process_that_dies_at_any_call_leaves_an_order_that_the_next_one_finishes(
    shop: Shop, book: OrderBook, after_effect: bool
) -> None:
    # begin, reserve, the gather's beginning, two items, its end, commit, notify, end: nine.
    died = 0
    for at in range(1, 11):
        order = book.place(order_data(positions=2))
        call_id = shop.publish(order.order_id)
        try:
            shop.run(shop.worker(counted=dying(at, after_effect=after_effect)))
        except Killed:
            died += 1
            heir = shop.worker()
            shop.take_over(heir)
            shop.run(heir)
        assert shop.result(call_id) == '"issued"'
        assert broken(book, order.order_id) == []
    assert died == 9
