"""Thousands of random schedules of flow calls, over the fake; some of them over a real Redis.

Fixed seeds: a failure is repeated by `run_schedule(FakeHarness(), seed)` alone.
"""

import functools

import pytest

from stagedoor.broker import connection
from tests.broker.harness import FakeHarness, RedisHarness
from tests.model.call_schedules import run_schedule

CHUNK = 100


@pytest.mark.parametrize("chunk", range(20))
def test_no_schedule_leaves_a_call_stuck_or_a_value_changed(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        run_schedule(FakeHarness(), seed, with_look=seed % 4 == 3)


@pytest.mark.redis
@pytest.mark.parametrize("chunk", range(2))
def test_the_same_holds_on_redis(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(connection, "read_script", functools.cache(connection.read_script))
    for seed in range(chunk * 20, chunk * 20 + 20):
        harness = RedisHarness(redis_url, f"{namespace}-{seed}")
        try:
            run_schedule(harness, seed, actions=60, with_look=seed % 4 == 3)
        finally:
            harness.close()
