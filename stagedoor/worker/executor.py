"""Executor: runs handlers in at most `slots` slots and says what becomes of each delivery.

A slot is a token of the capacity limiter. Plain functions run in a thread; a
thread that has ended its job takes the next ready one itself, which spares a
trip through the trio thread (measured: 12,000 against 24,000 no-ops a second).
``async def`` handlers run as trio tasks in the slot's own task.

One delivery's exception is that delivery's failure and nothing else's, also
``sys.exit`` and ``KeyboardInterrupt``. Only trio's cancellation passes through,
and it settles nothing.
"""

import inspect
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import trio

from stagedoor.core.entry import Claimed
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.job import Job, parse_job
from stagedoor.core.outcome import (
    Done,
    Limits,
    Outcome,
    Release,
    Settled,
    of_crashes,
    of_exception,
    of_malformed,
    of_unknown_kind,
)
from stagedoor.errors import JobTimeout, LeaseLost, MalformedEntry
from stagedoor.events import DeliveryStarted, EntriesReturned, EventStream, HandlerOrphaned, ResultIgnored, TenureLost
from stagedoor.worker.held import HeldDelivery, Register
from stagedoor.worker.pace import Pace
from stagedoor.worker.settler import Settler

ALONE_FROM_CRASHES = 2
"""An entry that has taken two processes along runs alone, so that its neighbours never collect more."""

TELL_EVERY_S = 0.001
"""A thread in a run of short jobs tells the trio thread about them this often: fewer wake-ups, larger batches."""

MakeContext = Callable[[Job, HeldDelivery], Any]


@attrs.frozen(kw_only=True)
class Clocks:
    """Where time comes from: *wall* is Unix seconds, *monotonic* may be read in any thread."""

    wall: Callable[[], float]
    monotonic: Callable[[], float]


@attrs.define(eq=False)
class _Slot:
    """One running slot; *scope* ends the wait for a thread that will not end."""

    scope: trio.CancelScope
    current: HeldDelivery | None = None
    is_orphaned: bool = False
    is_released: bool = False


class Executor:
    """The handlers at work."""

    def __init__(
        self,
        *,
        slots: int,
        handlers: Mapping[str, HandlerSpec],
        make_context: MakeContext,
        limits: Limits,
        register: Register,
        settler: Settler,
        pace: Pace,
        events: EventStream,
        clocks: Clocks,
        rng: random.Random,
        orphan_after_s: float,
    ) -> None:
        self._slots = slots
        self._handlers = handlers
        self._make_context = make_context
        self._limits = limits
        self._register = register
        self._settler = settler
        self._pace = pace
        self._events = events
        self._clocks = clocks
        self._rng = rng
        self._orphan_after_s = orphan_after_s
        self._limiter = trio.CapacityLimiter(slots)
        self._threads = trio.CapacityLimiter(slots)
        self._ready: deque[HeldDelivery] = deque()
        self._ready_async: deque[HeldDelivery] = deque()
        self._alone: deque[HeldDelivery] = deque()
        self._is_one_alone = False
        self._running: dict[_Slot, None] = {}
        self._orphaned = 0
        self._oldest_at_tick: HeldDelivery | None = None
        self._is_draining = False
        self._changed = trio.Event()
        self._is_told = False
        self._told_at = 0.0
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    # -- what others see ----------------------------------------------------------

    @property
    def running(self) -> int:
        """Slots that run a handler now."""
        return len(self._running)

    @property
    def orphaned(self) -> int:
        """Threads that did not end at their timeout; their slots are gone until they do."""
        return self._orphaned

    @property
    def ready(self) -> int:
        """Deliveries claimed and not started."""
        return len(self._ready) + len(self._ready_async) + len(self._alone)

    def room(self) -> int:
        """Return how many entries a read may claim now."""
        if self._is_draining or self._alone or self._is_one_alone:
            return 0
        free = int(self._limiter.available_tokens)
        ahead = self._pace.ahead()
        waiting = self.ready
        if ahead and waiting * 2 > ahead:
            return 0
        return max(0, free + ahead - waiting)

    async def wait_changed(self) -> None:
        """Wait until room, running or ready may have changed, or `note_change` was called."""
        await self._changed.wait()

    def note_change(self) -> None:
        """Wake everybody who waits for a change."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    # -- taking deliveries in hand ---------------------------------------------------

    def accept(self, claimed: Iterable[Claimed]) -> None:
        """Take what was read in hand, and start what there are slots for."""
        for one in claimed:
            held = self._register.add(one)
            if held is not None:
                self._route(held)
        if self._settler.owed:
            self._settler.wake()
        self._start_slots()

    def _route(self, held: HeldDelivery) -> None:
        outcome = self._prepare(held)
        if outcome is not None:
            self._settler.submit(held, outcome)
        elif self._is_draining:
            self._settler.submit(held, Release())
        elif held.crashes >= ALONE_FROM_CRASHES:
            self._alone.append(held)
        elif held.is_async:
            self._ready_async.append(held)
        else:
            self._ready.append(held)

    def _prepare(self, held: HeldDelivery) -> Outcome | None:
        """Parse; return the outcome of what cannot start, None for what can."""
        try:
            held.job = parse_job(held.claimed.entry)
        except MalformedEntry as error:
            return of_malformed(error)
        poison = of_crashes(held.crashes, self._limits)
        if poison is not None:
            return poison
        held.spec = self._handlers.get(held.job.kind)
        if held.spec is None:
            return of_unknown_kind(held.job, now=self._clocks.wall())
        return None

    def release_surplus(self) -> int:
        """Give back what was read ahead and turned out too slow; returns how many.

        Call it on a steady tick: what was ready at the last tick and still is, while every
        slot is busy, could run elsewhere.
        """
        oldest = self._ready[0] if self._ready else self._ready_async[0] if self._ready_async else None
        is_stale = oldest is not None and oldest is self._oldest_at_tick and self._limiter.available_tokens == 0
        self._oldest_at_tick = oldest
        return self.release_ready("surplus") if is_stale else 0

    def release_ready(self, why: str) -> int:
        """Give back everything that has not started; returns how many."""
        count = 0
        for queue in (self._ready, self._ready_async, self._alone):
            while True:
                try:
                    held = queue.popleft()
                except IndexError:
                    break
                self._settler.submit(held, Release())
                count += 1
        if count:
            self._events.emit(EntriesReturned(why=why, count=count))
            self._settler.wake()
        return count

    # -- slots ---------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run handlers until cancelled.

        **Cancellation**: async handlers are cancelled, threads are left behind; nothing that was
        not finished is settled. Release it first (`release_running`).
        """
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._watch_timeouts)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _start_slots(self) -> None:
        nursery = self._nursery
        if nursery is None or self._is_one_alone:
            return
        if self._alone:
            self._start_alone(nursery)
            return
        waiting = len(self._ready) + len(self._ready_async)
        wanted = self._pace.slots_for(waiting)
        if waiting > 0 and not self._running:
            wanted = max(1, wanted)
        while wanted > 0 and self._limiter.available_tokens > 0:
            self._start_slot(nursery, None)
            wanted -= 1

    def _start_alone(self, nursery: trio.Nursery) -> None:
        """Start an entry that has crashed processes before, once nothing else runs here."""
        for queue in (self._ready, self._ready_async):
            while queue:
                self._settler.submit(queue.popleft(), Release())
        self._settler.wake()
        if not self._running:
            self._is_one_alone = True
            self._start_slot(nursery, self._alone.popleft())

    def _start_slot(self, nursery: trio.Nursery, alone: HeldDelivery | None) -> None:
        slot = _Slot(trio.CancelScope())
        self._limiter.acquire_on_behalf_of_nowait(slot)
        self._running[slot] = None
        nursery.start_soon(self._run_slot, slot, alone)

    async def _run_slot(self, slot: _Slot, alone: HeldDelivery | None) -> None:
        try:
            with slot.scope:
                if alone is not None:
                    await self._run_one(slot, alone)
                while alone is None and not (slot.is_orphaned or slot.is_released or self._is_draining or self._alone):
                    held = _pop(self._ready) or _pop(self._ready_async)
                    if held is None:
                        break
                    await self._run_one(slot, held)
        finally:
            self._running.pop(slot, None)
            self._is_one_alone = self._is_one_alone and alone is None
            if not slot.is_orphaned:
                self._limiter.release_on_behalf_of(slot)
            self._after_change()

    async def _run_one(self, slot: _Slot, held: HeldDelivery) -> None:
        if held.is_async:
            await self._run_task(slot, held)
        else:
            await trio.to_thread.run_sync(
                self._run_thread, slot, held, limiter=self._threads, abandon_on_cancel=True, thread_name="handler"
            )

    # -- one attempt, in a thread -----------------------------------------------------------

    def _run_thread(self, slot: _Slot, held: HeldDelivery) -> None:
        """Run one delivery, and then whatever plain one is ready, until there is none or the slot is orphaned."""
        current: HeldDelivery | None = held
        while current is not None:
            slot.current = current
            outcome = self._attempt(current)
            slot.current = None
            if slot.is_orphaned:
                self._soon(self._orphan_ended, slot)
            if slot.is_orphaned or slot.is_released:
                return
            self._finish(current, outcome)
            current = None if self._alone or self._is_draining else _pop(self._ready)
            if current is None or self._clocks.monotonic() - self._told_at > TELL_EVERY_S:
                self._tell()

    def _attempt(self, held: HeldDelivery) -> Outcome | None:
        """Run a plain handler once; None means that the tenure was lost and nothing is to be written."""
        job, spec = self._begin(held)
        try:
            result = spec.function(job, self._make_context(job, held))
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler is this delivery's failure only
            return self._failed(held, error)
        return self._returned(held, result)

    # -- one attempt, as a task -----------------------------------------------------------------

    async def _run_task(self, slot: _Slot, held: HeldDelivery) -> None:
        slot.current = held
        outcome = await self._attempt_async(held)
        slot.current = None
        self._finish(held, outcome)
        self._after_change()

    async def _attempt_async(self, held: HeldDelivery) -> Outcome | None:
        job, spec = self._begin(held)
        try:
            if spec.timeout is None:
                return self._returned(held, await spec.function(job, self._make_context(job, held)))
            with trio.move_on_after(spec.timeout):
                return self._returned(held, await spec.function(job, self._make_context(job, held)))
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - as in _attempt
            if trio.current_effective_deadline() == float("-inf"):
                # We are being cancelled and the handler's own nursery wrapped that with its errors:
                # let the cancellation through alone, or the group would end the whole worker.
                await trio.lowlevel.checkpoint()
            return self._failed(held, error)
        return self._failed(held, JobTimeout(f"the timeout of {spec.timeout:g} s has passed"))

    # -- the common parts of an attempt ------------------------------------------------------------

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
                    attempt=job.attempt,
                    deliveries=held.tenure.deliveries,
                )
            )
        return job, spec

    def _returned(self, held: HeldDelivery, result: Any) -> Outcome:
        if isinstance(result, Settled):
            return result
        if inspect.iscoroutine(result):
            result.close()
            return self._failed(held, TypeError("the handler returned a coroutine; write it as async def")) or Done()
        if result is not None:
            self._events.emit(ResultIgnored(kind=str(held.kind), returned=type(result).__name__))
        return Done()

    def _failed(self, held: HeldDelivery, error: BaseException) -> Outcome | None:
        if isinstance(error, LeaseLost):
            return None
        assert held.job is not None, "it has run"
        assert held.spec is not None, "it has run"
        return of_exception(error, held.job, held.spec, limits=self._limits, rng=self._rng)

    def _finish(self, held: HeldDelivery, outcome: Outcome | None) -> None:
        """Hand the outcome to the settler; may run in a handler thread."""
        now = self._clocks.monotonic()
        held.run_s = now - (held.started_at or now)
        self._pace.note(str(held.kind), held.run_s)
        if outcome is None:
            self._register.remove(held)
            self._events.emit(
                TenureLost(kind=held.kind, entry_id=held.tenure.entry_id, deliveries=held.tenure.deliveries, at="check")
            )
        else:
            self._settler.submit(held, outcome)

    def _soon(self, function: Callable[..., object], *args: Any) -> None:
        assert self._token is not None, "threads run only after run() has begun"
        try:
            self._token.run_sync_soon(function, *args, idempotent=True)
        except trio.RunFinishedError:
            return  # an orphan that outlived the run: nobody is left to tell

    def _tell(self) -> None:
        """Have the trio thread look at what has changed, once for all that changed meanwhile."""
        self._told_at = self._clocks.monotonic()
        if not self._is_told:
            self._is_told = True
            self._soon(self._after_change)

    def _after_change(self) -> None:
        self._is_told = False
        self._settler.wake()
        if not self._is_draining:
            self._start_slots()
        self.note_change()

    # -- timeouts ---------------------------------------------------------------------------------------

    async def _watch_timeouts(self) -> None:
        """Give up threads that are `orphan_after_s` past their timeouts: their slots are gone."""
        while True:
            await trio.sleep(0.25)
            now = self._clocks.monotonic()
            for slot in list(self._running):
                held = slot.current
                if held is None or held.is_async or held.deadline is None or now < held.deadline + self._orphan_after_s:
                    continue
                self._orphan(slot, held)

    def _orphan(self, slot: _Slot, held: HeldDelivery) -> None:
        slot.is_orphaned = True
        self._orphaned += 1
        slot.scope.cancel()
        self._finish(held, self._failed(held, JobTimeout(f"the handler of {held.kind!r} did not end at its timeout")))
        self._events.emit(
            HandlerOrphaned(
                kind=str(held.kind), entry_id=held.tenure.entry_id, orphaned=self._orphaned, slots=self._slots
            )
        )
        self._after_change()

    def _orphan_ended(self, slot: _Slot) -> None:
        self._orphaned -= 1
        self._limiter.release_on_behalf_of(slot)
        self._after_change()

    # -- stopping ------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Start nothing more, give back what has not started, and wait until what runs has ended.

        **Cancellation**: what still runs goes on; release it with `release_running`.
        """
        self._is_draining = True
        self.release_ready("released")
        while self._running:
            await self.wait_changed()

    def release_running(self) -> int:
        """Give back what still runs: another worker may start it at once, and our writes are fenced."""
        count = 0
        for slot in list(self._running):
            held, slot.is_released = slot.current, True
            if held is not None:
                held.lost = True
                self._settler.submit(held, Release())
                count += 1
        self._settler.wake()
        return count


def _pop(queue: deque[HeldDelivery]) -> HeldDelivery | None:
    try:
        return queue.popleft()
    except IndexError:
        return None


def is_gil_enabled() -> bool:
    """Return whether this interpreter runs threads one at a time."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()
