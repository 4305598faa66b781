"""Waits are finite, never negative and never past the cap, for any attempt."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.core.backoff import exponential_s, full_jitter_s

ATTEMPTS = st.integers() | st.sampled_from([-1, 0, 1, 43, 47, 50, 1024, 1100, 10**6, 10**400])
SECONDS = st.floats(min_value=0, max_value=1e300)


@given(ATTEMPTS, SECONDS, SECONDS, st.integers())
def test_a_wait_is_a_number_from_nought_to_the_cap(attempt: int, base_s: float, cap_s: float, seed: int) -> None:
    for wait in (
        exponential_s(attempt, base_s, cap_s),
        full_jitter_s(attempt, base_s, cap_s, random.Random(seed)),
    ):
        assert math.isfinite(wait)
        assert 0 <= wait <= cap_s


@pytest.mark.parametrize("attempt, wait", [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (11, 300), (10**9, 300)])
def test_waits_double_up_to_the_cap(attempt: int, wait: float) -> None:
    assert exponential_s(attempt, 1, 300) == wait


def test_jobs_that_failed_together_come_back_spread_over_the_interval() -> None:
    rng = random.Random(1)
    waits = sorted(full_jitter_s(5, 1, 300, rng) for _ in range(2000))
    assert waits[0] < 0.5
    assert waits[-1] > 15.5
    assert 7 < waits[1000] < 9
