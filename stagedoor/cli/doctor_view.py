"""The doctor at work: looks everywhere, shows findings, and mends what can be mended."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from rich.console import RenderableType
from rich.text import Text

from stagedoor.broker.calls import Told
from stagedoor.broker.checkup import Checkup
from stagedoor.broker.connection import Link, masked
from stagedoor.broker.inspection import Inspection, Overview
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.cli.books import Books, books_of
from stagedoor.cli.findings import Cure, Finding, good, of_examination, of_overview, of_server
from stagedoor.cli.findings_book import (
    Under,
    files_said,
    of_invariant,
    of_leftovers,
    of_namespace,
    of_outbox,
    under_way,
)
from stagedoor.cli.output import hanging, print_json, show
from stagedoor.cli.plugins import load_plugins
from stagedoor.cli.text import counted, printable
from stagedoor.core.keys import ROWS_PER_BITMAP, Keys
from stagedoor.errors import BrokerError, BrokerUnavailable, ConfigurationError, OrderError
from stagedoor.orders import Backlog
from stagedoor.settings import Settings

_MARKS = {"good": ("✓", "green"), "note": ("·", "dim"), "wrong": ("✗", "red")}
_MEND_CHUNK = 500
_MOST_BITMAPS = 1000


def run(settings: Settings, *, gil_culprits: Sequence[str], is_fixing: bool, as_json: bool) -> int:
    """Examine, and mend where that was asked for; returns the exit code."""
    plugins = list(_plugins(settings, gil_culprits))
    with _opened(settings) as room:
        findings = [*plugins, *room.examine()]
        done = room.mend(findings) if is_fixing else []
        left = [*plugins, *room.examine()] if done else findings
    if as_json:
        data = {"findings": [_data(one) for one in findings], "fixed": done, "left": [_data(one) for one in left]}
        print_json(data if is_fixing else {"findings": data["findings"]})
    else:
        _show(findings, done, left)
    return int(any(one.level == "wrong" for one in left))


def _plugins(settings: Settings, gil_culprits: Sequence[str]) -> Iterator[Finding]:
    try:
        plugins = load_plugins(settings.plugins, ticket_renderer=settings.ticket_renderer, gil_culprits=gil_culprits)
    except ConfigurationError as error:
        for problem in error.problems:
            yield Finding(about="plugins", level="wrong", seen=problem, means="a worker does not start like this")
        return
    for note in plugins.notes:
        yield Finding(about="plugins", level="note", seen=note)
    names = ", ".join(item.name for item in plugins.registry.installed) or "none"
    kinds = f"{counted(len(plugins.handlers), 'handler')}, {counted(len(plugins.flows), 'flow')}"
    yield good("plugins", f"{kinds}; renderers: {names}; they load and warm up")


@attrs.frozen(kw_only=True)
class _Room:
    """Where the doctor looks; *books* is None where there is no order book, *trouble* says why one will not do."""

    settings: Settings
    link: Link
    books: Books | None
    trouble: tuple[str, ...] = ()

    @property
    def keys(self) -> Keys:
        """The namespace's key names."""
        return Keys(self.settings.namespace)

    # -- looking ------------------------------------------------------------------------

    def examine(self) -> list[Finding]:
        """Look at everything."""
        overview: Overview | None = None
        found: list[Finding] = []
        try:
            found += self._server()
            examination = Checkup(self.link, self.keys).examine(self._keys_of_book())
            overview = self._overview()
            found += of_examination(examination, overview, self.settings)
            if overview is not None:
                found += of_overview(overview, self.settings)
        except BrokerUnavailable as error:
            where = masked(self.settings.redis_url)
            found += of_server([f"Redis cannot be asked at {where}: {error}"], [])
        return [*found, *self._book(overview)]

    def _keys_of_book(self) -> Mapping[str, str]:
        """Return the keys by which rows that wait are published, and what each must be."""
        if self.books is None:
            return {}
        outbox = self.books.orders.outbox
        try:
            waiting = outbox.waiting_ids()
        except OrderError:
            return {}  # a finding of its own
        rows = range(waiting[0], waiting[1] + 1, ROWS_PER_BITMAP) if waiting else ()
        bitmaps = {self.keys.published_rows(outbox.book_id(), row) for row in (*rows[:_MOST_BITMAPS], *(waiting or ()))}
        return {self.keys.published(outbox.book_id()): "hash", **dict.fromkeys(sorted(bitmaps), "string")}

    def _server(self) -> list[Finding]:
        try:
            warnings = self.link.check_server()
        except ConfigurationError as error:
            return list(of_server(error.problems, []))
        return list(of_server([], warnings))

    def _overview(self) -> Overview | None:
        try:
            return Inspection(self.link, self.keys).look()
        except BrokerUnavailable:
            raise
        except BrokerError:
            return None  # a key of another type, which is a finding of its own

    def _book(self, before: Overview | None) -> Iterator[Finding]:
        for problem in self.trouble:
            yield Finding(about="order book", level="wrong", seen=problem, means="a worker does not start like this")
        if self.books is None:
            if not self.trouble:
                seen = "there is none at orders_url yet, and so no tickets folder was tried"
                yield Finding(about="order book", level="note", seen=seen)
            return
        yield good("tickets folder", f"{self.books.orders.store.root} can be written to")
        outbox = self.books.orders.outbox
        try:
            yield from of_namespace(outbox.namespace(), self.settings)
            backlog = outbox.backlog()
            yield from of_outbox(backlog, outbox.parked())
            report = self.books.orders.check_invariant()
            yield from of_invariant(report, under=self._under(before, (backlog, outbox.backlog())))
            yield from of_leftovers(self.books.orders.leftovers(report))
        except OrderError as error:
            yield Finding(about="order book", level="wrong", seen=str(error), means="nothing works without it")

    def _look_again(self, before: Overview | None) -> Overview | None:
        with contextlib.suppress(BrokerError):
            return None if before is None else self._overview()
        return None

    def _under(self, before: Overview | None, backlogs: Sequence[Backlog]) -> Under:
        """Return what was under way before the orders were looked at, or is now: what counts is where there is more."""
        found = {under_way(before), under_way(self._look_again(before))}
        if "work" in found or any(backlog.waiting for backlog in backlogs):
            return "work"
        return "unknown" if "unknown" in found else "nothing"

    # -- mending --------------------------------------------------------------------------

    def mend(self, findings: Sequence[Finding]) -> list[str]:
        """Do what the findings say can be done, each once; returns what was done, in sentences."""
        cures = dict.fromkeys(finding.cure for finding in findings if finding.cure is not None)
        return [said for cure in cures for said in self._cure(cure)]

    def _cure(self, cure: Cure) -> Iterator[str]:
        match cure.verb:
            case "set_aside":
                key, must_be = cure.items
                name = Checkup(self.link, self.keys).set_aside(key, must_be)
                yield f"{key} is now {name}" if name else f"{key} is in order by now"
            case "make_groups":
                self._deliveries().ensure_groups()
                yield "the consumer groups are there"
            case "reclaim":
                yield f"{counted(self._deliveries().reclaim().moved, 'entry is', 'entries are')} in the pool"
            case "mend":
                yield f"{counted(self._mend_delayed(cure.items), 'delayed job is', 'delayed jobs are')} due now"
            case "look_after":
                yield f"{counted(self._look_after(), 'call was', 'calls were')} looked after"
            case "wake":
                calls = RedisCalls(self.link, self.keys)
                woken = sum(calls.wake(call_id) is Told.TOLD for call_id in cure.items)
                yield f"{counted(woken, 'call is', 'calls are')} woken"
            case "reissue" | "void":
                yield from self._cure_orders(cure)
            case "sweep":
                yield self._sweep(cure.items)

    def _look_after(self) -> int:
        calls, count = RedisCalls(self.link, self.keys), 0
        while (looked := calls.look()).looked:
            count += looked.looked
            if not looked.more:
                break
        return count

    def _mend_delayed(self, members: Sequence[str]) -> int:
        checkup = Checkup(self.link, self.keys)
        starts = range(0, len(members), _MEND_CHUNK)
        return sum(checkup.mend(members[start : start + _MEND_CHUNK]) for start in starts)

    def _sweep(self, paths: Sequence[str]) -> str:
        assert self.books is not None, "findings about files come from a book"
        try:
            gone = self.books.orders.sweep(paths)
        except (OrderError, OSError) as error:
            return f"tickets folder: {error}"
        return f"{files_said(gone)} that no ticket needs {'is' if len(gone) == 1 else 'are'} removed"

    def _cure_orders(self, cure: Cure) -> Iterator[str]:
        assert self.books is not None, "findings about orders come from a book"
        book = self.books.orders
        done = 0
        for order_id in map(int, cure.items):
            try:
                if cure.verb == "void":
                    book.void_refunded(order_id)
                else:
                    book.reissue(order_id, request_id="doctor")
            except OrderError as error:
                yield f"order {order_id}: {error}"
            else:
                done += 1
        if cure.verb == "void":
            yield f"{counted(done, 'order has', 'orders have')} void tickets only"
        else:
            yield f"{counted(done, 'order is', 'orders are')} to be issued again"

    def _deliveries(self) -> RedisDeliveries:
        settings = DeliverySettings(
            wanted_name="doctor",
            dead_maxlen=self.settings.dead_maxlen,
            reclaim_idle_ms=round(self.settings.reclaim_idle_s * 1000),
        )
        return RedisDeliveries(self.link, self.keys, settings=settings)


@contextlib.contextmanager
def _opened(settings: Settings) -> Iterator[_Room]:
    link = Link(settings.redis_url, block_ms=0, namespace=settings.namespace)
    with contextlib.ExitStack() as stack:
        stack.callback(link.close)
        books: Books | None = None
        trouble: tuple[str, ...] = ()
        try:
            books = stack.enter_context(books_of(settings))
        except ConfigurationError as error:
            trouble = error.problems
        yield _Room(settings=settings, link=link, books=books, trouble=trouble)


# -- showing ------------------------------------------------------------------------------


def _data(finding: Finding) -> dict[str, Any]:
    data = {name: getattr(finding, name) or None for name in ("about", "level", "seen", "means", "fix")}
    return data | {"can_be_fixed": finding.cure is not None}


def _show(findings: Sequence[Finding], done: Sequence[str], left: Sequence[Finding]) -> None:
    parts: list[RenderableType] = [line for finding in findings for line in _lines(finding)]
    if done:
        parts += [Text(), Text("fixed", style="bold"), *(hanging(Text(printable(said)), 2) for said in done)]
    wrong = [finding for finding in left if finding.level == "wrong"]
    parts.append(Text())
    if not wrong:
        parts.append(Text("nothing is wrong" + (" any more" if done else ""), style="green"))
    elif done:
        parts += [Text("still wrong", style="bold"), *(line for finding in wrong for line in _lines(finding))]
    else:
        curable = sum(finding.cure is not None for finding in wrong)
        more = f"; doctor --fix can put right {curable}" if curable else ""
        parts.append(Text(f"{len(wrong)} wrong{more}", style="red"))
    show(*parts)


def _lines(finding: Finding) -> Iterator[RenderableType]:
    mark, style = _MARKS[finding.level]
    yield hanging(Text(f"{finding.about}: {printable(finding.seen, 1000)}"), 2, first=Text(mark, style=style))
    if finding.means:
        yield hanging(Text(printable(finding.means, 500), style="dim"), 4)
    if finding.fix and finding.level != "good":
        how = "" if finding.cure is None else "--fix: "
        yield hanging(Text(f"{how}{printable(finding.fix, 500)}", style="dim"), 4)
