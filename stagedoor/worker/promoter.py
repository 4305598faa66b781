"""Promoter: puts delayed jobs that are due back into their streams, and looks at the pool.

Every worker ticks twice a second at least, so that an entry released anywhere
runs within a second; a worker that delays a job wakes itself in time for it.
"""

from collections.abc import Callable

import trio

from stagedoor.broker import Deliveries
from stagedoor.events import EventStream, JobsPromoted
from stagedoor.weather import Weather

TICK_S = 0.5


class Promoter:
    """Moves what is due."""

    def __init__(
        self,
        deliveries: Deliveries,
        *,
        weather: Weather,
        events: EventStream,
        on_pool: Callable[[], None],
        on_tick: Callable[[], object] = lambda: None,
    ) -> None:
        self._deliveries = deliveries
        self._weather = weather
        self._events = events
        self._on_pool = on_pool
        self._on_tick = on_tick
        self._limiter = trio.CapacityLimiter(1)
        self._sooner = trio.Event()
        self._wake_at = float("inf")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Promote for ever.

        **Cancellation**: safe anywhere; each promotion is atomic.
        """
        task_status.started()
        while True:
            # What is delayed from here on may have come too late for the answer, and asks for itself.
            self._wake_at = float("inf")
            wait_s = await self.promote_once()
            self._on_tick()
            self._wake_at = min(self._wake_at, trio.current_time() + wait_s)
            while trio.current_time() < self._wake_at:
                self._sooner = trio.Event()
                with trio.move_on_at(self._wake_at):
                    await self._sooner.wait()

    async def promote_once(self) -> float:
        """Promote once; return how many seconds to sleep before the next time."""
        promoted = await self._weather.call("promote", self._deliveries.promote, limiter=self._limiter, abandon=True)
        if promoted.moved or promoted.broken:
            self._events.emit(JobsPromoted(count=promoted.moved, broken=promoted.broken))
        if promoted.pool:
            self._on_pool()
        return TICK_S if promoted.next_due_s is None else min(TICK_S, promoted.next_due_s)

    def wake_in(self, seconds: float) -> None:
        """Wake in time for a job that was just delayed by this many seconds."""
        at = trio.current_time() + seconds
        if at < self._wake_at:
            self._wake_at = at
            self._sooner.set()
