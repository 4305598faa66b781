"""Reclaimer: moves what no live process owns to the pool.

Two ways: every 2 s it sweeps workers whose beat has lapsed, and every 30 s it
takes what anybody has left idle for a minute, whatever the reason. It does
neither before its own beats and renewals have gone well for a whole TTL.
"""

import random
from collections.abc import Callable

import trio

from stagedoor.broker import Deliveries, Reclaimed, Swept, Trimmed
from stagedoor.events import EntriesReclaimed, EntryTrimmed, EventStream, WorkerSwept
from stagedoor.weather import Weather
from stagedoor.worker.standing import Standing


class Reclaimer:
    """Sweeps and reclaims."""

    def __init__(
        self,
        deliveries: Deliveries,
        *,
        standing: Standing,
        weather: Weather,
        events: EventStream,
        sweep_every_s: float,
        reclaim_every_s: float,
        rng: random.Random,
        on_moved: Callable[[], None],
    ) -> None:
        self._deliveries = deliveries
        self._standing = standing
        self._weather = weather
        self._events = events
        self._sweep_every_s = sweep_every_s
        self._reclaim_every_s = reclaim_every_s
        self._rng = rng
        self._on_moved = on_moved
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sweep and reclaim for ever.

        **Cancellation**: safe anywhere; each move is atomic and the walk goes on from its cursor.
        """
        task_status.started()
        next_reclaim_at = trio.current_time() + self._jittered(self._reclaim_every_s)
        while True:
            await trio.sleep(self._jittered(self._sweep_every_s))
            if not self._standing.may_judge():
                continue
            await self.sweep_once()
            if trio.current_time() >= next_reclaim_at and self._standing.may_judge():
                next_reclaim_at = trio.current_time() + self._jittered(self._reclaim_every_s)
                await self.reclaim_once()

    async def sweep_once(self) -> None:
        """Sweep once, if we may."""
        swept = await self._judge("sweep", self._deliveries.sweep, Swept())
        for worker, entries, crashed in swept.workers:
            self._events.emit(WorkerSwept(worker=worker, entries=entries, crashed=crashed))
        self._report(swept.trimmed)
        if swept.workers:
            self._on_moved()

    async def reclaim_once(self) -> None:
        """Walk both pending lists once, to their ends, if we may."""
        reclaimed = await self._judge("reclaim", self._deliveries.reclaim, Reclaimed())
        self._report(reclaimed.trimmed)
        if reclaimed.moved:
            self._events.emit(EntriesReclaimed(count=reclaimed.moved))
            self._on_moved()

    async def _judge[T](self, name: str, judge: Callable[[], T], nothing: T) -> T:
        """Make a call that robs others, and ask again before each repetition of it whether we may.

        One that has outlasted an outage would be the first after it, when nobody has beaten yet.
        """

        def judge_if_allowed() -> T:
            return judge() if self._standing.may_judge() else nothing

        return await self._weather.call(name, judge_if_allowed, limiter=self._limiter, abandon=True)

    def _report(self, trimmed: tuple[Trimmed, ...]) -> None:
        for entry in trimmed:
            self._events.emit(EntryTrimmed(stream=entry.stream.name.lower(), entry_id=entry.entry_id))

    def _jittered(self, seconds: float) -> float:
        return seconds * self._rng.uniform(0.9, 1.0)
