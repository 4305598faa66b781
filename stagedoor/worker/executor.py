"""Executor: runs handlers in at most `slots` slots.

A slot is a token of the capacity limiter. Plain functions run in a thread; a
thread that has ended its job takes the next ready one itself, which spares a
trip through the trio thread (measured: 12,000 against 24,000 no-ops a second).
``async def`` handlers run as trio tasks in the slot's own task. Both kinds start
in the order in which they were claimed.

What a handler is called with and what its end means is `attempt`'s; what waits
is in `ready`, and in `suspects` what must run alone; how threads make themselves
heard is in `telling`, and what becomes of those that do not end in `orphans`.
"""

from collections.abc import Callable, Collection, Iterable

import trio

from stagedoor.core.entry import Claimed
from stagedoor.core.outcome import Outcome, Release
from stagedoor.core.tenure import Stream
from stagedoor.errors import JobTimeout
from stagedoor.events import EventStream
from stagedoor.worker.attempt import Attempts, Clocks
from stagedoor.worker.held import HeldDelivery, Register
from stagedoor.worker.orphans import Orphans
from stagedoor.worker.pace import Pace
from stagedoor.worker.ready import Ready
from stagedoor.worker.settler import Settler
from stagedoor.worker.slot import Slot
from stagedoor.worker.suspects import Suspects, is_suspect
from stagedoor.worker.telling import Telling


class Executor:
    """The handlers at work."""

    def __init__(
        self,
        *,
        slots: int,
        attempts: Attempts,
        register: Register,
        settler: Settler,
        pace: Pace,
        events: EventStream,
        clocks: Clocks,
        orphan_after_s: float,
    ) -> None:
        self._attempts = attempts
        self._register = register
        self._settler = settler
        self._pace = pace
        self._clocks = clocks
        self._limiter = trio.CapacityLimiter(slots)
        self._threads = trio.CapacityLimiter(slots)
        self._ready = Ready()
        self._suspects = Suspects(clocks.monotonic)
        self._running: dict[Slot, None] = {}
        self._orphans = Orphans(
            self._running,
            slots=slots,
            after_s=orphan_after_s,
            clock=clocks.monotonic,
            events=events,
            on_timeout=self._settle_orphan,
        )
        self._telling = Telling(self, every_s=pace.tell_every_s, clock=clocks.monotonic)
        self._given_back = 0
        self._oldest_at_tick: HeldDelivery | None = None
        self._is_draining = False
        self._changed = trio.Event()
        self._nursery: trio.Nursery | None = None

    # -- what others see ----------------------------------------------------------

    @property
    def running(self) -> int:
        """Slots that run a handler now."""
        return len(self._running)

    @property
    def orphaned(self) -> int:
        """Threads that did not end at their timeout; their slots are gone until they do."""
        return len(self._orphans)

    @property
    def ready(self) -> int:
        """Deliveries claimed and not started."""
        return len(self._ready) + self._suspects.waiting

    @property
    def given_back(self) -> int:
        """Deliveries that the stop has given back unfinished."""
        return self._given_back

    @property
    def is_reading_ahead(self) -> bool:
        """Whether the kinds at hand are so fast that more should be claimed than there are slots."""
        return self._pace.ahead() > 0

    @property
    def oldest(self) -> HeldDelivery | None:
        """The delivery whose turn it is."""
        return self._ready.oldest

    @property
    def has_free_slots(self) -> bool:
        """Whether what is ready could start in a slot of its own."""
        return self._limiter.available_tokens > 0 and not self._is_closed()

    def room(self) -> int:
        """Return how many entries a read may claim now."""
        if self._is_closed():
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
        self._telling.look_again_soon()

    def _route(self, held: HeldDelivery) -> None:
        held.lend = self.lend
        outcome = self._attempts.prepare(held)
        if outcome is not None:
            self._settler.submit(held, outcome)
        elif self._is_draining:
            self._settler.submit(held, Release())
        elif is_suspect(held):
            self._route_suspect(held)
        else:
            self._ready.put(held)

    def _route_suspect(self, held: HeldDelivery) -> None:
        if self._suspects.are_unwelcome and not self._is_idle:
            self._suspects.leave(held)
            self._settler.submit(held, Release(), why="suspect")
        else:
            self._suspects.put(held)

    @property
    def _is_idle(self) -> bool:
        """Whether what must run alone could start now."""
        return not self._running and self._limiter.available_tokens >= 1

    def left_in_pool(self) -> Collection[tuple[Stream, str]]:
        """Return the entries that a read should leave to others."""
        return () if self._is_idle else self._suspects.left

    def release_suspects(self) -> int:
        """Give back those that have waited too long for what runs here to end; returns how many.

        Call it on a steady tick.
        """
        count = self._give_back(self._suspects.give_up(), "suspect")
        if count:
            self.react()
        return count

    def release_surplus(self) -> int:
        """Give back what was read ahead and turned out too slow; returns how many.

        Call it on a steady tick: what was ready at the last tick and still is, while every
        slot is busy, could run elsewhere.
        """
        oldest = self.oldest
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
        return self._give_back([*self._ready.take_all(), *self._suspects.take_all()], why)

    def _give_back(self, deliveries: Iterable[HeldDelivery], why: str) -> int:
        count = 0
        for held in deliveries:
            self._settler.submit(held, Release(), why=why)
            count += 1
        if count:
            self._settler.wake()
        return count

    # -- slots ---------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run handlers until cancelled.

        **Cancellation**: async handlers are cancelled, threads are left behind; nothing that was
        not finished is settled. Release it first (`release_running`).
        """
        self._telling.begin()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._orphans.watch)
            nursery.start_soon(self._telling.look_again)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def react(self) -> None:
        """Look at what has changed: settle it, and start what there are slots for now."""
        self._telling.heard()
        self._settler.wake()
        self._start_slots()
        self.note_change()

    def push(self) -> None:
        """Start more slots than seemed worth it: nothing has gone forward lately."""
        self._start_slots(is_stalled=True)

    def _start_slots(self, *, is_stalled: bool = False) -> None:
        """Start what there are slots for.

        Where jobs are short, no more slots than they are worth; but twice as many as now when
        nothing has gone forward lately.
        """
        nursery = self._nursery
        if nursery is None or self._is_draining or self._suspects.is_running:
            return
        if self._suspects.waiting:
            self._start_suspect(nursery)
            return
        wanted = self._pace.slots_for(len(self._ready))
        if is_stalled or not self._running:
            wanted = max(1, len(self._running), wanted)
        while wanted > 0 and self._limiter.available_tokens > 0 and self._start_slot(nursery, self._next):
            wanted -= 1

    def _start_suspect(self, nursery: trio.Nursery) -> None:
        """Start the first suspect once nothing else runs here and nothing else is held.

        Whatever this process still holds when it vanishes is blamed, too, also what only waits.
        """
        self._give_back([*self._ready.take_all(), *self._suspects.take_others()], "surplus")
        if not self._is_idle:
            return
        if not self._settler.is_idle:
            self._settler.call_when_idle(self._start_slots)
            return
        self._start_slot(nursery, self._suspects.take)
        self._suspects.started(next(iter(self._running)))

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
            self._suspects.ended(slot)
            if not slot.is_orphaned:
                self._limiter.release_on_behalf_of(slot)
            self.react()

    async def _run_one(self, slot: Slot, held: HeldDelivery) -> None:
        if held.is_async:
            await self._run_task(slot, held)
        else:
            await trio.to_thread.run_sync(
                self._run_thread, slot, held, limiter=self._threads, abandon_on_cancel=True, thread_name="handler"
            )

    def _is_closed(self) -> bool:
        """Whether a slot that has ended its job must not take another."""
        return self._is_draining or self._suspects.are_there

    def _next(self) -> HeldDelivery | None:
        return None if self._is_closed() else self._ready.take()

    def _next_plain(self) -> HeldDelivery | None:
        """Take the oldest, unless the trio thread has to run it; may be called in any thread."""
        return None if self._is_closed() else self._ready.take_plain()

    async def _run_task(self, slot: Slot, held: HeldDelivery) -> None:
        outcome = await self._attempts.run_task(held)
        if slot.conclude(held):
            self._finish(held, outcome)
        self.react()

    def _run_thread(self, slot: Slot, held: HeldDelivery) -> None:
        """Run one delivery, and then whatever plain one is ready, until there is none or the slot is given up."""
        current: HeldDelivery | None = held if slot.current is held else None
        while current is not None:
            outcome = self._attempts.run_plain(current)
            if not slot.conclude(current):
                if slot.is_orphaned:
                    self._telling.soon(self._orphan_ended, slot)
                return
            self._finish(current, outcome)
            # Before the clock is read: the second look then sees whatever was not told for being too soon.
            self._telling.note()
            current = slot.take(self._next_plain)
            # With a next one at hand there is no hurry: fewer wake-ups of the trio thread, larger batches.
            self._telling.tell(is_urgent=current is None)

    def _finish(self, held: HeldDelivery, outcome: Outcome) -> None:
        """Hand the outcome to the settler; may run in a handler thread."""
        now = self._clocks.monotonic()
        held.run_s = now - (held.started_at or now)
        self._pace.note(str(held.kind), held.run_s)
        self._attempts.tell_if_lost(held)
        self._settler.submit(held, outcome)

    # -- threads that do not end -------------------------------------------------------------

    def _settle_orphan(self, held: HeldDelivery) -> None:
        error = JobTimeout(f"the handler of {held.kind!r} did not end at its timeout")
        self._finish(held, self._attempts.failed(held, error))
        self.react()

    def _orphan_ended(self, slot: Slot) -> None:
        self._orphans.ended()
        self._limiter.release_on_behalf_of(slot)
        self.react()

    # -- lending slots --------------------------------------------------------------------------

    def lend(self, work: Callable[[], None], most: int) -> None:
        """Run a handler's work in so many further threads at most, those of slots that are free at this instant.

        Never waits; may be called in any thread. The work must not raise, and may begin late or never.
        """
        self._telling.soon(self._lend, work, most)

    def _lend(self, work: Callable[[], None], most: int) -> None:
        nursery = self._nursery
        while most > 0 and nursery is not None and self.has_free_slots:
            borrower = object()
            self._limiter.acquire_on_behalf_of_nowait(borrower)
            nursery.start_soon(self._run_lent, borrower, work)
            most -= 1

    async def _run_lent(self, borrower: object, work: Callable[[], None]) -> None:
        try:
            await trio.to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=True, thread_name="handler")
        finally:
            self._limiter.release_on_behalf_of(borrower)
            self.react()

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
        unfinished = []
        for slot in list(self._running):
            held = slot.give_up()
            slot.scope.cancel()
            if held is not None:
                held.lost = True
                unfinished.append(held)
        self._settler.wake()
        count = self._give_back(unfinished, "released")
        self._given_back += count
        return count
