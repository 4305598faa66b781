"""Make the tickets of an order, for the version that it has now."""

import functools
from collections.abc import Mapping
from typing import Literal

import attrs

from stagedoor.core.handler import handler
from stagedoor.errors import InvalidRequest, Permanent
from stagedoor.handlers.api import Context, Job
from stagedoor.handlers.refund_order import read_order, withdraw_tickets
from stagedoor.order import Order, Position
from stagedoor.orders import NewTicket, Ticket


@handler("render_tickets")
def render_tickets(job: Job, ctx: Context) -> None:
    """Leave the order with one valid ticket for each placed position, or with none if it is refunded.

    Read the order; render what is not there yet; write the files; commit on the
    condition that the order is still at that version. A commit that is refused
    publishes nothing: what made the order change has an outbox row of its own.
    A position whose content key is that of its valid ticket is not drawn again:
    the file goes on under the new version's name.

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
    issue_tickets(order, ctx)


def issue_tickets(order: Order, ctx: Context) -> Literal["issued", "present", "outdated"]:
    """Issue the tickets of a placed order for the version that it was read at, unless they are there already.

    Returns:
        What became of it; ``outdated`` says that the order has gone on, and nothing was published.
    """
    state = ctx.orders.issue_state(order)
    if state == "issued":
        ctx.orders.store.tidy(order)
        ctx.log.debug("tickets_present", order_id=order.order_id, version=order.version)
        return "present"
    desk = Desk(order=order, ctx=ctx)
    made = [desk.make(position) for position in order.placed_positions]
    files = [one.ticket for one in made]
    ctx.orders.store.make_durable(file.path for file in files)
    ctx.check()
    # A damaged version was committed before: its rows are replaced, on the same condition otherwise.
    committed = ctx.orders.commit_tickets(order, files, replace=state == "damaged")
    # A refused commit says that the order has gone on; what it is now decides which files are over.
    ctx.orders.store.tidy(order if committed else ctx.orders.get(order.order_id))
    event = "tickets_issued" if committed else "tickets_outdated"
    carried = sum(one.is_carried for one in made)
    more = {"carried": carried} if carried else {}
    # Whoever mails them should know: servers send back what is large.
    if drawn := sum(one.drawn_bytes for one in made):
        more["bytes"] = drawn
    ctx.log.debug(event, order_id=order.order_id, version=order.version, tickets=len(files), **more)
    return "issued" if committed else "outdated"


@attrs.frozen
class Made:
    """A ticket whose file is there: whether it stays as it was in an earlier version, or how large it was drawn."""

    ticket: NewTicket
    is_carried: bool = False
    drawn_bytes: int = 0


@attrs.frozen
class Desk:
    """Where the tickets of one version of an order are made; each thread has one of its own."""

    order: Order
    ctx: Context

    def make(self, position: Position) -> Made:
        """Make sure that the position's file is there; one that a crashed attempt has written is taken as it is.

        **Durability**: the file is under its name; `make_durable` makes it outlast the host.
        """
        order, ctx = self.order, self.ctx
        key, suffix, content_type = ctx.content_key(ctx.ticket_renderer, order, position)
        path = ctx.orders.store.path(order.order_id, position.id, version=order.version, key=key, suffix=suffix)
        ticket = NewTicket(position_id=position.id, path=path, content_key=key, content_type=content_type)
        if ctx.orders.store.is_present(path):
            return Made(ticket)
        ctx.check()
        if self._carry(position, path, key):
            return Made(ticket, is_carried=True)
        return Made(ticket, drawn_bytes=self._draw(position, path))

    def _carry(self, position: Position, path: str, key: str) -> bool:
        """Take the position's ticket of an earlier version if it is what would be drawn now."""
        earlier = self._earlier.get(position.id)
        if earlier is None or earlier.content_key != key or earlier.path == path:
            return False
        store = self.ctx.orders.store
        return store.is_present(earlier.path) and store.carry(earlier.path, path)

    def _draw(self, position: Position, path: str) -> int:
        """Draw the position's ticket; return how large its file is."""
        ctx = self.ctx
        try:
            rendered = ctx.render(ctx.ticket_renderer, self.order, position)
        except InvalidRequest as error:
            raise Permanent(str(error)) from error
        if rendered.notes:
            # Fields and code points, never what somebody is called: whoever runs the shop should know of such tickets.
            ctx.log.warning(
                "ticket_incomplete",
                order_id=self.order.order_id,
                position_id=position.id,
                notes="; ".join(rendered.notes),
            )
        ctx.orders.store.write(path, rendered.content)
        return len(rendered.content)

    @functools.cached_property
    def _earlier(self) -> Mapping[int, Ticket]:
        """The valid tickets by position: what becomes void when this version is committed."""
        if self.order.version == 1:
            return {}
        return {ticket.position_id: ticket for ticket in self.ctx.orders.valid_tickets(self.order.order_id)}
