"""Lookout: looks for entries that somebody deleted before any worker had read them."""

import random
from collections.abc import Callable

import trio

from stagedoor.broker.losses import Lost
from stagedoor.errors import BrokerError
from stagedoor.events import EventStream, UnreadTrimmed
from stagedoor.weather import Weather


class Lookout:
    """Looks now and then; any number may look.

    Args:
        note: puts new losses on record and returns them.
        events: told of each loss.
        every_s: pause in seconds between two looks.
        rng: for jitter.
    """

    def __init__(
        self, note: Callable[[], tuple[Lost, ...]], *, events: EventStream, every_s: float, rng: random.Random
    ) -> None:
        self._note = note
        self._events = events
        self._every_s = every_s
        self._rng = rng
        # Of an outage the services that work tell; this one only waits for its end.
        self._weather = Weather(events=EventStream(), rng=rng, unavailable=BrokerError)
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for ever.

        **Cancellation**: safe anywhere; a loss that was put on record has its dead letter.
        """
        task_status.started()
        while True:
            await trio.sleep(self._rng.uniform(0.8, 1.0) * self._every_s)
            await self.look_once()

    async def look_once(self) -> None:
        """Look once."""
        for lost in await self._weather.call("losses", self._note, limiter=self._limiter, abandon=True):
            self._events.emit(UnreadTrimmed(stream=lost.stream.name.lower(), count=lost.count))
