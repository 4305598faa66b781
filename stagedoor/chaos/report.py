"""What a chaos run has shown: the object of ``--json``, and the same for people. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from stagedoor.chaos.recovery import percentile
from stagedoor.rehearsal.calls import CallsChecked
from stagedoor.rehearsal.check import Checked

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@attrs.frozen(kw_only=True)
class Report:
    """The outcome of one run.

    *faults* and *exits* count by kind; *recoveries* are seconds from a kill to the start of
    the last entry that the worker held, *undisturbed* of them those during which nothing else
    failed; *duplicate_runs* are handler runs beyond one per
    outbox row, without the passes of calls; *rows_by_flow* are the rows that have a call of a flow
    make the tickets; *dead* counts dead letters.
    """

    seed: int
    seconds: float
    orders: int
    rows: int
    checked: Checked
    calls: CallsChecked
    rows_by_flow: int
    dead: int
    duplicate_runs: int
    fenced: int
    faults: Mapping[str, int]
    exits: Mapping[str, int]
    told: Mapping[str, int]
    recoveries: Sequence[float]
    undisturbed: Sequence[float]
    held_at_kills: int
    unmeasured: int
    gil: bool
    workers: int
    slots: int

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost and nothing is wrong."""
        return self.checked.lost == 0 and self.checked.wrong == 0 and self.dead == 0

    @property
    def verdict(self) -> str:
        """What there is to know first."""
        return "Nothing lost, nothing wrong." if self.is_sound else "Something is lost or wrong."

    @property
    def lost(self) -> int:
        """Positions without their tickets, and jobs that were moved aside."""
        return self.checked.lost + self.dead

    def as_data(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "orders": self.orders,
            "refunded": self.checked.refunded,
            "outbox_rows": self.rows,
            "tickets_valid": self.checked.tickets_valid,
            "tickets_void": self.checked.tickets_void,
            "pdf_files": self.checked.pdf_files,
            "lost": self.lost,
            "wrong": self.checked.wrong,
            "dead_letters": self.dead,
            "duplicate_runs": self.duplicate_runs,
            "fenced_writes": self.fenced,
            "faults": dict(self.faults),
            "ended_by_themselves": dict(self.exits),
            "events": dict(self.told),
            "recovery_s": {**percentiles(self.recoveries), "unmeasured": self.unmeasured},
            "recovery_undisturbed_s": percentiles(self.undisturbed),
            "entries_held_at_kills": self.held_at_kills,
            "calls": {
                **self.calls.by_flow,
                "rows": self.rows_by_flow,
                "done": self.calls.done,
                "cancelled": self.calls.cancelled,
                "parked": self.calls.parked,
                "wrong": len(self.calls.problems),
                "steps": self.calls.steps,
                "passes": self.calls.passes,
            },
            "problems": list(self.checked.problems[:100]),
            "gil": self.gil,
            "workers": self.workers,
            "slots": self.slots,
        }


LABEL = 16
"""Columns of the first word of a line."""


def lines_of(report: Report) -> Iterator[str]:
    """Yield the report for people, as wide as it comes."""
    yield report.verdict
    yield ""
    yield from (f"{label:<{LABEL}}{text}" for label, text in rows_of(report))


def rows_of(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what each line is about, and what it says."""
    checked = report.checked
    workers = f"{_counted(report.workers, 'worker')} with {_counted(report.slots, 'slot')} each"
    yield "seed", f"{report.seed}, {report.seconds:.0f} s, {workers}"
    rows = _counted(report.rows, "outbox row")
    yield "orders", f"{report.orders}, {checked.refunded} of them refunded; {rows}"
    files = _counted(checked.pdf_files, "file")
    yield "tickets", f"{checked.tickets_valid} valid, {checked.tickets_void} void, {files}"
    yield "lost", str(report.lost)
    yield "wrong", str(checked.wrong)
    yield from _rows_of_calls(report)
    runs = _counted(report.duplicate_runs, "handler run")
    yield "ran twice", f"{runs} beyond one per outbox row; none had an effect"
    writes = _counted(report.fenced, "write or renewal", "writes and renewals")
    yield "fenced", f"{writes} refused, because somebody else had the entry"
    yield from (("fault", f"{count:>5} {name}") for name, count in sorted(report.faults.items()))
    yield from (("exit", f"{count:>5} {name}") for name, count in sorted(report.exits.items()))
    yield "recovery", f"{_recovery(report.recoveries)}: from SIGKILL until the last entry held ran again"
    yield "  undisturbed", f"{_recovery(report.undisturbed)}: while nothing else failed, and somebody was there"
    held = _counted(report.held_at_kills, "entry", "entries")
    yield "", f"{held} held at kills; {_counted(report.unmeasured, 'kill')} could not be measured"
    yield from (("problem", problem) for problem in checked.problems[:20])


def _rows_of_calls(report: Report) -> Iterator[tuple[str, str]]:
    calls = report.calls
    flows = ", ".join(f"{count} of {flow}" for flow, count in sorted(calls.by_flow.items()))
    rows = _counted(report.rows_by_flow, "outbox row has", "outbox rows have")
    yield "calls", f"{flows}; {rows} a call make the tickets"
    ended = f"{calls.done} done, {calls.cancelled} cancelled as asked, {calls.parked} parked"
    yield "", f"{ended}; {_counted(calls.steps, 'step')} in {_counted(calls.passes, 'pass', 'passes')}"


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return the percentiles of some recoveries, and how many there were."""
    found = {name: percentile(seconds, share) for name, share in SHARES.items()}
    rounded = {name: None if value is None else round(value, 2) for name, value in found.items()}
    return {**rounded, "kills": len(seconds)}


def _recovery(seconds: Sequence[float]) -> str:
    if not seconds:
        return "of no kill"
    figures = ", ".join(f"{name} {percentile(seconds, share):.1f} s" for name, share in SHARES.items())
    return f"{figures}, of {_counted(len(seconds), 'kill')}"
