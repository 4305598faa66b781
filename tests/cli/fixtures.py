"""Real processes of the command line, each with the lines it has written so far."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PATIENCE_S = 60.0
"""For a process on a busy machine to do what it does in a second otherwise; never waited for in full."""


class Running:
    """One process; its stderr is read in a thread, so that a test can wait for a line."""

    def __init__(self, words: tuple[str, ...], *, folder: Path, environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stagedoor", *words],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self._lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        """The process' id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def said(self) -> str:
        """Return all that it has written to stderr so far."""
        with self._changed:
            return "\n".join(self._lines)

    def wait_for(self, part: str, *, count: int = 1) -> str:
        """Wait until *part* is in that many lines, and return the last of them."""
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [line for line in self._lines if part in line]
            return len(found) >= count or not self._reader.is_alive()

        with self._changed:
            self._changed.wait_for(is_there, PATIENCE_S)
        assert len(found) >= count, f"{part!r} is not {count} times in\n{self.said()}"
        return found[count - 1]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def end(self) -> None:
        """Kill it if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE_S)
        assert self._process.stderr is not None
        self._process.stderr.close()


type Start = Callable[..., Running]


@pytest.fixture
def environ(redis_url: str, namespace: str, tmp_path: Path) -> dict[str, str]:
    """The settings of this test's processes: the run's Redis, and a namespace and a folder of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STAGEDOOR_")}
    modules = [str(tmp_path), kept["PYTHONPATH"]] if kept.get("PYTHONPATH") else [str(tmp_path)]
    return kept | {
        "STAGEDOOR_REDIS_URL": redis_url,
        "STAGEDOOR_NAMESPACE": namespace,
        "STAGEDOOR_NAME": "box-1",
        "PYTHONPATH": os.pathsep.join(modules),
    }


@pytest.fixture
def start(environ: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Start processes in this test's folder; all are ended after it."""
    running: list[Running] = []

    def start_one(*words: str, **settings: str) -> Running:
        more = {f"STAGEDOOR_{name.upper()}": value for name, value in settings.items()}
        running.append(Running(words, folder=tmp_path, environ=environ | more))
        return running[-1]

    yield start_one
    for process in running:
        process.end()
