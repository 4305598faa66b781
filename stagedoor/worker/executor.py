"""Executor: runs handlers in at most `slots` slots and says what becomes of each delivery.

A slot is a token of the capacity limiter. Plain functions run in a thread; a
thread that has ended its job takes the next ready one itself, which spares a
trip through the trio thread (measured: 12,000 against 24,000 no-ops a second).
``async def`` handlers run as trio tasks in the slot's own task. Both kinds start
in the order in which they were claimed.

One delivery's exception is that delivery's failure and nothing else's, also
``sys.exit`` and ``KeyboardInterrupt``. Only trio's cancellation passes through,
and it settles nothing.
"""

import contextlib
import contextvars
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
from stagedoor.events import DeliveryStarted, EventStream, HandlerOrphaned, ResultIgnored, TenureLost
from stagedoor.worker.groups import essence
from stagedoor.worker.held import HeldDelivery, Register
from stagedoor.worker.pace import Pace
from stagedoor.worker.settler import Settler
from stagedoor.worker.slot import Slot

ALONE_FROM_CRASHES = 2
"""An entry that has taken two processes along runs alone, so that its neighbours never collect more."""

WATCH_EVERY_S = 0.25
LOOK_AGAIN_S = 0.01
"""After this, or when it is time to be told, a second look sees what was too soon after the last telling to be told."""

MakeContext = Callable[[Job, HeldDelivery], Any]


@attrs.frozen(kw_only=True)
class Clocks:
    """Where time comes from: *wall* is Unix seconds, *monotonic* may be read in any thread."""

    wall: Callable[[], float]
    monotonic: Callable[[], float]


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
        self._alone_slot: Slot | None = None
        self._running: dict[Slot, None] = {}
        self._orphaned = 0
        self._given_back = 0
        self._oldest_at_tick: HeldDelivery | None = None
        self._is_draining = False
        self._changed = trio.Event()
        self._worth_a_look = trio.Event()
        self._is_told = False
        self._is_untold = False
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

    @property
    def given_back(self) -> int:
        """Deliveries that the stop has given back unfinished."""
        return self._given_back

    @property
    def is_reading_ahead(self) -> bool:
        """Whether the kinds at hand are so fast that more should be claimed than there are slots."""
        return self._pace.ahead() > 0

    def room(self) -> int:
        """Return how many entries a read may claim now."""
        if self._is_draining or self._alone or self._alone_slot is not None:
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
        self._worth_a_look.set()

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
        except Exception as error:  # noqa: BLE001 - whatever one entry does to the parser, its neighbours go on
            return Dead(Reason.MALFORMED, describe(error))
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
        oldest = self._oldest_ready()
        is_stale = oldest is not None and oldest is self._oldest_at_tick and self._limiter.available_tokens == 0
        self._oldest_at_tick = oldest
        if not is_stale:
            return 0
        self._note_running()
        return self.release_ready("surplus")

    def _note_running(self) -> None:
        """Let the pace know that what still runs takes at least as long as it has: else we would read ahead again."""
        now = self._clocks.monotonic()
        for slot in list(self._running):
            held = slot.current
            if held is not None and held.started_at is not None:
                self._pace.note(str(held.kind), now - held.started_at)

    def release_ready(self, why: str) -> int:
        """Give back everything that has not started; returns how many."""
        count = sum(self._release_all(queue, why) for queue in (self._ready, self._ready_async, self._alone))
        if count:
            self._settler.wake()
        return count

    def _release_all(self, queue: deque[HeldDelivery], why: str) -> int:
        count = 0
        while (held := _pop(queue)) is not None:
            self._settler.submit(held, Release(), why=why)
            count += 1
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
            nursery.start_soon(self._look_again)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _start_slots(self, *, is_stalled: bool = False) -> None:
        """Start what there are slots for.

        Where jobs are short, no more slots than they are worth; but twice as many as now when
        nothing has gone forward lately.
        """
        nursery = self._nursery
        if nursery is None or self._is_draining or self._alone_slot is not None:
            return
        if self._alone:
            self._start_alone(nursery)
            return
        waiting = len(self._ready) + len(self._ready_async)
        wanted = self._pace.slots_for(waiting)
        if is_stalled or not self._running:
            wanted = max(1, len(self._running), wanted)
        while wanted > 0 and self._limiter.available_tokens > 0 and self._start_slot(nursery, self._next):
            wanted -= 1

    def _start_alone(self, nursery: trio.Nursery) -> None:
        """Start an entry that has crashed processes before, once nothing else runs here and nothing else is held.

        Whatever this process still holds when it vanishes is blamed, too, also what only waits.
        """
        suspect = self._alone.popleft()
        if sum(self._release_all(queue, "surplus") for queue in (self._alone, self._ready, self._ready_async)):
            self._settler.wake()
        self._alone.append(suspect)
        if self._running or self._limiter.available_tokens < 1:
            return
        if not self._settler.is_idle:
            self._settler.call_when_idle(self._start_slots)
            return
        self._start_slot(nursery, self._alone.popleft)
        self._alone_slot = next(iter(self._running))

    def _start_slot(self, nursery: trio.Nursery, pop: Callable[[], HeldDelivery | None]) -> bool:
        slot = Slot()
        held = slot.take(pop)
        if held is None:
            return False
        self._limiter.acquire_on_behalf_of_nowait(slot)
        self._running[slot] = None
        nursery.start_soon(self._run_slot, slot, held)
        return True

    async def _run_slot(self, slot: Slot, held: HeldDelivery | None) -> None:
        try:
            with slot.scope:
                while held is not None:
                    await self._run_one(slot, held)
                    held = slot.take(self._next)
        finally:
            self._running.pop(slot, None)
            if self._alone_slot is slot:
                self._alone_slot = None
            if not slot.is_orphaned:
                self._limiter.release_on_behalf_of(slot)
            self._after_change()

    async def _run_one(self, slot: Slot, held: HeldDelivery) -> None:
        if held.is_async:
            await self._run_task(slot, held)
        else:
            await trio.to_thread.run_sync(
                self._run_thread, slot, held, limiter=self._threads, abandon_on_cancel=True, thread_name="handler"
            )

    def _is_closed(self) -> bool:
        """Whether a slot that has ended its job must not take another."""
        return bool(self._alone) or self._is_draining or self._alone_slot is not None

    def _next(self) -> HeldDelivery | None:
        """Take the oldest ready delivery."""
        if self._is_closed():
            return None
        if self._ready_async and self._is_turn_of_async():
            return _pop(self._ready_async)
        return _pop(self._ready)

    def _next_plain(self) -> HeldDelivery | None:
        """Take the oldest ready delivery, unless the trio thread has to run it; may be called in any thread."""
        if self._is_closed() or (self._ready_async and self._is_turn_of_async()):
            return None
        return _pop(self._ready)

    def _is_turn_of_async(self) -> bool:
        first_async = _first(self._ready_async)
        if first_async is None:
            return False
        first = _first(self._ready)
        return first is None or first_async.number < first.number

    def _oldest_ready(self) -> HeldDelivery | None:
        return _first(self._ready_async) if self._is_turn_of_async() else _first(self._ready)

    # -- one attempt, in a thread -----------------------------------------------------------

    def _run_thread(self, slot: Slot, held: HeldDelivery) -> None:
        """Run one delivery, and then whatever plain one is ready, until there is none or the slot is given up."""
        current: HeldDelivery | None = held if slot.current is held else None
        while current is not None:
            # A context of its own: what one job sets in context variables, the next must not see.
            outcome = contextvars.copy_context().run(self._attempt, current)
            if not slot.conclude(current):
                if slot.is_orphaned:
                    self._soon(self._orphan_ended, slot)
                return
            self._finish(current, outcome)
            # Before the clock is read: the second look then sees whatever was not told for being too soon.
            # (Asked first, because threads that write to one object wait for each other.)
            if not self._is_untold:
                self._is_untold = True
            current = slot.take(self._next_plain)
            # With a next one at hand there is no hurry: fewer wake-ups of the trio thread, larger batches.
            if current is None or self._clocks.monotonic() - self._told_at > self._pace.tell_every_s():
                self._tell()

    def _attempt(self, held: HeldDelivery) -> Outcome:
        """Run a plain handler once."""
        job, spec = self._begin(held)
        try:
            return self._returned(held, spec.function(job, self._make_context(job, held)))
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler is this delivery's failure only
            return self._failed(held, error)

    # -- one attempt, as a task -----------------------------------------------------------------

    async def _run_task(self, slot: Slot, held: HeldDelivery) -> None:
        outcome = await self._attempt_async(held)
        if slot.conclude(held):
            self._finish(held, outcome)
        self._after_change()

    async def _attempt_async(self, held: HeldDelivery) -> Outcome:
        job, spec = self._begin(held)
        try:
            return self._returned(held, await self._call_async(job, spec, held))
        except BaseException as error:  # noqa: BLE001 - as in _attempt
            if trio.current_effective_deadline() == float("-inf"):
                # We are being cancelled, and the handler's own nursery may have wrapped that with its errors:
                # let the cancellation through alone, or the group would end the whole worker. Without one, a
                # Cancelled that the handler has kept from elsewhere is an error like any other.
                await trio.lowlevel.checkpoint()
            return self._failed(held, error)

    async def _call_async(self, job: Job, spec: HandlerSpec, held: HeldDelivery) -> Any:
        if spec.timeout is None:
            return await spec.function(job, self._make_context(job, held))
        with trio.move_on_after(spec.timeout):
            return await spec.function(job, self._make_context(job, held))
        raise JobTimeout(f"the timeout of {spec.timeout:g} s has passed")

    # -- the common parts of an attempt ------------------------------------------------------------

    def _begin(self, held: HeldDelivery) -> tuple[Job, HandlerSpec]:
        job, spec = held.job, held.spec
        assert job is not None, "only parsed deliveries become ready"
        assert spec is not None, "only deliveries with a handler become ready"
        held.start(self._clocks.monotonic())
        held.lend = self.lend
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
        if isinstance(result, Settled | Release):
            return result
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError("the handler returned a coroutine; write it as async def")
        if result is not None:
            self._events.emit(ResultIgnored(kind=str(held.kind), returned=type(result).__name__))
        return Done()

    def _failed(self, held: HeldDelivery, error: BaseException) -> Outcome:
        assert held.job is not None, "it has run"
        assert held.spec is not None, "it has run"
        error = essence(error)
        if isinstance(error, LeaseLost) and held.was_refused:
            self._events.emit(
                TenureLost(kind=held.kind, entry_id=held.tenure.entry_id, deliveries=held.tenure.deliveries, at="check")
            )
            # After an outage it may be ours all the same: the fence decides, and then it runs again at once.
            return Release()
        now = self._clocks.wall()
        return of_exception(error, held.job, held.spec, limits=self._limits, rng=self._rng, now=now)

    def _finish(self, held: HeldDelivery, outcome: Outcome) -> None:
        """Hand the outcome to the settler; may run in a handler thread."""
        now = self._clocks.monotonic()
        held.run_s = now - (held.started_at or now)
        self._pace.note(str(held.kind), held.run_s)
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
        self._is_told = self._is_untold = False
        self._settler.wake()
        self._start_slots()
        self._worth_a_look.set()
        self.note_change()

    async def _look_again(self) -> None:
        """Look once more, shortly after each change, at what nobody tells.

        That is a job which a thread ended too soon after it last told before it took a long one; and jobs
        that wait beside free slots because their kind was so fast that a slot of their own seemed a waste.
        """
        while True:
            await self._worth_a_look.wait()
            self._worth_a_look = trio.Event()
            oldest = self._oldest_ready()
            await trio.sleep(max(LOOK_AGAIN_S, self._pace.tell_every_s()))
            if self._is_untold:
                self._after_change()
            if oldest is not None and self._oldest_ready() is oldest:
                self._start_slots(is_stalled=True)
            if self._oldest_ready() is not None and self._limiter.available_tokens > 0 and not self._is_closed():
                self._worth_a_look.set()

    # -- timeouts ---------------------------------------------------------------------------------------

    async def _watch_timeouts(self) -> None:
        """Give up threads that are `orphan_after_s` past their timeouts: their slots are gone."""
        while True:
            await trio.sleep(WATCH_EVERY_S)
            now = self._clocks.monotonic()
            for slot in list(self._running):
                held = slot.current
                if held is None or held.is_async or held.deadline is None or now < held.deadline + self._orphan_after_s:
                    continue
                if slot.orphan(held):
                    self._orphan(slot, held)

    def _orphan(self, slot: Slot, held: HeldDelivery) -> None:
        self._orphaned += 1
        slot.scope.cancel()
        self._finish(held, self._failed(held, JobTimeout(f"the handler of {held.kind!r} did not end at its timeout")))
        self._events.emit(
            HandlerOrphaned(
                kind=str(held.kind), entry_id=held.tenure.entry_id, orphaned=self._orphaned, slots=self._slots
            )
        )
        self._after_change()

    def _orphan_ended(self, slot: Slot) -> None:
        self._orphaned -= 1
        self._limiter.release_on_behalf_of(slot)
        self._after_change()

    # -- lending slots --------------------------------------------------------------------------------------

    def lend(self, work: Callable[[], None], most: int) -> None:
        """Run a handler's work in so many further threads at most, those of slots that are free at this instant.

        Never waits; may be called in any thread. The work must not raise, and may begin late or never.
        """
        token = self._token
        assert token is not None, "handlers run only after run() has begun"
        with contextlib.suppress(trio.RunFinishedError):  # an orphan that outlived the run: no slot is free
            token.run_sync_soon(self._lend, work, most)

    def _lend(self, work: Callable[[], None], most: int) -> None:
        nursery = self._nursery
        while most > 0 and nursery is not None and not self._is_closed() and self._limiter.available_tokens > 0:
            borrower = object()
            self._limiter.acquire_on_behalf_of_nowait(borrower)
            nursery.start_soon(self._run_lent, borrower, work)
            most -= 1

    async def _run_lent(self, borrower: object, work: Callable[[], None]) -> None:
        try:
            await trio.to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=True, thread_name="handler")
        finally:
            self._limiter.release_on_behalf_of(borrower)
            self._after_change()

    # -- stopping ------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Start nothing more, give back what has not started, and wait until what runs has ended.

        **Cancellation**: what still runs goes on; release it with `release_running`.
        """
        self._is_draining = True
        self._given_back += self.release_ready("released")
        while self._running:
            await self.wait_changed()

    def release_running(self) -> int:
        """Give back what still runs: another worker may start it at once, and our writes are fenced.

        Its `check` raises from now on, async handlers are cancelled; returns how many.
        """
        count = 0
        for slot in list(self._running):
            held = slot.give_up()
            slot.scope.cancel()
            if held is not None:
                held.lost = True
                self._settler.submit(held, Release())
                count += 1
        self._given_back += count
        self._settler.wake()
        return count


def _first(queue: deque[HeldDelivery]) -> HeldDelivery | None:
    """Return the first without taking it; another thread may take the last one at any moment."""
    try:
        return queue[0]
    except IndexError:
        return None


def _pop(queue: deque[HeldDelivery]) -> HeldDelivery | None:
    try:
        return queue.popleft()
    except IndexError:
        return None


def is_gil_enabled() -> bool:
    """Return whether this interpreter runs threads one at a time."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()
