"""The memory behind the fake broker: two streams, a clock, and the faults that a test asks for.

`FakeBroker` stands for one Redis. Any number of `FakeDeliveries` (one per worker)
and `FakePublishing` share it, from any number of threads. Everything in it may be
looked at and changed by a test, under `FakeBroker.lock` where threads run.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import attrs

from stagedoor.broker.deliveries import Answers, Identity, Pulse
from stagedoor.core.codec import Fields
from stagedoor.core.keys import GROUP, POOL
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerUnavailable, GroupMissing
from stagedoor.testing.fake_call_store import CallStore

RECORD_TTL_MS = 3_600_000
CRASHES_TTL_MS = 7 * 24 * 3_600_000

Id = tuple[int, int]


class ManualClock:
    """A clock in ms that moves only when it is told to, and wakes those who wait on a broker that uses it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._listeners: list[Callable[[], None]] = []

    def __call__(self) -> int:
        """Return the time in ms."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move on (or, with a negative number, back)."""
        self._now_ms += ms
        for listener in self._listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this after every move."""
        self._listeners.append(listener)


@attrs.define
class Pending:
    """One line of the pending list."""

    consumer: str
    deliveries: int
    delivered_ms: int


@attrs.define
class Group:
    """The consumer group of one stream."""

    last: Id = (0, 0)
    pending: dict[Id, Pending] = attrs.Factory(dict)
    consumers: dict[str, int] = attrs.Factory(dict)
    """Name to the ms at which it was last heard of."""


@attrs.define
class WorkerRecord:
    """The record of one worker process."""

    identity: Identity
    pulse: Pulse
    beat_ms: int
    expires_ms: int
    batch: int | None = None
    answers: Answers = attrs.field(factory=lambda: Answers(()))

    def as_text(self) -> dict[str, str]:
        """Return it as Redis would keep it: what a check for dead processes is given."""
        values = {**attrs.asdict(self.identity), **attrs.asdict(self.pulse), "beat": self.beat_ms}
        values["stopping"] = int(self.pulse.stopping)
        return {name: str(value) for name, value in values.items()}


class FakeStream:
    """One stream with its group; only what the broker's scripts do to it."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.entries: dict[Id, Fields] = {}
        self.last: Id = (0, 0)
        self.group: Group | None = None

    def require_group(self) -> Group:
        """Return the group.

        Raises:
            GroupMissing: as Redis says it.
        """
        if self.group is None:
            raise GroupMissing(f"NOGROUP No such consumer group {GROUP!r}")
        return self.group

    def add(self, fields: Fields) -> Id:
        """Add an entry; ids grow even when the clock does not."""
        now = self._clock()
        self.last = (now, 0) if now > self.last[0] else (self.last[0], self.last[1] + 1)
        self.entries[self.last] = fields
        return self.last

    def take_new(self, consumer: str, most: int) -> list[Id]:
        """Hand out entries that nobody was given yet."""
        group = self.require_group()
        group.consumers[consumer] = self._clock()
        new = [entry for entry in self.entries if entry > group.last][: max(0, most)]
        for entry in new:
            group.pending[entry] = Pending(consumer, 1, self._clock())
            group.last = entry
        return new

    def owned(self, consumer: str) -> list[Id]:
        """Return what is pending under a consumer, oldest first."""
        return sorted(entry for entry, line in self.require_group().pending.items() if line.consumer == consumer)

    def claim(self, entry: Id, consumer: str, *, just_id: bool) -> int:
        """Give a pending entry that has a body to a consumer; return its delivery count."""
        group = self.require_group()
        group.consumers[consumer] = self._clock()
        line = group.pending[entry]
        line.consumer, line.delivered_ms = consumer, self._clock()
        line.deliveries += 0 if just_id else 1
        return line.deliveries

    def holds(self, entry: Id, consumer: str, deliveries: int) -> bool:
        """Whether the pending list shows this consumer with this count: the fence."""
        line = self.require_group().pending.get(entry)
        return line is not None and (line.consumer, line.deliveries) == (consumer, deliveries)

    def acknowledge(self, entry: Id) -> None:
        """Take it off the pending list; the body stays."""
        self.require_group().pending.pop(entry, None)

    def unread(self) -> list[Id]:
        """Return what nobody was given yet."""
        last = self.group.last if self.group else (0, 0)
        return [entry for entry in self.entries if entry > last]


@attrs.frozen
class _Fault:
    error: BaseException
    after_effect: bool


class FakeBroker:
    """One pretend Redis, with the faults of a real one on demand.

    Args:
        clock: the time in ms; None takes the system's. A `ManualClock` wakes blocked
            reads when it moves; after moving another one call `wake`.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._clock = clock or _system_ms
        self.is_real_time = clock is None
        self.lock = threading.Condition(threading.RLock())
        self._faults: dict[str, list[_Fault]] = {}
        self._is_out = False
        self._dead_problem: str | None = None
        self._clear()
        if isinstance(clock, ManualClock):
            clock.listen(self.wake)

    def _clear(self) -> None:
        self.streams: dict[Stream, FakeStream] = {stream: FakeStream(self._clock) for stream in Stream}
        self.dead: list[Fields] = []
        self.delayed: dict[str, int] = {}
        self.delayed_bodies: dict[str, bytes] = {}
        self.workers: dict[str, WorkerRecord] = {}
        self.crashes: dict[str, str] = {}
        self._crashes_expire_ms = 0
        self.published_seq: dict[str, int] = {}
        self.published_bits: dict[tuple[str, int], set[int]] = {}
        self.bits_expire_ms: dict[tuple[str, int], int] = {}
        self.calls = CallStore(self)

    def now_ms(self) -> int:
        """Return the broker's time."""
        return self._clock()

    # -- what producers and operators do -----------------------------------------

    def add(self, fields: Fields | Mapping[str, str], *, stream: Stream = Stream.JOBS) -> str:
        """Add an entry, as a producer would; return its id."""
        pairs = tuple((k.encode(), v.encode()) for k, v in fields.items()) if isinstance(fields, Mapping) else fields
        with self.lock:
            entry = self.streams[stream].add(pairs)
            self.wake()
        return id_text(entry)

    def trim(self, entry_ids: Iterable[str] | None = None, *, stream: Stream = Stream.JOBS) -> None:
        """Delete bodies, all or these, whoever may hold the entries."""
        with self.lock:
            entries = self.streams[stream].entries
            for entry in list(entries) if entry_ids is None else map(id_of, entry_ids):
                entries.pop(entry, None)

    def destroy_group(self, *, stream: Stream = Stream.JOBS) -> None:
        """Forget who was given what; bodies stay. Blocked reads end with `GroupMissing`."""
        with self.lock:
            self.streams[stream].group = None
            self.wake()

    def flush(self) -> None:
        """Lose everything, as FLUSHALL or a restart without persistence does."""
        with self.lock:
            self._clear()
            self.wake()

    # -- faults -------------------------------------------------------------------

    def fail_next(self, verb: str, error: BaseException, *, after_effect: bool = False, times: int = 1) -> None:
        """Let the next calls of a verb raise.

        Args:
            verb: the name of a port's method.
            error: what it raises, for instance `BrokerUnavailable`.
            after_effect: False raises instead of doing anything (a lost request), True after
                everything was written (a lost reply).
            times: how many calls.
        """
        with self.lock:
            self._faults.setdefault(verb, []).extend([_Fault(error, after_effect)] * times)
            self.wake()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Let every call raise `BrokerUnavailable` while the block runs, also those that are blocked already."""
        self.cut()
        try:
            yield
        finally:
            self.restore()

    def cut(self) -> None:
        """Begin an outage."""
        with self.lock:
            self._is_out = True
            self.wake()

    def restore(self) -> None:
        """End an outage."""
        with self.lock:
            self._is_out = False

    def refuse_dead_letters(self, problem: str | None) -> None:
        """Let every write of a dead letter fail with this text, as a key of the wrong type does; None heals it."""
        with self.lock:
            self._dead_problem = problem

    def wake(self) -> None:
        """Let blocked reads look again: after something was added or the clock was moved."""
        with self.lock:
            self.lock.notify_all()

    # -- what the ports are made of -----------------------------------------------

    @contextmanager
    def call(self, verb: str) -> Iterator[None]:
        """Run the block as one atomic call, with the fault that was asked for."""
        with self.lock:
            self.check(verb)
            fault = self._pop_fault(verb)
            if fault is not None and not fault.after_effect:
                raise fault.error
            yield
            self.lock.notify_all()
            if fault is not None:
                raise fault.error

    def check(self, verb: str) -> None:
        """Refuse a call during an outage."""
        if self._is_out:
            raise BrokerUnavailable(f"the fake broker is out: {verb} did nothing")

    def _pop_fault(self, verb: str) -> _Fault | None:
        planned = self._faults.get(verb)
        return planned.pop(0) if planned else None

    def record(self, name: str) -> WorkerRecord | None:
        """Return a worker's record, unless it has expired."""
        found = self.workers.get(name)
        if found is not None and found.expires_ms <= self.now_ms():
            del self.workers[name]
            return None
        return found

    def write_record(self, name: str, identity: Identity, pulse: Pulse) -> None:
        """Write a record anew, or a beat into the one that is there."""
        now = self.now_ms()
        old = self.record(name)
        self.workers[name] = WorkerRecord(identity, pulse, now, now + RECORD_TTL_MS)
        if old is not None and old.identity.incarnation == identity.incarnation:
            self.workers[name].batch, self.workers[name].answers = old.batch, old.answers

    def write_dead(self, letter: Fields, maxlen: int) -> str | None:
        """Add a dead letter; return the problem where it cannot be written.

        Redis trims to about *maxlen*; this trims to it exactly.
        """
        if self._dead_problem is None:
            self.dead = [*self.dead, letter][-maxlen:]
        return self._dead_problem

    def crash_log(self, stream: Stream, entry: Id) -> str:
        """Return the crash log of an entry, one line per crash."""
        if self._crashes_expire_ms <= self.now_ms():
            self.crashes.clear()
        return self.crashes.get(member_of(stream, entry), "")

    def blame(self, stream: Stream, entry: Id, *, name: str, incarnation: str) -> None:
        """Add a line to the crash log of an entry, once per incarnation."""
        log = self.crash_log(stream, entry)
        if incarnation not in log:
            self.crashes[member_of(stream, entry)] = f"{log}{self.now_ms()} {name} {incarnation}\n"
            self._crashes_expire_ms = self.now_ms() + CRASHES_TTL_MS

    def bury_trimmed(self, stream: Stream, entry: Id, *, consumer: str, maxlen: int) -> bool:
        """Move an entry without a body to the dead letters; return whether it could be done."""
        letter = {
            "reason": "trimmed",
            "error": "the entry was deleted from the stream while it was pending",
            "stream": str(stream.value),
            "entry_id": id_text(entry),
            "consumer": consumer,
            "fields": "",
        }
        if self.write_dead(tuple((k.encode(), v.encode()) for k, v in letter.items()), maxlen) is not None:
            return False
        self.streams[stream].acknowledge(entry)
        return True

    def move_to_pool(
        self, stream: Stream, consumer: str, *, crashed: str | None, maxlen: int
    ) -> tuple[int, tuple[Id, ...]]:
        """Move all that a consumer holds to the pool, noting a crash of the incarnation *crashed*, if any.

        Returns:
            How many were moved, and which had no body and were buried.
        """
        moved, trimmed = 0, []
        here = self.streams[stream]
        for entry in here.owned(consumer):
            if entry not in here.entries:
                if self.bury_trimmed(stream, entry, consumer=consumer, maxlen=maxlen):
                    trimmed.append(entry)
                continue
            if crashed is not None:
                self.blame(stream, entry, name=consumer, incarnation=crashed)
            here.claim(entry, POOL, just_id=True)
            moved += 1
        return moved, tuple(trimmed)


def id_text(entry: Id) -> str:
    """Return an id as Redis writes it."""
    return f"{entry[0]}-{entry[1]}"


def id_of(text: str) -> Id:
    """Return an id as something that sorts."""
    ms, _, seq = text.partition("-")
    return int(ms), int(seq or 0)


def member_of(stream: Stream, entry: Id) -> str:
    """Return what names an entry among the delayed jobs and the crash logs."""
    return f"{stream.value}:{id_text(entry)}"


def _system_ms() -> int:
    return time.time_ns() // 1_000_000
