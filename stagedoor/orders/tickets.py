"""Tickets: their values, the conditional commit, and what the door is told.

Rules
-----
1. A commit begins with an UPDATE of the order's row that carries the whole
   condition: still placed, still this version, not issued for it yet. From then
   on the row is locked; whatever else touches the order waits or has been seen.
2. No row changed: nothing is published. The newer version, or the refund, has an
   outbox row of its own.
3. A refund's void begins with an UPDATE that requires the refunded status, and
   locks the same row: a commit is either before it, and gets void, or refused.
4. A ticket turns void and stays in the table. There is at most one valid one per
   position; the partial unique index says so to the database.

A look at the order before the UPDATE would decide nothing, for the order may
change between the two: it is the condition inside the UPDATE that counts.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import attrs
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from stagedoor.order import Order
from stagedoor.orders.schema import orders, positions, tickets
from stagedoor.orders.store import TicketFileMissing, TicketStore

__all__ = ["IssuePlan", "NewTicket", "Ticket", "TokenState", "plan_issue"]

TicketState = Literal["valid", "void"]
IssueState = Literal["due", "issued", "damaged"]


@attrs.frozen(kw_only=True)
class Ticket:
    """One ticket as the book keeps it; *path* is relative to the tickets folder."""

    ticket_id: int
    order_id: int
    position_id: int
    order_version: int
    token: str
    path: str
    content_key: str
    content_type: str
    state: TicketState
    issued_at: float
    voided_at: float | None
    void_reason: str | None


@attrs.frozen(kw_only=True)
class NewTicket:
    """A ticket file that has been written and waits for its commit."""

    position_id: int
    path: str
    content_key: str
    content_type: str


@attrs.frozen(kw_only=True)
class TokenState:
    """What the door is told about a token; *reason* says why it is not valid."""

    state: Literal["valid", "void", "unknown"]
    order_id: int | None = None
    position_id: int | None = None
    holder: str | None = None
    reason: str | None = None


@attrs.frozen(kw_only=True)
class IssuePlan:
    """What a commit does to the rows: ids with their reasons to void, and what to insert."""

    void: tuple[tuple[int, str], ...]
    insert: tuple[NewTicket, ...]


# -- decisions ----------------------------------------------------------------


def plan_issue(order: Order, valid: Iterable[Ticket], files: Sequence[NewTicket]) -> IssuePlan:
    """Decide which valid tickets become void, and which files become tickets.

    A ticket of this very version with this very file stays as it is.

    Raises:
        ValueError: *files* are not one for each placed position of the order.
    """
    wanted = {file.position_id: file for file in files}
    placed = {position.id: position for position in order.placed_positions}
    if len(wanted) != len(files) or wanted.keys() != placed.keys():
        raise ValueError(
            f"order {order.order_id}: expected one file for each of the positions {sorted(placed)}, found"
            f" {sorted(file.position_id for file in files)}"
        )
    void: list[tuple[int, str]] = []
    for ticket in valid:
        file = wanted.get(ticket.position_id)
        if file and (ticket.order_version, ticket.path) == (order.version, file.path):
            del wanted[ticket.position_id]
        else:
            void.append((ticket.ticket_id, _void_reason(ticket, order)))
    return IssuePlan(void=tuple(void), insert=tuple(wanted.values()))


def _void_reason(ticket: Ticket, order: Order) -> str:
    placed = {position.id: position for position in order.placed_positions}
    if ticket.position_id not in placed:
        return "position refunded"
    if placed[ticket.position_id].token != ticket.token:
        return "token rotated"
    return "file lost" if ticket.order_version == order.version else "superseded"


def judge_token(row: Any, token: str) -> TokenState:
    """Decide what the door is told, from the row of `find_token` or None.

    The order's own state counts, not only the ticket's: a refund or a rotated
    token closes the door at once, before its handler has run.
    """
    if row is None:
        return TokenState(state="unknown", reason="no ticket carries this token")
    state: Literal["valid", "void", "unknown"] = "void"
    reason: str | None = row.void_reason
    if row.order_status != "placed":
        reason = "order refunded"
    elif row.position_status != "placed":
        reason = "position refunded"
    elif row.position_token != token:
        reason = "token rotated"
    elif row.state is None:
        state, reason = "unknown", "its ticket has not been issued yet"
    elif row.state == "valid":
        state, reason = "valid", None
    return TokenState(state=state, order_id=row.order_id, position_id=row.position_id, holder=row.holder, reason=reason)


# -- statements that every job runs -------------------------------------------
#
# Written once: putting one together costs as much as running it.

_CLAIM_AGAIN = (
    orders.update()
    .where(orders.c.id == sa.bindparam("order"), orders.c.status == "placed", orders.c.version == sa.bindparam("seen"))
    .values(issued=orders.c.version)
)
_CLAIM = _CLAIM_AGAIN.where(orders.c.issued.is_distinct_from(orders.c.version))
_CLAIM_REFUNDED = (
    orders.update().where(orders.c.id == sa.bindparam("order"), orders.c.status == "refunded").values(issued=None)
)
_VALID = (
    sa.select(tickets)
    .where(tickets.c.order_id == sa.bindparam("order"), tickets.c.state == "valid")
    .order_by(tickets.c.id)
)
_VALID_OF_VERSION = sa.and_(
    tickets.c.order_id == orders.c.id, tickets.c.state == "valid", tickets.c.order_version == orders.c.version
)
_ISSUED = (
    sa.select(tickets.c.position_id, tickets.c.path)
    .select_from(orders.outerjoin(tickets, _VALID_OF_VERSION))
    .where(
        orders.c.id == sa.bindparam("order"),
        orders.c.status == "placed",
        orders.c.version == sa.bindparam("seen"),
        orders.c.issued == orders.c.version,
    )
)


# -- on a connection, inside the caller's transaction -------------------------


def claim_issue(connection: Connection, order: Order, *, replace: bool) -> bool:
    """Lock the order for a commit of this version, and return whether the commit may go on.

    This is the first statement of its transaction, and the whole condition.
    """
    claim = _CLAIM_AGAIN if replace else _CLAIM
    return connection.execute(claim, {"order": order.order_id, "seen": order.version}).rowcount == 1


def claim_void(connection: Connection, order_id: int) -> bool:
    """Lock a refunded order, and return whether it is one; the first statement of its transaction."""
    return connection.execute(_CLAIM_REFUNDED, {"order": order_id}).rowcount == 1


def issue(
    connection: Connection, order: Order, files: Sequence[NewTicket], *, store: TicketStore, now: float
) -> IssuePlan:
    """Void what is to be void and insert the new tickets; the order has been claimed.

    Raises:
        TicketFileMissing: a file is not there; the caller's transaction must roll back.
    """
    plan = plan_issue(order, read_valid(connection, order.order_id), files)
    missing = [file.path for file in files if not store.is_present(file.path)]
    if missing:
        raise TicketFileMissing(
            f"order {order.order_id}: the ticket file {missing[0]} (one of {len(missing)}) was written and is gone;"
            " nothing was committed, the job runs again"
        )
    void(connection, plan.void, now=now)
    if plan.insert:
        connection.execute(tickets.insert(), [_ticket_row(order, file, now) for file in plan.insert])
    return plan


def void(connection: Connection, reasons: Iterable[tuple[int, str]], *, now: float) -> None:
    """Make these tickets void."""
    rows = [{"ticket": ticket_id, "reason": reason} for ticket_id, reason in reasons]
    if rows:
        statement = tickets.update().where(tickets.c.id == sa.bindparam("ticket"), tickets.c.state == "valid")
        connection.execute(statement.values(state="void", voided_at=now, void_reason=sa.bindparam("reason")), rows)


def _ticket_row(order: Order, file: NewTicket, now: float) -> dict[str, Any]:
    return {
        "order_id": order.order_id,
        "position_id": file.position_id,
        "order_version": order.version,
        "token": order.position(file.position_id).token,
        "path": file.path,
        "content_key": file.content_key,
        "content_type": file.content_type,
        "state": "valid",
        "issued_at": now,
    }


# -- reading ------------------------------------------------------------------


def read_tickets(connection: Connection, order_id: int) -> tuple[Ticket, ...]:
    """Return all tickets of an order, oldest first."""
    rows = connection.execute(sa.select(tickets).where(tickets.c.order_id == order_id).order_by(tickets.c.id))
    return tuple(to_ticket(row) for row in rows)


def read_valid(connection: Connection, order_id: int) -> tuple[Ticket, ...]:
    """Return the valid tickets of an order, oldest first."""
    return tuple(to_ticket(row) for row in connection.execute(_VALID, {"order": order_id}))


def read_issued(connection: Connection, order: Order) -> dict[int, str] | None:
    """Return the paths of the valid tickets by position if this version is issued, else None; one statement."""
    rows = connection.execute(_ISSUED, {"order": order.order_id, "seen": order.version}).all()
    return {row.position_id: row.path for row in rows if row.path is not None} if rows else None


def find_token(connection: Connection, token: str) -> Any:
    """Return the row of what the book knows of a token: of its ticket, the valid one first, else of its position."""
    of_ticket = (
        sa.select(*_TOKEN_COLUMNS)
        .select_from(tickets.join(orders, orders.c.id == tickets.c.order_id).join(positions, _SAME_POSITION))
        .where(tickets.c.token == token)
        # "valid" sorts before "void".
        .order_by(tickets.c.state, tickets.c.id.desc())
        .limit(1)
    )
    found = connection.execute(of_ticket).first()
    if found is not None:
        return found
    of_position = (
        sa.select(*_TOKEN_COLUMNS)
        .select_from(positions.join(orders, orders.c.id == positions.c.order_id).outerjoin(tickets, sa.false()))
        .where(positions.c.token == token)
    )
    return connection.execute(of_position).first()


_SAME_POSITION = sa.and_(positions.c.order_id == tickets.c.order_id, positions.c.id == tickets.c.position_id)
_TOKEN_COLUMNS = (
    tickets.c.state,
    tickets.c.void_reason,
    positions.c.order_id,
    positions.c.id.label("position_id"),
    positions.c.holder,
    positions.c.token.label("position_token"),
    positions.c.status.label("position_status"),
    orders.c.status.label("order_status"),
)


def to_ticket(row: sa.Row[Any]) -> Ticket:
    """Return the value of one row of the table."""
    return Ticket(
        ticket_id=row.id,
        order_id=row.order_id,
        position_id=row.position_id,
        order_version=row.order_version,
        token=row.token,
        path=row.path,
        content_key=row.content_key,
        content_type=row.content_type,
        state=row.state,
        issued_at=row.issued_at,
        voided_at=row.voided_at,
        void_reason=row.void_reason,
    )
