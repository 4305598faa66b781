"""Liveness: beats, so that others know that this process lives and how it is."""

from collections.abc import Callable

import trio

from stagedoor.broker import Deliveries, Pulse
from stagedoor.weather import Weather
from stagedoor.worker.standing import Standing


class Liveness:
    """Writes the worker's record."""

    def __init__(
        self,
        deliveries: Deliveries,
        *,
        pulse: Callable[[], Pulse],
        standing: Standing,
        weather: Weather,
        every_s: float,
    ) -> None:
        self._deliveries = deliveries
        self._pulse = pulse
        self._standing = standing
        self._weather = weather
        self._every_s = every_s
        self._limiter = trio.CapacityLimiter(1)
        self._sooner = trio.Event()
        self._is_stopping = False
        self._ended = trio.Event()
        self._sent_at = 0.0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Beat for ever.

        **Cancellation**: safe anywhere; the record lapses a TTL after the last beat.

        Raises:
            NameTaken: another process has the name: this one owns nothing any more.
        """
        task_status.started()
        try:
            while not self._is_stopping:
                self._sooner = trio.Event()
                await self.beat_once()
                with trio.move_on_after(self._every_s):
                    await self._sooner.wait()
        finally:
            self._ended.set()

    def beat_now(self) -> None:
        """Let the next beat come at once: there is something to say that must not wait."""
        self._sooner.set()

    async def stop(self) -> None:
        """End `run`; returns when no call of it is under way any more, which would write the record anew."""
        self._is_stopping = True
        self._sooner.set()
        await self._ended.wait()

    async def beat_once(self) -> None:
        """Beat once."""
        await self._weather.call(
            "beat", self._beat, limiter=self._limiter, on_failure=self._standing.failed, abandon=True
        )
        self._standing.beat_succeeded(self._sent_at)

    def _beat(self) -> None:
        self._sent_at = self._standing.now()
        self._deliveries.beat(self._pulse())
