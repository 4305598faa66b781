"""Metrics: what happens, counted, and how things are, asked when somebody scrapes.

Counters are fed by events. Gauges of this process are read from its `Vitals`, and
those of the queue from Redis, in the scraping thread and at most once in five
seconds, however many scrape. Labels are bounded: a kind that is not registered
here is ``other``, for kinds come from whoever writes the stream.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stagedoor.broker.inspection import Overview, StreamView
from stagedoor.core.call import CallState
from stagedoor.core.outcome import Outcome
from stagedoor.errors import BrokerError
from stagedoor.events import (
    BrokerDown,
    DeliverySettled,
    EntriesReclaimed,
    EntriesReturned,
    EntryTrimmed,
    Event,
    JobsPromoted,
    TenureLost,
    UnreadTrimmed,
    WorkerSwept,
)
from stagedoor.worker.vitals import Vitals

OTHER = "other"
REMEMBER_S = 5.0
"""A look takes one call of ten commands: however often somebody scrapes, at most one call in five seconds."""
_OUTCOMES = frozenset(outcome.word for outcome in get_args(Outcome))
_PASS_ENDINGS = frozenset((*(state.value for state in CallState), "lost"))
_ATTEMPTS = ("done", "retry", "failed")
_FENCED_AT = frozenset(("settle", "renew", "check", "pass"))
_RUN_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_QUEUE_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)


class Metrics:
    """All metrics of one worker process, in a registry of their own.

    Args:
        kinds: that are registered here; the only values of the label ``kind`` besides ``other``.
        renderers: likewise of the label ``renderer``.
        vitals: of this worker.
        look: asks Redis; may raise `BrokerError`.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        kinds: Iterable[str],
        renderers: Iterable[str],
        vitals: Vitals,
        look: Callable[[], Overview],
        clock: Callable[[], float],
    ) -> None:
        self.registry = CollectorRegistry()
        self._kinds = frozenset(kinds)
        self._renderers = frozenset(renderers)
        self._outcomes = self._counter("outcomes", "deliveries by what became of them", "kind", "outcome")
        self._dead = self._counter("dead_letters", "dead letters written here", "reason")
        self._fenced = self._counter("fenced", "tenures found lapsed: nothing was written", "at")
        self._swept = self._counter("swept", "lapsed workers whose entries were moved to the pool")
        self._swept_entries = self._counter("swept_entries", "entries moved to the pool from lapsed workers")
        self._reclaimed = self._counter("reclaimed", "entries moved to the pool that nobody had touched for too long")
        self._returned = self._counter("returned", "entries that this worker gave back", "why")
        self._trimmed = self._counter("trimmed", "entries that somebody deleted while they were owed", "stream")
        self._promoted = self._counter("promoted", "delayed jobs put back into their streams")
        self._outages = self._counter("redis_outages", "times that Redis was away for over a second")
        self._run = self._histogram("run_seconds", "seconds that a handler ran", _RUN_BUCKETS, "kind")
        self._render = self._histogram("render_seconds", "seconds that a render took", _RUN_BUCKETS, "renderer")
        self._passes = self._counter(
            "passes", "passes of flows' calls by the state they left the call in", "flow", "ended"
        )
        self._attempts = self._counter("step_attempts", "attempts of flows' steps by what became of them", "outcome")
        self._pass = self._histogram("pass_seconds", "seconds that a pass took", _RUN_BUCKETS, "flow")
        self._queue = self._histogram("settled_age_seconds", "seconds from queued to settled", _QUEUE_BUCKETS, "kind")
        self.registry.register(_Gauges(vitals, Remembered(look, REMEMBER_S, clock)))
        ProcessCollector(namespace="stagedoor", registry=self.registry)
        self._begin_with_zeros()

    def _counter(self, name: str, doc: str, *labels: str) -> Counter:
        return Counter(f"stagedoor_{name}", doc, labels, registry=self.registry)

    def _histogram(self, name: str, doc: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"stagedoor_{name}", doc, labels, buckets=buckets, registry=self.registry)

    def _begin_with_zeros(self) -> None:
        """Let what somebody alarms on be there before it first happens: a rate needs a value to rise from."""
        for at in _FENCED_AT:
            self._fenced.labels(at)
        for stream in ("jobs", "critical"):
            self._trimmed.labels(stream)
        for outcome in _ATTEMPTS:
            self._attempts.labels(outcome)
        for kind in self._kinds:
            for outcome in ("done", "retry", "dead"):
                self._outcomes.labels(kind, outcome)

    def kind_of(self, kind: str | None) -> str:
        """Return the value of the label for a kind; whatever is not registered here is ``other``."""
        return kind if kind in self._kinds else OTHER

    def rendered(self, renderer: str, seconds: float) -> None:
        """Count one render; may be called in any thread."""
        self._render.labels(renderer if renderer in self._renderers else OTHER).observe(seconds)

    def passed(self, flow: str, ended: str, seconds: float, outcomes: Mapping[str, int]) -> None:
        """Count one pass of a flow's call; may be called in any thread."""
        label = self.kind_of(flow)
        self._passes.labels(label, ended if ended in _PASS_ENDINGS else OTHER).inc()
        self._pass.labels(label).observe(seconds)
        for outcome, count in outcomes.items():
            self._attempts.labels(outcome if outcome in _ATTEMPTS else OTHER).inc(count)

    def take(self, event: Event) -> None:
        """Count one event; may be called in any thread."""
        match event:
            case DeliverySettled():
                self._settled(event)
            case TenureLost(at=at):
                self._fenced.labels(at if at in _FENCED_AT else OTHER).inc()
            case WorkerSwept(entries=entries):
                self._swept.inc()
                self._swept_entries.inc(entries)
            case EntriesReclaimed(count=count):
                self._reclaimed.inc(count)
            case EntriesReturned(why=why, count=count):
                self._returned.labels(why).inc(count)
            case EntryTrimmed(stream=stream):
                self._trimmed.labels(stream).inc()
            case UnreadTrimmed(stream=stream, count=count):
                self._trimmed.labels(stream).inc(count)
            case JobsPromoted(count=count):
                self._promoted.inc(count)
            case BrokerDown():
                self._outages.inc()

    def _settled(self, event: DeliverySettled) -> None:
        kind = self.kind_of(event.kind)
        self._outcomes.labels(kind, event.outcome if event.outcome in _OUTCOMES else OTHER).inc()
        if event.reason is not None:
            self._dead.labels(event.reason).inc()
        if event.run_s is not None:
            self._run.labels(kind).observe(event.run_s)
        if event.outcome == "done" and event.queue_age_s is not None:
            # The clocks of two hosts may differ: an age is never negative.
            self._queue.labels(kind).observe(max(0.0, event.queue_age_s))


class Remembered[T]:
    """A question that is asked again only when its answer is older than *for_s* seconds; from any thread."""

    def __init__(self, ask: Callable[[], T], for_s: float, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._for_s = for_s
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: T | None = None
        self._asked_at = float("-inf")

    def __call__(self) -> T | None:
        """Return the answer, None when Redis could not be asked; who comes meanwhile waits for the same answer."""
        with self._lock:
            if self._clock() - self._asked_at >= self._for_s:
                try:
                    self._answer = self._ask()
                except BrokerError:
                    self._answer = None
                self._asked_at = self._clock()
            return self._answer


class _Gauges(Collector):
    """What is asked at each scrape."""

    def __init__(self, vitals: Vitals, look: Callable[[], Overview | None]) -> None:
        self._vitals = vitals
        self._look = look

    def collect(self) -> Iterator[Metric]:
        yield from self._of_worker()
        overview = self._look()
        # Without an answer there are no figures: an old one would look like a fresh one.
        yield _gauge("redis_up", "1 when Redis answered the last look", float(overview is not None))
        if overview is not None:
            yield from _of_queue(overview)

    def describe(self) -> Iterator[Metric]:
        """Say nothing beforehand: registering must not ask Redis."""
        yield from ()

    def _of_worker(self) -> Iterator[Metric]:
        now = self._vitals.condition
        yield _gauge("slots", "handlers that may run at once", now.slots)
        yield _gauge("held", "deliveries in this worker's hands", now.held)
        yield _gauge("running", "handlers that run", now.running)
        yield _gauge("orphaned", "threads that did not end at their timeouts", now.orphaned)
        yield _gauge("loop_lag_seconds", "longest lag of the event loop in the last ten seconds", now.lag_s)
        yield _gauge("read_age_seconds", "seconds since a read was answered, or all slots were taken", now.read_age_s)


def _of_queue(overview: Overview) -> Iterator[Metric]:
    views = {"jobs": overview.stream, "critical": overview.critical}

    def per_stream(name: str, doc: str, value: Callable[[StreamView], float | None]) -> Metric:
        family = GaugeMetricFamily(f"stagedoor_{name}", doc, labels=["stream"])
        for stream, view in views.items():
            family.add_metric([stream], value(view) or 0)
        return family

    yield per_stream("queue_age_seconds", "age of the oldest entry that is owed", lambda view: view.oldest_age_s)
    yield per_stream("unread", "entries that nobody has read", lambda view: view.unread)
    yield per_stream("pending", "entries handed out and not acknowledged", lambda view: view.pending)
    yield per_stream(
        "oldest_pending_seconds", "age of the oldest entry handed out", lambda view: view.oldest_pending_age_s
    )
    yield per_stream("pool", "entries that no live process owns", lambda view: view.pool)
    yield per_stream("trimmed_unread", "entries deleted unread, by Redis' counters", lambda view: view.trimmed_unread)
    yield _gauge("delayed", "delayed jobs", overview.delayed)
    yield _gauge("dead", "dead letters", overview.dead)
    calls = GaugeMetricFamily("stagedoor_calls", "calls of flows by state", labels=["state"])
    for state, count in overview.calls.items():
        calls.add_metric([state.value], count)
    yield calls


def _gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(f"stagedoor_{name}", doc, value=value)
