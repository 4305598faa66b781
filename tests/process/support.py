"""Worker processes that a test starts, signals and listens to, and the books that must balance afterwards."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import redis

from stagedoor.core.codec import pair_up, unpack
from stagedoor.core.keys import Keys

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "worker.py"
LIMIT_S = 60.0
"""Nothing that a test waits for takes this long; it only turns a hang into a failure."""
QUICK = {
    "liveness_ttl_s": "2",
    "beat_every_s": "0.5",
    "sweep_every_s": "0.3",
    "renew_every_s": "0.5",
    "reclaim_idle_s": "5",
    "reclaim_every_s": "1",
}
"""Short times for tests in which somebody lapses; long enough for a busy machine."""


class WorkerProcess:
    """One worker process and everything it has told."""

    def __init__(self, how: dict[str, Any]) -> None:
        self.told: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(how)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._more:
                self.told.append(json.loads(line))
                self._more.notify_all()
        with self._more:
            self._more.notify_all()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def of(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Return what it has told under this name with these fields."""
        return [
            one
            for one in list(self.told)
            if one["event"] == event and all(one.get(name) == value for name, value in fields.items())
        ]

    def wait(self, event: str, times: int = 1, /, **fields: Any) -> dict[str, Any]:
        """Wait until it has told that so often; return the last of them."""
        with self._more:
            is_so = self._more.wait_for(lambda: len(self.of(event, **fields)) >= times, LIMIT_S)
        assert is_so, f"waited for {times} {event} {fields}, got {self.told}"
        return self.of(event, **fields)[times - 1]

    def send(self, *numbers: signal.Signals) -> None:
        """Send signals."""
        for number in numbers:
            self._process.send_signal(number)

    def ask(self) -> None:
        """Send it a line: one that keeps a worker starts it for each."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End it as the OOM killer does, with its children; no harm if it has ended."""
        if self.is_running:
            os.killpg(self.pid, signal.SIGKILL)
        self._end()

    def wait_exit(self) -> int:
        """Wait until it has ended; return its exit code."""
        code = self._process.wait(LIMIT_S)
        self._end()
        return code

    def _end(self) -> None:
        self._process.wait(LIMIT_S)
        self._listener.join(LIMIT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def cpu_s(self) -> float:
        """Return the seconds of processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Theatre:
    """One namespace on a server, its workers, and what their handlers have done."""

    def __init__(self, url: str, namespace: str, folder: Path) -> None:
        self.keys = Keys(namespace)
        self.url = url
        self.folder = folder
        self.client = redis.Redis.from_url(url, socket_timeout=LIMIT_S)
        self.workers: list[WorkerProcess] = []
        self.flows: list[str] = []
        """Those that workers know which are started from now on."""
        self._orders = 0

    def start(self, name: str = "a", **settings: str) -> WorkerProcess:
        """Start a worker; return when it reads."""
        worker = self.start_unawaited(name, **settings)
        worker.wait("worker_started")
        return worker

    def start_unawaited(self, name: str = "a", **settings: str) -> WorkerProcess:
        """Start a worker; return when it listens to signals."""
        worker = self._start(name, settings)
        worker.wait("listening")
        return worker

    def start_keeper(self, name: str = "a", **settings: str) -> WorkerProcess:
        """Start a process that runs a worker in a child each time it is asked to."""
        return self._start(name, settings, is_kept=True)

    def _start(self, name: str, settings: dict[str, str], *, is_kept: bool = False) -> WorkerProcess:
        own = {"redis_url": self.url, "namespace": self.keys.namespace, "name": name}
        how = {"folder": str(self.folder), "settings": own | settings, "is_kept": is_kept, "flows": self.flows}
        worker = WorkerProcess(how)
        self.workers.append(worker)
        return worker

    def add(self, kind: str, count: int = 1, *, trace: str = "") -> list[int]:
        """Add jobs; return their order ids."""
        orders = list(range(self._orders + 1, self._orders + count + 1))
        self._orders += count
        for order_id in orders:
            fields = {"kind": kind, "order_id": order_id, "outbox_id": order_id, "request_id": "", "trace": trace}
            self.client.xadd(self.keys.stream, cast("dict[Any, Any]", fields))
        return orders

    def open(self) -> None:
        """Let the gated jobs end."""
        (self.folder / "open").touch()

    def runs(self, what: str) -> list[dict[str, Any]]:
        """Return what handlers have noted under this word, in order."""
        file = self.folder / "runs"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [run for run in map(json.loads, lines) if run["what"] == what]

    def wait_runs(self, what: str, count: int) -> list[dict[str, Any]]:
        """Wait until handlers have noted that so often."""
        wait_until(lambda: len(self.runs(what)) >= count)
        return self.runs(what)

    def wait_settled(self) -> None:
        """Wait until nothing is owed any more."""
        wait_until(lambda: not self.places())

    def places(self) -> dict[int, list[str]]:
        """Return where on Redis each order's job is: ``stream``, ``delayed`` or ``dead``."""
        found: dict[int, list[str]] = {}
        for _entry_id, fields in cast("Any", self.client.xrange(self.keys.stream)):
            found.setdefault(int(fields[b"order_id"]), []).append("stream")
        for body in cast("dict[bytes, bytes]", self.client.hgetall(self.keys.delayed_body)).values():
            found.setdefault(_order_of(unpack(body)[1:]), []).append("delayed")
        for _entry_id, letter in cast("Any", self.client.xrange(self.keys.dead)):
            found.setdefault(_order_of(unpack(letter[b"fields"])), []).append("dead")
        return found

    def owners(self) -> list[str]:
        """Return who owns what is pending."""
        rows = cast("Any", self.client.xpending_range(self.keys.stream, "workers", "-", "+", 1000))
        return [row["consumer"].decode() for row in rows]

    def check_books(self, *orders: int) -> None:
        """Every job added is exactly one of: settled after its work was done, owed once, dead once."""
        places, done = self.places(), {run["order_id"] for run in self.runs("end")}
        for order_id in orders:
            where = places.pop(order_id, [])
            assert len(where) <= 1, f"order {order_id} is in several places: {where}"
            assert where or order_id in done, f"order {order_id} was acknowledged, but its work was never done"
        assert not places, f"jobs that nobody has added: {places}"

    def clock_s(self) -> float:
        """Return the time by Redis' clock, in seconds."""
        seconds, microseconds = self.client.time()
        return seconds + microseconds / 1e6

    def close(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.kill()
        self.client.close()


def _order_of(flat: list[bytes]) -> int:
    return int(dict(pair_up(flat))[b"order_id"])


def wait_until(is_so: Callable[[], object]) -> None:
    """Wait until something on Redis or on disk is so; polls, and gives up when it never is."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, "this never came true"
        time.sleep(0.01)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process while the block runs; it neither answers nor ends."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
