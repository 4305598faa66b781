"""Attempt: what one delivery's handler is called with, and what each end of it means.

One delivery's exception is that delivery's failure and nothing else's, also
``sys.exit`` and ``KeyboardInterrupt``. Only trio's cancellation passes through,
and it settles nothing.
"""

import contextvars
import inspect
import random
from collections.abc import Callable, Coroutine, Generator, Mapping
from types import coroutine
from typing import Any

import attrs
import trio

from stagedoor.core.handler import HandlerSpec
from stagedoor.core.job import Job, parse_job
from stagedoor.core.outcome import (
    Dead,
    Done,
    Limits,
    Outcome,
    Reason,
    Release,
    Settled,
    describe,
    of_crashes,
    of_exception,
    of_malformed,
    of_unknown_kind,
)
from stagedoor.errors import JobTimeout, LeaseLost, MalformedEntry
from stagedoor.events import DeliveryStarted, EventStream, ResultIgnored, TenureLost
from stagedoor.worker.groups import essence
from stagedoor.worker.held import HeldDelivery

MakeContext = Callable[[Job, HeldDelivery], Any]


@attrs.frozen(kw_only=True)
class Clocks:
    """Where time comes from: *wall* is Unix seconds, *monotonic* may be read in any thread."""

    wall: Callable[[], float]
    monotonic: Callable[[], float]


class Attempts:
    """Runs handlers, one delivery at a time, and turns whatever they do into outcomes.

    Args:
        handlers: by kind.
        make_context: makes a handler's second argument; runs where the handler runs.
        limits: of attempts, crashes and pauses.
        events: told of starts, and of what is odd.
        clocks: of this worker.
        rng: for jitter.
    """

    def __init__(
        self,
        handlers: Mapping[str, HandlerSpec],
        *,
        make_context: MakeContext,
        limits: Limits,
        events: EventStream,
        clocks: Clocks,
        rng: random.Random,
    ) -> None:
        self._handlers = handlers
        self._make_context = make_context
        self._limits = limits
        self._events = events
        self._clocks = clocks
        self._rng = rng
        self._surroundings = contextvars.copy_context()

    # -- before -----------------------------------------------------------------------

    def prepare(self, held: HeldDelivery) -> Outcome | None:
        """Parse; return the outcome of what cannot start, None for what can."""
        try:
            held.job = parse_job(held.claimed.entry)
        except MalformedEntry as error:
            return of_malformed(error)
        except Exception as error:  # noqa: BLE001 - whatever one entry does to the parser, its neighbours go on
            return Dead(Reason.MALFORMED, describe(error))
        poison = of_crashes(held.crashes, self._limits)
        if poison is not None:
            return poison
        held.spec = self._handlers.get(held.job.kind)
        if held.spec is None:
            return of_unknown_kind(held.job, now=self._clocks.wall())
        return None

    def _begin(self, held: HeldDelivery) -> tuple[Job, HandlerSpec]:
        job, spec = held.job, held.spec
        assert job is not None, "only parsed deliveries become ready"
        assert spec is not None, "only deliveries with a handler become ready"
        held.start(self._clocks.monotonic())
        if self._events.is_heard:
            self._events.emit(
                DeliveryStarted(
                    kind=job.kind,
                    entry_id=job.entry_id,
                    order_id=job.order_id,
                    outbox_id=job.outbox_id,
                    attempt=job.attempt,
                    deliveries=held.tenure.deliveries,
                    call_id=job.call_id,
                )
            )
        return job, spec

    # -- in a thread --------------------------------------------------------------------

    def run_plain(self, held: HeldDelivery) -> Outcome:
        """Run a plain handler once, in a context of its own; not at all where the tenure has lapsed meanwhile."""
        if held.lost:
            return Release()
        # What one job sets in context variables, the next must not see.
        return self._surroundings.copy().run(self._run_plain, held)

    def _run_plain(self, held: HeldDelivery) -> Outcome:
        job, spec = self._begin(held)
        try:
            return self._returned(held, spec.function(job, self._make_context(job, held)))
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler is this delivery's failure only
            return self.failed(held, error)

    # -- as a task ------------------------------------------------------------------------

    async def run_task(self, held: HeldDelivery) -> Outcome:
        """Run an ``async def`` handler once, as `run_plain` does.

        **Cancellation**: passes through; nothing is said of the delivery.
        """
        if held.lost:
            return Release()
        job, spec = self._begin(held)
        try:
            return self._returned(held, await in_context(self._surroundings.copy(), self._call(job, spec, held)))
        except BaseException as error:  # noqa: BLE001 - as in _run_plain
            if trio.current_effective_deadline() == float("-inf"):
                # We are being cancelled, and the handler's own nursery may have wrapped that with its errors:
                # let the cancellation through alone, or the group would end the whole worker. Without one, a
                # Cancelled that the handler has kept from elsewhere is an error like any other.
                await trio.lowlevel.checkpoint()
            return self.failed(held, error)

    async def _call(self, job: Job, spec: HandlerSpec, held: HeldDelivery) -> Any:
        if spec.timeout is None:
            return await spec.function(job, self._make_context(job, held))
        with trio.move_on_after(spec.timeout):
            return await spec.function(job, self._make_context(job, held))
        raise JobTimeout(f"the timeout of {spec.timeout:g} s has passed")

    # -- after ------------------------------------------------------------------------------

    def _returned(self, held: HeldDelivery, result: Any) -> Outcome:
        if isinstance(result, Settled | Release):
            if isinstance(result, Release):
                held.refused_at = "pass"
            return result
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError("the handler returned a coroutine; write it as async def")
        if result is not None:
            self._events.emit(ResultIgnored(kind=str(held.kind), returned=type(result).__name__))
        return Done()

    def failed(self, held: HeldDelivery, error: BaseException) -> Outcome:
        """Return what becomes of a delivery whose attempt has ended with this."""
        assert held.job is not None, "it has run"
        assert held.spec is not None, "it has run"
        error = essence(error)
        if isinstance(error, LeaseLost) and held.was_refused:
            held.refused_at = "check"
            # After an outage it may be ours all the same: the fence decides, and then it runs again at once.
            return Release()
        now = self._clocks.wall()
        return of_exception(error, held.job, held.spec, limits=self._limits, rng=self._rng, now=now)

    def tell_if_lost(self, held: HeldDelivery) -> None:
        """Tell of a delivery whose handler has stopped because somebody else has the entry: its one line here."""
        if not held.refused_at:
            return
        job = held.job
        self._events.emit(
            TenureLost(
                kind=held.kind,
                entry_id=held.tenure.entry_id,
                deliveries=held.tenure.deliveries,
                at=held.refused_at,
                order_id=job.order_id if job else None,
                request_id=job.request_id if job else None,
                trace=job.trace if job else None,
            )
        )


@coroutine
def in_context[T](context: contextvars.Context, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await a coroutine whose context variables are those of *context*.

    Trio gives a context to each task, and one task runs many jobs. A task for each job would cost
    another turn of the loop.
    """
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        try:
            trap = context.run(step, value)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # a generator's return value has no type of its own
        try:
            value = yield trap
        except BaseException as error:  # noqa: BLE001 - whatever trio throws in belongs to the coroutine
            step, value = work.throw, error
        else:
            step = work.send
