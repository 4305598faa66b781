"""Long random histories of several orders, on the real order book, against what a shop would expect.

The searched model is small; this one is wide: three workers, several orders of
several positions, every kind of change, jobs delivered twice, workers that crash
anywhere, files that are deleted. Whenever all owed jobs have been handled, the
book must be as the shop's own notes say.
"""

import contextlib
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from stagedoor.errors import OrderStateError
from stagedoor.orders import OrderBook, RefundPosition, Rename, Reseat, RotateToken
from tests.handlers.support import Actor, Crash, Pause, Script, broken, delivery, run
from tests.orders.support import fast_folder, order_data

WORKERS = 3


@attrs.define
class Notes:
    """What the shop knows of an order of its own."""

    holders: dict[int, str]
    version: int = 1
    is_refunded: bool = False


@attrs.define
class Delivery:
    """A job that a worker has in hand."""

    kind: str
    order_id: int
    actor: Actor
    crashed: list[bool] = attrs.Factory(list)


class Histories(RuleBasedStateMachine):
    """Shop, outbox and workers; the order book is real."""

    def __init__(self) -> None:
        super().__init__()
        self._exit = contextlib.ExitStack()
        folder = self._exit.enter_context(fast_folder())
        self.book = self._exit.enter_context(OrderBook.open(f"sqlite:///{folder}/book.db", tickets_dir=folder))
        self.notes: dict[int, Notes] = {}
        self.owed: list[tuple[str, int]] = []
        self.workers: dict[int, Delivery] = {}

    def teardown(self) -> None:
        try:
            self.come_to_rest()
        finally:
            self._exit.close()

    # -- the shop -------------------------------------------------------------

    @precondition(lambda self: len(self.notes) < 4)
    @rule(positions=st.integers(1, 3))
    def place(self, positions: int) -> None:
        order = self.book.place(order_data(positions=positions))
        self.notes[order.order_id] = Notes({position.id: position.holder for position in order.positions})
        self.take_outbox()

    @precondition(lambda self: self.notes)
    @rule(data=st.data(), what=st.sampled_from(["rename", "reseat", "rotate", "refund one", "reissue", "refund"]))
    def act(self, data: st.DataObject, what: str) -> None:
        order_id = data.draw(st.sampled_from(sorted(self.notes)))
        notes = self.notes[order_id]
        position = data.draw(st.integers(1, 3))
        try:
            self.change(order_id, what, position)
        except OrderStateError:
            assert notes.is_refunded or position not in notes.holders
            return
        notes.version += 1
        assert self.book.get(order_id).version == notes.version
        if what == "refund":
            notes.is_refunded = True
        elif what == "refund one":
            del notes.holders[position]
        elif what == "rename":
            notes.holders[position] = f"Holder at {notes.version}"
        self.take_outbox()

    def change(self, order_id: int, what: str, position: int) -> None:
        changes: dict[str, Any] = {
            "rename": Rename(position, f"Holder at {self.notes[order_id].version + 1}"),
            "reseat": Reseat(position, None),
            "rotate": RotateToken(position),
            "refund one": RefundPosition(position),
        }
        if what == "refund":
            self.book.refund(order_id)
        elif what == "reissue":
            self.book.reissue(order_id)
        else:
            self.book.change(order_id, changes[what])

    def take_outbox(self) -> None:
        rows = self.book.outbox.pending()
        assert len(rows) == 1, "each thing that a shop does writes one row"
        self.owed += [(row.kind, row.order_id) for row in rows]
        self.book.outbox.mark_published((row.outbox_id, "1-1", row.outbox_id) for row in rows)

    # -- the workers ----------------------------------------------------------

    @precondition(lambda self: self.owed and len(self.workers) < WORKERS)
    @rule(data=st.data(), twice=st.booleans())
    def deliver(self, data: st.DataObject, twice: bool) -> None:
        index = data.draw(st.integers(0, len(self.owed) - 1))
        kind, order_id = self.owed[index] if twice else self.owed.pop(index)
        crashed: list[bool] = []
        actor = Actor(_mortal(delivery(self.book, kind, order_id), crashed))
        self.workers[min(set(range(WORKERS)) - set(self.workers))] = Delivery(kind, order_id, actor, crashed)
        self.drop_finished()

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), steps=st.integers(1, 4))
    def step(self, data: st.DataObject, steps: int) -> None:
        actor = self.workers[data.draw(st.sampled_from(sorted(self.workers)))].actor
        for _ in range(steps):
            if actor.at is not None:
                actor.step()
        self.drop_finished()

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        worker = self.workers.pop(data.draw(st.sampled_from(sorted(self.workers))))
        worker.crashed.append(True)
        worker.actor.step()
        self.owed.append((worker.kind, worker.order_id))

    @precondition(lambda self: self.notes)
    @rule(data=st.data())
    def lose_a_file(self, data: st.DataObject) -> None:
        """Delete a ticket's file; whoever notices asks for the order to be looked at again."""
        order_id = data.draw(st.sampled_from(sorted(self.notes)))
        valid = [ticket for ticket in self.book.tickets(order_id) if ticket.state == "valid"]
        # A worker that is between its write and its commit would find it missing and run again; that has its own test.
        if valid and not self.workers:
            self.book.store.remove(valid[0].path)
            self.owed.append(("render_tickets", order_id))

    @precondition(lambda self: self.notes)
    @rule()
    def come_to_rest(self) -> None:
        """Handle all that is owed, and look."""
        for index in sorted(self.workers):
            while self.workers[index].actor.at is not None:
                self.workers[index].actor.step()
        self.workers.clear()
        while self.owed:
            run(self.book, *self.owed.pop())
        for order_id, notes in self.notes.items():
            assert broken(self.book, order_id) == []
            valid = [ticket for ticket in self.book.tickets(order_id) if ticket.state == "valid"]
            expected = {} if notes.is_refunded else notes.holders
            assert sorted(ticket.position_id for ticket in valid) == sorted(expected)
            assert {self.book.check_token(ticket.token).holder for ticket in valid} <= set(expected.values())
        assert self.book.check_invariant().is_sound

    def drop_finished(self) -> None:
        for index in [index for index, worker in self.workers.items() if worker.actor.at is None]:
            del self.workers[index]


def _mortal(script: Script, crashed: list[bool]) -> Script:
    """Return the script of a worker that dies at its next step once *crashed* says so."""

    def dies(pause: Pause) -> None:
        def live_on(name: str) -> None:
            pause(name)
            if crashed:
                raise Crash

        with contextlib.suppress(Crash):
            script(live_on)

    return dies


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=12, stateful_step_count=40)
