"""Replays run on the tests' own Redis server, the one that $STAGEDOOR_TEST_REDIS_SERVER may name."""

import pytest

from tests.support.redis_server import RedisServer


@pytest.fixture(scope="session")
def stagedoor_redis(redis_server: RedisServer) -> str:
    """The address of the run's private server; each replay has a namespace of its own."""
    return redis_server.url
