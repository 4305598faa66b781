"""The commit's decisions, and what the door is told."""

from collections.abc import Callable

import attrs
import pytest

from stagedoor.errors import OrderStateError
from stagedoor.orders import NewTicket, OrderBook, RefundPosition, Rename, RotateToken, Ticket, TicketFileMissing
from stagedoor.orders.parse import parse_order
from stagedoor.orders.rows import placed
from stagedoor.orders.tickets import plan_issue
from tests.orders.support import Clock, issue, order_data, write_tickets

ORDER = placed(parse_order(order_data(positions=2)), 4471)


def new_ticket(position: int, path: str = "p") -> NewTicket:
    return NewTicket(position_id=position, path=path, content_key="k", content_type="application/pdf")


def ticket(position: int, *, version: int = 1, path: str = "p", token: str | None = None, ticket_id: int = 1) -> Ticket:
    return Ticket(
        ticket_id=ticket_id,
        order_id=4471,
        position_id=position,
        order_version=version,
        token=token or ORDER.positions[min(position, 2) - 1].token,
        path=path,
        content_key="k",
        content_type="application/pdf",
        state="valid",
        issued_at=0.0,
        voided_at=None,
        void_reason=None,
    )


def test_a_first_issue_inserts_everything() -> None:
    plan = plan_issue(ORDER, [], [new_ticket(1), new_ticket(2)])
    assert plan.void == ()
    assert [new.position_id for new in plan.insert] == [1, 2]


def test_a_ticket_of_this_version_with_this_file_stays() -> None:
    plan = plan_issue(ORDER, [ticket(1, path="a")], [new_ticket(1, "a"), new_ticket(2, "b")])
    assert plan.void == ()
    assert [new.position_id for new in plan.insert] == [2]


def test_each_void_has_its_reason() -> None:
    later = attrs.evolve(ORDER, version=2)
    valid = [ticket(1, ticket_id=11), ticket(2, ticket_id=12, token="OLD"), ticket(3, ticket_id=13)]
    plan = plan_issue(later, valid, [new_ticket(1), new_ticket(2)])
    assert plan.void == ((11, "superseded"), (12, "token rotated"), (13, "position refunded"))
    assert len(plan.insert) == 2
    lost = plan_issue(ORDER, [ticket(1, path="old", ticket_id=14)], [new_ticket(1, "new"), new_ticket(2)])
    assert lost.void == ((14, "file lost"),)


@pytest.mark.parametrize("numbers", [[], [1], [1, 2, 3], [1, 1], [1, 2, 2], [2, 3]])
def test_files_must_be_one_for_each_placed_position(numbers: list[int]) -> None:
    with pytest.raises(ValueError, match=r"one file for each of the positions \[1, 2\]"):
        plan_issue(ORDER, [], [new_ticket(number) for number in numbers])


def test_a_commit_issues_once(book: OrderBook, clock: Clock) -> None:
    order = book.place(order_data(positions=2))
    assert not book.is_issued(order)
    files = write_tickets(book, order)
    assert book.commit_tickets(order, files)
    assert not book.commit_tickets(order, files)
    assert book.is_issued(order)
    first = book.tickets(order.order_id)[0]
    assert (first.order_id, first.position_id, first.order_version) == (order.order_id, 1, 1)
    assert (first.state, first.issued_at, first.voided_at, first.void_reason) == ("valid", clock.now, None, None)
    assert first.token == order.positions[0].token
    assert (first.path, first.content_key, first.content_type) == (files[0].path, "k1", "application/pdf")


@pytest.mark.parametrize(
    "action",
    [lambda book, key: book.refund(key), lambda book, key: book.reissue(key)],
    ids=["refunded", "changed"],
)
@pytest.mark.parametrize("replace", [False, True])
def test_a_commit_of_what_is_no_longer_so_is_refused(
    action: Callable[[OrderBook, int], object], replace: bool, book: OrderBook
) -> None:
    order = book.place(order_data())
    files = write_tickets(book, order)
    action(book, order.order_id)
    assert not book.commit_tickets(order, files, replace=replace)
    assert book.tickets(order.order_id) == ()


def test_a_commit_for_an_order_that_is_not_there_is_refused(book: OrderBook) -> None:
    assert not book.commit_tickets(ORDER, [new_ticket(1), new_ticket(2)])


def test_a_commit_without_its_files_writes_nothing(book: OrderBook) -> None:
    order = book.place(order_data(positions=2))
    files = write_tickets(book, order)
    book.store.remove(files[1].path)
    with pytest.raises(TicketFileMissing, match=r"one of 1\) was written and is gone"):
        book.commit_tickets(order, files)
    with pytest.raises(ValueError, match="one file for each"):
        book.commit_tickets(order, files[:1])
    assert book.tickets(order.order_id) == ()
    assert book.issue_state(order) == "due"


def test_a_refund_voids_once(book: OrderBook, clock: Clock) -> None:
    order = book.place(order_data(positions=2))
    issue(book, order)
    assert book.void_refunded(order.order_id) == (), "it is not refunded"
    book.refund(order.order_id)
    clock.now += 7
    voided = book.void_refunded(order.order_id)
    assert voided == book.tickets(order.order_id)
    assert {(t.state, t.voided_at, t.void_reason) for t in voided} == {("void", clock.now, "order refunded")}
    clock.now += 7
    assert book.void_refunded(order.order_id) == ()
    assert book.tickets(order.order_id) == voided
    assert book.void_refunded(4471) == ()


# -- the door -----------------------------------------------------------------


def test_the_door_knows_valid_tickets(book: OrderBook) -> None:
    order = book.place(order_data(positions=2))
    issue(book, order)
    state = book.check_token(f" {order.positions[1].token.lower()}\n")
    assert (state.state, state.order_id, state.position_id, state.holder, state.reason) == (
        "valid",
        order.order_id,
        2,
        "Holder 2",
        None,
    )


@pytest.mark.parametrize("token", ["", " ", "A" * 26, "A" * 10_000, "ÄÖÜ", "\0", "' OR 1=1 --", "A-B"])
def test_the_door_does_not_know_strange_tokens(token: str, book: OrderBook) -> None:
    assert book.check_token(token).state == "unknown"


def test_a_token_whose_ticket_is_not_issued_yet_is_unknown_at_the_door(book: OrderBook) -> None:
    order = book.place(order_data())
    state = book.check_token(order.positions[0].token)
    assert (state.state, state.order_id, state.reason) == (
        "unknown",
        order.order_id,
        "its ticket has not been issued yet",
    )


def test_a_refund_closes_the_door_before_its_handler_has_run(book: OrderBook) -> None:
    order = book.place(order_data())
    issue(book, order)
    book.refund(order.order_id)
    assert book.tickets(order.order_id)[0].state == "valid"
    state = book.check_token(order.positions[0].token)
    assert (state.state, state.reason) == ("void", "order refunded")
    book.void_refunded(order.order_id)
    assert book.check_token(order.positions[0].token).reason == "order refunded"


def test_a_refunded_position_closes_the_door_before_its_handler_has_run(book: OrderBook) -> None:
    order = book.place(order_data(positions=2))
    issue(book, order)
    book.change(order.order_id, RefundPosition(1))
    assert book.check_token(order.positions[0].token).reason == "position refunded"
    assert book.check_token(order.positions[1].token).state == "valid"


def test_a_rotated_token_closes_the_door_before_its_handler_has_run(book: OrderBook) -> None:
    order = book.place(order_data())
    issue(book, order)
    after = book.change(order.order_id, RotateToken(1))
    old, new = order.positions[0].token, after.positions[0].token
    assert (book.check_token(old).state, book.check_token(new).state) == ("void", "unknown")
    issue(book, after)
    assert (book.check_token(old).reason, book.check_token(new).state) == ("token rotated", "valid")


def test_a_renamed_ticket_stays_valid_under_its_token(book: OrderBook) -> None:
    order = book.place(order_data())
    issue(book, order)
    after = book.change(order.order_id, Rename(1, "Ada"))
    assert book.check_token(order.positions[0].token).state == "valid"
    issue(book, after)
    state = book.check_token(order.positions[0].token)
    assert (state.state, state.holder) == ("valid", "Ada")


def test_an_order_with_an_unknown_position_is_not_changed(book: OrderBook) -> None:
    with pytest.raises(OrderStateError, match="has no position 9"):
        book.change(book.place(order_data()).order_id, RotateToken(9))
