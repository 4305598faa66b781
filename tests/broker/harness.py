"""One handle on the fake broker and on a real Redis, so that the same test runs over both.

Beside the ports it does what a test cannot wait for: it makes workers lapse,
entries idle and delayed jobs due; and it shows the whole state.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import attrs
import redis

from stagedoor.broker.connection import Link
from stagedoor.broker.deliveries import Answer, Deliveries, Identity, Pulse, ReadReply, Settlement
from stagedoor.broker.publishing import Publishing
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries, RedisPublishing
from stagedoor.core.codec import Fields, pair_up
from stagedoor.core.entry import Claimed
from stagedoor.core.keys import GROUP, Keys
from stagedoor.core.outcome import Done, Outcome
from stagedoor.core.tenure import Stream
from stagedoor.testing import FakeBroker, FakeDeliveries, FakePublishing
from stagedoor.testing.fake_store import id_of, id_text

ANCIENT_MS = 10_000_000
"""Longer ago than every limit of the broker."""


@attrs.frozen
class StreamState:
    """One stream; *group* is False where it has none."""

    entries: Mapping[str, Fields] = attrs.field(factory=dict)
    unread: tuple[str, ...] = ()
    pending: Mapping[str, tuple[str, int]] = attrs.field(factory=dict)
    group: bool = True


@attrs.frozen
class State:
    """All that the broker keeps about entries; crash logs without their times."""

    jobs: StreamState = StreamState()
    critical: StreamState = StreamState()
    delayed: Mapping[str, bytes] = attrs.field(factory=dict)
    dead: tuple[Mapping[str, bytes], ...] = ()
    crashes: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    workers: Mapping[str, str] = attrs.field(factory=dict)

    def of(self, stream: Stream) -> StreamState:
        """Return one of the two streams."""
        return self.jobs if stream is Stream.JOBS else self.critical


class Harness(Protocol):
    """What a test may do to a broker."""

    def worker(self, name: str = "w", *, incarnation: str = "", **options: Any) -> Deliveries:
        """Return a worker that has joined; see `new_worker` for the options."""
        ...

    def new_worker(
        self, name: str = "w", *, is_process_dead: Callable[[dict[str, str]], bool] = ..., **settings: Any
    ) -> Deliveries:
        """Return a worker that has not joined."""
        ...

    def publishing(self, *, stream_maxlen: int = 100_000) -> Publishing: ...

    def add(self, fields: Fields, stream: Stream = Stream.JOBS) -> str: ...

    def trim(self, *entry_ids: str, stream: Stream = Stream.JOBS) -> None: ...

    def destroy_group(self, stream: Stream = Stream.JOBS) -> None: ...

    def flush(self) -> None:
        """Lose everything in the namespace."""
        ...

    def lapse(self, name: str) -> None:
        """Make its last beat an ancient one."""
        ...

    def forget_record(self, name: str) -> None:
        """Lose its record."""
        ...

    def age(self, *entry_ids: str, stream: Stream = Stream.JOBS) -> None:
        """Make pending entries idle for very long; they need their bodies."""
        ...

    def make_due(self) -> None:
        """Make all delayed jobs due."""
        ...

    def put_delayed(self, member: str, body: bytes | None) -> None:
        """Write a delayed job by hand, due at once."""
        ...

    def break_dead(self) -> None:
        """Make the key of the dead letters one of the wrong type."""
        ...

    def heal_dead(self) -> None: ...

    def consumers(self, stream: Stream = Stream.JOBS) -> set[str]: ...

    def state(self) -> State: ...

    def length(self, stream: Stream = Stream.JOBS) -> int:
        """XLEN."""
        ...


def identity(incarnation: str, **changes: Any) -> Identity:
    """Return the identity of a process of this incarnation."""
    values = {"host": "h", "boot_id": "b", "pid_namespace": "n", "pid": 1, "started": 7}
    return Identity(incarnation=incarnation, **{**values, **changes})


class _Incarnations:
    def __init__(self) -> None:
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"i{self._count:03}"


class FakeHarness:
    """The fake broker, on the system's clock."""

    def __init__(self) -> None:
        self.fake = FakeBroker()
        self._incarnations = _Incarnations()
        self._names: set[str] = set()

    def worker(self, name: str = "w", *, incarnation: str = "", **options: Any) -> Deliveries:
        found = self.new_worker(name, **options)
        found.ensure_groups()
        found.join(identity(incarnation or self._incarnations.next()), Pulse(slots=8))
        return found

    def new_worker(
        self, name: str = "w", *, is_process_dead: Callable[[dict[str, str]], bool] = lambda _: False, **settings: Any
    ) -> Deliveries:
        return FakeDeliveries(
            self.fake, settings=DeliverySettings(wanted_name=name, **settings), is_process_dead=is_process_dead
        )

    def publishing(self, *, stream_maxlen: int = 100_000) -> Publishing:
        return FakePublishing(self.fake, stream_maxlen=stream_maxlen)

    def add(self, fields: Fields, stream: Stream = Stream.JOBS) -> str:
        return self.fake.add(fields, stream=stream)

    def trim(self, *entry_ids: str, stream: Stream = Stream.JOBS) -> None:
        self.fake.trim(entry_ids, stream=stream)

    def destroy_group(self, stream: Stream = Stream.JOBS) -> None:
        self.fake.destroy_group(stream=stream)

    def flush(self) -> None:
        self.fake.flush()

    def lapse(self, name: str) -> None:
        self.fake.workers[name].beat_ms = 0

    def forget_record(self, name: str) -> None:
        del self.fake.workers[name]

    def age(self, *entry_ids: str, stream: Stream = Stream.JOBS) -> None:
        for entry_id in entry_ids:
            self.fake.streams[stream].require_group().pending[id_of(entry_id)].delivered_ms -= ANCIENT_MS

    def make_due(self) -> None:
        for member in self.fake.delayed:
            self.fake.delayed[member] = 0

    def put_delayed(self, member: str, body: bytes | None) -> None:
        self.fake.delayed[member] = 0
        if body is not None:
            self.fake.delayed_bodies[member] = body

    def break_dead(self) -> None:
        self.fake.dead.clear()
        self.fake.refuse_dead_letters("WRONGTYPE Operation against a key holding the wrong kind of value")

    def heal_dead(self) -> None:
        self.fake.refuse_dead_letters(None)

    def consumers(self, stream: Stream = Stream.JOBS) -> set[str]:
        return set(self.fake.streams[stream].require_group().consumers)

    def length(self, stream: Stream = Stream.JOBS) -> int:
        return len(self.fake.streams[stream].entries)

    def state(self) -> State:
        with self.fake.lock:
            jobs, critical = (self._stream_state(stream) for stream in Stream)
            return State(
                jobs,
                critical,
                {member: self.fake.delayed_bodies.get(member, b"") for member in self.fake.delayed},
                tuple({name.decode(): value for name, value in letter} for letter in self.fake.dead),
                {field: _without_times(log) for field, log in self.fake.crashes.items()},
                {name: record.identity.incarnation for name, record in self.fake.workers.items()},
            )

    def _stream_state(self, stream: Stream) -> StreamState:
        here = self.fake.streams[stream]
        pending = here.group.pending if here.group else {}
        return StreamState(
            {id_text(entry): fields for entry, fields in here.entries.items()},
            tuple(id_text(entry) for entry in here.unread()),
            {id_text(entry): (line.consumer, line.deliveries) for entry, line in pending.items()},
            here.group is not None,
        )


_SNAPSHOT = """
local function stream(key)
  local last, group = '0-0', 0
  local groups = redis.pcall('XINFO', 'GROUPS', key)
  local pending = {}
  if not groups.err and #groups > 0 then
    for i = 1, #groups[1], 2 do if groups[1][i] == 'last-delivered-id' then last = groups[1][i + 1] end end
    group, pending = 1, redis.call('XPENDING', key, ARGV[1], '-', '+', 1000000)
  end
  return {redis.call('XRANGE', key, '-', '+'), last, pending, group}
end
-- A test may have made a key one of another type: there is nothing of ours in it then.
local function ours(...)
  local found = redis.pcall(...)
  if found.err then return {} end
  return found
end
local workers = {}
for i = 7, #KEYS do
  workers[#workers + 1] = {ARGV[i - 5], redis.call('HGET', KEYS[i], 'incarnation') or ''}
end
return {stream(KEYS[1]), stream(KEYS[2]), ours('XRANGE', KEYS[3], '-', '+'), ours('ZRANGE', KEYS[4], 0, -1),
  ours('HGETALL', KEYS[5]), ours('HGETALL', KEYS[6]), workers}
"""


class RedisHarness:
    """A namespace of a real Redis."""

    def __init__(self, url: str, namespace: str, *, protocol: int = 2) -> None:
        self.keys = Keys(namespace)
        # Patience in every call: a busy machine must not look like an outage.
        self.url = f"{url}{'&' if '?' in url else '?'}protocol={protocol}&socket_timeout=20"
        self.link = Link(self.url)
        # RESP2 for what the harness itself asks, whatever the broker under test speaks.
        self.client = redis.Redis.from_url(f"{url}{'&' if '?' in url else '?'}protocol=2")
        self._snapshot = self.client.register_script(_SNAPSHOT)
        self._incarnations = _Incarnations()
        self._names: dict[str, None] = {}
        self._workers: list[RedisDeliveries] = []

    def close(self) -> None:
        """Close every connection; the namespace stays, for the server ends with the run."""
        for worker in self._workers:
            worker.close()
        self.link.close()
        self.client.close()

    def watch(self, name: str) -> None:
        """Show this worker's record among the state."""
        self._names[name] = None

    def command(self, *words: Any) -> Any:
        """Send one command."""
        return self.client.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    def key(self, stream: Stream) -> str:
        """Return the name of a stream."""
        return self.keys.stream if stream is Stream.JOBS else self.keys.critical

    def worker(self, name: str = "w", *, incarnation: str = "", **options: Any) -> Deliveries:
        found = self.new_worker(name, **options)
        found.ensure_groups()
        self._names[found.join(identity(incarnation or self._incarnations.next()), Pulse(slots=8))] = None
        return found

    def new_worker(
        self, name: str = "w", *, is_process_dead: Callable[[dict[str, str]], bool] = lambda _: False, **settings: Any
    ) -> RedisDeliveries:
        made = RedisDeliveries(
            self.link,
            self.keys,
            settings=DeliverySettings(wanted_name=name, **settings),
            is_process_dead=is_process_dead,
        )
        self._workers.append(made)
        return made

    def publishing(self, *, stream_maxlen: int = 100_000) -> Publishing:
        return RedisPublishing(self.link, self.keys, stream_maxlen=stream_maxlen)

    def add(self, fields: Fields, stream: Stream = Stream.JOBS) -> str:
        flat = [part for pair in fields for part in pair]
        entry_id: bytes = self.command("XADD", self.key(stream), "*", *flat)
        return entry_id.decode()

    def trim(self, *entry_ids: str, stream: Stream = Stream.JOBS) -> None:
        if entry_ids:
            self.command("XDEL", self.key(stream), *entry_ids)

    def destroy_group(self, stream: Stream = Stream.JOBS) -> None:
        self.command("XGROUP", "DESTROY", self.key(stream), GROUP)

    def flush(self) -> None:
        if names := self.client.keys(f"{self.keys.namespace}*"):
            self.client.delete(*names)

    def lapse(self, name: str) -> None:
        self.client.hset(self.keys.worker(name), "beat", "0")

    def forget_record(self, name: str) -> None:
        self.client.delete(self.keys.worker(name))

    def age(self, *entry_ids: str, stream: Stream = Stream.JOBS) -> None:
        key = self.key(stream)
        for entry_id in entry_ids:
            (row,) = self.client.xpending_range(key, GROUP, entry_id, entry_id, 1)
            self.client.xclaim(key, GROUP, cast("bytes", row["consumer"]), 0, [entry_id], idle=ANCIENT_MS, justid=True)

    def make_due(self) -> None:
        members: list[bytes] = self.command("ZRANGE", self.keys.delayed, 0, -1)
        for member in members:
            self.client.zadd(self.keys.delayed, {member: 0})

    def put_delayed(self, member: str, body: bytes | None) -> None:
        self.client.zadd(self.keys.delayed, {member: 0})
        if body is not None:
            self.client.hset(self.keys.delayed_body, member, body)

    def break_dead(self) -> None:
        self.client.delete(self.keys.dead)
        self.client.set(self.keys.dead, "no stream")

    def heal_dead(self) -> None:
        self.client.delete(self.keys.dead)

    def consumers(self, stream: Stream = Stream.JOBS) -> set[str]:
        return {info["name"].decode() for info in self.client.xinfo_consumers(self.key(stream), GROUP)}

    def length(self, stream: Stream = Stream.JOBS) -> int:
        length: int = self.command("XLEN", self.key(stream))
        return length

    def state(self) -> State:
        keys = self.keys
        names = list(self._names)
        reply = self._snapshot(
            keys=[keys.stream, keys.critical, keys.dead, keys.delayed, keys.delayed_body, keys.crashes]
            + [keys.worker(name) for name in names],
            args=[GROUP, *names],
        )
        jobs, critical, dead, delayed, bodies, crashes, workers = reply
        body_of = dict(pair_up(bodies))
        return State(
            _stream_state(jobs),
            _stream_state(critical),
            {member.decode(): body_of.get(member, b"") for member in delayed},
            tuple({name.decode(): value for name, value in pair_up(flat)} for _, flat in dead),
            {field.decode(): _without_times(log.decode()) for field, log in pair_up(crashes)},
            {name.decode(): incarnation.decode() for name, incarnation in workers if incarnation},
        )


def _stream_state(raw: Any) -> StreamState:
    entries, last, pending, group = raw
    ids = [entry_id.decode() for entry_id, _ in entries]
    return StreamState(
        {entry_id.decode(): pair_up(flat) for entry_id, flat in entries},
        tuple(entry_id for entry_id in ids if id_of(entry_id) > id_of(last.decode())),
        {entry_id.decode(): (owner.decode(), count) for entry_id, owner, _, count in pending},
        group == 1,
    )


def _without_times(log: str) -> tuple[str, ...]:
    return tuple(line.partition(" ")[2] for line in log.splitlines())


# -- words of the tests -------------------------------------------------------------


def job(kind: str = "print", **changes: str) -> Fields:
    """Return the fields of a sound job, some changed or added."""
    fields = {"kind": kind, "order_id": "1", "outbox_id": "1", "request_id": "", "trace": "", **changes}
    return tuple((name.encode(), value.encode()) for name, value in fields.items())


def settled(claimed: Claimed, outcome: Outcome | None = None, *, body_gone: bool = False) -> Settlement:
    """Return the settlement of a delivery; without an outcome it is done."""
    return Settlement(
        tenure=claimed.tenure,
        fields=claimed.entry.fields,
        outcome=Done() if outcome is None else outcome,
        crash_log=claimed.crash_log,
        body_gone=body_gone,
    )


def ids(reply: ReadReply) -> list[str]:
    """Return the ids of what a read handed out, in its order."""
    return [claimed.entry.entry_id for claimed in reply.claimed]


def accepted(count: int) -> tuple[Answer, ...]:
    """Return as many acceptances."""
    return (Answer.ACCEPTED,) * count


def socket_of(url: str) -> Path:
    """Return the path in the address of a private server."""
    return Path(url.removeprefix("unix://").partition("?")[0])


def labels(fields: Iterable[Fields], name: bytes = b"outbox_id") -> list[bytes]:
    """Return one field's value of each."""
    return [dict(pairs)[name] for pairs in fields]
