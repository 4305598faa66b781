"""Calls to the journal that outlast an outage: what was done must be remembered, or it is done twice."""

from collections.abc import Callable

from stagedoor.core.backoff import exponential_s
from stagedoor.errors import BrokerError, BrokerUnavailable, GroupMissing, LeaseLost, NameTaken

MOST_REFUSALS = 4
"""Errors of a Redis that serves, before they are believed: on a connection that has lost its step the reply of
another call may come first, and what was done must not be forgotten for that."""
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
        BrokerError: Redis serves, and will not have it.
    """
    failures = refusals = 0
    while True:
        try:
            return function()
        except (BrokerUnavailable, GroupMissing) as error:
            failures += 1
            if not is_ours():
                raise LeaseLost(f"the entry was given up while Redis did not answer: {error}") from error
            pause(exponential_s(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S))
        except NameTaken:
            raise
        except BrokerError:
            refusals += 1
            if refusals >= MOST_REFUSALS:
                raise
            pause(exponential_s(refusals, FIRST_PAUSE_S, LONGEST_PAUSE_S))
