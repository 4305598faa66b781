"""Withdraw the tickets of a refunded order."""

from stagedoor.core.handler import handler
from stagedoor.errors import OrderNotFound, Permanent
from stagedoor.handlers.api import Context, Job
from stagedoor.order import Order


@handler("refund_order")
def refund_order(job: Job, ctx: Context) -> None:
    """Leave a refunded order without a valid ticket; do nothing to one that is not refunded.

    Raises:
        Permanent: there is no such order.

    **Durability**: the tickets become void in one transaction, then their files are removed. A
    crash anywhere leaves a state from which the same job goes on.
    """
    order = read_order(job, ctx)
    if order.status != "refunded":
        ctx.log.debug("refund_outdated", order_id=order.order_id, version=order.version)
        return
    ctx.check()
    withdraw_tickets(order, ctx)


def read_order(job: Job, ctx: Context) -> Order:
    """Return the order as it is now.

    Raises:
        Permanent: there is none; the entry's outbox row was written together with the order, so
            it will not appear later either.
    """
    if job.order_id is None:
        raise Permanent(f"entry {job.entry_id}: a job of kind {job.kind} names no order")
    try:
        return ctx.orders.get(job.order_id)
    except OrderNotFound as error:
        raise Permanent(f"{error}: the order book does not know the order of outbox row {job.outbox_id}") from error


def withdraw_tickets(order: Order, ctx: Context) -> None:
    """Void the tickets of a refunded order and remove their files."""
    voided = ctx.orders.void_refunded(order.order_id)
    ctx.orders.store.tidy(order)
    ctx.log.debug("tickets_void", order_id=order.order_id, version=order.version, tickets=len(voided))
