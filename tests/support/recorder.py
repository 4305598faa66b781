"""A subscriber that keeps every event and lets a test wait for one, whatever thread it is emitted in."""

import threading
from collections.abc import Callable
from typing import Any

import trio

from stagedoor.events import Event

LIMIT_S = 60.0
"""Nothing that a test waits for takes this long; it only turns a hang into a failure."""


class Recorder:
    """Keeps events in order; subscribe it to an `EventStream`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._waiting: list[tuple[Callable[[], bool], trio.Event, trio.lowlevel.TrioToken]] = []
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)
            satisfied = [waiter for waiter in self._waiting if waiter[0]()]
            self._waiting = [waiter for waiter in self._waiting if waiter not in satisfied]
        for _is_enough, woken, token in satisfied:
            token.run_sync_soon(woken.set)

    def of[E: Event](self, kind: type[E], /, **fields: Any) -> list[E]:
        """Return the events of a class whose fields are these."""
        return [event for event in list(self.events) if isinstance(event, kind) and _has(event, fields)]

    async def wait[E: Event](self, kind: type[E], times: int = 1, /, **fields: Any) -> E:
        """Wait until there are that many such events, from the beginning on; return the last of them."""

        def is_enough() -> bool:
            return len(self.of(kind, **fields)) >= times

        woken = trio.Event()
        with self._lock:
            if not is_enough():
                self._waiting.append((is_enough, woken, trio.lowlevel.current_trio_token()))
            else:
                woken.set()
        with trio.move_on_after(LIMIT_S) as scope:
            await woken.wait()
        assert not scope.cancelled_caught, f"waited for {times} {kind.__name__} {fields}, got {self.events}"
        return self.of(kind, **fields)[times - 1]


def _has(event: Event, fields: dict[str, Any]) -> bool:
    return all(getattr(event, name) == value for name, value in fields.items())
