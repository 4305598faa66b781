"""How long to wait before the next attempt."""

import random

_LARGEST_EXPONENT = 60
"""2**60 seconds is past every cap; a larger exponent only risks overflow."""


def exponential_s(attempt: int, base_s: float, cap_s: float) -> float:
    """Return the longest wait in seconds after this attempt: base · 2^(attempt - 1), at most the cap.

    Args:
        attempt: the attempt that failed, from 1; any size, also absurd ones, is safe.
        base_s: seconds after the first attempt.
        cap_s: seconds that no wait exceeds.
    """
    exponent = min(max(attempt - 1, 0), _LARGEST_EXPONENT)
    return min(cap_s, base_s * 2.0**exponent)


def full_jitter_s(attempt: int, base_s: float, cap_s: float, rng: random.Random) -> float:
    """Return a wait drawn evenly from 0 to `exponential_s`.

    Jobs that failed together come back spread over the whole interval, so the
    thing they wait for is not hit by all of them at once.
    """
    return rng.uniform(0.0, exponential_s(attempt, base_s, cap_s))
