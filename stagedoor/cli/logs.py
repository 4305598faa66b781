"""Logs: one line on stderr for each event and for each word of a handler.

Whoever emits an event only puts it into a list: a line is made and written by a
thread of the logs' own, so that a terminal that stands still, or a pipe that
nobody reads, never holds up the worker. Of lines that pile up meanwhile the
newest are dropped, and counted.

``text`` is for people; ``json`` has the event's name and its fields, one object
to a line, for programs. Neither carries personal data: events have ids, and
renderers' messages are withheld before they come here.
"""

import datetime as dt
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, TextIO

import structlog

from stagedoor.cli.log_line import Line, LineMaker
from stagedoor.cli.log_text import TextLines
from stagedoor.cli.text import printable, text_of
from stagedoor.events import Event, EventStream

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
MOST_WAITING = 20_000
"""Lines that wait for a slow reader: a second of the busiest worker; some 20 MB."""
FLUSH_S = 1.0
LONGEST_VALUE = 500
LONGEST_TRACEBACK = 20_000


def json_line(line: Line) -> str:
    """Return a line for programs: ASCII only, so that nothing in it can be taken for the end of a line."""
    stamp = dt.datetime.fromtimestamp(line.at, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    told = {"at": stamp, "level": line.level, "event": line.name}
    told |= {key: jsonable(value, key) for key, value in line.fields.items() if key not in told}
    return json.dumps(told, ensure_ascii=True, separators=(",", ":"))


def jsonable(value: Any, name: str = "") -> Any:
    """Return a value that JSON has, texts cut; anything else as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if isinstance(value, Mapping):
        return {text_of(key): jsonable(item) for key, item in value.items()}
    return printable(text_of(value), LONGEST_TRACEBACK if name == "exception" else LONGEST_VALUE)


class LineWriter:
    """Writes lines to a stream in a thread of its own; whoever adds one never waits.

    Args:
        stream: where to; one that is closed or broken is written to no more.
        make: makes the text of a line, in the writer's thread.
        most_waiting: lines kept for a slow reader.
    """

    def __init__(self, stream: TextIO | None, make: LineMaker, *, most_waiting: int = MOST_WAITING) -> None:
        self._stream = stream
        self._make = make
        self._most_waiting = most_waiting
        self._waiting: deque[Line] = deque()
        self._dropped = 0
        self._awake = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)
        self._thread.start()

    def add(self, line: Line) -> None:
        """Add a line; drops it when too many wait."""
        if len(self._waiting) >= self._most_waiting:
            self._dropped += 1  # an estimate under threads, which is all that is needed
            return
        self._waiting.append(line)
        if not self._awake.is_set():
            self._idle.clear()
            self._awake.set()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait until all is written, or the time is up; return whether it is."""
        deadline = time.monotonic() + timeout_s
        while self._waiting or not self._idle.is_set():
            self._awake.set()
            left = deadline - time.monotonic()
            if left <= 0 or not self._idle.wait(left):
                return False
        return True

    def _run(self) -> None:
        while True:
            self._awake.wait()
            self._awake.clear()
            self._idle.clear()
            while self._waiting:
                self._write_some()
            self._idle.set()

    def _write_some(self) -> None:
        texts: list[str] = []
        while self._waiting and len(texts) < 100:  # noqa: PLR2004 - lines per write: a few pages, soon on the screen
            texts.append(self._text(self._waiting.popleft()))
        dropped, self._dropped = self._dropped, 0
        if dropped:
            fields = {"dropped": dropped}
            texts.append(self._text(Line(at=time.time(), level="warning", name="log_lines_dropped", fields=fields)))
        if self._stream is None:
            return
        try:
            self._stream.write("".join(f"{text}\n" for text in texts))
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody reads us any more: the work goes on without being told of.
            self._stream = None

    def _text(self, line: Line) -> str:
        try:
            return self._make(line)
        except Exception as error:  # noqa: BLE001 - whatever a plugin logs must not end the logs
            told = {"of": text_of(line.name), "error": type(error).__qualname__}
            return json_line(Line(at=line.at, level="error", name="log_line_failed", fields=told))


class _Sink:
    """The end of structlog's chain: takes the event dictionary as a line."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def _take(self, line: Line) -> None:
        self._writer.add(line)

    debug = info = warning = error = critical = exception = msg = _take


def _to_line(_logger: Any, method: str, event_dict: structlog.typing.EventDict) -> tuple[tuple[Line], dict[str, Any]]:
    """End structlog's chain: one line out of what was bound and what was said."""
    fields = dict(event_dict)
    name = str(fields.pop("event", ""))
    level = {"exception": "error", "critical": "error", "warn": "warning"}.get(method, method)
    return (Line(at=time.time(), level=level, name=name, fields=fields),), {}


class Logs:
    """The logs of one process.

    Args:
        log_format: ``text`` or ``json``.
        level: events below it are not told.
        stream: stderr by default.
        redis_url: for the lines about Redis; masked already.
    """

    def __init__(
        self, log_format: str, *, level: str = "info", stream: TextIO | None = None, redis_url: str = ""
    ) -> None:
        stream = sys.stderr if stream is None else stream
        make = TextLines(has_colour=_wants_colour(stream), redis_url=redis_url) if log_format == "text" else json_line
        self._least = LEVELS[level]
        self._writer = LineWriter(stream, make)
        #: A structlog logger for handlers; bind ids to it, never names.
        self.log = structlog.wrap_logger(
            _Sink(self._writer),
            processors=[structlog.processors.format_exc_info, _to_line],
            wrapper_class=structlog.make_filtering_bound_logger(self._least),
            cache_logger_on_first_use=True,
        )

    def listen(self, events: EventStream) -> None:
        """Tell of all events from now on."""
        events.subscribe(self.take)

    def take(self, event: Event) -> None:
        """Tell of one event; returns at once."""
        if LEVELS.get(event.severity, logging.INFO) >= self._least:
            self._writer.add(Line(at=time.time(), level=event.severity, name=event.name, fields=event.fields()))

    def flush(self) -> None:
        """Wait up to a second until all lines are written: before the process ends."""
        self._writer.flush()


def _wants_colour(stream: TextIO | None) -> bool:
    """Whether to colour: on a terminal that has not asked for none."""
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except ValueError:
        return False
