"""What the workers and the relay do, from the lines of their logs, as they are written.

One object per line, as ``--log-format json --log-level debug`` writes them. The
files are read from where the last look ended; half a line waits for its end.
"""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from stagedoor.flows import outbox_call_id

RENDER = "render_tickets"
FULFIL = "fulfil-order"
"""The flow that does the same: an entry of an outbox row starts a call of it, whose own entries make the tickets."""


@attrs.frozen(kw_only=True)
class _About:
    """What an event of a delivery is about; *at* is Unix seconds.

    *order_id* is also known of calls that an outbox row has started; *call_id* None is an entry of a row.
    """

    at: float
    worker: str
    kind: str
    entry_id: str
    order_id: int | None
    call_id: str | None = None

    @property
    def makes_tickets(self) -> bool:
        """Whether this is where the tickets of an order are made."""
        return self.kind == RENDER or (self.kind == FULFIL and self.call_id is not None)


@attrs.frozen(kw_only=True)
class Started(_About):
    """A handler started at a worker, or a pass of a flow."""


@attrs.frozen(kw_only=True)
class Settled(_About):
    """A delivery was settled at a worker."""

    outcome: str


class LogFile:
    """One log file, read piece by piece."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._half = b""

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines that have come since the last call; what is no object is somebody's words and is skipped."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if isinstance(told, dict):
                yield told

    def last_words(self) -> str:
        """Return the last line, whatever it is."""
        lines = self.path.read_text("utf-8", "replace").split("\n") if self.path.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "it wrote nothing")


@attrs.define
class Seen:
    """What one worker has done so far."""

    name: str
    slots: int = 0
    has_gil: bool = False
    is_reading: bool = False
    running: dict[str, Started] = attrs.Factory(dict)
    starts: int = 0


class Watch:
    """The workers, as their logs show them.

    Args:
        logs: the log file of each worker, by its name.
        clock: tells when a line was seen, where its own time cannot be trusted; None trusts it.

    *told* counts all lines by the name of their event.
    """

    def __init__(self, logs: Mapping[str, Path], *, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self.told: Counter[str] = Counter()
        self._files = {name: LogFile(path) for name, path in logs.items()}
        self.workers = {name: Seen(name) for name in logs}
        self.starts: list[Started] = []
        self.first_runs: set[str] = set()
        self._orders: dict[str, int] = {}

    def look(self) -> list[Started | Settled]:
        """Return what has been told since the last look, oldest first."""
        news: list[Started | Settled] = []
        for name, file in self._files.items():
            for line in file.new_lines():
                news += self._take(self.workers[name], line)
        news.sort(key=lambda event: event.at)
        return news

    def last_words(self, worker: str) -> str:
        """Return the last line of a worker's log."""
        return self._files[worker].last_words()

    def forget_running(self, worker: str) -> None:
        """Take note that this worker has ended, and with it whatever it ran."""
        self.workers[worker].running.clear()

    def _take(self, worker: Seen, line: dict[str, Any]) -> Iterator[Started | Settled]:
        self.told[str(line.get("event"))] += 1
        match line.get("event"):
            case "worker_started":
                worker.slots, worker.has_gil, worker.is_reading = int(line["slots"]), bool(line["gil"]), True
            case "delivery_started":
                started = Started(worker=worker.name, **self._common(line))
                worker.running[started.entry_id] = started
                worker.starts += 1
                self.starts.append(started)
                if line.get("attempt") == 1:
                    self.first_runs.add(started.entry_id)
                yield started
            case "delivery_settled":
                worker.running.pop(line["entry_id"], None)
                yield Settled(worker=worker.name, outcome=str(line.get("outcome")), **self._common(line))

    @property
    def duplicate_runs(self) -> int:
        """Handler runs and passes beyond one for each entry: those of entries that came again, and retries."""
        return len(self.starts) - len(self.first_runs)

    def recovered_at(self, entry_ids: frozenset[str], *, after: float, not_at: str) -> float | None:
        """Return when the last of these entries started at another worker, None while one has not."""
        first: dict[str, float] = {}
        for started in self.starts:
            if started.entry_id in entry_ids and started.worker != not_at and started.at >= after:
                first.setdefault(started.entry_id, started.at)
        return max(first.values()) if len(first) == len(entry_ids) and first else None

    def _common(self, line: dict[str, Any]) -> dict[str, Any]:
        order_id, outbox_id, call_id = line.get("order_id"), line.get("outbox_id"), line.get("call_id")
        if call_id is not None:
            order_id = self._orders.get(call_id)
        elif outbox_id is not None and order_id is not None:
            self._orders[outbox_call_id(outbox_id)] = order_id
        return {
            "at": self._clock() if self._clock else dt.datetime.fromisoformat(line["at"]).timestamp(),
            "kind": str(line.get("kind")),
            "entry_id": str(line["entry_id"]),
            "order_id": order_id,
            "call_id": call_id,
        }
