"""Telling: how handler threads have the trio thread look at what they have changed, and not too often.

A thread that ends a job and has a next one at hand need not wake the trio thread
for it: fewer wake-ups, and larger batches to settle and to read. What nobody
tells is seen a moment later by a second look.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import trio

LOOK_AGAIN_S = 0.01
"""After this, or when it is time to be told, a second look sees what was too soon after the last telling to be told."""


class Work(Protocol):
    """What a second look looks at."""

    @property
    def oldest(self) -> object | None:
        """The first thing that waits."""
        ...

    @property
    def has_free_slots(self) -> bool:
        """Whether something that waits could start in a slot of its own."""
        ...

    def react(self) -> None:
        """Look at what has changed."""
        ...

    def push(self) -> None:
        """Start more slots than seemed worth it: nothing has gone forward."""
        ...


class Telling:
    """The way from handler threads to the trio thread.

    Args:
        work: what the trio thread looks at when it is told.
        every_s: how often threads that go on by themselves should tell.
        clock: monotonic seconds, readable in any thread.
    """

    def __init__(self, work: Work, *, every_s: Callable[[], float], clock: Callable[[], float]) -> None:
        self._work = work
        self._every_s = every_s
        self._clock = clock
        self._token: trio.lowlevel.TrioToken | None = None
        self._worth_a_look = trio.Event()
        self._is_told = False
        self._is_untold = False
        self._told_at = 0.0

    def begin(self) -> None:
        """Note which trio thread is to be told; before any thread starts."""
        self._token = trio.lowlevel.current_trio_token()

    # -- in a handler thread ---------------------------------------------------------

    def note(self) -> None:
        """Note a change; `tell` may follow, or not."""
        # Asked first, because threads that write to one object wait for each other.
        if not self._is_untold:
            self._is_untold = True

    def tell(self, *, is_urgent: bool) -> None:
        """Have the trio thread look at what has changed, once for all that changed meanwhile.

        Args:
            is_urgent: at once; else only where the last time is long enough ago.
        """
        now = self._clock()
        if not is_urgent and now - self._told_at <= self._every_s():
            return
        self._told_at = now
        if not self._is_told:
            self._is_told = True
            self.soon(self._work.react)

    def soon(self, function: Callable[..., object], *args: Any) -> None:
        """Have the trio thread call this."""
        assert self._token is not None, "threads run only after run() has begun"
        with contextlib.suppress(trio.RunFinishedError):  # an orphan that outlived the run: nobody is left to tell
            self._token.run_sync_soon(function, *args)

    # -- in the trio thread ------------------------------------------------------------

    def heard(self) -> None:
        """Note that everything up to now is being looked at."""
        self._is_told = self._is_untold = False
        self._worth_a_look.set()

    def look_again_soon(self) -> None:
        """Let a second look follow."""
        self._worth_a_look.set()

    async def look_again(self) -> None:
        """Look once more for ever, shortly after each change, at what nobody tells.

        That is a job which a thread ended too soon after it last told before it took a long one; and jobs
        that wait beside free slots because their kind was so fast that a slot of their own seemed a waste.
        """
        while True:
            await self._worth_a_look.wait()
            self._worth_a_look = trio.Event()
            oldest = self._work.oldest
            await trio.sleep(max(LOOK_AGAIN_S, self._every_s()))
            if self._is_untold:
                self._work.react()
            if oldest is not None and self._work.oldest is oldest:
                self._work.push()
            if self._work.oldest is not None and self._work.has_free_slots:
                self._worth_a_look.set()
