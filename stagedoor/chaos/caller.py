"""Who starts the calls of a chaos run, and sends them signals at random moments.

All of it is planned from a seed. Each start has its id and each signal its token,
so that whatever was done may be done again: after Redis has forgotten something,
the caller goes through its whole plan once more, as an application would that
keeps its own list of what it wants.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import attrs

from stagedoor.broker.calls import Calls, Told
from stagedoor.chaos.trial import TRIAL
from stagedoor.errors import BrokerError
from stagedoor.flows import send_signal, start

CANCELLED_SHARE = 0.08
HURRIED_SHARE = 0.5
DELAYED_SHARE = 0.2
LONGEST_DELAY_S = 3.0
SIGNAL_WITHIN_S = 6.0
"""Seconds after its start in which a call is sent its signals: before, while and after it waits."""
MOST_AT_ONCE = 50
"""Acts in one turn: the loop that lets things fail must go on."""


@attrs.frozen(order=True)
class Act:
    """One thing that is done to a call, in seconds of the run; *token* names a signal."""

    at_s: float
    number: int = attrs.field(order=False)
    what: str = attrs.field(order=False)
    token: str = attrs.field(order=False, default="")
    delay_s: float = attrs.field(order=False, default=0.0)


def make_acts(seed: int, *, seconds: float, per_s: float) -> list[Act]:
    """Return what is done to the calls of a run of this length, in the order of time."""
    rng = random.Random(f"caller {seed}")
    acts: list[Act] = []
    for number in range(1, round(seconds * per_s) + 1):
        acts += _acts_of(number, rng.uniform(0, seconds), rng)
    return sorted(acts)


def _acts_of(number: int, at_s: float, rng: random.Random) -> Iterator[Act]:
    delay_s = rng.uniform(0, LONGEST_DELAY_S) if rng.random() < DELAYED_SHARE else 0.0
    yield Act(at_s, number, "start", delay_s=delay_s)
    for name, token in (("paid", "1"), ("paid", "2"), ("hurry", "3"), ("cancel", "")):
        later_s = rng.uniform(0, SIGNAL_WITHIN_S)
        share = {"hurry": HURRIED_SHARE, "cancel": CANCELLED_SHARE}.get(name, 1.0)
        if rng.random() < share:
            yield Act(at_s + later_s, number, name, token)


def call_id_of(number: int) -> str:
    """Return the id of the call of this number."""
    return f"trial-{number}"


class Caller:
    """Does what is planned.

    Args:
        calls: where.
        acts: what, in the order of time.
        effects: the file in which the steps leave their lines.

    *exempt* are the ids of calls of which Redis may have forgotten something, *cancelled* of
    those whose end was asked for.
    """

    def __init__(self, calls: Calls, acts: list[Act], *, effects: Path) -> None:
        self._calls = calls
        self._acts = acts
        self._effects = effects
        self._next = 0
        self._started: set[str] = set()
        self.exempt: set[str] = set()
        self.cancelled: set[str] = set()
        self.problems: list[str] = []

    @property
    def started(self) -> int:
        """How many calls there must be."""
        return len(self._started)

    @property
    def is_over(self) -> bool:
        """Whether all is done that is planned."""
        return self._next >= len(self._acts)

    def work(self, now_s: float) -> None:
        """Do what is due at this second of the run; what Redis does not answer to is done at the next call."""
        for act in self._acts[self._next : self._next + MOST_AT_ONCE]:
            if act.at_s > now_s:
                return
            try:
                self._do(act)
            except BrokerError:
                return
            self._next += 1

    def close(self) -> None:
        """Start nothing more; what is planned for the calls that were started is still done."""
        self._acts = [
            act for place, act in enumerate(self._acts) if place < self._next or call_id_of(act.number) in self._started
        ]

    def begin_again(self) -> None:
        """Go through everything again: Redis has forgotten something."""
        self.exempt |= self._started
        self._next = 0

    def _do(self, act: Act) -> None:
        call_id = call_id_of(act.number)
        match act.what:
            case "start":
                metadata = {"number": str(act.number), "effects": str(self._effects)}
                # Noted first: it may have been started although there was no answer.
                self._started.add(call_id)
                start(self._calls, TRIAL, call_id=call_id, metadata=metadata, delay_s=act.delay_s)
            case "cancel":
                self.cancelled.add(call_id)
                self._calls.cancel(call_id)
            case _:
                value = act.number if act.what == "paid" else act.what
                told = send_signal(self._calls, call_id, act.what, value, token=act.token)
                if told not in {Told.TOLD, Told.ENDED}:
                    self.problems.append(f"wrong: {call_id} could not be told of {act.what!r}: {told.value}")
