"""The processes of a rehearsal: a relay and some workers, as anybody would start them.

They are started with `subprocess`, in sessions of their own so that Ctrl-C
reaches the rehearsal alone, and ended by their ids, never by a name. A watchdog
ends them when the rehearsal is killed: nobody else would.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from stagedoor.broker.watchdog import Watchdog
from stagedoor.settings import NOT_OURS, PREFIX

WORKERS = ("worker-1", "worker-2")
RELAY = "relay"
NAMESPACE = "demo"
DRAIN_S = 10.0
HURRY_S = 1.5
"""How long a process may take to leave when somebody waits at the terminal."""
PROGRAM = (sys.executable, "-m", "stagedoor")


@attrs.frozen(kw_only=True)
class House:
    """Where everything of one rehearsal is."""

    folder: Path

    @property
    def orders_url(self) -> str:
        """The order book."""
        return f"sqlite:///{self.folder / 'orders.db'}"

    @property
    def tickets_dir(self) -> Path:
        """The tickets."""
        return self.folder / "tickets"

    @property
    def logs_dir(self) -> Path:
        """The logs of all processes."""
        return self.folder / "logs"

    @property
    def log_of_redis(self) -> Path:
        """What the private Redis prints."""
        return self.logs_dir / "redis.log"

    def log(self, name: str) -> Path:
        """The log of one process."""
        return self.logs_dir / f"{name}.jsonl"


class Crew:
    """Relay and workers of a rehearsal; a context manager that leaves none behind.

    Args:
        house: where they work.
        redis_url: the address of the private Redis, or what says the address for each process by its name.
        slots: per worker.
        settings: further settings of all of them, by name.
        workers: their names.
        with_relay: whether there is a relay.
        program_of: the words that start Stagedoor in each process, by its name.
    """

    def __init__(
        self,
        house: House,
        redis_url: str | Callable[[str], str],
        *,
        slots: int,
        settings: Mapping[str, str] | None = None,
        workers: Sequence[str] = WORKERS,
        with_relay: bool = True,
        program_of: Callable[[str], Sequence[str]] = lambda _name: PROGRAM,
    ) -> None:
        self._house = house
        self._redis_url = redis_url
        self._slots = slots
        self._settings = dict(settings or {})
        self._workers = tuple(workers)
        self._with_relay = with_relay
        self._program_of = program_of
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: dict[str, int] = {}
        self._watchdog: Watchdog | None = None

    def __enter__(self) -> Self:
        self._watchdog = Watchdog()
        try:
            for name in (*([RELAY] if self._with_relay else []), *self._workers):
                self.start(name)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop(in_a_hurry=True)
        if self._watchdog is not None:
            self._watchdog.leave()

    @property
    def live_workers(self) -> list[str]:
        """The names of the workers that run."""
        return [name for name in self._workers if name in self._running]

    def is_live(self, name: str) -> bool:
        """Whether this process has not been seen to end."""
        return name in self._running

    def pid(self, name: str) -> int:
        """Return the process id of a process that runs."""
        return self._running[name].pid

    def lost(self) -> dict[str, int]:
        """Return the processes that have ended though nobody asked them to, with their exit codes."""
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                self._forget(self._running.pop(name))
                self._ended[name] = code
        return dict(self._ended)

    def start(self, name: str) -> None:
        """Start a process that does not run: the relay, or a worker of this name.

        **Cancellation**: an interrupt waits until the process is known, or nobody would end it.
        """
        # In a thread: what a signal raises in this one must not fall between the fork and its being noted.
        with ThreadPoolExecutor(1) as starter:
            starter.submit(self._start, name).result()

    def _start(self, name: str) -> None:
        words = ("relay",) if name == RELAY else ("worker", "--name", name, "--slots", str(self._slots))
        self._ended.pop(name, None)
        assert self._watchdog is not None, "the crew is a context manager"
        with self._house.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603 - this interpreter, and words of ours
                [*self._program_of(name), *words, "--log-format", "json", "--log-level", "debug"],
                env=self._environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watchdog.watch(self._running[name].pid)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        if self._watchdog is not None:
            self._watchdog.forget(process.pid)

    def _environment(self, process: str) -> Mapping[str, str]:
        """Return our own environment with this rehearsal's settings instead of the user's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX) or name in NOT_OURS}
        settings = self._settings | {
            "redis_url": self._redis_url if isinstance(self._redis_url, str) else self._redis_url(process),
            "orders_url": self._house.orders_url,
            "tickets_dir": str(self._house.tickets_dir),
            "namespace": NAMESPACE,
        }
        return kept | {f"{PREFIX}{name.upper()}": value for name, value in settings.items()}

    # -- signals ----------------------------------------------------------------

    def freeze(self, name: str) -> None:
        """Stop a process where it stands, with SIGSTOP."""
        self._running[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a frozen process go on."""
        self._running[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> float:
        """End a process with SIGKILL, and return when it was dead, in Unix seconds."""
        process = self._running.pop(name)
        process.kill()
        process.wait()
        self._forget(process)
        return time.time()

    def stop(self, *, in_a_hurry: bool = False) -> None:
        """End workers and relay: with SIGTERM, twice in a hurry, and with SIGKILL where that does not help."""
        for _ in range(2 if in_a_hurry else 1):
            for process in self._running.values():
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + (HURRY_S if in_a_hurry else DRAIN_S)
        for process in self._running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._forget(process)
        self._running.clear()
