"""Fulfil an order as a flow: note what is due, draw the tickets beside one another, commit, tell the buyer.

An example to start from, and as safe as `render_tickets`: the call works for the
version of the order that it found first, and its commit carries the condition
that the order is still at that version. Whatever changes the order has an outbox
row, and so a call or a job, of its own.
"""

import functools
import re
from typing import Literal

import attrs

from stagedoor.core.flow import Call, flow
from stagedoor.core.job import MAX_ID
from stagedoor.errors import OrderNotFound, Permanent
from stagedoor.handlers.api import Context
from stagedoor.handlers.refund_order import withdraw_tickets
from stagedoor.handlers.render_tickets import Desk, issue_tickets
from stagedoor.order import Order

AT_ONCE = 4
"""Tickets of one order that are drawn at once, as far as slots are free: a large order leaves room for others."""
_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


@attrs.frozen(kw_only=True)
class Due:
    """What a call works for: the order at one version, and the positions to draw, none where nothing is due."""

    order_id: int
    version: int
    state: Literal["due", "present", "refunded"]
    positions: tuple[int, ...] = ()


@flow("fulfil-order")
def fulfil_order(call: Call) -> str:
    """Leave the order with one valid ticket for each placed position, or with none if it is refunded.

    The order is that of the metadata ``order_id``, as an outbox row of this kind gives it.

    Returns:
        ``issued``, or why nothing was: ``present``, ``refunded``, or ``outdated`` when the order went on
        while its tickets were drawn.
    """
    ctx: Context = call.ctx
    due = call.step("reserve", reserve, ctx, call.metadata.get("order_id", ""))
    if due.state != "due":
        return due.state
    call.gather("render", due.positions, functools.partial(draw, ctx, due), limit=AT_ONCE)
    ended = call.step("commit", commit, ctx, due)
    if ended == "issued":
        call.step("notify", notify, ctx, due)
    return ended


def reserve(ctx: Context, order_id: str) -> Due:
    """Read the order and return what is due for it; of a refunded one, withdraw the tickets.

    Raises:
        Permanent: there is no such order, and there never will be.

    **Durability**: of a placed order it only reads; the tickets of a refunded one are void when it returns.
    """
    order = _read(ctx, order_id)
    due = Due(order_id=order.order_id, version=order.version, state="due")
    if order.status == "refunded":
        withdraw_tickets(order, ctx)
        return attrs.evolve(due, state="refunded")
    if ctx.orders.is_issued(order):
        ctx.orders.store.tidy(order)
        return attrs.evolve(due, state="present")
    return attrs.evolve(due, positions=tuple(position.id for position in order.placed_positions))


def draw(ctx: Context, due: Due, position_id: int) -> str | None:
    """Make sure that the file of a position's ticket is there; return its path, None if the order has gone on.

    Raises:
        Permanent: it can never be drawn.

    **Durability**: the file is under its name, but only the commit makes sure that it outlasts the host.
    Repeated after a crash it finds the file that is there.
    """
    order = ctx.orders.get(due.order_id)
    if order.version != due.version:
        return None
    return Desk(order=order, ctx=ctx).make(order.position(position_id)).ticket.path


def commit(ctx: Context, due: Due) -> Literal["issued", "outdated"]:
    """Issue the tickets on the condition that the order is still as it was; a file that is gone is drawn again.

    **Durability**: as of `render_tickets`. Repeated after a crash it finds them issued, and says so.
    """
    order = ctx.orders.get(due.order_id)
    if order.version != due.version:
        ctx.orders.store.tidy(order)
        return "outdated"
    return "outdated" if issue_tickets(order, ctx) == "outdated" else "issued"


def notify(ctx: Context, due: Due) -> None:
    """Say that the tickets are there; the place for a letter to the buyer.

    A crash may repeat it, so a letter should be known by order and version, and be sent once for both.
    """
    ctx.log.debug("order_fulfilled", order_id=due.order_id, version=due.version, tickets=len(due.positions))


def _read(ctx: Context, order_id: str) -> Order:
    if _ID.fullmatch(order_id) is None or int(order_id) > MAX_ID:
        raise Permanent(f"the call's metadata has no id of an order: expected order_id=1 or more, got {order_id!r}")
    try:
        return ctx.orders.get(int(order_id))
    except OrderNotFound as error:
        raise Permanent(f"{error}: the call names an order that the order book does not know") from error
