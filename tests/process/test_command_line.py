"""Storms of signals on the real command line: whatever it does, it ends as asked, without a word too many."""

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from redis import Redis

from stagedoor.cli.app import run
from stagedoor.core.keys import POOL
from tests.cli.fixtures import PATIENCE_S, Running, Start
from tests.process.support import ROOT, wait_until
from tests.support.redis_server import RedisServer, StartRedis

pytestmark = [pytest.mark.process, pytest.mark.redis]

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
GAPS_S = [0.0] * 20 + [0.003, 0.01, 0.05] * 10
"""Between the signals of a storm: first they come as fast as they can."""
HARMLESS = ["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGRTMIN", "SIGRTMAX"]

storms = pytest.mark.parametrize("number", [TERM, INT])


@attrs.frozen
class House:
    """A Redis, and the processes on it."""

    client: Redis
    stream: str
    url: str
    start: Start

    def worker(self, *words: str, **settings: str) -> Running:
        """Start a worker with the handlers of the tests."""
        plugins = {"plugins": "tests.process.programs.busy", "log_format": "json"}
        return self.start("worker", *words, **plugins, redis_url=self.url, **settings)

    def relay(self) -> Running:
        """Start a relay."""
        return self.start("relay", log_format="json", redis_url=self.url)

    def add(self, kind: str, count: int = 1) -> None:
        """Add jobs."""
        for number in range(1, count + 1):
            fields = {"kind": kind, "order_id": number, "outbox_id": number, "request_id": "", "trace": ""}
            self.client.xadd(self.stream, cast("Any", fields))

    def owners(self) -> list[str]:
        """Return who owns what is pending."""
        rows = cast("Any", self.client.xpending_range(self.stream, "workers", "-", "+", 1000))
        return [row["consumer"].decode() for row in rows]


@pytest.fixture
def house(start: Start, environ: dict[str, str], redis_url: str, namespace: str) -> Iterator[House]:
    """A house on the run's server."""
    environ["PYTHONPATH"] += f":{ROOT}"
    with Redis.from_url(redis_url) as client:
        yield House(client, namespace, redis_url, start)


@pytest.fixture
def own_house(house: House, namespace: str, start_redis: StartRedis) -> Iterator[tuple[House, RedisServer]]:
    """A house on a server that the test may ill-treat, and that keeps its data."""
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    with Redis.from_url(server.url) as client:
        yield House(client, namespace, server.url, house.start), server


def trouble(environ: dict[str, str], what: str) -> None:
    """Have the processes that are started from now on meet this trouble."""
    environ["TROUBLE"] = what


def storm(process: Running, number: signal.Signals) -> int:
    """Send fifty signals, and more of them as long as it lives; return its exit code."""
    until = time.monotonic() + PATIENCE_S
    for gap_s in itertools.cycle(GAPS_S):
        if not process.is_running or time.monotonic() > until:
            break
        process.signal(number)
        time.sleep(gap_s)
    return process.wait()


def wait_taken(process: Running, number: signal.Signals) -> None:
    """Wait until a signal that was sent has reached the process: only then another one is not the same."""
    wait_until(lambda: not is_in(process, "SigPnd", number) and not is_in(process, "ShdPnd", number))


def wait_listening(process: Running) -> None:
    """Wait until the process has handlers of its own: it takes the signals for real time last."""
    wait_until(lambda: is_in(process, "SigCgt", signal.SIGRTMAX))


def is_in(process: Running, which: str, number: signal.Signals) -> bool:
    """Return whether a signal is in this set of a process that the system keeps; one that has ended has none."""
    with contextlib.suppress(FileNotFoundError):
        for line in Path(f"/proc/{process.pid}/status").read_text("utf-8").splitlines():
            if line.startswith(which):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@contextlib.contextmanager
def ignored(number: signal.Signals) -> Iterator[None]:
    """Ignore a signal while the block runs: a process that is started there does so too."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def lines(process: Running) -> list[dict[str, Any]]:
    """Return the lines of its log; there is nothing else on its stderr."""
    return [json.loads(line) for line in process.said().splitlines()]


def events(process: Running) -> list[str]:
    """Return the names of the lines of its log."""
    return [line["event"] for line in lines(process)]


# -- in each phase -------------------------------------------------------------------


@storms
def test_a_storm_while_it_starts_ends_it_with_zero(house: House, number: signal.Signals) -> None:
    house.add("quick", 3)
    worker = house.worker()
    wait_listening(worker)
    assert storm(worker, number) == 0
    assert lines(worker) == []
    assert house.client.xlen(house.stream) == 3


def test_a_storm_while_a_plugin_is_imported_ends_it_with_zero(
    house: House, environ: dict[str, str], tmp_path: Path
) -> None:
    trouble(environ, "slow import")
    worker = house.worker()
    wait_until((tmp_path / "importing").exists)
    assert storm(worker, TERM) == 0
    assert lines(worker) == []


def test_a_storm_while_there_is_no_redis_yet_ends_it_with_zero(own_house: tuple[House, RedisServer]) -> None:
    house, server = own_house
    server.stop()
    worker = house.worker()
    worker.wait_for('"broker_down"')
    assert storm(worker, INT) == 0
    assert events(worker) == ["broker_down"]


def test_a_storm_during_a_blocked_read_ends_it_with_zero(house: House) -> None:
    worker = house.worker(block_ms="60000")
    worker.wait_for('"worker_started"')
    assert storm(worker, TERM) == 0
    assert events(worker) == ["worker_started", "worker_stopping", "worker_stopped"]


@pytest.mark.parametrize("kind,number", [("stuck", TERM), ("spin", INT)])
def test_a_storm_while_threads_do_not_return_gives_their_jobs_back(
    house: House, kind: str, number: signal.Signals
) -> None:
    house.add(kind, 3)
    worker = house.worker(grace_s="6")
    worker.wait_for('"it_began"', count=3)
    assert storm(worker, number) == 0
    assert (lines(worker)[-1]["event"], lines(worker)[-1]["released"]) == ("worker_stopped", 3)
    assert "delivery_settled" not in events(worker)
    assert house.owners() == [POOL] * 3


def test_a_storm_while_redis_is_away_acknowledges_nothing(own_house: tuple[House, RedisServer]) -> None:
    house, server = own_house
    house.add("stuck", 3)
    worker = house.worker(grace_s="6")
    worker.wait_for('"it_began"', count=3)
    server.stop()
    worker.wait_for('"broker_down"')
    assert storm(worker, TERM) == 0
    assert "delivery_settled" not in events(worker)
    server.start()
    assert house.client.xlen(house.stream) == 3
    assert house.owners() == ["box-1"] * 3


@pytest.mark.parametrize("kind", ["stuck", "spin"])
def test_a_storm_while_it_leaves_changes_nothing(house: House, environ: dict[str, str], kind: str) -> None:
    """Its last lines are written; what comes now has nobody to tell it to."""
    trouble(environ, "storm while it leaves")
    house.add(kind, 3)
    worker = house.worker(grace_s="6")
    worker.wait_for('"it_began"', count=3)
    worker.signal(TERM)
    assert worker.wait() == 0
    assert events(worker)[-1] == "worker_stopped"
    assert house.owners() == [POOL] * 3


# -- the deadline ---------------------------------------------------------------------


def test_what_hangs_while_it_leaves_is_ended_at_the_deadline(house: House, environ: dict[str, str]) -> None:
    """All has been given back by then, so it ends with 0."""
    trouble(environ, "hangs while it leaves")
    worker = house.worker(grace_s="4")
    worker.wait_for('"worker_started"')
    worker.signal(TERM)
    worker.wait_for('"worker_stopped"')
    assert worker.wait() == 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_handler_that_holds_up_the_event_loop_is_ended_at_the_deadline(house: House, count: int) -> None:
    """Nobody is there who could give anything back: others find it, and a crash is counted."""
    house.add("block")
    worker = house.worker(grace_s="2" if count == 1 else "3600")
    worker.wait_for('"it_began"')
    for _ in range(count):
        worker.signal(TERM)
        wait_taken(worker, TERM)
    assert worker.wait() == 1
    assert "worker_stopping" not in events(worker)
    assert house.owners() == ["box-1"]


def test_a_handler_that_burns_a_core_is_shown_as_held_and_given_back(
    house: House, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    house.add("spin")
    worker = house.worker(grace_s="4", slots="2")
    worker.wait_for('"it_began"')
    used = cpu_s(worker)
    wait_until(lambda: cpu_s(worker) - used > 0.5)

    def held() -> int:
        capsys.readouterr()
        assert run(["status", "--json", "--redis-url", house.url, "--namespace", namespace]) == 0
        [seen] = json.loads(capsys.readouterr().out)["workers"]
        assert (seen["pid"], seen["orphaned"], seen["stopping"]) == (worker.pid, 0, False)
        return int(seen["held"])

    wait_until(lambda: held() == 1)
    worker.signal(TERM)
    assert worker.wait() == 0
    assert (lines(worker)[-1]["event"], lines(worker)[-1]["released"]) == ("worker_stopped", 1)
    assert house.owners() == [POOL]


# -- other signals ----------------------------------------------------------------------


def test_a_terminal_that_is_closed_drains_however_often_it_says_so(house: House, tmp_path: Path) -> None:
    house.add("gated", 2)
    worker = house.worker()
    worker.wait_for('"it_began"', count=2)
    for _ in range(3):
        worker.signal(HUP)
        worker.wait_for('"worker_stopping"')
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        # It comes after them: by the second whatever they do is done.
        worker.signal(number)
        worker.wait_for(number.name)
    (tmp_path / "open").touch()
    assert worker.wait() == 0
    settled = [line for line in lines(worker) if line["event"] == "delivery_settled"]
    assert [line["outcome"] for line in settled] == ["done", "done"]
    assert house.client.xlen(house.stream) == 0


def test_with_nohup_a_worker_outlives_its_terminal(house: House, tmp_path: Path) -> None:
    with ignored(HUP):
        worker = house.worker()
    worker.wait_for('"worker_started"')
    worker.signal(HUP)
    worker.signal(signal.SIGUSR1)
    worker.wait_for("SIGUSR1")
    assert events(worker) == ["worker_started", "warned"]
    worker.signal(TERM)
    assert worker.wait() == 0


@pytest.mark.parametrize("command", ["worker", "relay"])
def test_signals_that_mean_nothing_do_nothing_and_are_told_once(house: House, command: str) -> None:
    process = getattr(house, command)()
    process.wait_for(f'"{command}_started"')
    for name in HARMLESS:
        for _ in range(3):
            process.signal(getattr(signal, name))
        process.wait_for(f"{name} has come")
    process.signal(TERM)
    assert process.wait() == 0
    warned = [line["message"].split()[0] for line in lines(process) if line["event"] == "warned"]
    assert warned == HARMLESS


def test_a_signal_that_a_plugin_has_taken_over_is_the_plugin_s(
    house: House, environ: dict[str, str], tmp_path: Path
) -> None:
    trouble(environ, "takes signals over")
    worker = house.worker()
    worker.wait_for('"worker_started"')
    for number in (signal.SIGUSR1, signal.SIGRTMIN):
        worker.signal(number)
        wait_until((tmp_path / f"heard-{number}").exists)
    worker.signal(signal.SIGUSR2)
    worker.wait_for("SIGUSR2 has come")
    worker.signal(TERM)
    wait_until((tmp_path / f"heard-{TERM}").exists)
    assert worker.wait() == 0
    assert events(worker) == ["worker_started", "warned", "worker_stopping", "worker_stopped"]


def test_with_nohup_a_plugin_may_have_the_terminal_s_signal(
    house: House, environ: dict[str, str], tmp_path: Path
) -> None:
    """Nothing is in hand while it is imported: were it a request to stop, the process would end there."""
    trouble(environ, "takes the terminal's signal over")
    with ignored(HUP):
        worker = house.worker()
    worker.wait_for('"worker_started"')
    assert (tmp_path / f"heard-{HUP}").exists()
    worker.signal(TERM)
    assert worker.wait() == 0


def test_sigquit_ends_it_hard(house: House) -> None:
    worker = house.worker()
    worker.wait_for('"worker_started"')
    worker.signal(signal.SIGQUIT)
    assert worker.wait() == -signal.SIGQUIT


def test_children_of_handlers_have_signals_of_their_own(house: House) -> None:
    """One that is forked has the handlers and the pipe of its parent; ended, it must not end the parent."""
    house.add("fork")
    worker = house.worker()
    told = json.loads(worker.wait_for('"they_ended"'))
    assert told["codes"] == [-TERM, -TERM]
    worker.wait_for('"delivery_settled"')
    assert "worker_stopping" not in events(worker)
    worker.signal(TERM)
    assert worker.wait() == 0


# -- the relay -----------------------------------------------------------------------------


@pytest.mark.parametrize("phase,number", [("starts", TERM), ("waits", INT), ("works", TERM)])
def test_a_storm_ends_a_relay_with_zero(
    own_house: tuple[House, RedisServer], phase: str, number: signal.Signals
) -> None:
    house, server = own_house
    if phase == "waits":
        server.stop()
    relay = house.relay()
    wait_listening(relay)
    if phase != "starts":
        relay.wait_for('"broker_down"' if phase == "waits" else '"relay_started"')
    assert storm(relay, number) == 0
    assert set(events(relay)) <= {"broker_down", "relay_started", "relay_stopped"}


def cpu_s(process: Running) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
