"""Other orders in which the same things may happen: pure.

An entry is written in the same transaction as the change that it is about, so
it may be delivered late and never early. Hence what is kept: of two steps about
one order, the one that changes it stays in front of what follows it, and what
happens to one order in the shop keeps its sequence. All else may trade places.
"""

import random
from collections.abc import Sequence

from stagedoor.replay.fixture import Rest, Step


def must_precede(earlier: Step, later: Step) -> bool:
    """Return whether *earlier*, which stands in front, must stay in front of *later*."""
    if isinstance(earlier.what, Rest) or isinstance(later.what, Rest):
        return True
    return not earlier.changed.isdisjoint(later.concerned)


def shuffled(steps: Sequence[Step], rng: random.Random) -> list[Step]:
    """Return the steps in another order that may happen as well."""
    left = list(steps)
    result: list[Step] = []
    while left:
        free = [
            step for place, step in enumerate(left) if not any(must_precede(earlier, step) for earlier in left[:place])
        ]
        step = rng.choice(free)
        left.remove(step)
        result.append(step)
    return result
