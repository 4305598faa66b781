"""Looking at what is on Redis, for people and for metrics; changes nothing.

One transaction gives one moment. No SCAN and no KEYS: the names of the workers
are those of the group's consumers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from stagedoor.broker.connection import Link, Script, is_wrong_type, mapped_errors, send, sound_reply
from stagedoor.core.call import CallState
from stagedoor.core.codec import pair_up, unpack
from stagedoor.core.keys import GROUP, POOL, Keys, is_worker_name
from stagedoor.errors import BrokerError, GroupMissing, MalformedEntry

type EntryNumber = tuple[int, int]
"""An entry id as two numbers, which compare as the ids do."""

NOTHING: EntryNumber = (0, 0)
MOST_DELAYED = 1000
"""Delayed jobs, those first that are due first, whose kinds are looked at: one of an unknown kind is due soon."""
PAGE = 100  # a body has up to 64 KiB, so a reply has up to 6.4 MB, and all of them ten times that
UNKNOWN_HOPS = 3
"""So often handed back, a job is of a kind that no worker knows; the first hops follow each other within a second."""
_DIGITS = 18
"""Of a number that somebody else may have written."""


@attrs.frozen(kw_only=True)
class StreamView:
    """One stream as its group sees it.

    *unread* and *pending* together are *length*, unless somebody deletes what is owed.
    *oldest_age_s* is the age of the oldest entry that is owed, None when none is, and
    *oldest_pending_age_s* that of the oldest one that was handed out.
    *trimmed_unread* counts entries that somebody deleted before anybody had read them.
    """

    length: int = 0
    unread: int = 0
    pending: int = 0
    pool: int = 0
    oldest_age_s: float | None = None
    oldest_pending_age_s: float | None = None
    trimmed_unread: int = 0


@attrs.frozen(kw_only=True)
class WorkerView:
    """One worker's record; *beat_age_s* is what decides whether it has lapsed."""

    name: str
    pid: int
    host: str
    slots: int
    held: int
    orphaned: int
    stopping: bool
    beat_age_s: float


@attrs.frozen(kw_only=True)
class Overview:
    """What is where, at one moment of Redis' clock; *calls* has every state of flows' calls.

    *unknown_kinds* counts jobs of each kind that workers have handed back again and again, for none knows
    it; only those that are due first are looked at, `kinds_looked_at` says how many.
    """

    stream: StreamView
    critical: StreamView
    delayed: int
    dead: int
    workers: tuple[WorkerView, ...]
    calls: Mapping[CallState, int] = attrs.field(factory=lambda: dict.fromkeys(CallState, 0))
    unknown_kinds: Mapping[str, int] = attrs.field(factory=dict[str, int])

    @property
    def pool(self) -> int:
        """Entries that no live process owns."""
        return self.stream.pool + self.critical.pool

    @property
    def kinds_looked_at(self) -> int | None:
        """After how many delayed jobs nobody looked for kinds any more, None where there are no others."""
        return MOST_DELAYED if self.delayed > MOST_DELAYED else None

    @property
    def trimmed_unread(self) -> int:
        """Entries that somebody deleted before anybody had read them."""
        return self.stream.trimmed_unread + self.critical.trimmed_unread


@attrs.frozen(kw_only=True)
class Waiting:
    """What waits for a worker: how many entries, and for how many seconds the first of them has."""

    count: int
    for_s: float


class Inspection:
    """Looks at one namespace.

    Args:
        link: the connections to Redis.
        keys: of the namespace.
        is_hasty: do not wait for a slow Redis: for who must answer within a second.
    """

    def __init__(self, link: Link, keys: Keys, *, is_hasty: bool = False) -> None:
        self._client = link.quick if is_hasty else link.patient
        self._keys = keys
        self._page = Script("page")

    def look(self) -> Overview:
        """Return what is where; a namespace that nobody has used yet is empty, not an error.

        Raises:
            BrokerUnavailable: Redis cannot be asked now.
        """
        return attrs.evolve(
            self.look_at_queues(),
            workers=self._workers((self._keys.stream, self._keys.critical)),
            unknown_kinds=Counter(self._unknown_kinds()),
        )

    def look_at_queues(self) -> Overview:
        """Return what is where in one round trip; the workers are left out.

        Raises:
            BrokerUnavailable: Redis cannot be asked now.
        """
        with mapped_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.time()
            pipe.zcard(self._keys.delayed)
            pipe.xlen(self._keys.dead)
            pipe.hgetall(self._keys.calls_states)
            for key in (self._keys.stream, self._keys.critical):
                ask_about_stream(pipe, key)
            answers: list[Any] = [or_none(answer) for answer in pipe.execute(raise_on_error=False)]
        now_ms = milliseconds(answers[0])
        jobs, critical = (RawStream.of(*answers[at : at + 3]) for at in (4, 7))
        return Overview(
            stream=view_of(jobs, now_ms=now_ms),
            critical=view_of(critical, now_ms=now_ms),
            delayed=answers[1] or 0,
            dead=answers[2] or 0,
            workers=(),
            calls=counts_of(answers[3] or {}),
        )

    def _unknown_kinds(self) -> Iterator[str]:
        """Yield the kind of each job that has been handed back as unknown more often than a deploy explains."""
        for start in range(0, MOST_DELAYED, PAGE):
            with mapped_errors():
                members: Any = self._client.zrange(self._keys.delayed, start, start + PAGE - 1)
                if not members:
                    return
                with self._client.pipeline(transaction=False) as pipe:
                    pipe.hmget(self._keys.delayed_body, members)
                    bodies = row_or_none(pipe.execute(raise_on_error=False)[0])
            yield from self._unknown_among(bodies or ())

    @staticmethod
    def _unknown_among(bodies: Iterable[bytes | None]) -> Iterator[str]:
        for body in bodies:
            fields = fields_of_body(body) if body is not None else {}
            hops = fields.get(b"hops", b"")
            if hops.isdigit() and int(hops[:_DIGITS]) >= UNKNOWN_HOPS:
                yield _text(fields.get(b"kind", b""))

    def look_for_waiting(self) -> Waiting:
        """Return how many entries wait for a worker to take them, and since when the first could have been taken.

        An entry in the pool waits since it came there, an unread one since it was added.

        Raises:
            BrokerUnavailable: Redis cannot be asked now.
        """
        keys = (self._keys.stream, self._keys.critical)
        with mapped_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.time()
            for key in keys:
                ask_about_stream(pipe, key)
                pipe.xpending_range(key, GROUP, "-", "+", 1, POOL)
            time, *answers = [or_none(answer) for answer in pipe.execute(raise_on_error=False)]
        raws = [RawStream.of(*answers[at : at + 3]) for at in (0, 4)]
        pooled = [row["time_since_delivered"] / 1000 for at in (3, 7) for row in answers[at] or ()]
        count = sum(view.unread + view.pool for view in (view_of(raw, now_ms=0) for raw in raws))
        unread = [self._unread_for_s(key, raw, milliseconds(time)) for key, raw in zip(keys, raws, strict=True)]
        since = [*pooled, *(seconds for seconds in unread if seconds is not None)]
        return Waiting(count=count, for_s=max(since, default=0.0))

    def _unread_for_s(self, key: str, raw: "RawStream", now_ms: int) -> float | None:
        """Return the age of the first unread entry, None where there is none."""
        first = raw.first
        if first is not None and first <= raw.last_delivered:
            with mapped_errors():
                start = "({}-{}".format(*raw.last_delivered)
                rows: Any = self._page(self._client, [key], ["up", start, "+", 1])
            first = entry_number(rows[0][0]) if rows else None
        return None if first is None else max(0, now_ms - first[0]) / 1000

    def _workers(self, streams: Sequence[str]) -> tuple[WorkerView, ...]:
        with mapped_errors(), self._client.pipeline(transaction=True) as pipe:
            for key in streams:
                pipe.xinfo_consumers(key, GROUP)
            consumers = [or_none(answer) or [] for answer in pipe.execute(raise_on_error=False)]
        names = {_text(row["name"]) for rows in consumers for row in rows}
        return self._records(sorted(name for name in names if is_worker_name(name)))

    def _records(self, names: Sequence[str]) -> tuple[WorkerView, ...]:
        with mapped_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.time()
            for name in names:
                pipe.hgetall(self._keys.worker(name))
            time, *records = pipe.execute(raise_on_error=False)
        now_ms = milliseconds(time)
        found = ((name, row_or_none(record)) for name, record in zip(names, records, strict=True))
        return tuple(worker_of(name, record, now_ms=now_ms) for name, record in found if record)


# -- from replies to views ------------------------------------------------------


def ask_about_stream(pipe: Any, key: str) -> None:
    """Add the three questions that `RawStream.of` takes the answers of."""
    pipe.xinfo_stream(key)
    pipe.xinfo_groups(key)
    pipe.xpending(key, GROUP)


@attrs.frozen(kw_only=True)
class RawStream:
    """What Redis says about one stream and its group, in numbers."""

    length: int = 0
    added: int = 0
    first: EntryNumber | None = None
    last_deleted: EntryNumber = NOTHING
    last_delivered: EntryNumber = NOTHING
    read: int | None = None
    pending: int = 0
    first_pending: EntryNumber | None = None
    pool: int = 0

    @classmethod
    def of(cls, stream: Any, groups: Any, pending: Any) -> "RawStream":
        """Return the numbers in the three answers; an answer is None where there is no such key or group."""
        if stream is None:
            return cls()
        group = next((row for row in groups or () if _text(row["name"]) == GROUP), None)
        first = stream["first-entry"]
        raw = cls(
            length=stream["length"],
            added=stream["entries-added"],
            first=entry_number(first[0]) if first else None,
            last_deleted=entry_number(stream["max-deleted-entry-id"]),
        )
        if group is None or pending is None:
            return raw
        return attrs.evolve(
            raw,
            last_delivered=entry_number(group["last-delivered-id"]),
            read=group["entries-read"],
            pending=pending["pending"],
            first_pending=entry_number(pending["min"]) if pending["min"] is not None else None,
            pool=_pool_of(pending["consumers"]),
        )


def view_of(raw: RawStream, *, now_ms: int) -> StreamView:
    """Return one stream as a person wants to see it."""
    owed_since = [number[0] for number in (raw.first, raw.first_pending) if number is not None]
    return StreamView(
        length=raw.length,
        unread=max(0, raw.length - _bodies_pending(raw)),
        pending=raw.pending,
        pool=raw.pool,
        oldest_age_s=max(0, now_ms - min(owed_since)) / 1000 if owed_since else None,
        oldest_pending_age_s=None if raw.first_pending is None else max(0, now_ms - raw.first_pending[0]) / 1000,
        trimmed_unread=count_trimmed(raw),
    )


def _bodies_pending(raw: RawStream) -> int:
    """Return how many pending entries still have a body: none when the first body is an unread one."""
    return 0 if raw.first is None or raw.first > raw.last_delivered else raw.pending


def count_trimmed(raw: RawStream) -> int:
    """Return how many entries were deleted before anybody read them, as far as Redis' counters tell.

    Settling deletes only what was delivered, so neither of these can happen by our doing:

    * An id past the last delivered one was deleted with XDEL. That is known for certain, but
      it makes Redis give up counting, so it may be one or many.
    * Fewer entries are unread than were added and not read: a trim has taken them from the
      stream's beginning, and with them all bodies of pending ones.

    A group that has read nothing yet (also one that was made anew) has no counter: nothing is known.
    """
    was_deleted = raw.last_deleted > raw.last_delivered != NOTHING
    begins_unread = raw.first is None or raw.first > raw.last_delivered
    if raw.read is None or not (was_deleted or begins_unread):
        return int(was_deleted)
    missing = (raw.added - raw.read) - (raw.length - _bodies_pending(raw))
    return max(missing, int(was_deleted), 0)


def worker_of(name: str, record: Mapping[bytes, bytes], *, now_ms: int) -> WorkerView:
    """Return a worker's record with its types; whatever is not there or no number is 0."""
    text = {_text(key): _text(value) for key, value in record.items()}

    def number(field: str) -> int:
        value = text.get(field, "")
        return int(value) if value.isascii() and value.isdigit() else 0

    return WorkerView(
        name=name,
        pid=number("pid"),
        host=text.get("host", ""),
        slots=number("slots"),
        held=number("held"),
        orphaned=number("orphaned"),
        stopping=number("stopping") == 1,
        beat_age_s=max(0, now_ms - number("beat")) / 1000,
    )


def counts_of(record: Mapping[bytes, bytes]) -> dict[CallState, int]:
    """Return how many calls are in each state; every state is there.

    Raises:
        BrokerError: it is no record of counts.
    """
    with sound_reply():
        known = {name.decode(): int(count) for name, count in record.items()}
    return {state: max(0, known.get(state.value, 0)) for state in CallState}


def fields_of_body(body: bytes) -> dict[bytes, bytes]:
    """Return the fields in the body of a delayed job; none where somebody has written something else there."""
    try:
        return dict(pair_up(unpack(body)[1:]))
    except MalformedEntry:
        return {}


def entry_number(entry_id: bytes | str) -> EntryNumber:
    """Return an entry id as two numbers."""
    ms, _, seq = _text(entry_id).partition("-")
    return int(ms), int(seq or 0)


def _pool_of(consumers: Iterable[Mapping[str, Any]]) -> int:
    return sum(int(row["pending"]) for row in consumers if _text(row["name"]) == POOL)


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def milliseconds(time: tuple[int, int]) -> int:
    """Return a reply of TIME in milliseconds."""
    seconds, microseconds = time
    return seconds * 1000 + microseconds // 1000


def or_none(answer: Any) -> Any:
    """Return the answer, or None where there is no such key or group yet.

    Raises:
        BrokerError: any other error among the answers, mapped.
    """
    if not isinstance(answer, Exception):
        return answer
    try:
        with mapped_errors():
            raise answer
    except GroupMissing:
        return None


def names_in_hash(client: Any, key: str, most: int) -> Iterator[list[bytes]]:
    """Yield the names of a hash's fields, page after page; ends once *most* have been seen.

    The values pass by unseen. What is added or removed meanwhile may be missing.
    """
    cursor, seen = 0, 0
    while True:
        with mapped_errors():
            reply: Any = send(client, "HSCAN", key, cursor, "COUNT", PAGE)
        cursor, page = int(reply[0]), reply[1]
        names = list(page) if isinstance(page, dict) else page[::2]
        yield names
        seen += len(names)
        if cursor == 0 or seen >= most:
            return


def row_or_none(answer: Any) -> Any:
    """As `or_none`, and None also where the key is of another type: for one key of many, any of which may be spoilt.

    Raises:
        BrokerError: any other error among the answers, mapped.
    """
    try:
        return or_none(answer)
    except BrokerError as error:
        if is_wrong_type(error):
            return None
        raise
