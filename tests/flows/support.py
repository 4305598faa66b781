"""A small world of one worker: a broker in memory, an engine, and a clock that moves when it is told to."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from stagedoor.broker.calls import Calls, NewCall
from stagedoor.broker.deliveries import Deliveries, Pulse, Settlement
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.call import CallState
from stagedoor.core.entry import Claimed
from stagedoor.core.flow import FlowSpec, flow_of
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.job import parse_job
from stagedoor.core.journal import Journal
from stagedoor.core.outcome import Done, Limits, Outcome, UnknownKind, of_exception
from stagedoor.core.tenure import Tenure
from stagedoor.errors import LeaseLost
from stagedoor.flows.attempts import Policy
from stagedoor.flows.delivery import Delivery
from stagedoor.flows.engine import Engine
from stagedoor.flows.keeper import Keeper
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.testing.fake_calls import FakeCalls
from stagedoor.testing.fake_store import ManualClock
from tests.broker.harness import identity

LIMITS = Limits(max_attempts=5, max_crashes=5, backoff_base_s=1.0, backoff_cap_s=300.0)


class Killed(BaseException):
    """The process is gone: nothing after it happens."""


class Counted:
    """A port whose calls are counted, and which dies before or after one of them.

    *log* has the verbs in order. With *dies_at* k, the k-th call (from 1) raises `Killed`, after
    its effect if *after_effect*; and so does every call after it, as from a process that is gone.
    """

    def __init__(self, calls: Calls, *, dies_at: int | None = None, after_effect: bool = False) -> None:
        self._calls = calls
        self._dies_at = dies_at
        self._after_effect = after_effect
        self._lock = threading.Lock()
        self.is_dead = False
        self.log: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._calls, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                if self.is_dead:
                    raise Killed
                self.log.append(name)
                is_last = len(self.log) == self._dies_at
                if is_last and not self._after_effect:
                    self.is_dead = True
                    raise Killed
                result = method(*args, **kwargs)
                if is_last:
                    self.is_dead = True
                    raise Killed
                return result

        return call


@attrs.define
class FakeCtx:
    """A handler context: what a step may ask."""

    check: Callable[[], None]


@attrs.define
class Worker:
    """One worker process."""

    name: str
    deliveries: Deliveries
    calls: Any
    engine: Engine
    keeper: Keeper
    lent: list[tuple[Callable[[], None], int]] = attrs.Factory(list)
    is_ours: bool = True
    limits: list[float | None] = attrs.Factory(list)


class World:
    """One Redis, any number of workers, and flows that all of them know."""

    def __init__(self, *flows: Callable[[Any], Any]) -> None:
        self.clock = ManualClock()
        self.broker = FakeBroker(self.clock)
        self.specs: dict[str, FlowSpec] = {}
        self.know(*flows)
        self._numbers = iter(range(1, 10_000))
        self._batches = iter(range(1, 1_000_000))
        self.outside = FakeCalls(self.broker)
        self.paused: list[float] = []

    def know(self, *flows: Callable[[Any], Any]) -> None:
        """Deploy these functions."""
        for function in flows:
            spec = flow_of(function)
            assert spec is not None
            self.specs[spec.name] = spec

    def now(self) -> float:
        return self.clock() / 1000

    def worker(
        self,
        *,
        counted: Callable[[Calls], Any] = Counted,
        lend: Callable[[Callable[[], None], int], None] | None = None,
    ) -> Worker:
        """Start a worker."""
        name = f"w{next(self._numbers)}"
        deliveries = FakeDeliveries(self.broker, settings=DeliverySettings(wanted_name=name))
        deliveries.ensure_groups()
        deliveries.join(identity(f"i-{name}"), Pulse(slots=4))
        calls = counted(FakeCalls(self.broker, owner=deliveries))
        return make_worker(name, deliveries, calls, clock=self.now, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.clock.advance(round(seconds * 1000))

    # -- what happens ---------------------------------------------------------------------

    def start(self, name: str, call_id: str = "c1", **more: Any) -> None:
        self.outside.start(NewCall(call_id=call_id, flow=name, **more))

    def signal(self, name: str, value: str = "null", *, call_id: str = "c1", token: str = "") -> Any:
        return self.outside.signal(call_id, name, value, token=token or f"t{next(self._batches)}")

    def run_ready(self, worker: Worker, *, most: int = 10_000) -> int:
        """Handle what is ready now; return how many entries."""
        count = 0
        while count < most:
            self.promote(worker)
            claimed = worker.deliveries.read(1).claimed
            if not claimed:
                return count
            count += 1
            self.handle(worker, claimed[0])
        return count

    def run(self, worker: Worker | None = None, *, most: int = 10_000, within_s: float = float("inf")) -> Worker:
        """Handle everything, moving the clock to whatever is due next *within_s* seconds, until nothing is owed."""
        worker = worker or self.worker()
        while True:
            done = self.run_ready(worker, most=most)
            due = self.next_due_s()
            if done >= most or due is None or due > within_s:
                return worker
            self.advance(due)

    def handle(self, worker: Worker, claimed: Claimed) -> Outcome | None:
        """Run one delivery, and settle it as the worker would."""
        outcome = handle(worker, claimed, specs=self.specs, now=self.now())
        if outcome is not None:
            worker.deliveries.settle(
                next(self._batches), [Settlement(tenure=claimed.tenure, fields=claimed.entry.fields, outcome=outcome)]
            )
        return outcome

    def promote(self, worker: Worker) -> None:
        while worker.deliveries.promote().moved:
            pass

    def next_due_s(self) -> float | None:
        due = [at for at in self.broker.delayed.values() if at > self.clock()]
        return (min(due) - self.clock()) / 1000 if due else None

    def advance(self, seconds: float) -> None:
        self.clock.advance(max(1, round(seconds * 1000)))

    def take_over(self, worker: Worker) -> None:
        """Let all others have lapsed, and what they held be anybody's."""
        self.clock.advance(11_000)
        worker.deliveries.beat(Pulse(slots=4))
        worker.deliveries.sweep()

    # -- what is seen ---------------------------------------------------------------------

    def show(self, call_id: str = "c1") -> Journal:
        found = self.outside.show(call_id)
        assert found is not None
        return found

    def state(self, call_id: str = "c1") -> CallState:
        return self.show(call_id).state

    def result(self, call_id: str = "c1") -> str | None:
        outcome = self.show(call_id).outcome
        return None if outcome is None else outcome.result

    def error(self, call_id: str = "c1") -> str:
        shown = self.show(call_id)
        return shown.outcome.error if shown.outcome is not None else shown.parked_error


def make_worker(
    name: str,
    deliveries: Deliveries,
    calls: Any,
    *,
    clock: Callable[[], float],
    pause: Callable[[float], None],
) -> Worker:
    """Return a worker's flow parts over these ports."""
    keeper = Keeper(calls, clock=clock, renew_every_s=10.0, grace_s=5.0, rng=random.Random(1))
    engine = Engine(
        calls,
        keeper=keeper,
        defaults=Policy(attempts=5, base=1.0, cap=300.0),
        clock=clock,
        rng=random.Random(1),
        pause=pause,
    )
    return Worker(name, deliveries, calls, engine, keeper)


def delivery(worker: Worker, tenure: Tenure, *, lend: Callable[..., None] | None = None) -> Delivery:
    """Return what the worker gives an engine along with an entry."""

    def check() -> None:
        if not worker.is_ours:
            raise LeaseLost("taken away")

    return Delivery(
        tenure=lambda: tenure,
        is_ours=lambda: worker.is_ours,
        check=check,
        make_ctx=FakeCtx,
        limit=worker.limits.append,
        lend=lend or (lambda work, most: worker.lent.append((work, most))),
    )


def handle(worker: Worker, claimed: Claimed, *, specs: Mapping[str, FlowSpec], now: float) -> Outcome | None:
    """Run one delivery; return its outcome, None where there is nothing to write."""
    job = parse_job(claimed.entry)
    spec = specs.get(job.kind)
    if spec is None:
        return UnknownKind(0.1, job.hops + 1)
    try:
        outcome = worker.engine.run_entry(spec, job, delivery(worker, claimed.tenure))
    except Exception as error:  # noqa: BLE001 - as the executor does
        handler = HandlerSpec(kind=job.kind, function=lambda _job, _ctx: None)
        return of_exception(error, job, handler, limits=LIMITS, rng=random.Random(1), now=now)
    if outcome is None:
        return Done()
    return None if type(outcome).__name__ == "Settled" else outcome


class Threads:
    """A `Lend` that starts as many threads as it is asked for, up to some number, and can be joined."""

    def __init__(self, most: int) -> None:
        self._free = threading.Semaphore(most)
        self._started: list[threading.Thread] = []

    def __call__(self, work: Callable[[], None], most: int) -> None:
        for _ in range(most):
            if not self._free.acquire(blocking=False):
                return
            thread = threading.Thread(target=self._run, args=(work,))
            self._started.append(thread)
            thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._free.release()

    def join(self) -> None:
        for thread in self._started:
            thread.join(30)


def wait_until(is_so: Callable[[], object]) -> None:
    """Wait for what a thread does and tells nobody; gives up when it never does."""
    for _ in range(30_000):
        if is_so():
            return
        time.sleep(0.001)
    raise AssertionError("this never came true")


def all_steps(journal: Journal) -> Iterator[tuple[str, str]]:
    """Return each step's key and state."""
    for key, step in journal.steps.items():
        yield key, step.state.value
