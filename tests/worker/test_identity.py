"""Who this process is, and what proves that another one is gone."""

import os
import subprocess
import sys
from collections.abc import Iterator

import attrs
import pytest

from stagedoor.worker import identity
from stagedoor.worker.identity import current_identity, is_provably_gone

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs Linux' /proc")  # noqa: PTH112 - at import


def record(**changes: str) -> dict[str, str]:
    """Return the record of this very process, with changes."""
    return {name: str(value) for name, value in attrs.asdict(current_identity()).items()} | changes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def of_child(child: subprocess.Popen[bytes]) -> dict[str, str]:
    started = identity._start_time(child.pid)
    assert started
    return record(pid=str(child.pid), started=str(started))


def test_every_start_has_an_incarnation_of_its_own() -> None:
    assert len({current_identity().incarnation for _ in range(100)}) == 100


def test_a_process_that_runs_is_not_gone(child: subprocess.Popen[bytes]) -> None:
    assert not is_provably_gone(record())
    assert not is_provably_gone(of_child(child))


def test_a_process_that_has_ended_is_gone(child: subprocess.Popen[bytes]) -> None:
    seen = of_child(child)
    child.kill()
    child.wait()
    assert is_provably_gone(seen)


def test_a_process_that_was_killed_is_gone_before_its_parent_has_noticed(child: subprocess.Popen[bytes]) -> None:
    seen = of_child(child)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_provably_gone(seen)


def test_another_process_with_the_same_pid_does_not_count() -> None:
    assert is_provably_gone(record(started=str(current_identity().started - 1)))


@pytest.mark.parametrize(
    "changes",
    [
        {"boot_id": "another boot"},
        {"boot_id": ""},
        {"pid_namespace": "pid:[1]"},
        {"pid_namespace": ""},
        {"pid": ""},
        {"pid": "²"},
        {"pid": "-1"},
        {"pid": "9" * 400},
        {"pid": "x", "started": "x"},
        {"started": "0"},
        {"started": ""},
        {"started": "٣"},
    ],
)
def test_what_says_nothing_about_this_boot_and_namespace_proves_nothing(changes: dict[str, str]) -> None:
    gone = {"pid": "4194305", "started": "1"}
    assert not is_provably_gone(record(**(gone | changes)))


def test_a_process_that_proc_hides_is_not_taken_for_gone(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = of_child(child)
    monkeypatch.setattr(identity, "_start_time", lambda _pid: None)
    assert not is_provably_gone(seen)
    child.kill()
    child.wait()
    assert is_provably_gone(seen)
