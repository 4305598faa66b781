"""What a doctor makes of the order book: its outbox, its orders against their tickets, and files. Pure."""

from collections.abc import Iterator, Sequence
from typing import Literal

from stagedoor.broker.inspection import Overview
from stagedoor.cli.findings import Cure, Finding, good, named
from stagedoor.cli.text import counted, printable, span
from stagedoor.orders import Backlog, InvariantReport, Leftover, ParkedRow
from stagedoor.orders import Finding as OrderFinding
from stagedoor.settings import Settings

type Under = Literal["work", "unknown", "nothing"]
"""What is under way: entries, jobs and rows; only jobs of kinds that no worker knows; or nothing at all."""

RELAY_LATE_S = 10.0
MOST_FILES = 10_000
"""Files that are removed at a time: some seconds, of which no order is locked for more than a moment."""


def of_namespace(found: str | None, settings: Settings) -> Iterator[Finding]:
    """Say whether the book is published where we look; a book that no relay has seen is published nowhere yet."""
    if found not in {None, settings.namespace}:
        yield Finding(
            about="namespace",
            level="wrong",
            seen=f"the order book is published in {printable(found, 64)}, and this is {settings.namespace}",
            means="its jobs never come here, and a relay with this setting is refused",
            fix="by hand: set the namespace, or move the book with relay --move-book",
        )


def of_outbox(backlog: Backlog, parked: Sequence[ParkedRow]) -> Iterator[Finding]:
    """Say what is wrong with the outbox."""
    if backlog.waiting and (backlog.oldest_age_s or 0.0) > RELAY_LATE_S:
        yield Finding(
            about="outbox",
            level="wrong",
            seen=f"{counted(backlog.waiting, 'row waits', 'rows wait')}, the oldest for {span(backlog.oldest_age_s)}",
            means="no relay runs, or the stream is full, or Redis is away",
            fix="by hand: python -m stagedoor relay",
        )
    elif not parked:
        yield good("outbox", counted(backlog.waiting, "row waits", "rows wait"))
    if parked:
        rows = named([f"{one.row.outbox_id} ({printable(one.error, 80)})" for one in parked])
        yield Finding(
            about="outbox",
            level="wrong",
            seen=f"{counted(backlog.parked, 'row is', 'rows are')} parked: {rows}",
            means="they can never make an entry; their orders wait for ever",
            fix="by hand: put right what wrote them, and have their orders issued again",
        )


def under_way(overview: Overview | None) -> Under:
    """Return what is under way on Redis; of a Redis that does not answer nobody knows."""
    if overview is None or overview.stream.length or overview.critical.length:
        return "work"
    if overview.delayed > sum(overview.unknown_kinds.values()):
        return "work"
    return "unknown" if overview.delayed else "nothing"


def of_invariant(report: InvariantReport, *, under: Under) -> Iterator[Finding]:
    """Say what is wrong with orders and tickets; while work is under way much is merely not done yet."""
    if report.is_sound:
        there = f"{counted(report.orders, 'order')}, {counted(report.tickets_valid, 'valid ticket')}"
        yield good("orders", f"{there}: each as it must be")
    elif under == "nothing":
        yield from _unsound(report)
    elif under == "unknown":
        yield Finding(
            about="orders",
            level="wrong",
            seen=f"not as they must be: {_told([*report.lost, *report.wrong])}",
            means="nothing is left to do but jobs that no worker knows, and what those would do nobody knows here",
            fix="by hand: explain ID says more of each; order reissue ID has its tickets issued again",
        )
    else:
        count = len({one.order_id for one in (*report.lost, *report.wrong)})
        yield Finding(
            about="orders",
            level="note",
            seen=f"{counted(count, 'order is', 'orders are')} not done yet",
            means="work is under way; only when nothing waits any more can it be said what is wrong",
        )


def of_leftovers(leftovers: Sequence[Leftover]) -> Iterator[Finding]:
    """Say which files no ticket needs; those that are not old yet may be somebody's work under way."""
    if not leftovers:
        return
    over = [one for one in leftovers if one.is_over]
    cure = Cure(verb="sweep", items=tuple(one.path for one in over[:MOST_FILES]))
    rest = f", {MOST_FILES:,} of them at a time" if len(over) > MOST_FILES else ""
    belong = "belongs" if len(leftovers) == 1 else "belong"
    yield Finding(
        about="tickets folder",
        level="note",
        seen=f"{files_said(leftovers)} {belong} to no valid ticket, {files_said(over)} of them for an hour or longer",
        means="harmless: left from a crash, or about to be removed, or to become tickets",
        fix=f"remove those that no ticket has needed for an hour{rest}" if over else "",
        cure=cure if over else None,
    )


def files_said(files: Sequence[Leftover]) -> str:
    """Return how many files they are, and how large."""
    return f"{counted(len(files), 'file')} ({sum(one.size for one in files) / 1e6:,.1f} MB)"


def _unsound(report: InvariantReport) -> Iterator[Finding]:
    refunded = {one.order_id for one in report.wrong if "refunded order" in one.problem}
    known = {one.order_id for one in (*report.lost, *report.wrong) if one.position_id is not None}
    reissue = Cure(verb="reissue", items=tuple(map(str, sorted(known - refunded))))
    wrong = [one for one in report.wrong if one.order_id not in refunded]
    for title, findings in (("lost", report.lost), ("wrong", wrong)):
        if not findings:
            continue
        yield Finding(
            about="orders",
            level="wrong",
            seen=f"{len(findings):,} {title}: {_told(findings)}",
            means="a ticket that must be there is not" if title == "lost" else "a ticket is valid that must not be",
            fix="have the orders issued again",
            cure=reissue,
        )
    if refunded:
        yield Finding(
            about="orders",
            level="wrong",
            seen=f"{counted(len(refunded), 'refunded order has', 'refunded orders have')} valid tickets",
            means="the door refuses them all the same, by the order's state",
            fix="void them",
            cure=Cure(verb="void", items=tuple(map(str, sorted(refunded)))),
        )


def _told(findings: Sequence[OrderFinding]) -> str:
    return named([f"order {one.order_id}: {one.problem}" for one in findings])
