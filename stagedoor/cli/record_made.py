"""Gathering what ``record`` writes down, and writing it."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import attrs
import click

from stagedoor.broker.connection import Link, masked
from stagedoor.broker.tracing import Trace, Tracing, Wanted
from stagedoor.cli.books import Books, books_of
from stagedoor.cli.inventing import Inventor, problem_of
from stagedoor.cli.output import print_json
from stagedoor.cli.plugins import handler_kinds
from stagedoor.cli.recording import RawEntry, Recorded, record
from stagedoor.core.codec import Fields
from stagedoor.core.keys import Keys
from stagedoor.errors import BrokerUnavailable, ConfigurationError, OrderNotFound
from stagedoor.order import Order
from stagedoor.orders.history import OutboxRecord
from stagedoor.replay.fixture import ENTRIES, EXPECTED, ORDERS, load_fixture
from stagedoor.settings import Settings


@attrs.frozen(kw_only=True)
class Asked:
    """What is to be recorded, and where to."""

    path: Path
    last: int
    order_ids: tuple[int, ...]
    about: str


def run(settings: Settings, asked: Asked, *, as_json: bool) -> int:
    """Record; returns the exit code."""
    if asked.path.exists() and (not asked.path.is_dir() or any(asked.path.iterdir())):
        raise click.UsageError(f"{asked.path} is there already; name a new folder")
    with books_of(settings) as books, _tracing(settings) as tracing:
        if books is None:
            raise ConfigurationError("orders_url: there is no order book here to record from")
        orders, records, raw = _gathered(books, tracing, asked)
    if not orders and not raw:
        print_json({"recorded": None}) if as_json else print("there is nothing to record")
        return 1
    made = record(
        orders,
        records,
        raw,
        inventor=Inventor(secrets.token_bytes(32)),
        kinds=handler_kinds(settings.plugins),
        about=asked.about or f"Recorded: {len(orders)} orders as they were, with invented people.",
    )
    _write(asked.path, made)
    told = {"recorded": str(asked.path), "orders": len(orders), "entries": len(records) + len(raw)}
    if as_json:
        print_json(told | {"order_ids": {str(old): new for old, new in made.order_ids.items()}})
    else:
        print(f"{told['orders']} orders and {told['entries']} entries are in {asked.path}; look through it before")
        print(f"you show it to anybody, and play it: python -m stagedoor replay {asked.path}")
    return 0


@contextlib.contextmanager
def _tracing(settings: Settings) -> Iterator[Tracing]:
    link = Link(settings.redis_url, block_ms=0, namespace=settings.namespace)
    try:
        yield Tracing(link, Keys(settings.namespace))
    except BrokerUnavailable as error:
        raise BrokerUnavailable(f"{masked(settings.redis_url)}: {error}") from error
    finally:
        link.close()


def _gathered(books: Books, tracing: Tracing, asked: Asked) -> tuple[list[Order], list[OutboxRecord], list[RawEntry]]:
    if asked.order_ids:
        order_ids = list(dict.fromkeys(asked.order_ids))
        trace = tracing.find(Wanted(order_ids=frozenset(map(str, order_ids))))
    else:
        order_ids = list(dict.fromkeys(one.row.order_id for one in books.history.last(asked.last)))
        trace = tracing.last(asked.last)
    orders = list(map(books.orders.get, order_ids)) if asked.order_ids else _known(books, order_ids)
    records = [one for order in orders for one in books.history.of_order(order.order_id)]
    rows = {str(one.row.outbox_id) for one in records}
    raw = [entry for entry in _raw(trace) if _text(entry.fields, b"outbox_id") not in rows or problem_of(entry.fields)]
    return orders, records, raw[: asked.last] if not asked.order_ids else raw


def _known(books: Books, order_ids: list[int]) -> list[Order]:
    found = []
    for order_id in order_ids:
        with contextlib.suppress(OrderNotFound):
            found.append(books.orders.get(order_id))
    return found


def _raw(trace: Trace) -> Iterator[RawEntry]:
    for entry in trace.entries:
        yield RawEntry(entry_id=entry.entry_id, fields=entry.fields)
    for delayed in trace.delayed:
        if delayed.fields:
            yield RawEntry(entry_id=delayed.member.partition(":")[2], fields=delayed.fields)
    for letter in trace.letters:
        if letter.fields:
            yield RawEntry(entry_id=letter.entry_id, fields=letter.fields)


def _text(fields: Fields, name: bytes) -> str:
    return next((value.decode("utf-8", "replace") for key, value in fields if key == name), "")


def _write(path: Path, made: Recorded) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in ((ORDERS, made.orders), (ENTRIES, made.entries), (EXPECTED, made.expected)):
        (path / name).write_text(text, "utf-8")
    load_fixture(path)
