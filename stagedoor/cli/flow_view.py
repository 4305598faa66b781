"""Calls of flows: what is asked of them, and what is said of it; one of them whole is in `flow_show`."""

import contextlib
import difflib
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.text import Text

from stagedoor.broker.call_texts import CallSettings
from stagedoor.broker.calls import CallLine, Calls, NewCall, Told
from stagedoor.broker.connection import Link, masked
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.cli.flow_show import STYLES, awaited_signal, due_text, screen_of
from stagedoor.cli.output import print_json, safe, show, table, utc
from stagedoor.cli.text import printable, span
from stagedoor.core.call import CallState
from stagedoor.core.history_data import data_of, readable
from stagedoor.core.journal import is_call_id
from stagedoor.core.keys import Keys
from stagedoor.errors import BrokerError, BrokerUnavailable
from stagedoor.flows import new_call_id
from stagedoor.settings import Settings

PAGE = 500
_GONE = "there is no such call: its id is another one, or it ended and was kept no longer"
_TOLD: Mapping[Told, str] = {
    Told.UNKNOWN: _GONE,
    Told.ENDED: "its end is decided, and nothing changes it any more",
    Told.FULL: "its mailbox is full, or it keeps all that it may: nothing was sent",
    Told.NOT_PARKED: "it is not parked: it goes on by itself",
}


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Calls]:
    """Open the calls of a namespace.

    Raises:
        BrokerUnavailable: Redis cannot be asked; says where it was looked for.
    """
    link = Link(settings.redis_url, block_ms=0, namespace=settings.namespace)
    try:
        yield RedisCalls(link, Keys(settings.namespace), settings=CallSettings(stream_maxlen=settings.stream_maxlen))
    except BrokerUnavailable as error:
        raise BrokerUnavailable(f"{masked(settings.redis_url)}: {error}") from error
    finally:
        link.close()


# -- starting -------------------------------------------------------------------------


def check_name(settings: Settings, name: str, *, is_anyway: bool) -> None:
    """Return if a flow of this name may be started from here.

    Raises:
        click.UsageError: it is not installed here; says what is.
        ConfigurationError: a plugin cannot be imported.
    """
    from stagedoor.cli.plugins import load_flows  # noqa: PLC0415 - only this command loads plugins

    if not is_call_id(name):  # flows and calls are named by one rule
        raise click.UsageError(
            f"the flow's name {name[:70]!a} is not 1 to 64 letters, digits, '.', '_' or '-'; nothing was started"
        )
    if is_anyway:
        return
    known = sorted(load_flows(settings.plugins))
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    there = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}" if known else "there is none"
    raise click.UsageError(
        f"no flow {name!r} is installed here ({there}); a flow's module belongs into the setting plugins, "
        "and with --anyway the call waits for a worker that has it"
    )


def new_call(name: str, call_id: str | None, metadata: Mapping[str, str], delay_s: float) -> NewCall:
    """Return the call to start, under a random id where none was given."""
    return NewCall(call_id=call_id or new_call_id(), flow=name, metadata=metadata, delay_s=delay_s)


def start(calls: Calls, wanted: NewCall, *, as_json: bool) -> int:
    """Start a call, and say whether there was one of this id; returns the exit code."""
    started = calls.start(wanted)
    code = int(started.flow != wanted.flow)
    if as_json:
        told = {"flow": started.flow, "state": started.state.value, "created": started.created}
        print_json({"id": wanted.call_id} | told)
    elif started.created:
        when = f"; it begins in {span(wanted.delay_s)}" if wanted.delay_s else ""
        print(f"call {wanted.call_id} of {wanted.flow} is started{when}")
    elif code:
        print(f"nothing was started: {wanted.call_id} is a call of another flow, {printable(started.flow)}")
    else:
        print(f"there is a call {wanted.call_id} of {wanted.flow} already, {started.state.value}: nothing was started")
    return code


# -- telling ----------------------------------------------------------------------------


def signal(calls: Calls, call_id: str, name: str, value: str, *, as_json: bool) -> int:
    """Send a signal; returns the exit code."""
    # Before it is sent: any signal wakes the call, and then it waits for a worker.
    awaited = "" if as_json else _awaits_another(calls, call_id, name)
    told = calls.signal(call_id, name, value, token=uuid.uuid4().hex)
    said = f"signal {printable(name)!r} is in the mailbox of call {call_id}{awaited}"
    return _say(call_id, told, said, as_json=as_json)


def _awaits_another(calls: Calls, call_id: str, name: str) -> str:
    """Return which signal a call waits for where it is not this one, which may be a misspelt one."""
    with contextlib.suppress(BrokerError):  # it can be told all the same, or that says what is wrong
        journal = calls.show(call_id)
        awaited = awaited_signal(journal) if journal is not None else ""
        if awaited and awaited != printable(name, 80):
            return f"; the call waits for {awaited!r}"
    return ""


def cancel(calls: Calls, call_id: str, *, as_json: bool) -> int:
    """Ask for a call's end; returns the exit code."""
    said = f"call {call_id} is asked to end: it does so at its next operation"
    return _say(call_id, calls.cancel(call_id), said, as_json=as_json)


def resume(calls: Calls, call_id: str, *, as_json: bool) -> int:
    """Let a parked call go on; returns the exit code."""
    return _say(call_id, calls.resume(call_id), f"call {call_id} goes on", as_json=as_json)


def _say(call_id: str, told: Told, said: str, *, as_json: bool) -> int:
    is_told = told is Told.TOLD
    if as_json:
        print_json({"id": call_id, "told": is_told, "problem": None if is_told else told.value})
    else:
        print(said if is_told else f"{call_id}: {_TOLD[told]}")
    return int(not is_told)


# -- looking ------------------------------------------------------------------------------


def show_call(calls: Calls, call_id: str, *, as_json: bool) -> int:
    """Show a call; returns the exit code."""
    journal = calls.show(call_id)
    if journal is None:
        print_json({"id": call_id, "found": False}) if as_json else print(f"{call_id}: {_GONE}")
        return 1
    readable(journal)
    if as_json:
        print_json(data_of(journal))
    else:
        show(*screen_of(journal, now=time.time()))
    return 0


def list_calls(calls: Calls, state: CallState | None, *, limit: int, as_json: bool) -> None:
    """Print calls, those first that are due first."""
    found, more = _collected(calls, state, limit)
    if as_json:
        print_json({"calls": [_line_data(line) for line in found], "more": more})
        return
    if not found:
        print("no calls" if state is None else f"no calls are {state.value}")
        return
    show(_lines(found, time.time()))
    if more:
        print(f"… there are more: flow list --limit {limit * 10}")


def _collected(calls: Calls, state: CallState | None, limit: int) -> tuple[list[CallLine], bool]:
    found: list[CallLine] = []
    after = ""
    while True:
        page = calls.list_calls(state=state, after=after, limit=PAGE)
        found += page.calls
        after = page.after
        if len(found) > limit or not after:
            return found[:limit], len(found) > limit


def _line_data(line: CallLine) -> dict[str, Any]:
    return {
        "id": line.call_id,
        "flow": line.flow,
        "state": line.state.value,
        "waiting_for": line.waiting_for or None,
        "created_at": utc(line.created_at),
        "due_at": utc(line.due_at),
    }


def _lines(found: list[CallLine], now: float) -> Any:
    made = table("call", "flow", "state", "age", "waits for", right=("age",))
    for line in found:
        due = f", {due_text(line.due_at, now)}" if line.due_at is not None else ""
        waits = line.waiting_for or ("a worker" if line.state is CallState.WAITING else "")
        made.add_row(
            safe(line.call_id),
            safe(line.flow, "dim"),
            Text(line.state.value, style=STYLES[line.state]),
            Text(span(max(0.0, now - line.created_at)), style="dim"),
            safe(printable(waits, 80) + due),
        )
    return made
