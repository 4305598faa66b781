"""What stands in for the worker: a job, a context with a fake renderer, and ways to stop between steps."""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from stagedoor.handlers.refund_order import refund_order
from stagedoor.handlers.render_tickets import render_tickets
from stagedoor.order import Order, Position
from stagedoor.orders import NewTicket, OrderBook, Ticket, TicketStore
from stagedoor.orders.check import judge_order
from stagedoor.orders.tickets import IssueState
from stagedoor.rendering.api import Rendered
from tests.orders.support import content_of

HANDLERS: dict[str, Callable[[Any, Any], Any]] = {"render_tickets": render_tickets, "refund_order": refund_order}

type Pause = Callable[[str], None]
"""Called with the name of the step that comes next; returns when it may be taken."""


@attrs.frozen(kw_only=True)
class FakeJob:
    """One delivery."""

    kind: str
    order_id: int | None
    outbox_id: int | None = 1
    request_id: str = ""
    trace: str = ""
    attempt: int = 1
    entry_id: str = "1-1"
    queued_at: float = 0.0


@attrs.define
class FakeLog:
    """Keeps the events."""

    events: list[tuple[str, dict[str, Any]]] = attrs.Factory(list)

    def debug(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))


@attrs.define
class FakeContext:
    """A handler context whose renderer writes the order's values down.

    *on_check* and *on_render* are called where the handler asks or renders; the
    key depends on what is drawn and on *build*, as that of a real renderer does.
    """

    orders: OrderBook
    on_check: Callable[[], None] = lambda: None
    on_render: Callable[[Order], None] = lambda order: None
    build: str = "1"
    notes: tuple[str, ...] = ()
    ticket_renderer: str = "ticket-pdf"
    log: FakeLog = attrs.Factory(FakeLog)
    rendered: list[tuple[int, int]] = attrs.Factory(list)

    def check(self) -> None:
        self.on_check()

    def content_key(self, name: str, order: Order, position: Position | None = None) -> tuple[str, str, str]:
        assert position is not None
        key = hashlib.sha256(content_of(order, position) + self.build.encode()).hexdigest()
        return key, ".pdf", "application/pdf"

    def render(self, name: str, order: Order, position: Position | None = None) -> Rendered:
        assert position is not None
        self.on_render(order)
        self.rendered.append((order.version, position.id))
        key, suffix, content_type = self.content_key(name, order, position)
        content = content_of(order, position)
        return Rendered(content=content, content_type=content_type, suffix=suffix, key=key, notes=self.notes)


def run(book: OrderBook, kind: str, order_id: int) -> FakeContext:
    """Deliver one job, from beginning to end."""
    context = FakeContext(book)
    HANDLERS[kind](FakeJob(kind=kind, order_id=order_id), context)
    return context


def broken(book: OrderBook, order_id: int) -> list[str]:
    """Return how an order at rest breaks the invariant, its files and their content included."""
    order, tickets = book.get(order_id), book.tickets(order_id)
    lost, wrong = judge_order(order, tickets, is_present=book.store.is_present)
    problems = [str(finding) for finding in lost + wrong]
    valid = {ticket.path: ticket for ticket in tickets if ticket.state == "valid"}
    for path, ticket in valid.items():
        if book.store.is_present(path) and book.store.read(path) != content_of(
            order, order.position(ticket.position_id)
        ):
            problems.append(f"content of {path}")
    stray = {name.path for name in book.store._names(order_id)} - valid.keys()
    return problems + [f"stray {path}" for path in sorted(stray)]


# -- stopping between steps ---------------------------------------------------


class SteppedStore(TicketStore):
    """A store that stops before each write, each carrying over and each removal."""

    def __init__(self, plain: TicketStore, pause: Pause) -> None:
        self.__dict__.update(plain.__dict__)
        self._pause = pause

    def write(self, path: str, content: bytes) -> None:
        self._pause("write")
        super().write(path, content)

    def carry(self, path: str, to: str) -> bool:
        self._pause("carry")
        return super().carry(path, to)

    def remove(self, path: str) -> bool:
        self._pause("remove")
        return super().remove(path)


class SteppedBook(OrderBook):
    """An order book that stops before each transaction of a handler."""

    def __init__(self, plain: OrderBook, pause: Pause) -> None:
        self.__dict__.update(plain.__dict__)
        self.store = SteppedStore(plain.store, pause)
        self._pause = pause

    def get(self, order_id: int) -> Order:
        self._pause("get")
        return super().get(order_id)

    def issue_state(self, order: Order) -> IssueState:
        self._pause("look")
        return super().issue_state(order)

    def commit_tickets(self, order: Order, files: Sequence[NewTicket], *, replace: bool = False) -> bool:
        self._pause("commit")
        return super().commit_tickets(order, files, replace=replace)

    def void_refunded(self, order_id: int) -> tuple[Ticket, ...]:
        self._pause("void")
        return super().void_refunded(order_id)


class Crash(BaseException):
    """What ends a delivery where it stands."""


type Script = Callable[[Pause], None]
"""What an actor does; it calls its argument before each step, also before the first."""


class Actor:
    """Runs a script in a thread of its own, one step at a time."""

    def __init__(self, script: Script) -> None:
        self.at: str | None = None
        self.error: BaseException | None = None
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, args=(script,), daemon=True)
        self._thread.start()
        self._stopped.acquire()

    def step(self) -> None:
        """Take the step that it stands before, and stop before the next one."""
        self._go.release()
        self._stopped.acquire()
        if self.error is not None:
            raise self.error

    def _pause(self, name: str) -> None:
        self.at = name
        self._stopped.release()
        self._go.acquire()

    def _main(self, script: Script) -> None:
        try:
            script(self._pause)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            self.error = error
        self.at = None
        self._stopped.release()


def delivery(book: OrderBook, kind: str, order_id: int, *, build: str = "1") -> Script:
    """Return an actor's script that handles one job."""

    def script(pause: Pause) -> None:
        context = FakeContext(SteppedBook(book, pause), build=build)
        HANDLERS[kind](FakeJob(kind=kind, order_id=order_id), context)

    return script


# A step's name says what comes after it as well, up to the next stop: "commit", "void" and
# "get" may list the folder afterwards, "look" looks for files and valid tickets. These make no
# difference to each other, in whichever sequence they come: two reads, two writes of one content
# or of another name for it, two removals, and the shop's SQL beside the files.
_INDEPENDENT = frozenset(
    frozenset(pair)
    for pair in (
        ("get",),
        ("look",),
        ("get", "look"),
        ("write",),
        ("remove",),
        ("act", "write"),
        ("act", "remove"),
        ("carry",),
        ("carry", "write"),
        ("act", "carry"),
    )
)


def schedules(start: Callable[[], list[Actor]], finish: Callable[[list[str]], None]) -> int:
    """Run every interleaving of the actors' steps, and return how many there were.

    Of schedules that differ only in the sequence of neighbouring steps that do
    not concern each other, one is run: that with the lower actor first.

    *start* makes the actors anew for each; *finish* looks at where a schedule ended.
    """
    count = 0
    prefix: list[int] | None = []
    while prefix is not None:
        taken, choices, names = _run_schedule(start(), prefix)
        count += 1
        finish(names)
        prefix = _next_prefix(taken, choices)
    return count


def _run_schedule(actors: list[Actor], prefix: Sequence[int]) -> tuple[list[int], list[list[int]], list[str]]:
    taken: list[int] = []
    choices: list[list[int]] = []
    names: list[str] = []
    while alive := _eligible(actors, taken, names):
        choice = prefix[len(taken)] if len(taken) < len(prefix) else alive[0]
        taken.append(choice)
        choices.append(alive)
        names.append(f"{choice}:{actors[choice].at}")
        actors[choice].step()
    return taken, choices, names


def _eligible(actors: list[Actor], taken: Sequence[int], names: Sequence[str]) -> list[int]:
    """Return the actors whose next step would not be the mirror image of another schedule's."""
    alive = [index for index, actor in enumerate(actors) if actor.at is not None]
    if not taken:
        return alive
    last = names[-1].partition(":")[2]
    return [
        index for index in alive if index >= taken[-1] or frozenset({last, str(actors[index].at)}) not in _INDEPENDENT
    ] or _abandon(actors)


def _abandon(actors: list[Actor]) -> list[int]:
    """Let the rest run anyhow: every step left mirrors one of a schedule that is run to its end elsewhere."""
    return [index for index, actor in enumerate(actors) if actor.at is not None][:1]


def _next_prefix(taken: Sequence[int], choices: Sequence[Sequence[int]]) -> list[int] | None:
    for index in reversed(range(len(taken))):
        later = [choice for choice in choices[index] if choice > taken[index]]
        if later:
            return [*taken[:index], later[0]]
    return None


def crashing(script: Script, *, after: int) -> Script:
    """Return a script that takes so many steps of another one and crashes; then the job is delivered again."""

    def crashes(pause: Pause) -> None:
        left = after

        def count(name: str) -> None:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1
            pause(name)

        with contextlib.suppress(Crash):
            script(count)
        script(pause)

    return crashes
