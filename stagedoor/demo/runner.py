"""The demo from beginning to end. START READING HERE.

    run_demo
     1. opens the house: private Redis, SQLite order book, a relay, two workers
     2. sells, changes and refunds; kills one worker in mid-work when asked to
     3. waits until nothing is left in outbox, stream and delayed jobs
     4. stops the processes and checks every order and every file

One loop in one thread looks at the logs and gives the shop its work; what takes
time happens in the processes and in the shop's threads.
"""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import attrs

from stagedoor.broker.connection import Link
from stagedoor.broker.private_server import PrivateRedis
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.broker.scratch import Leftovers, Scratch
from stagedoor.core.keys import Keys
from stagedoor.demo.kill import KILL_FROM_SHARE, Killer
from stagedoor.demo.report import Ending, Report
from stagedoor.demo.show import Screen, View, WorkerView
from stagedoor.errors import ConfigurationError, StagedoorError
from stagedoor.orders import OrderBook
from stagedoor.rehearsal.calls import are_over, check_calls, with_calls
from stagedoor.rehearsal.check import check_everything
from stagedoor.rehearsal.crew import NAMESPACE, WORKERS, Crew, House
from stagedoor.rehearsal.evening import Evening
from stagedoor.rehearsal.plan import make_plan
from stagedoor.rehearsal.programme import make_orders
from stagedoor.rehearsal.rest import STALL_LIMIT_S, Moved, interrupt_on_sigterm, is_empty, with_unrest
from stagedoor.rehearsal.watch import FULFIL, RENDER, Watch

LOOK_EVERY_S = 0.015
"""Short against the tens of ms that a ticket takes: what is to happen while it is drawn must not come late."""
COUNT_EVERY_S = 0.25
START_LIMIT_S = 120.0
ORDERS_PER_SLOT = 4
LAST_LINES_S = 1.0


class DemoFailed(StagedoorError):
    """A process of the demo has ended by itself; says which, and what it said last."""


@attrs.frozen(kw_only=True)
class Options:
    """What is asked of a demo.

    *flow* has the orders fulfilled by the flow instead of the handler; *settings* are further ones
    of the workers, by name.
    """

    orders: int
    refund_share: float
    kill: bool
    seed: int
    slots: int
    folder: Path
    flow: bool = False
    settings: Mapping[str, str] = attrs.Factory(dict)


def run_demo(options: Options, screen: Screen) -> tuple[Report, Ending]:
    """Run a demo in ``options.folder``, which is there and empty, and return what it has shown.

    Raises:
        ConfigurationError: something that it needs is not installed.
        DemoFailed: a process has ended by itself.
        KeyboardInterrupt: also for SIGTERM; every process that was started has ended.
    """
    house = House(folder=options.folder)
    house.logs_dir.mkdir()
    with interrupt_on_sigterm(), contextlib.ExitStack() as stack:
        book = stack.enter_context(
            OrderBook.open(
                house.orders_url, tickets_dir=house.tickets_dir, issued_by=FULFIL if options.flow else RENDER
            )
        )
        stack.enter_context(screen)
        redis = stack.enter_context(PrivateRedis(house.log_of_redis))
        crew = stack.enter_context(Crew(house, redis.url, slots=options.slots, settings=options.settings))
        link = stack.enter_context(contextlib.closing(Link(redis.url)))
        demo = _Demo(options, house, book, crew=crew, link=link, screen=screen)
        with demo.evening:
            demo.open_house()
            demo.sell()
        crew.stop()
        return demo.finish()


class _Demo:
    """The parts of one demo and how far it is."""

    def __init__(
        self, options: Options, house: House, book: OrderBook, *, crew: Crew, link: Link, screen: Screen
    ) -> None:
        orders = list(make_orders(options.orders, options.seed))
        plan = make_plan(orders, refund_share=options.refund_share, seed=options.seed)
        self._options = options
        self._house = house
        self._book = book
        self._crew = crew
        self._scratch = Scratch(link, Keys(NAMESPACE))
        self._calls = RedisCalls(link, Keys(NAMESPACE))
        self._screen = screen
        self._watch = Watch({name: house.log(name) for name in WORKERS})
        self._killer = Killer(crew, self._scratch, self._watch, victim=WORKERS[-1])
        self._counts = _Counts()
        self._began = 0.0
        self._seconds = 0.0
        self._left: Leftovers | None = None
        self.evening = Evening(book, orders, plan, window=ORDERS_PER_SLOT * options.slots * len(WORKERS))

    # -- one phase after the other ------------------------------------------------

    def open_house(self) -> None:
        """Wait until both workers read."""
        deadline = time.monotonic() + START_LIMIT_S
        while not all(seen.is_reading for seen in self._watch.workers.values()):
            self._check_crew()
            if time.monotonic() > deadline:
                raise DemoFailed(f"the workers did not start within {START_LIMIT_S:.0f} s; see {self._house.logs_dir}")
            self._watch.look()
            self._show("Opening the house")
            time.sleep(LOOK_EVERY_S)

    def sell(self) -> None:
        """Sell, change, refund, and wait for rest; gives up when nothing has moved for a minute."""
        self._began = time.monotonic()
        moved = Moved()
        while not self._is_at_rest():
            self._look_once()
            if not moved.lately(self._how_far(), STALL_LIMIT_S):
                break
            time.sleep(LOOK_EVERY_S)
        self._seconds = time.monotonic() - self._began
        self._read_last_lines()

    def finish(self) -> tuple[Report, Ending]:
        """Check everything and return the report."""
        checked = check_everything(
            self._book,
            self._house.tickets_dir,
            progress=lambda done, total: self._show("Checking every ticket", step=f"{done} of {total} files opened"),
        )
        if self._left is not None:
            checked = with_unrest(checked, self._left)
        calls = None
        if self._options.flow:
            calls = check_calls(self._calls, expected={FULFIL: self.evening.rows[self._book]})
            checked = with_calls(checked, calls)
        report = Report(
            orders=self.evening.placed,
            checked=checked,
            calls=calls,
            duplicate_runs=self._watch.duplicate_runs,
            recovery_s=self._killer.recovery_s(),
            seconds=self._seconds,
            gil=any(seen.has_gil for seen in self._watch.workers.values()),
            slots=self._options.slots,
        )
        return report, self._ending()

    # -- the loop -------------------------------------------------------------------

    def _look_once(self) -> None:
        self._check_crew()
        self.evening.take_news(self._watch.look())
        self.evening.work()
        if self._options.kill and self.evening.placed >= self.evening.orders * KILL_FROM_SHARE:
            self._killer.try_once()
        self._counts.refresh(self._book)
        self._show("On sale" if self.evening.placed < self.evening.orders else "Coming to rest")

    def _is_at_rest(self) -> bool:
        """Whether nothing is left anywhere; remembers what was left when it is not."""
        if not self.evening.is_over and self.evening.placed < self.evening.orders:
            return False
        self._left = self._scratch.leftovers()
        if not is_empty(self._left) or self._book.outbox.backlog().waiting or not are_over(self._calls.counts()):
            return False
        if not self.evening.is_over:
            self.evening.hurry()
            return False
        self._left = None
        return True

    def _how_far(self) -> tuple[int, ...]:
        evening = self.evening
        return (evening.placed, evening.rows_written, evening.issued, len(self._watch.starts))

    def _read_last_lines(self) -> None:
        """Wait until the logs tell of everything that has ended: they are written a moment later."""
        deadline = time.monotonic() + LAST_LINES_S
        while time.monotonic() < deadline:
            self.evening.take_news(self._watch.look())
            live = self._crew.live_workers
            if not any(self._watch.workers[name].running for name in live):
                break
            time.sleep(LOOK_EVERY_S)
        self._counts.refresh(self._book, at_once=True)
        self._show("At rest")

    def _check_crew(self) -> None:
        for name, code in self._crew.lost().items():
            last = self._house.log(name).read_text("utf-8", "replace").strip().splitlines()[-1:]
            said = last[0] if last else "it said nothing"
            if code == 2:  # noqa: PLR2004 - the exit code of a configuration that will not do
                raise ConfigurationError(said.removeprefix("stagedoor: "))
            raise DemoFailed(f"{name} has ended with exit code {code}: {said}; its log is {self._house.log(name)}")

    # -- the screen -------------------------------------------------------------------

    def _note(self) -> str:
        killed = self._killer.killed
        if killed is None:
            return ""
        said = f"{killed.worker} was killed while it held {len(killed.held)} entries"
        recovery_s = self._killer.recovery_s()
        if recovery_s is None:
            return f"{said}; nobody has them yet"
        return f"{said}; the last of them ran elsewhere after {recovery_s:.1f} s"

    def _show(self, phase: str, *, step: str = "") -> None:
        seconds = self._seconds or (time.monotonic() - self._began if self._began else 0.0)
        killed = self._killer.killed
        workers = [
            WorkerView(
                name=seen.name,
                slots=seen.slots,
                running=len(seen.running),
                starts=seen.starts,
                is_killed=killed is not None and killed.worker == seen.name,
            )
            for seen in self._watch.workers.values()
        ]
        evening, counts = self.evening, self._counts
        self._screen.show(
            View(
                phase=phase,
                orders=evening.orders,
                placed=evening.placed,
                rows_written=evening.rows_written,
                rows_published=max(0, evening.rows_written - counts.waiting),
                issued=evening.issued,
                to_refund=evening.to_refund,
                refunded=evening.refunded,
                tickets=counts.tickets,
                tickets_per_second=counts.tickets / seconds if seconds else 0.0,
                workers=workers,
                step=step,
                note=self._note(),
            )
        )

    def _ending(self) -> Ending:
        killed = self._killer.killed
        example_id, example, example_of = self._example()
        return Ending(
            folder=self._house.folder,
            tickets_dir=self._house.tickets_dir,
            logs_dir=self._house.logs_dir,
            orders_url=self._house.orders_url,
            example=example,
            example_of=example_of,
            example_id=example_id,
            workers=len(WORKERS),
            killed=None if killed is None else killed.worker,
            killed_held=0 if killed is None else len(killed.held),
            killed_running=0 if killed is None else killed.slots_in_use,
        )

    def _example(self) -> tuple[int | None, Path | None, str]:
        """Return an order with a valid ticket, its file, and what it shows: the first one there is."""
        for order_id in range(1, self.evening.placed + 1):
            for ticket in self._book.tickets(order_id):
                if ticket.state == "valid":
                    order = self._book.get(order_id)
                    shown = f"{order.position(ticket.position_id).holder}, {order.event.name}, {order.event.venue}"
                    return order_id, self._house.tickets_dir / ticket.path, shown
        return None, None, ""


@attrs.define
class _Counts:
    """What the order book says, asked a few times a second."""

    tickets: int = 0
    waiting: int = 0
    asked_at: float = 0.0

    def refresh(self, book: OrderBook, *, at_once: bool = False) -> None:
        """Ask again when the last answer is old."""
        now = time.monotonic()
        if now - self.asked_at < COUNT_EVERY_S and not at_once:
            return
        self.asked_at = now
        summary = book.summary()
        self.tickets = summary.tickets_valid + summary.tickets_void
        self.waiting = book.outbox.backlog().waiting
