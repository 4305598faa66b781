"""What ``explain`` says of an order: how it stands, and whether anything is under way that puts it right. Pure.

An order that is not as it must be, and for which nothing waits or runs any more, stays so for ever:
somebody has deleted an entry, or a job was given up. Nobody else would say so, for what is nowhere looks
like what was settled.
"""

from collections.abc import Iterator, Sequence

import attrs

from stagedoor.broker.tracing import Trace
from stagedoor.cli.explaining_jobs import UNTOLD, Rules, kinds_under_way
from stagedoor.cli.text import counted, printable
from stagedoor.core.call import CallState
from stagedoor.core.journal import Journal
from stagedoor.orders.history import OutboxRecord

_ISSUING, _VOIDING = "render_tickets", "refund_order"
_OURS = frozenset((_ISSUING, _VOIDING, "fulfil-order"))
"""The kinds whose end is an order as it must be; of a shop's own only the shop knows."""
_FEW = 3


@attrs.frozen(kw_only=True)
class OrderFacts:
    """What the order book says of an order.

    *issue* is ``due``, ``issued`` or ``damaged``; *problems* are what must not be so once nothing is waiting
    for it any more.
    """

    order_id: int
    status: str
    version: int
    issue: str
    valid: int
    void: int
    positions: int
    problems: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Surroundings:
    """All that there is of one order, in some looks one after the other; *order* as it was after the last.

    More than one, for a job that moves from one place to another while they are looked at is in neither.
    """

    order: OrderFacts | None
    traces: tuple[Trace, ...]
    records: Sequence[OutboxRecord] = ()
    calls: Sequence[Journal] = ()


@attrs.frozen(kw_only=True)
class Trouble:
    """Why an order stays as it is, and what to do; *is_lost* where nothing is left of its jobs anywhere."""

    is_lost: bool
    where: str
    next: str


def about_order(order: OrderFacts) -> str:
    """Return what the order book says of an order, in a sentence."""
    tickets = f"{order.valid} valid and {counted(order.void, 'void ticket')}"
    if order.status == "refunded":
        done = (
            "its tickets are void"
            if order.valid == 0
            else f"{counted(order.valid, 'ticket is', 'tickets are')} still to be voided"
        )
        return f"order {order.order_id} is refunded, version {order.version}: {done}"
    issue = {
        "issued": f"its tickets are issued: {tickets}",
        "damaged": f"its tickets were issued, but a file or a row is missing: {tickets}",
        "due": f"tickets for this version have not been issued: {tickets}",
    }[order.issue]
    if order.issue == "issued" and order.problems:
        issue += f"; but {order.problems[0]}"
    positions = counted(order.positions, "position")
    return f"order {order.order_id} is placed, version {order.version}, {positions}: {issue}"


def stuck(order: OrderFacts, around: Surroundings, rules: Rules) -> Trouble | None:
    """Return what keeps an order from becoming what it must be; None where nothing does.

    Args:
        order: as it was before *around* was looked up.
        around: where all its jobs, rows and calls are.
        rules: of the workers.
    """
    now = around.order
    if now is None or not now.problems or now.version != order.version:
        return None  # put right meanwhile, or changed, with a row of its own
    kinds = set(_under_way(around, rules))
    useless = {_VOIDING} if now.status == "placed" else {_ISSUING}
    if kinds & ({UNTOLD, *_OURS} - useless):
        return None
    if others := sorted(kinds - _OURS):
        has_ours = any(record.row.kind in _OURS for record in around.records)
        return _unsure(now, others) if has_ours else None  # a shop's own way of making its tickets
    is_cut = any(trace.is_cut for trace in around.traces)
    if is_cut or _has_remains(around):
        seen = ", as far as was looked" if is_cut else ""
        where = f"{_owed(now)}, and nothing goes on with that by itself{seen}"
        left = f"put right what is left of its jobs, as explain {now.order_id} --as order shows them"
        return Trouble(is_lost=False, where=where, next=f"nothing by itself: {left}, or {_cure(now)}")
    where = f"it is lost: {_owed(now)}, and no job that would do it is anywhere, neither in the outbox nor on Redis"
    return Trouble(is_lost=True, where=where, next=f"nothing by itself: {_cure(now)}; find out who deletes entries")


def _under_way(around: Surroundings, rules: Rules) -> Iterator[str]:
    """Yield the kinds of all that will go on by itself."""
    yield from (record.row.kind for record in around.records if record.state == "waiting")
    for trace in around.traces:
        yield from kinds_under_way(trace, rules)
    for call in around.calls:
        if not call.state.has_ended and call.state is not CallState.PARKED:
            yield call.flow


def _has_remains(around: Surroundings) -> bool:
    """Whether there is something that somebody could put back, or put right."""
    is_parked = any(record.state == "parked" for record in around.records)
    return is_parked or bool(around.calls) or not all(trace.is_empty for trace in around.traces)


def _unsure(order: OrderFacts, kinds: Sequence[str]) -> Trouble:
    named = ", ".join(printable(kind, 64) for kind in kinds[:_FEW])
    more = f" and {len(kinds) - _FEW} more kinds" if len(kinds) > _FEW else ""
    where = f"{_owed(order)}, and of what is under way, {named}{more}, only the shop knows whether it does that"
    return Trouble(is_lost=False, where=where, next=f"if it does not: {_cure(order)}")


def _owed(order: OrderFacts) -> str:
    if order.status == "refunded":
        return "its tickets are owed to be void"
    if order.issue == "due":
        return "its tickets are owed"
    return "its tickets are not as they must be"


def _cure(order: OrderFacts) -> str:
    if order.status == "refunded":
        return "doctor --fix voids them; the door refuses them all the same"
    return f"order reissue {order.order_id} has its tickets made, and so does doctor --fix once nothing waits any more"
