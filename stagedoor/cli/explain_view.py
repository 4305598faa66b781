"""Finding out what ``explain`` is asked, and showing it."""

import contextlib
from collections.abc import Iterator

import attrs
import click
from rich.console import RenderableType
from rich.text import Text

from stagedoor.broker.calls import Calls
from stagedoor.broker.connection import Link, masked
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.broker.tracing import Trace, Tracing, Wanted
from stagedoor.cli.books import Books, books_of
from stagedoor.cli.explaining import (
    Account,
    Found,
    OrderFacts,
    Rules,
    about_order,
    about_token,
    accounts,
    data_of,
    kind_of,
)
from stagedoor.cli.explaining_calls import entry_of
from stagedoor.cli.options import number_of_id
from stagedoor.cli.output import hanging, print_json, show
from stagedoor.cli.text import printable
from stagedoor.core.call import CallState
from stagedoor.core.codec import Fields
from stagedoor.core.history_data import readable
from stagedoor.core.journal import CALL_ID_PATTERN, Journal, is_call_id
from stagedoor.core.keys import Keys
from stagedoor.errors import BrokerError, BrokerUnavailable, OrderNotFound
from stagedoor.flows import outbox_call_id
from stagedoor.orders import TokenState
from stagedoor.orders.history import OutboxRecord
from stagedoor.settings import Settings

MOST_CALLS = 20
"""Calls that are looked at for one order: each is read whole."""
_STYLES = {
    "call": "",
    "dead": "red",
    "outbox": "yellow",
    "delayed": "yellow",
    "settled": "green",
    "entry": "",
    "nothing": "dim",
}


def explain(settings: Settings, asked: str, kind: str | None, *, as_json: bool) -> int:
    """Print what is known; returns the exit code."""
    rules = Rules(
        liveness_ttl_s=settings.liveness_ttl_s, max_attempts=settings.max_attempts, max_crashes=settings.max_crashes
    )
    asked = asked.strip()
    with books_of(settings) as books, _looking(settings) as (tracing, calls):
        if (kind or _guessed(asked, calls)) == "call":
            found = _call(asked, calls, tracing)
        else:
            found = _found(asked, kind or kind_of(asked), books, tracing)
            found = attrs.evolve(found, calls=tuple(_calls_of(found, calls)))
    told = accounts(found, rules)
    if as_json:
        print_json(data_of(found, rules))
    else:
        _show(found, told)
    return int(all(account.what == "nothing" for account in told))


@contextlib.contextmanager
def _looking(settings: Settings) -> Iterator[tuple[Tracing, Calls]]:
    link, keys = Link(settings.redis_url, block_ms=0, namespace=settings.namespace), Keys(settings.namespace)
    try:
        yield Tracing(link, keys), RedisCalls(link, keys)
    except BrokerUnavailable as error:
        raise BrokerUnavailable(f"{masked(settings.redis_url)}: {error}") from error
    finally:
        link.close()


def _found(asked: str, kind: str | None, books: Books | None, tracing: Tracing) -> Found:
    match kind:
        case "entry":
            return _entry(asked, books, tracing)
        case "token":
            return _token(asked, books, tracing)
        case "outbox":
            return _outbox(_number(asked), books, tracing)
        case "order":
            return _order(_number(asked), books, tracing)
        case _:
            number = _number(asked)
            is_order = books is None or _facts(books, number) is not None
            return _order(number, books, tracing) if is_order else _outbox(number, books, tracing)


def _guessed(asked: str, calls: Calls) -> str | None:
    """Return what an id is: a call where there is one with it, unless it has the shape of a number or an entry."""
    kind = kind_of(asked)
    return "call" if kind == "token" and is_call_id(asked) and calls.show(asked) is not None else kind


def _call(asked: str, calls: Calls, tracing: Tracing) -> Found:
    if not is_call_id(asked):
        raise click.BadParameter(f"expected an id of a call, {CALL_ID_PATTERN}, found {asked[:70]!a}")
    journal = calls.show(asked)
    if journal is not None:
        readable(journal)
    wanted = Wanted()
    if journal is not None and (journal.state is CallState.PARKED or entry_of(journal)):
        ids = frozenset(filter(None, (entry_of(journal),)))
        wanted = Wanted(entry_ids=ids, call_ids=frozenset((asked,)))
    return Found(
        kind="call", text=asked, trace=tracing.find(wanted), calls=() if journal is None else (journal,)
    )  # fmt: skip


def _calls_of(found: Found, calls: Calls) -> Iterator[Journal]:
    """Yield the calls that what was found belongs to, or has started."""
    named = [text(value) for fields in _all_fields(found.trace) for name, value in fields if name == b"call_id"]
    started = [outbox_call_id(record.row.outbox_id) for record in found.records]
    for call_id in list(dict.fromkeys([*named, *started]))[:MOST_CALLS]:
        journal = calls.show(call_id) if is_call_id(call_id) else None
        if journal is None:
            continue
        try:
            readable(journal)
        except BrokerError:
            continue  # it says so when it is asked for itself
        yield journal


def _number(asked: str) -> int:
    return number_of_id(asked)


def _entry(asked: str, books: Books | None, tracing: Tracing) -> Found:
    if kind_of(asked) != "entry":
        raise click.BadParameter(f"expected an entry id such as 1758200000000-0, found {asked[:40]!a}")
    trace = tracing.find(Wanted(entry_ids=frozenset((asked,))))
    records = [] if books is None else books.history.of_entries([asked, *_origins(trace)])
    order_id = records[0].row.order_id if records else _named_order(trace)
    order = None if books is None or order_id is None else _facts(books, order_id)
    return Found(kind="entry", text=asked, trace=trace, records=tuple(records), order=order, has_book=books is not None)


def _outbox(number: int, books: Books | None, tracing: Tracing) -> Found:
    record = None if books is None else books.history.row(number)
    trace = tracing.find(_wanted(record) if record else Wanted(outbox_ids=frozenset((str(number),))))
    order = _facts(books, record.row.order_id) if books is not None and record is not None else None
    return Found(
        kind="outbox",
        text=str(number),
        trace=trace,
        records=() if record is None else (record,),
        order=order,
        has_book=books is not None,
    )


def _wanted(record: OutboxRecord) -> Wanted:
    ids = frozenset((record.entry_id,)) if record.entry_id else frozenset[str]()
    return Wanted(entry_ids=ids, outbox_ids=frozenset((str(record.row.outbox_id),)))


def _order(number: int, books: Books | None, tracing: Tracing, token: TokenState | None = None) -> Found:
    return Found(
        kind="order",
        text=str(number),
        trace=tracing.find(Wanted(order_ids=frozenset((str(number),)))),
        records=() if books is None else tuple(books.history.of_order(number)),
        order=None if books is None else _facts(books, number),
        token=token,
        has_book=books is not None,
    )


def _token(asked: str, books: Books | None, tracing: Tracing) -> Found:
    state = None if books is None else books.orders.check_token(asked)
    if state is None or state.order_id is None:
        trace = tracing.find(Wanted())
        return Found(kind="token", text="this token", trace=trace, token=state, has_book=books is not None)
    found = _order(state.order_id, books, tracing, state)
    return Found(
        kind="token", text="this token", trace=found.trace, records=found.records, order=found.order, token=state
    )


def _all_fields(trace: Trace) -> list[Fields]:
    of_streams = [entry.fields for entry in trace.entries]
    return [*of_streams, *(one.fields for one in trace.delayed), *(letter.fields for letter in trace.letters)]


def _origins(trace: Trace) -> list[str]:
    return [text(value) for fields in _all_fields(trace) for name, value in fields if name == b"origin"]


def _named_order(trace: Trace) -> int | None:
    for fields in _all_fields(trace):
        value = next((value for name, value in fields if name == b"order_id"), b"")
        with contextlib.suppress(click.BadParameter):
            return number_of_id(text(value))
    return None


def text(value: bytes) -> str:
    """Return bytes of an entry as text, whatever they are."""
    return value.decode("utf-8", "replace")


def _facts(books: Books, order_id: int) -> OrderFacts | None:
    try:
        order = books.orders.get(order_id)
    except OrderNotFound:
        return None
    tickets = books.orders.tickets(order_id)
    valid = sum(ticket.state == "valid" for ticket in tickets)
    return OrderFacts(
        order_id=order_id,
        status=order.status,
        version=order.version,
        issue=books.orders.issue_state(order),
        valid=valid,
        void=len(tickets) - valid,
        positions=len(order.placed_positions),
    )


# -- for people ------------------------------------------------------------------------


def _show(found: Found, told: list[Account]) -> None:
    parts: list[RenderableType] = []
    if found.token is not None:
        parts.append(Text(printable(about_token(found.token))))
    if found.order is not None:
        parts.append(Text(about_order(found.order)))
    elif found.kind == "order" and found.has_book:
        parts.append(Text(f"there is no order {found.text} in the order book", style="yellow"))
    for account in told:
        if parts:
            parts.append(Text())
        parts.append(Text(account.where, style=_STYLES[account.what]))
        parts += [hanging(Text(line, style="dim"), 2) for line in account.history]
        parts.append(hanging(Text(f"next: {account.next}"), 2))
    if found.trace.is_cut:
        parts += [Text(), Text("there is more on Redis than was looked at", style="yellow")]
    show(*parts)
