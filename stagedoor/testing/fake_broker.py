"""The broker's ports in memory, for tests that need no Redis.

A conformance suite holds this and the real broker to the same answers and the
same state after every verb.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from stagedoor.broker.bodies import call_of, crash_lines, dead_letter, delayed_body, fields_to_move
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
from stagedoor.broker.publishing import OutboxEntry, Published, PublishReply
from stagedoor.broker.redis import (
    CAP_SHARE,
    FORGET_CONSUMER_MS,
    MOST_NAMES,
    MOST_PER_MOVE,
    PUBLISHED_BITS_TTL_MS,
    DeliverySettings,
)
from stagedoor.core.codec import pair_up, unpack
from stagedoor.core.entry import MAX_BYTES, Claimed, Entry
from stagedoor.core.keys import POOL, ROWS_PER_BITMAP
from stagedoor.core.outcome import Dead, Done, RetryLater, UnknownKind
from stagedoor.core.tenure import Stream, Tenure
from stagedoor.errors import BrokerError, ConfigurationError, MalformedEntry, NameTaken
from stagedoor.testing.fake_store import FakeBroker, Group, Id, WorkerRecord, id_of, id_text, member_of

_STUCK_MS = 60_000
_MOST_PARTS = 2001


class FakeDeliveries:
    """The deliveries of one worker process, in memory; see `stagedoor.broker.Deliveries`.

    Args:
        broker: the pretend Redis, shared by all workers of a test.
        settings: as for the real ones.
        is_process_dead: whether the process of a record is provably gone.
    """

    def __init__(
        self,
        broker: FakeBroker,
        *,
        settings: DeliverySettings,
        is_process_dead: Callable[[dict[str, str]], bool] = lambda _record: False,
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._is_process_dead = is_process_dead
        self._name = settings.wanted_name
        self._identity: Identity | None = None
        self._pulse = Pulse(slots=0)
        self._is_blocked = False
        self._must_return = False

    @property
    def name(self) -> str:
        """The name this process has joined under."""
        return self._name

    @property
    def incarnation(self) -> str:
        """The random id of this process' start."""
        return self._me.incarnation

    def still_holds(self, tenure: Tenure) -> bool:
        """Whether the name is still this process' and the tenure has not lapsed: for the fake journal."""
        self._check_record()
        return self._broker.streams[tenure.stream].group is not None and self._holds(tenure)

    # -- being a worker -------------------------------------------------------------

    def ensure_groups(self) -> bool:
        """Create the groups where they are missing, at the streams' beginning."""
        with self._broker.call("ensure_groups"):
            missing = [stream for stream in self._broker.streams.values() if stream.group is None]
            for stream in missing:
                stream.group = Group()
            return bool(missing)

    def join(self, identity: Identity, pulse: Pulse) -> str:
        """Take the wanted name, or the next free one."""
        self._identity, self._pulse = identity, pulse
        wanted = self._settings.wanted_name
        with self._broker.call("join"):
            for number in range(1, MOST_NAMES + 1):
                name = wanted if number == 1 else f"{wanted}.{number}"
                if self._take(name):
                    self._name = name
                    return name
            raise ConfigurationError(
                f"name: {MOST_NAMES} live workers are called {wanted!r} or like it; set another name"
            )

    def rejoin(self, held: Sequence[Claimed]) -> str:
        """Take a name anew; give back what was handed out under the old one behind its new owner's back."""
        before = self._name
        with self._broker.call("rejoin"):
            name = self.join(self._me, self._pulse)
            if name != before:
                self._hand_back(before, held)
            return name

    def _hand_back(self, name: str, claimed: Sequence[Claimed]) -> None:
        for one in claimed:
            self._release_one(one, name)

    def _take(self, name: str) -> bool:
        old = self._broker.record(name)
        is_own = old is not None and old.identity.incarnation == self._me.incarnation
        if old is not None and not is_own and not self._has_lapsed(old) and not self._is_process_dead(old.as_text()):
            return False
        crashed = None if is_own else self._blamed(old)
        for stream in Stream:
            self._broker.streams[stream].require_group().consumers[name] = self._broker.now_ms()
            self._move_to_pool(stream, name, crashed=crashed)
        self._broker.workers.pop(name, None)
        self._broker.write_record(name, self._me, self._pulse)
        return True

    def beat(self, pulse: Pulse) -> None:
        """Write the record with the broker's time."""
        self._pulse = pulse
        with self._broker.call("beat"):
            self._check_record()
            self._broker.write_record(self._name, self._me, pulse)

    def retire(self) -> None:
        """Give everything back and vanish."""
        with self._broker.call("retire"):
            try:
                self._check_record()
            except NameTaken:
                return
            for stream in Stream:
                self._move_to_pool(stream, self._name, crashed=None)
            for here in self._broker.streams.values():
                if not here.owned(self._name):
                    here.require_group().consumers.pop(self._name, None)
            self._broker.workers.pop(self._name, None)

    # -- reading --------------------------------------------------------------------

    def read(self, limit: int, *, for_jobs: int = 0, leave: Collection[tuple[Stream, str]] = ()) -> ReadReply:
        """Claim without blocking: the pool's, then critical ones, then jobs."""
        with self._broker.call("read"):
            self._check_record()
            claimed: list[Claimed] = []
            trimmed: list[Trimmed] = []
            for stream in (Stream.CRITICAL, Stream.JOBS):
                pooled = [one for one in self._pooled(stream) if (stream, id_text(one)) not in leave]
                self._take_from_pool(stream, pooled[: max(0, limit - len(claimed))], claimed, trimmed)
            self._take_new(Stream.CRITICAL, limit - len(claimed) - for_jobs, claimed)
            self._take_new(Stream.JOBS, limit - len(claimed), claimed)
            if for_jobs > 0:
                self._take_new(Stream.CRITICAL, limit - len(claimed), claimed)
            return ReadReply(tuple(claimed), tuple(trimmed))

    def _pooled(self, stream: Stream) -> list[Id]:
        return list(self._broker.streams[stream].owned(POOL))

    def _take_from_pool(
        self, stream: Stream, entries: Sequence[Id], claimed: list[Claimed], trimmed: list[Trimmed]
    ) -> None:
        here = self._broker.streams[stream]
        for entry in entries:
            if entry in here.entries:
                deliveries = here.claim(entry, self._name, just_id=False)
                log = crash_lines(self._broker.crash_log(stream, entry))
                claimed.append(self._claimed(stream, entry, deliveries, log))
            elif self._bury(stream, entry, POOL):
                trimmed.append(Trimmed(stream, id_text(entry)))

    def _take_new(self, stream: Stream, most: int, claimed: list[Claimed], *, name: str | None = None) -> None:
        if most > 0:
            new = self._broker.streams[stream].take_new(name or self._name, most)
            claimed += [self._claimed(stream, entry, 1) for entry in new]

    def _claimed(self, stream: Stream, entry: Id, deliveries: int, log: tuple[str, ...] = ()) -> Claimed:
        fields = self._broker.streams[stream].entries[entry]
        return Claimed(Entry(stream, id_text(entry), fields), Tenure(stream, id_text(entry), deliveries), log)

    def wait(self, block_ms: int) -> ReadReply:
        """Block for an entry, by the broker's clock; with entries on both streams already, return one of each."""
        broker = self._broker
        with broker.call("wait"):
            deadline_ms = broker.now_ms() + block_ms
            self._is_blocked, self._must_return = True, False
            name = self._name
            try:
                while True:
                    claimed: list[Claimed] = []
                    for stream in Stream:
                        self._take_new(stream, 1, claimed, name=name)
                    # The blocked command stays under the name that it was sent with until it has an entry.
                    if claimed and name != self._name:
                        self._hand_back(name, claimed)
                        return ReadReply(())
                    left_ms = deadline_ms - broker.now_ms()
                    if claimed or self._must_return or left_ms <= 0:
                        return ReadReply(tuple(claimed))
                    broker.lock.wait(left_ms / 1000 if broker.is_real_time else None)
                    broker.check("wait")
            finally:
                self._is_blocked = False

    def unblock(self) -> None:
        """End the blocked `wait`, if there is one just now."""
        with self._broker.lock:
            if self._is_blocked:
                self._must_return = True
                self._broker.wake()

    @property
    def is_blocked(self) -> bool:
        """Whether a `wait` is blocked just now: what a test waits for before it does something to it."""
        with self._broker.lock:
            return self._is_blocked

    def stray(self, held: Sequence[Tenure]) -> int:
        """Release what is pending under this name and not held."""
        known = set(held)
        with self._broker.call("stray"):
            strangers = [
                (self._broker.streams[stream], entry)
                for stream in Stream
                for entry in self._broker.streams[stream].owned(self._name)
                if self._tenure(stream, entry) not in known
            ]
            if strangers:
                self._check_record()
            moved = [here.claim(entry, POOL, just_id=True) for here, entry in strangers if entry in here.entries]
            return len(moved)

    # -- writing about deliveries -----------------------------------------------------

    def settle(self, batch: int, settlements: Sequence[Settlement]) -> Answers:
        """Write the outcomes of one batch."""
        with self._broker.call("settle"):
            record = self._check_record()
            if record.batch is not None and batch <= record.batch:
                late = Answers((Answer.LOST,) * len(settlements))
                return record.answers if batch == record.batch else late
            for settlement in settlements:
                self._broker.streams[settlement.tenure.stream].require_group()
            after_ms: list[int] = []
            words = [self._settle_one(settlement, after_ms) for settlement in settlements]
            answers = tuple(word if isinstance(word, Answer) else Answer.FAILED for word in words)
            problems = tuple(word for word in words if isinstance(word, str))
            record.batch = batch
            record.answers = Answers(answers, min(after_ms) / 1000 if after_ms else None, problems)
            return record.answers

    def _settle_one(self, settlement: Settlement, after_ms: list[int]) -> Answer | str:
        tenure = settlement.tenure
        here, entry = self._broker.streams[tenure.stream], id_of(tenure.entry_id)
        is_orphan = entry not in here.require_group().pending and entry not in here.entries
        if not self._holds(tenure) and not (settlement.body_gone and is_orphan):
            return Answer.LOST
        problem = self._write(settlement, after_ms)
        if problem is not None:
            return problem
        here.acknowledge(entry)
        here.entries.pop(entry, None)
        if settlement.body_gone or settlement.crash_log:
            self._broker.crashes.pop(member_of(tenure.stream, entry), None)
        return Answer.ACCEPTED

    def _write(self, settlement: Settlement, after_ms: list[int]) -> str | None:
        """Write what replaces the entry; return the problem where it cannot be written."""
        match settlement.outcome:
            case Done():
                return None
            case Dead() as dead:
                return self._bury_job(settlement, dead)
            case RetryLater(after_s, attempt, _error):
                self._delay(settlement, after_s, {"attempt": str(attempt)}, after_ms)
                return None
            case UnknownKind(after_s, hops):
                self._delay(settlement, after_s, {"hops": str(hops)}, after_ms)
                return None
            case outcome:
                raise TypeError(f"{outcome!r} is not written by settle")

    def _bury_job(self, settlement: Settlement, dead: Dead) -> str | None:
        """Write a dead letter, and park the flow call whose entry it was."""
        problem = self._broker.write_dead(dead_letter(settlement, dead, self._name), self._settings.dead_maxlen)
        call_id = call_of(settlement)
        if problem is None and call_id is not None:
            place = member_of(settlement.tenure.stream, id_of(settlement.tenure.entry_id))
            self._broker.calls.park_dead(call_id, place, {"reason": dead.reason.value, "error": dead.error})
        return problem

    def _delay(self, settlement: Settlement, after_s: float, changes: Mapping[str, str], after_ms: list[int]) -> None:
        """Delay a job; a flow call's entry is dropped where the call has another."""
        member = member_of(settlement.tenure.stream, id_of(settlement.tenure.entry_id))
        calls, call_id = self._broker.calls, call_of(settlement)
        if call_id is not None and calls.is_superfluous(call_id, member):
            return
        after_ms.append(max(0, round(after_s * 1000)))
        self._broker.delayed_bodies[member] = delayed_body(settlement, changes)
        self._broker.delayed[member] = self._broker.now_ms() + after_ms[-1]
        if call_id is not None:
            waits_for = "a worker that knows its flow" if "hops" in changes else "a worker"
            calls.wait_delayed(call_id, member, self._broker.delayed[member], waits_for=waits_for)

    def renew(self, tenures: Sequence[Tenure]) -> tuple[Renewal, ...]:
        """Reset idle clocks."""
        with self._broker.call("renew"):
            self._check_record()
            return tuple(self._renew_one(tenure) for tenure in tenures)

    def _renew_one(self, tenure: Tenure) -> Renewal:
        here, entry = self._broker.streams[tenure.stream], id_of(tenure.entry_id)
        if not self._holds(tenure):
            return Renewal.LOST
        if entry not in here.entries:
            return Renewal.GONE
        here.claim(entry, self._name, just_id=True)
        return Renewal.RENEWED

    def release(self, claimed: Sequence[Claimed]) -> int:
        """Put entries into the pool."""
        if not claimed:
            return 0
        with self._broker.call("release"):
            self._check_record()
            return sum(self._release_one(one, self._name) for one in claimed)

    def _release_one(self, one: Claimed, name: str) -> bool:
        here, entry = self._broker.streams[one.tenure.stream], id_of(one.tenure.entry_id)
        if not here.holds(entry, name, one.tenure.deliveries):
            return False
        if entry in here.entries:
            here.claim(entry, POOL, just_id=True)
            return True
        if not one.entry.fields or one.entry.is_oversized:
            return False
        here.add(fields_to_move(one.entry, one.crash_log))
        here.acknowledge(entry)
        return True

    # -- for everybody ------------------------------------------------------------------

    def sweep(self) -> Swept:
        """Move the entries of lapsed workers to the pool; forget consumers long gone."""
        with self._broker.call("sweep"):
            swept: dict[str, tuple[int, bool]] = {}
            trimmed: list[Trimmed] = []
            for stream in Stream:
                for name in sorted(self._broker.streams[stream].require_group().consumers):
                    if name != POOL:
                        self._sweep_one(stream, name, swept, trimmed)
            return Swept(tuple((name, *found) for name, found in swept.items()), tuple(trimmed))

    def _sweep_one(self, stream: Stream, name: str, swept: dict[str, tuple[int, bool]], trimmed: list[Trimmed]) -> None:
        group, record = self._broker.streams[stream].require_group(), self._broker.record(name)
        if record is not None and not self._has_lapsed(record):
            return
        if self._broker.streams[stream].owned(name):
            crashed = self._blamed(record)
            moved, gone = self._move_to_pool(stream, name, crashed=crashed)
            swept[name] = (swept.get(name, (0, False))[0] + moved, crashed is not None)
            trimmed += [Trimmed(stream, id_text(entry)) for entry in gone]
        elif record is None and self._broker.now_ms() - group.consumers[name] > FORGET_CONSUMER_MS:
            del group.consumers[name]

    def reclaim(self) -> Reclaimed:
        """Move what has been idle too long to the pool."""
        with self._broker.call("reclaim"):
            moved = 0
            trimmed: list[Trimmed] = []
            for stream, here in self._broker.streams.items():
                for entry, line in sorted(here.require_group().pending.items()):
                    is_pooled = line.consumer == POOL
                    is_idle = self._broker.now_ms() - line.delivered_ms >= self._settings.reclaim_idle_ms
                    if entry not in here.entries and (is_pooled or is_idle):
                        if self._bury(stream, entry, line.consumer):
                            trimmed.append(Trimmed(stream, id_text(entry)))
                    elif is_idle and not is_pooled:
                        here.claim(entry, POOL, just_id=True)
                        moved += 1
            return Reclaimed(moved, tuple(trimmed))

    def promote(self) -> Promoted:
        """Put delayed jobs that are due back into their streams."""
        broker = self._broker
        with broker.call("promote"):
            now = broker.now_ms()
            in_order = sorted(broker.delayed, key=lambda member: (broker.delayed[member], member))
            due = [member for member in in_order if broker.delayed[member] <= now][:MOST_PER_MOVE]
            became = [self._promote_one(member, now) for member in due]
            next_ms = min(broker.delayed.values(), default=None)
            wait_s = None if next_ms is None else max(0, next_ms - now) / 1000
            groups = [stream.group for stream in broker.streams.values() if stream.group is not None]
            pool = sum(line.consumer == POOL for group in groups for line in group.pending.values())
            return Promoted(became.count("moved"), wait_s, pool, became.count("broken"))

    def _promote_one(self, member: str, now: int) -> str:
        body = self._broker.delayed_bodies.get(member)
        target = _unpacked(body)
        if target is not None:
            stream, flat = target
            self._broker.streams[stream].add(pair_up(flat))
        elif self._broker.write_dead(_broken(member, body), self._settings.dead_maxlen) is not None:
            self._broker.delayed[member] = now + _STUCK_MS
            return "stuck"
        del self._broker.delayed[member]
        self._broker.delayed_bodies.pop(member, None)
        return "broken" if target is None else "moved"

    # -- helpers --------------------------------------------------------------------------

    @property
    def _me(self) -> Identity:
        if self._identity is None:
            raise BrokerError("this worker has not joined yet")
        return self._identity

    def _check_record(self) -> WorkerRecord:
        """Return the own record, written anew where it is gone."""
        record = self._broker.record(self._name)
        if record is not None and record.identity.incarnation != self._me.incarnation:
            raise NameTaken(f"another process runs as {self._name!r}")
        if record is None:
            self._broker.write_record(self._name, self._me, self._pulse)
        return self._broker.workers[self._name]

    def _has_lapsed(self, record: WorkerRecord) -> bool:
        return abs(self._broker.now_ms() - record.beat_ms) > self._settings.liveness_ttl_ms

    def _blamed(self, record: WorkerRecord | None) -> str | None:
        """Return the incarnation whose vanishing counts as a crash, None when it was asked to stop."""
        if record is None:
            return "unknown"
        return None if record.pulse.stopping else record.identity.incarnation

    def _holds(self, tenure: Tenure) -> bool:
        return self._broker.streams[tenure.stream].holds(id_of(tenure.entry_id), self._name, tenure.deliveries)

    def _tenure(self, stream: Stream, entry: Id) -> Tenure:
        line = self._broker.streams[stream].require_group().pending[entry]
        return Tenure(stream, id_text(entry), line.deliveries)

    def _bury(self, stream: Stream, entry: Id, consumer: str) -> bool:
        return self._broker.bury_trimmed(stream, entry, consumer=consumer, maxlen=self._settings.dead_maxlen)

    def _move_to_pool(self, stream: Stream, name: str, *, crashed: str | None) -> tuple[int, tuple[Id, ...]]:
        return self._broker.move_to_pool(stream, name, crashed=crashed, maxlen=self._settings.dead_maxlen)


def _unpacked(body: bytes | None) -> tuple[Stream, list[bytes]] | None:
    """Return what a delayed body says, None when these bytes are none."""
    try:
        number, *flat = unpack(body or b"")
    except (MalformedEntry, ValueError):
        return None
    stream = {b"%d" % stream.value: stream for stream in Stream}.get(number)
    is_sound = stream is not None and flat and len(flat) % 2 == 0 and len(flat) < _MOST_PARTS
    return (stream, flat) if stream is not None and is_sound else None


def _broken(member: str, body: bytes | None) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"reason", b"malformed"),
        (b"error", b"the delayed body is missing or cannot be unpacked"),
        (b"stream", b""),
        (b"entry_id", member.encode()),
        (b"consumer", b""),
        (b"fields", (body or b"")[:MAX_BYTES]),
    )


class FakePublishing:
    """The relay's side, in memory; see `stagedoor.broker.Publishing`."""

    def __init__(self, broker: FakeBroker, *, stream_maxlen: int = 100_000) -> None:
        self._broker = broker
        self._cap = int(stream_maxlen * CAP_SHARE)

    def publish(
        self, book_id: str, rows: Sequence[OutboxEntry], *, at_least: int = 0
    ) -> tuple[int, tuple[PublishReply, ...]]:
        """Publish the rows, in order."""
        with self._broker.call("publish"):
            before = self._broker.published_seq.get(book_id, 0)
            if before < at_least:
                return before, ()
            return before, tuple(self._publish_one(book_id, row) for row in rows)

    def _publish_one(self, book_id: str, row: OutboxEntry) -> PublishReply:
        broker, stream = self._broker, self._broker.streams[Stream.JOBS]
        seq = broker.published_seq.get(book_id, 0)
        chunk, bit = (book_id, row.outbox_id // ROWS_PER_BITMAP), row.outbox_id % ROWS_PER_BITMAP
        if broker.bits_expire_ms.get(chunk, 0) <= broker.now_ms():
            broker.published_bits.pop(chunk, None)
        if bit in broker.published_bits.get(chunk, ()):
            return PublishReply(Published.DUPLICATE, "", seq)
        if len(stream.entries) >= self._cap:
            return PublishReply(Published.FULL, "", seq)
        entry = stream.add(row.fields)
        broker.published_bits.setdefault(chunk, set()).add(bit)
        broker.bits_expire_ms[chunk] = broker.now_ms() + PUBLISHED_BITS_TTL_MS
        broker.published_seq[book_id] = seq + 1
        return PublishReply(Published.ADDED, id_text(entry), seq + 1)

    def confirmed_seq(self, book_id: str) -> int:
        """Return the count of accepted rows."""
        with self._broker.call("confirmed_seq"):
            return self._broker.published_seq.get(book_id, 0)
