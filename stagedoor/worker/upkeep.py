"""Upkeep: plain functions of others that are to be called now and then as long as handlers run.

So what keeps something alive for a handler need not be known to the worker, and
stops only after the last handler has.
"""

from collections.abc import Callable

import attrs
import trio

from stagedoor.weather import Weather


@attrs.frozen(kw_only=True)
class Chore:
    """One such function.

    Args:
        name: what its calls are called in events.
        every_s: pause in seconds between two calls.
        once: run in a thread of its own; safe to repeat.
    """

    name: str
    every_s: float
    once: Callable[[], object]


class Upkeep:
    """Calls one chore again and again."""

    def __init__(self, chore: Chore, *, weather: Weather) -> None:
        self._chore = chore
        self._weather = weather
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Call it for ever; through an outage, until it goes through.

        **Cancellation**: safe anywhere; a call under way is left behind.
        """
        task_status.started()
        while True:
            await trio.sleep(self._chore.every_s)
            await self.do_once()

    async def do_once(self) -> None:
        """Call it once."""
        await self._weather.call(self._chore.name, self._chore.once, limiter=self._limiter, abandon=True)
