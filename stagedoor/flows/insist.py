"""Calls to the journal that outlast an outage: what was done must be remembered, or it is done twice."""

from collections.abc import Callable

from stagedoor.core.backoff import exponential_s
from stagedoor.errors import BrokerUnavailable, GroupMissing, LeaseLost

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0


def insist[T](function: Callable[[], T], *, is_ours: Callable[[], bool], pause: Callable[[float], None]) -> T:
    """Return what the function returns, called again until it is answered.

    Args:
        function: one call of a port, safe to repeat.
        is_ours: asked between two calls.
        pause: waits so many seconds.

    Raises:
        LeaseLost: the entry is somebody else's; there is nothing to insist on.
    """
    failures = 0
    while True:
        try:
            return function()
        except (BrokerUnavailable, GroupMissing) as error:
            failures += 1
            if not is_ours():
                raise LeaseLost(f"the entry was given up while Redis did not answer: {error}") from error
            pause(exponential_s(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S))
