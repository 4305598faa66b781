"""Calls to the broker that outlast its outages.

Redis that is down, loading, read-only, full or slow is weather: the call is
repeated after a pause that grows to 2 s, with jitter, and the operator gets one
line when it starts to matter and one when it is over.
"""

import random
from collections.abc import Callable
from typing import Any

import trio

from stagedoor.core.backoff import exponential_s
from stagedoor.errors import BrokerUnavailable, GroupMissing
from stagedoor.events import BrokerDown, BrokerUp, EventStream, GroupRecreated

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
"""Short enough that all workers are back within one beat after an outage, before anybody judges them."""
NOTABLE_S = 1.0
"""A change that lasts less is not worth a line."""


class Weather:
    """The common view of all services on whether the broker answers."""

    def __init__(self, *, events: EventStream, ensure_groups: Callable[[], bool], rng: random.Random) -> None:
        self._events = events
        self._ensure_groups = ensure_groups
        self._rng = rng
        self._failing_since: dict[str, float] = {}
        self._reported_at: float | None = None

    @property
    def is_bad(self) -> bool:
        """Whether an outage has been reported and is not over."""
        return self._reported_at is not None

    async def call[T](
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        limiter: trio.CapacityLimiter,
        on_failure: Callable[[], None] = lambda: None,
    ) -> T:
        """Run a broker call in a thread until it has gone through.

        Args:
            name: what the call is called in events.
            function: safe to repeat, as all calls of the broker's ports are.
            args: its arguments.
            limiter: the calling service's own, so that no service queues behind another.
            on_failure: told of each try that did not go through.

        **Cancellation**: waits for the thread that is under way (the socket's timeout bounds
        it), then stops; the call may have taken effect.
        """
        failures = 0
        while True:
            try:
                result = await trio.to_thread.run_sync(function, *args, limiter=limiter)
            except GroupMissing:
                on_failure()
                failures += 1
                await self._recreate(name, limiter)
                if failures > 1:
                    await self._pause(failures)
            except BrokerUnavailable as error:
                on_failure()
                failures += 1
                self._note_bad(name, error)
                await self._pause(failures)
            else:
                self._note_good(name)
                return result

    async def _recreate(self, name: str, limiter: trio.CapacityLimiter) -> None:
        try:
            created = await trio.to_thread.run_sync(self._ensure_groups, limiter=limiter)
        except (BrokerUnavailable, GroupMissing) as error:
            self._note_bad(name, error)
            return
        if created:
            self._events.emit(GroupRecreated(found_by=name))

    async def _pause(self, failures: int) -> None:
        longest = exponential_s(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        await trio.sleep(self._rng.uniform(longest / 2, longest))

    def _note_bad(self, name: str, error: Exception) -> None:
        now = trio.current_time()
        since = self._failing_since.setdefault(name, now)
        if self._reported_at is None and now - since > NOTABLE_S:
            self._reported_at = since
            self._events.emit(BrokerDown(call=name, error=str(error)))

    def _note_good(self, name: str) -> None:
        if not self._failing_since:
            return
        self._failing_since.pop(name, None)
        if not self._failing_since and self._reported_at is not None:
            down_s = trio.current_time() - self._reported_at
            self._reported_at = None
            self._events.emit(BrokerUp(down_s=round(down_s, 1)))
