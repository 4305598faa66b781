"""Sentinels, clusters and TLS: how addresses are written, and that a worker follows the master, with real servers."""

import contextlib
import datetime as dt
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stagedoor.broker.addresses import Guides, parse_guides
from stagedoor.broker.connection import Link, check_url, masked
from stagedoor.broker.deliveries import Pulse
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries
from stagedoor.core.keys import Keys
from stagedoor.errors import BrokerUnavailable, ConfigurationError
from stagedoor.settings import Settings
from tests.broker.harness import accepted, identity, job, settled

LIMIT_S = 40.0
ONE_DAY = dt.timedelta(days=1)


# -- how they are written ------------------------------------------------------------------


@pytest.mark.parametrize(
    "url, guides",
    [
        (
            "redis+sentinel://one:26379,two/shop/2",
            Guides(scheme="redis+sentinel", hosts=(("one", 26379), ("two", 26379)), service="shop", db=2),
        ),
        (
            "redis+sentinel://me:p%40ss@[::1]:1/shop",
            Guides(scheme="redis+sentinel", hosts=(("::1", 1),), service="shop", username="me", password="p@ss"),
        ),
        ("redis+cluster://one,two:7000", Guides(scheme="redis+cluster", hosts=(("one", 6379), ("two", 7000)))),
        (
            "redis+cluster://:secret@one/0?protocol=2",
            Guides(scheme="redis+cluster", hosts=(("one", 6379),), password="secret", options={"protocol": "2"}),
        ),
    ],
)
def test_addresses_of_guides_are_understood(url: str, guides: Guides) -> None:
    check_url(url)
    assert parse_guides(url) == guides


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://",
        "redis+sentinel://one",
        "redis+sentinel://one/",
        "redis+sentinel://one:port/shop",
        "redis+sentinel://one:99999/shop",
        "redis+sentinel://one,/shop",
        "redis+sentinel://:secret@one/shop/x",
        "redis+sentinel://:secret@one/shop?socket_timeout=1",
        "redis+cluster://one/3",
        "redis+cluster://one?protocol=4",
        "redis+file://one",
    ],
)
def test_addresses_that_name_no_guides_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="redis_url") as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


def test_a_shown_address_of_guides_hides_the_password() -> None:
    assert masked("redis+sentinel://me:secret@one,two/shop") == "redis+sentinel://me:***@one,two/shop"
    assert "secret" not in repr(parse_guides("redis+sentinel://me:secret@one,two/shop"))


@pytest.mark.parametrize("namespace", ["", "jobs"])
def test_a_namespace_without_braces_is_refused_on_a_cluster(namespace: str) -> None:
    with pytest.raises(ConfigurationError, match=r"namespace: .* write it \{jobs\}"):
        Link("redis+cluster://127.0.0.1:1", namespace=namespace)


def test_the_settings_refuse_it_at_once_together_with_all_that_is_wrong() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load({"STAGEDOOR_REDIS_URL": "redis+cluster://one", "STAGEDOOR_BACKOFF_BASE_S": "400"})
    assert len(caught.value.problems) == 2
    assert "write it {jobs}" in caught.value.problems[0]
    Settings.load({"STAGEDOOR_REDIS_URL": "redis+cluster://one", "STAGEDOOR_NAMESPACE": "{jobs}"})


def test_nobody_to_ask_is_weather() -> None:
    link = Link("redis+sentinel://127.0.0.1:1,127.0.0.1:2/shop")
    with pytest.raises(BrokerUnavailable, match="nobody says where the master is"):
        link.check_server()
    link.close()


# -- real servers ------------------------------------------------------------------------------


def free_port() -> int:
    """Return a port that is free, and whose cluster bus port is one too."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port: int = probe.getsockname()[1]
        if port < 50_000:
            return port


class Servers:
    """Servers on ports of their own; all are ended after the test."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, *words: str, port: int | None = None) -> int:
        port = free_port() if port is None else port
        folder = self.folder / str(port)
        folder.mkdir(exist_ok=True)
        command = [self.program, *words, "--port", str(port), "--dir", str(folder), "--bind", "127.0.0.1"]
        if "--sentinel" not in words:
            command += ["--save", "", "--appendonly", "no"]
        with (folder / "log").open("ab") as log:
            self.running[port] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        wait_until(lambda: self.ask(port, "PING") == b"PONG")
        return port

    def sentinel(self, master: int) -> int:
        port = free_port()
        config = self.folder / f"sentinel-{port}.conf"
        config.write_text(
            f"sentinel monitor shop 127.0.0.1 {master} 1\n"
            "sentinel down-after-milliseconds shop 300\n"
            "sentinel failover-timeout shop 2000\n"
        )
        folder = self.folder / str(port)
        folder.mkdir()
        with (folder / "log").open("ab") as log:
            self.running[port] = subprocess.Popen(
                [self.program, str(config), "--sentinel", "--port", str(port), "--bind", "127.0.0.1"],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(lambda: self.ask(port, "PING") == b"PONG")
        return port

    def ask(self, port: int, *words: str | int) -> object:
        with (
            contextlib.suppress(redis.ConnectionError, redis.TimeoutError, redis.ResponseError),
            redis.Redis("127.0.0.1", port, socket_timeout=5, protocol=2) as client,
        ):
            client.response_callbacks.clear()  # replies as they are
            return client.execute_command(*words)
        return None

    def kill(self, port: int) -> None:
        process = self.running.pop(port)
        process.kill()
        process.wait()


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, "this never came true"
        time.sleep(0.05)


@pytest.fixture
def servers(redis_program: str, tmp_path: Path) -> Iterator[Servers]:
    found = Servers(redis_program, tmp_path)
    yield found
    for port in list(found.running):
        found.kill(port)


def outlasting[T](call: Callable[[], T]) -> T:
    """Make a call as the worker does: again and again while it is weather."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return call()
        except BrokerUnavailable:
            assert time.monotonic() < deadline, "it never went through"
            time.sleep(0.05)


@contextlib.contextmanager
def joined(link: Link, keys: Keys) -> Iterator[RedisDeliveries]:
    worker = RedisDeliveries(link, keys, settings=DeliverySettings(wanted_name="w"))
    assert link.check_server() == []
    worker.ensure_groups()
    worker.join(identity("i1"), Pulse(slots=8))
    yield worker
    worker.close()
    link.close()


def flat(**changes: str) -> list[bytes]:
    return [part for pair in job(**changes) for part in pair]


@pytest.mark.process
@pytest.mark.redis
def test_after_a_failover_the_worker_goes_on_at_the_new_master_with_what_it_holds(servers: Servers) -> None:
    master = servers.start("--repl-diskless-sync-delay", "0")
    replica = servers.start("--replicaof", "127.0.0.1", str(master))
    sentinel = servers.sentinel(master)
    wait_until(lambda: _is_up(servers, replica))
    wait_until(lambda: servers.ask(sentinel, "SENTINEL", "REPLICAS", "shop"))
    with joined(Link(f"redis+sentinel://127.0.0.1:{sentinel}/shop", block_ms=50), Keys("jobs")) as worker:
        servers.ask(master, "XADD", "jobs", "*", *flat())  # type: ignore[arg-type]  # bytes are fine
        (held,) = worker.read(1).claimed
        assert worker.wait(10).claimed == ()
        wait_until(lambda: _is_pending(servers, replica))  # a failover may lose what has not been copied
        servers.kill(master)
        assert outlasting(lambda: worker.settle(1, [settled(held)])).answers == accepted(1)
        assert servers.ask(replica, "XLEN", "jobs") == 0
        servers.ask(replica, "XADD", "jobs", "*", *flat(outbox_id="2"))  # type: ignore[arg-type]  # as above
        (again,) = outlasting(lambda: worker.wait(1000)).claimed
        assert worker.settle(2, [settled(again)]).answers == accepted(1)


def certificate(folder: Path) -> tuple[Path, Path]:
    """Return the files of a key and of a certificate for localhost that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + ONE_DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    (folder / "certificate.pem").write_bytes(made.public_bytes(pem))
    return folder / "key.pem", folder / "certificate.pem"


@pytest.mark.process
@pytest.mark.redis
def test_a_worker_speaks_tls_and_trusts_only_whom_it_was_told_to_trust(servers: Servers, tmp_path: Path) -> None:
    key, trusted = certificate(tmp_path)
    secure = free_port()
    files = ("--tls-cert-file", str(trusted), "--tls-key-file", str(key), "--tls-ca-cert-file", str(trusted))
    port = servers.start("--tls-port", str(secure), *files, "--tls-auth-clients", "no")
    url = f"rediss://localhost:{secure}/0"
    with joined(Link(f"{url}?ssl_ca_certs={trusted}", block_ms=50), Keys("jobs")) as worker:
        servers.ask(port, "XADD", "jobs", "*", *flat())  # type: ignore[arg-type]  # bytes are fine
        (held,) = worker.wait(1000).claimed
        assert worker.settle(1, [settled(held)]).answers == accepted(1)
    with contextlib.closing(Link(url)) as stranger, pytest.raises(BrokerUnavailable, match="certificate"):
        stranger.check_server()


@pytest.mark.process
@pytest.mark.redis
def test_a_master_that_was_demoted_is_left_though_its_connection_stands(servers: Servers) -> None:
    master = servers.start("--repl-diskless-sync-delay", "0")
    replica = servers.start("--replicaof", "127.0.0.1", str(master))
    sentinel = servers.sentinel(master)
    wait_until(lambda: _is_up(servers, replica))
    with joined(Link(f"redis+sentinel://127.0.0.1:{sentinel}/shop", block_ms=50), Keys("jobs")) as worker:
        servers.ask(master, "XADD", "jobs", "*", *flat())  # type: ignore[arg-type]  # bytes are fine
        (held,) = worker.read(1).claimed
        wait_until(lambda: _is_pending(servers, replica))  # a failover may lose what has not been copied
        servers.ask(replica, "REPLICAOF", "NO", "ONE")
        servers.ask(master, "REPLICAOF", "127.0.0.1", replica)
        with pytest.raises(BrokerUnavailable, match="is not the master"):
            worker.settle(1, [settled(held)])
        servers.ask(sentinel, "SENTINEL", "REMOVE", "shop")
        servers.ask(sentinel, "SENTINEL", "MONITOR", "shop", "127.0.0.1", replica, 1)
        assert outlasting(lambda: worker.settle(1, [settled(held)])).answers == accepted(1)
        assert servers.ask(replica, "XLEN", "jobs") == 0


@pytest.mark.process
@pytest.mark.redis
def test_on_a_cluster_the_worker_speaks_to_the_node_of_its_slot_and_follows_it_when_it_moves(servers: Servers) -> None:
    first, second = (
        servers.start("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no") for _ in range(2)
    )
    servers.ask(first, "CLUSTER", "MEET", "127.0.0.1", second)
    slot = servers.ask(first, "CLUSTER", "KEYSLOT", "{jobs}")
    assert isinstance(slot, int)
    servers.ask(second, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    wait_until(lambda: _is_ok(servers, first) and _is_ok(servers, second))
    with pytest.raises(ConfigurationError, match=r"node of a Redis Cluster; name it redis\+cluster"):
        Link(f"redis://127.0.0.1:{second}").check_server()
    # Only the node that has not the slot is named.
    link = Link(f"redis+cluster://127.0.0.1:{first}", block_ms=50, namespace="{jobs}")
    with joined(link, Keys("{jobs}")) as worker:
        servers.ask(second, "XADD", "{jobs}", "*", *flat())  # type: ignore[arg-type]  # bytes are fine
        (held,) = worker.read(1).claimed
        _move_slot(servers, slot, source=second, target=first)
        assert outlasting(lambda: worker.settle(1, [settled(held)])).answers == accepted(1)
        servers.ask(first, "XADD", "{jobs}", "*", *flat(outbox_id="2"))  # type: ignore[arg-type]  # as above
        (again,) = outlasting(lambda: worker.wait(1000)).claimed
        assert worker.settle(2, [settled(again)]).answers == accepted(1)
        assert servers.ask(first, "XLEN", "{jobs}") == 0


def _is_up(servers: Servers, replica: int) -> bool:
    return "master_link_status:up" in str(servers.ask(replica, "INFO", "replication"))


def _is_pending(servers: Servers, port: int) -> bool:
    return bool(servers.ask(port, "XPENDING", "jobs", "workers", "-", "+", 1))


def _is_ok(servers: Servers, port: int) -> bool:
    return "cluster_state:ok" in str(servers.ask(port, "CLUSTER", "INFO"))


def _move_slot(servers: Servers, slot: int, *, source: int, target: int) -> None:
    """Move a slot with its keys from one node to another, as redis-cli does."""
    ids = {port: servers.ask(port, "CLUSTER", "MYID") for port in (source, target)}
    text = {port: found.decode() if isinstance(found, bytes) else str(found) for port, found in ids.items()}
    servers.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", text[source])
    servers.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", text[target])
    keys = servers.ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 100)
    assert isinstance(keys, list)
    servers.ask(source, "MIGRATE", "127.0.0.1", target, "", 0, 5000, "KEYS", *keys)
    for port in (target, source):
        servers.ask(port, "CLUSTER", "SETSLOT", slot, "NODE", text[target])
