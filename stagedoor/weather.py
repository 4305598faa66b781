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
"""Of all that need not be back sooner."""
NOTABLE_S = 1.0
"""A change that lasts less is not worth a line."""


def broker_down(call: str, error: str) -> Event:
    """Return the event of Redis being away."""
    return BrokerDown(call=call, error=error)


def broker_up(down_s: float) -> Event:
    """Return the event of its being back."""
    return BrokerUp(down_s=down_s)


class Outages:
    """What a process tells of one server being away: a line when it starts to matter, one when it is over.

    All who call that server share it, so that an outage is told once however many notice it.
    Belongs to the trio thread.

    Args:
        events: told of outages.
        down: makes the event of an outage from the call's name and the error.
        up: makes the event of its end from its length in seconds.
    """

    def __init__(
        self,
        events: EventStream,
        *,
        down: Callable[[str, str], Event] = broker_down,
        up: Callable[[float], Event] = broker_up,
    ) -> None:
        self._events = events
        self._down = down
        self._up = up
        self._failing_since: dict[str, float] = {}
        self._reported_at: float | None = None

    @property
    def is_bad(self) -> bool:
        """Whether an outage has been reported and is not over."""
        return self._reported_at is not None

    def note_bad(self, name: str, error: Exception) -> None:
        """Note a failure of the call of this name."""
        now = trio.current_time()
        since = self._failing_since.setdefault(name, now)
        if self._reported_at is None and now - since > NOTABLE_S:
            self._reported_at = since
            self._events.emit(self._down(name, str(error)))

    def note_good(self, name: str) -> None:
        """Note that it has gone through; the outage is over when nothing fails any more."""
        if not self._failing_since and self._reported_at is None:
            return
        self._failing_since.pop(name, None)
        if not self._failing_since and self._reported_at is not None:
            down_s = trio.current_time() - self._reported_at
            self._reported_at = None
            self._events.emit(self._up(round(down_s, 1)))

    def forget(self, name: str) -> None:
        """Note that nobody tries that call any more, whether it would go through or not."""
        self._failing_since.pop(name, None)


class Weather:
    """The common view of all services on whether one server answers.

    Args:
        events: told of outages, and of a group that was made anew.
        rng: for jitter.
        ensure_groups: called when the consumer group is gone; for those who read.
        regain: called when another process has this worker's name, to go on under one of its own;
            None lets `NameTaken` through.
        unavailable: the exceptions that mean "not now": the call may be repeated.
        down: makes the event of an outage from the call's name and the error.
        up: makes the event of its end from its length in seconds.
        outages: shared with others who call the same server; then *down* and *up* are its own.
        longest_pause_s: between two tries. Whoever is judged by others after an outage must be back before
            anybody judges.
    """

    def __init__(
        self,
        *,
        events: EventStream,
        rng: random.Random,
        ensure_groups: Callable[[], bool] = lambda: False,
        regain: Callable[[], object] | None = None,
        unavailable: type[Exception] = BrokerUnavailable,
        down: Callable[[str, str], Event] = broker_down,
        up: Callable[[float], Event] = broker_up,
        outages: Outages | None = None,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        self.outages = outages or Outages(events, down=down, up=up)
        self._longest_pause_s = longest_pause_s
        self._events = events
        self._rng = rng
        self._ensure_groups = ensure_groups
        self._regain = regain
        self._unavailable = unavailable
        self._mending = trio.Lock()
        self._regained = 0

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
            abandon: leave the thread behind when cancelled; where nothing here has to know how it ended.

        **Cancellation**: waits for the thread that is under way (the socket's timeout bounds
        it) unless *abandon*, then stops; the call may have taken effect.
        """
        failures = 0
        try:
            while True:
                regained = self._regained
                try:
                    result = await trio.to_thread.run_sync(function, *args, limiter=limiter, abandon_on_cancel=abandon)
                except (GroupMissing, NameTaken, self._unavailable) as error:
                    on_failure()
                    failures += 1
                    if not await self._mend(name, error, limiter, regained=regained) or failures > 1:
                        self.outages.note_bad(name, error)
                        await self._pause(failures)
                else:
                    self.outages.note_good(name)
                    return result
        except trio.Cancelled:
            self.outages.forget(name)
            raise

    async def _mend(self, name: str, error: Exception, limiter: trio.CapacityLimiter, *, regained: int) -> bool:
        """Put right what the error says is missing; one service at a time, so that an incident has one event.

        Returns:
            Whether it was something to put right, so that the call may be repeated at once.
        """
        is_taken = isinstance(error, NameTaken)
        if is_taken and self._regain is None:
            raise error
        mend = self._regain if is_taken else self._ensure_groups if isinstance(error, GroupMissing) else None
        if mend is None:
            return False
        async with self._mending:
            if is_taken and self._regained != regained:
                return True
            try:
                created = await trio.to_thread.run_sync(mend, limiter=limiter, abandon_on_cancel=True)
            except (self._unavailable, GroupMissing) as problem:
                self.outages.note_bad(name, problem)
                return True
            self._regained += is_taken
        if created and not is_taken:
            self._events.emit(GroupRecreated(found_by=name))
        return True

    async def _pause(self, failures: int) -> None:
        longest = exponential_s(failures, FIRST_PAUSE_S, self._longest_pause_s)
        await trio.sleep(self._rng.uniform(longest / 2, longest))
