"""The logs of the workers, read while they are written."""

import json
from pathlib import Path
from typing import Any

import pytest

from stagedoor.cli.log_line import Line
from stagedoor.cli.logs import json_line
from stagedoor.events import DeliverySettled, DeliveryStarted, Event, WorkerStarted
from stagedoor.rehearsal.watch import FULFIL, Settled, Started, Watch


def text_of(event: Event, *, at: float = 100.0) -> str:
    """Return the line that a worker writes about this event."""
    return json_line(Line(at=at, level=event.level, name=event.name, fields=event.fields()))


def started(entry_id: str, *, attempt: int = 1, at: float = 100.0, order_id: int = 7) -> str:
    kind = "render_tickets"
    return text_of(
        DeliveryStarted(kind=kind, entry_id=entry_id, order_id=order_id, attempt=attempt, deliveries=1), at=at
    )


def settled(entry_id: str, outcome: str = "done") -> str:
    return text_of(
        DeliverySettled(outcome=outcome, kind="render_tickets", entry_id=entry_id, order_id=7, deliveries=1), at=101.0
    )


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Path]:
    return {"worker-1": tmp_path / "1.jsonl", "worker-2": tmp_path / "2.jsonl"}


def append(path: Path, *lines: str, end: str = "\n") -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + end)


def test_a_log_that_is_not_there_yet_tells_nothing(logs: dict[str, Path]) -> None:
    assert Watch(logs).look() == []


def test_a_worker_that_reads_is_seen_with_its_slots_and_gil(logs: dict[str, Path]) -> None:
    watch = Watch(logs)
    append(
        logs["worker-1"],
        text_of(WorkerStarted(worker="worker-1", incarnation="x", slots=8, gil=False, kinds=("render_tickets",))),
    )
    watch.look()
    assert watch.workers["worker-1"].is_reading
    assert (watch.workers["worker-1"].slots, watch.workers["worker-1"].has_gil) == (8, False)
    assert not watch.workers["worker-2"].is_reading


def test_each_line_is_told_once_and_half_a_line_waits_for_its_end(logs: dict[str, Path]) -> None:
    watch = Watch(logs)
    line = started("1-0")
    append(logs["worker-1"], line[:40], end="")
    assert watch.look() == []
    append(logs["worker-1"], line[40:])
    (event,) = watch.look()
    assert event == Started(at=100.0, worker="worker-1", kind="render_tickets", entry_id="1-0", order_id=7)
    assert watch.look() == []


def test_what_runs_is_what_has_started_and_is_not_settled(logs: dict[str, Path]) -> None:
    watch = Watch(logs)
    append(logs["worker-1"], started("1-0"), started("2-0"), settled("1-0"))
    *_, last = watch.look()
    assert isinstance(last, Settled)
    assert set(watch.workers["worker-1"].running) == {"2-0"}


@pytest.mark.parametrize("words", ["stagedoor: no renderer", "[1, 2]", "{", '{"event": "something_else"}'])
def test_words_that_are_no_event_of_ours_are_skipped(logs: dict[str, Path], words: str) -> None:
    watch = Watch(logs)
    append(logs["worker-1"], words, started("1-0"))
    assert len(watch.look()) == 1


def test_runs_beyond_the_first_are_counted_for_redeliveries_and_retries(logs: dict[str, Path]) -> None:
    watch = Watch(logs)
    append(logs["worker-1"], started("1-0"), started("2-0"))
    append(logs["worker-2"], started("1-0", at=110.0), started("3-0", attempt=2))
    watch.look()
    assert watch.duplicate_runs == 2


@pytest.mark.parametrize(
    "held,after,expected",
    [
        ({"1-0", "2-0"}, 100.0, 112.0),
        ({"1-0"}, 100.0, 110.0),
        ({"1-0", "4-0"}, 100.0, None),
        ({"1-0"}, 111.0, 119.0),
        ({"1-0"}, 120.0, None),
        (set(), 100.0, None),
    ],
)
def test_the_recovery_ends_when_the_last_entry_has_started_at_another_worker(
    logs: dict[str, Path], held: set[str], after: float, expected: float | None
) -> None:
    watch = Watch(logs)
    append(logs["worker-2"], started("4-0", at=109.0))
    append(logs["worker-1"], started("1-0", at=110.0), started("2-0", at=112.0), started("1-0", at=119.0, attempt=1))
    watch.look()
    assert watch.recovered_at(frozenset(held), after=after, not_at="worker-2") == expected


def test_a_log_line_is_what_the_watch_reads() -> None:
    """The two ends of the format are written apart: this holds them together."""
    told: dict[str, Any] = json.loads(started("1-0"))
    assert {"at", "event", "kind", "entry_id", "order_id", "attempt"} <= told.keys()


def test_a_call_is_about_the_order_of_the_row_that_started_it(logs: dict[str, Path]) -> None:
    def line(entry_id: str, **more: Any) -> str:
        return text_of(DeliveryStarted(kind=FULFIL, entry_id=entry_id, attempt=1, deliveries=1, **more))

    watch = Watch(logs)
    append(
        logs["worker-1"],
        line("1-0", order_id=7, outbox_id=3),
        line("2-0", order_id=None, call_id="outbox-3"),
        line("3-0", order_id=None, call_id="somebody's"),
    )
    news = watch.look()
    assert [(event.order_id, event.makes_tickets) for event in news] == [(7, False), (7, True), (None, True)]
