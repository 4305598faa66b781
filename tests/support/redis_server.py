"""The private Redis of the tests: the product's own, with what a test wants to do to it.

Tests never speak to a server that was there before them, and never end one that
they did not start.
"""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import redis

from stagedoor.broker import private_server
from stagedoor.broker.private_server import START_LIMIT_S, PrivateRedis
from stagedoor.errors import ConfigurationError


def find_server() -> str:
    """Return the server that tests run on: $STAGEDOOR_TEST_REDIS_SERVER, else the first on PATH.

    Raises:
        ConfigurationError: there is none, or the variable names something that cannot be run.
    """
    named = os.environ.get("STAGEDOOR_TEST_REDIS_SERVER")
    if not named:
        return private_server.find_server()
    if found := shutil.which(named):
        return found
    raise ConfigurationError(f"$STAGEDOOR_TEST_REDIS_SERVER is {named}, which is not to be found")


class RedisServer:
    """One server process; stopped and started again it keeps its address and its folder.

    Args:
        log: the file that takes what the server prints.
        options: further words of its command line, like ``"--maxmemory", "2mb"``.
    """

    def __init__(self, log: Path, *options: str, program: str | None = None) -> None:
        self._log = log
        self._server = PrivateRedis(log, program=program or find_server(), options=options)
        self._was_started = False

    @property
    def url(self) -> str:
        """The address of database 0, as the setting `redis_url` takes it."""
        return self._server.url

    @property
    def socket(self) -> Path:
        """The unix socket."""
        return self._server.socket

    @property
    def is_running(self) -> bool:
        """Whether the process that was last started still runs."""
        return self._server.is_running

    @property
    def pid(self) -> int:
        """The process id of the server that was last started."""
        return self._server.pid

    def start(self) -> None:
        """Start the server, for the first time or again, and return when it answers.

        Raises:
            ConfigurationError: it ended, or gave no answer; says what it printed last.
        """
        assert not self.is_running, f"the server already runs as {self.pid}"
        if self._was_started:
            self._server.start_again()
        else:
            self._server.start()
        self._was_started = True

    def stop(self) -> None:
        """End the server with SIGTERM, so that it saves what its options tell it to; no harm if it has ended."""
        self._server.end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server with SIGKILL; no harm if it has ended."""
        self._server.kill()

    def remove(self) -> None:
        """End the server for good, and remove its folder."""
        self._server.kill()
        self._server.stop()

    def client(self) -> "redis.Redis":
        """Return a new client that gives bytes; close it, or use it in a ``with``."""
        return redis.Redis.from_url(self.url, socket_timeout=START_LIMIT_S)

    def cli(self, *args: str | bytes | int) -> object:
        """Send one command over a connection of its own and return the reply, bytes undecoded."""
        with self.client() as client:
            return client.execute_command(*args)

    def log(self) -> str:
        """Return all that the server has printed."""
        return self._log.read_text("utf-8", "replace")


StartRedis = Callable[..., RedisServer]
"""What the fixture `start_redis` is: takes further options, returns a running server."""


@contextlib.contextmanager
def redis_factory(new_log: Callable[[], Path]) -> Iterator[StartRedis]:
    """Give a function that starts servers, and end every one of them at the end."""
    with contextlib.ExitStack() as stack:

        def start(*options: str, program: str | None = None) -> RedisServer:
            server = RedisServer(new_log(), *options, program=program)
            stack.callback(server.remove)
            server.start()
            return server

        yield start
