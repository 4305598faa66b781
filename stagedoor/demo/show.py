"""The screen of a demo: bars and slots on a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

import attrs
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stagedoor.demo.report import Ending, Report, places_of, rows_of

LINE_EVERY_S = 2.0
FRAMES_PER_S = 8
BAR = 36
WORDS = 26
MOST_PROBLEMS = 20


@attrs.frozen(kw_only=True)
class WorkerView:
    """One worker on the screen; *slots* 0 is one that does not read yet."""

    name: str
    slots: int
    running: int
    starts: int
    is_killed: bool = False


@attrs.frozen(kw_only=True)
class View:
    """All that the screen shows at one moment.

    *step* says how far a phase without bars is, *note* what has happened.
    """

    phase: str
    orders: int
    placed: int
    rows_written: int
    rows_published: int
    issued: int
    to_refund: int
    refunded: int
    tickets: int
    tickets_per_second: float
    workers: Sequence[WorkerView]
    step: str = ""
    note: str = ""


class Screen(Protocol):
    """Where a demo is shown; a context manager."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """End, and leave the last picture."""
        ...

    def show(self, view: View) -> None:
        """Show this; may skip it when the last one is fresh."""
        ...


def make_screen(console: Console) -> Screen:
    """Return the screen for this console."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


class LiveScreen:
    """Bars that move, on a terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=FRAMES_PER_S, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._live.stop()

    def show(self, view: View) -> None:
        """Show this at the next frame."""
        self._live.update(picture_of(view))


class PlainScreen:
    """A line every two seconds, for a file or a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_at = float("-inf")
        self._last_told = ("", "")
        self._last_line = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return

    def show(self, view: View) -> None:
        """Write a line when the last one is two seconds old, or something new begins."""
        now = time.monotonic()
        is_new = (view.phase, view.note) != self._last_told
        line = line_of(view)
        if line == self._last_line or (now - self._last_at < LINE_EVERY_S and not is_new):
            return
        self._last_at, self._last_told, self._last_line = now, (view.phase, view.note), line
        self._console.print(line, highlight=False, soft_wrap=True)


def line_of(view: View) -> str:
    """Return the view as one line."""
    if view.step or not view.placed:
        return f"{view.phase}: {view.step}" if view.step else f"{view.phase} …"
    slots = ", ".join(f"{worker.name} {'killed' if worker.is_killed else _running(worker)}" for worker in view.workers)
    said = (
        f"{view.phase}: placed {view.placed}/{view.orders}, published {view.rows_published}/{view.rows_written}, "
        f"issued {view.issued}/{view.orders}, refunded {view.refunded}/{view.to_refund}; "
        f"{view.tickets} tickets, {view.tickets_per_second:.0f}/s; {slots}"
    )
    return f"{said}; {view.note}" if view.note else said


def _running(worker: WorkerView) -> str:
    """Return how many slots run, and what is read ahead of them."""
    ahead = worker.running - worker.slots
    return f"{worker.slots}/{worker.slots} +{ahead} ahead" if ahead > 0 else f"{worker.running}/{worker.slots}"


def picture_of(view: View) -> RenderableType:
    """Return the view as bars."""
    bars = Table.grid(padding=(0, 2, 0, 0))
    # Fixed widths: bars that change their length while they fill look like a mistake.
    bars.add_column(width=9)
    bars.add_column(max_width=BAR)
    bars.add_column(width=13)
    bars.add_column(style="dim", width=WORDS)
    for name, done, total, words in _bars(view):
        bars.add_row(name, _bar(done, total), f"{done:>5} / {total:<5}", words)
    workers = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        workers.add_column()
    for worker in view.workers:
        workers.add_row(worker.name, *_worker_cells(worker))
    title = Text.assemble((view.phase, "bold"), (f"  {view.step}" if view.step else "", "dim"))
    parts: list[RenderableType] = [title, Text(), bars, Text(), workers]
    if view.note:
        parts += [Text(), Text(view.note, style="yellow")]
    return Padding(Group(*parts), (1, 0, 1, 1))


def _bars(view: View) -> Iterator[tuple[str, int, int, str]]:
    yield "placed", view.placed, view.orders, "orders"
    yield "published", view.rows_published, max(view.rows_written, view.orders), "outbox rows"
    yield "issued", view.issued, view.orders, f"orders {view.tickets} tickets {view.tickets_per_second:.0f}/s"
    yield "refunded", view.refunded, view.to_refund, "orders"


def _bar(done: int, total: int) -> ProgressBar:
    return ProgressBar(
        total=max(total, 1), completed=min(done, total) if total else 1, complete_style="cyan",
        finished_style="green",
    )  # fmt: skip


def _worker_cells(worker: WorkerView) -> tuple[RenderableType, RenderableType]:
    if worker.is_killed:
        return Text("killed", style="bold red"), Text(f"{worker.starts} jobs before", style="dim")
    if worker.slots == 0:
        return Text("starting", style="dim"), Text()
    running = min(worker.running, worker.slots)
    blocks = Text("■" * running, style="cyan") + Text("□" * (worker.slots - running), style="dim")
    return blocks, Text(f"{running} of {worker.slots} slots  {worker.starts} jobs", style="dim")


# -- the end --------------------------------------------------------------------


def print_report(console: Console, report: Report, ending: Ending) -> None:
    """Print the report for people: figures, what is wrong if anything is, and where everything lies."""
    title = "Nothing lost, nothing wrong." if report.is_sound else "Something is lost or wrong."
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim", overflow="fold")
    for name, figure, words in rows_of(report, ending):
        is_bad = name in {"lost", "wrong"} and figure != "0"
        # As text: [test] is an extra's name here, and not markup.
        table.add_row(name, Text(figure, style="bold red" if is_bad else "bold"), Text(words))
    parts: list[RenderableType] = [Text(title, style="bold green" if report.is_sound else "bold red"), Text(), table]
    parts += _problems(report)
    console.print(Padding(Group(*parts), (1, 0, 1, 1)))
    # Not wrapped and not cut: these are to be copied.
    for name, place in places_of(ending):
        console.print(Text(f" {name:<12} {place}", style="" if name else "dim"), soft_wrap=True)
    console.print()


def _problems(report: Report) -> Iterator[RenderableType]:
    problems = report.checked.problems
    if problems:
        yield Text()
    for problem in problems[:MOST_PROBLEMS]:
        yield Text(problem, style="red")
    if len(problems) > MOST_PROBLEMS:
        yield Text(f"and {len(problems) - MOST_PROBLEMS} more", style="red")
