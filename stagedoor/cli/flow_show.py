"""One call as a screen: what it is, what it waits for, and its steps as a timeline. Pure."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from rich.text import Text

from stagedoor.cli.output import facts, safe, table, utc
from stagedoor.cli.text import counted, printable, span
from stagedoor.core.call import CallState, Kind, Step, StepState
from stagedoor.core.history_data import error_of, waiting_for
from stagedoor.core.journal import Journal

STYLES: Mapping[CallState, str] = {
    CallState.WAITING: "",
    CallState.RUNNING: "cyan",
    CallState.SLEEPING: "",
    CallState.DONE: "green",
    CallState.FAILED: "red",
    CallState.ABORTED: "yellow",
    CallState.CANCELLED: "yellow",
    CallState.PARKED: "bold red",
}
_MARKS: Mapping[StepState, tuple[str, str]] = {
    StepState.RUNNING: ("▸", "cyan"),
    StepState.RETRY: ("↻", "yellow"),
    StepState.SLEEPING: ("…", "dim"),
    StepState.WAITING: ("…", "dim"),
    StepState.DONE: ("✓", "green"),
    StepState.FAILED: ("✗", "red"),
}
_NOT_DONE = ("✗", "yellow")
BAR = 16
"""Cells of the timeline: with the other columns, a screen of 80."""
FIRST, LAST = 10, 50
"""Steps that are shown of a long history, from its beginning and from its end."""
MOST_ERRORS = 8
_LONGEST_VALUE = 200
_LARGEST = 1e12
"""No time in seconds, and no span of them, is as large."""


@attrs.frozen(kw_only=True)
class Stretch:
    """From when to when something went on, Unix seconds; *ran_s* is how long its last attempt ran."""

    since: float | None
    until: float | None
    ran_s: float | None


def stretch_of(step: Step, now: float) -> Stretch:
    """Return when a step went on, as far as its record says; one that is not over lasts until now."""
    at, since, ran_s = (_number(step.more.get(name)) for name in ("at", "since", "ran_s"))
    is_over = step.state in {StepState.DONE, StepState.FAILED}
    if since is None and at is not None:
        since = at - (ran_s or 0.0) if is_over or step.state is StepState.RETRY else at
    return Stretch(since=since, until=at if is_over else None if since is None else now, ran_s=ran_s)


def _number(value: object) -> float | None:
    """Return a number of a step's `more`, None for what is none, or none of ours."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < _LARGEST else None


def due_text(due_at: float, now: float) -> str:
    """Return when something is due, as people say it."""
    left_s = due_at - now
    return f"in {span(left_s)}" if left_s >= 0 else f"due since {span(-left_s)}"


def screen_of(journal: Journal, *, now: float) -> Iterator[Any]:
    """Yield the parts of the screen."""
    state = journal.state
    yield Text.assemble(
        (f"Call {journal.call_id}", "bold"), f"  {printable(journal.flow)}  ", (state.value, STYLES[state])
    )
    yield facts(_facts(journal, now))
    yield Text()
    yield from _timeline(journal, now)
    error = error_of(journal)
    if error:
        yield from (Text(), safe_long(error, "red"))
    hint = hint_of(journal)
    if hint:
        yield from (Text(), Text(f"next: {hint}"))


def safe_long(text: str, style: str) -> Text:
    """Return a long text from elsewhere, not cut before it is read."""
    return Text(printable(text, 2000), style=style)


def _facts(journal: Journal, now: float) -> Iterator[tuple[str, object]]:
    yield "started", f"{utc(journal.created_at)}, {span(max(0.0, now - journal.created_at))} ago"
    if journal.ended_at is not None:
        took = span(max(0.0, journal.ended_at - journal.created_at))
        yield "ended", f"{utc(journal.ended_at)}, after {took}"
    end = "times out " if journal.state is CallState.WAITING else ""
    due = "" if journal.due_at is None else f", {end}{due_text(journal.due_at, now)}"
    waits = waiting_for(journal)
    if waits or due:
        yield "waits for", waits + due
    if journal.is_cancel_requested and not journal.state.has_ended:
        yield "cancel", "was asked for"
    for name, value in journal.metadata.items():
        yield printable(name, 40), value
    for name, letters in journal.mailbox.items():
        yield "mailbox", f"{len(letters)} × signal {printable(name, 40)!r} not taken yet: {_shown(letters[0])}"
    outcome = journal.outcome
    if outcome is not None and outcome.result is not None:
        yield "result", _shown(outcome.result)


def _shown(text: str) -> str:
    return printable(text, _LONGEST_VALUE)


def hint_of(journal: Journal) -> str:
    """Return the command that somebody may want to give next, empty where there is none."""
    if journal.state is CallState.PARKED:
        return f"put right what parked it, then flow resume {journal.call_id}; or flow cancel {journal.call_id}"
    awaited = awaited_signal(journal)
    return f"python -m stagedoor flow signal {journal.call_id} {shlex.quote(awaited)} VALUE" if awaited else ""


def awaited_signal(journal: Journal) -> str:
    """Return the name of the signal that a call waits for, empty where it waits for none."""
    if journal.state is not CallState.WAITING or journal.is_queued:
        return ""
    for key, step in journal.steps.items():
        if step.kind is Kind.SIGNAL and step.state is StepState.WAITING:
            return printable(str(step.more.get("signal", key)), 80)
    return ""


# -- the timeline -------------------------------------------------------------------------


def _timeline(journal: Journal, now: float) -> Iterator[Any]:
    steps, has_ended = journal.steps, journal.state.has_ended
    now = now if journal.ended_at is None else journal.ended_at  # nothing goes on after its end
    rows = [(key, step) for key, step in steps.items() if step.kind is not Kind.ITEM]
    if not rows:
        yield Text("no steps yet", style="dim")
        return
    scale = _Scale.of(journal, rows, now)
    made = table("", "", "step", "", "tries", "took", *([""] if scale else []), right=("tries", "took"))
    for number, (key, step) in enumerate(rows):
        if FIRST <= number < len(rows) - LAST:
            if number == FIRST:
                made.add_row("", "", Text(f"… {len(rows) - FIRST - LAST:,} more", style="dim"))
            continue
        made.add_row(*_row(key, step, scale, now, has_ended=has_ended))
        if step.kind is Kind.GATHER:
            made.add_row("", "", Text(_items_of(key, step, steps), style="dim"))
    yield made
    yield from _errors(steps, has_ended=has_ended)


def _errors(steps: Mapping[str, Step], *, has_ended: bool) -> Iterator[Text]:
    """Yield the error of each step that is not well, below the table: a column is too narrow for it."""
    bad = [(key, step) for key, step in steps.items() if step.error and step.state is not StepState.DONE]
    if bad:
        yield Text()
    for key, step in bad[:MOST_ERRORS]:
        mark, style = _mark(step, has_ended=has_ended)
        said = f" after {counted(step.attempts, 'attempt')}: {printable(step.error, 300)}"
        yield Text.assemble((mark, style), " ", (printable(key, 80), "bold"), said)
    if len(bad) > MOST_ERRORS:
        yield Text(f"… {len(bad) - MOST_ERRORS:,} more", style="dim")


def _mark(step: Step, *, has_ended: bool) -> tuple[str, str]:
    """Return a step's mark; what an ended call has left undone is not under way any more."""
    return _NOT_DONE if has_ended and _is_open(step) else _MARKS[step.state]


def _is_open(step: Step) -> bool:
    return step.state not in {StepState.DONE, StepState.FAILED}


def _row(key: str, step: Step, scale: "_Scale | None", now: float, *, has_ended: bool) -> list[Text]:
    mark, style = _mark(step, has_ended=has_ended)
    stretch = stretch_of(step, now)
    tries = f"{step.attempts}" if step.attempts > 1 or step.state is StepState.RETRY else ""
    told = [
        Text("" if step.place is None else f"{step.place}", style="dim"),
        Text(mark, style=style),
        safe(key),
        Text.assemble(*_what(step, now, has_ended=has_ended)),
        Text(tries, style="yellow"),
        Text(_took(step, stretch), style="dim"),
    ]
    return [*told, scale.bar(stretch, style)] if scale else told


def _what(step: Step, now: float, *, has_ended: bool) -> Iterator[tuple[str, str]]:
    if step.kind is not Kind.STEP:
        yield f"{step.kind.value} ", "dim"
    if has_ended and _is_open(step):
        yield "not done", _NOT_DONE[1]
        return
    if step.state not in {StepState.DONE, StepState.SLEEPING, StepState.WAITING}:
        yield step.state.value, _MARKS[step.state][1]
    if step.due_at is not None and step.state in _DUE:
        yield f"{_DUE[step.state]}{due_text(step.due_at, now)}", "dim"


_DUE = {StepState.RETRY: " ", StepState.SLEEPING: "ends ", StepState.WAITING: "times out "}


def _took(step: Step, stretch: Stretch) -> str:
    """Return how long the last attempt ran, or how long the call slept, waited or gathered."""
    if stretch.ran_s is not None:
        return span(stretch.ran_s)
    since, at = _number(step.more.get("since")), _number(step.more.get("at"))
    is_over = step.state in {StepState.DONE, StepState.FAILED}
    return span(max(0.0, at - since)) if is_over and since is not None and at is not None else ""


def _items_of(key: str, gather: Step, steps: Mapping[str, Step]) -> str:
    """Return how many of a gather's items are in which state."""
    states = Counter(step.state for name, step in steps.items() if step.kind is Kind.ITEM and _parent_of(name) == key)
    others = [f", {count:,} {state.value}" for state, count in states.items() if state is not StepState.DONE]
    length = gather.more.get("length", states.total())
    return f"  {states[StepState.DONE]:,} of {counted(length, 'item')}{''.join(others)}"


def _parent_of(name: str) -> str:
    return name.rpartition("/")[0]


@attrs.frozen
class _Scale:
    """From when to when the bars reach."""

    since: float
    until: float

    @classmethod
    def of(cls, journal: Journal, rows: list[tuple[str, Step]], now: float) -> "_Scale | None":
        """Return the scale of a call, None where its steps have no times."""
        stretches = [stretch_of(step, now) for _key, step in rows]
        since = [one.since for one in stretches if one.since is not None]
        until = [one.until for one in stretches if one.until is not None]
        if not since or not until:
            return None
        return cls(min(*since, journal.starts_at or since[0]), max(until))

    def bar(self, stretch: Stretch, style: str) -> Text:
        """Return when something went on, as a bar; what took no time to speak of has one cell."""
        if stretch.since is None or stretch.until is None:
            return Text()
        whole = max(self.until - self.since, 1e-9)
        first = min(BAR - 1, int(BAR * max(0.0, stretch.since - self.since) / whole))
        cells = max(1, min(BAR - first, round(BAR * (stretch.until - stretch.since) / whole)))
        return Text.assemble(("·" * first, "dim"), ("■" * cells, style), ("·" * (BAR - first - cells), "dim"))
