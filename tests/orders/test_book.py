"""What a shop does to orders, on SQLite and on PostgreSQL."""

import re
import threading
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from stagedoor.errors import InvalidOrder, OrderNotFound, OrderStateError
from stagedoor.order import Seat
from stagedoor.orders import OrderBook, RefundPosition, Rename, Reseat, RotateToken
from tests.orders.support import Clock, issue, order_data, position_data


def kinds(book: OrderBook) -> list[tuple[str, int]]:
    return [(row.kind, row.order_id) for row in book.outbox.pending()]


def test_an_order_is_read_as_it_was_placed(book: OrderBook) -> None:
    placed = book.place(order_data(positions=3, receipt_number="R-1", taxes=[{"label": "7 %", "amount_minor": 294}]))
    assert book.get(placed.order_id) == placed
    assert placed.version == 1
    assert placed.status == "placed"
    assert [position.id for position in placed.positions] == [1, 2, 3]
    assert placed.positions[0].seat == Seat(row="C", number="1")


def test_tokens_are_26_characters_and_all_different(book: OrderBook) -> None:
    tokens = [position.token for position in book.place(order_data(positions=500)).positions]
    assert len(set(tokens)) == 500
    assert all(re.fullmatch(r"[A-Z2-7]{26}", token) for token in tokens)
    # Each place takes each of 32 letters: 500 tokens miss one at a given place once in 7 million.
    assert {len({token[place] for token in tokens}) for place in range(26)} == {32}


def test_positions_keep_their_sequence(book: OrderBook) -> None:
    data = order_data(positions=[position_data(number) for number in (30, 10, 20)])
    assert [position.id for position in book.get(book.place(data).order_id).positions] == [30, 10, 20]


def test_placing_writes_an_outbox_row_with_its_labels(book: OrderBook) -> None:
    order = book.place(order_data(), request_id="7f3a9c2e", trace="4bf92f35")
    [row] = book.outbox.pending()
    assert (row.kind, row.order_id, row.request_id, row.trace) == (
        "render_tickets",
        order.order_id,
        "7f3a9c2e",
        "4bf92f35",
    )


def test_a_refused_order_leaves_nothing_behind(book: OrderBook) -> None:
    with pytest.raises(InvalidOrder, match="currency"):
        book.place(order_data(currency="euro"))
    with pytest.raises(InvalidOrder, match="request_id"):
        book.place(order_data(), request_id="two\nlines")
    assert book.summary().orders_placed == 0
    assert kinds(book) == []


def test_an_id_that_the_shop_chose_is_kept_and_taken_once(book: OrderBook) -> None:
    assert book.place(order_data(order_id=4471)).order_id == 4471
    with pytest.raises(OrderStateError, match="4471"):
        book.place(order_data(order_id=4471))
    assert kinds(book) == [("render_tickets", 4471)]


def test_chosen_and_given_ids_do_not_meet(book: OrderBook) -> None:
    for order_id in (1, 2, 3, 7):
        book.place(order_data(order_id=order_id))
    given = [book.place(order_data()).order_id for _ in range(8)]
    mixed = book.place_many([order_data(order_id=50), order_data(), order_data(order_id=51), order_data()])
    assert mixed[0] == 50
    assert mixed[2] == 51
    assert len({1, 2, 3, 7, *given, *mixed}) == 16


def test_the_largest_id_is_kept(book: OrderBook) -> None:
    order = book.place(order_data(order_id=2**63 - 1, positions=[position_data(2**63 - 1, amount_minor=2**63 - 1)]))
    assert book.get(2**63 - 1) == order
    assert issue(book, order)
    assert book.check_invariant().is_sound


def test_place_many_answers_in_the_same_sequence(book: OrderBook) -> None:
    data = [order_data(buyer=f"Buyer {number}") for number in range(1_100)]
    ids = book.place_many(data)
    assert [book.get(ids[index]).buyer for index in (0, 499, 500, 1_099)] == [
        "Buyer 0",
        "Buyer 499",
        "Buyer 500",
        "Buyer 1099",
    ]
    assert book.outbox.backlog().waiting == 1_100


def test_place_many_names_the_order_that_will_not_do_and_keeps_whole_batches(book: OrderBook) -> None:
    data = [order_data() for _ in range(600)] + [order_data(currency="?")]
    with pytest.raises(InvalidOrder, match="order 601 of the sequence: currency"):
        book.place_many(data)
    assert book.summary().orders_placed == 500
    with pytest.raises(OrderStateError, match="9 is given more than once"):
        book.place_many([order_data(order_id=9), order_data(order_id=9)])
    assert book.outbox.backlog().waiting == 500


def test_a_refund_raises_the_version_and_owes_a_job(book: OrderBook, clock: Clock) -> None:
    order = book.place(order_data())
    clock.now += 60
    refunded = book.refund(order.order_id, request_id="r")
    assert (refunded.status, refunded.version, refunded.placed_positions) == ("refunded", 2, ())
    assert book.get(order.order_id) == refunded
    assert kinds(book) == [("render_tickets", order.order_id), ("refund_order", order.order_id)]


def test_a_refunded_order_is_not_changed_again(book: OrderBook) -> None:
    order_id = book.place(order_data()).order_id
    book.refund(order_id)
    actions: list[Callable[[], object]] = [
        lambda: book.refund(order_id),
        lambda: book.change(order_id, Rename(1, "Ada")),
        lambda: book.reissue(order_id),
    ]
    for action in actions:
        with pytest.raises(OrderStateError, match="refunded already"):
            action()
    assert len(kinds(book)) == 2
    assert book.get(order_id).version == 2


@pytest.mark.parametrize("order_id", [1, 10**18, 2**63, 2**70, 0, -1, "1", None, 1.0])
def test_an_unknown_order_is_not_found(book: OrderBook, order_id: int) -> None:
    with pytest.raises(OrderNotFound):
        book.get(order_id)
    with pytest.raises(OrderNotFound):
        book.refund(order_id)
    with pytest.raises(OrderNotFound):
        book.reissue(order_id)
    with pytest.raises(OrderNotFound):
        book.change(order_id, RotateToken(1))
    assert kinds(book) == []


def test_a_change_touches_only_what_it_names(book: OrderBook) -> None:
    before = book.place(order_data(positions=3))
    after = book.change(before.order_id, Rename(2, "Ada Lovelace"), Reseat(3, Seat(row="D", number="1")))
    assert book.get(before.order_id) == after
    assert after.version == 2
    assert after.positions[0] == before.positions[0]
    assert (after.positions[1].holder, after.positions[1].version) == ("Ada Lovelace", 2)
    assert after.positions[1].token == before.positions[1].token
    assert after.positions[2].seat == Seat(row="D", number="1")
    assert kinds(book)[-1] == ("render_tickets", before.order_id)


def test_a_seat_can_be_taken_away(book: OrderBook) -> None:
    order = book.place(order_data())
    assert book.change(order.order_id, Reseat(1, None)).positions[0].seat is None
    assert book.get(order.order_id).positions[0].seat is None


def test_a_rotated_token_is_new(book: OrderBook) -> None:
    before = book.place(order_data(positions=2))
    after = book.change(before.order_id, RotateToken(1))
    assert after.positions[0].token != before.positions[0].token
    assert after.positions[1].token == before.positions[1].token


def test_a_refunded_position_takes_its_addons_with_it(book: OrderBook) -> None:
    data = order_data(positions=[position_data(1), position_data(2, addon_to=1), position_data(3)])
    after = book.change(book.place(data).order_id, RefundPosition(1))
    assert [position.id for position in after.placed_positions] == [3]
    assert after.status == "placed"
    with pytest.raises(OrderStateError, match="position 2 of order 1 is refunded already"):
        book.change(after.order_id, Rename(2, "Ada"))


def test_a_change_that_fails_half_way_changes_nothing(book: OrderBook) -> None:
    order = book.place(order_data(positions=2))
    for second in (Rename(9, "Nobody"), Rename(2, "\ud800"), Rename(2, "x" * 501), Reseat(2, Seat(row="\0"))):
        with pytest.raises((OrderStateError, InvalidOrder)):
            book.change(order.order_id, Rename(1, "Ada"), second)
    with pytest.raises(ValueError, match="at least one change"):
        book.change(order.order_id)
    assert book.get(order.order_id) == order
    assert len(kinds(book)) == 1


def test_changes_in_one_call_build_on_each_other(book: OrderBook) -> None:
    order = book.place(order_data())
    assert book.change(order.order_id, Rename(1, "A"), Rename(1, "B")).positions[0].holder == "B"
    with pytest.raises(OrderStateError, match="refunded already"):
        book.change(order.order_id, RefundPosition(1), Rename(1, "C"))


def test_a_reissue_raises_the_version_and_keeps_the_tokens(book: OrderBook) -> None:
    order = book.place(order_data())
    again = book.reissue(order.order_id)
    assert again.version == 2
    assert [position.token for position in again.positions] == [position.token for position in order.positions]
    assert {position.version for position in again.positions} == {2}, "each is to be drawn again"
    assert len(kinds(book)) == 2


def test_many_threads_lose_no_change(book: OrderBook) -> None:
    order = book.place(order_data(positions=8))
    errors: list[Exception] = []
    versions: list[int] = []

    def rename(position: int) -> None:
        try:
            names = [f"{position}-{turn}" for turn in range(5)]
            versions.extend([book.change(order.order_id, Rename(position, name)).version for name in names])
        except Exception as error:  # noqa: BLE001 - shown below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=rename, args=(position,)) for position in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(versions) == list(range(2, 42)), "each change saw the one before it"
    after = book.get(order.order_id)
    assert after.version == 41
    assert max(position.version for position in after.positions) == 41
    assert [position.holder for position in after.positions] == [f"{number}-4" for number in range(1, 9)]
    assert book.outbox.backlog().waiting == 41


def test_the_summary_counts_orders_and_tickets(book: OrderBook) -> None:
    orders = [book.place(order_data(positions=2)) for _ in range(3)]
    assert all(issue(book, order) for order in orders)
    book.refund(orders[0].order_id)
    book.void_refunded(orders[0].order_id)
    summary = book.summary()
    assert (summary.orders_placed, summary.orders_refunded, summary.tickets_valid, summary.tickets_void) == (2, 1, 4, 2)


def test_an_order_is_read_in_one_statement(book: OrderBook) -> None:
    """Two would see two states on PostgreSQL: an order with the positions of its next version."""
    order = book.place(order_data(positions=3))
    statements: list[str] = []
    sa.event.listen(book._database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    book.get(order.order_id)
    assert [statement.split()[0] for statement in statements if not statement.startswith("BEGIN")] == ["SELECT"]


class OutboxFails(RuntimeError):
    """What the database raises in the next test."""


ACTIONS: dict[str, Callable[[OrderBook], object]] = {
    "place": lambda book: book.place(order_data(order_id=7)),
    "place_many": lambda book: book.place_many([order_data(order_id=7), order_data(order_id=8)]),
    "refund": lambda book: book.refund(1),
    "change": lambda book: book.change(1, Rename(1, "Ada"), RotateToken(2)),
    "reissue": lambda book: book.reissue(1),
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_without_its_outbox_row_nothing_is_done(action: Callable[[OrderBook], object], book: OrderBook) -> None:
    before = book.place(order_data(order_id=1, positions=2))

    def fail(*arguments: object) -> None:
        if str(arguments[2]).startswith("INSERT INTO outbox"):
            raise OutboxFails

    sa.event.listen(book._database.engine, "before_cursor_execute", fail)
    with pytest.raises(OutboxFails):
        action(book)
    assert book.get(1) == before
    assert book.summary().orders_placed == 1
    assert book.outbox.backlog().waiting == 1


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_what_a_shop_does_is_one_transaction(action: Callable[[OrderBook], object], book: OrderBook) -> None:
    book.place(order_data(order_id=1, positions=2))
    commits: list[object] = []
    sa.event.listen(book._database.engine, "commit", commits.append)
    action(book)
    assert len(commits) == 1
