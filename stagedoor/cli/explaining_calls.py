"""What ``explain`` says of a flow's call: where it is, what it has done, and what comes next. Pure."""

import shlex
from collections.abc import Iterator

import attrs

from stagedoor.cli.flow_show import awaited_signal, due_text
from stagedoor.cli.output import utc
from stagedoor.cli.text import counted, printable, span
from stagedoor.core.call import CallState, StepState
from stagedoor.core.history_data import error_of, waiting_for
from stagedoor.core.journal import Journal

LATE_S = 5.0
"""A timer is taken within a second; later than this, no worker runs."""


@attrs.frozen(kw_only=True)
class CallFacts:
    """A call in sentences."""

    where: str
    history: tuple[str, ...]
    next: str


def entry_of(journal: Journal) -> str:
    """Return the id of the entry through which a call goes on or runs, empty where there is none."""
    place = journal.status.get(".queued" if journal.is_queued else ".entry", "")
    place = place.removeprefix("d:")  # an entry that a worker has delayed
    return place.partition(":")[2] if journal.is_queued or journal.state is CallState.RUNNING else ""


def of_call(journal: Journal, *, now: float, has_workers: bool) -> CallFacts:
    """Return what there is to say about a call; *now* is Unix seconds by Redis' clock."""
    error = error_of(journal)
    why = f": {printable(error, 500)}" if error else ""
    where = f"call {journal.call_id} of the flow {printable(journal.flow, 64)} {_is(journal)}{why}"
    coming = _next(journal, now, has_workers=has_workers)
    return CallFacts(where=where, history=tuple(_history(journal, now)), next=coming)


def _is(journal: Journal) -> str:
    match journal.state:
        case CallState.WAITING | CallState.SLEEPING:
            return f"is {journal.state.value}, for {printable(waiting_for(journal), 200)}"
        case CallState.DONE | CallState.FAILED:
            return {CallState.DONE: "is done", CallState.FAILED: "has failed"}[journal.state]
        case CallState.ABORTED | CallState.CANCELLED:
            return f"was {journal.state.value}"
        case _:
            return f"is {journal.state.value}"


def _history(journal: Journal, now: float) -> Iterator[str]:
    passes = f", {journal.epoch} passes so far" if journal.epoch > 1 else ""
    yield f"started {span(max(0.0, now - journal.created_at))} ago, {utc(journal.created_at)}{passes}"
    named = [f"{name} {value}" for name, value in journal.metadata.items() if value]
    if named:
        yield printable(", ".join(named))
    steps = journal.steps
    if steps:
        done = sum(step.state is StepState.DONE for step in steps.values())
        yield f"{done} of {counted(len(steps), 'recorded step is', 'recorded steps are')} done"
    for key, step in steps.items():
        if step.error and step.state in {StepState.RETRY, StepState.FAILED}:
            what = "has failed" if step.state is StepState.FAILED else "is tried again"
            yield printable(f"step {key!r} {what} after {counted(step.attempts, 'attempt')}: {step.error}")
    if journal.ended_at is not None:
        yield f"ended {span(max(0.0, now - journal.ended_at))} ago, {utc(journal.ended_at)}"
    if journal.is_cancel_requested and not journal.state.has_ended:
        yield "its cancel was asked for"


def _next(journal: Journal, now: float, *, has_workers: bool) -> str:
    if journal.state.has_ended:
        return "nothing; what is kept of it is forgotten some days after its end"
    if journal.state is CallState.PARKED:
        return f"nothing until somebody has put that right and says flow resume {journal.call_id}, or flow cancel"
    if journal.is_queued or journal.state is CallState.RUNNING:
        what = "runs it further" if journal.is_queued else "does what it can now, and puts it to rest or ends it"
        return f"a worker {what}" if has_workers else "nothing until a worker runs: there is none"
    signal = awaited_signal(journal)
    command = f"python -m stagedoor flow signal {journal.call_id} {shlex.quote(signal)} VALUE"
    sent = f"it goes on when somebody says {command}" if signal else ""
    if journal.due_at is None:
        return sent or "it goes on when somebody wakes it: by a signal, or by flow cancel"
    when = "at once" if journal.due_at <= now else due_text(journal.due_at, now)
    timer = f"a worker goes on with it {when}"
    if journal.due_at < now - LATE_S:
        timer = "a worker goes on with it; it is due for so long only when none runs"
    return f"{sent}, and else {timer}" if sent else timer
