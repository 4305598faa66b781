"""A slot: one place where a handler runs, and who says what becomes of the delivery in it."""

import threading
from collections.abc import Callable

import trio

from stagedoor.worker.held import HeldDelivery


class Slot:
    """One running slot; *scope* ends the wait for what runs in it.

    Three may want to say what becomes of the delivery in it: the handler's own
    thread when it ends, whoever gives up on a thread past its timeout, and the stop
    that releases everything. The lock lets exactly one of them, and lets nothing
    start in a slot that was given up.
    """

    __slots__ = ("_current", "_is_given_up", "_lock", "is_orphaned", "scope")

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.is_orphaned = False
        self._current: HeldDelivery | None = None
        self._is_given_up = False
        self._lock = threading.Lock()

    @property
    def current(self) -> HeldDelivery | None:
        """The delivery that runs in it and of which nobody has said yet what becomes."""
        return self._current

    def take(self, pop: Callable[[], HeldDelivery | None]) -> HeldDelivery | None:
        """Put the next delivery in; None when *pop* has none, or the slot was given up."""
        with self._lock:
            if not self._is_given_up:
                self._current = pop()
            return self._current

    def conclude(self, held: HeldDelivery) -> bool:
        """Take the delivery out; return whether it was still there: then the caller says what becomes of it."""
        with self._lock:
            if self._current is not held:
                return False
            self._current = None
            return True

    def orphan(self, held: HeldDelivery) -> bool:
        """Give up on the thread that runs this delivery; as `conclude`."""
        with self._lock:
            if self._current is not held:
                return False
            self._current = None
            self._is_given_up = self.is_orphaned = True
            return True

    def give_up(self) -> HeldDelivery | None:
        """Let nothing start in it any more; return what runs, of which the caller says what becomes."""
        with self._lock:
            held, self._current = self._current, None
            self._is_given_up = True
            return held
