"""``status``: a JSON object of one shape, and a screen that says what needs somebody."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from stagedoor.broker.connection import Link
from stagedoor.broker.inspection import Overview, StreamView, WorkerView
from stagedoor.cli.app import run
from stagedoor.cli.status_view import data_of, look_at_outbox, remarks_on
from stagedoor.core.keys import GROUP, Keys
from stagedoor.orders import Backlog, OrderBook
from stagedoor.settings import Settings

type Captured = pytest.CaptureFixture[str]
type Status = Callable[..., tuple[int, str, str]]

STREAM_KEYS = ["length", "unread", "pending", "oldest_age_s"]
QUIET = Overview(stream=StreamView(), critical=StreamView(), delayed=0, dead=0, workers=())
WORKER = WorkerView(name="w", pid=1, host="h", slots=8, held=0, orphaned=0, stopping=False, beat_age_s=1.0)


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    link = Link(redis_url, block_ms=0)
    yield link.patient
    link.close()


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, redis_url: str, namespace: str) -> Status:
    """Run ``status`` on a namespace and in a folder of this test."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        code = run(["status", "--redis-url", redis_url, "--namespace", namespace, *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_the_json_object_has_exactly_its_keys_also_where_nothing_is(status: Status) -> None:
    code, out, err = status("--json")
    data = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert list(data) == [
        "stream", "critical", "pool", "delayed", "dead", "trimmed_unread", "workers", "flows",
    ]  # fmt: skip
    assert list(data["stream"]) == list(data["critical"]) == STREAM_KEYS
    assert data["stream"] == {"length": 0, "unread": 0, "pending": 0, "oldest_age_s": None}
    assert data["flows"] == {"waiting": 0, "running": 0, "sleeping": 0, "failed": 0, "parked": 0}


def test_a_worker_is_an_object_with_exactly_its_keys() -> None:
    [worker] = data_of(attrs.evolve(QUIET, workers=(WORKER,)))["workers"]
    assert list(worker) == ["name", "pid", "host", "slots", "held", "orphaned", "stopping", "beat_age_s"]


def test_what_is_in_the_streams_is_counted(status: Status, client: Any, namespace: str) -> None:
    keys = Keys(namespace)
    client.xgroup_create(keys.stream, GROUP, "0", mkstream=True)
    for _ in range(3):
        client.xadd(keys.stream, {"kind": "k"})
    client.xreadgroup(GROUP, "w", {keys.stream: ">"}, count=1)
    stream = json.loads(status("--json")[1])["stream"]
    assert (stream["length"], stream["unread"], stream["pending"]) == (3, 2, 1)
    code, out, _ = status()
    rows = {line.split()[0]: line.split()[1:3] for line in out.splitlines() if line.startswith(("stream", "dead"))}
    assert (code, rows["stream"]) == (0, ["2", "1"])
    assert "! 3 entries wait and no worker is there: python -m stagedoor" in out


def test_a_redis_that_cannot_be_asked_is_one_line_and_exit_code_1(status: Status) -> None:
    code, out, err = status("--redis-url", "redis://user:secret@127.0.0.1:1/0")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("stagedoor: Redis cannot be asked now: redis://user:***@127.0.0.1:1/0: ")


def test_looking_makes_no_order_book(status: Status, tmp_path: Path) -> None:
    code, out, _ = status()
    assert code == 0
    assert "outbox" not in out
    assert list(tmp_path.iterdir()) == []


def test_the_outbox_is_shown_where_there_is_an_order_book(status: Status, tmp_path: Path) -> None:
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets"):
        pass
    assert "outbox" in status()[1]


def test_somebody_elses_database_is_no_order_book(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"")
    assert look_at_outbox(f"sqlite:///{tmp_path}/other.db") is None
    assert look_at_outbox("nonsense") is None


# -- what needs somebody ----------------------------------------------------------------------

LAPSED = attrs.evolve(WORKER, beat_age_s=60.0)
WAITING = StreamView(length=2, unread=2)


@pytest.mark.parametrize(
    "overview,backlog,said",
    [
        (QUIET, None, []),
        (attrs.evolve(QUIET, workers=(WORKER,), stream=WAITING), Backlog(waiting=3, parked=0, oldest_age_s=0.1), []),
        (attrs.evolve(QUIET, stream=WAITING), None, ["2 entries wait and no worker is there"]),
        (attrs.evolve(QUIET, stream=WAITING, workers=(LAPSED,)), None, ["2 entries wait and no worker is there"]),
        (attrs.evolve(QUIET, stream=StreamView(trimmed_unread=4)), None, ["at least 4 entries were deleted"]),
        (attrs.evolve(QUIET, dead=1), None, ["1 dead letter: a job that was given up"]),
        (QUIET, Backlog(waiting=3, parked=0, oldest_age_s=60.0), ["3 outbox rows wait for a relay"]),
        (QUIET, Backlog(waiting=0, parked=2, oldest_age_s=None), ["2 outbox rows are parked"]),
    ],
)
def test_remarks_are_made_on_what_needs_somebody_and_on_nothing_else(
    overview: Overview, backlog: Backlog | None, said: list[str]
) -> None:
    remarks = [text for text, _ in remarks_on(overview, Settings.load({}), backlog=backlog)]
    assert len(remarks) == len(said)
    assert all(remark.startswith(start) for remark, start in zip(remarks, said, strict=True))
