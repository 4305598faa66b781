"""The broker on a real Redis: the ports of deliveries and of publishing.

What each verb does is written above its script; here arguments are packed and
replies unpacked, and nothing is decided.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import attrs

from stagedoor.broker.bodies import call_of, crash_lines, dead_letter, delayed_body, fields_to_move
from stagedoor.broker.connection import BlockedRead, Link, Script, is_wrong_type, mapped_errors, sound_reply
from stagedoor.broker.deliveries import (
    Answer,
    Answers,
    Identity,
    Promoted,
    Pulse,
    ReadReply,
    Reclaimed,
    Renewal,
    Settlement,
    Swept,
    Trimmed,
)
from stagedoor.broker.inspection import milliseconds
from stagedoor.broker.publishing import OutboxEntry, Published, PublishReply
from stagedoor.core.codec import pack, pair_up
from stagedoor.core.entry import Claimed, Entry
from stagedoor.core.keys import GROUP, ROWS_PER_BITMAP, Keys
from stagedoor.core.outcome import Dead, Done, RetryLater, UnknownKind
from stagedoor.core.tenure import Stream, Tenure
from stagedoor.errors import BrokerError, BrokerUnavailable, ConfigurationError, GroupMissing, NameTaken

MOST_PER_MOVE = 100
"""Entries that one call moves to the pool or back: bounded, so that no script holds Redis for long."""
FORGET_CONSUMER_MS = 3_600_000
PUBLISHED_BITS_TTL_MS = 48 * 3_600_000
CAP_SHARE = 0.95
"""Rows are refused at this share of the stream's MAXLEN, so that MAXLEN never trims what is owed."""
MOST_NAMES = 99


@attrs.frozen(kw_only=True)
class DeliverySettings:
    """What the broker needs to know of the settings."""

    wanted_name: str
    dead_maxlen: int = 10_000
    liveness_ttl_ms: int = 10_000
    reclaim_idle_ms: int = 60_000


class RedisDeliveries:
    """The deliveries of one worker process, on Redis; see `stagedoor.broker.Deliveries`."""

    def __init__(
        self,
        link: Link,
        keys: Keys,
        *,
        settings: DeliverySettings,
        is_process_dead: Callable[[dict[str, str]], bool] = lambda _record: False,
    ) -> None:
        self._link = link
        self._keys = keys
        self._settings = settings
        self._is_process_dead = is_process_dead
        self._name = settings.wanted_name
        self._identity: Identity | None = None
        self._pulse = Pulse(slots=0)
        self._blocked = BlockedRead(link.patient, link.quick)
        self._known_consumers: list[str] = []
        self._cursors = {Stream.JOBS: "0-0", Stream.CRITICAL: "0-0"}
        names = "group read settle renew release join beat retire sweep reclaim promote"
        self._scripts = {name: Script(name) for name in names.split()}

    @property
    def name(self) -> str:
        """The name this process has joined under."""
        return self._name

    @property
    def incarnation(self) -> str:
        """The random id of this process' start."""
        return self._me.incarnation

    def renew_record(self) -> None:
        """Write the worker's record anew, where it was lost, as it was at the last beat."""
        self.beat(self._pulse)

    # -- being a worker ---------------------------------------------------------

    def ensure_groups(self) -> bool:
        """Create the groups where they are missing, at `0`: whatever is in a stream is owed."""
        created = [self._quickly("group", [key], [GROUP]) == 1 for key in self._streams]
        return any(created)

    def join(self, identity: Identity, pulse: Pulse) -> str:
        """Take the wanted name, or the next free one."""
        self._identity, self._pulse = identity, pulse
        for number in range(1, MOST_NAMES + 1):
            name = self._settings.wanted_name if number == 1 else f"{self._settings.wanted_name}.{number}"
            if self._take(name):
                self._name = name
                return name
        raise ConfigurationError(
            f"name: {MOST_NAMES} live workers are called {self._settings.wanted_name!r} or like it; set another name"
        )

    def rejoin(self, held: Sequence[Claimed]) -> str:
        """Take a name anew; give back what was handed out under the old one behind its new owner's back."""
        before = self._name
        name = self.join(self._me, self._pulse)
        if name != before:
            self._release(held, consumer=before)
        return name

    def _take(self, name: str) -> bool:
        buried = self._buried_incarnation(name)
        args = [
            GROUP, name, self._me.incarnation, self._settings.liveness_ttl_ms, buried,
            MOST_PER_MOVE, self._settings.dead_maxlen,
        ]  # fmt: skip
        keys = [*self._streams, self._keys.worker(name), self._keys.crashes, self._keys.dead]
        while True:
            reply = self._patiently("join", keys, [*args, self._now_ms(), *self._record()])
            with sound_reply():
                ends = {b"ok": True, b"live": False, b"more": None, b"late": None}[reply[0]]
            if ends is not None:
                return ends

    def _now_ms(self) -> int:
        """Return Redis' time: calls that judge others say when they were asked for, and are void a while later."""
        with mapped_errors(), sound_reply():
            return milliseconds(self._link.quick.time())

    def _buried_incarnation(self, name: str) -> str:
        try:
            with mapped_errors():
                raw = cast("dict[bytes, bytes]", self._link.quick.hgetall(self._keys.worker(name)))
        except BrokerError as error:
            if is_wrong_type(error):
                return ""
            raise
        record = {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in raw.items()}
        return record.get("incarnation", "") if record and self._is_process_dead(record) else ""

    def beat(self, pulse: Pulse) -> None:
        """Write the record with Redis' time."""
        self._pulse = pulse
        reply = self._quickly("beat", [self._keys.worker(self._name)], [self._me.incarnation, *self._record()])
        if reply == b"taken":
            raise NameTaken(f"another process runs as {self._name!r}")

    def retire(self) -> None:
        """Give everything back and vanish."""
        args = [MOST_PER_MOVE, self._settings.dead_maxlen]
        with contextlib.suppress(NameTaken):
            while self._fenced("retire", [*self._mine, self._keys.dead], args, patient=True)[0] == b"more":
                pass

    # -- reading ------------------------------------------------------------------

    def read(self, limit: int, *, for_jobs: int = 0, leave: Collection[tuple[Stream, str]] = ()) -> ReadReply:
        """Claim without blocking."""
        left = [f"{stream.value}:{entry_id}" for stream, entry_id in leave]
        reply = self._fenced(
            "read",
            [*self._mine, self._keys.crashes, self._keys.dead],
            [limit, for_jobs, self._settings.dead_maxlen, *left],
            patient=True,
        )
        with sound_reply():
            return ReadReply(tuple(map(_unpacked, reply[1])), _trimmed(reply[2]))

    def wait(self, block_ms: int) -> ReadReply:
        """Block on both streams for one entry."""
        name = self._name
        reply = self._blocked.run(
            "XREADGROUP", "GROUP", GROUP, name, "COUNT", 1, "BLOCK", block_ms,
            "STREAMS", *self._streams, ">", ">",
        )  # fmt: skip
        by_key = {self._keys.stream.encode(): 1, self._keys.critical.encode(): 2}
        try:
            with sound_reply():
                claimed = [
                    _claimed(by_key[key], entry_id, 1, b"", flat)
                    for key, entries in _pairs(reply)
                    for entry_id, flat in entries
                ]
        except BrokerUnavailable:
            # No pool looks after this connection: it would stay one reply behind for good.
            self._blocked.disconnect()
            raise
        if name != self._name:
            # The name is another process' by now, which knows nothing of what we were handed under it.
            self._release(claimed, consumer=name)
            claimed = []
        return ReadReply(tuple(claimed))

    def unblock(self) -> None:
        """End the blocked read."""
        self._blocked.unblock()

    def stray(self, held: Sequence[Tenure]) -> int:
        """Release what is pending under this name and not held."""
        known = set(held)
        released = 0
        for stream, key in zip(Stream, self._streams, strict=True):
            start = "-"
            while True:
                with sound_reply(), mapped_errors():
                    page: Any = self._link.patient.xpending_range(key, GROUP, start, "+", MOST_PER_MOVE, self._name)
                    rows = [(row["message_id"].decode(), row["times_delivered"]) for row in page]
                pending = [Tenure(stream, entry_id, count) for entry_id, count in rows]
                strangers = [tenure for tenure in pending if tenure not in known]
                released += self.release([Claimed(Entry(stream, t.entry_id, ()), t) for t in strangers])
                if len(rows) < MOST_PER_MOVE:
                    break
                start = "(" + rows[-1][0]
        return released

    # -- writing about deliveries ---------------------------------------------------

    def settle(self, batch: int, settlements: Sequence[Settlement]) -> Answers:
        """Write the outcomes of one batch."""
        heads, arguments, calls = [], [], []
        for settlement in settlements:
            verb, argument = _verb(settlement, self._name)
            if verb in {"park", "again"}:
                calls.append(call_of(settlement) or "")
            heads.append(f"{_head(settlement)} {verb}")
            if argument is not None:
                arguments.append(argument)
        args = [batch, self._settings.dead_maxlen, "\n".join(heads), *arguments]
        keys = self._keys
        names = [*self._mine, keys.crashes, keys.dead, keys.delayed, keys.delayed_body, keys.calls, keys.calls_states]
        names += [name for call in calls for name in (keys.call_status(call), keys.call_lease(call))]
        reply = self._fenced("settle", names, args)
        with sound_reply():
            words = reply[1].decode("utf-8", "replace").split("\n") if settlements else []
            soonest_ms = int(reply[2])
        answers = tuple({"ok": Answer.ACCEPTED, "lost": Answer.LOST}.get(word, Answer.FAILED) for word in words)
        problems = tuple(word for word in words if word not in {"ok", "lost"})
        return Answers(answers, None if soonest_ms < 0 else soonest_ms / 1000, problems)

    def renew(self, tenures: Sequence[Tenure]) -> tuple[Renewal, ...]:
        """Reset idle clocks."""
        args: list[Any] = []
        for tenure in tenures:
            args += [tenure.stream.value, tenure.entry_id, tenure.deliveries]
        reply = self._fenced("renew", self._mine, args)
        words = {b"ok": Renewal.RENEWED, b"lost": Renewal.LOST, b"gone": Renewal.GONE}
        with sound_reply():
            return tuple(words[word] for word in reply[1])

    def release(self, claimed: Sequence[Claimed]) -> int:
        """Put entries into the pool."""
        return self._release(claimed, consumer=self._name)

    def _release(self, claimed: Sequence[Claimed], *, consumer: str) -> int:
        if not claimed:
            return 0
        args: list[Any] = []
        for one in claimed:
            fields = () if one.entry.is_oversized or not one.entry.fields else fields_to_move(one.entry, one.crash_log)
            flat = [part for pair in fields for part in pair]
            args += [one.tenure.stream.value, one.tenure.entry_id, one.tenure.deliveries, len(flat), *flat]
        reply = self._fenced("release", self._mine, args, patient=True, consumer=consumer)
        with sound_reply():
            return sum(word == b"ok" for word in reply[1])

    # -- for everybody ----------------------------------------------------------------

    def sweep(self) -> Swept:
        """Sweep once, and again while there is more: entries to move, or consumers that were not asked about."""
        workers: dict[str, tuple[int, bool]] = {}
        trimmed: tuple[Trimmed, ...] = ()
        while True:
            names = self._known_consumers
            keys = [*self._streams, self._keys.crashes, self._keys.dead, *map(self._keys.worker, names)]
            args = [
                GROUP, self._settings.liveness_ttl_ms, FORGET_CONSUMER_MS, MOST_PER_MOVE,
                self._settings.dead_maxlen, self._now_ms(), *names,
            ]  # fmt: skip
            reply = self._quickly("sweep", keys, args)
            with sound_reply():
                found, swept, gone, more = reply
                self._known_consumers = [name.decode("utf-8", "replace") for name in found]
                for raw, count, crash in swept:
                    name = raw.decode("utf-8", "replace")
                    workers[name] = (workers.get(name, (0, False))[0] + count, crash == 1)
                trimmed += _trimmed(gone)
            if more == 0 and set(names) >= set(self._known_consumers):
                return Swept(tuple((name, *what) for name, what in workers.items()), trimmed)

    def reclaim(self) -> Reclaimed:
        """Walk both lists to their ends; a call that fails leaves its cursor where it was."""
        moved = 0
        trimmed: list[Trimmed] = []
        for stream, key in zip(Stream, self._streams, strict=True):
            while True:
                args = [
                    GROUP, self._settings.reclaim_idle_ms, self._cursors[stream], MOST_PER_MOVE,
                    self._settings.dead_maxlen, stream.value, self._now_ms(),
                ]  # fmt: skip
                reply = self._quickly("reclaim", [key, self._keys.dead], args)
                with sound_reply():
                    cursor, count, gone = reply
                    trimmed += [Trimmed(stream, entry_id.decode()) for entry_id in gone]
                    moved += int(count)
                    self._cursors[stream] = _cursor(cursor)
                if self._cursors[stream] == "0-0":
                    break
        return Reclaimed(moved, tuple(trimmed))

    def promote(self) -> Promoted:
        """Promote once."""
        keys = [*self._streams, self._keys.delayed, self._keys.delayed_body, self._keys.dead]
        args = [GROUP, MOST_PER_MOVE, self._settings.dead_maxlen]
        reply = self._quickly("promote", keys, args)
        with sound_reply():
            moved, wait, pool, broken = map(int, reply)
        return Promoted(moved, None if wait < 0 else wait / 1000, pool, broken)

    def close(self) -> None:
        """Drop the connection of the blocked read; the link's own close is its owner's."""
        self._blocked.disconnect()

    # -- helpers ------------------------------------------------------------------------

    @property
    def _me(self) -> Identity:
        if self._identity is None:
            raise BrokerError("this worker has not joined yet")
        return self._identity

    @property
    def _streams(self) -> list[str]:
        return [self._keys.stream, self._keys.critical]

    @property
    def _mine(self) -> list[str]:
        return [*self._streams, self._keys.worker(self._name)]

    def _record(self) -> list[str | int]:
        fields = {**attrs.asdict(self._me), **attrs.asdict(self._pulse), "stopping": int(self._pulse.stopping)}
        del fields["incarnation"]
        return [part for pair in fields.items() for part in pair]

    def _quickly(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        return self._scripts[name](self._link.quick, keys, args)

    def _patiently(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        return self._scripts[name](self._link.patient, keys, args)

    def _fenced(
        self, name: str, keys: Sequence[str], args: Sequence[Any], *, patient: bool = False, consumer: str | None = None
    ) -> Any:
        """Run a script that checks the record; write the record anew once where it is gone."""
        run = self._patiently if patient else self._quickly
        who = [GROUP, consumer or self._name, self._me.incarnation]
        reply = run(name, keys, [*who, *args])
        if _word(reply) == b"absent":
            self.beat(self._pulse)
            reply = run(name, keys, [*who, *args])
        word = _word(reply)
        if word == b"taken":
            raise NameTaken(f"another process runs as {self._name!r}")
        if word == b"absent":
            raise GroupMissing("the worker's record vanished twice in a row")
        return reply


class RedisPublishing:
    """The relay's side of Redis; see `stagedoor.broker.Publishing`."""

    def __init__(self, link: Link, keys: Keys, *, stream_maxlen: int = 100_000) -> None:
        self._link = link
        self._keys = keys
        self._maxlen = stream_maxlen
        self._publish = Script("publish")

    def publish(
        self, book_id: str, rows: Sequence[OutboxEntry], *, at_least: int = 0
    ) -> tuple[int, tuple[PublishReply, ...]]:
        """Publish the rows, in order."""
        keys = [self._keys.stream, self._keys.published(book_id)]
        places: dict[str, int] = {}
        args: list[Any] = [int(self._maxlen * CAP_SHARE), self._maxlen, PUBLISHED_BITS_TTL_MS, at_least]
        for row in rows:
            bitmap = self._keys.published_rows(book_id, row.outbox_id)
            place = places.setdefault(bitmap, len(keys) + len(places) + 1)
            flat = [part for pair in row.fields for part in pair]
            args += [place, row.outbox_id % ROWS_PER_BITMAP, len(flat), *flat]
        reply = self._publish(self._link.patient, [*keys, *places], args)
        with sound_reply():
            before, answers = reply
            replies = [PublishReply(Published(what.decode()), entry.decode(), seq) for what, entry, seq in answers]
            return int(before), tuple(replies)

    def confirmed_seq(self, book_id: str) -> int:
        """Return the count of accepted rows."""
        with mapped_errors():
            seq = cast("bytes | None", self._link.quick.hget(self._keys.published(book_id), "seq"))
        return int(seq or 0)


# -- arguments and replies --------------------------------------------------------------


def _claimed(number: int, entry_id: bytes, deliveries: int, crash_log: bytes, flat: Sequence[bytes]) -> Claimed:
    stream = _STREAMS[number]
    text = entry_id.decode()
    log = crash_lines(crash_log.decode("utf-8", "replace"))
    return Claimed(Entry(stream, text, pair_up(flat)), Tenure(stream, text, deliveries), log)


def _unpacked(value: bytes) -> Claimed:
    """Return one entry of `read`'s reply; its layout is described above the script."""
    line, _, rest = value.partition(b"\n")
    number, deliveries, *lengths = map(int, line.split())
    parts = []
    at = 0
    for length in lengths:
        parts.append(rest[at : at + length])
        at += length
    return _claimed(number, parts[0], deliveries, parts[1], parts[2:])


_STREAMS = {stream.value: stream for stream in Stream}


def _word(reply: Any) -> bytes:
    """Return the word that a fenced script's reply begins with."""
    with sound_reply():
        return {word: word for word in (b"ok", b"more", b"absent", b"taken")}[reply[0]]


def _cursor(raw: bytes) -> str:
    """Return where a walk goes on; a cursor that is no entry id would break every later call."""
    cursor = raw.decode()
    ms, _, sequence = cursor.partition("-")
    if not (ms.isdecimal() and sequence.isdecimal()):
        raise ValueError(f"{cursor!r} is no cursor")
    return cursor


def _trimmed(rows: Iterable[tuple[int, bytes]]) -> tuple[Trimmed, ...]:
    return tuple(Trimmed(_STREAMS[number], entry_id.decode()) for number, entry_id in rows)


def _pairs(reply: Any) -> Iterable[tuple[bytes, Any]]:
    """Return a raw XREADGROUP reply as (key, entries): a list under RESP2, a map under RESP3, None for nothing."""
    if reply is None:
        return ()
    return cast("Iterable[tuple[bytes, Any]]", reply.items() if isinstance(reply, dict) else reply)


def _head(settlement: Settlement) -> str:
    tenure = settlement.tenure
    flag = "g" if settlement.body_gone else "c" if settlement.crash_log else "-"
    return f"{tenure.stream.value} {tenure.entry_id} {tenure.deliveries} {flag}"


def _verb(settlement: Settlement, consumer: str) -> tuple[str, bytes | None]:
    match settlement.outcome:
        case Done():
            return "done", None
        case RetryLater(after_s, attempt, _error):
            return _delay(settlement, after_s, "retry", {"attempt": str(attempt)})
        case UnknownKind(after_s, hops):
            return _delay(settlement, after_s, "unknown", {"hops": str(hops)})
        case Dead() as dead:
            letter = pack(part for pair in dead_letter(settlement, dead, consumer) for part in pair)
            call_id = call_of(settlement)
            return ("dead", letter) if call_id is None else ("park", b"%b %b" % (call_id.encode(), letter))
        case outcome:
            raise TypeError(f"{outcome!r} is not written by settle")


def _delay(settlement: Settlement, after_s: float, why: str, changes: Mapping[str, str]) -> tuple[str, bytes]:
    argument = b"%d %b" % (max(0, round(after_s * 1000)), delayed_body(settlement, changes))
    call_id = call_of(settlement)
    if call_id is None:
        return "delay", argument
    return "again", b"%b %b %b" % (call_id.encode(), why.encode(), argument)
