"""Reader: claims entries while there is room, and blocks only when there is nothing.

A blocked read is never abandoned: its thread would take the next entry with it.
Whoever wants it to end pokes the reader, which ends the read on Redis and goes on
with what it returned.
"""

from collections.abc import Callable, Collection

import trio

from stagedoor.broker import Deliveries
from stagedoor.broker.deliveries import ReadReply
from stagedoor.core.backoff import exponential_s
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerError
from stagedoor.events import EntriesReturned, EntryTrimmed, EventStream
from stagedoor.weather import FIRST_PAUSE_S, LONGEST_PAUSE_S, Weather
from stagedoor.worker.executor import Executor
from stagedoor.worker.held import Register

UNBLOCK_EVERY_S = 0.02
"""One CLIENT UNBLOCK can arrive before the read it should end: 24 of 60 did (measured), repeated ones none."""
GIVE_UP_S = 1.0
"""When the process is about to end: a read that has not returned after this many seconds is left behind."""
WAIT_MARGIN_S = 10.0
"""Past the end of a blocked read: longer than the socket's timeout, which should end it before."""
LOOK_EVERY_S = 0.1
"""Pause between two looks at whether a beat has gone through again."""
JOBS_SHARE = 8
"""One slot in eight is kept for jobs, so that endless flows cannot starve tickets."""
READ_AHEAD_COUNT = 100
"""Entries per read while reading ahead: 51,000 no-ops a second against 20,000 with 10 (measured)."""


class Reader:
    """The only one that claims entries for this process."""

    def __init__(
        self,
        deliveries: Deliveries,
        *,
        executor: Executor,
        register: Register,
        weather: Weather,
        events: EventStream,
        read_count: int,
        block_ms: int,
        clock: Callable[[], float],
        is_cut_off: Callable[[], bool] = lambda: False,
    ) -> None:
        self._deliveries = deliveries
        self._executor = executor
        self._register = register
        self._weather = weather
        self._events = events
        self._read_count = read_count
        self._block_ms = block_ms
        self._clock = clock
        self._is_cut_off = is_cut_off
        self._limiter = trio.CapacityLimiter(1)
        self._unblock_limiter = trio.CapacityLimiter(1)
        self._is_stopping = False
        self._ended = trio.Event()
        self._poked = trio.Event()
        self._reply_was_lost = False
        self._strays = 0
        self._single_reads = 0
        self._wait_failures = 0
        self.last_round_trip_at = clock()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Claim entries until `stop`.

        **Cancellation**: a blocked read is ended on Redis and its entry is accepted first; what
        another read under way has claimed is not known here and stays pending under our name.
        Call `stop` and `wait_ended` before, and there is none. What was accepted stays held.
        """
        task_status.started()
        try:
            while not self._is_stopping:
                if await self._wait_for_room():
                    await self.read_once()
        finally:
            self._weather.outages.forget("wait")
            self._ended.set()

    async def _wait_for_room(self) -> bool:
        """Wait until there is room or a stop; return whether to read.

        While others take this process for dead, handlers are told to stop as soon as they ask:
        what it claimed now it would give back and claim again, as fast as Redis answers.
        """
        while not self._is_stopping and (self._is_cut_off() or self._executor.room() == 0):
            with trio.move_on_after(LOOK_EVERY_S if self._is_cut_off() else float("inf")):
                await self._executor.wait_changed()
        return not self._is_stopping

    async def read_once(self) -> None:
        """Claim what there is; block when there is nothing."""
        self._poked = trio.Event()
        reply = await self._weather.call(
            "read",
            self._read,
            self._limit(),
            self._executor.left_in_pool(),
            limiter=self._limiter,
            on_failure=self._note_lost_reply,
            abandon=True,
        )
        self._report_strays()
        self._accept(reply)
        # Whoever has poked since the read began may know of what came too late for it.
        if not reply.claimed and not self._poked.is_set() and not self._is_stopping:
            await self._wait()

    def _limit(self) -> int:
        most = READ_AHEAD_COUNT if self._executor.is_reading_ahead else self._read_count
        return max(1, min(self._executor.room(), most))

    def _read(self, limit: int, leave: Collection[tuple[Stream, str]]) -> ReadReply:
        """Read, after a lost reply only once what it may have claimed is back in the pool; runs in a thread."""
        if self._reply_was_lost:
            # What Redis says is ours and we do not know.
            self._strays += self._deliveries.stray(self._register.tenures())
            self._reply_was_lost = False
        return self._deliveries.read(limit, for_jobs=self._for_jobs(limit), leave=leave)

    def _for_jobs(self, limit: int) -> int:
        """Return how many entries critical ones leave to jobs: one slot in eight, or one in eight single reads."""
        if limit > 1:
            return max(1, limit // JOBS_SHARE)
        self._single_reads += 1
        return int(self._single_reads % JOBS_SHARE == 0)

    async def _wait(self) -> None:
        """Block for one entry and accept it; an error counts as nothing read."""
        ended = trio.Event()
        async with trio.open_nursery() as nursery:
            blocked = trio.CancelScope(shield=True, deadline=self._latest_end())
            nursery.start_soon(self._unblock_when_poked, ended, blocked)
            try:
                with blocked:
                    await self._block()
            finally:
                ended.set()
            nursery.cancel_scope.cancel()
        if blocked.cancelled_caught:
            self._note_lost_reply()
        if self._wait_failures:
            await self._pause_after_failure()

    def _latest_end(self) -> float:
        return trio.current_time() + self._block_ms / 1000 + WAIT_MARGIN_S

    async def _block(self) -> None:
        """Block in a thread; it is left behind only when its scope is cancelled, at its deadline or a hopeless stop."""
        try:
            reply = await trio.to_thread.run_sync(
                self._deliveries.wait, self._block_ms, limiter=self._limiter, abandon_on_cancel=True
            )
        except BrokerError as error:
            self._note_lost_reply()
            self._wait_failures += 1
            if self._wait_failures > 1:
                # The first may be the end of a connection that is made anew; the read after it meets the rest.
                self._weather.outages.note_bad("wait", error)
        else:
            self._wait_failures = 0
            self._weather.outages.note_good("wait")
            self._accept(reply)

    async def _pause_after_failure(self) -> None:
        """Not the blocked read alone may fail at once and for long (no more connections allowed, say)."""
        with trio.move_on_after(exponential_s(self._wait_failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)):
            await self._poked.wait()

    async def _unblock_when_poked(self, ended: trio.Event, blocked: trio.CancelScope) -> None:
        is_last = True
        try:
            await self._poked.wait()
            is_last = self._is_stopping
        finally:
            # Also when cancelled: the read must end before this process may.
            with trio.CancelScope(shield=True, deadline=self._latest_end()):
                await self._unblock(ended, blocked, give_up_at=trio.current_time() + GIVE_UP_S if is_last else None)

    async def _unblock(self, ended: trio.Event, blocked: trio.CancelScope, *, give_up_at: float | None) -> None:
        while not ended.is_set():
            await trio.to_thread.run_sync(
                self._deliveries.unblock, limiter=self._unblock_limiter, abandon_on_cancel=True
            )
            with trio.move_on_after(UNBLOCK_EVERY_S):
                await ended.wait()
            if give_up_at is not None and trio.current_time() >= give_up_at:
                blocked.cancel()
                return

    def _accept(self, reply: ReadReply) -> None:
        self.last_round_trip_at = self._clock()
        for trimmed in reply.trimmed:
            self._events.emit(EntryTrimmed(stream=trimmed.stream.name.lower(), entry_id=trimmed.entry_id))
        if reply.claimed:
            self._executor.accept(reply.claimed)

    def _note_lost_reply(self) -> None:
        self._reply_was_lost = True

    def _report_strays(self) -> None:
        strays, self._strays = self._strays, 0
        if strays:
            self._events.emit(EntriesReturned(why="stray", count=strays))

    def poke(self) -> None:
        """End the blocked read, if there is one: there is something in the pool, or room has changed."""
        self._poked.set()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when the read under way has ended."""
        self._is_stopping = True
        self._poked.set()
        self._executor.note_change()

    async def wait_ended(self) -> None:
        """Wait until `run` has returned: nothing is claimed any more."""
        await self._ended.wait()
