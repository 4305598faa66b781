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

from stagedoor.broker.addresses import CLUSTER, SENTINEL, FollowingConnection, parse_guides, resolver_of
from stagedoor.errors import BrokerError, BrokerUnavailable, ConfigurationError, GroupMissing

CONNECT_TIMEOUT_S = 1.0
QUICK_TIMEOUT_S = 0.1
"""A call that carries no bodies takes Redis microseconds; longer means that something is wrong."""
PATIENT_MARGIN_S = 2.0
"""Past the end of a blocked read: time for its reply on a busy machine, short enough to notice a dead connection."""

MOST_CONNECTIONS = 512
"""A worker of 256 slots may speak in as many threads at once, and its services besides; redis-py's own limit is 100."""

MIN_REDIS = (7, 0)
MIN_VALKEY = (7, 2)

_SCHEMES = ("redis", "rediss", "unix", SENTINEL, CLUSTER)
_WEATHER = ("LOADING", "READONLY", "MISCONF", "OOM", "NOAUTH", "CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN",
            "MASTERDOWN", "NOREPLICAS", "BUSY", "WRONGPASS", "NOPERM", "UNBLOCKED")  # fmt: skip
_NO_GROUP = ("no such key", "requires the key to exist", "key no longer exists")


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Turn redis-py's exceptions into ours, by what the caller should do."""
    try:
        yield
    except _FOREIGN as error:
        raise _ours(error) from error


_FOREIGN = (redis.exceptions.RedisError, OSError)


def _ours(error: Exception) -> BrokerError:
    if isinstance(error, redis.exceptions.ResponseError):
        return _of_response(error)
    if isinstance(error, redis.exceptions.DataError):
        return BrokerError(f"these arguments cannot be sent to Redis: {error}")
    return BrokerUnavailable(f"{type(error).__name__}: {error}")


def _of_response(error: redis.exceptions.ResponseError) -> BrokerError:
    # redis-py takes the code off the text of the errors that it has classes for, so both are asked.
    text = str(error) or type(error).__name__
    code = text.partition(" ")[0]
    if code == "NOGROUP" or any(mark in text for mark in _NO_GROUP):
        return GroupMissing(text)
    if code in _WEATHER or isinstance(error, _WEATHER_CLASSES):
        return BrokerUnavailable(text if code in _WEATHER else f"{type(error).__name__}: {text}")
    return BrokerError(text)


def is_wrong_type(error: BrokerError) -> bool:
    """Return whether a key of ours holds something else than it must: another program writes under our names."""
    return str(error).startswith("WRONGTYPE")


_WEATHER_CLASSES = (
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.NoPermissionError,
    redis.exceptions.ClusterError,
    redis.exceptions.AskError,
    redis.exceptions.TryAgainError,
)


@contextmanager
def sound_reply() -> Iterator[None]:
    """Take a reply that does not fit its call for none.

    It is the reply of another call, on a connection that has lost its step: somebody between
    us and Redis has sent one twice. redis-py drops such a connection before it uses it again.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BrokerUnavailable(f"the reply does not fit the call: {type(error).__name__}: {error}") from error


def send(client: "redis.Redis", *command: Any) -> Any:
    """Send one command and return its raw reply; errors are redis-py's, for `mapped_errors`.

    A client's own way to do this retries, measures and translates, which we never ask of it: it
    costs twice the time of the connections that are its heart.
    """
    pool: Any = client.connection_pool  # redis-py leaves most of it untyped
    connection = pool.get_connection()
    try:
        connection.send_packed_command([_packed(command, connection.encoder)])
        return connection.read_response()
    except redis.exceptions.ResponseError:
        raise
    except BaseException:
        # A reply may still come: the next command would take it for its own.
        connection.disconnect()
        raise
    finally:
        pool.release(connection)


def _packed(command: Sequence[Any], encoder: Any) -> bytes:
    """Return a command as it is sent; what is no text, bytes or whole number is redis-py's to judge."""
    parts = [b"*%d\r\n" % len(command)]
    for word in command:
        kind = type(word)
        if kind is bytes:
            raw = word
        elif kind is str:
            raw = word.encode()
        else:
            raw = b"%d" % word if kind is int else encoder.encode(word)
        parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(parts)


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
        try:
            return send(client, "EVALSHA", self._sha, len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            with mapped_errors():
                return send(client, "EVAL", self._text, len(keys), *keys, *args)
        except _FOREIGN as error:
            raise _ours(error) from error


def _sha1(text: str) -> str:
    import hashlib  # noqa: PLC0415 - one use, at start

    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Link:
    """The connections to one Redis: quick ones for everything, patient ones for reads that carry bodies.

    Args:
        url: the address, see the setting `redis_url`.
        block_ms: how long a blocked read may take.
        namespace: of the keys; on a cluster it decides which node is spoken to.

    Raises:
        ConfigurationError: the address cannot be used, or the namespace not on a cluster.
    """

    def __init__(self, url: str, *, block_ms: int = 5000, namespace: str = "") -> None:
        self.url = url
        self.quick = _client(url, QUICK_TIMEOUT_S, namespace)
        self.patient = _client(url, block_ms / 1000 + PATIENT_MARGIN_S, namespace)

    def check_server(self) -> list[str]:
        """Make sure that this is a server we can work with.

        Returns:
            Warnings for the operator.

        Raises:
            ConfigurationError: the server is too old, or a cluster's node that was named as if it were alone.
            BrokerUnavailable: it cannot be asked now.
        """
        with mapped_errors():
            info: dict[str, Any] = self.patient.info()
        _check_version(info)
        if info.get("redis_mode") == "cluster" and not self.url.startswith(CLUSTER):
            raise ConfigurationError(
                f"redis_url: {masked(self.url)} is a node of a Redis Cluster; name it {CLUSTER}://host:port,host:port"
            )
        policy = str(info.get("maxmemory_policy", "noeviction"))
        if policy == "noeviction":
            return []
        what = f"Redis evicts keys when it is full (maxmemory-policy is {policy!r}): queued jobs can vanish"
        return [f"{what}; set maxmemory-policy noeviction"]

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
            f"redis_url: {masked(url)!r} is not understood; take redis://host:port/db, rediss://…, unix:///path, "
            f"{SENTINEL}://host:port,host:port/service/db or {CLUSTER}://host:port,host:port"
        )
    if parse_guides(url) is not None:
        return
    try:
        redis.ConnectionPool.from_url(url)
    except (ValueError, TypeError, AttributeError) as error:
        # An address with a slash in its password is cut there: the error would quote half of it.
        why = "a '/', '?' or '#' in a password is written %2F, %3F, %23" if "@" in url else error
        raise ConfigurationError(f"redis_url: {masked(url)!r} is not understood: {why}") from None


def masked(url: str) -> str:
    """Return the url with its password hidden, also one that is not written as it should be."""
    return re.sub(r"([?&]password=)[^&]*", r"\1***", re.sub(r"(://[^:@/]*:).*@", r"\1***@", url))


def _client(url: str, timeout_s: float, namespace: str) -> "redis.Redis":
    check_url(url)
    options: dict[str, Any] = {
        "max_connections": MOST_CONNECTIONS,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }
    guides = parse_guides(url)
    if guides is None:
        return redis.Redis.from_url(url, **options)
    pool = redis.ConnectionPool(
        connection_class=FollowingConnection,
        resolve=resolver_of(guides, namespace),
        needs_role=guides.scheme == SENTINEL,
        **guides.connection_options(),
        **options,
    )
    return redis.Redis.from_pool(pool)


_ID_UNKNOWN = -1
"""The user may not ask for it: such a connection is ended by its socket."""


class BlockedRead:
    """A connection of its own for the blocked read, which `unblock` can end from another thread.

    It is one connection for good, connected anew after each failure: a pool counts what it
    has made, never what was dropped, and would refuse the hundredth reconnect for ever.

    The connection's id is asked for at each connect, on that very connection:
    an id from before a reconnect may be somebody else's by now.
    """

    def __init__(self, client: "redis.Redis", quick: "redis.Redis") -> None:
        self._quick = quick
        self._connection: Any = client.connection_pool.make_connection()
        self._id = 0
        self._blocked = threading.Event()

    def run(self, *command: Any) -> Any:
        """Send one command and return its raw reply, in which no field is dropped or decoded."""
        with mapped_errors():
            try:
                connection = self._connected_or_dropped()
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
        if self._id == _ID_UNKNOWN:
            self._shut_socket()
            return
        try:
            with mapped_errors():
                send(self._quick, "CLIENT", "UNBLOCK", self._id, "TIMEOUT")
        except BrokerError:
            self._shut_socket()

    def disconnect(self) -> None:
        """Drop the connection; the next command makes a new one."""
        self._id = 0
        self._connection.disconnect()

    def _connected_or_dropped(self) -> Any:
        """As `_connected`; whatever is answered to the questions of a new connection, a bad one is not kept."""
        try:
            return self._connected()
        except redis.exceptions.ResponseError as error:
            self.disconnect()
            raise redis.exceptions.ConnectionError(f"while connecting: {error}") from error

    def _connected(self) -> Any:
        """Return the connection, made anew where it is gone or holds a reply that nobody has asked for."""
        if self._id != 0 and self._has_leftovers():
            self.disconnect()
        if self._id == 0:
            self._connection.connect()
            self._id = self._ask_id()
        return self._connection

    def _has_leftovers(self) -> bool:
        """Whether something is there to be read between two commands: a reply that came twice, or the end.

        The next command would take it for its own reply, and every one after it the reply of the one before.
        """
        try:
            return bool(self._connection.can_read(timeout=0))
        except (redis.exceptions.RedisError, OSError):
            return True

    def _ask_id(self) -> int:
        self._connection.send_command("CLIENT", "ID")
        try:
            reply = self._connection.read_response()
        except redis.exceptions.NoPermissionError:
            return _ID_UNKNOWN
        if not isinstance(reply, int):
            raise redis.exceptions.InvalidResponse(f"CLIENT ID was answered by {reply!r}")
        return reply

    def _shut_socket(self) -> None:
        import socket  # noqa: PLC0415 - the rare way out

        sock = getattr(self._connection, "_sock", None)
        shut: Callable[[int], None] | None = getattr(sock, "shutdown", None)
        if shut is not None:
            try:
                shut(socket.SHUT_RDWR)
            except OSError:
                return
