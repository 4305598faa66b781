"""What will become of a job that a worker takes: whether it can start at all, by the rules that workers have. Pure."""

from collections.abc import Iterator

import attrs

from stagedoor.broker.checkup import LATEST_MS
from stagedoor.broker.tracing import Trace, TracedDelayed, TracedEntry
from stagedoor.cli.output import utc
from stagedoor.cli.text import counted, printable
from stagedoor.core.codec import Fields
from stagedoor.core.entry import Entry
from stagedoor.core.job import parse_job
from stagedoor.core.outcome import UNKNOWN_KIND_PATIENCE_S
from stagedoor.core.tenure import Stream
from stagedoor.errors import MalformedEntry

UNTOLD = ""
"""The kind of a job whose fields somebody has deleted."""


@attrs.frozen(kw_only=True)
class Rules:
    """The settings that decide what will happen next."""

    liveness_ttl_s: float
    max_attempts: int
    max_crashes: int


def fate_of(stream: Stream, entry_id: str, fields: Fields, now: float) -> str | None:
    """Return what becomes of a job that no worker runs when it takes it, None for one that starts.

    Args:
        stream: the one it is in.
        entry_id: its id there.
        fields: as they are on Redis.
        now: Unix seconds.
    """
    try:
        job = parse_job(Entry(stream, entry_id, fields))
    except MalformedEntry as error:
        return f"it never starts: it becomes a dead letter, malformed, for {printable(str(error), 500)}"
    if not job.hops:
        return None
    if now > job.queued_at + UNKNOWN_KIND_PATIENCE_S:
        return "whoever takes it and does not know its kind makes a dead letter of it, for it is older than a day"
    return (
        f"whoever takes it hands it back again, as {counted(job.hops, 'time')} before, unless that worker knows its "
        f"kind: is a module missing in plugins? After {utc(job.queued_at + UNKNOWN_KIND_PATIENCE_S)} it becomes a "
        "dead letter"
    )


def is_never_due(due_at: float, now: float) -> bool:
    """Return whether this is no time at which a job becomes due: what a doctor makes due."""
    return not due_at - now <= LATEST_MS / 1000


def kinds_under_way(trace: Trace, rules: Rules) -> Iterator[str]:
    """Yield the kind of each job and call that goes on, or will; `UNTOLD` where only its holder knows it."""
    for entry in trace.entries:
        if _will_run(entry, trace, rules):
            yield _kind(entry.fields)
    for delayed in trace.delayed:
        if _will_come(delayed, trace.now):
            yield _kind(delayed.fields)
    yield from (call.flow for call in trace.calls if call.goes_on)


def _will_run(entry: TracedEntry, trace: Trace, rules: Rules) -> bool:
    is_held = entry.place == "pending" and any(
        worker.name == entry.consumer and worker.beat_age_s <= rules.liveness_ttl_s for worker in trace.workers
    )
    if entry.place == "left":
        return False
    if is_held and (not entry.has_body or len(entry.crash_log) < rules.max_crashes):
        return True  # whatever its fields have become: its holder knows them
    return entry.has_body and len(entry.crash_log) < rules.max_crashes and _is_sound(entry.fields)


def _will_come(delayed: TracedDelayed, now: float) -> bool:
    is_coming = delayed.due_at is not None and not is_never_due(delayed.due_at, now)
    return is_coming and bool(delayed.fields) and _is_sound(delayed.fields)


def _is_sound(fields: Fields) -> bool:
    try:
        parse_job(Entry(Stream.JOBS, "0-0", fields))
    except MalformedEntry:
        return False
    return True


def _kind(fields: Fields) -> str:
    return next((value.decode("utf-8", "replace") for name, value in fields if name == b"kind"), UNTOLD)
