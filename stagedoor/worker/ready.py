"""Ready: what is claimed and has not started, in the order in which it was claimed.

Two queues stand for one: plain handlers are taken by any thread that has ended
its job, ``async def`` ones by the trio thread alone. A claim's number says which
queue's first is the older, so that neither kind starves the other.
"""

from collections import deque
from collections.abc import Iterator

from stagedoor.worker.held import HeldDelivery


class Ready:
    """The deliveries that wait for a slot.

    The trio thread puts them in; any thread may take, at any moment: whoever looks at the first
    one may find that it has gone.
    """

    def __init__(self) -> None:
        self._plain: deque[HeldDelivery] = deque()
        self._tasks: deque[HeldDelivery] = deque()

    def __len__(self) -> int:
        return len(self._plain) + len(self._tasks)

    def put(self, held: HeldDelivery) -> None:
        """Put one behind all others."""
        (self._tasks if held.is_async else self._plain).append(held)

    def take(self) -> HeldDelivery | None:
        """Take the oldest."""
        if self._tasks and self._is_turn_of_task():
            return pop(self._tasks)
        return pop(self._plain)

    def take_plain(self) -> HeldDelivery | None:
        """Take the oldest, unless the trio thread has to run it."""
        if self._tasks and self._is_turn_of_task():
            return None
        return pop(self._plain)

    def take_all(self) -> Iterator[HeldDelivery]:
        """Take one after the other until there is none."""
        for queue in (self._plain, self._tasks):
            while (held := pop(queue)) is not None:
                yield held

    @property
    def oldest(self) -> HeldDelivery | None:
        """The one whose turn it is."""
        return first(self._tasks) if self._is_turn_of_task() else first(self._plain)

    def _is_turn_of_task(self) -> bool:
        task = first(self._tasks)
        if task is None:
            return False
        plain = first(self._plain)
        return plain is None or task.number < plain.number


def first(queue: deque[HeldDelivery]) -> HeldDelivery | None:
    """Return the first without taking it; another thread may take the last one at any moment."""
    try:
        return queue[0]
    except IndexError:
        return None


def pop(queue: deque[HeldDelivery]) -> HeldDelivery | None:
    """Take the first; None when there is none, or none any more."""
    try:
        return queue.popleft()
    except IndexError:
        return None
