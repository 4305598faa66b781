"""A private Redis server: on a unix socket in a folder of its own, without persistence.

Tests never speak to a server that was there before them, and never end one that
they did not start.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import redis

SERVERS = ("redis-server", "valkey-server")
START_LIMIT_S = 20.0
POLL_S = 0.01


class NoServer(Exception):
    """There is no Redis server on this machine."""


def find_server() -> str:
    """Return the server that tests run on: $STAGEDOOR_TEST_REDIS_SERVER, else the first on PATH.

    Raises:
        NoServer: there is none, or the variable names something that cannot be run.
    """
    named = os.environ.get("STAGEDOOR_TEST_REDIS_SERVER")
    for name in (named,) if named else SERVERS:
        if found := shutil.which(name):
            return found
    wanted = f"$STAGEDOOR_TEST_REDIS_SERVER is {named}, which" if named else " or ".join(SERVERS)
    raise NoServer(f"{wanted} is not to be found; install redis-server, or run the tests through noxfile.py")


class RedisServer:
    """One server process and its folder; stopped and started again it keeps its address and its folder.

    Args:
        folder: where its socket, log and, if *options* ask for them, its data lie.
        options: further words of its command line, like ``"--maxmemory", "2mb"``.
    """

    def __init__(self, folder: Path, *options: str, program: str | None = None) -> None:
        self.folder = folder
        self.program = program or find_server()
        self.options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """The unix socket; at most 107 bytes long, or no process could connect to it."""
        return self.folder / "redis.sock"

    @property
    def url(self) -> str:
        """The address of database 0, as the setting `redis_url` takes it."""
        return f"unix://{self.socket}?db=0"

    @property
    def is_running(self) -> bool:
        """Whether the process that was last started still runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the server that was last started."""
        assert self._process is not None, "the server was never started"
        return self._process.pid

    def start(self) -> None:
        """Start the server and return when it answers (also ``LOADING`` is an answer).

        Raises:
            RuntimeError: it ended, or gave no answer; the message has its log.
        """
        assert not self.is_running, f"the server already runs as {self.pid}"
        self.socket.unlink(missing_ok=True)
        command = [self.program, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no", *self.options]
        with (self.folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the tests; the server ends when its fixture does.
                start_new_session=True,
            )
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        deadline = monotonic() + START_LIMIT_S
        while True:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError), self.client() as client:
                with contextlib.suppress(redis.BusyLoadingError):
                    client.ping()
                return
            if not self.is_running or monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self.program} did not start:\n{self.log()}")
            sleep(POLL_S)

    def stop(self) -> None:
        """End the server with SIGTERM, so that it saves what its options tell it to; no harm if it has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server with SIGKILL; no harm if it has ended."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            # A server that was frozen takes no SIGTERM before it is woken.
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
        self._process.wait(timeout=START_LIMIT_S)

    def client(self) -> "redis.Redis":
        """Return a new client that gives bytes; close it, or use it in a ``with``."""
        return redis.Redis.from_url(self.url, socket_timeout=START_LIMIT_S)

    def cli(self, *args: str | bytes | int) -> object:
        """Send one command over a connection of its own and return the reply, bytes undecoded."""
        with self.client() as client:
            return client.execute_command(*args)

    def log(self) -> str:
        """Return all that the server has printed."""
        return (self.folder / "redis.log").read_text("utf-8", "replace")


StartRedis = Callable[..., RedisServer]
"""What the fixture `start_redis` is: takes further options, returns a running server."""


@contextlib.contextmanager
def redis_factory(new_folder: Callable[[], Path]) -> Iterator[StartRedis]:
    """Give a function that starts servers, and end every one of them at the end."""
    with contextlib.ExitStack() as stack:

        def start(*options: str, program: str | None = None) -> RedisServer:
            server = RedisServer(new_folder(), *options, program=program)
            stack.callback(server.kill)
            server.start()
            return server

        yield start
