"""What ``explain`` says: from what was found to sentences. Pure.

Each place where something was found makes one account: where it is, what has
happened to it, and what will happen next. What is nowhere on Redis was settled,
for settling deletes; then the order book says what became of the work.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal

import attrs

from stagedoor.broker.dead_letters import Letter, problem_of
from stagedoor.broker.tracing import Trace, TracedDelayed, TracedEntry
from stagedoor.cli.explaining_calls import of_call
from stagedoor.cli.output import utc
from stagedoor.cli.text import counted, printable, span
from stagedoor.core.codec import Fields
from stagedoor.core.entry import queued_ms
from stagedoor.core.journal import Journal
from stagedoor.core.tenure import Stream
from stagedoor.orders import TokenState
from stagedoor.orders.history import OutboxRecord

type What = Literal["call", "outbox", "entry", "delayed", "dead", "settled", "nothing"]
type Kind = Literal["entry", "outbox", "order", "token", "call"]

LATE_S = 5.0
"""A relay takes a row, and a promoter a due job, within a second; later than this, none runs."""
_LATEST = 4e9
"""Past it a score is no time that a calendar has."""


@attrs.frozen(kw_only=True)
class OrderFacts:
    """What the order book says of an order; *issue* is ``due``, ``issued`` or ``damaged``."""

    order_id: int
    status: str
    version: int
    issue: str
    valid: int
    void: int
    positions: int


@attrs.frozen(kw_only=True)
class Found:
    """All that was found about what was asked."""

    kind: Kind
    text: str
    trace: Trace
    records: tuple[OutboxRecord, ...] = ()
    order: OrderFacts | None = None
    token: TokenState | None = None
    has_book: bool = True
    calls: tuple[Journal, ...] = ()


@attrs.frozen(kw_only=True)
class Account:
    """One place where something was found, in sentences."""

    what: What
    id: str
    where: str
    history: tuple[str, ...] = ()
    next: str = ""


@attrs.frozen(kw_only=True)
class Rules:
    """The settings that decide what will happen next."""

    liveness_ttl_s: float
    max_attempts: int
    max_crashes: int


def kind_of(text: str) -> Kind | None:
    """Return what an id is by its shape; None for a number, which may be an order or an outbox row."""
    if re.fullmatch(r"[0-9]{1,19}-[0-9]{1,19}", text, re.ASCII):
        return "entry"
    if re.fullmatch(r"[0-9]+", text, re.ASCII):
        return None
    return "token"


def accounts(found: Found, rules: Rules) -> list[Account]:
    """Return an account for each place."""
    trace = found.trace
    made = [_of_row(record, trace.now) for record in found.records if record.state != "published"]
    made += [_of_call(journal, trace, rules) for journal in found.calls]
    made += [_of_entry(entry, trace, rules) for entry in trace.entries]
    made += [_of_delayed(delayed, trace, rules) for delayed in trace.delayed]
    made += [_of_letter(letter, trace.now) for letter in trace.letters]
    if not made:
        made.append(_of_nothing(found))
    return made


def about_order(order: OrderFacts) -> str:
    """Return what the order book says of an order, in a sentence."""
    tickets = f"{order.valid} valid and {order.void} void tickets"
    if order.status == "refunded":
        done = (
            "its tickets are void"
            if order.valid == 0
            else f"{counted(order.valid, 'ticket is', 'tickets are')} still to be voided"
        )
        return f"order {order.order_id} is refunded, version {order.version}: {done}"
    issue = {
        "issued": f"its tickets are issued: {tickets}",
        "damaged": f"its tickets were issued, but a file or a row is missing: {tickets}",
        "due": f"tickets for this version have not been issued: {tickets}",
    }[order.issue]
    positions = counted(order.positions, "position")
    return f"order {order.order_id} is placed, version {order.version}, {positions}: {issue}"


def about_token(token: TokenState) -> str:
    """Return what the door says to a token."""
    return "the door says: valid" if token.state == "valid" else f"the door says: {token.state}, {token.reason}"


# -- the outbox -----------------------------------------------------------------------


def _of_row(record: OutboxRecord, now: float) -> Account:
    row, age_s = record.row, max(0.0, now - record.created_at)
    told = (f"written {span(age_s)} ago, {utc(record.created_at)}, for a {row.kind} of order {row.order_id}",)
    if record.state == "parked":
        return Account(
            what="outbox",
            id=str(row.outbox_id),
            where=f"outbox row {row.outbox_id} is parked: {printable(record.error or '')}",
            history=told,
            next="nothing: it can never make an entry; put right what wrote it, and have the order issued again",
        )
    late = age_s > LATE_S
    return Account(
        what="outbox",
        id=str(row.outbox_id),
        where=f"outbox row {row.outbox_id} waits to be published",
        history=told,
        next="a relay publishes it; that takes so long only when none runs, or the stream is full"
        if late
        else "a relay publishes it within a second",
    )


def _of_nothing(found: Found) -> Account:
    if found.kind == "call":
        gone = f"there is no call {found.text}: its id is another one, or it ended and was kept no longer"
        return Account(what="nothing", id=found.text, where=gone, next="nothing")
    published = [record for record in found.records if record.state == "published"]
    if not published:
        looked = "" if found.has_book else "; there is no order book at orders_url to ask"
        is_unknown = found.token is None or found.token.state == "unknown"
        is_nothing = found.kind == "entry" or (found.order is None and is_unknown)
        if found.trace.is_cut:
            looked += "; there is more on Redis than was looked at"
        return Account(
            what="nothing" if is_nothing else "settled",
            id=found.text,
            where=f"nothing of it waits, neither in the outbox nor on Redis{looked}",
            history=("what was settled is deleted; rows of the outbox are kept for a week",),
            next="nothing",
        )
    last = published[-1]
    return Account(
        what="settled",
        id=last.entry_id or str(last.row.outbox_id),
        where="all of it is settled: nothing waits any more, neither in the outbox nor on Redis",
        history=tuple(_published(record) for record in published),
        next="nothing; what came of it is what the order book says",
    )


def _published(record: OutboxRecord) -> str:
    entry = f" as entry {record.entry_id}" if record.entry_id else ", by another relay"
    return f"outbox row {record.row.outbox_id} ({record.row.kind}) was published {utc(record.published_at)}{entry}"


def _of_call(journal: Journal, trace: Trace, rules: Rules) -> Account:
    has_workers = any(worker.beat_age_s <= rules.liveness_ttl_s for worker in trace.workers)
    told = of_call(journal, now=trace.now, has_workers=has_workers)
    return Account(what="call", id=journal.call_id, where=told.where, history=told.history, next=told.next)


# -- on Redis ----------------------------------------------------------------------------


def _of_entry(entry: TracedEntry, trace: Trace, rules: Rules) -> Account:
    where, coming = _PLACES[entry.place](entry, trace, rules)
    stream = "the stream" if entry.stream is Stream.JOBS else "the critical stream"
    crashes = len(entry.crash_log)
    if crashes >= rules.max_crashes:
        vanished = counted(crashes, "process", "processes")
        coming += f"; it is dead-lettered as poison before it starts, for {vanished} vanished with it"
    gone = () if entry.has_body else ("somebody has deleted its fields: only its holder knows them",)
    return Account(
        what="entry",
        id=entry.entry_id,
        where=f"entry {entry.entry_id} of {stream} {where}",
        history=(*_told(entry.entry_id, entry.fields, trace.now), *_handed_out(entry), *gone),
        next=coming,
    )


def _unread(_entry: TracedEntry, trace: Trace, rules: Rules) -> tuple[str, str]:
    return "waits unread", _taken_by(trace, rules, "as soon as a slot is free and what is older has been taken")


def _pooled(entry: TracedEntry, trace: Trace, rules: Rules) -> tuple[str, str]:
    where = f"waits in the pool since {span(entry.idle_s)}: a worker has given it back, or has vanished"
    return where, _taken_by(trace, rules, "before all new ones, as soon as a slot is free")


def _pending(entry: TracedEntry, trace: Trace, rules: Rules) -> tuple[str, str]:
    worker = next((one for one in trace.workers if one.name == entry.consumer), None)
    name = printable(entry.consumer, 64)
    if worker is None:
        where = f"is pending under {name}, of which there is no record"
        return where, _moved(trace, rules)
    beat = f"last beat {span(worker.beat_age_s)} ago"
    where = f"is in the hands of {name} (host {printable(worker.host, 64)}, pid {worker.pid}, {beat})"
    if worker.beat_age_s > rules.liveness_ttl_s:
        return f"{where}, which has lapsed", _moved(trace, rules)
    if worker.stopping:
        return where, "the worker is stopping: it finishes the job within its grace, or gives it back"
    return where, "the worker runs it now or next, and settles it"


def _left(_entry: TracedEntry, _trace: Trace, _rules: Rules) -> tuple[str, str]:
    where = "was acknowledged, but not by Stagedoor, which deletes what it acknowledges"
    return where, "nothing: no worker will see it; have the order issued again if its work is not done"


_PLACES = {"unread": _unread, "pool": _pooled, "pending": _pending, "left": _left}


def _taken_by(trace: Trace, rules: Rules, when: str) -> str:
    live = sum(worker.beat_age_s <= rules.liveness_ttl_s and not worker.stopping for worker in trace.workers)
    if live == 0:
        return "nothing until a worker runs: there is none"
    return f"{'the one live worker' if live == 1 else f'one of {live} live workers'} takes it {when}"


def _moved(trace: Trace, rules: Rules) -> str:
    live = any(worker.beat_age_s <= rules.liveness_ttl_s for worker in trace.workers)
    if not live:
        return "nothing until a worker runs: it would move the entry to the pool"
    return "a live worker moves it to the pool within seconds, and the next free slot takes it"


def _of_delayed(delayed: TracedDelayed, trace: Trace, rules: Rules) -> Account:
    left_s = delayed.due_at - trace.now
    member = printable(delayed.member, 80)
    if not delayed.has_body or not delayed.fields:
        coming = "when it is due it becomes a dead letter: its fields are missing"
    elif delayed.due_at > _LATEST:
        coming = "nothing: its due time is none; doctor --fix makes it due now"
    elif left_s < -LATE_S:
        coming = "a worker puts it back into its stream; it is due for so long only when none runs"
    else:
        coming = "then a worker puts it back into its stream, and the next free slot takes it"
    when = f"is due since {span(-left_s)}" if left_s < 0 else f"is delayed for another {span(left_s)}"
    until = "" if delayed.due_at > _LATEST else f", until {utc(delayed.due_at)}"
    return Account(
        what="delayed",
        id=delayed.member,
        where=f"{member} {when}{until if left_s >= 0 else ''}",
        history=tuple(_told("", delayed.fields, trace.now)) + _attempts(delayed.fields, rules),
        next=coming,
    )


def _of_letter(letter: Letter, now: float) -> Account:
    age_s = max(0.0, now - queued_ms(letter.dead_id) / 1000)
    problem = problem_of(letter)
    crashes = (
        (f"{counted(len(letter.history), 'process', 'processes')} vanished while holding it",) if letter.history else ()
    )
    requeue = f"nothing by itself; dead requeue {letter.dead_id} puts it back as a first attempt"
    return Account(
        what="dead",
        id=letter.dead_id,
        where=f"it is a dead letter since {span(age_s)}, {printable(letter.reason)}: {printable(letter.error, 500)}",
        history=(*_told(letter.entry_id, letter.fields, now), *crashes),
        next=f"nothing; it cannot be put back: {printable(problem, 500)}" if problem else requeue,
    )


# -- history ----------------------------------------------------------------------------------


def _told(entry_id: str, fields: Fields, now: float) -> Iterator[str]:
    text = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in reversed(fields)}
    origin = text.get("origin", entry_id)
    if re.fullmatch(r"[0-9]{1,13}-[0-9]{1,19}", origin, re.ASCII):
        queued = queued_ms(origin) / 1000
        yield f"queued {span(max(0.0, now - queued))} ago, {utc(queued)}, as entry {origin}"
    names = ("kind", "order_id", "outbox_id", "call_id")
    named = [f"{name} {printable(text[name], 80)}" for name in names if text.get(name)]
    if named:
        yield ", ".join(named)
    counts = {
        "attempt": "attempt {}",
        "crashes": "{crashes} in earlier entries",
        "hops": "handed back {times} by workers that do not know it",
        "requeued": "put back from the dead letters {times}",
    }
    said = [_numbered(words, printable(text[name], 20)) for name, words in counts.items() if name in text]
    if said:
        yield ", ".join(said)


def _numbered(words: str, number: str) -> str:
    return words.format(number, times=counted(number, "time"), crashes=counted(number, "crash", "crashes"))


def _handed_out(entry: TracedEntry) -> Iterator[str]:
    if entry.deliveries:
        yield f"handed out {counted(entry.deliveries, 'time')}, last touched {span(entry.idle_s)} ago"
    for line in entry.crash_log:
        ms, _, who = line.partition(" ")
        at = utc(int(ms) / 1000) if ms.isascii() and ms.isdigit() and len(ms) <= 13 else "?"  # noqa: PLR2004 - digits of a time in ms
        yield f"crashed {at}: {printable(who)}"


def _attempts(fields: Fields, rules: Rules) -> tuple[str, ...]:
    attempt = next((value for name, value in fields if name == b"attempt"), b"")
    if not attempt.isdigit():
        return ()
    return (f"its attempt {attempt.decode()} of {rules.max_attempts} comes next, unless its kind says otherwise",)


def data_of(found: Found, rules: Rules) -> dict[str, Any]:
    """Return what ``explain --json`` prints."""
    return {
        "asked": {"kind": found.kind, "id": found.text},
        "order": None if found.order is None else attrs.asdict(found.order),
        "token": None
        if found.token is None
        else attrs.asdict(found.token, filter=lambda field, _: field.name != "holder"),
        "accounts": [attrs.asdict(account) for account in accounts(found, rules)],
        "is_complete": not found.trace.is_cut,
    }
