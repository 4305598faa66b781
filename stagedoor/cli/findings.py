"""What a doctor makes of what it has seen: findings, each with what it means and what can be done. Pure."""

from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

from stagedoor.broker.checkup import ConsumerView, Examination
from stagedoor.broker.inspection import Overview
from stagedoor.broker.redis import CAP_SHARE, FORGET_CONSUMER_MS
from stagedoor.cli.text import counted, printable, span, unknown_kinds
from stagedoor.core.keys import POOL
from stagedoor.orders import Backlog, InvariantReport, Leftover, ParkedRow
from stagedoor.settings import Settings

type Level = Literal["good", "note", "wrong"]

RELAY_LATE_S = 10.0
SWEEP_LATE_S = 15.0
"""Past its lapse: live workers sweep every two seconds, so this much later none of them does."""
NEARLY_FULL = 0.9
MOST_FILES = 10_000
"""Files that are removed at a time: some seconds, of which no order is locked for more than a moment."""
_FEW = 5


@attrs.frozen(kw_only=True)
class Cure:
    """Something that can be put right: which of the doctor's hands does it, and on what."""

    verb: Literal["set_aside", "make_groups", "reclaim", "mend", "look_after", "wake", "reissue", "void", "sweep"]
    items: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that was seen; *means* and *fix* are sentences, *cure* what ``--fix`` does."""

    about: str
    level: Level
    seen: str
    means: str = ""
    fix: str = ""
    cure: Cure | None = None


def good(about: str, seen: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(about=about, level="good", seen=seen)


# -- Redis --------------------------------------------------------------------------


def of_server(problems: Sequence[str], warnings: Sequence[str]) -> Iterator[Finding]:
    """Say what is wrong with the server itself."""
    for problem in problems:
        yield Finding(about="server", level="wrong", seen=problem, means="nothing works without it")
    for warning in warnings:
        yield Finding(
            about="server",
            level="wrong",
            seen=warning,
            fix="nothing: set it where the server is configured, for all who use it",
        )
    if not problems and not warnings:
        yield good("server", "version and eviction policy are as they must be")


def of_examination(seen: Examination, overview: Overview | None, settings: Settings) -> Iterator[Finding]:
    """Say what is wrong with the keys of the namespace."""
    found = [
        *_types(seen),
        *_groups(seen, overview),
        *_consumers(seen.consumers, settings),
        *_delayed(seen),
        *_calls(seen),
        *_memory(seen),
    ]
    yield from found
    if not any(finding.level == "wrong" for finding in found):
        yield good("keys", "types, groups, owners, delayed jobs and calls are in order")


def _types(seen: Examination) -> Iterator[Finding]:
    for key, (found, expected) in seen.wrong_types.items():
        yield Finding(
            about="keys",
            level="wrong",
            seen=f"{key} is a {found} and must be a {expected}",
            means="another program writes under our names; whatever needs this key waits",
            fix=f"rename it to {key}:misplaced:…, so that nothing in it is lost",
            cure=Cure(verb="set_aside", items=(key, expected)),
        )


def _groups(seen: Examination, overview: Overview | None) -> Iterator[Finding]:
    if overview is None:
        return
    lengths = {"JOBS": overview.stream.length, "CRITICAL": overview.critical.length}
    for stream in seen.groupless:
        if count := lengths[stream.name]:
            name = stream.name.lower()
            yield Finding(
                about="group",
                level="wrong",
                seen=f"{counted(count, f'entry of {name} has', f'entries of {name} have')} no consumer group",
                means="nobody has them in hand; a worker makes the group at its start, from the first entry on",
                fix="make the group",
                cure=Cure(verb="make_groups"),
            )


def _consumers(consumers: Sequence[ConsumerView], settings: Settings) -> Iterator[Finding]:
    for one in consumers:
        if one.name == POOL:
            continue
        name = printable(one.name, 64)
        if one.pending and _is_gone(one, settings):
            of = one.stream.name.lower()
            owed = counted(one.pending, f"entry of {of} is", f"entries of {of} are")
            why = "has no record" if one.worker is None else f"has not beaten for {span(one.worker.beat_age_s)}"
            yield Finding(
                about="owners",
                level="wrong",
                seen=f"{owed} pending under {name}, which {why}",
                means="no live worker sweeps: none runs, or none has been well for long enough to judge",
                fix=f"move to the pool what nobody has touched for {settings.reclaim_idle_s:g} s",
                cure=Cure(verb="reclaim"),
            )
        elif not one.pending and one.worker is None and one.idle_s > FORGET_CONSUMER_MS / 1000:
            yield Finding(
                about="owners",
                level="note",
                seen=f"the consumer {name} has nothing and has been idle for {span(one.idle_s)}",
                means="it is left from a worker that has gone; the next sweep of any worker deletes it",
                fix="nothing",
            )


def _is_gone(one: ConsumerView, settings: Settings) -> bool:
    if one.worker is None:
        return one.idle_s > settings.liveness_ttl_s + SWEEP_LATE_S
    return one.worker.beat_age_s > settings.liveness_ttl_s + SWEEP_LATE_S


def _delayed(seen: Examination) -> Iterator[Finding]:
    kinds = (
        (
            seen.delayed.never_due,
            ("has a due time that is none", "have a due time that is none"),
            "they would never come due",
        ),
        (
            seen.delayed.bodiless,
            ("has no body", "have no body"),
            "their fields are lost; each becomes a dead letter when it is due",
        ),
        (
            seen.delayed.homeless,
            ("is a body without a due time", "are bodies without a due time"),
            "they would wait for ever",
        ),
    )
    for members, (one, many), means in kinds:
        if members:
            yield Finding(
                about="delayed",
                level="wrong",
                seen=f"{counted(len(members), f'delayed job {one}', f'delayed jobs {many}')}: {_named(members)}",
                means=f"{means}; somebody else has written here, or Redis was full",
                fix="make them due now: a worker puts each back into its stream, or makes a dead letter of it",
                cure=Cure(verb="mend", items=members),
            )


def _calls(seen: Examination) -> Iterator[Finding]:
    if seen.calls.overdue:
        yield Finding(
            about="flows",
            level="wrong",
            seen=f"{counted(seen.calls.overdue, 'call')} should have been looked after minutes ago",
            means="no worker runs; what one of them has lost, a timer or an entry, is not made anew meanwhile",
            fix="look after them once",
            cure=Cure(verb="look_after"),
        )
    if timerless := seen.calls.timerless:
        yield Finding(
            about="flows",
            level="wrong",
            seen=f"{counted(len(timerless), 'sleeping call has', 'sleeping calls have')} no timer: {_named(timerless)}",
            means="somebody has deleted them; once their time is over a worker that looks after calls wakes them",
            fix="wake them: their next passes set their timers anew",
            cure=Cure(verb="wake", items=timerless),
        )
    if seen.calls.parked:
        parked = [f"{one.call_id} of {one.flow} ({one.reason}: {one.error})" for one in seen.calls.parked]
        yield Finding(
            about="flows",
            level="wrong",
            seen=f"{counted(len(parked), 'call is', 'calls are')} parked: {_named(parked)}",
            means="they stand still; nothing is lost, and nothing goes on",
            fix="nothing: put right what parked them, then flow resume, or flow cancel",
        )


def _memory(seen: Examination) -> Iterator[Finding]:
    if seen.memory_limit and seen.memory_used > NEARLY_FULL * seen.memory_limit:
        yield Finding(
            about="memory",
            level="wrong",
            seen=f"Redis uses {seen.memory_used:,} of {seen.memory_limit:,} bytes",
            means="at its limit work in hand goes on and new rows wait in the outbox",
            fix="nothing: raise maxmemory, or find out who fills it",
        )


def of_overview(overview: Overview, settings: Settings) -> Iterator[Finding]:
    """Say what is wrong with the flow of work."""
    yield from _workers(overview, settings)
    yield from _stream(overview, settings)
    for seen in unknown_kinds(overview.unknown_kinds, looked_at=overview.kinds_looked_at):
        yield Finding(
            about="kinds",
            level="wrong",
            seen=seen,
            means="is a module missing in plugins, or its name misspelt? After a day they become dead letters",
            fix="nothing: set plugins where the workers run",
        )
    if overview.dead:
        yield Finding(
            about="dead letters",
            level="note",
            seen=counted(overview.dead, "dead letter"),
            means="jobs that were given up, each with its reason: dead list",
            fix="nothing: dead requeue, or dead drop",
        )


def _workers(overview: Overview, settings: Settings) -> Iterator[Finding]:
    live = [worker for worker in overview.workers if worker.beat_age_s <= settings.liveness_ttl_s]
    owed = overview.stream.length + overview.critical.length
    if not live:
        yield Finding(
            about="workers",
            level="wrong" if owed else "note",
            seen=f"no worker runs, and {counted(owed, 'entry is', 'entries are')} owed"
            if owed
            else "no worker runs; nothing is owed",
            fix="nothing: python -m stagedoor",
        )
    else:
        yield good("workers", f"{len(live)} live, {counted(sum(worker.held for worker in live), 'job')} in hand")
    for worker in live:
        if worker.orphaned:
            yield Finding(
                about="workers",
                level="wrong",
                seen=f"{printable(worker.name, 64)} has {worker.orphaned} of {worker.slots} slots orphaned",
                means="handlers that do not end at their timeouts and do not call ctx.check()",
                fix="nothing: restart it; with half its slots gone it does so itself",
            )


def _stream(overview: Overview, settings: Settings) -> Iterator[Finding]:
    if overview.trimmed_unread:
        lost = counted(overview.trimmed_unread, "entry was", "entries were")
        yield Finding(
            about="stream",
            level="wrong",
            seen=f"at least {lost} deleted before anybody read them",
            means="lost jobs: somebody trims or deletes from the stream, which nobody of ours does",
            fix="nothing: find out who; the check of the orders says which have no tickets",
        )
    if overview.stream.length >= CAP_SHARE * settings.stream_maxlen:
        yield Finding(
            about="stream",
            level="note",
            seen=f"the stream is at its cap with {overview.stream.length:,} entries",
            means="new rows wait in the outbox until workers have caught up",
            fix="nothing",
        )


# -- the order book ---------------------------------------------------------------------


def of_namespace(found: str | None, settings: Settings) -> Iterator[Finding]:
    """Say whether the book is published where we look; a book that no relay has seen is published nowhere yet."""
    if found not in {None, settings.namespace}:
        yield Finding(
            about="namespace",
            level="wrong",
            seen=f"the order book is published in {printable(found, 64)}, and this is {settings.namespace}",
            means="its jobs never come here, and a relay with this setting is refused",
            fix="nothing: set the namespace, or move the book with relay --move-book",
        )


def of_outbox(backlog: Backlog, parked: Sequence[ParkedRow]) -> Iterator[Finding]:
    """Say what is wrong with the outbox."""
    if backlog.waiting and (backlog.oldest_age_s or 0.0) > RELAY_LATE_S:
        yield Finding(
            about="outbox",
            level="wrong",
            seen=f"{counted(backlog.waiting, 'row waits', 'rows wait')}, the oldest for {span(backlog.oldest_age_s)}",
            means="no relay runs, or the stream is full, or Redis is away",
            fix="nothing: python -m stagedoor relay",
        )
    elif not parked:
        yield good("outbox", counted(backlog.waiting, "row waits", "rows wait"))
    if parked:
        rows = _named([f"{one.row.outbox_id} ({printable(one.error, 80)})" for one in parked])
        yield Finding(
            about="outbox",
            level="wrong",
            seen=f"{counted(backlog.parked, 'row is', 'rows are')} parked: {rows}",
            means="they can never make an entry; their orders wait for ever",
            fix="nothing: put right what wrote them, and have their orders issued again",
        )


def of_invariant(report: InvariantReport, *, is_at_rest: bool) -> Iterator[Finding]:
    """Say what is wrong with orders and tickets; while work is under way much is merely not done yet."""
    if report.is_sound:
        there = f"{counted(report.orders, 'order')}, {counted(report.tickets_valid, 'valid ticket')}"
        yield good("orders", f"{there}: each as it must be")
    elif not is_at_rest:
        count = len({one.order_id for one in (*report.lost, *report.wrong)})
        yield Finding(
            about="orders",
            level="note",
            seen=f"{counted(count, 'order is', 'orders are')} not done yet",
            means="work is under way; only when nothing waits any more can it be said what is wrong",
            fix="nothing",
        )
    else:
        yield from _unsound(report)


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
        fix=f"remove those that no ticket has needed for an hour{rest}" if over else "nothing",
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
        told = _named([f"order {one.order_id}: {one.problem}" for one in findings])
        yield Finding(
            about="orders",
            level="wrong",
            seen=f"{len(findings):,} {title}: {told}",
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


def _named(items: Sequence[str]) -> str:
    shown = ", ".join(printable(item, 160) for item in items[:_FEW])
    return shown if len(items) <= _FEW else f"{shown} and {len(items) - _FEW:,} more"
