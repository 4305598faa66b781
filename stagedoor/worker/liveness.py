"""Liveness: beats, so that others know that this process lives and how it is."""

from collections.abc import Callable

import trio

from stagedoor.broker import Deliveries, Pulse
from stagedoor.worker.standing import Standing
from stagedoor.worker.weather import Weather


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

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Beat for ever.

        **Cancellation**: safe anywhere; the record lapses a TTL after the last beat.

        Raises:
            NameTaken: another process has the name: this one owns nothing any more.
        """
        task_status.started()
        while True:
            await self.beat_once()
            await trio.sleep(self._every_s)

    async def beat_once(self) -> None:
        """Beat once."""
        await self._weather.call("beat", self._beat, limiter=self._limiter, on_failure=self._standing.failed)
        self._standing.beat_succeeded()

    def _beat(self) -> None:
        self._deliveries.beat(self._pulse())
