"""A Redis of one's own: for a demo, a chaos run or a replay, on a unix socket, gone afterwards.

It speaks to no server that was there before, and ends none that it did not start. It is
gone also when we are killed: a watchdog sees to that.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from stagedoor.broker.connection import Link
from stagedoor.broker.watchdog import Watchdog
from stagedoor.errors import BrokerUnavailable, ConfigurationError

SERVERS = ("redis-server", "valkey-server")
START_LIMIT_S = 20.0
STOP_LIMIT_S = 5.0
POLL_S = 0.01
LAST_LINES = 3
"""Of what a server printed that did not start: Redis names a bad option one line before its last."""
LONGEST_SOCKET_PATH = 107
"""Bytes; the kernel's limit."""
DATA = "data"
"""The folder, in the server's own, in which a durable one writes down what it does."""


def find_server() -> str:
    """Return the path of the first Redis or Valkey server on PATH.

    Raises:
        ConfigurationError: there is none; says what to install.
    """
    for name in SERVERS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise ConfigurationError(
        f"there is no {' and no '.join(SERVERS)} on PATH; install one, on Debian with: apt-get install redis-server"
    )


class PrivateRedis:
    """One server process, from `start` to `stop`; also a context manager.

    Args:
        log: the file that takes what the server prints.
        program: the server to run; the first one on PATH by default.
        is_durable: whether it writes down all it does, so that it can be ended and started again.
        options: further words of its command line, which count more than ours.
    """

    def __init__(
        self, log: Path, *, program: str | None = None, is_durable: bool = False, options: Sequence[str] = ()
    ) -> None:
        self.program = program or find_server()
        self._is_durable = is_durable
        self._options = tuple(options)
        self._log = log
        self._folder: Path | None = None
        self._watchdog: Watchdog | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address, as the setting `redis_url` takes it."""
        return f"unix://{self.socket}?db=0"

    @property
    def socket(self) -> Path:
        """The unix socket."""
        assert self._folder is not None, "start() makes the folder of the socket"
        return self._folder / "redis.sock"

    @property
    def pid(self) -> int:
        """The server's process id."""
        assert self._process is not None, "start() starts the process"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process that was last started still runs."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server, and return once it answers.

        Raises:
            ConfigurationError: it ended at once, or cannot be used; says what it printed last.
        """
        self._folder = _make_folder()
        try:
            self._watchdog = Watchdog(self._folder)
            self._run(self._folder)
        except BaseException:
            self.stop()
            raise

    def _run(self, folder: Path) -> None:
        assert self._watchdog is not None, "start() sets a watchdog"
        with self._log.open("ab") as log:
            self._process = self._popen(folder, log)
        self._watchdog.watch(self._process.pid)
        self._wait_until_it_answers()

    def _popen(self, folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
        options = ["--port", "0", "--unixsocket", str(folder / "redis.sock"), "--unixsocketperm", "700"]
        options += ["--dir", str(folder), "--save", "", "--daemonize", "no"]
        # Not synced to the disk: what was written outlasts the process, and the machine is not what fails here.
        # Not rewritten: the files can be copied at any time, for they only grow.
        options += ["--appendonly", "yes" if self._is_durable else "no", "--appenddirname", DATA]
        options += ["--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"]
        return subprocess.Popen(  # noqa: S603 - the program was found on PATH, and the words are ours
            [self.program, *options, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for us; the server ends when we say so.
            start_new_session=True,
        )

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None, "start() starts the process"
        deadline = time.monotonic() + START_LIMIT_S
        link = Link(self.url)
        with contextlib.closing(link):
            while True:
                try:
                    link.check_server()
                except BrokerUnavailable:
                    if self._process.poll() is not None or time.monotonic() > deadline:
                        raise ConfigurationError(f"{self.program} did not start: {self._last_words()}") from None
                    time.sleep(POLL_S)
                else:
                    return

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text("utf-8", "replace").splitlines() if line.strip()]
        return "; ".join(line.strip() for line in lines[-LAST_LINES:]) or "it printed nothing"

    def kill(self) -> None:
        """End the server with SIGKILL; what a durable one has said is still there for `start_again`."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> None:
        """End the server with this signal, and keep its folder for `start_again`; no harm if it has ended.

        One that does not end within some seconds is ended with SIGKILL.
        """
        if self._process is None:
            return
        if self._process.poll() is None:
            # A server that was frozen takes no SIGTERM before it is woken.
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._watchdog is not None:
            self._watchdog.forget(self._process.pid)

    def start_again(self, data: Path | None = None, *, is_empty: bool = False) -> None:
        """Start the server that was ended, at the same address; returns once it answers.

        Args:
            data: a copy made by `copy_data` that it begins with; None for what it had.
            is_empty: whether it begins with nothing.
        """
        assert self._folder is not None, "start() makes the folder of the socket"
        if data is not None or is_empty:
            shutil.rmtree(self._folder / DATA, ignore_errors=True)
        if data is not None:
            shutil.copytree(data, self._folder / DATA)
        self.socket.unlink(missing_ok=True)
        self._run(self._folder)

    def copy_data(self, to: Path) -> None:
        """Copy what a durable server has at this moment into a new folder, also while it runs."""
        assert self._folder is not None, "start() makes the folder of the socket"
        shutil.copytree(self._folder / DATA, to)

    def stop(self) -> None:
        """End the server and remove its folder; no harm when that has happened."""
        self.end(signal.SIGTERM)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._watchdog is not None:
            self._watchdog.leave()


def _make_folder() -> Path:
    """Make a folder for a socket and the data; in /tmp where the path in $TMPDIR would be too long for a socket."""
    longest = len(os.fsencode(tempfile.gettempdir())) + len("/stagedoor-redis-12345678/redis.sock")
    is_short = longest <= LONGEST_SOCKET_PATH or not Path("/tmp").is_dir()  # noqa: S108 - mkdtemp makes the name
    return Path(tempfile.mkdtemp(prefix="stagedoor-redis-", dir=None if is_short else "/tmp"))  # noqa: S108 - as above
