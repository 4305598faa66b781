"""Remembers what pure functions have made, for many threads at once."""

import functools
import itertools
import threading
from collections.abc import Callable


class Remembered[*Ts, T]:
    """A pure function of a few values, which remembers what it has made last.

    ``functools.lru_cache`` does so under a lock that it keeps, without a GIL, for as long as
    the function takes: eight threads that draw then wait for each other's names. Here nothing
    is made under a lock, and what is known is found without one. Two threads may make the
    same result, and it is the same.

    Args:
        make: the function; its arguments are hashable.
        count: of results that are remembered, at least 4. A quarter of them goes, the oldest
            ones, when there is no room.
    """

    def __init__(self, make: Callable[[*Ts], T], count: int = 256) -> None:
        self._make = make
        self._count = count
        self._known: dict[tuple[*Ts], T] = {}
        self._lock = threading.Lock()
        functools.update_wrapper(self, make)

    def __call__(self, *values: *Ts) -> T:
        """Return what the function makes of these values."""
        try:
            return self._known[values]
        except KeyError:
            pass
        made = self._make(*values)
        with self._lock:
            if len(self._known) >= self._count:
                # Those who look at the one before find what they look for.
                self._known = dict(itertools.islice(self._known.items(), self._count // 4, None))
            self._known[values] = made
        return made
