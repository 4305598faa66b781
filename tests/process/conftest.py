"""Theatres: a namespace with worker processes, on the run's server or on one that the test may ill-treat."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.fixtures import environ, start
from tests.process.support import Theatre
from tests.support.redis_server import RedisServer, StartRedis

__all__ = ["environ", "own_theatre", "server", "start", "theatre"]


@pytest.fixture
def theatre(redis_url: str, namespace: str, tmp_path: Path) -> Iterator[Theatre]:
    """A theatre on the run's server, which nobody may stop or flush."""
    theatre = Theatre(redis_url, namespace, tmp_path)
    yield theatre
    theatre.close()


@pytest.fixture
def server(start_redis: StartRedis) -> RedisServer:
    """A server of the test's own."""
    return start_redis()


@pytest.fixture
def own_theatre(server: RedisServer, tmp_path: Path) -> Iterator[Theatre]:
    """A theatre on that server."""
    theatre = Theatre(server.url, "jobs", tmp_path)
    yield theatre
    theatre.close()
