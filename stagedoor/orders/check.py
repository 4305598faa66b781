"""The invariant at rest: every order against what its tickets must be.

Each placed position of a placed order has exactly one valid ticket, of the
current version, its file readable; every other ticket is void. "At rest" means
that nothing is waiting in the outbox or in the stream: before that, *lost* also
lists what is merely not done yet.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from stagedoor.order import Order
from stagedoor.orders.engine import Database
from stagedoor.orders.rows import select_order, to_orders
from stagedoor.orders.schema import orders, tickets
from stagedoor.orders.store import TicketStore
from stagedoor.orders.tickets import Ticket, to_ticket

__all__ = ["Finding", "InvariantReport", "check_invariant", "judge_order"]

_PAGE = 200
"""Orders in memory at a time; one of them may have 500 positions."""


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that is not as it must be; *position_id* None concerns the whole order."""

    order_id: int
    position_id: int | None
    problem: str


@attrs.frozen(kw_only=True)
class InvariantReport:
    """What a check found.

    *lost*: a placed position without exactly one valid, current, readable ticket.
    *wrong*: a valid ticket that must not be, or whose file is not there.
    *stray*: files that no valid ticket uses; harmless, and only looked for when
    the whole book is checked.
    """

    lost: tuple[Finding, ...]
    wrong: tuple[Finding, ...]
    stray: tuple[str, ...]
    orders: int
    refunded: int
    positions: int
    tickets_valid: int
    tickets_void: int

    @property
    def is_sound(self) -> bool:
        """Whether the invariant holds."""
        return not self.lost and not self.wrong


@attrs.define
class _Tally:
    """What has been counted so far; lives in one call only."""

    lost: list[Finding] = attrs.Factory(list)
    wrong: list[Finding] = attrs.Factory(list)
    used: set[str] = attrs.Factory(set)
    orders: int = 0
    refunded: int = 0
    positions: int = 0
    valid: int = 0
    void: int = 0

    def take(self, order: Order, of_order: Sequence[Ticket], *, is_present: Callable[[str], bool]) -> None:
        lost, wrong = judge_order(order, of_order, is_present=is_present)
        self.lost += lost
        self.wrong += wrong
        self.orders += 1
        self.refunded += order.status == "refunded"
        self.positions += len(order.placed_positions)
        valid = [ticket.path for ticket in of_order if ticket.state == "valid"]
        self.used.update(valid)
        self.valid += len(valid)
        self.void += len(of_order) - len(valid)


def check_invariant(database: Database, store: TicketStore, order_ids: Iterable[int] | None) -> InvariantReport:
    """Check these orders, or all of them; an id that is not there is reported as lost."""
    tally = _Tally()
    # Files are listed first: one that is committed meanwhile is in the snapshot, one that is removed is gone.
    files = list(store.files()) if order_ids is None else []
    with database.snapshot() as connection:
        for page in _pages(connection, order_ids, tally):
            found = _tickets_of(connection, [order.order_id for order in page])
            for order in page:
                tally.take(order, found[order.order_id], is_present=store.is_present)
    return InvariantReport(
        lost=tuple(tally.lost),
        wrong=tuple(tally.wrong),
        stray=tuple(path for path in files if path not in tally.used and store.is_present(path)),
        orders=tally.orders,
        refunded=tally.refunded,
        positions=tally.positions,
        tickets_valid=tally.valid,
        tickets_void=tally.void,
    )


def judge_order(
    order: Order, of_order: Sequence[Ticket], *, is_present: Callable[[str], bool]
) -> tuple[list[Finding], list[Finding]]:
    """Return what is lost and what is wrong about one order."""
    lost: list[Finding] = []
    wrong: list[Finding] = []
    valid: dict[int, list[Ticket]] = defaultdict(list)
    for ticket in of_order:
        if ticket.state == "valid":
            valid[ticket.position_id].append(ticket)
    placed = {position.id: position for position in order.placed_positions}

    def note(findings: list[Finding], position_id: int, problem: str) -> None:
        findings.append(Finding(order_id=order.order_id, position_id=position_id, problem=problem))

    for position_id, of_position in valid.items():
        for ticket in of_position:
            problem = _problem(ticket, order, is_present=is_present)
            if problem:
                note(wrong, position_id, problem)
        if len(of_position) > 1:
            note(wrong, position_id, f"{len(of_position)} valid tickets")
    for position_id in placed:
        good = [ticket for ticket in valid[position_id] if not _problem(ticket, order, is_present=is_present)]
        if len(good) != 1:
            note(lost, position_id, f"{len(good)} valid tickets of version {order.version} with a readable file")
    return lost, wrong


def _problem(ticket: Ticket, order: Order, *, is_present: Callable[[str], bool]) -> str | None:
    """Return why this ticket must not be valid as it is."""
    placed = {position.id: position.token for position in order.placed_positions}
    if ticket.position_id not in placed:
        return f"a valid ticket of a {'refunded order' if order.status == 'refunded' else 'position not placed'}"
    if ticket.order_version != order.version:
        return f"a valid ticket of version {ticket.order_version}, the order has version {order.version}"
    if ticket.token != placed[ticket.position_id]:
        return "a valid ticket with a token that is not the position's"
    if not is_present(ticket.path):
        return f"the file {ticket.path} is not readable"
    return None


def _pages(connection: Connection, order_ids: Iterable[int] | None, tally: _Tally) -> Iterator[list[Order]]:
    if order_ids is None:
        yield from _all_pages(connection)
        return
    wanted = sorted(set(order_ids))
    for start in range(0, len(wanted), _PAGE):
        ids = wanted[start : start + _PAGE]
        page = to_orders(connection.execute(select_order(orders.c.id.in_(ids))))
        found = {order.order_id for order in page}
        tally.lost += [
            Finding(order_id=order_id, position_id=None, problem="there is no such order")
            for order_id in ids
            if order_id not in found
        ]
        yield page


def _all_pages(connection: Connection) -> Iterator[list[Order]]:
    after = 0
    while True:
        ids = connection.scalars(
            sa.select(orders.c.id).where(orders.c.id > after).order_by(orders.c.id).limit(_PAGE)
        ).all()
        if not ids:
            return
        yield to_orders(connection.execute(select_order(orders.c.id.in_(ids))))
        after = ids[-1]


def _tickets_of(connection: Connection, order_ids: Sequence[int]) -> dict[int, list[Ticket]]:
    found: dict[int, list[Ticket]] = defaultdict(list)
    statement = sa.select(tickets).where(tickets.c.order_id.in_(order_ids)).order_by(tickets.c.id)
    for row in connection.execute(statement):
        found[row.order_id].append(to_ticket(row))
    return found
