"""The worker's parts over a broker in memory, and handlers that a test holds by the hand."""

import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from stagedoor.broker import Deliveries, Identity, Pulse
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.entry import Claimed, Entry
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.outcome import Limits
from stagedoor.core.tenure import Stream, Tenure
from stagedoor.errors import BrokerError
from stagedoor.events import EventStream
from stagedoor.settings import Settings
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.weather import Weather
from stagedoor.worker import ExitCode, Given, StopRequest, WorkerSettings, run_worker
from stagedoor.worker.attempt import Attempts, Clocks
from stagedoor.worker.executor import Executor
from stagedoor.worker.held import HeldDelivery, Register
from stagedoor.worker.pace import Pace
from stagedoor.worker.settler import Settler
from stagedoor.worker.standing import Standing
from tests.support.recorder import LIMIT_S, Recorder

LIMITS = Limits(max_attempts=5, max_crashes=5, backoff_base_s=1.0, backoff_cap_s=300.0)


def job_fields(kind: str = "work", order_id: int = 1, **more: str) -> dict[str, str]:
    """Return the fields of a sound entry."""
    ids = {"order_id": str(order_id), "outbox_id": str(order_id)}
    return {"kind": kind, **ids, "request_id": "", "trace": "", **more}


def identity(incarnation: str = "i1") -> Identity:
    """Return the identity of some process."""
    return Identity(incarnation=incarnation, host="h", boot_id="b", pid_namespace="n", pid=7, started=7)


def claim(
    entry_id: str = "1700000000000-0", *, kind: str = "work", deliveries: int = 1, stream: Stream = Stream.JOBS
) -> Claimed:
    """Return a delivery as the broker hands it out."""
    fields = tuple((k.encode(), v.encode()) for k, v in job_fields(kind).items())
    return Claimed(Entry(stream, entry_id, fields), Tenure(stream, entry_id, deliveries))


def spec(function: Callable[..., Any], kind: str = "work", **policy: Any) -> HandlerSpec:
    """Return the handler of a kind."""
    return HandlerSpec(kind=kind, function=function, **policy)


def trust(standing: Standing, ttl_s: float = 10.0) -> None:
    """Let it have beaten well for a whole TTL."""
    now = standing.now()
    for ago_s in (ttl_s, ttl_s / 2, 0.0):
        standing.beat_succeeded(now - ago_s)
    assert standing.may_judge()


async def eventually(is_so: Callable[[], object]) -> None:
    """Wait until something is so that no event tells of; polls, and gives up when it never is."""
    with trio.move_on_after(LIMIT_S) as scope:
        while not is_so():  # noqa: ASYNC110 - what is asked changes in threads, which set no trio.Event
            await trio.sleep(0.001)
    assert not scope.cancelled_caught, "this never came true"


class Gate:
    """A handler that runs until it is let go, in a thread or as a task; it tells who came."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._lock = threading.Lock()
        self.came: list[str] = []
        self.left: list[str] = []

    def handle(self, job: Any, held: Any) -> None:
        """Wait in a thread."""
        with self._lock:
            self.came.append(job.entry_id)
        assert self._open.wait(LIMIT_S), "nobody has opened the gate"
        with self._lock:
            self.left.append(job.entry_id)

    async def handle_async(self, job: Any, held: Any) -> None:
        """Wait as a task."""
        self.came.append(job.entry_id)
        await eventually(self._open.is_set)
        self.left.append(job.entry_id)

    def open(self) -> None:
        """Let everybody go, also those who are still to come."""
        self._open.set()

    async def wait_for(self, count: int) -> None:
        """Wait until that many have come."""
        await eventually(lambda: len(self.came) >= count)


@attrs.frozen(kw_only=True)
class Shop:
    """An executor and a settler at work over a broker in memory; the test claims."""

    broker: FakeBroker
    deliveries: FakeDeliveries
    register: Register
    settler: Settler
    executor: Executor
    recorder: Recorder

    def claim(self, most: int = 100) -> list[str]:
        """Claim what there is and hand it to the executor; return the ids."""
        reply = self.deliveries.read(most, leave=self.executor.left_in_pool())
        self.executor.accept(reply.claimed)
        return [one.entry.entry_id for one in reply.claimed]

    def add_and_claim(self, *kinds: str, **more: str) -> list[str]:
        """Add a job of each kind and claim them all in one read."""
        for number, kind in enumerate(kinds, 1):
            self.broker.add(job_fields(kind, number, **more))
        return self.claim()


@asynccontextmanager
async def open_shop(
    *specs: HandlerSpec,
    slots: int = 8,
    orphan_after_s: float = 0.0,
    make_context: Callable[[Any, HeldDelivery], Any] = lambda _job, held: held,
    broker: FakeBroker | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Shop]:
    """Run executor and settler while the block runs; then cancel them, as a crash does."""
    recorder, broker = Recorder(), broker or FakeBroker()
    events = EventStream(recorder)
    deliveries = FakeDeliveries(broker, settings=DeliverySettings(wanted_name="w"))
    deliveries.ensure_groups()
    deliveries.join(identity(), Pulse(slots=slots))
    register = Register(Standing(10, clock))
    weather = Weather(events=events, rng=random.Random(1), unavailable=BrokerError)
    settler = Settler(deliveries, register=register, weather=weather, events=events, wall_clock=time.time)
    clocks = Clocks(wall=time.time, monotonic=clock)
    attempts = Attempts(
        {one.kind: one for one in specs},
        make_context=make_context,
        limits=LIMITS,
        events=events,
        clocks=clocks,
        rng=random.Random(1),
    )
    executor = Executor(
        slots=slots,
        attempts=attempts,
        register=register,
        settler=settler,
        pace=Pace(500, slots=slots),
        events=events,
        clocks=clocks,
        orphan_after_s=orphan_after_s,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(settler.run)
        await nursery.start(executor.run)
        yield Shop(
            broker=broker,
            deliveries=deliveries,
            register=register,
            settler=settler,
            executor=executor,
            recorder=recorder,
        )
        nursery.cancel_scope.cancel()


class Life:
    """A whole worker in this process: start it with `living`."""

    def __init__(
        self,
        deliveries: Deliveries,
        specs: Iterable[HandlerSpec],
        *,
        incarnation: str,
        settings: dict[str, str],
        make_context: Callable[[Any, HeldDelivery], Any],
    ) -> None:
        self.deliveries = deliveries
        self.recorder = Recorder()
        self.stop = StopRequest()
        self.name = ""
        self.code: ExitCode | None = None
        self.ended = trio.Event()
        self.scope = trio.CancelScope()
        self._specs = {one.kind: one for one in specs}
        self._identity = identity(incarnation)
        self._settings = WorkerSettings.of(Settings.load({}, settings))
        self._make_context = make_context

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the worker; its exit code is in *code* when it has ended."""
        with self.scope:
            self.code = await run_worker(
                Given(
                    deliveries=self.deliveries,
                    settings=self._settings,
                    identity=self._identity,
                    handlers=self._specs,
                    make_context=self._make_context,
                    stop=self.stop,
                    events=EventStream(self.recorder),
                    rng=random.Random(1),
                ),
                task_status=task_status,
            )
        self.ended.set()

    def die(self) -> None:
        """End as a crash does: nothing is settled or released any more."""
        self.scope.cancel()

    async def wait_ended(self) -> ExitCode:
        """Wait until it has ended in order; return its exit code."""
        with trio.fail_after(LIMIT_S):
            await self.ended.wait()
        assert self.code is not None, "it was cancelled"
        return self.code


@asynccontextmanager
async def living(
    broker: FakeBroker,
    *specs: HandlerSpec,
    name: str = "w",
    incarnation: str = "i1",
    make_context: Callable[[Any, HeldDelivery], Any] = lambda _job, held: held,
    deliveries: Deliveries | None = None,
    is_awaited: bool = True,
    **settings: Any,
) -> AsyncIterator[Life]:
    """Run a worker while the block runs, and stop it in a hurry at its end; *settings* are texts."""
    own = deliveries or FakeDeliveries(
        broker,
        settings=DeliverySettings(
            wanted_name=name, liveness_ttl_ms=round(float(settings.get("liveness_ttl_s", "10")) * 1000)
        ),
    )
    life = Life(own, specs, incarnation=incarnation, settings=settings, make_context=make_context)
    async with trio.open_nursery() as nursery:
        if is_awaited:
            life.name = await nursery.start(life.run)
        else:
            nursery.start_soon(life.run)
        try:
            yield life
        finally:
            life.stop.ask("the test is over")
            life.stop.ask("the test is over")
