"""The broker under test: the fake one, and a real Redis over both of its protocols."""

import functools
from collections.abc import Iterator

import pytest

from stagedoor.broker import connection
from tests.broker.harness import FakeHarness, Harness, RedisHarness

pytest.register_assert_rewrite("tests.broker.fences")  # histories say what they have seen, as tests do


@pytest.fixture(scope="session")
def _scripts_of_the_run() -> Iterator[None]:
    """Read each script once, not once for each of thousands of workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "read_script", functools.cache(connection.read_script))
        yield


@pytest.fixture(
    params=[
        "fake",
        pytest.param("resp2", marks=pytest.mark.redis),
        pytest.param("resp3", marks=pytest.mark.redis),
    ]
)
def broker(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """Every broker there is: what holds for one must hold for all."""
    if request.param == "fake":
        yield FakeHarness()
        return
    request.getfixturevalue("_scripts_of_the_run")
    url, namespace = request.getfixturevalue("redis_url"), request.getfixturevalue("namespace")
    harness = RedisHarness(url, namespace, protocol=int(request.param[-1]))
    yield harness
    harness.close()


@pytest.fixture
def real(redis_url: str, namespace: str, _scripts_of_the_run: None) -> Iterator[RedisHarness]:
    """A real Redis, for what a fake cannot have."""
    harness = RedisHarness(redis_url, namespace, protocol=3)
    yield harness
    harness.close()
