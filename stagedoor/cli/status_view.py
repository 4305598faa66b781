"""What ``status`` shows: JSON with a fixed shape, and one calm screen."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from rich.table import Table
from rich.text import Text

from stagedoor.broker.connection import Link, masked
from stagedoor.broker.inspection import Inspection, Overview, StreamView, WorkerView
from stagedoor.cli.flow_show import STYLES
from stagedoor.cli.output import print_json, safe, show, table
from stagedoor.cli.text import counted, printable, span, unknown_kinds
from stagedoor.core.call import CallState
from stagedoor.core.keys import Keys
from stagedoor.errors import BrokerUnavailable, ConfigurationError
from stagedoor.orders import Backlog, OrderBookUnavailable, Outbox, open_engine
from stagedoor.orders.engine import Database
from stagedoor.settings import Settings

BAR = 8
"""Cells of a worker's bar; with the usual eight slots, one each."""
FLOW_STATES = (CallState.WAITING, CallState.RUNNING, CallState.SLEEPING, CallState.FAILED, CallState.PARKED)


def look(settings: Settings) -> Overview:
    """Return what is on Redis.

    Raises:
        BrokerUnavailable: it cannot be asked; says where it was looked for.
    """
    link = Link(settings.redis_url, block_ms=0, namespace=settings.namespace)
    try:
        return Inspection(link, Keys(settings.namespace)).look()
    except BrokerUnavailable as error:
        raise BrokerUnavailable(f"{masked(settings.redis_url)}: {error}") from error
    finally:
        link.close()


# -- for programs ---------------------------------------------------------------


def print_data(overview: Overview) -> None:
    """Print the JSON object."""
    print_json(data_of(overview))


def data_of(overview: Overview) -> dict[str, Any]:
    """Return what ``status --json`` prints: what tools rely on; the outbox and unknown kinds are for people only."""
    return {
        "stream": _stream_data(overview.stream),
        "critical": _stream_data(overview.critical),
        "pool": overview.pool,
        "delayed": overview.delayed,
        "dead": overview.dead,
        "trimmed_unread": overview.trimmed_unread,
        "workers": [attrs.asdict(worker) for worker in overview.workers],
        "flows": {state.value: overview.calls[state] for state in FLOW_STATES},
    }


def _stream_data(view: StreamView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in ("length", "unread", "pending", "oldest_age_s")}


# -- for people -------------------------------------------------------------------


def print_screen(overview: Overview, settings: Settings) -> None:
    """Print one screen."""
    backlog = look_at_outbox(settings.orders_url)
    where = Text.assemble(("Stagedoor", "bold"), f"  {settings.namespace} at ", printable(masked(settings.redis_url)))
    flows = [part for line in _flows(overview) for part in (Text(), line)]
    parts: list[Any] = [where, Text(), _queues(overview, backlog), *flows, Text(), _workers(overview, settings)]
    remarks = list(remarks_on(overview, settings, backlog=backlog))
    if remarks:
        parts += [Text(), *(Text.assemble(("! ", style), (text, "")) for text, style in remarks)]
    show(*parts)


def _queues(overview: Overview, backlog: Backlog | None) -> Table:
    made = table("", "waiting", "in hand", "oldest", right=("waiting", "in hand", "oldest"))
    if backlog is not None:
        made.add_row("outbox", _count(backlog.waiting), "", _age(backlog.oldest_age_s))
    made.add_row("stream", *_stream_row(overview.stream))
    made.add_row("critical", *_stream_row(overview.critical))
    made.add_row("delayed", _count(overview.delayed), "", "")
    made.add_row("dead", _count(overview.dead, "red"), "", "")
    return made


def _stream_row(view: StreamView) -> tuple[Text, Text, Text]:
    # What lies in the pool is pending to Redis, but to a person it waits.
    return _count(view.unread + view.pool), _count(view.pending - view.pool), _age(view.oldest_age_s)


def _count(number: int, style: str = "") -> Text:
    return Text(f"{number:,}", style=style if number else "dim")


def _age(seconds: float | None) -> Text:
    return Text(span(seconds), style="" if seconds else "dim")


def _workers(overview: Overview, settings: Settings) -> Any:
    if not overview.workers:
        return Text("no workers", style="yellow" if overview.stream.length else "dim")
    made = table("worker", "slots", "held", "host", "pid", "last beat", "", right=("held", "pid", "last beat"))
    for worker in overview.workers:
        state, style = _state(worker, settings)
        # What a lapsed worker held when it was last heard of is somebody else's by now.
        is_lapsed = worker.beat_age_s > settings.liveness_ttl_s
        made.add_row(
            safe(worker.name, style),
            Text() if is_lapsed else _bar(worker),
            Text() if is_lapsed else Text(f"{worker.held}/{worker.slots}"),
            safe(worker.host, "dim"),
            safe(worker.pid, "dim"),
            Text(f"{span(worker.beat_age_s)} ago", style="dim"),
            Text(state, style=style),
        )
    return made


def _flows(overview: Overview) -> Iterator[Text]:
    """Yield a line of how many calls are in which state, where there are any."""
    there = [state for state, count in overview.calls.items() if count]
    if not there:
        return
    words = [(f"{overview.calls[state]:,} {state.value}", STYLES[state]) for state in there]
    separated = [part for word in words for part in (("  ", ""), word)]
    yield Text.assemble(("flows", "dim"), *separated)


def _bar(worker: WorkerView) -> Text:
    """Return the slots in use as a bar; orphaned ones are red, read-ahead beyond the slots does not show."""
    slots = max(worker.slots, 1)
    orphaned = min(BAR, round(BAR * worker.orphaned / slots))
    busy = min(BAR - orphaned, round(BAR * max(0, worker.held - worker.orphaned) / slots))
    return Text.assemble(("■" * orphaned, "red"), ("■" * busy, "green"), ("·" * (BAR - orphaned - busy), "dim"))


def _state(worker: WorkerView, settings: Settings) -> tuple[str, str]:
    if worker.beat_age_s > settings.liveness_ttl_s:
        return "lapsed", "red"
    if worker.stopping:
        return "stopping", "yellow"
    return (f"{worker.orphaned} orphaned", "red") if worker.orphaned else ("", "")


def remarks_on(overview: Overview, settings: Settings, *, backlog: Backlog | None) -> Iterator[tuple[str, str]]:
    """Yield what somebody should look at, with how it is coloured."""
    live = [worker for worker in overview.workers if worker.beat_age_s <= settings.liveness_ttl_s]
    owed = overview.stream.length + overview.critical.length
    if owed and not live:
        yield f"{counted(owed, 'entry waits', 'entries wait')} and no worker is there: python -m stagedoor", "yellow"
    if overview.trimmed_unread:
        lost = (
            f"at least {counted(overview.trimmed_unread, 'entry was', 'entries were')} deleted before anybody read them"
        )
        yield f"{lost}: lost jobs; find out who trims the stream", "red"
    if overview.dead:
        letters = counted(overview.dead, "dead letter: a job that was", "dead letters: jobs that were")
        yield f"{letters} given up, each with its reason: dead list", "red"
    for seen in unknown_kinds(overview.unknown_kinds, looked_at=overview.kinds_looked_at):
        yield f"{seen}: is a module missing in plugins?", "red"
    if parked := overview.calls[CallState.PARKED]:
        calls = counted(parked, "call is parked: it waits", "calls are parked: they wait")
        yield f"{calls} for somebody: flow list --state parked", "red"
    if backlog is not None and backlog.waiting and (backlog.oldest_age_s or 0) > SLOW_RELAY_S:
        rows = counted(backlog.waiting, "outbox row waits", "outbox rows wait")
        yield f"{rows} for a relay: python -m stagedoor relay", "yellow"
    if backlog is not None and backlog.parked:
        rows = counted(backlog.parked, "outbox row is parked: it", "outbox rows are parked: they")
        yield f"{rows} can never make an entry; doctor names them", "red"


SLOW_RELAY_S = 10.0
"""A relay takes a row within a fraction of a second; this late, there is none or the stream is full."""


# -- the outbox -----------------------------------------------------------------------


def look_at_outbox(url: str) -> Backlog | None:
    """Return what waits in the outbox; None where there is no order book, and none is made."""
    try:
        engine = open_engine(url)
    except ConfigurationError:
        return None
    database = Database(engine)
    try:
        if database.is_sqlite and not Path(str(engine.url.database)).is_file():
            return None
        return Outbox(database, book_id="", clock=time.time).backlog()
    except (OrderBookUnavailable, ConfigurationError):
        return None
    finally:
        database.close()
