"""Plays one fixture: real handlers, a real order book on SQLite, a real Redis, a real worker.

START READING at `replay_fixture`. The calling thread takes the steps, one after
the other; the worker runs beside it (`lives`). In the given order each step is
followed by rest; in a shuffled one the seed decides where the play pauses.
"""

import contextlib
import random
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from stagedoor.broker.connection import Link
from stagedoor.broker.scratch import DeadLetter, Leftovers, Scratch
from stagedoor.core.codec import Fields
from stagedoor.core.job import Job
from stagedoor.core.keys import Keys
from stagedoor.errors import StagedoorError
from stagedoor.orders import OrderBook
from stagedoor.replay.compare import Difference, Found, FoundLetter, FoundOrder, differences
from stagedoor.replay.fixture import (
    AddEntry,
    BookStep,
    ChangeOrder,
    Crash,
    Fixture,
    HookStep,
    Meanwhile,
    Refund,
    Reissue,
    Rest,
    Step,
    Trim,
)
from stagedoor.replay.lives import WORKER, Lives, Parts
from stagedoor.replay.shuffle import shuffled
from stagedoor.settings import Settings

LIMIT_S = 30.0
"""How long a replay waits for rest. Handlers that ask for a longer retry cannot be replayed."""
POLL_S = 0.005
SETTINGS = Settings(backoff_base_s=0.05, backoff_cap_s=0.2, block_ms=1000, read_ahead=0, grace_s=5.0)
"""The worker's, where not the defaults: retries come soon, nothing is read ahead that a crash would blame."""

PartsFor = Callable[[OrderBook], Parts]
"""Makes what the worker runs, for the order book of one replay."""


@attrs.frozen(kw_only=True)
class ReplayResult:
    """What became of one replay; *seed* None is the given order."""

    fixture: Fixture
    seed: int | None
    differences: tuple[Difference, ...]
    seconds: float
    crashes: int

    @property
    def is_as_expected(self) -> bool:
        """Whether everything ended as the fixture says."""
        return not self.differences

    @property
    def order(self) -> str:
        """In which order the steps were taken, in words."""
        return "as given" if self.seed is None else f"shuffled, seed {self.seed}"


def replay_fixture(
    fixture: Fixture, parts_for: PartsFor, *, redis_url: str, seed: int | None = None, limit_s: float = LIMIT_S
) -> ReplayResult:
    """Play a fixture once and compare what is left with what it expects.

    Args:
        fixture: the case.
        parts_for: the handlers and their contexts, for an order book.
        redis_url: a server; a namespace of its own is made and removed.
        seed: None takes the steps as they stand, a number shuffles them.
        limit_s: how long to wait for rest after a step, in seconds.

    Raises:
        BrokerUnavailable: Redis cannot be reached.
        ConfigurationError: Redis is too old.
        StagedoorError: the worker could not run.
    """
    began = time.monotonic()
    link = Link(redis_url, block_ms=SETTINGS.block_ms)
    keys = Keys(f"replay-{secrets.token_hex(8)}")
    try:
        link.check_server()
        with _book() as book:
            play = _Play(fixture, book, Scratch(link, keys), seed=seed, limit_s=limit_s)
            with Lives(link, keys, parts=parts_for(book), hooks=play, settings=SETTINGS) as lives:
                play.take_steps(lives)
                left = play.wait_for_rest(lives)
            found = play.found(left)
    finally:
        Scratch(link, keys).drop([WORKER])
        link.close()
    if lives.error is not None:
        raise StagedoorError(f"{fixture.name}: the worker failed: {lives.error!r}") from lives.error
    return ReplayResult(
        fixture=fixture,
        seed=seed,
        differences=(*differences(fixture.expected, found, in_given_order=seed is None), *play.unreached()),
        seconds=time.monotonic() - began,
        crashes=lives.deaths,
    )


@contextlib.contextmanager
def _book() -> Iterator[OrderBook]:
    with (
        tempfile.TemporaryDirectory(prefix="stagedoor-replay-") as folder,
        OrderBook.open(f"sqlite:///{folder}/orders.db", tickets_dir=Path(folder) / "tickets") as book,
    ):
        yield book


@attrs.define
class _Hook:
    """One step at one point of one entry's work, and how often it is still to be taken."""

    step: HookStep
    left: int


class _Entry:
    """An entry that was added: its line, and what is to happen while it is worked on."""

    def __init__(self, line: int, entry: AddEntry) -> None:
        self.line = line
        self.points = {
            name: [_Hook(step, step.times if isinstance(step, Crash) else 1) for step in steps]
            for name, steps in (("start", entry.at_start), ("render", entry.at_render), ("end", entry.at_end))
        }

    def unreached(self, *, with_crashes: bool) -> list[str]:
        """Return the points whose steps have not all been taken, with or without the crashes."""
        return [
            name
            for name, hooks in self.points.items()
            if any(hook.left for hook in hooks if with_crashes or not isinstance(hook.step, Crash))
        ]


class _Play:
    """The steps of one replay, and what they have left."""

    def __init__(
        self, fixture: Fixture, book: OrderBook, scratch: Scratch, *, seed: int | None, limit_s: float
    ) -> None:
        self._fixture = fixture
        self._book = book
        self._scratch = scratch
        self._limit_s = limit_s
        self._rng = None if seed is None else random.Random(seed)
        self._entries: dict[str, _Entry] = {}
        # A worker may have the entry before its id has come back: the hooks wait for this lock.
        self._adding = threading.Lock()

    # -- taking steps, in the caller's thread -------------------------------------

    def take_steps(self, lives: Lives) -> None:
        """Place the orders, and take every step."""
        self._book.place_many(self._fixture.orders)
        steps = list(self._fixture.steps)
        if self._rng is not None:
            steps = shuffled(steps, self._rng)
        for place, step in enumerate(steps):
            self._wait_for_hooks(steps[:place], step, lives)
            self._take(step, lives)
            self._pause(lives)

    def _take(self, step: Step, lives: Lives) -> None:
        match step.what:
            case AddEntry() as entry:
                self._add(step.line, entry)
            case Rest():
                self.wait_for_rest(lives)
            case change:
                self._change(change)

    def _add(self, line: int, entry: AddEntry) -> str:
        with self._adding:
            entry_id = self._scratch.add(entry.fields)
            self._entries[entry_id] = _Entry(line, entry)
        return entry_id

    def _change(self, step: BookStep) -> None:
        match step:
            case Refund(order_id):
                self._book.refund(order_id)
            case Reissue(order_id):
                self._book.reissue(order_id)
            case ChangeOrder(order_id, changes):
                self._book.change(order_id, *changes)

    def _pause(self, lives: Lives) -> None:
        """In the given order, wait for rest after each step; else let the seed decide."""
        chance = 0.0 if self._rng is None else self._rng.random()
        if chance < 1 / 4:
            self.wait_for_rest(lives)
        elif chance < 1 / 2:
            time.sleep(chance / 10)  # up to 50 ms: about as long as it takes to make a ticket

    def _wait_for_hooks(self, taken: Sequence[Step], step: Step, lives: Lives) -> None:
        """Wait until what must precede this step has happened, also where it happens in a hook."""
        lines = {
            earlier.line
            for earlier in taken
            if isinstance(earlier.what, AddEntry) and not earlier.changed.isdisjoint(step.concerned)
        }
        waited_for = [entry for entry in self._entries.values() if entry.line in lines]
        if waited_for:
            self._wait(
                lambda: not any(entry.unreached(with_crashes=False) for entry in waited_for) or self._is_at_rest(),
                lives,
            )

    # -- rest ---------------------------------------------------------------------------

    def wait_for_rest(self, lives: Lives) -> Leftovers:
        """Wait until nothing is left to do, at most for the limit; return what is left then."""
        self._wait(self._is_at_rest, lives)
        return self._scratch.leftovers()

    def _is_at_rest(self) -> bool:
        return is_at_rest(self._scratch.leftovers())

    def _wait(self, condition: Callable[[], bool], lives: Lives) -> None:
        deadline = time.monotonic() + self._limit_s
        while not condition() and time.monotonic() < deadline and lives.error is None:
            time.sleep(POLL_S)

    # -- hooks, in the worker's threads --------------------------------------------------

    def reached(self, point: str, job: Job) -> bool:
        """Take the steps of this point; return whether the worker is to die here."""
        with self._adding:
            entry = self._entries.get(job.origin) or self._entries.get(job.entry_id)
        if entry is None:
            return False
        for hook in entry.points[point]:
            if hook.left == 0:
                continue
            if isinstance(hook.step, Crash):
                hook.left -= 1
                return True
            self._take_in_hook(hook.step, job, entry.line)
            # Only now: who waits for this hook waits for what it does.
            hook.left -= 1
        return False

    def _take_in_hook(self, step: HookStep, job: Job, line: int) -> None:
        match step:
            case Meanwhile(fields):
                entry_id = self._add(line, AddEntry(fields=fields))
                deadline = time.monotonic() + self._limit_s
                while self._scratch.is_owed(entry_id) and time.monotonic() < deadline:
                    time.sleep(POLL_S)
            case Trim():
                self._scratch.delete_body(job.entry_id)
            case Crash():
                raise AssertionError("a crash is taken by the worker")
            case change:
                self._change(change)

    # -- what is left ------------------------------------------------------------------------

    def found(self, left: Leftovers) -> Found:
        """Return the state at rest."""
        return Found(
            orders={order_id: self._found_order(order_id) for order_id in self._fixture.expected.orders},
            dead=tuple(sorted(self._found_letter(letter) for letter in left.dead)),
            delayed=tuple(sorted(self._line_of(fields, "") for fields in left.delayed)),
            waiting=left.waiting,
            pending=left.pending,
            unknown_kinds=tuple(sorted({_kind(fields) for fields in left.delayed if _has_hops(fields)})),
        )

    def _found_order(self, order_id: int) -> FoundOrder:
        report = self._book.check_invariant([order_id])
        order = self._book.get(order_id)
        lost = {finding.position_id for finding in report.lost}
        return FoundOrder(
            status=order.status,
            valid=tuple(sorted(position.id for position in order.placed_positions if position.id not in lost)),
            void=report.tickets_void,
            wrong=tuple(finding.problem for finding in report.wrong),
        )

    def _found_letter(self, letter: DeadLetter) -> FoundLetter:
        return FoundLetter(line=self._line_of(letter.fields, letter.entry_id), reason=letter.reason, error=letter.error)

    def _line_of(self, fields: Fields, entry_id: str) -> int:
        """Return the line whose entry this was, 0 for none; an entry that went on keeps its first id as its origin."""
        origins = [value.decode("ascii", "replace") for name, value in fields if name == b"origin"]
        known = (self._entries[candidate] for candidate in (*origins, entry_id) if candidate in self._entries)
        return next((entry.line for entry in known), 0)

    def unreached(self) -> Iterator[Difference]:
        """Yield the hooks that were never reached: the play was another one than was written.

        In a shuffled order an entry may be poison before its time, for it is blamed for the crashes of others too.
        """
        for entry in self._entries.values():
            for point in entry.unreached(with_crashes=self._rng is None):
                yield Difference(f"line {entry.line}: at_{point}", "to be reached", "that it was not")


def is_at_rest(left: Leftovers) -> bool:
    """Return whether nothing is left to do but what waits for a worker that knows its kind."""
    return left.waiting == 0 and left.pending == 0 and all(_has_hops(fields) for fields in left.delayed)


def _has_hops(fields: Fields) -> bool:
    return any(name == b"hops" for name, _value in fields)


def _kind(fields: Fields) -> str:
    return next((value.decode("utf-8", "replace") for name, value in fields if name == b"kind"), "")


__all__: list[Any] = ["LIMIT_S", "PartsFor", "ReplayResult", "is_at_rest", "replay_fixture"]
