"""What a demo has shown: the object of ``--json``, and the same for people. Pure."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from stagedoor.rehearsal.calls import CallsChecked
from stagedoor.rehearsal.check import Checked


@attrs.frozen(kw_only=True)
class Report:
    """The outcome of one demo; *slots* are those of each worker, *calls* is None where no flow was to run."""

    orders: int
    checked: Checked
    duplicate_runs: int
    recovery_s: float | None
    seconds: float
    gil: bool
    slots: int
    calls: CallsChecked | None = None

    @property
    def tickets_per_second(self) -> float:
        """Tickets issued, valid and void, over the time from the first order to rest."""
        made = self.checked.tickets_valid + self.checked.tickets_void
        return made / self.seconds if self.seconds > 0 else 0.0

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost and nothing is wrong."""
        return self.checked.lost == 0 and self.checked.wrong == 0

    def as_data(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {
            "orders": self.orders,
            "refunded": self.checked.refunded,
            "tickets_valid": self.checked.tickets_valid,
            "tickets_void": self.checked.tickets_void,
            "pdf_files": self.checked.pdf_files,
            "lost": self.checked.lost,
            "wrong": self.checked.wrong,
            "duplicate_runs": self.duplicate_runs,
            "recovery_s": None if self.recovery_s is None else round(self.recovery_s, 2),
            "seconds": round(self.seconds, 2),
            "tickets_per_second": round(self.tickets_per_second, 1),
            "gil": self.gil,
            "slots": self.slots,
        }


@attrs.frozen(kw_only=True)
class Ending:
    """What is only told to people: where things are, and what happened on the way."""

    folder: Path
    tickets_dir: Path
    logs_dir: Path
    orders_url: str
    example: Path | None
    example_of: str
    example_id: int | None
    workers: int
    killed: str | None
    killed_held: int
    killed_running: int


type Row = tuple[str, str, str]
"""A name, a figure, and the words to it."""


def rows_of(report: Report, ending: Ending) -> Iterator[Row]:
    """Yield the lines of the report for people."""
    checked = report.checked
    yield "orders", str(report.orders), f"{checked.refunded} of them refunded"
    yield "tickets", str(checked.tickets_valid), f"valid, and {checked.tickets_void} void"
    yield "PDF files", str(checked.pdf_files), _how_checked(checked)
    yield "tickets/s", f"{report.tickets_per_second:.0f}", _conditions(report, ending)
    if report.calls is not None:
        yield "calls", str(report.calls.done), _calls(report.calls)
    yield "ran twice", str(report.duplicate_runs), _duplicates(report)
    yield (
        "lost",
        str(checked.lost),
        "positions without their ticket" if checked.lost else "every position has its ticket",
    )
    yield (
        "wrong",
        str(checked.wrong),
        "tickets that must not be" if checked.wrong else "and no ticket is valid that must not be",
    )
    if ending.killed is not None:
        recovery = "never" if report.recovery_s is None else f"{report.recovery_s:.1f} s"
        yield "recovery", recovery, _recovery(ending)


def _calls(calls: CallsChecked) -> str:
    bad = f"; {len(calls.problems)} are not as they should be" if calls.problems else ""
    return f"done, {calls.parked} parked, with {calls.steps} steps in {calls.passes} passes{bad}"


def _duplicates(report: Report) -> str:
    runs = "handler runs beyond one per outbox row" if report.calls is None else "runs and passes beyond one per entry"
    return f"{runs}; none had an effect"


def _how_checked(checked: Checked) -> str:
    if checked.has_read_codes:
        return "each was opened, and its QR code read back"
    return "each begins and ends as a PDF; with stagedoor[test] their QR codes are read back too"


def _conditions(report: Report, ending: Ending) -> str:
    gil = "with a GIL" if report.gil else "without the GIL"
    workers = f"{ending.workers} workers with {report.slots} slots each"
    return f"{workers}, {gil}, {report.seconds:.1f} s in all"


def _recovery(ending: Ending) -> str:
    held = f"{ending.killed_held} entr{'y' if ending.killed_held == 1 else 'ies'}"
    return (
        f"from SIGKILL of {ending.killed}, which held {held} and ran {ending.killed_running}, "
        "until the last of them ran elsewhere"
    )


def places_of(ending: Ending) -> Iterator[tuple[str, str]]:
    """Yield where everything lies: a name, empty for words to the line above, and a path or a command."""
    yield "tickets", str(ending.tickets_dir)
    if ending.example is not None:
        yield "one of them", str(ending.example)
        yield "", ending.example_of
    yield "logs", str(ending.logs_dir)
    if ending.example_id is not None:
        yield "an order", _show_command(ending, ending.example_id)


def _show_command(ending: Ending, order_id: int) -> str:
    """Return what can be pasted into a shell, whichever Python its ``python`` is."""
    words = [sys.executable, "-m", "stagedoor", "order", "show", str(order_id)]
    return shlex.join([*words, "--orders-url", ending.orders_url, "--tickets-dir", str(ending.tickets_dir)])
