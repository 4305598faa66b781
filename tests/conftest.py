"""Fixtures for every test: a private Redis for the run, and a namespace for each test."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import settings

from stagedoor.errors import ConfigurationError
from tests.support.redis_server import RedisServer, StartRedis, find_server, redis_factory

# No deadline: it would measure this machine's load. In CI the same examples every
# time: a run must not fail for what the change before it did.
settings.register_profile("stagedoor", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("stagedoor")


@pytest.fixture(scope="session")
def redis_program() -> str:
    """The path of the Redis server; without one its tests are skipped, but never in CI."""
    try:
        return find_server()
    except ConfigurationError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def socket_folder() -> Iterator[Path]:
    """A folder with a short path: the path of a unix socket has 107 bytes at most, pytest's own may be longer."""
    folder = Path(tempfile.mkdtemp(prefix="stagedoor-", dir="/tmp" if Path("/tmp").is_dir() else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _new_log(folder: Path) -> Path:
    return folder / f"redis-{uuid4().hex}.log"


@pytest.fixture(scope="session")
def redis_server(redis_program: str, socket_folder: Path) -> Iterator[RedisServer]:
    """The one private server of the run; share it through `namespace`, and never stop or flush it."""
    with redis_factory(lambda: _new_log(socket_folder)) as start:
        yield start(program=redis_program)


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address of the run's private server."""
    return redis_server.url


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test has."""
    return f"t-{uuid4().hex[:20]}"


@pytest.fixture
def start_redis(redis_program: str, socket_folder: Path) -> Iterator[StartRedis]:
    """Start servers for this test alone, which it may stop, kill, freeze and flush; all are ended after it."""
    with redis_factory(lambda: _new_log(socket_folder)) as start:
        yield start
