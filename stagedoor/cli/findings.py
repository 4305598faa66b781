"""What a doctor makes of what it has seen: findings, each with what it means and what can be done. Pure."""

from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

from stagedoor.broker.checkup import ConsumerView, Examination
from stagedoor.broker.inspection import Overview
from stagedoor.broker.redis import CAP_SHARE, FORGET_CONSUMER_MS
from stagedoor.cli.text import counted, printable, span, unknown_kinds
from stagedoor.core.keys import POOL
from stagedoor.settings import Settings

type Level = Literal["good", "note", "wrong"]

SWEEP_LATE_S = 15.0
"""Past its lapse: live workers sweep every two seconds, so this much later none of them does."""
NEARLY_FULL = 0.9
_FEW = 5


@attrs.frozen(kw_only=True)
class Cure:
    """Something that can be put right: which of the doctor's hands does it, and on what."""

    verb: Literal["set_aside", "make_groups", "reclaim", "mend", "look_after", "wake", "reissue", "void", "sweep"]
    items: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that was seen; *means* and *fix* are sentences, *cure* what ``--fix`` does: without it hands must."""

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
            fix="by hand: set it where the server is configured, for all who use it",
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
                seen=f"{counted(len(members), f'delayed job {one}', f'delayed jobs {many}')}: {named(members)}",
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
            seen=f"{counted(len(timerless), 'sleeping call has', 'sleeping calls have')} no timer: {named(timerless)}",
            means="somebody has deleted them; once their time is over a worker that looks after calls wakes them",
            fix="wake them: their next passes set their timers anew",
            cure=Cure(verb="wake", items=timerless),
        )
    if seen.calls.parked:
        parked = [f"{one.call_id} of {one.flow} ({one.reason}: {one.error})" for one in seen.calls.parked]
        yield Finding(
            about="flows",
            level="wrong",
            seen=f"{counted(len(parked), 'call is', 'calls are')} parked: {named(parked)}",
            means="they stand still; nothing is lost, and nothing goes on",
            fix="by hand: put right what parked them, then flow resume, or flow cancel",
        )


def _memory(seen: Examination) -> Iterator[Finding]:
    if seen.memory_limit and seen.memory_used > NEARLY_FULL * seen.memory_limit:
        yield Finding(
            about="memory",
            level="wrong",
            seen=f"Redis uses {seen.memory_used:,} of {seen.memory_limit:,} bytes",
            means="at its limit work in hand goes on and new rows wait in the outbox",
            fix="by hand: raise maxmemory, or find out who fills it",
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
            fix="by hand: set plugins where the workers run",
        )
    if overview.dead:
        yield Finding(
            about="dead letters",
            level="note",
            seen=counted(overview.dead, "dead letter"),
            means="jobs that were given up, each with its reason: dead list",
            fix="by hand: dead requeue, or dead drop",
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
            fix="by hand: python -m stagedoor",
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
                fix="by hand: restart it; with half its slots gone it does so itself",
            )


def _stream(overview: Overview, settings: Settings) -> Iterator[Finding]:
    if overview.trimmed_unread:
        lost = counted(overview.trimmed_unread, "entry was", "entries were")
        yield Finding(
            about="stream",
            level="wrong",
            seen=f"at least {lost} deleted before anybody read them",
            means="lost jobs: somebody trims or deletes from the stream, which nobody of ours does",
            fix="by hand: find out who; the check of the orders says which have no tickets",
        )
    if overview.stream.length >= CAP_SHARE * settings.stream_maxlen:
        yield Finding(
            about="stream",
            level="note",
            seen=f"the stream is at its cap with {overview.stream.length:,} entries",
            means="new rows wait in the outbox until workers have caught up",
        )


def named(items: Sequence[str]) -> str:
    """Return the first few of them in one line, and how many more there are."""
    shown = ", ".join(printable(item, 160) for item in items[:_FEW])
    return shown if len(items) <= _FEW else f"{shown} and {len(items) - _FEW:,} more"
