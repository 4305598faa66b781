"""Strangers: kinds that this worker does not know; each is told when it first comes, and then they are counted.

A job that nobody knows comes back every few seconds for a day, and there may be
ten thousand of them: a line for each hand-back would be a gigabyte of log that
says one thing. So the line of such a delivery is for who debugs, and these are
for who operates.
"""

from collections.abc import Callable

from stagedoor.core.backoff import exponential_s
from stagedoor.events import DeliverySettled, EventStream, JobsHandedBack, KindUnknown

MOST_NAMED = 10
"""Kinds that are told by name; whoever has more of them needs no list, but the producer."""
MOST_COUNTED = 1000
"""Kinds that are told apart for their number: some 100 KB."""
FORGET_S = 3600.0
"""A kind that has not come for so long is a new one when it comes again. Of many workers each sees a job rarely."""
FIRST_COUNT_S = 60.0
LAST_COUNT_S = 3600.0


class Strangers:
    """Hears of every hand-back; belongs to the trio thread.

    Args:
        events: told of each kind when it first comes, and of their number ever more rarely.
        clock: monotonic seconds.
    """

    def __init__(self, events: EventStream, *, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._named: dict[str, float] = {}
        self._kinds: set[str] = set()
        self._count = 0
        self._counts = 0
        self._since = 0.0
        self._last_at = float("-inf")

    def note(self, delivery: DeliverySettled) -> None:
        """Note that a delivery was handed back because its kind is unknown here."""
        now, kind = self._clock(), delivery.kind or ""
        if now - self._last_at > FORGET_S:
            self._begin(now)
            self._counts = 0
        self._last_at = now
        if self._is_new(kind, now):
            self._events.emit(
                KindUnknown(
                    kind=kind,
                    entry_id=delivery.entry_id,
                    order_id=delivery.order_id,
                    request_id=delivery.request_id,
                    trace=delivery.trace,
                )
            )
        self._count += 1
        if len(self._kinds) < MOST_COUNTED:
            self._kinds.add(kind)
        if now - self._since >= exponential_s(self._counts + 1, FIRST_COUNT_S, LAST_COUNT_S):
            self._events.emit(
                JobsHandedBack(
                    count=self._count,
                    kinds=len(self._kinds),
                    or_more=len(self._kinds) == MOST_COUNTED,
                    within_s=round(now - self._since),
                )
            )
            self._begin(now)
            self._counts += 1

    def _begin(self, now: float) -> None:
        """Count anew."""
        self._kinds.clear()
        self._count, self._since = 0, now

    def _is_new(self, kind: str, now: float) -> bool:
        """Whether to tell of a kind by its name; it is then known to have come."""
        is_named = now - self._named.get(kind, float("-inf")) <= FORGET_S
        if not is_named and len(self._named) >= MOST_NAMED:
            self._named = {name: at for name, at in self._named.items() if now - at <= FORGET_S}
            if len(self._named) >= MOST_NAMED:
                return False
        self._named[kind] = now
        return not is_named
