"""Random schedules of flow calls: small engines that are interrupted before and after each thing they ask for.

A pass is a generator that yields each call of the port instead of making it, so
that a schedule decides what happens in between: another pass, a signal, a
cancel, a timer, a crash, a process that freezes and thaws after others have
gone on, a request or a reply that is lost. It knows nothing but the port, as
the real engine does.

Time is the schedule's own: sleeps are over when it says so. What is asked in
the end does not depend on it: every call comes to its end, each value was
recorded once and never changed, each signal was taken at most once.
"""

import itertools
import random
from collections.abc import Callable, Generator, Mapping
from typing import Any

import attrs

from stagedoor.broker.calls import Again, Begun, Calls, Pass, Refused, Running, TakenSignal, TimedOut, Told
from stagedoor.broker.deliveries import Deliveries, Pulse
from stagedoor.core.call import (
    CallOutcome,
    CallState,
    Ending,
    Finish,
    Kind,
    Park,
    Sleep,
    Step,
    StepState,
    StepWrite,
    Wait,
)
from stagedoor.core.entry import Claimed
from stagedoor.core.job import parse_job
from stagedoor.core.journal import Journal
from stagedoor.core.outcome import RetryLater, UnknownKind
from stagedoor.core.tenure import Stream
from stagedoor.errors import GroupMissing, LeaseLost, NameTaken
from tests.broker.flow_harness import calls_of, end_lease, make_look_due, new_call
from tests.broker.harness import Harness, settled

LATER = 4_102_444_800.0
"""The year 2100: due times that come only when a schedule says so."""
LONG_AGO = 1.0
LIMITS: dict[str, Any] = {"liveness_ttl_ms": 3_600_000, "reclaim_idle_ms": 3_600_000}
MOST_PASSES = 3

Ask = Callable[[], Any]
Asking = Generator[Ask, Any, Any]


@attrs.frozen(kw_only=True)
class Operation:
    """One durable operation of a program: `step`, `sleep`, `wait` or `park`; *fails* attempts before it succeeds."""

    kind: str
    fails: int = 0
    has_timeout: bool = False


@attrs.frozen
class Program:
    """What a call does, one operation after the other, and whether a callback runs in the end."""

    operations: tuple[Operation, ...]
    has_callback: bool = False


def make_program(rng: random.Random) -> Program:
    """Return a random program."""
    made = []
    for _ in range(rng.randint(1, 6)):
        kind = rng.choice(("step", "step", "step", "sleep", "wait", "wait", "park"))
        made.append(Operation(kind=kind, fails=rng.choice((0, 0, 1, 2)), has_timeout=rng.random() < 0.4))
    return Program(tuple(made), has_callback=rng.random() < 0.4)


@attrs.define
class Worker:
    """One process; *frozen* ones do nothing until they thaw."""

    name: str
    deliveries: Deliveries
    calls: Calls
    frozen: bool = False


@attrs.define
class Run:
    """One pass that is under way in a worker: what it asks for next, and by what right it writes."""

    worker: Worker
    claimed: Claimed
    call_id: str
    asking: Asking
    next_ask: Ask
    right: Pass | None = None
    is_sure: bool = False
    """Whether nothing has happened that may end its lease or move its entry."""


@attrs.frozen(kw_only=True)
class Turn:
    """One operation of a pass: what it was when the pass began; *cancelled* is told to all that follow."""

    run: Run
    right: Pass
    key: str
    step: Step | None
    cancelled: list[bool]
    place: int | None = None
    operation: Operation = Operation(kind="step")


class World:
    """One broker, some workers, some calls, and what has happened to them."""

    def __init__(self, broker: Harness, rng: random.Random, *, calls: int = 2, with_look: bool = False) -> None:
        self.broker = broker
        self.rng = rng
        self.with_look = with_look
        self.now = 0.0
        self.is_fixed = False
        self.programs = {f"c{number}": make_program(rng) for number in range(calls)}
        self.runs: list[Run] = []
        self.executions = itertools.count(1)
        self.values: dict[tuple[str, str], str] = {}
        self.epochs: dict[str, int] = {}
        self.sent: dict[str, list[str]] = {call_id: [] for call_id in self.programs}
        self.cancelled: set[str] = set()
        self.anybody = calls_of(broker)
        self.workers = [self._new_worker(f"w{number}") for number in range(rng.choice((2, 2, 3)))]
        self.history: list[str] = []
        self.batch = 0
        self.weights = self._weigh()

    def _new_worker(self, name: str) -> Worker:
        deliveries = self.broker.worker(name, **LIMITS)
        return Worker(deliveries.name, deliveries, calls_of(self.broker, deliveries))

    # -- the small engine ------------------------------------------------------------

    def run_pass(self, run: Run) -> Asking:
        """Run one pass to its end; whoever drives it makes the calls that it yields."""
        calls, claimed = run.worker.calls, run.claimed
        try:
            answer = yield lambda: calls.begin_pass(claimed.tenure, run.call_id)
            if isinstance(answer, Refused):
                return
            assert isinstance(answer, Begun)
            self._check_beginning(run, answer.right)
            view: Begun | Again = answer
            while True:
                run.right = view.right
                self._remember(view.journal)
                ending, write = yield from self._function(run, view.right, view.journal)
                right = view.right
                answer = yield lambda right=right, ending=ending, write=write: calls.end_pass(  # type: ignore[misc]  # bound at once
                    right, ending, write=write
                )
                if not isinstance(answer, Again):
                    return
                view = answer
        except LeaseLost:
            yield lambda: run.worker.deliveries.release([claimed])

    def _function(
        self, run: Run, right: Pass, journal: Journal
    ) -> Generator[Ask, Any, tuple[Ending, StepWrite | None]]:
        """Do what the program says from the top; return how the pass ends."""
        program = self.programs[run.call_id]
        outcome = journal.outcome
        if outcome is None:
            ended = yield from self._operations(run, right, journal)
            if isinstance(ended, tuple):
                return ended
            outcome = ended
            if program.has_callback:
                yield lambda: run.worker.calls.record_outcome(right, ended)
        if program.has_callback and journal.step(".on_success") is None:
            turn = Turn(run=run, right=right, key=".on_success", step=None, cancelled=[])
            yield from self._record(turn, Step(state=StepState.DONE, kind=Kind.CALLBACK))
        return Finish(outcome=outcome), None

    def _operations(self, run: Run, right: Pass, journal: Journal) -> Asking:
        """Do what is not recorded yet; return the call's outcome, or how the pass ends before it."""
        cancelled = [journal.is_cancel_requested]
        for place, operation in enumerate(self.programs[run.call_id].operations, start=1):
            key = f"{operation.kind}-{place}"
            step = journal.step(key)
            if step is not None and step.state in {StepState.DONE, StepState.FAILED}:
                continue
            if cancelled[0]:
                return CallOutcome(state=CallState.CANCELLED, error="cancelled")
            turn = Turn(run=run, right=right, key=key, step=step, cancelled=cancelled, place=place, operation=operation)
            ended = yield from getattr(self, f"_{operation.kind}")(turn)
            if ended is not None:
                return ended
        return CallOutcome(state=CallState.DONE, result='"r"')

    def _record(self, turn: Turn, step: Step, value: str | None = None) -> Asking:
        write = StepWrite(key=turn.key, step=step, seen=turn.step, value=value)
        answer = yield lambda: turn.run.worker.calls.record_step(turn.right, write)
        if answer.is_cancel_requested:
            turn.cancelled[:] = [True]

    def _step(self, turn: Turn) -> Asking:
        key, place, attempts = turn.key, turn.place, (turn.step.attempts if turn.step else 0) + 1
        value = f'"{key} by {next(self.executions)}"'
        if self.rng.random() < 0.3:
            mark = Step(state=StepState.RUNNING, kind=Kind.STEP, place=place, attempts=attempts - 1)
            marks = (StepWrite(key=key, step=mark, seen=turn.step),)
            yield lambda: turn.run.worker.calls.keep([Running(turn.right, marks)])
        if attempts <= turn.operation.fails:
            retry = Step(state=StepState.RETRY, kind=Kind.STEP, place=place, attempts=attempts, error="no")
            return Sleep(until=LATER, waiting_for="retry"), StepWrite(key=key, step=retry, seen=turn.step)
        yield from self._record(turn, Step(state=StepState.DONE, kind=Kind.STEP, place=place, attempts=attempts), value)
        return None

    def _sleep(self, turn: Turn) -> Asking:
        until = turn.step.more["until"] if turn.step else self.now + self.rng.randint(1, 3)
        if turn.step is not None and self.now >= until:
            yield from self._record(turn, Step(state=StepState.DONE, kind=Kind.SLEEP, place=turn.place))
            return None
        asleep = Step(state=StepState.SLEEPING, kind=Kind.SLEEP, place=turn.place, due_at=LATER, more={"until": until})
        return Sleep(until=LATER, waiting_for=turn.key), StepWrite(key=turn.key, step=asleep, seen=turn.step)

    def _wait(self, turn: Turn) -> Asking:
        until = turn.step.more["until"] if turn.step else self.now + self.rng.randint(0, 2)
        due_at = LONG_AGO if self.now >= until else LATER

        def write(state: StepState) -> StepWrite:
            made = Step(state=state, kind=Kind.SIGNAL, place=turn.place, due_at=due_at, more={"until": until})
            return StepWrite(key=turn.key, step=made, seen=turn.step)

        timed_out = write(StepState.FAILED) if turn.operation.has_timeout else None
        answer = yield lambda: turn.run.worker.calls.take_signal(
            turn.right, "go", taken=write(StepState.DONE), timed_out=timed_out, waiting=write(StepState.WAITING)
        )
        if isinstance(answer, TakenSignal | TimedOut):
            return None
        return Wait(waiting_for="signal go", until=LATER if turn.operation.has_timeout else None), None

    def _park(self, turn: Turn) -> Asking:
        if not self.is_fixed:
            return Park(reason="changed", error="x"), None
        yield from self._record(turn, Step(state=StepState.DONE, kind=Kind.MEMO, place=turn.place))
        return None

    def _check_beginning(self, run: Run, right: Pass) -> None:
        """Check that epochs grow, and that nobody else runs this call who had no reason to stop."""
        assert right.epoch > self.epochs.get(run.call_id, 0)
        self.epochs[run.call_id] = right.epoch
        others = [other for other in self.runs if other is not run and other.call_id == run.call_id and other.is_sure]
        assert not others, "two passes of one call"
        run.is_sure = True

    def _remember(self, journal: Journal) -> None:
        """Check that nothing which was recorded has changed."""
        for field, value in journal.meta.items():
            if field.startswith("v:"):
                assert self.values.setdefault((journal.call_id, field), value) == value, (field, value)
        for known, field in [pair for pair in self.values if pair[0] == journal.call_id]:
            assert field in journal.meta, (known, field)

    # -- what can happen ----------------------------------------------------------------

    def _weigh(self) -> Mapping[Callable[[], None], float]:
        """Return how often each thing shall happen in this schedule: no two are alike, so that each meets each."""
        usual = {
            self.advance: 40,
            self.read: 12,
            self.start: 1,
            self.pass_time: 4,
            self.send_signal: 4,
            self.resume: 2,
            self.cancel: 1,
            self.crash: 2,
            self.freeze: 3,
            self.thaw: 2,
            self.sweep: 4,
            self.lose_lease: 2,
            self.wake: 2,
            self.stray: 2,
            self.hand_back: 2,
            self.keep: 2,
            self.look: 2 if self.with_look else 0,
        }
        return {action: weight * 4 ** self.rng.uniform(-1, 1) for action, weight in usual.items()}

    def act(self) -> None:
        """Let something happen."""
        (chosen,) = self.rng.choices(list(self.weights), list(self.weights.values()))
        self.history.append(chosen.__name__)
        chosen()

    def live_runs(self) -> list[Run]:
        """Return the passes that can go on."""
        return [run for run in self.runs if not run.worker.frozen]

    def advance(self) -> None:
        """Let one pass make its next call; some of the requests and replies are lost, and it asks again."""
        runs = self.live_runs()
        if runs:
            chance = self.rng.random()
            self._advance(self.rng.choice(runs), lose_request=chance < 0.05, lose_reply=chance > 0.9)

    def _advance(self, run: Run, *, lose_request: bool = False, lose_reply: bool = False) -> None:
        if lose_request:
            return
        try:
            answer = self._ask(run)
            if lose_reply:
                return
            run.next_ask = run.asking.send(answer)
        except LeaseLost as error:
            if lose_reply:
                return
            try:
                run.next_ask = run.asking.throw(error)
            except StopIteration:
                self.runs.remove(run)
        except (StopIteration, NameTaken, GroupMissing):
            self.runs.remove(run)

    def _ask(self, run: Run) -> Any:
        """Make the call that a pass asks for; one that holds no longer changes nothing."""
        before = self.anybody.show(run.call_id)
        held = run.right is None or self._holds(run)
        try:
            return run.next_ask()
        finally:
            assert held or self.anybody.show(run.call_id) == before, "a pass that holds no longer has written"
            run.is_sure = run.is_sure and self._holds(run)

    def _holds(self, run: Run) -> bool:
        now = self.anybody.show(run.call_id)
        known = run.right.epoch if run.right else None
        return now is not None and (now.state, now.epoch) == (CallState.RUNNING, known)

    def read(self) -> None:
        """Let a worker claim an entry, and begin its pass."""
        able = [w for w in self.workers if not w.frozen and sum(run.worker is w for run in self.runs) < MOST_PASSES]
        if able:
            worker = self.rng.choice(able)
            for claimed in worker.deliveries.read(1).claimed:
                self._begin(worker, claimed)

    def _begin(self, worker: Worker, claimed: Claimed) -> None:
        call_id = parse_job(claimed.entry).call_id
        assert call_id is not None
        run = Run(worker, claimed, call_id, iter(()), lambda: None)  # type: ignore[arg-type]  # replaced at once
        run.asking = self.run_pass(run)
        run.next_ask = next(run.asking)
        self.runs.append(run)

    def start(self) -> None:
        """Start a call, or one that is there."""
        call_id = self.rng.choice(list(self.programs))
        self.anybody.start(new_call(call_id, delay_s=self.rng.choice((0, 3600))))

    def pass_time(self) -> None:
        """Let a unit of time pass, and all that is due go on."""
        self.now += 1
        self.broker.make_due()
        able = [worker for worker in self.workers if not worker.frozen]
        if able:
            self.rng.choice(able).deliveries.promote()

    def send_signal(self) -> None:
        """Send a call a signal, at times twice under one token."""
        call_id = self.rng.choice(list(self.programs))
        token = f"t{len(self.sent[call_id])}"
        told = [
            self.anybody.signal(call_id, "go", f'"{token}"', token=token) for _ in range(self.rng.choice((1, 1, 2)))
        ]
        if told[0] is Told.TOLD:
            self.sent[call_id].append(f'"{token}"')

    def resume(self) -> None:
        """Repair what parks calls, and resume one."""
        self.is_fixed = True
        self.anybody.resume(self.rng.choice(list(self.programs)))

    def cancel(self) -> None:
        """Ask for the end of a call."""
        call_id = self.rng.choice(list(self.programs))
        if self.anybody.cancel(call_id) is Told.TOLD:
            self.cancelled.add(call_id)

    def wake(self) -> None:
        """Wake a call for nothing."""
        self.anybody.wake(self.rng.choice(list(self.programs)))

    def stray(self) -> None:
        """Add an entry for a call that needs none, as a late timer does."""
        call_id = self.rng.choice(list(self.programs))
        fields = {"kind": "f", "call_id": call_id, "request_id": "", "trace": ""}
        packed = tuple((name.encode(), value.encode()) for name, value in fields.items())
        self.broker.add(packed, self.rng.choice(list(Stream)))

    def hand_back(self) -> None:
        """Let a worker meet an entry whose flow it does not know, or fail in the middle of a pass."""
        able = [worker for worker in self.workers if not worker.frozen]
        if not able:
            return
        worker = self.rng.choice(able)
        mine = [run for run in self.runs if run.worker is worker]
        claimed = [run.claimed for run in mine[:1]] or list(worker.deliveries.read(1).claimed)
        self.runs = [run for run in self.runs if run not in mine[:1]]
        self.batch += 1
        outcome = RetryLater(3600, 2, "an outage") if mine else UnknownKind(3600, 1)
        worker.deliveries.settle(self.batch, [settled(one, outcome) for one in claimed])

    def crash(self) -> None:
        """End a process in the middle of whatever it does; another takes its name and its entries."""
        place = self.rng.randrange(len(self.workers))
        old = self.workers[place]
        self.runs = [run for run in self.runs if run.worker is not old]
        self.broker.lapse(old.name)
        self.workers[place] = self._new_worker(old.name)

    def freeze(self) -> None:
        """Stop a process so long that it lapses and its leases run out, one or both."""
        able = [worker for worker in self.workers if not worker.frozen]
        busy = [worker for worker in able if any(run.worker is worker for run in self.runs)]
        if len(able) > 1 and busy:
            worker = self.rng.choice(busy)
            worker.frozen = True
            if self.rng.random() < 0.8:
                self.broker.lapse(worker.name)
            self._doubt(*(run.call_id for run in self.runs if run.worker is worker))
            if self.rng.random() < 0.5:
                self.lose_lease()

    def thaw(self) -> None:
        """Let a frozen process go on where it was."""
        for worker in self.workers:
            if worker.frozen:
                worker.frozen = False
                self._beat(worker)

    def _beat(self, worker: Worker) -> None:
        worker.deliveries.beat(Pulse(slots=8))

    def sweep(self) -> None:
        """Move the entries of lapsed workers to the pool."""
        able = [worker for worker in self.workers if not worker.frozen]
        if able:
            self.rng.choice(able).deliveries.sweep()

    def lose_lease(self) -> None:
        """Let a lease run out."""
        call_id = self.rng.choice(list(self.programs))
        if self.anybody.show(call_id) is not None:
            end_lease(self.broker, call_id)
            self._doubt(call_id)

    def _doubt(self, *call_ids: str) -> None:
        for run in self.runs:
            if run.call_id in call_ids:
                run.is_sure = False

    def keep(self) -> None:
        """Let a worker renew the leases of its passes."""
        able = [worker for worker in self.workers if not worker.frozen]
        if able:
            worker = self.rng.choice(able)
            rights = [run.right for run in self.runs if run.worker is worker and run.right is not None]
            worker.calls.keep([Running(right) for right in rights])

    def look(self) -> None:
        """Look after every call."""
        known = [line.call_id for line in self.anybody.list_calls().calls]
        if known:
            make_look_due(self.broker, *known)
            self.anybody.look()

    # -- the end ----------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """Let everything go on, without faults, until nothing does."""
        self.is_fixed = True
        for call_id in self.programs:
            self.anybody.start(new_call(call_id))
        self.thaw()
        for _ in range(200):
            state = self.broker.state()
            is_empty = not (state.jobs.entries or state.critical.entries or state.delayed or self.runs)
            if is_empty and all(journal.state.has_ended for journal in self.journals().values()):
                return
            self._round()
        raise AssertionError(f"stuck: {self.journals()}\n{self.history}\n{self.broker.state()}")

    def _round(self) -> None:
        for worker in self.workers:
            self._beat(worker)
        self.workers[0].deliveries.sweep()
        self.pass_time()
        for call_id, journal in self.journals().items():
            if journal.state is CallState.PARKED:
                self.anybody.resume(call_id)
            is_stuck = journal.mailbox or journal.is_cancel_requested
            if journal.waiting_for == "signal go" and not journal.is_queued and not is_stuck:
                token = f"t{len(self.sent[call_id])}"
                assert self.anybody.signal(call_id, "go", f'"{token}"', token=token) is Told.TOLD
                self.sent[call_id].append(f'"{token}"')
        if self.with_look:
            self.look()
        for _ in range(2):
            self.read()
        while runs := self.live_runs():
            self._advance(self.rng.choice(runs))

    def journals(self) -> Mapping[str, Journal]:
        """Return every call as it is remembered."""
        found = {call_id: self.anybody.show(call_id) for call_id in self.programs}
        return {call_id: journal for call_id, journal in found.items() if journal is not None}

    def check(self) -> None:
        """Check what must be true at rest."""
        journals = self.journals()
        assert set(journals) == set(self.programs)
        for call_id, journal in journals.items():
            self._remember(journal)
            assert journal.outcome is not None
            assert journal.state is journal.outcome.state
            if call_id not in self.cancelled:
                assert journal.state is CallState.DONE
            self._check_steps(call_id, journal)
            self._check_signals(call_id, journal)
        counts = self.anybody.counts()
        assert counts == {kind: sum(one.state is kind for one in journals.values()) for kind in CallState}
        state = self.broker.state()
        assert (state.delayed, state.dead) == ({}, ())

    def _check_steps(self, call_id: str, journal: Journal) -> None:
        """Each operation up to the last recorded one was recorded, and all of them where the call is done."""
        program = self.programs[call_id]
        steps = journal.steps
        keys = [f"{operation.kind}-{place}" for place, operation in enumerate(program.operations, start=1)]
        over = [key in steps and steps[key].state in (StepState.DONE, StepState.FAILED) for key in keys]
        assert over == sorted(over, reverse=True)
        assert all(over) or journal.state is CallState.CANCELLED
        assert [place.key for place in journal.places] == keys[: len(journal.places)]
        assert (".on_success" in steps) == program.has_callback
        for key, operation in zip(keys, program.operations, strict=True):
            if operation.kind == "step" and key in steps and steps[key].state is StepState.DONE:
                assert steps[key].attempts == operation.fails + 1
                assert journal.value(key) is not None

    def _check_signals(self, call_id: str, journal: Journal) -> None:
        """Signals were taken in the order in which they were sent, each once; the others are still there."""
        waits = [place.key for place in journal.places if place.kind is Kind.SIGNAL]
        taken = [value for key in waits if (value := journal.value(key)) is not None]
        assert [*taken, *journal.mailbox.get("go", ())] == self.sent[call_id]


def run_schedule(broker: Harness, seed: int, *, actions: int = 80, with_look: bool = False) -> World:
    """Run one schedule to its end and check it."""
    rng = random.Random(seed)
    world = World(broker, rng, calls=rng.choice((1, 1, 2)), with_look=with_look)
    for call_id in world.programs:
        if rng.random() < 0.8:
            world.anybody.start(new_call(call_id))
    for _ in range(rng.randint(actions // 4, actions)):
        world.act()
    world.come_to_rest()
    world.check()
    return world
