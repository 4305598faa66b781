"""A whole worker process against everything that should not be in its stream: a clear record, nothing lost or stuck."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagedoor.core.keys import GROUP
from tests.broker.harness import RedisHarness, job
from tests.operate.conftest import Run
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.process, pytest.mark.redis]

PLUGINS = Path(__file__).parent / "plugins"
ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
EVIL = "ok\n2026-01-01 00:00:00 INFO forged\r\x1b[2J\u2028forged"
KINDS = ["fine", "shouts", "unprintable", "hopeless", "returns", "logs"]


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Worker:
    """One worker process; what it says is in the file *log*."""

    def __init__(self, url: str, namespace: str, folder: Path, log_format: str, **settings: str) -> None:
        self.log = folder / f"{log_format}.log"
        self.gate = folder / "open"
        self.port = _free_port()
        flags = {
            "redis-url": url, "namespace": namespace, "log-format": log_format, "plugins": "evil_handlers",
            "orders-url": f"sqlite:///{folder}/stagedoor.db", "tickets-dir": str(folder / "tickets"),
            "metrics-port": str(self.port), "block-ms": "500", "slots": "2", "grace-s": "5", **settings,
        }  # fmt: skip
        words = [word for name, value in flags.items() for word in (f"--{name}", value)]
        environ = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(PLUGINS), str(ROOT), str(ROOT / "renderers")]),
            "EVIL_GATE": str(self.gate),
        }
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "stagedoor", "worker", *words]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environ, cwd=folder)

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8", "surrogateescape")

    @property
    def lines(self) -> list[str]:
        """The lines, at nothing but line ends."""
        return self.said.split("\n")[:-1]

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def wait_for_health(self, status: int) -> str:
        found: list[tuple[int, str]] = []

        def has_come() -> bool:
            with contextlib.suppress(OSError):
                found.append(self.get("/healthz"))
            return bool(found) and found[-1][0] == status

        until(has_come, f"/healthz never answered {status}: {found[-1:]} {self.said}")
        return found[-1][1]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def start(redis_url: str, namespace: str, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start workers that are ended with the test."""
    made: list[Worker] = []

    def start_one(log_format: str = "json", url: str = redis_url, **settings: str) -> Worker:
        made.append(Worker(url, namespace, tmp_path, log_format, **settings))
        return made[-1]

    yield start_one
    for worker in made:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()


def feed(real: RedisHarness) -> dict[str, str]:
    """Add one of everything; returns what becomes of each, by the id of its entry."""
    ends = {"fine": "done", "shouts": "attempts", "unprintable": "attempts", "hopeless": "permanent",
            "returns": "done", "logs": "done"}  # fmt: skip
    added = {
        real.add(job(kind, order_id=str(number), request_id=f"req-{number}", trace=f"00-{kind}")): ends[kind]
        for number, kind in enumerate(KINDS, start=1)
    }
    bad = [
        job("fine", request_id=EVIL),
        job(EVIL),
        ((b"kind", b"fine"), (b"kind", b"fine"), (b"request_id", b"req-twice"), (b"trace", b"\x1b")),
        (*job("fine"), (b"note", b"x" * 8_000_000)),
        tuple((f"f{number}".encode(), b"") for number in range(100_000)),
        (*job("fine"), (b"\xff\x1b[2J\n", b"\x80")),
        ((b"", b""),),
    ]
    return added | {real.add(fields): "malformed" for fields in bad}


def pending(real: RedisHarness) -> list[str]:
    """Return the ids of what is pending; does not look at keys that may be of any type."""
    rows: Any = real.client.xpending_range(real.keys.stream, "workers", "-", "+", 99)
    return [row["message_id"].decode() for row in rows]


def settle_all(real: RedisHarness, worker: Worker) -> None:
    """Wait until nothing is owed any more."""

    def is_done() -> bool:
        assert worker.process.poll() is None, worker.said
        state = real.state()
        return not (state.jobs.entries or state.jobs.pending or state.delayed)

    until(is_done, f"something stays: {worker.said}")


# -- a clear record ------------------------------------------------------------------------------


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_whatever_comes_is_one_line_and_ends_where_it_should(
    real: RedisHarness, start: Callable[..., Worker], log_format: str
) -> None:
    worker = start(log_format)
    worker.wait_for_health(200)
    ends = feed(real)
    real.put_delayed("no id\n\x1b[2J", b"9:nonsense")
    real.put_delayed("bodiless", None)
    settle_all(real, worker)
    assert worker.stop() == 0
    letters = {letter["entry_id"].decode(): letter["reason"].decode() for letter in real.state().dead}
    assert letters.pop("no id\n\x1b[2J") == letters.pop("bodiless") == "malformed"
    assert letters == {entry_id: reason for entry_id, reason in ends.items() if reason != "done"}

    said = worker.said
    assert not {"\x1b", "\r", "\u2028", "\x85", "\x00"} & set(said)
    if log_format == "text":
        assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3} [ !✗] ", line) for line in worker.lines), said
        return
    told = [json.loads(line) for line in worker.lines]
    settled = [line for line in told if line["event"] == "delivery_settled"]
    assert sorted(line["entry_id"] for line in settled) == sorted(ends), "one canonical line per delivery"
    by_kind = {line["kind"]: line for line in settled if "kind" in line}
    for number, kind in enumerate(KINDS, start=1):
        line = by_kind[kind]
        assert (line["order_id"], line["request_id"], line["trace"]) == (number, f"req-{number}", f"00-{kind}")
    [twice] = [line for line in settled if "the field is there twice" in line.get("error", "")]
    assert (twice["request_id"], "trace" in twice) == ("req-twice", False), "a sound label joins the request"
    assert by_kind["unprintable"]["error"].startswith("Unprintable: (its text could not be shown: RuntimeError)")
    assert by_kind["shouts"]["error"].startswith("ValueError: ok 2026-01-01 00:00:00 INFO forged \\x1b[2J")
    assert [line["returned"] for line in told if line["event"] == "result_ignored"] == ["Shouting"]
    handlers_own = [line for line in told if line["event"] == "said"]
    assert [(line["request_id"], line["entry_id"]) for line in handlers_own] == [("req-1", by_kind["fine"]["entry_id"])]
    [warned] = [line for line in told if line["event"].startswith("ok\n2026")]
    assert warned["thing"] == "(Shouting, whose text could not be shown: ValueError)"


# -- health is progress ------------------------------------------------------------------------------


def test_health_follows_redis_and_metrics_count_what_happened(
    start_redis: Callable[..., RedisServer], namespace: str, start: Callable[..., Worker], tmp_path: Path
) -> None:
    """Not well before Redis is there; then well, also with all slots taken; not while Redis stands still."""
    server = start_redis()
    server.stop()
    worker = start("json", server.url)
    assert "does not read yet" in worker.wait_for_health(503)
    assert worker.get("/livez")[0] == 200
    server.start()
    worker.wait_for_health(200)
    real = RedisHarness(server.url, namespace, protocol=3)
    for _ in range(3):
        real.add(job("waits"))
    until(lambda: "\nstagedoor_running 2.0\n" in worker.get("/metrics")[1], "both slots are taken")
    assert worker.get("/healthz")[0] == 200
    worker.gate.touch()
    settle_all(real, worker)
    assert 'stagedoor_outcomes_total{kind="waits",outcome="done"} 3.0' in worker.get("/metrics")[1]

    os.kill(server.pid, signal.SIGSTOP)
    said = worker.wait_for_health(503)
    assert "slots are free, but no read has been answered for" in said
    assert worker.get("/livez")[0] == 200
    assert "stagedoor_redis_up 0.0" in worker.get("/metrics")[1]
    os.kill(server.pid, signal.SIGCONT)
    worker.wait_for_health(200)
    assert worker.stop() == 0
    real.close()


def test_every_word_of_a_loss_reaches_the_log(real: RedisHarness, start: Callable[..., Worker]) -> None:
    """What is trimmed unread behind a busy worker is an error in its log, and a letter."""
    worker = start("json", **{"slots": "1", "reclaim-every-s": "0.3"})
    worker.wait_for_health(200)
    for _ in range(12):
        real.add(job("waits"))
    until(lambda: len(real.state().jobs.pending) == 1, "the slot is taken")
    real.command("XTRIM", real.keys.stream, "MAXLEN", "=", 4)

    def is_noticed() -> bool:
        return any("unread_trimmed" in line for line in worker.lines)

    until(is_noticed, worker.said)
    [line] = [json.loads(line) for line in worker.lines if "unread_trimmed" in line]
    assert (line["level"], line["stream"], line["count"]) == ("error", "jobs", 7)
    worker.gate.touch()
    settle_all(real, worker)
    assert [letter["reason"] for letter in real.state().dead if letter["entry_id"] == b""] == [b"trimmed"]
    assert worker.stop() == 0


# -- wrong types under our keys ------------------------------------------------------------------


def test_what_needs_a_key_of_the_wrong_type_waits_and_all_else_goes_on(
    real: RedisHarness, start: Callable[..., Worker], command: Run
) -> None:
    """Refused outcomes stay pending and are told once; after doctor --fix they are written."""
    worker = start("json", slots="4", **{"log-level": "debug"})
    worker.wait_for_health(200)
    for key in (real.keys.dead, real.keys.delayed, real.keys.delayed_body, real.keys.crashes, real.keys.trimmed):
        real.client.delete(key)
        real.client.set(key, "not ours")
    waiting = [real.add(job(kind)) for kind in ("hopeless", "again", "nobody_knows_me")]
    real.add(((b"foo", b"bar"),))
    for _ in range(50):
        real.add(job("fine"))
    until(lambda: len(pending(real)) == 4 and real.length() == 4, f"all else is done: {worker.said}")
    until(lambda: worker.said.count("settle_refused") == 4, f"each is told: {worker.said}")
    assert set(waiting) <= set(pending(real))
    assert worker.get("/healthz")[0] == 200, "work goes forward"

    fixed = command("doctor", "--fix", "--json")
    assert len([said for said in fixed.data["fixed"] if "misplaced" in said]) == 5
    until(lambda: not pending(real), f"what was refused is written: {worker.said}")
    reasons = sorted(letter["reason"] for letter in real.state().dead)
    assert reasons == [b"malformed", b"permanent"]
    assert worker.said.count("settle_refused") == 4
    assert worker.stop() == 0
    settled = [json.loads(line) for line in worker.lines if "delivery_settled" in line]
    assert {line["entry_id"] for line in settled} >= set(waiting), "nothing is lost"


def test_something_else_for_a_record_stops_neither_its_worker_nor_those_who_sweep(
    real: RedisHarness, start: Callable[..., Worker]
) -> None:
    stranded = real.add(job("fine"))
    real.client.xgroup_create(real.keys.stream, GROUP, "0")
    real.client.xreadgroup(GROUP, "gone", {real.keys.stream: ">"}, count=1)
    real.client.set(real.keys.worker("gone"), "not ours")
    worker = start("json", name="w")
    until(lambda: stranded not in pending(real), f"it is swept: {worker.said}")
    real.client.delete(real.keys.worker("w"))
    real.client.set(real.keys.worker("w"), "not ours")
    for _ in range(20):
        real.add(job("fine"))
    until(lambda: not real.length(), f"it works on: {worker.said}")
    until(lambda: real.client.type(real.keys.worker("w")) == b"hash", "its record is there again")
    assert not any('"level": "error"' in line for line in worker.lines)
    assert worker.stop() == 0
