"""A chaos run from beginning to end. START READING HERE.

run_chaos
1. opens the house: a private Redis that writes down what it does, a proxy for each
process, a SQLite order book, a relay, some workers
2. sells, changes and refunds in bursts, half by handlers and half by a flow, and starts calls of
another flow that it sends signals, while the injector lets things fail
3. undoes every fault, and waits until nothing is left in outbox, stream and delayed jobs and
every call has ended
4. stops the processes and checks every order, every file and every call
"""

import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import attrs

from stagedoor.broker.calls import Calls
from stagedoor.broker.connection import Link
from stagedoor.broker.private_server import PrivateRedis
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.broker.scratch import Leftovers, Scratch
from stagedoor.chaos.caller import Caller, make_acts
from stagedoor.chaos.faults import Fault, make_plan
from stagedoor.chaos.injector import Injector, Stage
from stagedoor.chaos.proxy import Proxy
from stagedoor.chaos.report import Report
from stagedoor.chaos.skewed import write_offset
from stagedoor.chaos.trial import TRIAL, Effects
from stagedoor.core.call import CallState
from stagedoor.core.journal import Journal
from stagedoor.core.keys import Keys
from stagedoor.errors import BrokerError, StagedoorError
from stagedoor.orders import OrderBook
from stagedoor.rehearsal import plan as shop_plan
from stagedoor.rehearsal.calls import CallsChecked, are_over, check_calls, with_calls
from stagedoor.rehearsal.check import check_everything
from stagedoor.rehearsal.crew import NAMESPACE, RELAY, Crew, House
from stagedoor.rehearsal.evening import Evening
from stagedoor.rehearsal.programme import make_orders
from stagedoor.rehearsal.rest import STALL_LIMIT_S, Moved, interrupt_on_sigterm, is_empty, with_unrest
from stagedoor.rehearsal.watch import FULFIL, RENDER, Watch
from stagedoor.settings import Settings

LOOK_EVERY_S = 0.015
START_LIMIT_S = 120.0
QUIET_S = 3.0
"""How long nothing must be left before it is believed: the relay looks for losses once a second."""
REST_LOOK_S = 0.2
TELL_EVERY_S = 5.0
REFUND_SHARE = 0.2
BURST_EVERY_S = 4.0
"""Orders come in bursts, so that workers hold several at a time and are idle in between."""
UNCOUNTED = frozenset({"delivery_started", "delivery_settled", "rows_published"})

CHAOS_SETTINGS: Mapping[str, str] = {"max_crashes": "1000", "plugins": "stagedoor.chaos.trial"}
"""By the fifth kill an entry would be poison, and rightly so; but here the killing is not its fault."""


class ChaosFailed(StagedoorError):
    """The run could not be made; says why."""


@attrs.frozen(kw_only=True)
class Options:
    """What is asked of a run; *settings* are further ones of relay and workers, *pace* lets more fail in less time."""

    seconds: float
    seed: int
    faults: Sequence[Fault]
    folder: Path
    workers: int = 3
    slots: int = 4
    orders_per_s: float = 6.0
    calls_per_s: float = 1.0
    pace: float = 1.0
    settings: Mapping[str, str] = attrs.Factory(dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names."""
        return tuple(f"worker-{number}" for number in range(1, self.workers + 1))


def run_chaos(options: Options, tell: Callable[[str], None]) -> Report:
    """Make a run in ``options.folder``, which is there and empty, and return what it has shown.

    Raises:
        ConfigurationError: something that it needs is not installed.
        ChaosFailed: the workers did not start.
        KeyboardInterrupt: also for SIGTERM; every process that was started has ended.
    """
    house = House(folder=options.folder)
    house.logs_dir.mkdir()
    with interrupt_on_sigterm(), contextlib.ExitStack() as stack:
        place = _Place.open(options, house, stack)
        run = _Run(place, crew=stack.enter_context(place.make_crew()), tell=tell)
        with run.evening:
            run.open_house()
            run.fail()
            run.come_to_rest()
        run.crew.stop()
        return run.finish()


@attrs.frozen(kw_only=True)
class _Place:
    """Where a run takes place; *by_flow* is the same order book, whose tickets the flow makes."""

    options: Options
    house: House
    book: OrderBook
    by_flow: OrderBook
    redis: PrivateRedis
    link: Link
    proxies: Mapping[str, Proxy]
    clocks: Mapping[str, Path]

    @classmethod
    def open(cls, options: Options, house: House, stack: contextlib.ExitStack) -> Self:
        """Open the book, and start Redis and what stands before it; all is closed with *stack*."""
        names = (RELAY, *options.names)
        book, by_flow = (
            stack.enter_context(OrderBook.open(house.orders_url, tickets_dir=house.tickets_dir, issued_by=kind))
            for kind in (RENDER, FULFIL)
        )
        redis = stack.enter_context(PrivateRedis(house.log_of_redis, is_durable=True))
        rng = random.Random(f"proxies {options.seed}")
        return cls(
            options=options,
            house=house,
            book=book,
            by_flow=by_flow,
            redis=redis,
            link=stack.enter_context(contextlib.closing(Link(redis.url))),
            proxies={name: stack.enter_context(Proxy(redis.socket, rng=rng)) for name in names},
            clocks=dict(_clocks(house, names)) if Fault.CLOCK in options.faults else {},
        )

    def make_evening(self) -> Evening:
        """Return the shop, which sells half by the handlers and half by the flow."""
        options = self.options
        orders = list(make_orders(round(options.seconds * options.orders_per_s) + 1, options.seed))
        deeds = shop_plan.make_plan(orders, refund_share=REFUND_SHARE, seed=options.seed)
        return Evening(self.book, orders, deeds, window=len(orders), books=[self.by_flow])

    def make_crew(self) -> Crew:
        """Return the processes."""
        return Crew(
            self.house,
            lambda name: self.proxies[name].url,
            slots=self.options.slots,
            settings={**CHAOS_SETTINGS, **self.options.settings},
            workers=self.options.names,
            program_of=lambda name: _program(self.clocks.get(name)),
        )

    def make_caller(self, calls: Calls) -> Caller:
        """Return who starts calls of the trial flow."""
        options = self.options
        acts = make_acts(options.seed, seconds=options.seconds, per_s=options.calls_per_s)
        return Caller(calls, acts, effects=self.effects)

    def make_injector(self, stage: Stage) -> Injector:
        """Return what lets things fail."""
        options = self.options
        plan = make_plan(options.faults, seconds=options.seconds, seed=options.seed, pace=options.pace)
        return Injector(stage, plan, seed=options.seed)

    @property
    def effects(self) -> Path:
        """The file in which the steps of the trial flow leave their lines."""
        return self.house.log("effects")


class _Run:
    """The parts of one run and how far it is."""

    def __init__(self, place: _Place, *, crew: Crew, tell: Callable[[str], None]) -> None:
        options, keys = place.options, Keys(NAMESPACE)
        self.crew = crew
        self.evening = place.make_evening()
        self._place = place
        self._options = options
        self._book = place.book
        self._tell = tell
        self._told_at = 0.0
        self._scratch = Scratch(place.link, keys)
        self._calls = RedisCalls(place.link, keys)
        self._caller = place.make_caller(self._calls)
        # Their own clocks may be wrong: what counts is when we read it.
        self._watch = Watch({name: place.house.log(name) for name in (RELAY, *options.names)}, clock=time.time)
        self._injector = place.make_injector(
            Stage(
                crew=crew,
                redis=place.redis,
                scratch=self._scratch,
                watch=self._watch,
                proxies=place.proxies,
                clocks=place.clocks,
                folder=options.folder,
                journal=place.house.log("faults"),
                ttl_s=float(options.settings.get("liveness_ttl_s", Settings().liveness_ttl_s)),
                look=self._look,
            )
        )
        self._losses = 0
        self._counts: Mapping[CallState, int] = {}
        self._left: Leftovers | None = None
        self._dead = 0
        self._is_stuck = False
        self._seconds = 0.0

    # -- one phase after the other ------------------------------------------------

    def open_house(self) -> None:
        """Wait until all workers read."""
        deadline = time.monotonic() + START_LIMIT_S
        while not all(self._watch.workers[name].is_reading for name in self._options.names):
            for name, code in self.crew.lost().items():
                raise ChaosFailed(f"{name} has ended with exit code {code}: {self._watch.last_words(name)}")
            if time.monotonic() > deadline:
                raise ChaosFailed(
                    f"the workers did not start within {START_LIMIT_S:.0f} s; see {self._place.house.logs_dir}"
                )
            self._look()
            time.sleep(LOOK_EVERY_S)

    def fail(self) -> None:
        """Sell while things fail, until the time is up."""
        began = time.monotonic()
        self._injector.begin()
        while (passed_s := time.monotonic() - began) < self._options.seconds:
            bursts = int(passed_s / BURST_EVERY_S) + 1
            self.evening.allowance = bursts * BURST_EVERY_S * self._options.orders_per_s
            self._turn(passed_s)
            self._tell_progress(f"{passed_s:.0f} of {self._options.seconds:.0f} s")
            time.sleep(LOOK_EVERY_S)
        self.evening.close()
        self._caller.close()
        self._seconds = self._options.seconds

    def come_to_rest(self) -> None:
        """Undo every fault, and wait until nothing is left; gives up when nothing has moved for a minute."""
        self._injector.heal()
        began, moved, empty_since = time.monotonic(), Moved(), None
        while empty_since is None or time.monotonic() - empty_since < QUIET_S:
            self._turn(float("inf"))
            empty_since = (empty_since or time.monotonic()) if self._is_at_rest() else None
            if not moved.lately(self._how_far(), STALL_LIMIT_S):
                self._is_stuck = True
                break
            self._tell_progress("coming to rest")
            time.sleep(REST_LOOK_S)
        self._injector.recoveries.give_up()
        self._seconds += time.monotonic() - began

    def finish(self) -> Report:
        """Check everything and return the report."""
        self._tell("checking every order and every file")
        checked = check_everything(self._book, self._place.house.tickets_dir, progress=lambda _done, _total: None)
        calls = self._check_calls()
        checked = with_calls(checked, calls)
        if self._is_stuck:
            checked = with_unrest(checked, self._left)
        recoveries, told = self._injector.recoveries, self._watch.told
        starts = [started for started in self._watch.starts if started.call_id is None]
        return Report(
            seed=self._options.seed,
            seconds=self._seconds,
            orders=self.evening.placed,
            rows=self.evening.rows_written,
            checked=checked,
            calls=calls,
            rows_by_flow=self.evening.rows[self._place.by_flow],
            dead=self._dead,
            duplicate_runs=max(0, len(starts) - self.evening.rows_written),
            fenced=told["tenure_lost"],
            faults=self._injector.done,
            exits=self._injector.exits,
            told={name: count for name, count in sorted(told.items()) if name not in UNCOUNTED},
            recoveries=recoveries.seconds,
            undisturbed=recoveries.undisturbed,
            held_at_kills=recoveries.held,
            unmeasured=recoveries.unmeasured,
            gil=any(seen.has_gil for seen in self._watch.workers.values()),
            workers=self._options.workers,
            slots=self._options.slots,
        )

    def _check_calls(self) -> CallsChecked:
        caller, effects = self._caller, Effects.read(self._place.effects)

        def judge(journal: Journal) -> str | None:
            return effects.judge(
                journal,
                is_exempt=journal.call_id in caller.exempt,
                may_be_cancelled=journal.call_id in caller.cancelled,
            )

        expected = {FULFIL: self.evening.rows[self._place.by_flow], TRIAL: caller.started}
        found = check_calls(self._calls, expected=expected, judges={TRIAL: judge})
        return attrs.evolve(found, problems=(*caller.problems, *found.problems))

    # -- the loop -------------------------------------------------------------------

    def _look(self) -> None:
        self.evening.take_news(self._watch.look())

    def _turn(self, now_s: float) -> None:
        self._look()
        self.evening.work()
        self._injector.tick()
        if self._injector.losses > self._losses:
            self._losses = self._injector.losses
            self._caller.begin_again()
        if not self._injector.is_redis_down:
            self._caller.work(now_s)

    def _is_at_rest(self) -> bool:
        """Whether nothing is left anywhere; remembers what was left when it is not."""
        self._left = None
        try:
            self._left = self._scratch.leftovers()
            self._counts = self._calls.counts()
        except BrokerError:
            return False
        self._dead = len(self._left.dead)
        if not is_empty(self._left) or self._book.outbox.backlog().waiting:
            return False
        if not (self._caller.is_over and are_over(self._counts)):
            return False
        if not self.evening.is_over:
            self.evening.hurry()
            return False
        return all(self.crew.is_live(name) for name in (RELAY, *self._options.names))

    def _how_far(self) -> tuple[int, ...]:
        evening = self.evening
        ended = sum(count for state, count in self._counts.items() if state.has_ended)
        return (evening.placed, evening.rows_written, evening.issued, len(self._watch.starts), ended)

    def _tell_progress(self, when: str) -> None:
        if time.monotonic() - self._told_at < TELL_EVERY_S:
            return
        self._told_at = time.monotonic()
        done = self._injector.done
        faults = ", ".join(f"{done[fault.value]} {fault.value}" for fault in self._options.faults)
        evening, calls = self.evening, self._caller.started
        self._tell(f"{when}: {evening.placed} orders placed, {evening.issued} issued, {calls} calls started; {faults}")


def _clocks(house: House, names: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for name in names:
        clock = house.folder / f"clock-{name}"
        write_offset(clock, 0.0)
        yield name, clock


def _program(clock: Path | None) -> Sequence[str]:
    """Return the words that start Stagedoor, with a clock that can be moved where there is one."""
    if clock is None:
        return (sys.executable, "-m", "stagedoor")
    return (sys.executable, "-m", "stagedoor.chaos.skewed", str(clock))
