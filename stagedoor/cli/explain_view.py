"""Finding out what ``explain`` is asked, and showing it."""

import contextlib
from collections.abc import Iterator, Sequence

import attrs
import click
from rich.console import RenderableType
from rich.text import Text

from stagedoor.broker.calls import Calls
from stagedoor.broker.connection import Link, masked
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.broker.tracing import Trace, Tracing, Wanted
from stagedoor.cli.books import Books, books_of
from stagedoor.cli.explaining import Account, Found, about_token, accounts, data_of, shape_of
from stagedoor.cli.explaining_calls import entry_of
from stagedoor.cli.explaining_jobs import Rules
from stagedoor.cli.explaining_order import OrderFacts, Surroundings, about_order
from stagedoor.cli.options import number_of_id
from stagedoor.cli.order_show import token_of
from stagedoor.cli.output import hanging, print_json, show
from stagedoor.cli.text import printable
from stagedoor.core.call import CallState
from stagedoor.core.codec import Fields
from stagedoor.core.history_data import readable
from stagedoor.core.journal import CALL_ID_PATTERN, Journal, is_call_id
from stagedoor.core.keys import Keys
from stagedoor.errors import BrokerError, BrokerUnavailable, OrderError, OrderNotFound
from stagedoor.flows import outbox_call_id
from stagedoor.orders import TokenState
from stagedoor.orders.history import OutboxRecord
from stagedoor.settings import Settings

MOST_CALLS = 20
"""Calls that are read whole for one order, those first that still go on."""
MOST_ENTRIES = 50
"""Entries of one order, the last ones, that are asked for one by one: their fields may be gone."""
LOOKS = 2
"""At an order that seems to be lost: a job that is moved just then is missed by one look, and hardly by two."""
_LONGEST_LINE = 4000
_STYLES = {
    "call": "",
    "dead": "red",
    "outbox": "yellow",
    "delayed": "yellow",
    "settled": "green",
    "lost": "bold red",
    "stuck": "red",
    "entry": "",
    "nothing": "dim",
}


def explain(settings: Settings, asked: str, kind: str | None, *, as_json: bool) -> int:
    """Print what is known; returns the exit code."""
    rules = Rules(
        liveness_ttl_s=settings.liveness_ttl_s, max_attempts=settings.max_attempts, max_crashes=settings.max_crashes
    )
    asked = asked.strip()
    if not asked:
        raise click.BadParameter(
            "expected an id of an entry, an outbox row, an order or a call, or a token, found none"
        )
    if kind != "token":
        asked = shape_of(asked)[0] if kind else asked
    with books_of(settings) as books, _looking(settings) as (tracing, calls):
        meant, kind = (asked, kind) if kind else _guessed(asked, calls)
        if kind == "call":
            found = _call(meant, books, calls, tracing)
        else:
            found = _found(meant, kind, books, tracing)
            found = attrs.evolve(found, calls=tuple(_calls_of(found, calls)))
        found = attrs.evolve(found, around=_around(found, books, calls, tracing))
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


def _guessed(asked: str, calls: Calls) -> tuple[str, str | None]:
    """Return an id and what it is: a call where there is one with it, or where no token looks like it."""
    meant, kind = shape_of(asked)
    if kind == "token" and is_call_id(meant) and (not meant.isalnum() or calls.show(meant) is not None):
        kind = "call"
    return meant, kind


def _around(found: Found, books: Books | None, calls: Calls, tracing: Tracing) -> Surroundings | None:
    """Look around an order that is not as it must be: whether anything is under way that puts it right."""
    if books is None or found.order is None or not found.order.problems:
        return None
    number = found.order.order_id
    # The rows come first, the order last: what is published, or done, meanwhile is seen in the next place.
    records = books.history.of_order(number)
    traces = tuple(tracing.find(_wanted_of(number, records)) for _ in range(LOOKS))
    # Also those that were found by what was asked, as they are by now: nothing else may lead to them.
    known = tuple(_read(calls, [journal.call_id for journal in found.calls]))
    found = attrs.evolve(found, trace=traces[-1], records=tuple(records))
    started = tuple(_calls_of(found, calls))
    return Surroundings(order=_facts(books, number), traces=traces, records=records, calls=(*known, *started))


def _call(asked: str, books: Books | None, calls: Calls, tracing: Tracing) -> Found:
    if not is_call_id(asked):
        raise click.BadParameter(f"expected an id of a call, {CALL_ID_PATTERN}, found {asked[:70]!a}")
    journal = calls.show(asked)
    if journal is not None:
        readable(journal)
    wanted = Wanted()
    if journal is not None and (journal.state is CallState.PARKED or entry_of(journal)):
        ids = frozenset(filter(None, (entry_of(journal),)))
        wanted = Wanted(entry_ids=ids, call_ids=frozenset((asked,)))
    number = "" if journal is None else journal.metadata.get("order_id", "")
    order = None if books is None or not _is_number(number) else _facts(books, int(number))
    return Found(
        kind="call", text=asked, trace=tracing.find(wanted), order=order, calls=() if journal is None else (journal,)
    )


def _is_number(text: str) -> bool:
    with contextlib.suppress(click.BadParameter):
        return bool(number_of_id(text))
    return False


def _calls_of(found: Found, calls: Calls) -> Iterator[Journal]:
    """Yield the calls that what was found belongs to, or has started."""
    named = [text(value) for fields in _all_fields(found.trace) for name, value in fields if name == b"call_id"]
    about = [call.call_id for call in sorted(found.trace.calls, key=lambda call: not call.goes_on)]
    started = [outbox_call_id(record.row.outbox_id) for record in found.records]
    if found.kind == "outbox" and not started:
        started.append(outbox_call_id(int(found.text)))  # a row is kept for a week, a call for as long as it takes
    return _read(calls, list(dict.fromkeys([*named, *about, *started]))[:MOST_CALLS])


def _read(calls: Calls, call_ids: Sequence[str]) -> Iterator[Journal]:
    for call_id in call_ids:
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
    if shape_of(asked)[1] != "entry":
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
    records = () if books is None else tuple(books.history.of_order(number))
    return Found(
        kind="order",
        text=str(number),
        trace=tracing.find(_wanted_of(number, records)),
        records=records,
        order=None if books is None else _facts(books, number),
        token=token,
        has_book=books is not None,
    )


def _wanted_of(order_id: int, records: Sequence[OutboxRecord]) -> Wanted:
    entry_ids = [record.entry_id for record in records if record.entry_id]
    return Wanted(order_ids=frozenset((str(order_id),)), entry_ids=frozenset(entry_ids[-MOST_ENTRIES:]))


def _token(asked: str, books: Books | None, tracing: Tracing) -> Found:
    state = None if books is None else books.orders.check_token(token_of(asked))
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
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OrderError(f"order {order_id}: what the order book holds of it cannot be read: {error}") from error
    tickets = books.orders.tickets(order_id)
    valid = sum(ticket.state == "valid" for ticket in tickets)
    report = books.orders.check_invariant([order_id])
    return OrderFacts(
        order_id=order_id,
        status=order.status,
        version=order.version,
        issue=books.orders.issue_state(order),
        valid=valid,
        void=len(tickets) - valid,
        positions=len(order.placed_positions),
        problems=tuple(one.problem for one in (*report.lost, *report.wrong)),
    )


# -- for people ------------------------------------------------------------------------


def _show(found: Found, told: list[Account]) -> None:
    parts: list[RenderableType] = []
    if found.token is not None:
        parts.append(_line(about_token(found.token)))
    if found.order is not None:
        parts.append(_line(about_order(found.order)))
    elif found.kind == "order" and found.has_book:
        parts.append(_line(f"there is no order {found.text} in the order book", style="yellow"))
    for account in told:
        if parts:
            parts.append(Text())
        parts.append(_line(account.where, _STYLES[account.what]))
        parts += [hanging(_line(line, "dim"), 2) for line in account.history]
        parts.append(hanging(_line(f"next: {account.next}"), 2))
    if found.trace.is_cut:
        parts += [Text(), Text("there is more on Redis than was looked at", style="yellow")]
    show(*parts)


def _line(text: str, style: str = "") -> Text:
    """Return one line; whatever of it came from elsewhere, nothing in it drives the terminal or forges another."""
    return Text(printable(text, _LONGEST_LINE), style=style)
