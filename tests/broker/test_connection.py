"""How we speak to Redis: whose fault an error is, which servers and addresses we take, how scripts get there."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis._parsers.base import BaseParser  # what redis-py itself makes errors with

from stagedoor.broker.connection import (
    Link,
    _check_version,
    _packed,
    check_url,
    mapped_errors,
    masked,
    read_script,
    send,
)
from stagedoor.broker.deliveries import Answers
from stagedoor.core.outcome import RetryLater
from stagedoor.errors import BrokerError, BrokerUnavailable, ConfigurationError, GroupMissing
from stagedoor.settings import Settings
from tests.broker.harness import RedisHarness, accepted, ids, job, settled
from tests.support.redis_server import StartRedis

WEATHER = [
    "LOADING Redis is loading the dataset in memory",
    "READONLY You can't write against a read only replica.",
    "READONLY You can't write against a read only replica. script: 5d, on @user_script:1.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM this user has no permissions to run the 'evalsha' command",
    "CLUSTERDOWN The cluster is down",
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "NOREPLICAS Not enough good replicas to write.",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "ERR max number of clients reached",
]
NO_GROUP = [
    "NOGROUP No such key 'jobs' or consumer group 'workers' in XREADGROUP with GROUP option",
    "NOGROUP No such consumer group 'workers' for key name 'jobs'",
    "NOGROUP the consumer group this client was blocked on no longer exists",
    "UNBLOCKED the stream key no longer exists",
    "ERR no such key",
    "ERR no such key script: 85228ce9d2487da55ddd8745de6decfce66aaeb7, on @user_script:1.",
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use MKSTREAM.",
]
OTHER = [
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "ERR unknown command 'XREADGROUP'",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "ERR TASK MOVED BUSY",
    "NOPROTO unsupported protocol version",
]


def said(text: str) -> Exception:
    """Return what redis-py makes of an error reply."""
    error: Exception = BaseParser.parse_error(text)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
    return error


def mapped(error: BaseException) -> BrokerError:
    with pytest.raises(BrokerError) as caught, mapped_errors():
        raise error
    return caught.value


@pytest.mark.parametrize("text", WEATHER)
def test_what_passes_by_itself_is_weather(text: str) -> None:
    error = mapped(said(text))
    assert type(error) is BrokerUnavailable
    assert text.partition(" ")[2][:20] in str(error)


@pytest.mark.parametrize("text", NO_GROUP)
def test_a_missing_group_is_told_apart(text: str) -> None:
    assert type(mapped(said(text))) is GroupMissing


@pytest.mark.parametrize("text", OTHER)
def test_everything_else_is_an_error_that_waiting_does_not_cure(text: str) -> None:
    assert type(mapped(said(text))) is BrokerError


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.ConnectionError("Connection closed by server."),
        redis.exceptions.TimeoutError("Timeout reading from socket"),
        redis.exceptions.InvalidResponse("Protocol Error: b'H'"),
        ConnectionResetError(104, "Connection reset by peer"),
        OSError("getaddrinfo failed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_broken_connection_is_weather(error: Exception) -> None:
    assert type(mapped(error)) is BrokerUnavailable


def test_a_host_that_nobody_knows_just_now_is_weather(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    link = Link("redis://redis.example:6379/0")
    with pytest.raises(BrokerUnavailable, match="name resolution"):
        link.check_server()
    link.close()


def test_arguments_that_cannot_be_sent_are_no_weather() -> None:
    assert type(mapped(redis.exceptions.DataError("Invalid input of type: 'NoneType'."))) is BrokerError


def test_our_own_mistakes_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), mapped_errors():
        raise ZeroDivisionError


# -- servers and addresses -----------------------------------------------------------------


@pytest.mark.parametrize(
    "info",
    [
        {"redis_version": "7.0.0"},
        {"redis_version": "7.4.1-rc2"},
        {"redis_version": "10.0"},
        {"redis_version": "7.2.4", "valkey_version": "7.2.5"},
        {"redis_version": "7.2.4", "valkey_version": "8.1.0"},
    ],
)
def test_servers_from_7_0_are_accepted(info: dict[str, str]) -> None:
    _check_version(info)


@pytest.mark.parametrize("version", ["6.2.14", "5.0", "2.8.24", "6.9.9"])
def test_older_servers_are_refused_by_their_name_and_version(version: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"redis_url: this server is Redis {version}; .* Redis 7\.0"):
        _check_version({"redis_version": version})


@pytest.mark.redis
def test_a_server_that_evicts_is_warned_of(start_redis: StartRedis) -> None:
    server = start_redis()
    link = Link(server.url)
    assert link.check_server() == []
    server.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    (warning,) = link.check_server()
    assert "allkeys-lru" in warning
    assert "noeviction" in warning
    link.close()


@pytest.mark.parametrize(
    "url",
    ["redis://127.0.0.1:6379/0", "rediss://user:secret@redis.example:6380/1", "unix:///run/redis.sock?db=3"],
)
def test_sound_addresses_are_taken(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    ["", "localhost", "localhost:6379", "http://x", "redis:/x", "redis://host:port", "redis://h?socket_timeout=soon"],
)
def test_addresses_that_make_no_client_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="redis_url"):
        check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:secret@h:bad/0",
        "http://:secret@h",
        "redis://:secret@h?socket_timeout=x",
        "redis://user:secret/secret@h",
        "redis://user:se@secret@h:bad",
        "redis://h:bad?password=secret",
    ],
)
def test_a_refusal_never_shows_a_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)
    assert "***" in str(caught.value)


def test_a_shown_address_keeps_all_but_the_password() -> None:
    assert masked("rediss://user:secret@h:6380/1") == "rediss://user:***@h:6380/1"
    assert masked("redis://h:6379/0") == "redis://h:6379/0"


@pytest.mark.redis
def test_a_wrong_password_is_weather_and_says_so(start_redis: StartRedis) -> None:
    server = start_redis()
    server.cli("ACL", "SETUSER", "worker", "on", ">right", "~*", "+@all")
    link = Link(server.url.replace("unix://", "unix://worker:wrong@"))
    with pytest.raises(BrokerUnavailable, match="invalid username-password"):
        link.check_server()
    link.close()


# -- scripts -------------------------------------------------------------------------------


def test_includes_are_put_into_the_text_of_a_script() -> None:
    text = read_script("settle")
    assert "local function refused" in text
    assert "-- include:" not in text


@pytest.mark.redis
def test_a_lost_script_cache_costs_one_more_round_trip_and_nothing_else(start_redis: StartRedis) -> None:
    server = start_redis()
    harness = RedisHarness(server.url, "jobs")
    worker, relay = harness.worker("w"), harness.publishing()
    for round_number in range(3):
        entry_id = harness.add(job())
        server.cli("SCRIPT", "FLUSH")
        (claimed,) = worker.read(1).claimed
        assert claimed.entry.entry_id == entry_id
        server.cli("SCRIPT", "FLUSH")
        worker.renew([claimed.tenure])
        server.cli("SCRIPT", "FLUSH")
        assert worker.settle(2 * round_number, [settled(claimed, RetryLater(0, 2, ""))]).answers == accepted(1)
        server.cli("SCRIPT", "FLUSH")
        assert worker.promote().moved == 1
        server.cli("SCRIPT", "FLUSH")
        again = worker.read(8).claimed
        assert worker.settle(2 * round_number + 1, [settled(one) for one in again]) == Answers(accepted(1))
        server.cli("SCRIPT", "FLUSH")
        for verb in (worker.ensure_groups, worker.sweep, worker.reclaim):
            verb()
        assert relay.publish(f"book-{round_number}", []) == (0, ())
    server.cli("SCRIPT", "FLUSH")
    worker.retire()
    harness.close()


@pytest.mark.redis
def test_scripts_survive_a_restart_of_the_server(start_redis: StartRedis) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    harness = RedisHarness(server.url, "jobs")
    worker = harness.worker("w")
    entry_id = harness.add(job())
    server.stop()
    with pytest.raises(BrokerUnavailable):
        worker.read(1)
    server.start()
    assert _until_it_answers(worker.read, 1) == [entry_id]
    harness.close()


def _until_it_answers(read: object, limit: int) -> list[str]:
    """Each connection of before the restart fails once more; the next call makes a new one."""
    for _ in range(5):
        try:
            return ids(read(limit))  # type: ignore[operator]  # a worker's read
        except BrokerUnavailable:
            continue
    raise AssertionError("it never answered")


@pytest.mark.redis
def test_errors_inside_a_script_are_mapped_too(real: RedisHarness) -> None:
    worker = real.worker("w")
    real.client.delete(real.keys.stream)
    real.client.set(real.keys.stream, "no stream")
    verbs: list[Callable[[], object]] = [lambda: worker.read(1), worker.reclaim, worker.sweep, worker.retire]
    for verb in verbs:
        with pytest.raises(BrokerError, match="WRONGTYPE") as caught:
            verb()
        assert type(caught.value) is BrokerError


def test_a_command_is_packed_as_redis_py_does_and_refused_where_it_does(real: RedisHarness) -> None:
    connection: Any = real.link.quick.connection_pool.make_connection()  # redis-py leaves most of it untyped
    command = ("SET", "käse", b"\xff\x00\r\n", 0, -7, 10**30, 1.5, "", memoryview(b"view"), "x" * 9000)
    assert _packed(command, connection.encoder) == b"".join(connection.pack_command(*command))
    for word in (None, True, ["a"]):
        with pytest.raises(redis.exceptions.DataError):
            _packed(("SET", word), connection.encoder)


def test_a_command_that_was_torn_leaves_its_reply_to_nobody(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = real.link.quick
    real.client.set(f"{real.keys.namespace}-first", "its reply")
    connection = client.connection_pool.get_connection()
    client.connection_pool.release(connection)
    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            send(client, "GET", f"{real.keys.namespace}-first")
    # What comes late is not there yet when the next command looks for leftovers.
    monkeypatch.setattr(connection, "can_read", lambda timeout=0: False)
    assert send(client, "ECHO", "mine") == b"mine"


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/shop"])
def test_every_slot_may_speak_to_redis_at_once(url: str) -> None:
    link, services = Link(url), 44
    for client in (link.quick, link.patient):
        pool = client.connection_pool
        connections = [pool.make_connection() for _ in range(MOST_SLOTS + services)]
        assert len(connections) == MOST_SLOTS + services
    with pytest.raises(ConfigurationError, match=f"{MOST_SLOTS}"):
        Settings.load({}, {"slots": str(MOST_SLOTS + 1)})


MOST_SLOTS = 256


def _interrupted() -> None:
    raise KeyboardInterrupt
