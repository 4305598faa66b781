"""The broker under test: the fake one, and a real Redis over both of its protocols."""

from collections.abc import Iterator

import pytest

from tests.broker.harness import FakeHarness, Harness, RedisHarness


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
    url, namespace = request.getfixturevalue("redis_url"), request.getfixturevalue("namespace")
    harness = RedisHarness(url, namespace, protocol=int(request.param[-1]))
    yield harness
    harness.close()


@pytest.fixture
def real(redis_url: str, namespace: str) -> Iterator[RedisHarness]:
    """A real Redis, for what a fake cannot have."""
    harness = RedisHarness(redis_url, namespace, protocol=3)
    yield harness
    harness.close()
