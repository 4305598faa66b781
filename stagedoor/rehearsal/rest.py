"""When a rehearsal is over: nothing is left anywhere, or nothing moves any more."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

import attrs

from stagedoor.broker.scratch import Leftovers
from stagedoor.rehearsal.check import Checked

STALL_LIMIT_S = 60.0
"""Without any progress for so long a rehearsal gives up: a killed worker's entries move within 12.5 s."""


@attrs.define
class Moved:
    """Whether something has moved lately."""

    last: tuple[int, ...] = ()
    at: float = attrs.Factory(time.monotonic)

    def lately(self, how_far: tuple[int, ...], limit_s: float, clock: Callable[[], float] = time.monotonic) -> bool:
        """Return whether it has moved within the limit."""
        if how_far != self.last:
            self.last, self.at = how_far, clock()
        return clock() - self.at <= limit_s


def is_empty(left: Leftovers) -> bool:
    """Return whether nothing waits, is pending or is delayed."""
    return not (left.waiting or left.pending or left.delayed)


def with_unrest(checked: Checked, left: Leftovers | None) -> Checked:
    """Return what was found with what kept the rehearsal from coming to rest: that is lost, too.

    Args:
        checked: what was found.
        left: what is left; None where Redis could not be asked.
    """
    where = "and Redis gives no answer"
    if left is not None:
        where = (
            f"{left.waiting} entries in the streams, {left.pending} pending, {len(left.delayed)} delayed, "
            f"{len(left.dead)} dead letters"
        )
    said = f"lost: nothing has moved for {STALL_LIMIT_S:.0f} s: {where}"
    return attrs.evolve(checked, lost=max(1, checked.lost), problems=(said, *checked.problems))


@contextlib.contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C for as long as the block runs: end what was started, then ourselves."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
