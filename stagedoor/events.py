"""What happens in a process, as values: the one stream that feeds logs, metrics and tests.

An event says what has happened, never what somebody should print. Its class
name in snake case is the event's name; *level* says how loud an operator wants it.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import attrs


@attrs.frozen(kw_only=True)
class Event:
    """The base of all events."""

    level: ClassVar[str] = "info"

    @property
    def name(self) -> str:
        """The event's name in snake case."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def severity(self) -> str:
        """How loud this one is; the class' level unless what it carries says otherwise."""
        return self.level

    def fields(self) -> dict[str, Any]:
        """Return what the event carries, for a log line."""
        return {key: value for key, value in attrs.asdict(self, recurse=False).items() if value not in (None, "")}


Subscriber = Callable[[Event], None]


class EventStream:
    """Hands every event to every subscriber, in the thread that emits it.

    Subscribers must be quick and must not raise; one that raises is a bug of
    its own and is not allowed to stop the work, so it is dropped.
    """

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = tuple(subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Hand it every event from now on."""
        self._subscribers = (*self._subscribers, subscriber)

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens; events that cost something to make are skipped when nobody does."""
        return bool(self._subscribers)

    def emit(self, event: Event) -> None:
        """Hand out one event."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 - see the class: work goes on whatever a listener does
                self._subscribers = tuple(other for other in self._subscribers if other is not subscriber)


# -- the life of a worker -----------------------------------------------------


@attrs.frozen(kw_only=True)
class WorkerStarted(Event):
    """The worker has its name and reads."""

    worker: str
    incarnation: str
    slots: int
    gil: bool
    kinds: tuple[str, ...]


@attrs.frozen(kw_only=True)
class WorkerStopping(Event):
    """It stops reading and drains what it holds."""

    worker: str
    why: str
    held: int
    grace_s: float


@attrs.frozen(kw_only=True)
class WorkerStopped(Event):
    """It has stopped; *released* entries run elsewhere."""

    worker: str
    released: int
    owed: int
    orphaned: int


@attrs.frozen(kw_only=True)
class Warned(Event):
    """Something an operator should know about the set-up."""

    level: ClassVar[str] = "warning"
    message: str


# -- deliveries -----------------------------------------------------------------


@attrs.frozen(kw_only=True)
class DeliveryStarted(Event):
    """A handler starts; at most one attempt of it runs in this process."""

    level: ClassVar[str] = "debug"
    kind: str
    entry_id: str
    order_id: int | None
    outbox_id: int | None = None
    attempt: int
    deliveries: int
    call_id: str | None = None


@attrs.frozen(kw_only=True)
class DeliverySettled(Event):
    """The canonical line of one delivery: what it was, what became of it, how long it took.

    *ended* is the state in which a pass has left its call, *hops* how often an unknown kind was handed back.
    """

    outcome: str
    kind: str | None
    entry_id: str
    origin: str | None = None
    order_id: int | None = None
    outbox_id: int | None = None
    call_id: str | None = None
    attempt: int | None = None
    deliveries: int
    crashes: int = 0
    request_id: str | None = None
    trace: str | None = None
    queue_age_s: float | None = None
    run_s: float | None = None
    retry_in_s: float | None = None
    hops: int | None = None
    ended: str | None = None
    reason: str | None = None
    error: str | None = None

    @property
    def severity(self) -> str:
        """A dead letter wants somebody, and so does a call that failed or stands still; a retry is worth knowing.

        A job of an unknown kind comes back every few seconds: `KindUnknown` and `JobsHandedBack` tell of it.
        """
        if self.ended in {"failed", "parked"}:
            return "error"
        if self.hops is not None:
            return "debug"
        return {"dead": "error", "retry": "warning"}.get(self.outcome, self.level)


@attrs.frozen(kw_only=True)
class KindUnknown(Event):
    """A kind came that this worker does not know: its jobs are handed back. Told when it first comes, with that job."""

    level: ClassVar[str] = "warning"
    kind: str
    entry_id: str
    order_id: int | None = None
    request_id: str | None = None
    trace: str | None = None


@attrs.frozen(kw_only=True)
class JobsHandedBack(Event):
    """How often jobs were handed back for their kinds, and of how many kinds they were, *or_more*; ever more rarely."""

    level: ClassVar[str] = "warning"
    count: int
    kinds: int
    or_more: bool
    within_s: int


@attrs.frozen(kw_only=True)
class TenureLost(Event):
    """A write about an entry was refused, or a renewal was: somebody else owns it now.

    *at* is ``settle``, ``check`` (of a handler), ``pass`` (a write of a flow's call) or ``renew``. All but the last
    are the one line of that delivery, and join the request that queued it.
    """

    level: ClassVar[str] = "warning"
    kind: str | None
    entry_id: str
    deliveries: int
    at: str
    order_id: int | None = None
    request_id: str | None = None
    trace: str | None = None


@attrs.frozen(kw_only=True)
class SettleRefused(Event):
    """Redis refused what has to be written first; the entry stays pending and is settled again."""

    level: ClassVar[str] = "error"
    entry_id: str
    problem: str


@attrs.frozen(kw_only=True)
class HandlerOrphaned(Event):
    """A handler's thread did not end at its timeout; its slot is gone until it does."""

    level: ClassVar[str] = "error"
    kind: str
    entry_id: str
    orphaned: int
    slots: int


@attrs.frozen(kw_only=True)
class ResultIgnored(Event):
    """A handler returned something; nothing reads it."""

    level: ClassVar[str] = "warning"
    kind: str
    returned: str


# -- the streams --------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class EntriesReturned(Event):
    """Entries went back to the pool: *why* is released, stray, surplus, suspect or leftover."""

    why: str
    count: int


@attrs.frozen(kw_only=True)
class WorkerSwept(Event):
    """A worker had lapsed; its entries are in the pool."""

    level: ClassVar[str] = "warning"
    worker: str
    entries: int
    crashed: bool


@attrs.frozen(kw_only=True)
class EntriesReclaimed(Event):
    """Entries that nobody had touched for too long are in the pool."""

    level: ClassVar[str] = "warning"
    count: int


@attrs.frozen(kw_only=True)
class EntryTrimmed(Event):
    """Somebody deleted an entry that was owed: a lost job, now a dead letter. Find out who."""

    level: ClassVar[str] = "error"
    stream: str
    entry_id: str


@attrs.frozen(kw_only=True)
class UnreadTrimmed(Event):
    """Somebody deleted entries before any worker had read them: lost jobs. Find out who."""

    level: ClassVar[str] = "error"
    stream: str
    count: int


@attrs.frozen(kw_only=True)
class JobsPromoted(Event):
    """Delayed jobs that were due are back in their streams."""

    level: ClassVar[str] = "debug"
    count: int
    broken: int


@attrs.frozen(kw_only=True)
class GroupRecreated(Event):
    """The consumer group was gone and was made anew; one per incident."""

    level: ClassVar[str] = "warning"
    found_by: str


@attrs.frozen(kw_only=True)
class BrokerDown(Event):
    """Redis has not served us for over a second; we go on trying."""

    level: ClassVar[str] = "warning"
    call: str
    error: str


@attrs.frozen(kw_only=True)
class BrokerUp(Event):
    """Redis serves us again."""

    down_s: float


# -- the relay ------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class RelayStarted(Event):
    """A relay reads the outbox of this order book."""

    book: str


@attrs.frozen(kw_only=True)
class RelayStopped(Event):
    """A relay that ran alone has stopped."""

    why: str


@attrs.frozen(kw_only=True)
class RowsPublished(Event):
    """Outbox rows have their entries."""

    level: ClassVar[str] = "debug"
    added: int
    duplicates: int


@attrs.frozen(kw_only=True)
class StreamFull(Event):
    """The stream is at its cap; rows wait in the outbox."""

    level: ClassVar[str] = "warning"
    waiting: int


@attrs.frozen(kw_only=True)
class StreamHasRoom(Event):
    """The stream takes rows again after it was full."""


@attrs.frozen(kw_only=True)
class RowParked(Event):
    """A row can never make an entry; it is set aside with its error."""

    level: ClassVar[str] = "error"
    outbox_id: int
    error: str


@attrs.frozen(kw_only=True)
class PublishedLost(Event):
    """Redis has lost rows that it had confirmed; they are offered again."""

    level: ClassVar[str] = "error"
    confirmed: int
    recorded: int
    offered_again: int


@attrs.frozen(kw_only=True)
class OrderBookDown(Event):
    """The order book's database has not served us for over a second; we go on trying."""

    level: ClassVar[str] = "warning"
    call: str
    error: str


@attrs.frozen(kw_only=True)
class OrderBookUp(Event):
    """The order book's database serves us again."""

    down_s: float
