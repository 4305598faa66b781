"""Make the tickets of an order, for the version that it has now."""

from stagedoor.core.handler import handler
from stagedoor.errors import InvalidRequest, Permanent
from stagedoor.handlers.api import Context, Job
from stagedoor.handlers.refund_order import read_order, withdraw_tickets
from stagedoor.order import Order, Position
from stagedoor.orders import NewTicket


@handler("render_tickets")
def render_tickets(job: Job, ctx: Context) -> None:
    """Leave the order with one valid ticket for each placed position, or with none if it is refunded.

    Read the order; render what is not there yet; write the files; commit on the
    condition that the order is still at that version. A commit that is refused
    publishes nothing: what made the order change has an outbox row of its own.

    Raises:
        Permanent: there is no such order, or it can never be drawn.

    **Cancellation**: `ctx.check` is asked between renders and before the commit; files that were
    written so far stay for whoever has the entry now.

    **Durability**: files first, then the tickets in one transaction, then what became void is
    removed. A crash anywhere leaves a state from which the same job goes on.
    """
    order = read_order(job, ctx)
    if order.status == "refunded":
        withdraw_tickets(order, ctx)
        return
    state = ctx.orders.issue_state(order)
    if state == "issued":
        ctx.orders.store.tidy(order)
        ctx.log.debug("tickets_present", order_id=order.order_id, version=order.version)
        return
    files = [_write_ticket(order, position, ctx=ctx) for position in order.placed_positions]
    ctx.orders.store.make_durable(file.path for file in files)
    ctx.check()
    # A damaged version was committed before: its rows are replaced, on the same condition otherwise.
    committed = ctx.orders.commit_tickets(order, files, replace=state == "damaged")
    # A refused commit says that the order has gone on; what it is now decides which files are over.
    ctx.orders.store.tidy(order if committed else ctx.orders.get(order.order_id))
    event = "tickets_issued" if committed else "tickets_outdated"
    ctx.log.debug(event, order_id=order.order_id, version=order.version, tickets=len(files))


def _write_ticket(order: Order, position: Position, *, ctx: Context) -> NewTicket:
    """Make sure that the position's file is there; one that a crashed attempt has written is taken as it is."""
    key, suffix, content_type = ctx.content_key(ctx.ticket_renderer, order, position)
    path = ctx.orders.store.path(order.order_id, position.id, version=order.version, key=key, suffix=suffix)
    if not ctx.orders.store.is_present(path):
        ctx.check()
        try:
            rendered = ctx.render(ctx.ticket_renderer, order, position)
        except InvalidRequest as error:
            raise Permanent(str(error)) from error
        if rendered.notes:
            # Fields and code points, never what somebody is called: whoever runs the shop should know of such tickets.
            ctx.log.warning(
                "ticket_incomplete", order_id=order.order_id, position_id=position.id, notes="; ".join(rendered.notes)
            )
        ctx.orders.store.write(path, rendered.content)
    return NewTicket(position_id=position.id, path=path, content_key=key, content_type=content_type)
