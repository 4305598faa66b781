"""What the two handlers do, one step after the other."""

import pytest

from stagedoor.core.handler import spec_of
from stagedoor.errors import InvalidRequest, LeaseLost, Permanent
from stagedoor.handlers.refund_order import refund_order
from stagedoor.handlers.render_tickets import render_tickets
from stagedoor.order import Order
from stagedoor.orders import OrderBook, RefundPosition, Rename, Reseat, RotateToken, TicketFileMissing
from stagedoor.orders.changes import Change
from tests.handlers.support import FakeContext, FakeJob, broken, run
from tests.orders.support import order_data

RENDER = "render_tickets"
REFUND = "refund_order"


def render(book: OrderBook, order_id: int, context: FakeContext) -> None:
    render_tickets(FakeJob(kind=RENDER, order_id=order_id), context)


def states(book: OrderBook, order_id: int) -> list[tuple[int, int, str, str | None]]:
    return [(t.position_id, t.order_version, t.state, t.void_reason) for t in book.tickets(order_id)]


def test_the_handlers_are_registered_for_their_kinds() -> None:
    assert [spec.kind for f in (render_tickets, refund_order) if (spec := spec_of(f))] == [RENDER, REFUND]


def test_each_position_gets_its_own_ticket(book: OrderBook) -> None:
    order = book.place(order_data(positions=3))
    context = run(book, RENDER, order.order_id)
    tickets = book.tickets(order.order_id)
    assert [ticket.position_id for ticket in tickets] == [1, 2, 3]
    assert [ticket.token for ticket in tickets] == [position.token for position in order.positions]
    assert len({book.store.read(ticket.path) for ticket in tickets}) == 3
    assert broken(book, order.order_id) == []
    size = sum(len(book.store.read(ticket.path)) for ticket in tickets)
    said = {"order_id": order.order_id, "version": 1, "tickets": 3, "bytes": size}
    assert context.log.events == [("tickets_issued", said)]


def test_what_could_not_be_drawn_is_told_to_whoever_runs_the_shop(book: OrderBook) -> None:
    order = book.place(order_data(positions=1))
    context = FakeContext(book, notes=("holder: 1 replaced by a mark",))
    render_tickets(FakeJob(kind=RENDER, order_id=order.order_id), context)
    assert context.log.events[0] == (
        "ticket_incomplete",
        {"order_id": order.order_id, "position_id": 1, "notes": "holder: 1 replaced by a mark"},
    )
    assert broken(book, order.order_id) == []


def test_a_second_delivery_renders_nothing(book: OrderBook) -> None:
    order = book.place(order_data())
    run(book, RENDER, order.order_id)
    before = book.tickets(order.order_id)
    assert run(book, RENDER, order.order_id).rendered == []
    assert book.tickets(order.order_id) == before


def test_a_refunded_order_gets_no_ticket(book: OrderBook) -> None:
    order = book.place(order_data())
    book.refund(order.order_id)
    assert run(book, RENDER, order.order_id).rendered == []
    run(book, REFUND, order.order_id)
    assert book.tickets(order.order_id) == ()


def test_the_render_job_of_a_refunded_order_withdraws_its_tickets(book: OrderBook) -> None:
    """The refund's own job may come later, or may have been given up."""
    order = book.place(order_data())
    run(book, RENDER, order.order_id)
    book.refund(order.order_id)
    run(book, RENDER, order.order_id)
    assert states(book, order.order_id) == [(1, 1, "void", "order refunded")]
    assert broken(book, order.order_id) == []


def test_a_refund_voids_every_ticket_and_removes_its_file(book: OrderBook) -> None:
    order = book.place(order_data(positions=2))
    run(book, RENDER, order.order_id)
    book.refund(order.order_id)
    context = run(book, REFUND, order.order_id)
    assert states(book, order.order_id) == [(1, 1, "void", "order refunded"), (2, 1, "void", "order refunded")]
    assert list(book.store.files()) == []
    assert context.log.events[0][1]["tickets"] == 2


def test_the_refund_handler_leaves_an_order_alone_that_is_not_refunded(book: OrderBook) -> None:
    order = book.place(order_data())
    run(book, RENDER, order.order_id)
    before = book.tickets(order.order_id)
    run(book, REFUND, order.order_id)
    assert book.void_refunded(order.order_id) == ()
    assert book.tickets(order.order_id) == before
    assert broken(book, order.order_id) == []


def test_a_change_replaces_the_tickets_and_says_why(book: OrderBook) -> None:
    order = book.place(order_data(positions=3))
    run(book, RENDER, order.order_id)
    book.change(order.order_id, Rename(1, "Ada"), RotateToken(2), RefundPosition(3))
    run(book, RENDER, order.order_id)
    assert states(book, order.order_id) == [
        (1, 1, "void", "superseded"),
        (2, 1, "void", "token rotated"),
        (3, 1, "void", "position refunded"),
        (1, 2, "valid", None),
        (2, 2, "valid", None),
    ]
    assert len(list(book.store.files())) == 2
    assert broken(book, order.order_id) == []


def numbers_of(book: OrderBook, order_id: int) -> dict[int, int]:
    """The number of the file system's file behind each valid ticket."""
    valid = [ticket for ticket in book.tickets(order_id) if ticket.state == "valid"]
    return {ticket.position_id: book.store.file(ticket.path).stat().st_ino for ticket in valid}


@pytest.mark.parametrize("change", [RotateToken(2), Rename(2, "Ada"), Reseat(2, None)])
def test_a_change_of_one_position_draws_one_ticket_and_carries_the_others_over(change: Change, book: OrderBook) -> None:
    order = book.place(order_data(positions=4))
    run(book, RENDER, order.order_id)
    before = numbers_of(book, order.order_id)
    book.change(order.order_id, change)
    context = run(book, RENDER, order.order_id)
    assert context.rendered == [(2, 2)]
    said = context.log.events[-1][1]
    (drawn,) = (one for one in book.tickets(order.order_id) if one.state == "valid" and one.position_id == 2)
    size = len(book.store.read(drawn.path))
    assert said == {"order_id": order.order_id, "version": 2, "tickets": 4, "carried": 3, "bytes": size}
    after = numbers_of(book, order.order_id)
    assert {number for number in before if before[number] == after[number]} == {1, 3, 4}
    assert broken(book, order.order_id) == []


def test_a_reissue_draws_every_ticket_again(book: OrderBook) -> None:
    """It is what helps where a file is there and is not what it should be."""
    order = book.place(order_data(positions=2))
    run(book, RENDER, order.order_id)
    [first, _] = book.tickets(order.order_id)
    book.store.file(first.path).write_bytes(b"no ticket")
    book.reissue(order.order_id)
    assert run(book, RENDER, order.order_id).rendered == [(2, 1), (2, 2)]
    assert broken(book, order.order_id) == []


def test_a_ticket_is_drawn_when_its_earlier_file_is_lost_or_of_another_renderer(book: OrderBook) -> None:
    order = book.place(order_data(positions=3))
    run(book, RENDER, order.order_id)
    book.store.remove(book.tickets(order.order_id)[2].path)
    book.change(order.order_id, RotateToken(1))
    assert run(book, RENDER, order.order_id).rendered == [(2, 1), (2, 3)]
    book.change(order.order_id, RotateToken(1))
    context = FakeContext(book, build="2")
    render(book, order.order_id, context)
    assert context.rendered == [(3, 1), (3, 2), (3, 3)]


def test_an_order_whose_positions_are_all_refunded_keeps_no_ticket(book: OrderBook) -> None:
    order = book.place(order_data(positions=2))
    run(book, RENDER, order.order_id)
    book.change(order.order_id, RefundPosition(1), RefundPosition(2))
    run(book, RENDER, order.order_id)
    assert {ticket.state for ticket in book.tickets(order.order_id)} == {"void"}
    assert broken(book, order.order_id) == []
    assert run(book, RENDER, order.order_id).log.events[0][0] == "tickets_present"


def test_what_a_crashed_attempt_wrote_is_used(book: OrderBook) -> None:
    order = book.place(order_data(positions=3))

    def lose_the_lease() -> None:
        if len(context.rendered) == 2:
            raise LeaseLost("somebody else has it")

    context = FakeContext(book, on_check=lose_the_lease)
    with pytest.raises(LeaseLost):
        render(book, order.order_id, context)
    assert book.tickets(order.order_id) == ()
    assert len(list(book.store.files())) == 2
    assert run(book, RENDER, order.order_id).rendered == [(1, 3)]
    assert broken(book, order.order_id) == []


def test_a_lease_that_is_lost_before_the_commit_publishes_nothing(book: OrderBook) -> None:
    order = book.place(order_data())

    def lose_the_lease() -> None:
        if context.rendered:
            raise LeaseLost("somebody else has it")

    context = FakeContext(book, on_check=lose_the_lease)
    with pytest.raises(LeaseLost):
        render(book, order.order_id, context)
    assert book.tickets(order.order_id) == ()


def test_a_refund_while_rendering_publishes_nothing_and_leaves_no_file(book: OrderBook) -> None:
    order = book.place(order_data(positions=2))

    def refund(seen: Order) -> None:
        if book.get(seen.order_id).status == "placed":
            book.refund(seen.order_id)

    context = FakeContext(book, on_render=refund)
    render(book, order.order_id, context)
    assert book.tickets(order.order_id) == ()
    assert list(book.store.files()) == []
    assert context.log.events[-1][0] == "tickets_outdated"


def test_a_lost_file_is_written_again_under_its_name(book: OrderBook) -> None:
    order = book.place(order_data(positions=2))
    run(book, RENDER, order.order_id)
    before = book.tickets(order.order_id)
    content = book.store.read(before[0].path)
    book.store.remove(before[0].path)
    assert not book.is_issued(order)
    assert run(book, RENDER, order.order_id).rendered == [(1, 1)]
    assert book.tickets(order.order_id) == before
    assert book.store.read(before[0].path) == content


def test_an_empty_file_counts_as_lost(book: OrderBook) -> None:
    order = book.place(order_data())
    run(book, RENDER, order.order_id)
    [ticket] = book.tickets(order.order_id)
    book.store.file(ticket.path).write_bytes(b"")
    assert book.check_invariant([order.order_id]).lost
    run(book, RENDER, order.order_id)
    assert broken(book, order.order_id) == []


def test_a_lost_file_is_replaced_when_the_renderer_has_changed_since(book: OrderBook) -> None:
    order = book.place(order_data())
    run(book, RENDER, order.order_id)
    book.store.remove(book.tickets(order.order_id)[0].path)
    render(book, order.order_id, FakeContext(book, build="2"))
    assert states(book, order.order_id) == [(1, 1, "void", "file lost"), (1, 1, "valid", None)]
    assert book.check_invariant().is_sound


def test_two_renderer_versions_at_work_do_not_remove_each_others_files(book: OrderBook) -> None:
    """While hosts are updated one after the other, both may render the same version of an order."""
    order = book.place(order_data())

    def other_host(_: Order) -> None:
        render(book, order.order_id, FakeContext(book, build="2"))

    render(book, order.order_id, FakeContext(book, on_render=other_host))
    assert [state for _, _, state, _ in states(book, order.order_id)] == ["valid"]
    assert book.check_invariant([order.order_id]).is_sound


def test_a_file_that_vanishes_before_the_commit_is_not_committed(book: OrderBook) -> None:
    order = book.place(order_data())

    def remove_all() -> None:
        for path in list(book.store.files()):
            book.store.remove(path)

    with pytest.raises(TicketFileMissing, match="was written and is gone"):
        render(book, order.order_id, FakeContext(book, on_check=remove_all))
    assert book.tickets(order.order_id) == ()
    assert book.issue_state(order) == "due"
    run(book, RENDER, order.order_id)
    assert broken(book, order.order_id) == []


@pytest.mark.parametrize("kind", [RENDER, REFUND])
def test_a_job_without_its_order_is_permanent(kind: str, book: OrderBook) -> None:
    with pytest.raises(Permanent, match="there is no order 4471"):
        run(book, kind, 4471)


@pytest.mark.parametrize("function", [render_tickets, refund_order])
def test_a_job_that_names_no_order_is_permanent(function: object, book: OrderBook) -> None:
    assert callable(function)
    with pytest.raises(Permanent, match="names no order"):
        function(FakeJob(kind="x", order_id=None), FakeContext(book))


def test_an_order_that_can_never_be_drawn_is_permanent(book: OrderBook) -> None:
    order = book.place(order_data())

    def refuse(_: Order) -> None:
        raise InvalidRequest("positions[0].holder: cannot be drawn")

    with pytest.raises(Permanent, match=r"positions\[0\]\.holder"):
        render(book, order.order_id, FakeContext(book, on_render=refuse))


def test_an_order_of_500_positions_is_one_commit(book: OrderBook) -> None:
    order = book.place(order_data(positions=500))
    run(book, RENDER, order.order_id)
    book.reissue(order.order_id)
    run(book, RENDER, order.order_id)
    assert book.summary().tickets_valid == 500
    assert book.summary().tickets_void == 500
    assert broken(book, order.order_id) == []
