"""Orphans: threads that do not end at their timeout.

A thread cannot be killed. Some time past its timeout its attempt is settled as
timed out, and nobody waits for the thread any more; its slot is gone until it
ends by itself, for it still uses what a slot stands for.
"""

from collections.abc import Callable, Iterable

import trio

from stagedoor.events import EventStream, HandlerOrphaned
from stagedoor.worker.held import HeldDelivery
from stagedoor.worker.slot import Slot

WATCH_EVERY_S = 0.25


class Orphans:
    """Watches the running slots, and counts the threads that were given up.

    Args:
        running: the slots in which something runs.
        slots: of this worker, for the event.
        after_s: how long past its timeout a thread is given up.
        clock: monotonic seconds.
        events: told of each.
        on_timeout: says what becomes of the delivery of a thread that was just given up.
    """

    def __init__(
        self,
        running: Iterable[Slot],
        *,
        slots: int,
        after_s: float,
        clock: Callable[[], float],
        events: EventStream,
        on_timeout: Callable[[HeldDelivery], None],
    ) -> None:
        self._running = running
        self._slots = slots
        self._after_s = after_s
        self._clock = clock
        self._events = events
        self._on_timeout = on_timeout
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def watch(self) -> None:
        """Give up threads for ever.

        **Cancellation**: safe anywhere.
        """
        while True:
            await trio.sleep(WATCH_EVERY_S)
            now = self._clock()
            for slot in list(self._running):
                held = slot.current
                if held is not None and self._is_overdue(held, now) and slot.orphan(held):
                    self._give_up(slot, held)

    def _is_overdue(self, held: HeldDelivery, now: float) -> bool:
        return not held.is_async and held.deadline is not None and now >= held.deadline + self._after_s

    def _give_up(self, slot: Slot, held: HeldDelivery) -> None:
        self._count += 1
        slot.scope.cancel()
        self._on_timeout(held)
        self._events.emit(
            HandlerOrphaned(kind=str(held.kind), entry_id=held.tenure.entry_id, orphaned=self._count, slots=self._slots)
        )

    def ended(self) -> None:
        """Note that one of them has ended after all."""
        self._count -= 1
