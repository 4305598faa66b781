"""Where Redis is: for `redis_url`s that name no server but those who know which one it is.

``redis+sentinel://host:port,host:port/service/db`` asks Sentinels for the master,
``redis+cluster://host:port,host:port`` asks nodes of a cluster for the master of our
slot: all keys of a namespace are in one. Both are asked whenever a connection is made,
and a connection is dropped as soon as its server says that it is no longer the one.
"""

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

import attrs
import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from stagedoor.errors import ConfigurationError

SENTINEL = "redis+sentinel"
CLUSTER = "redis+cluster"
ASK_TIMEOUT_S = 1.0
PORTS = {SENTINEL: 26379, CLUSTER: 6379}
_OPTIONS = {SENTINEL: {"protocol", "sentinel_username", "sentinel_password"}, CLUSTER: {"protocol"}}
_PATTERN = re.compile(
    r"(?P<scheme>redis\+\w+)://(?:(?P<user>[^@]*)@)?(?P<hosts>[^/?]*)(?P<path>[^?]*)(?:\?(?P<query>.*))?"
)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::(?P<port>[0-9]{1,5}))?")

type Address = tuple[str, int]
type Resolve = Callable[[], Address]


@attrs.frozen(kw_only=True)
class Guides:
    """An address that names servers to be asked; *service* is empty for a cluster."""

    scheme: str
    hosts: tuple[Address, ...]
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    options: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def connection_options(self) -> dict[str, Any]:
        """Return what a connection to the server itself is made with."""
        options: dict[str, Any] = {"db": self.db, "username": self.username, "password": self.password}
        if "protocol" in self.options:
            options["protocol"] = int(self.options["protocol"])
        return options


def parse_guides(url: str) -> Guides | None:
    """Return what an address of Sentinels or of a cluster says, None for an address of any other kind.

    Raises:
        ConfigurationError: it is not written as it should be; says how, without the password.
    """
    scheme = url.partition("://")[0]
    if scheme not in PORTS:
        return None
    found = _PATTERN.fullmatch(url)
    try:
        if found is None:
            raise ValueError("there is no host")  # noqa: TRY301 - one place makes the message
        return _guides(scheme, found)
    except ValueError as error:
        form = "host:port,host:port/service/db" if scheme == SENTINEL else "host:port,host:port"
        raise ConfigurationError(f"redis_url: this is no {scheme}://{form}: {error}") from None


def _guides(scheme: str, found: "re.Match[str]") -> Guides:
    username, password = _credentials(found["user"])
    service, db = _path(scheme, found["path"].strip("/"))
    options = dict(parse_qsl(found["query"] or "", keep_blank_values=True))
    unknown = sorted(options.keys() - _OPTIONS[scheme])
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is none of the options {', '.join(sorted(_OPTIONS[scheme]))}")
    if options.get("protocol", "3") not in {"2", "3"}:
        raise ValueError("protocol is 2 or 3")
    hosts = tuple(_host(text, PORTS[scheme]) for text in found["hosts"].split(","))
    return Guides(
        scheme=scheme, hosts=hosts, service=service, db=db, username=username, password=password, options=options
    )


def _credentials(text: str | None) -> tuple[str | None, str | None]:
    if text is None:
        return None, None
    user, _, password = text.partition(":")
    return unquote(user) or None, unquote(password) or None


def _path(scheme: str, path: str) -> tuple[str, int]:
    service, _, db = path.partition("/")
    if scheme == CLUSTER:
        if path not in {"", "0"}:
            raise ValueError("a cluster has no database but 0")
        return "", 0
    if not service:
        raise ValueError("the service's name is missing after the hosts")
    if db and not re.fullmatch(r"[0-9]{1,4}", db):
        raise ValueError("the database is no number")
    return unquote(service), int(db or 0)


def _host(text: str, default_port: int) -> Address:
    found = _HOST.fullmatch(text)
    if found is None or not 0 < int(found["port"] or default_port) < 2**16:
        raise ValueError("a host is not written host:port")
    return found["host"].strip("[]"), int(found["port"] or default_port)


# -- asking -----------------------------------------------------------------------


def resolver_of(guides: Guides, namespace: str) -> Resolve:
    """Return what finds the server, each time anew.

    Raises:
        ConfigurationError: on a cluster the namespace is not in braces, so its keys would be in many slots.
    """
    if guides.scheme == SENTINEL:
        return _Sentinels(guides).find
    if not (namespace.startswith("{") and namespace.endswith("}")):
        raise ConfigurationError(
            f"namespace: {namespace!r} is not in braces; on Redis Cluster all keys of a namespace have to be in one "
            f"slot: write it {{{namespace or 'jobs'}}}"
        )
    return _Cluster(guides, namespace).find


class _Sentinels:
    """Asks Sentinels for the master of a service."""

    def __init__(self, guides: Guides) -> None:
        self._guides = guides
        names = {"sentinel_username": "username", "sentinel_password": "password"}
        self._options = {names[name]: text for name, text in guides.options.items() if name in names}

    def find(self) -> Address:
        reply = _first_answer(
            self._guides.hosts, self._options, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._guides.service)
        )
        host, port = reply
        return host.decode(), int(port)


class _Cluster:
    """Asks the nodes of a cluster, also those it has heard of, for the master of a namespace's slot."""

    def __init__(self, guides: Guides, namespace: str) -> None:
        self._guides = guides
        self._slot = int(key_slot(namespace.encode()))
        self._options = {"username": guides.username, "password": guides.password}
        self._heard_of: tuple[Address, ...] = ()

    def find(self) -> Address:
        asked: list[Address] = []
        nodes = dict.fromkeys((*self._guides.hosts, *self._heard_of))
        ranges: Any = _first_answer(nodes, self._options, ("CLUSTER", "SLOTS"), asked)
        masters = {(first, last): _node(master, asked[-1]) for first, last, master, *_ in ranges}
        self._heard_of = tuple(dict.fromkeys(masters.values()))
        for (first, last), address in masters.items():
            if first <= self._slot <= last:
                return address
        raise redis.exceptions.ConnectionError(f"no node of the cluster has slot {self._slot} now")


def _node(node: Sequence[Any], asked: Address) -> Address:
    """Return a node's address; one that does not know its own host is reached where it was asked."""
    host = (node[0] or b"").decode()
    return (host if host not in {"", "?"} else asked[0]), int(node[1])


def _first_answer(
    hosts: Iterable[Address], options: Mapping[str, Any], command: Sequence[str], asked: list[Address] | None = None
) -> Any:
    """Return what the first of these hosts says that says anything; they are asked in random order."""
    errors: list[str] = []
    candidates = list(hosts)
    random.shuffle(candidates)
    for host, port in candidates:
        client = redis.Redis(
            host, port, socket_timeout=ASK_TIMEOUT_S, socket_connect_timeout=ASK_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0), **options,
        )  # fmt: skip
        try:
            reply: Any = client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        except (redis.exceptions.RedisError, OSError) as error:
            errors.append(f"{host}:{port}: {error}")
        else:
            if reply is not None:
                if asked is not None:
                    asked.append((host, port))
                return reply
            errors.append(f"{host}:{port}: it knows none")
        finally:
            client.close()
    raise redis.exceptions.ConnectionError(f"nobody says where the master is ({'; '.join(errors)})")


_NO_MASTER = (redis.exceptions.ReadOnlyError, redis.exceptions.MovedError, redis.exceptions.ClusterDownError)


class FollowingConnection(redis.Connection):
    """A connection to the server that *resolve* finds at the moment, as long as it is the one.

    Args:
        resolve: called for each connect.
        needs_role: whether the server is asked if it is a master: what Sentinels say may be old.
        options: redis-py's.
    """

    def __init__(self, *, resolve: Resolve, needs_role: bool, **options: Any) -> None:
        self._resolve = resolve
        self._needs_role = needs_role
        super().__init__(**options)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    def _connect(self) -> Any:
        self.host, self.port = self._resolve()
        return super()._connect()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - redis-py's signature
        """Greet the server, and leave one that is no master."""
        super().on_connect_check_health(check_health=check_health)
        if self._needs_role:
            self.send_command("ROLE", check_health=False)  # type: ignore[no-untyped-call]  # as above
            role: Any = super().read_response()
            if role[0] not in {b"master", "master"}:
                raise redis.exceptions.ConnectionError(f"{self.host}:{self.port} is no master any more")

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Read one reply; a server that is no longer the one is left, so that the next connect asks anew."""
        try:
            return super().read_response(*args, **options)
        except _NO_MASTER as error:
            self.disconnect()  # type: ignore[no-untyped-call]  # as above
            raise redis.exceptions.ConnectionError(f"{self.host}:{self.port} is not the master: {error}") from error
