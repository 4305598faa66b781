"""Tracing: where a job is on Redis, by its entry, its outbox row or its order.

An entry is asked for directly. Whoever knows only an order has to walk what
is there, in bounded pages; nothing is changed, and no key space is searched.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from stagedoor.broker.bodies import crash_lines
from stagedoor.broker.connection import Link, Script, mapped_errors, send
from stagedoor.broker.dead_letters import DeadLetters, Letter
from stagedoor.broker.inspection import (
    Inspection,
    WorkerView,
    entry_number,
    milliseconds,
    names_in_hash,
    or_none,
    row_or_none,
)
from stagedoor.core.call import CallState
from stagedoor.core.codec import Fields, pair_up, unpack
from stagedoor.core.journal import is_call_id
from stagedoor.core.keys import GROUP, POOL, Keys
from stagedoor.core.tenure import Stream
from stagedoor.errors import MalformedEntry

PAGE = 500
MOST = 200_000
"""Entries, and delayed jobs, that are walked; then the answer says that it did not see all."""
MOST_CALLS = 100_000
"""Calls that are asked for the order that they are about, as with the entries: each is a question of its own."""
_CALLS_PAGE = 200
"""So many at once: what stands in a call's metadata may be long."""

type Place = Literal["unread", "pending", "pool", "left"]
"""*left*: delivered and acknowledged by somebody, and still in the stream: nobody will run it."""


@attrs.frozen(kw_only=True, slots=False)
class Wanted:
    """What is looked for: whatever matches one of these."""

    entry_ids: frozenset[str] = frozenset()
    outbox_ids: frozenset[str] = frozenset()
    order_ids: frozenset[str] = frozenset()
    call_ids: frozenset[str] = frozenset()

    def matches(self, entry_id: str, fields: Fields) -> bool:
        """Return whether an entry is meant: by its id, by the id it was first added under, or by what it names."""
        return entry_id in self.entry_ids or not self._pairs.isdisjoint(fields)

    @functools.cached_property
    def _pairs(self) -> frozenset[tuple[bytes, bytes]]:
        """The names and values of which an entry must have one."""
        named = {
            b"origin": self.entry_ids,
            b"outbox_id": self.outbox_ids,
            b"order_id": self.order_ids,
            b"call_id": self.call_ids,
        }
        return frozenset((name, one.encode()) for name, ids in named.items() for one in ids)


@attrs.frozen(kw_only=True)
class TracedEntry:
    """An entry in a stream; *consumer*, *idle_s* and *deliveries* are there for one that was handed out."""

    stream: Stream
    entry_id: str
    fields: Fields
    place: Place
    has_body: bool = True
    consumer: str = ""
    idle_s: float = 0.0
    deliveries: int = 0
    crash_log: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TracedDelayed:
    """A delayed job; *due_at* is Unix seconds by Redis' clock, None where it has a body and no due time.

    *fields* are empty where the body is no good.
    """

    member: str
    due_at: float | None
    fields: Fields
    has_body: bool


@attrs.frozen(kw_only=True)
class TracedCall:
    """A flow's call whose metadata names an order; its entries and its timer name the call alone."""

    call_id: str
    flow: str
    state: CallState

    @property
    def goes_on(self) -> bool:
        """Whether it will do something by itself, or once it gets the signal that it waits for."""
        return not self.state.has_ended and self.state is not CallState.PARKED


@attrs.frozen(kw_only=True)
class Trace:
    """All that was found; *is_cut* says that not everything could be looked at."""

    now: float
    entries: tuple[TracedEntry, ...] = ()
    delayed: tuple[TracedDelayed, ...] = ()
    letters: tuple[Letter, ...] = ()
    calls: tuple[TracedCall, ...] = ()
    workers: tuple[WorkerView, ...] = ()
    is_cut: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not (self.entries or self.delayed or self.letters or self.calls)


class Tracing:
    """Looks for jobs in one namespace; every method may raise `BrokerUnavailable`.

    Args:
        link: the connections to Redis.
        keys: of the namespace.
    """

    def __init__(self, link: Link, keys: Keys) -> None:
        self._client: Any = link.patient
        self._keys = keys
        self._letters = DeadLetters(link, keys)
        self._inspection = Inspection(link, keys)
        self._page = Script("page")
        self._is_cut = False

    def find(self, wanted: Wanted) -> Trace:
        """Return where everything is that matches.

        Whoever knows an order's entries, too, should name them: one whose fields were deleted names no order.
        """
        self._is_cut = False
        with mapped_errors():
            now = milliseconds(self._client.time()) / 1000
        if wanted == Wanted():
            return Trace(now=now)
        entries = self._directly(wanted.entry_ids)
        delayed = self._delayed_directly(wanted.entry_ids)
        letters: list[Letter] = []
        is_everywhere = bool(wanted.order_ids) or not (entries or delayed)
        if is_everywhere:
            seen = {(entry.stream, entry.entry_id) for entry in entries}
            rows = ((stream, row) for stream, row in self._walk() if wanted.matches(*row))
            entries += [self._placed(stream, *row) for stream, row in rows if (stream, row[0]) not in seen]
            members = {one.member for one in delayed}
            walk = itertools.chain(self._walk_delayed(), self._walk_homeless())
            delayed += [one for one in walk if wanted.matches("", one.fields) and one.member not in members]
        if bool(wanted.order_ids) or not wanted.entry_ids or not (entries or delayed):
            # Also a letter's own id: that is what a list of letters shows.
            letters = [
                one
                for one in self._letters.newest_first()
                if one.dead_id in wanted.entry_ids or wanted.matches(one.entry_id, one.fields)
            ]
        return Trace(
            now=now,
            entries=tuple(entries),
            delayed=tuple(delayed),
            letters=tuple(letters),
            # The last to be looked at: an entry that starts a call is settled only once the call is there.
            calls=tuple(self._walk_calls(wanted.order_ids)) if wanted.order_ids else (),
            workers=self._inspection.look().workers,
            is_cut=self._is_cut,
        )

    def last(self, count: int) -> Trace:
        """Return the newest entries, delayed jobs and dead letters, at most so many of each."""
        with mapped_errors():
            now = milliseconds(self._client.time()) / 1000
            members: list[bytes] = self._client.zrange(self._keys.delayed, 0, count - 1)
        entries = []
        for stream, key in self._streams.items():
            rows: Any = self._page(self._client, [key], ["down", "+", "-", count])
            entries += [self._placed(stream, entry_id.decode(), pair_up(flat)) for entry_id, flat in rows]
        return Trace(
            now=now,
            entries=tuple(entries),
            delayed=tuple(self._with_bodies(members)) if members else (),
            letters=tuple(itertools.islice(self._letters.newest_first(), count)),
        )

    @property
    def _streams(self) -> Mapping[Stream, str]:
        return {Stream.JOBS: self._keys.stream, Stream.CRITICAL: self._keys.critical}

    # -- entries ------------------------------------------------------------------------

    def _directly(self, entry_ids: frozenset[str]) -> list[TracedEntry]:
        found = (
            self._placed(stream, entry_id, self._body(key, entry_id))
            for entry_id in sorted(entry_ids)
            for stream, key in self._streams.items()
        )
        return [entry for entry in found if entry.has_body or entry.place in {"pending", "pool"}]

    def _body(self, key: str, entry_id: str) -> Fields | None:
        rows: Any = self._page(self._client, [key], ["up", entry_id, entry_id, 1])
        return pair_up(rows[0][1]) if rows else None

    def _walk(self) -> Iterator[tuple[Stream, tuple[str, Fields]]]:
        for stream, key in self._streams.items():
            start, seen = "-", 0
            while rows := self._page(self._client, [key], ["up", start, "+", PAGE]):
                for entry_id, flat in rows:
                    yield stream, (entry_id.decode(), pair_up(flat))
                seen += len(rows)
                start = "(" + rows[-1][0].decode()
                if seen >= MOST:
                    self._is_cut = True
                    break

    def _placed(self, stream: Stream, entry_id: str, fields: Fields | None) -> TracedEntry:
        """Return an entry with what its group says of it."""
        key, field = self._streams[stream], f"{stream.value}:{entry_id}"
        with mapped_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.xpending_range(key, GROUP, entry_id, entry_id, 1)
            pipe.xinfo_groups(key)
            pipe.hget(self._keys.crashes, field)
            pending, groups, log = [or_none(answer) for answer in pipe.execute(raise_on_error=False)]
        traced = TracedEntry(
            stream=stream,
            entry_id=entry_id,
            fields=fields or (),
            has_body=fields is not None,
            place="unread" if _is_unread(entry_id, groups) else "left",
            crash_log=crash_lines((log or b"").decode("utf-8", "replace")),
        )
        if not pending:
            return traced
        consumer = pending[0]["consumer"].decode("utf-8", "replace")
        return attrs.evolve(
            traced,
            place="pool" if consumer == POOL else "pending",
            consumer=consumer,
            idle_s=pending[0]["time_since_delivered"] / 1000,
            deliveries=pending[0]["times_delivered"],
        )

    # -- delayed jobs ---------------------------------------------------------------------

    def _delayed_directly(self, entry_ids: frozenset[str]) -> list[TracedDelayed]:
        members = [f"{stream.value}:{entry_id}" for entry_id in sorted(entry_ids) for stream in Stream]
        return self._with_bodies([member.encode() for member in members]) if members else []

    def _walk_delayed(self) -> Iterator[TracedDelayed]:
        for start in range(0, MOST, PAGE):
            with mapped_errors():
                page: list[bytes] = self._client.zrange(self._keys.delayed, start, start + PAGE - 1)
            if not page:
                return
            yield from self._with_bodies(page)
        self._is_cut = True

    def _walk_homeless(self) -> Iterator[TracedDelayed]:
        """Yield the bodies without a due time: nobody of ours leaves one, and nothing but a doctor sees one."""
        seen = 0
        for members in names_in_hash(self._client, self._keys.delayed_body, MOST):
            if members:
                yield from (one for one in self._with_bodies(members) if one.due_at is None)
            seen += len(members)
        self._is_cut |= seen >= MOST

    # -- calls ------------------------------------------------------------------------------

    def _walk_calls(self, order_ids: frozenset[str]) -> Iterator[TracedCall]:
        """Yield the calls of these orders; a scan misses none that is there all the while, though each moves about."""
        cursor, seen, named = 0, set[bytes](), {one.encode() for one in order_ids}
        while True:
            with mapped_errors():
                reply: Any = send(self._client, "ZSCAN", self._keys.calls, cursor, "COUNT", _CALLS_PAGE)
            cursor, members = int(reply[0]), dict.fromkeys(reply[1][::2])
            page = [member for member in members if member not in seen]
            seen.update(page)
            for ids in itertools.batched(page, _CALLS_PAGE, strict=False):
                yield from self._calls_of(ids, named)
            if cursor == 0:
                return
            if len(seen) >= MOST_CALLS:
                self._is_cut = True
                return

    def _calls_of(self, ids: Sequence[bytes], order_ids: set[bytes]) -> Iterator[TracedCall]:
        texts = [text for text in (one.decode("utf-8", "replace") for one in ids) if is_call_id(text)]
        orders = self._asked(("HGET", self._keys.call_meta(text), "m:order_id") for text in texts)
        ours = [text for text, order in zip(texts, orders, strict=True) if order in order_ids]
        rows = self._asked(("HMGET", self._keys.call_status(text), ".flow", ".state") for text in ours)
        for call_id, row in zip(ours, rows, strict=True):
            flow, state = ((value or b"").decode("utf-8", "replace") for value in row or (b"", b""))
            if state in CallState:
                yield TracedCall(call_id=call_id, flow=flow, state=CallState(state))

    def _asked(self, commands: Iterable[Sequence[str]]) -> list[Any]:
        """Return the answers to commands, None where a key is of another type."""
        with mapped_errors(), self._client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return [row_or_none(answer) for answer in pipe.execute(raise_on_error=False)]

    def _with_bodies(self, members: Sequence[bytes]) -> list[TracedDelayed]:
        with mapped_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.zmscore(self._keys.delayed, members)
            pipe.hmget(self._keys.delayed_body, members)
            scores, bodies = pipe.execute()
        rows = zip(members, scores, bodies, strict=True)
        return [
            _delayed(member, None if score is None else float(score), body)
            for member, score, body in rows
            if score is not None or body is not None
        ]


def _is_unread(entry_id: str, groups: Any) -> bool:
    group = next((row for row in groups or () if row["name"] in {GROUP, GROUP.encode()}), None)
    return group is None or entry_number(entry_id) > entry_number(group["last-delivered-id"])


def _delayed(member: bytes, score_ms: float | None, body: bytes | None) -> TracedDelayed:
    try:
        fields = pair_up(unpack(body)[1:]) if body is not None else ()
    except MalformedEntry:
        fields = ()
    return TracedDelayed(
        member=member.decode("utf-8", "replace"),
        due_at=None if score_ms is None else score_ms / 1000,
        fields=fields,
        has_body=body is not None,
    )
