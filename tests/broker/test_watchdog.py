"""What we have started ends with us, also when we are killed; and nothing else does."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from stagedoor.broker.watchdog import Watchdog

pytestmark = pytest.mark.process

LIMIT_S = 20.0

REDIS = """
import sys, threading
from pathlib import Path
from stagedoor.broker.private_server import PrivateRedis
with PrivateRedis(Path(sys.argv[1]) / "redis.log", program=sys.argv[2]) as server:
    if sys.argv[3] == "again":
        server.kill()
        server.start_again()
    print(server.socket.parent, server.pid, server._watchdog.pid, flush=True)
    threading.Event().wait()
"""
CREW = """
import sys, threading
from pathlib import Path
from stagedoor.rehearsal.crew import Crew, House
house = House(folder=Path(sys.argv[1]))
house.logs_dir.mkdir()
sleeper = (sys.executable, "-c", "import threading; threading.Event().wait()")
with Crew(house, "unix:///nowhere", slots=1, program_of=lambda _name: sleeper) as crew:
    crew.kill("worker-1")
    crew.freeze("worker-2")
    print(crew.pid("relay"), crew.pid("worker-2"), flush=True)
    threading.Event().wait()
"""


@contextmanager
def killed(script: str, *words: str) -> Iterator[list[str]]:
    """Run a script until it has said something, end it with SIGKILL, and give what it had said."""
    with subprocess.Popen([sys.executable, "-c", script, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline().split()
            assert said, "it has ended before it said anything"
            pids = [int(word) for word in said if word.isdigit()]
            handles = [os.pidfd_open(pid) for pid in pids]
        finally:
            process.kill()
        try:
            assert have_ended(handles)
        finally:
            for handle in handles:
                os.close(handle)
        yield said


def have_ended(handles: Sequence[int]) -> bool:
    """Wait until processes have ended, whoever their parents are."""
    waiting = set(handles)
    while waiting:
        ended, _, _ = select.select(waiting, [], [], LIMIT_S)
        if not ended:
            return False
        waiting -= set(ended)
    return True


@pytest.mark.redis
@pytest.mark.parametrize("how", ["once", "again"])
def test_a_private_redis_ends_with_whoever_started_it(redis_program: str, tmp_path: Path, how: str) -> None:
    with killed(REDIS, str(tmp_path), redis_program, how) as said:
        folder = Path(said[0])
        assert folder.name.startswith("stagedoor-redis-")
        assert not folder.exists()


def test_the_processes_of_a_rehearsal_end_with_it_frozen_ones_too(tmp_path: Path) -> None:
    with killed(CREW, str(tmp_path)) as said:
        assert len(said) == 2


SLEEP = [sys.executable, "-c", "import threading; threading.Event().wait()"]


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [subprocess.Popen(SLEEP) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_only_what_it_watches_is_ended_and_the_folder_removed(
    sleepers: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    folder = tmp_path / "a folder; with 'words'"
    (folder / "inside").mkdir(parents=True)
    watchdog = Watchdog(folder)
    for process in sleepers:
        watchdog.watch(process.pid)
    watchdog.forget(sleepers[0].pid)
    # What the system does with the pipe when we are gone.
    assert watchdog._process.stdin is not None
    watchdog._process.stdin.close()
    assert watchdog._process.wait(LIMIT_S) == 0
    assert sleepers[1].wait(LIMIT_S) == -signal.SIGKILL
    assert sleepers[0].poll() is None
    assert not folder.exists()
    assert tmp_path.exists()
    watchdog.leave()


def test_one_that_leaves_ends_nobody(sleepers: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with Watchdog(folder) as watchdog:
        watchdog.watch(sleepers[0].pid)
    watchdog.leave()
    watchdog.forget(sleepers[0].pid)
    assert watchdog._process.returncode == 0
    assert sleepers[0].poll() is None
    assert folder.exists()


def test_one_that_was_ended_itself_is_no_failure(sleepers: list[subprocess.Popen[bytes]]) -> None:
    watchdog = Watchdog()
    os.kill(watchdog.pid, signal.SIGKILL)
    watchdog._process.wait()
    watchdog.watch(sleepers[0].pid)
    watchdog.forget(sleepers[0].pid)
    watchdog.leave()
    assert sleepers[0].poll() is None
