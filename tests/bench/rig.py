"""What every measurement of the worker needs: a private Redis, entries, a worker in this process."""

import contextlib
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

import trio

from stagedoor.broker import OutboxEntry
from stagedoor.broker.connection import Link
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries, RedisPublishing
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.keys import Keys
from stagedoor.events import EventStream
from stagedoor.settings import Settings
from stagedoor.worker import Given, StopRequest, WorkerSettings, run_worker
from stagedoor.worker.identity import current_identity
from tests.support.redis_server import RedisServer

BATCH = 200


@contextlib.contextmanager
def private_redis() -> Iterator[RedisServer]:
    """Start a server of our own and end it."""
    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        server = RedisServer(Path(folder) / "redis.log")
        server.start()
        try:
            yield server
        finally:
            server.remove()


class Rig:
    """One namespace on a private server, and a worker for it in this process."""

    def __init__(self, server: RedisServer, **settings: str) -> None:
        self.link = Link(server.url)
        self.keys = Keys(f"b-{uuid4().hex[:12]}")
        self.settings = Settings.load({}, settings)
        self.publishing = RedisPublishing(self.link, self.keys, stream_maxlen=1_000_000)
        self.deliveries = RedisDeliveries(self.link, self.keys, settings=DeliverySettings(wanted_name="bench"))
        self._published = 0

    def publish(self, kind: str, count: int) -> None:
        """Add entries as the relay does."""
        for _ in range(0, count, BATCH):
            rows = [self._row(kind) for _ in range(min(BATCH, count))]
            self.publishing.publish("bench", rows)

    def _row(self, kind: str) -> OutboxEntry:
        self._published += 1
        number = str(self._published).encode()
        fields = {b"kind": kind.encode(), b"order_id": number, b"outbox_id": number, b"request_id": b"", b"trace": b""}
        return OutboxEntry(self._published, tuple(fields.items()))

    async def work(
        self,
        handlers: Mapping[str, HandlerSpec],
        until: Callable[[], Awaitable[Any]],
        make_context: Callable[..., Any] = lambda _job, _held: None,
    ) -> None:
        """Run a worker until *until* returns, then stop it cleanly."""
        stop = StopRequest()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._run, handlers, make_context, stop)
            await until()
            stop.ask("measured")

    async def _run(
        self,
        handlers: Mapping[str, HandlerSpec],
        make_context: Callable[..., Any],
        stop: StopRequest,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        await run_worker(
            Given(
                deliveries=self.deliveries,
                settings=WorkerSettings.of(self.settings),
                identity=current_identity(),
                handlers=handlers,
                make_context=make_context,
                stop=stop,
                events=EventStream(),
            ),
            task_status=task_status,
        )


class Countdown:
    """Counts calls from any thread; knows when the first and the last came."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()
        self._done = threading.Event()
        self.began_at = 0.0
        self.ended_at = 0.0

    def begin(self) -> None:
        """Note that the first call begins; later ones change nothing."""
        with self._lock:
            self.began_at = self.began_at or perf_counter()

    def hit(self) -> None:
        """Count one call."""
        with self._lock:
            now = perf_counter()
            self.began_at = self.began_at or now
            self._left -= 1
            if self._left == 0:
                self.ended_at = now
                self._done.set()

    async def wait(self) -> None:
        """Wait until all calls have come."""
        await trio.to_thread.run_sync(self._done.wait, abandon_on_cancel=True)

    @property
    def seconds(self) -> float:
        """The time from the first call to the last."""
        return self.ended_at - self.began_at
