"""Calls to what may be away for a while, and how they outlast it.

Redis that is down, loading, read-only, full or slow is weather, and so is a
database that cannot serve: the call is repeated after a pause that grows to 2 s,
with jitter, and the operator gets one line when it starts to matter and one when
it is over.
"""

import random
from collections.abc import Callable
from typing import Any

import trio

from stagedoor.core.backoff import exponential_s
from stagedoor.errors import BrokerUnavailable, GroupMissing, NameTaken
from stagedoor.events import BrokerDown, BrokerUp, Event, EventStream, GroupRecreated

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
"""Short enough that all workers are back within one beat after an outage, before anybody judges them."""
NOTABLE_S = 1.0
"""A change that lasts less is not worth a line."""


class Weather:
    """The common view of all services on whether one server answers.

    Args:
        events: told of outages.
        rng: for jitter.
        ensure_groups: called when the consumer group is gone; for those who read.
        unavailable: the exceptions that mean "not now": the call may be repeated. `NameTaken` never is.
        down: makes the event of an outage from the call's name and the error.
        up: makes the event of its end from its length in seconds.
    """

    def __init__(
        self,
        *,
        events: EventStream,
        rng: random.Random,
        ensure_groups: Callable[[], bool] = lambda: False,
        unavailable: type[Exception] = BrokerUnavailable,
        down: Callable[[str, str], Event] = lambda call, error: BrokerDown(call=call, error=error),
        up: Callable[[float], Event] = lambda down_s: BrokerUp(down_s=down_s),
    ) -> None:
        self._events = events
        self._rng = rng
        self._ensure_groups = ensure_groups
        self._unavailable = unavailable
        self._down = down
        self._up = up
        self._recreating = trio.Lock()
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
        abandon: bool = False,
    ) -> T:
        """Run a call in a thread until it has gone through.

        Args:
            name: what the call is called in events.
            function: safe to repeat, as all calls of the broker's ports and of the order book are.
            args: its arguments.
            limiter: the calling service's own, so that no service queues behind another.
            on_failure: told of each try that did not go through.
            abandon: leave the thread behind when cancelled; for calls of which nothing in this
                process has to know how they ended.

        **Cancellation**: waits for the thread that is under way (the socket's timeout bounds
        it) unless *abandon*, then stops; the call may have taken effect.
        """
        failures = 0
        while True:
            try:
                result = await trio.to_thread.run_sync(function, *args, limiter=limiter, abandon_on_cancel=abandon)
            except GroupMissing as error:
                on_failure()
                failures += 1
                await self._recreate(name, limiter)
                if failures > 1:
                    self.note_bad(name, error)
                    await self._pause(failures)
            except NameTaken:
                raise
            except self._unavailable as error:
                on_failure()
                failures += 1
                self.note_bad(name, error)
                await self._pause(failures)
            else:
                self.note_good(name)
                return result

    async def _recreate(self, name: str, limiter: trio.CapacityLimiter) -> None:
        """Create what is missing; one service at a time, so that an incident has one event."""
        async with self._recreating:
            try:
                created = await trio.to_thread.run_sync(self._ensure_groups, limiter=limiter, abandon_on_cancel=True)
            except (self._unavailable, GroupMissing) as error:
                self.note_bad(name, error)
                return
            if created:
                self._events.emit(GroupRecreated(found_by=name))

    async def _pause(self, failures: int) -> None:
        longest = exponential_s(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        await trio.sleep(self._rng.uniform(longest / 2, longest))

    def note_bad(self, name: str, error: Exception) -> None:
        """Note a failure of something that is repeated elsewhere than in `call`."""
        now = trio.current_time()
        since = self._failing_since.setdefault(name, now)
        if self._reported_at is None and now - since > NOTABLE_S:
            self._reported_at = since
            self._events.emit(self._down(name, str(error)))

    def note_good(self, name: str) -> None:
        """Note that it has gone through."""
        if not self._failing_since:
            return
        self._failing_since.pop(name, None)
        if not self._failing_since and self._reported_at is not None:
            down_s = trio.current_time() - self._reported_at
            self._reported_at = None
            self._events.emit(self._up(round(down_s, 1)))
