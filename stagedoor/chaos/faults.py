"""What fails, and when: pure, from a seed."""

import enum
import random
from collections.abc import Collection

import attrs


class Fault(enum.Enum):
    """One kind of fault, by its name on the command line."""

    KILL = "kill"
    """SIGKILL of a worker that holds entries, now and then of the relay; started again at once or only much later."""
    STOP = "stop"
    """SIGSTOP of a worker for longer than its lease, then SIGCONT."""
    REDIS_RESTART = "redis-restart"
    """Redis ends and comes back with its data, with data of some seconds ago, or with none."""
    PROXY = "proxy"
    """The connections of one process lose, delay or double replies, freeze or are reset."""
    CLOCK = "clock"
    """The wall clock of one process jumps by up to an hour."""


MEAN_PAUSE_S = {Fault.KILL: 8.0, Fault.STOP: 45.0, Fault.REDIS_RESTART: 45.0, Fault.PROXY: 12.0, Fault.CLOCK: 25.0}
"""Ten minutes have some 75 kills; Redis is in order most of the time, or recovery could not be told from outage."""
FIRST_FROM_S = 2.0
FIRST_UNTIL_SHARE = 0.5


@attrs.frozen(order=True)
class Planned:
    """A fault, and the second of the run at which it begins."""

    at_s: float
    fault: Fault = attrs.field(order=False)


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Return the faults named in a text, separated by commas, each once.

    Raises:
        ValueError: says what is allowed.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    allowed = {fault.value: fault for fault in Fault}
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        found = f"{', '.join(map(ascii, unknown))} is none" if unknown else "none is named"
        raise ValueError(f"{found}; the faults are {', '.join(allowed)}")
    return tuple(dict.fromkeys(allowed[name] for name in names))


def make_plan(faults: Collection[Fault], *, seconds: float, seed: int, pace: float = 1.0) -> list[Planned]:
    """Return what fails in a run of this length, in the order of time.

    Each kind of fault begins independently of the others, with random pauses, so that they
    overlap in every way; and each comes at least once, in the first half. *pace* divides the pauses.
    """
    planned: list[Planned] = []
    for fault in faults:
        rng = random.Random(f"faults {seed} {fault.value}")
        pause_s = MEAN_PAUSE_S[fault] / pace
        latest = max(FIRST_FROM_S, min(pause_s, seconds * FIRST_UNTIL_SHARE))
        at_s = rng.uniform(FIRST_FROM_S, latest)
        while at_s < seconds:
            planned.append(Planned(at_s, fault))
            at_s += rng.expovariate(1 / pause_s)
    return sorted(planned)
