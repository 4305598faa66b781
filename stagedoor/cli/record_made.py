"""Gathering what ``record`` writes down, and writing it."""

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import click

from stagedoor.broker.connection import Link, masked
from stagedoor.broker.tracing import Trace, Tracing, Wanted
from stagedoor.cli.books import Books, books_of
from stagedoor.cli.invented import new_inventor, problem_of
from stagedoor.cli.output import print_json
from stagedoor.cli.plugins import handler_kinds, load_flows
from stagedoor.cli.recording import Kinds, RawEntry, Recorded, record
from stagedoor.core.codec import Fields
from stagedoor.core.keys import Keys
from stagedoor.errors import BrokerUnavailable, ConfigurationError, OrderNotFound
from stagedoor.order import Order
from stagedoor.orders.history import OutboxRecord
from stagedoor.replay.fixture import ENTRIES, EXPECTED, ORDERS, FixtureError, load_fixture
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
    kinds = _kinds(settings)
    made = record(
        orders,
        records,
        raw,
        inventor=new_inventor(secrets.token_bytes(32), kinds.all),
        kinds=kinds,
        about=asked.about or f"Recorded: {len(orders)} orders as they were, with invented people.",
    )
    write_fixture(asked.path, made)
    told = {"recorded": str(asked.path), "orders": len(orders), "entries": len(records) + len(raw)}
    if as_json:
        print_json(told | {"order_ids": {str(old): new for old, new in made.order_ids.items()}})
    else:
        print(f"{told['orders']} orders and {told['entries']} entries are in {asked.path}; look through it before")
        print(f"you show it to anybody, and play it: python -m stagedoor replay {asked.path}")
    return 0


def _kinds(settings: Settings) -> Kinds:
    flows = frozenset(load_flows(settings.plugins))
    return Kinds(handlers=handler_kinds(settings.plugins) - flows, flows=flows)


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


# -- writing ------------------------------------------------------------------


def write_fixture(path: Path, made: Recorded) -> None:
    """Put the three files into the new folder, all or none.

    Durability: they are written beside it and read back before they come to stand where
    they belong; a process that is killed leaves a folder whose name begins with a dot.

    Raises:
        ConfigurationError: it cannot be written, or not be read again; nothing of it is left.
    """
    try:
        with contextlib.ExitStack() as undo:
            _write_beside(path, made, undo)
            undo.pop_all()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error}; nothing of it is left") from error


def _write_beside(path: Path, made: Recorded, undo: contextlib.ExitStack) -> None:
    with tempfile.TemporaryDirectory(prefix=".record-", dir=_new_folders(path, undo)) as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        for name, text in ((ORDERS, made.orders), (ENTRIES, made.entries), (EXPECTED, made.expected)):
            (new / name).write_bytes(text.encode())
        _check(new, path)
        if not path.exists():
            new.rename(path)
            return
        # An empty folder may be somebody's, or the one that they stand in: it stays, and is filled.
        for name in (ORDERS, ENTRIES, EXPECTED):
            (new / name).rename(path / name)
            undo.callback((path / name).unlink)


def _new_folders(path: Path, undo: contextlib.ExitStack) -> Path:
    """Return the folder to write in, made if need be; *undo* removes those that were made."""
    if path.exists():
        return path
    for folder in reversed([path.parent, *path.parent.parents]):
        if not folder.exists():
            folder.mkdir()
            undo.callback(folder.rmdir)
    return path.parent


def _check(new: Path, path: Path) -> None:
    try:
        load_fixture(new)
    except FixtureError as error:
        problems = [problem.replace(str(new), str(path)) for problem in error.problems]
        raise ConfigurationError(
            [*problems, f"what was recorded cannot be read again: nothing of it is left in {path}"]
        ) from error
