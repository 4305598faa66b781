"""How we speak to Redis: connections, timeouts, scripts, and whose fault an error is."""

import importlib.resources
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from stagedoor.errors import BrokerError, BrokerUnavailable, ConfigurationError, GroupMissing

CONNECT_TIMEOUT_S = 1.0
QUICK_TIMEOUT_S = 0.1
"""A call that carries no bodies takes Redis microseconds; longer means that something is wrong."""
PATIENT_MARGIN_S = 2.0
"""Past the end of a blocked read: time for its reply on a busy machine, short enough to notice a dead connection."""

MIN_REDIS = (7, 0)
MIN_VALKEY = (7, 2)

_SCHEMES = ("redis", "rediss", "unix")
_WEATHER = ("LOADING", "READONLY", "MISCONF", "OOM", "NOAUTH", "CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN",
            "MASTERDOWN", "NOREPLICAS", "BUSY ", "WRONGPASS", "NOPERM")  # fmt: skip
_NO_GROUP = ("NOGROUP", "no such key", "requires the key to exist", "key no longer exists")


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Turn redis-py's exceptions into ours, by what the caller should do."""
    try:
        yield
    except redis.exceptions.ResponseError as error:
        raise _of_response(error) from error
    except (redis.exceptions.RedisError, OSError) as error:
        raise BrokerUnavailable(f"{type(error).__name__}: {error}") from error


def _of_response(error: redis.exceptions.ResponseError) -> BrokerError:
    text = f"{getattr(error, 'error_code', None) or ''} {error}".strip()
    if any(mark in text for mark in _NO_GROUP):
        return GroupMissing(text)
    if isinstance(error, _WEATHER_CLASSES) or any(mark in text for mark in _WEATHER) or "UNBLOCKED" in text:
        return BrokerUnavailable(text)
    return BrokerError(text)


_WEATHER_CLASSES = (
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.NoPermissionError,
    redis.exceptions.ClusterError,
)


def read_script(name: str) -> str:
    """Return a script's text with what it includes put in."""
    folder = importlib.resources.files("stagedoor.broker") / "scripts"
    text = (folder / f"{name}.lua").read_text("utf-8")
    return re.sub(r"^-- include: (\S+)$", lambda m: (folder / m[1]).read_text("utf-8"), text, flags=re.MULTILINE)


class Script:
    """One Lua script; loads itself where Redis does not know it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._text = read_script(name)
        self._sha = _sha1(self._text)

    def __call__(self, client: "redis.Redis", keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run it once; a lost script cache costs one more round trip, never an error."""
        with mapped_errors():
            try:
                return client.execute_command("EVALSHA", self._sha, len(keys), *keys, *args)
            except redis.exceptions.NoScriptError:
                return client.execute_command("EVAL", self._text, len(keys), *keys, *args)


def _sha1(text: str) -> str:
    import hashlib  # noqa: PLC0415 - one use, at start

    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Link:
    """The connections to one Redis: quick ones for everything, patient ones for reads that carry bodies."""

    def __init__(self, url: str, *, block_ms: int = 5000) -> None:
        self.url = url
        self.quick = _client(url, QUICK_TIMEOUT_S)
        self.patient = _client(url, block_ms / 1000 + PATIENT_MARGIN_S)

    def check_server(self) -> list[str]:
        """Make sure that this is a server we can work with.

        Returns:
            Warnings for the operator.

        Raises:
            ConfigurationError: the server is too old.
            BrokerUnavailable: it cannot be asked now.
        """
        with mapped_errors():
            info: dict[str, Any] = self.patient.info()  # type: ignore[assignment]  # redis-py: sync or awaitable
        _check_version(info)
        policy = str(info.get("maxmemory_policy", "noeviction"))
        if policy == "noeviction":
            return []
        return [
            f"Redis evicts keys when it is full (maxmemory-policy is {policy!r}): queued jobs can vanish; "
            "set maxmemory-policy noeviction"
        ]

    def close(self) -> None:
        """Close all connections."""
        self.quick.close()
        self.patient.close()


def _check_version(info: dict[str, Any]) -> None:
    valkey = info.get("valkey_version")
    name, text, least = ("Valkey", valkey, MIN_VALKEY) if valkey else ("Redis", info["redis_version"], MIN_REDIS)
    found = tuple(int(part) for part in re.findall(r"\d+", str(text))[:2])
    if found < least:
        raise ConfigurationError(
            f"redis_url: this server is {name} {text}; Stagedoor needs Redis 7.0 or Valkey 7.2 or later"
        )


def check_url(url: str) -> None:
    """Refuse a url that no client can be made of.

    Raises:
        ConfigurationError: says what was found and what is allowed; never shows a password.
    """
    scheme = url.partition("://")[0]
    if "://" not in url or scheme not in _SCHEMES:
        raise ConfigurationError(
            f"redis_url: {masked(url)!r} is not understood; take redis://host:port/db, rediss://… or unix:///path"
        )
    try:
        redis.ConnectionPool.from_url(url)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"redis_url: {masked(url)!r} is not understood: {error}") from None


def masked(url: str) -> str:
    """Return the url with its password hidden."""
    return re.sub(r"(://[^:@/]*:)[^@/]*@", r"\1***@", url)


def _client(url: str, timeout_s: float) -> "redis.Redis":
    check_url(url)
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )


class BlockedRead:
    """A connection of its own for the blocked read, which `unblock` can end from another thread.

    The connection's id is asked for at each connect, on that very connection:
    an id from before a reconnect may be somebody else's by now.
    """

    def __init__(self, client: "redis.Redis", quick: "redis.Redis") -> None:
        self._client = client
        self._quick = quick
        self._connection: Any = None
        self._id = 0
        self._blocked = threading.Event()

    def run(self, *command: Any) -> Any:
        """Send one command and return its raw reply, in which no field is dropped or decoded."""
        with mapped_errors():
            try:
                connection = self._connected()
                self._blocked.set()
                connection.send_command(*command)
                return connection.read_response()
            except redis.exceptions.ResponseError:
                raise
            except BaseException:
                self.disconnect()
                raise
            finally:
                self._blocked.clear()

    def unblock(self) -> None:
        """End the command that is blocked now, if any, as if its time were up.

        Where CLIENT UNBLOCK is forbidden the socket is shut down instead.
        """
        if not self._blocked.is_set():
            return
        try:
            with mapped_errors():
                self._quick.execute_command("CLIENT", "UNBLOCK", self._id, "TIMEOUT")
        except BrokerError:
            self._shut_socket()

    def disconnect(self) -> None:
        """Drop the connection; the next command makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _connected(self) -> Any:
        if self._connection is None:
            connection: Any = self._client.connection_pool.make_connection()
            connection.connect()
            connection.send_command("CLIENT", "ID")
            self._id = int(connection.read_response())
            self._connection = connection
        return self._connection

    def _shut_socket(self) -> None:
        import socket  # noqa: PLC0415 - the rare way out

        sock = getattr(self._connection, "_sock", None)
        shut: Callable[[int], None] | None = getattr(sock, "shutdown", None)
        if shut is not None:
            try:
                shut(socket.SHUT_RDWR)
            except OSError:
                return
