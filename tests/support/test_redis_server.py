"""The private Redis of the tests."""

import os
import re
import signal

import pytest

from stagedoor.errors import ConfigurationError
from tests.support.redis_server import RedisServer, StartRedis, find_server

pytestmark = [pytest.mark.redis, pytest.mark.process]


def test_the_server_of_the_run_answers_under_its_url(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        assert client.info("server")["process_id"] == redis_server.pid


def test_it_listens_on_no_port_and_keeps_nothing(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        assert client.config_get("port", "save", "appendonly") == {"port": "0", "save": "", "appendonly": "no"}


def test_a_namespace_is_one_that_the_settings_take(namespace: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,32}", namespace)


def test_a_server_that_was_killed_starts_again_at_the_same_address_and_empty(start_redis: StartRedis) -> None:
    server = start_redis()
    url = server.url
    server.cli("SET", "k", "v")
    server.kill()
    assert not server.is_running
    server.start()
    assert (server.url, server.cli("EXISTS", "k")) == (url, 0)


def test_a_server_with_persistence_keeps_its_folder(start_redis: StartRedis) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    server.cli("SET", "k", "v")
    server.stop()
    server.start()
    assert server.cli("GET", "k") == b"v"


def test_a_frozen_server_can_be_stopped(start_redis: StartRedis) -> None:
    server = start_redis()
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    assert not server.is_running


def test_a_server_that_cannot_start_says_why(start_redis: StartRedis) -> None:
    with pytest.raises(ConfigurationError, match="no-such-option"):
        start_redis("--no-such-option", "1")


def test_two_servers_share_nothing(start_redis: StartRedis) -> None:
    one, other = start_redis(), start_redis()
    one.cli("SET", "k", "v")
    assert other.cli("EXISTS", "k") == 0


def test_a_named_server_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEDOOR_TEST_REDIS_SERVER", "/nowhere/redis-server")
    with pytest.raises(ConfigurationError, match="/nowhere/redis-server"):
        find_server()
