"""The life of deliveries as one machine: any history of workers, faults and operators, on two brokers in lockstep.

Hypothesis draws histories. Each step is done to the fake broker and to a real
Redis, and after each step both must look alike, and the laws must hold:

* conservation: what was added is in exactly one place, unread, pending, delayed, dead or settled;
* a tenure is settled at most once, and a lapsed one changes nothing;
* the stream holds what is owed and nothing else: XLEN = unread + pending.

Ids differ between the two, so everything is compared by the number that each
job carries in its ``outbox_id``.
"""

import functools
import itertools
from collections.abc import Callable
from uuid import uuid4

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stagedoor.broker import connection
from stagedoor.broker.deliveries import Answer, Answers, Deliveries, Pulse, ReadReply, Renewal, Settlement
from stagedoor.core.codec import Fields, pair_up, unpack, unpack_fields
from stagedoor.core.entry import Claimed
from stagedoor.core.keys import POOL
from stagedoor.core.outcome import Dead, Done, Outcome, Reason, RetryLater, UnknownKind
from stagedoor.core.tenure import Stream
from stagedoor.errors import GroupMissing, NameTaken
from tests.broker.harness import FakeHarness, Harness, RedisHarness, identity, job

pytestmark = pytest.mark.redis

DELAY_S = 3600.0
OUTCOMES: list[Outcome] = [
    Done(),
    RetryLater(DELAY_S, 2, "x"),
    UnknownKind(DELAY_S, 1),
    Dead(Reason.PERMANENT, "x"),
]
LIMITS = {"liveness_ttl_ms": 3_600_000, "reclaim_idle_ms": 3_600_000}
"""So long that nothing lapses or idles by itself, however slow this machine is."""
MOST_PROCESSES = 5
PATIENCE = 2
"""How often a process goes on after it was told that its name is another's: it should not, but must do no harm."""

Label = int
Spot = tuple[Stream, Label]


@attrs.frozen
class Seen:
    """The state of one broker, by labels."""

    unread: dict[Stream, list[Label]]
    pending: dict[Stream, dict[Label, tuple[str, int, bool]]]
    """Owner, delivery count, and whether there is a body."""
    bodies: dict[Stream, dict[Label, Fields]]
    delayed: dict[Label, tuple[bytes, Fields]]
    dead: list[tuple[Label, dict[str, bytes], Fields]]
    crashes: dict[str, tuple[str, ...]]
    workers: dict[str, str]
    lengths: dict[Stream, int]


class Side:
    """One of the two brokers, and which id is which job."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.label_of: dict[tuple[Stream, str], Label] = {}
        self.first_id: dict[Label, str] = {}

    def look(self) -> Seen:
        """Return the state by labels; remember every id that is seen with its body."""
        state = self.harness.state()
        for stream in Stream:
            for entry_id, fields in state.of(stream).entries.items():
                self.label_of[stream, entry_id] = label_in(fields)
        return Seen(
            {stream: [self.label_of[stream, one] for one in state.of(stream).unread] for stream in Stream},
            {
                stream: {
                    self.label_of[stream, one]: (owner, count, one in state.of(stream).entries)
                    for one, (owner, count) in state.of(stream).pending.items()
                }
                for stream in Stream
            },
            {
                stream: {label_in(fields): self.plain(fields) for fields in state.of(stream).entries.values()}
                for stream in Stream
            },
            dict(self._delayed(body) for body in state.delayed.values()),
            [self._letter(dict(letter)) for letter in state.dead],
            {self._spot(field): lines for field, lines in state.crashes.items()},
            dict(state.workers),
            {stream: self.harness.length(stream) for stream in Stream},
        )

    def plain(self, fields: Fields) -> Fields:
        """Return the fields without the id in `origin`, which must be the first that the job had."""
        first = self.first_id[label_in(fields)].encode()
        assert all(value == first for name, value in fields if name == b"origin")
        return tuple((name, b"" if name == b"origin" else value) for name, value in fields)

    def claimed(self, reply: ReadReply) -> list[tuple[object, ...]]:
        """Return what a read handed out, by labels."""
        return [
            (
                one.entry.stream,
                self.label_of[one.entry.stream, one.entry.entry_id],
                one.tenure.deliveries,
                self.plain(one.entry.fields),
                tuple(line.partition(" ")[2] for line in one.crash_log),
            )
            for one in reply.claimed
        ]

    def _delayed(self, body: bytes) -> tuple[Label, tuple[bytes, Fields]]:
        number, *flat = unpack(body)
        return label_in(pair_up(flat)), (number, self.plain(pair_up(flat)))

    def _letter(self, letter: dict[str, bytes]) -> tuple[Label, dict[str, bytes], Fields]:
        stream = Stream(int(letter.pop("stream")))
        label = self.label_of[stream, letter.pop("entry_id").decode()]
        # The count of bytes has the length of the origin's id in it.
        letter.pop("fields_bytes", None)
        history = "\n".join(line.partition(" ")[2] for line in letter.pop("history", b"").decode().splitlines())
        fields = self.plain(unpack_fields(letter.pop("fields"))) if letter["reason"] != b"trimmed" else ()
        return label, {**letter, "history": history.encode(), "stream": stream.name.encode()}, fields

    def _spot(self, field: str) -> str:
        number, _, entry_id = field.partition(":")
        return f"{number}:{self.label_of[Stream(int(number)), entry_id]}"


def label_in(fields: Fields) -> Label:
    """Return the number that a job carries."""
    return int(dict(fields)[b"outbox_id"])


Pair = tuple[Claimed, Claimed]


@attrs.define
class Process:
    """One worker process: the same on both sides."""

    incarnation: str
    sides: tuple[Deliveries, Deliveries]
    name: str
    held: dict[Spot, Pair] = attrs.Factory(dict)
    stale: list[Pair] = attrs.Factory(list)
    """Deliveries that were settled or lost: what a worker that errs might write about again."""
    told_gone: set[tuple[Spot, int]] = attrs.Factory(set)
    batch: int = 0
    batches: list[tuple[int, tuple[list[Settlement], list[Settlement]], Answers]] = attrs.Factory(list)
    refusals: int = 0
    has_vanished: bool = False


class DeliveryLife(RuleBasedStateMachine):
    """The machine; see the module's text for its laws."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.real = RedisHarness(self.url, f"m-{uuid4().hex[:20]}", protocol=3)
        self.sides = (Side(FakeHarness()), Side(self.real))
        self.numbers = itertools.count(1)
        self.incarnations = itertools.count(1)
        self.processes: list[Process] = []
        self.added: set[Label] = set()
        self.settled: set[Label] = set()
        self.lost: set[Label] = set()
        """Whose body was deleted before anybody had it, or together with the pending list that named it."""
        self.accepted: set[tuple[str, Stream, str, int]] = set()
        self.names: set[str] = set()
        self.lapsed_names: set[str] = set()
        self.seen = self.sides[0].look()
        """The state after the last step: alike on both sides."""

    def teardown(self) -> None:
        self.real.close()

    # -- doing one thing to both ------------------------------------------------------

    def both[T](self, act: Callable[[Side], T]) -> T:
        """Do something to both sides; it must have the same result."""
        fake, real = (act(side) for side in self.sides)
        assert fake == real
        return fake

    def verb[T](
        self, process: Process, act: Callable[[int, Deliveries], T], *, is_fenced: bool = True
    ) -> tuple[T, T] | None:
        """Call a fenced verb on both sides; None when both say that the name is another's, and nothing changed."""
        before = self.sides[0].look()
        results: list[T] = []
        refusals = 0
        for number, deliveries in enumerate(process.sides):
            try:
                results.append(act(number, deliveries))
            except NameTaken:
                refusals += 1
        assert refusals in (0, 2), "only one side says that the name is taken"
        owner = before.workers.get(process.name)
        if refusals == 0:
            assert owner in (None, process.incarnation) or not is_fenced, "nobody was refused"
            return results[0], results[1]
        assert owner not in (None, process.incarnation)
        assert self.sides[0].look() == before, "a process without a name changed something"
        process.refusals += 1
        process.has_vanished = process.refusals > PATIENCE
        return None

    def live(self) -> list[Process]:
        """Return the processes that still act, also those that do not know yet that their name was taken."""
        return [process for process in self.processes if not process.has_vanished]

    def pick(self, data: st.DataObject) -> Process:
        return data.draw(st.sampled_from(self.live()), label="process")

    # -- producers and operators ----------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """Two workers and some work, so that no step is spent on an empty stage."""
        assert self.both(lambda side: side.harness.new_worker("setup").ensure_groups())
        for wanted in "ab":
            self._start(wanted, knows_the_dead=False)
        for stream in (*Stream, *Stream):
            self._add(stream, 2)

    @rule(stream=st.sampled_from(Stream), count=st.integers(1, 3))
    def add(self, stream: Stream, count: int) -> None:
        self._add(stream, count)

    def _add(self, stream: Stream, count: int) -> None:
        for _ in range(count):
            label = next(self.numbers)
            self.added.add(label)
            for side in self.sides:
                side.first_id[label] = side.harness.add(job(outbox_id=str(label)), stream)

    @rule(stream=st.sampled_from(Stream), third=st.integers(0, 3))
    def damage(self, stream: Stream, third: int) -> None:
        """Somebody deletes a third of the bodies, or (seldom) the group."""
        if third == 3:
            self._lose_the_group(stream)
        else:
            self._trim(stream, third)

    def _trim(self, stream: Stream, third: int) -> None:
        for label in [one for one in self.seen.bodies[stream] if one % 3 == third]:
            if label in self.seen.unread[stream]:
                self.lost.add(label)
            for side in self.sides:
                side.harness.trim(_id(side, stream, label), stream=stream)

    def _lose_the_group(self, stream: Stream) -> None:
        """It is created anew by whoever comes first."""
        for label, (_, _, has_body) in self.seen.pending[stream].items():
            if not has_body:
                self.lost.add(label)
        for side in self.sides:
            side.harness.destroy_group(stream)
            with pytest.raises(GroupMissing):
                side.harness.new_worker("setup").reclaim()
        assert self.both(lambda side: side.harness.new_worker("setup").ensure_groups())

    # -- processes ----------------------------------------------------------------------

    @precondition(lambda self: len(self.live()) < MOST_PROCESSES)
    @rule(wanted=st.sampled_from("ab"), knows_the_dead=st.booleans())
    def start(self, wanted: str, *, knows_the_dead: bool) -> None:
        self._start(wanted, knows_the_dead=knows_the_dead)

    def _start(self, wanted: str, *, knows_the_dead: bool) -> None:
        """A process starts; what vanished on its own host it can prove dead."""
        gone = {process.incarnation for process in self.processes if process.has_vanished}
        incarnation = f"<{next(self.incarnations)}>"
        made = [
            side.harness.new_worker(
                wanted,
                is_process_dead=lambda record: knows_the_dead and record["incarnation"] in gone,
                **LIMITS,
            )
            for side in self.sides
        ]
        names = [deliveries.join(identity(incarnation), Pulse(slots=8)) for deliveries in made]
        assert names[0] == names[1]
        self.real.watch(names[0])
        self.names.add(names[0])
        for process in self.live():
            assert process.name != names[0] or process.name in self.lapsed_names, "a live process lost its name"
        self.processes.append(Process(incarnation, (made[0], made[1]), names[0]))

    @precondition(lambda self: len(self.live()) > 1)
    @rule(data=st.data(), cleanly=st.booleans())
    def leave(self, data: st.DataObject, *, cleanly: bool) -> None:
        """A clean stop, or kill -9."""
        process = self.pick(data)
        if cleanly:
            is_own = self.seen.workers.get(process.name) in (None, process.incarnation)
            self.verb(process, lambda _, deliveries: deliveries.retire(), is_fenced=False)
            assert is_own or self.sides[0].look() == self.seen
        process.has_vanished = True

    @precondition(lambda self: any(process.refusals for process in self.live()))
    @rule(data=st.data())
    def rejoin(self, data: st.DataObject) -> None:
        """Who was told that its name is another's goes on under a free one, without what it held."""
        process = data.draw(st.sampled_from([one for one in self.live() if one.refusals]))
        others = [one for one in self.live() if one is not process]
        held = list(process.held.values())
        names = [deliveries.rejoin([pair[number] for pair in held]) for number, deliveries in enumerate(process.sides)]
        assert names[0] == names[1]
        assert all(one.name != names[0] or one.name in self.lapsed_names for one in others), "a live one lost its name"
        self.real.watch(names[0])
        self.names.add(names[0])
        process.name, process.refusals = names[0], 0
        process.stale += held
        process.held.clear()

    @precondition(lambda self: self.live())
    @rule(data=st.data(), stopping=st.booleans())
    def beat(self, data: st.DataObject, *, stopping: bool) -> None:
        pulse = Pulse(slots=8, stopping=stopping)
        self.verb(self.pick(data), lambda _, deliveries: deliveries.beat(pulse))

    @precondition(lambda self: self.live())
    @rule(data=st.data(), lapses=st.booleans())
    def sweep(self, data: st.DataObject, *, lapses: bool) -> None:
        """Maybe a process is frozen, or cut off, past its time (it may come back); then somebody sweeps."""
        if lapses:
            name = data.draw(st.sampled_from(sorted(self.names)), label="lapsed")
            self._lapse(name)
        process = self.pick(data)
        fake, real = (deliveries.sweep() for deliveries in process.sides)
        assert sorted(fake.workers) == sorted(real.workers)
        assert len(fake.trimmed) == len(real.trimmed)
        self._expect_only_the_lapsed_were_robbed({name for name, _, _ in fake.workers})

    def _lapse(self, name: str) -> None:
        if name in self.seen.workers:
            self.lapsed_names.add(name)
            for side in self.sides:
                side.harness.lapse(name)

    def _expect_only_the_lapsed_were_robbed(self, robbed: set[str]) -> None:
        assert robbed <= self.lapsed_names | {name for name in self.names if name not in self.seen.workers}
        after = self.sides[0].look()
        for stream in Stream:
            for label, line in self.seen.pending[stream].items():
                assert line[0] in robbed or after.pending[stream].get(label) == line
            assert not any(owner in robbed for owner, _, _ in after.pending[stream].values())

    # -- reading ---------------------------------------------------------------------------

    @precondition(lambda self: self.live())
    @rule(data=st.data(), limit=st.integers(1, 6), for_jobs=st.integers(0, 1), is_lost=st.booleans())
    def read(self, data: st.DataObject, limit: int, for_jobs: int, *, is_lost: bool) -> None:
        """Read, all or all but some of the pool; a reply that is lost leaves what it handed out with Redis alone."""
        process = self.pick(data)
        third = data.draw(st.integers(0, 5), label="third to be left")
        left = [
            (stream, label)
            for stream in Stream
            for label, line in self.seen.pending[stream].items()
            if line[0] == POOL and label % 3 == third
        ]
        leave = [[(stream, _id(side, stream, label)) for stream, label in left] for side in self.sides]
        results = self.verb(
            process, lambda number, deliveries: deliveries.read(limit, for_jobs=for_jobs, leave=leave[number])
        )
        if results is not None:
            assert not {claimed.tenure.entry for claimed in results[0].claimed} & set(leave[0])
            self._expect_same(*results)
            assert len(results[0].claimed) <= limit
            if not is_lost:
                self._hold(process, *results)

    @precondition(lambda self: self.live() and any(self.seen.unread.values()))
    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        """The blocked read has no fence: a process is told by its beat that its name was taken."""
        process = self.pick(data)
        if self.verb(process, lambda _, deliveries: deliveries.beat(Pulse(slots=8))) is not None:
            fake, real = (deliveries.wait(1000) for deliveries in process.sides)
            self._expect_same(fake, real)
            self._hold(process, fake, real)

    def _expect_same(self, fake: ReadReply, real: ReadReply) -> None:
        assert self.sides[0].claimed(fake) == self.sides[1].claimed(real)
        assert len(fake.trimmed) == len(real.trimmed)

    def _hold(self, process: Process, fake: ReadReply, real: ReadReply) -> None:
        for pair in zip(fake.claimed, real.claimed, strict=True):
            spot = (pair[0].entry.stream, label_in(pair[0].entry.fields))
            if spot in process.held:
                process.stale.append(process.held[spot])
            # With the group the counts begin anew: what is handed out again so is the same tenure, and no stale one.
            process.stale = [one for one in process.stale if one[0].tenure != pair[0].tenure]
            process.held[spot] = pair

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def stray(self, data: st.DataObject) -> None:
        """What a lost reply handed out is found, and what is in hand stays."""
        process = self.pick(data)
        held = [[pair[number].tenure for pair in process.held.values()] for number in (0, 1)]
        # With nothing to move nothing is written, and so nothing checked.
        results = self.verb(process, lambda number, deliveries: deliveries.stray(held[number]), is_fenced=False)
        assert results is None or results[0] == results[1]
        after = self.sides[0].look()
        for (stream, label), (claimed, _) in process.held.items():
            # A job may have gone on under another id without this process, which read that with a reply that got lost.
            if claimed.entry.entry_id != _id(self.sides[0], stream, label):
                continue
            line, later = (seen.pending[stream].get(label) for seen in (self.seen, after))
            if line is not None and line[0] == process.name and line[1] != claimed.tenure.deliveries:
                # Handed out anew with a lost reply: what is in hand has lapsed, and the new tenure strays.
                assert later is not None
                assert later == line or later[0] == POOL
            else:
                assert later == line

    # -- writing about deliveries ---------------------------------------------------------------

    @precondition(lambda self: any(process.held or process.stale for process in self.live()))
    @rule(data=st.data(), errs=st.booleans(), repeats=st.integers(0, 2))
    def settle(self, data: st.DataObject, repeats: int, *, errs: bool) -> None:
        """Settle some of what is in hand, and in error what is not any more; maybe with replies that get lost."""
        process = data.draw(st.sampled_from([one for one in self.live() if one.held or one.stale]))
        pairs = [pair for pair in process.held.values() if data.draw(st.booleans())]
        self._settle(data, process, [*pairs, *(process.stale[-3:] if errs else [])], repeats=repeats)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), limit=st.integers(1, 4), pause=st.booleans())
    def work(self, data: st.DataObject, limit: int, *, pause: bool) -> None:
        """A worker's day: read, settle all, and after a pause what was delayed comes back."""
        process = self.pick(data)
        results = self.verb(process, lambda _, deliveries: deliveries.read(limit))
        if results is None:
            return
        self._expect_same(*results)
        self._hold(process, *results)
        self.seen = self.both(lambda side: side.look())
        self._settle(data, process, list(process.held.values()), repeats=0)
        if pause:
            self._promote(process, times=2)

    def _settle(self, data: st.DataObject, process: Process, pairs: list[Pair], *, repeats: int) -> None:
        outcomes = [data.draw(st.sampled_from(OUTCOMES)) for _ in pairs]
        process.batch += 1
        batch: tuple[list[Settlement], list[Settlement]] = ([], [])
        for pair, outcome in zip(pairs, outcomes, strict=True):
            for number, claimed in enumerate(pair):
                batch[number].append(_settlement(process, claimed, outcome, label_in(pair[0].entry.fields)))
        answers = self._settle_once(process, process.batch, batch)
        if answers is None:
            return
        after = self.sides[0].look()
        if set(answers.answers) <= {Answer.LOST}:
            assert after == evolve_workers(self.seen, after), "a lapsed tenure changed something"
        for _ in range(repeats):
            assert self._settle_once(process, process.batch, batch) == answers
            assert self.sides[0].look() == after
        process.batches.append((process.batch, batch, answers))
        self._note(process, pairs, outcomes, answers)

    def _settle_once(
        self, process: Process, number: int, batch: tuple[list[Settlement], list[Settlement]]
    ) -> Answers | None:
        results = self.verb(process, lambda side, deliveries: deliveries.settle(number, batch[side]))
        if results is None:
            return None
        fake, real = results
        assert fake == real
        assert fake.next_due_s in (None, DELAY_S)
        assert not fake.problems
        return fake

    def _note(self, process: Process, pairs: list[Pair], outcomes: list[Outcome], answers: Answers) -> None:
        for pair, outcome, answer in zip(pairs, outcomes, answers.answers, strict=True):
            label = label_in(pair[0].entry.fields)
            spot = (pair[0].entry.stream, label)
            if process.held.get(spot) is pair:
                process.stale.append(process.held.pop(spot))
            if answer is Answer.ACCEPTED:
                tenure = pair[0].tenure
                key = (process.incarnation, tenure.stream, tenure.entry_id, tenure.deliveries)
                assert key not in self.accepted, "one tenure was settled twice"
                self.accepted.add(key)
                self.lost.discard(label)
                if isinstance(outcome, Done):
                    self.settled.add(label)

    @precondition(lambda self: any(len(process.batches) > 1 for process in self.live()))
    @rule(data=st.data())
    def late_repeat(self, data: st.DataObject) -> None:
        """A batch of before the last arrives once more: nothing happens, and the last can still be repeated."""
        process = data.draw(st.sampled_from([one for one in self.live() if len(one.batches) > 1]))
        *earlier, last = process.batches
        number, batch, _ = data.draw(st.sampled_from(earlier))
        if process.incarnation != self.seen.workers.get(process.name):
            return
        late = self._settle_once(process, number, batch)
        assert late is not None
        assert set(late.answers) <= {Answer.LOST}
        assert self._settle_once(process, last[0], last[1]) == last[2]
        assert self.sides[0].look() == self.seen

    @precondition(lambda self: any(process.held for process in self.live()))
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from([one for one in self.live() if one.held]))
        spots = list(process.held)
        pairs = [process.held[spot] for spot in spots] + process.stale[-2:]
        results = self.verb(
            process, lambda number, deliveries: deliveries.renew([pair[number].tenure for pair in pairs])
        )
        if results is None:
            return
        assert results[0] == results[1]
        after = self.sides[0].look()
        assert after == evolve_workers(self.seen, after)
        for spot, pair, renewal in zip(spots, pairs, results[0], strict=False):
            if renewal is Renewal.GONE:
                process.told_gone.add((spot, pair[0].tenure.deliveries))

    @precondition(lambda self: any(process.held for process in self.live()))
    @rule(data=st.data(), errs=st.booleans())
    def release(self, data: st.DataObject, *, errs: bool) -> None:
        """Give back some of what is in hand; in error also what is not any more, and all of it twice."""
        process = data.draw(st.sampled_from([one for one in self.live() if one.held]))
        spots = [spot for spot in process.held if data.draw(st.booleans())]
        pairs = [process.held[spot] for spot in spots] + (process.stale[-2:] if errs else [])
        for _ in range(2 if errs else 1):
            results = self.verb(
                process,
                lambda number, deliveries: deliveries.release([pair[number] for pair in pairs]),
                is_fenced=bool(pairs),
            )
            if results is None:
                return
            assert results[0] == results[1]
        for spot in spots:
            process.stale.append(process.held.pop(spot))

    # -- for everybody ------------------------------------------------------------------------------

    @precondition(lambda self: self.live())
    @rule(data=st.data(), stream=st.sampled_from(Stream), ages=st.booleans())
    def reclaim(self, data: st.DataObject, stream: Stream, *, ages: bool) -> None:
        """Maybe nobody has renewed some entries for long; then somebody reclaims."""
        pending = self.seen.pending[stream]
        aged = [one for one, (_, _, has_body) in pending.items() if ages and has_body and one % 2]
        for label in aged:
            for side in self.sides:
                side.harness.age(_id(side, stream, label), stream=stream)
        fake, real = (deliveries.reclaim() for deliveries in self.pick(data).sides)
        assert (fake.moved, len(fake.trimmed)) == (real.moved, len(real.trimmed))

    @precondition(lambda self: self.live())
    @rule(data=st.data(), are_due=st.booleans())
    def promote(self, data: st.DataObject, *, are_due: bool) -> None:
        self._promote(self.pick(data), times=1, are_due=are_due)

    def _promote(self, process: Process, *, times: int, are_due: bool = True) -> None:
        """Maybe an hour passes for the delayed jobs, each due in its turn; then somebody promotes."""
        if are_due:
            for side in self.sides:
                _make_due(side)
        for _ in range(times):
            fake, real = (deliveries.promote() for deliveries in process.sides)
            assert (fake.moved, fake.pool, fake.broken) == (real.moved, real.pool, real.broken)
            assert (fake.next_due_s is None) == (real.next_due_s is None)

    # -- the laws --------------------------------------------------------------------------------------

    @invariant()
    def the_laws_hold(self) -> None:
        self.seen = self.both(lambda side: side.look())
        self._everything_is_in_exactly_one_place()
        self._the_stream_holds_what_is_owed_and_nothing_else()
        owners = {owner for stream in Stream for owner, _, _ in self.seen.pending[stream].values()}
        assert owners <= {*self.names, POOL}

    def _everything_is_in_exactly_one_place(self) -> None:
        places: dict[Label, list[str]] = {label: [] for label in self.added}
        for stream in Stream:
            for label in self.seen.unread[stream]:
                places[label].append("unread")
            for label in self.seen.pending[stream]:
                places[label].append("pending")
        for label in self.seen.delayed:
            places[label].append("delayed")
        for label in self.settled:
            places[label].append("settled")
        for label, letter, _ in self.seen.dead:
            if letter["reason"] != b"trimmed":
                places[label].append("dead")
        buried = [label for label, letter, _ in self.seen.dead if letter["reason"] == b"trimmed"]
        for label, found in places.items():
            # A body that somebody deleted is a dead letter of its own; its holder may still have saved the job.
            is_excused = label in self.lost or label in buried
            assert len(found) == 1 or (not found and is_excused), f"job {label} is in {found or 'no place'}"

    def _the_stream_holds_what_is_owed_and_nothing_else(self) -> None:
        for stream in Stream:
            with_body = [label for label, (_, _, has_body) in self.seen.pending[stream].items() if has_body]
            assert self.seen.lengths[stream] == len(self.seen.unread[stream]) + len(with_body)
            assert sorted(self.seen.bodies[stream]) == sorted([*self.seen.unread[stream], *with_body])


def evolve_workers(seen: Seen, after: Seen) -> Seen:
    """Return a state with the workers of another: a lost record is written anew by any fenced verb."""
    return attrs.evolve(seen, workers=after.workers)


def _settlement(process: Process, claimed: Claimed, outcome: Outcome, label: Label) -> Settlement:
    spot = (claimed.entry.stream, label)
    is_held = process.held.get(spot) is not None and claimed in process.held[spot]
    return Settlement(
        tenure=claimed.tenure,
        fields=claimed.entry.fields,
        outcome=outcome,
        crash_log=claimed.crash_log,
        body_gone=is_held and (spot, claimed.tenure.deliveries) in process.told_gone,
    )


def _id(side: Side, stream: Stream, label: Label) -> str:
    """Return the id under which a job is in a stream now: its last."""
    return [entry_id for (where, entry_id), one in side.label_of.items() if (where, one) == (stream, label)][-1]


def _make_due(side: Side) -> None:
    members = side.harness.state().delayed
    for member, body in members.items():
        _, *flat = unpack(body)
        _set_due(side.harness, member, label_in(pair_up(flat)))


def _set_due(harness: Harness, member: str, score: int) -> None:
    if isinstance(harness, FakeHarness):
        harness.fake.delayed[member] = score
    else:
        assert isinstance(harness, RedisHarness)
        harness.client.zadd(harness.keys.delayed, {member: score})


@pytest.fixture
def machine(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> type[DeliveryLife]:
    """The machine on this run's server; every script is read once, not once for each of thousands of workers."""
    monkeypatch.setattr(connection, "read_script", functools.cache(connection.read_script))
    return type("DeliveryLifeHere", (DeliveryLife,), {"url": redis_url})


def test_every_history_keeps_the_laws_on_both_brokers(machine: type[DeliveryLife]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=60, stateful_step_count=50, suppress_health_check=list(HealthCheck)),
    )
