"""What ``explain`` says: from what was found to sentences. Pure.

Each place where something was found makes one account: where it is, what has
happened to it, and what will happen next. What is nowhere on Redis was settled,
for settling deletes; then the order book says what became of the work. Where it
says that the work is still owed, the job is lost (`explaining_order`).
"""

import re
from collections.abc import Iterator
from typing import Any, Literal

import attrs

from stagedoor.broker.dead_letters import Letter, problem_of
from stagedoor.broker.tracing import Trace, TracedCall, TracedDelayed, TracedEntry
from stagedoor.cli.explaining_calls import of_call
from stagedoor.cli.explaining_jobs import Rules, fate_of, is_never_due
from stagedoor.cli.explaining_order import OrderFacts, Surroundings, stuck
from stagedoor.cli.output import utc
from stagedoor.cli.text import counted, printable, span
from stagedoor.core.codec import Fields
from stagedoor.core.entry import queued_ms
from stagedoor.core.journal import CALL_ID_PATTERN, Journal
from stagedoor.core.tenure import Stream
from stagedoor.orders import TokenState
from stagedoor.orders.history import OutboxRecord

type What = Literal["call", "outbox", "entry", "delayed", "dead", "settled", "lost", "stuck", "nothing"]
type Kind = Literal["entry", "outbox", "order", "token", "call"]

_DIGITS = 9
LATE_S = 5.0
"""A relay takes a row, and a promoter a due job, within a second; later than this, none runs."""


@attrs.frozen(kw_only=True)
class Found:
    """All that was found about what was asked.

    *around* is what there is of the whole order, looked up where the order is not as it must be.
    """

    kind: Kind
    text: str
    trace: Trace
    records: tuple[OutboxRecord, ...] = ()
    order: OrderFacts | None = None
    token: TokenState | None = None
    has_book: bool = True
    calls: tuple[Journal, ...] = ()
    around: Surroundings | None = None


@attrs.frozen(kw_only=True)
class Account:
    """One place where something was found, in sentences."""

    what: What
    id: str
    where: str
    history: tuple[str, ...] = ()
    next: str = ""


_SHAPES: tuple[tuple[str, Kind | None], ...] = (
    (r"(?:[12]:)?([0-9]{1,19}-[0-9]{1,19})", "entry"),  # also as it is called among the delayed jobs
    (rf"flow:({CALL_ID_PATTERN})", "call"),  # so is a call's timer
    (r"(outbox-[1-9][0-9]{0,18})", "call"),
    (r"([0-9]+)", None),
)


def shape_of(text: str) -> tuple[str, Kind | None]:
    """Return an id without what it bears among the delayed jobs, and what it is by its shape.

    None stands for a number, which may be an order or an outbox row; what has no shape may be a token.
    """
    for pattern, kind in _SHAPES:
        if found := re.fullmatch(pattern, text, re.ASCII):
            return found[1], kind
    return text, "token"


def accounts(found: Found, rules: Rules) -> list[Account]:
    """Return an account for each place."""
    trace = found.trace
    made = [_of_row(record, trace.now) for record in found.records if record.state != "published"]
    made += [_of_call(journal, trace, rules) for journal in found.calls]
    read = {journal.call_id for journal in found.calls}
    made += [_of_unread_call(call) for call in trace.calls if call.call_id not in read]
    made += [_of_entry(entry, trace, rules) for entry in trace.entries]
    made += [_of_delayed(delayed, trace, rules) for delayed in trace.delayed]
    made += [_of_letter(letter, trace.now) for letter in trace.letters]
    trouble = _of_trouble(found, rules)
    if trouble is not None:
        made.append(trouble)
    if not made:
        made.append(_of_nothing(found))
    return made


def _of_trouble(found: Found, rules: Rules) -> Account | None:
    """Return what there is to say of an order that nothing will ever put right by itself."""
    trouble = None if found.order is None or found.around is None else stuck(found.order, found.around, rules)
    if found.order is None or trouble is None:
        return None
    published = [record for record in found.records if record.state == "published"]
    return Account(
        what="lost" if trouble.is_lost else "stuck",
        id=str(found.order.order_id),
        where=trouble.where,
        history=tuple(map(_published, published)) if trouble.is_lost else (),
        next=trouble.next,
    )


def about_token(token: TokenState) -> str:
    """Return what the door says to a token."""
    return "the door says: valid" if token.state == "valid" else f"the door says: {token.state}, {token.reason}"


# -- the outbox -----------------------------------------------------------------------


def _of_row(record: OutboxRecord, now: float) -> Account:
    row, age_s = record.row, max(0.0, now - record.created_at)
    kind = printable(row.kind, 80)
    told = (f"written {span(age_s)} ago, {utc(record.created_at)}, for a {kind} of order {row.order_id}",)
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
        row = found.text.removeprefix("outbox-")
        coming = "nothing" if row == found.text else f"nothing; explain {row} --as outbox says what became of its row"
        return Account(what="nothing", id=found.text, where=gone, next=coming)
    published = [record for record in found.records if record.state == "published"]
    more = "; there is more on Redis than was looked at" if found.trace.is_cut else ""
    if not published:
        looked = more if found.has_book else f"; there is no order book at orders_url to ask{more}"
        is_unknown = found.token is None or found.token.state == "unknown"
        is_nothing = found.kind == "entry" or (found.order is None and is_unknown)
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
        where=f"all of it is settled: nothing waits any more, neither in the outbox nor on Redis{more}",
        history=tuple(_published(record) for record in published),
        next="nothing; what came of it is what the order book says",
    )


def _published(record: OutboxRecord) -> str:
    entry = f" as entry {printable(record.entry_id, 80)}" if record.entry_id else ", by another relay"
    kind = printable(record.row.kind, 80)
    return f"outbox row {record.row.outbox_id} ({kind}) was published {utc(record.published_at)}{entry}"


def _of_call(journal: Journal, trace: Trace, rules: Rules) -> Account:
    has_workers = any(worker.beat_age_s <= rules.liveness_ttl_s for worker in trace.workers)
    told = of_call(journal, now=trace.now, has_workers=has_workers)
    return Account(what="call", id=journal.call_id, where=told.where, history=told.history, next=told.next)


def _of_unread_call(call: TracedCall) -> Account:
    """Return what is known of a call that was not read: one of very many, or one that cannot be read."""
    where = f"call {call.call_id} of the flow {printable(call.flow, 64)} is {call.state.value}"
    return Account(what="call", id=call.call_id, where=where, next=f"explain {call.call_id} --as call says")


# -- on Redis ----------------------------------------------------------------------------


def _of_entry(entry: TracedEntry, trace: Trace, rules: Rules) -> Account:
    where, coming = _PLACES[entry.place](entry, trace, rules)
    stream = "the stream" if entry.stream is Stream.JOBS else "the critical stream"
    crashes = len(entry.crash_log)
    if crashes >= rules.max_crashes:
        vanished = counted(crashes, "process", "processes")
        coming += f"; it is dead-lettered as poison before it starts, for {vanished} vanished with it"
    elif entry.has_body and (fate := fate_of(entry.stream, entry.entry_id, entry.fields, trace.now)):
        coming += f"; {fate}"
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
    return Account(
        what="delayed",
        id=delayed.member,
        where=f"{printable(delayed.member, 80)} {_until(delayed.due_at, trace.now)}",
        history=tuple(_told("", delayed.fields, trace.now)) + _attempts(delayed.fields, rules),
        next=_after_delay(delayed, trace.now),
    )


def _until(due_at: float | None, now: float) -> str:
    if due_at is None:
        return "is a delayed job without a due time"
    if is_never_due(due_at, now):
        return "is delayed until a due time that is none"
    if due_at < 0:
        return "is due"  # a time before all times: somebody else's, and past all the same
    left_s = due_at - now
    return (
        f"is due since {span(-left_s)}" if left_s < 0 else f"is delayed for another {span(left_s)}, until {utc(due_at)}"
    )


def _after_delay(delayed: TracedDelayed, now: float) -> str:
    due_at = delayed.due_at
    if due_at is None:
        return "nothing: nobody would ever look at it; doctor --fix makes it due now"
    if is_never_due(due_at, now):
        return "nothing: its due time is none; doctor --fix makes it due now"
    if not delayed.has_body or not delayed.fields:
        return "when it is due it becomes a dead letter: its fields are missing"
    # Without an origin it is as old as the id that it will have.
    fate = fate_of(Stream.JOBS, f"{now * 1000:.0f}-0", delayed.fields, now)
    if due_at < now - LATE_S:
        back = "a worker puts it back into its stream; it is due for so long only when none runs"
        return f"{back}; {fate}" if fate else back
    return f"then a worker puts it back into its stream{'; ' + fate if fate else ', and the next free slot takes it'}"


def _of_letter(letter: Letter, now: float) -> Account:
    age_s = max(0.0, now - queued_ms(letter.dead_id) / 1000)
    problem = problem_of(letter)
    crashes = (
        (f"{counted(len(letter.history), 'process', 'processes')} vanished while holding it",) if letter.history else ()
    )
    requeue = f"nothing by itself; dead requeue {letter.dead_id} puts it back as a first attempt"
    hopeless = f"nothing; it cannot be put back: {printable(problem or '', 500)}; dead drop {letter.dead_id} deletes it"
    why = f"{printable(letter.reason)}: {printable(letter.error, 500)}"
    return Account(
        what="dead",
        id=letter.dead_id,
        where=f"it is the dead letter {letter.dead_id} since {span(age_s)}, {why}",
        history=(*_told(letter.entry_id, letter.fields, now), *crashes),
        next=hopeless if problem else requeue,
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
    said = [_numbered(words, printable(text[name], 20)) for name, words in counts.items() if text.get(name, "0") != "0"]
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
    if not attempt.isdigit() or len(attempt) > _DIGITS:
        return ()  # no number that a job may have
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
