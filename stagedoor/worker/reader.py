"""Reader: claims entries while there is room, and blocks only when there is nothing.

A blocked read is never abandoned: its thread would take the next entry with it.
Whoever wants it to end pokes the reader, which ends the read on Redis and goes on
with what it returned.
"""

from collections.abc import Callable

import trio

from stagedoor.broker import Deliveries
from stagedoor.broker.deliveries import ReadReply
from stagedoor.errors import BrokerUnavailable, GroupMissing
from stagedoor.events import EntriesReturned, EntryTrimmed, EventStream
from stagedoor.worker.executor import Executor
from stagedoor.worker.held import Register
from stagedoor.worker.weather import Weather

UNBLOCK_EVERY_S = 0.02
"""One CLIENT UNBLOCK can arrive before the read it should end: 24 of 60 did (measured), repeated ones none."""
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
    ) -> None:
        self._deliveries = deliveries
        self._executor = executor
        self._register = register
        self._weather = weather
        self._events = events
        self._read_count = read_count
        self._block_ms = block_ms
        self._clock = clock
        self._limiter = trio.CapacityLimiter(1)
        self._unblock_limiter = trio.CapacityLimiter(1)
        self._is_stopping = False
        self._poked = trio.Event()
        self._reply_was_lost = False
        self._single_reads = 0
        self.last_round_trip_at = clock()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Claim entries until `stop`.

        **Cancellation**: a read under way is ended on Redis and its entries are accepted first;
        what was accepted stays held.
        """
        task_status.started()
        while not self._is_stopping:
            if await self._wait_for_room():
                await self.read_once()

    async def _wait_for_room(self) -> bool:
        """Wait until there is room or a stop; return whether to read."""
        while not self._is_stopping and self._executor.room() == 0:
            await self._executor.wait_changed()
        return not self._is_stopping

    async def read_once(self) -> None:
        """Claim what there is; block when there is nothing."""
        if self._reply_was_lost:
            await self._return_strays()
        reply = await self._weather.call(
            "read", self._read, self._limit(), limiter=self._limiter, on_failure=self._note_lost_reply
        )
        self._accept(reply)
        if not reply.claimed and not self._is_stopping:
            await self._wait()

    def _limit(self) -> int:
        room = self._executor.room()
        most = READ_AHEAD_COUNT if room > self._read_count else self._read_count
        return max(1, min(room, most))

    def _read(self, limit: int) -> ReadReply:
        return self._deliveries.read(limit, for_jobs=self._for_jobs(limit))

    def _for_jobs(self, limit: int) -> int:
        """Return how many entries critical ones leave to jobs: one slot in eight, or one in eight single reads."""
        if limit > 1:
            return max(1, limit // JOBS_SHARE)
        self._single_reads += 1
        return int(self._single_reads % JOBS_SHARE == 0)

    async def _wait(self) -> None:
        """Block for one entry and accept it; an error counts as nothing read, for the next read meets it too."""
        self._poked = trio.Event()
        done = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._unblock_when_poked, done)
            self._accept(await self._wait_shielded())
            done.set()
            nursery.cancel_scope.cancel()

    async def _wait_shielded(self) -> ReadReply:
        # Bounded by the socket's timeout of block_ms + 2 s, and ended within 20 ms by a poke or a cancellation.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + self._block_ms / 1000 + 10):
            try:
                return await trio.to_thread.run_sync(self._deliveries.wait, self._block_ms, limiter=self._limiter)
            except (BrokerUnavailable, GroupMissing):
                self._note_lost_reply()
        return ReadReply(())

    async def _unblock_when_poked(self, done: trio.Event) -> None:
        try:
            await self._poked.wait()
        finally:
            # Also when cancelled: the read must end before this process may.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self._block_ms / 1000 + 10):
                while not done.is_set():
                    await trio.to_thread.run_sync(self._deliveries.unblock, limiter=self._unblock_limiter)
                    with trio.move_on_after(UNBLOCK_EVERY_S):
                        await done.wait()

    def _accept(self, reply: ReadReply) -> None:
        self.last_round_trip_at = self._clock()
        for trimmed in reply.trimmed:
            self._events.emit(EntryTrimmed(stream=trimmed.stream.name.lower(), entry_id=trimmed.entry_id))
        if reply.claimed:
            self._executor.accept(reply.claimed)

    def _note_lost_reply(self) -> None:
        self._reply_was_lost = True

    async def _return_strays(self) -> None:
        """After a lost reply: what Redis says is ours and we do not know goes to the pool."""
        held = self._register.tenures()
        count = await self._weather.call("stray", self._deliveries.stray, held, limiter=self._limiter)
        self._reply_was_lost = False
        if count:
            self._events.emit(EntriesReturned(why="stray", count=count))

    def poke(self) -> None:
        """End the blocked read, if there is one: there is something in the pool, or room has changed."""
        self._poked.set()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when the read under way has ended."""
        self._is_stopping = True
        self._poked.set()
        self._executor.note_change()
