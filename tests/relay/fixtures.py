"""A relay between a real order book on SQLite and a real Redis, with ways to break off in the middle."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from stagedoor.broker.connection import Link
from stagedoor.broker.redis import RedisPublishing
from stagedoor.core.keys import Keys
from stagedoor.events import Event, EventStream
from stagedoor.orders import OrderBook, Outbox
from stagedoor.relay import Relay
from tests.support.orders import NACHTMUSIK


class CutOff(Exception):
    """Stands for SIGKILL at a named moment: nothing after it runs."""


class Breakable:
    """Passes everything on to *target*, but calls a hook before or after the methods that are named.

    A hook that raises ends the relay there, as SIGKILL would.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self.before: dict[str, Callable[[], object]] = {}
        self.after: dict[str, Callable[[], object]] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            self.before.get(name, lambda: None)()
            result = method(*args, **kwargs)
            self.after.get(name, lambda: None)()
            return result

        return call


@attrs.frozen(kw_only=True)
class Rig:
    """What a test of the relay works with."""

    book: OrderBook
    link: Link
    keys: Keys
    told: list[Event] = attrs.Factory(list)
    heard: dict[str, trio.Event] = attrs.Factory(lambda: defaultdict(trio.Event))

    def relay(
        self,
        *,
        outbox: Any = None,
        publishing: Any = None,
        namespace: str | None = None,
        every_s: float = 0.001,
        stream_maxlen: int = 100_000,
    ) -> Relay:
        """Return a new relay, as another process would have it."""
        return Relay(
            self.book.outbox if outbox is None else outbox,
            self.publishing(stream_maxlen) if publishing is None else publishing,
            events=EventStream(self._hear),
            namespace=namespace,
            every_s=every_s,
            rng=random.Random(1),
        )

    def _hear(self, event: Event) -> None:
        self.told.append(event)
        self.heard[event.name].set()

    @property
    def client(self) -> Any:
        """A client of the stream's Redis, without its many types."""
        return self.link.patient

    def publishing(self, stream_maxlen: int = 100_000) -> RedisPublishing:
        """Return the stream's side."""
        return RedisPublishing(self.link, self.keys, stream_maxlen=stream_maxlen)

    def place(self, count: int = 1) -> list[int]:
        """Place orders, each with its outbox row."""
        return self.book.place_many([NACHTMUSIK] * count)

    def entries(self) -> list[dict[str, str]]:
        """Return the fields of what is in the stream."""
        found = self.client.xrange(self.keys.stream)
        return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in found]

    def outbox_ids(self) -> list[int]:
        """Return the rows that have an entry in the stream, in its order."""
        return [int(fields["outbox_id"]) for fields in self.entries()]

    def rows(self) -> dict[int, tuple[str | None, int | None]]:
        """Return entry id and Redis' count of each published row."""
        return published_rows(self.book.outbox)

    def names(self) -> list[str]:
        """Return the names of the events that were told."""
        return [event.name for event in self.told]


def published_rows(outbox: Outbox) -> dict[int, tuple[str | None, int | None]]:
    """Return entry id and Redis' count of each published row."""
    statement = "SELECT id, entry_id, seq FROM outbox WHERE published_at IS NOT NULL ORDER BY id"
    with outbox._database.read() as connection:
        return {row[0]: (row[1], row[2]) for row in connection.exec_driver_sql(statement)}


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    """An order book of this test alone."""
    with OrderBook.open(f"sqlite:///{tmp_path}/book.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


@pytest.fixture
def rig(book: OrderBook, redis_url: str, namespace: str) -> Iterator[Rig]:
    """An order book, the run's Redis, and a namespace of this test alone."""
    link = Link(redis_url, block_ms=0)
    yield Rig(book=book, link=link, keys=Keys(namespace))
    link.close()
