"""Stopping: who asks the worker to stop, and by when its process ends whatever it does."""

import contextlib
import enum
import signal
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import attrs
import trio

HURRY_S = 5.0
"""After the second request: twice what it takes at most to end the read, to release everything and to leave."""


class ExitCode(enum.IntEnum):
    """How the process ends."""

    OK = 0
    FAILED = 1
    ORPHANED = 70
    """Half the slots hold threads that do not end: only a new process gets them back."""


class StopRequest:
    """Somebody wants the worker to stop; asking a second time means at once.

    *asked_at* is trio's time of the first request: everything that a stop may take counts from there.
    *has_left* says that the worker has given back what it could, and its name: what still runs then
    keeps nobody else waiting. Belongs to the trio thread; others may ask.
    """

    def __init__(self) -> None:
        self._asked = trio.Event()
        self._hurried = trio.Event()
        self.asked_at = float("inf")
        self.why = ""
        self.exit_code = ExitCode.OK
        self.has_left = False

    def ask(self, why: str, exit_code: ExitCode = ExitCode.OK) -> None:
        """Ask the worker to drain and stop; asked again, it releases everything at once."""
        if self._asked.is_set():
            self._hurried.set()
            return
        self.why, self.exit_code, self.asked_at = why, exit_code, trio.current_time()
        self._asked.set()

    @property
    def is_asked(self) -> bool:
        """Whether a stop was asked for."""
        return self._asked.is_set()

    def code_at_deadline(self) -> int:
        """Return the exit code of a process that has not ended by itself at its deadline.

        Where the worker has left in order, only a handler does not end: an ``async def`` one that shields itself
        from its cancellation, say. Its entry is in the pool, and the stop that was asked for has succeeded.
        """
        return int(self.exit_code) if self.has_left else int(self.exit_code) or int(ExitCode.FAILED)

    async def wait(self) -> None:
        """Wait for the first request."""
        await self._asked.wait()

    async def wait_hurried(self) -> None:
        """Wait for the second request."""
        await self._hurried.wait()


class Process(Protocol):
    """Whoever owns the signals of this process, and ends it at its deadline."""

    def serve(
        self, pass_on: Callable[[int], None], code_at_deadline: Callable[[], int], *, grace_s: float, hurry_s: float
    ) -> None:
        """Pass signals on from now on."""

    def end_within(self, seconds: float) -> None:
        """End the process in so many seconds if it has not ended by itself."""


@contextlib.asynccontextmanager
async def heeding(
    process: Process, stop: StopRequest, grace_s: float, *, on_other: Callable[[int], None] = lambda _number: None
) -> AsyncIterator[None]:
    """Make the signals that come while the block runs stop requests.

    SIGTERM and SIGINT ask for a stop; so does a SIGHUP, but never for the second time: a terminal that is
    closed says so more than once. A stop, whoever asked for it, also gives the process its deadline:
    `grace_s` after the first request, `HURRY_S` after the second. Two signals of one kind that come
    before the first was looked at, within a millisecond say, are one: the system keeps no count of them.

    Args:
        process: owns the signals.
        stop: what is asked.
        grace_s: in seconds.
        on_other: told of a signal that means nothing, once for each.
    """
    ear = _Ear(stop, on_other, trio.lowlevel.current_trio_token())
    process.serve(ear.pass_on, stop.code_at_deadline, grace_s=grace_s, hurry_s=HURRY_S)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_give_deadlines, process, stop, grace_s)
        yield
        nursery.cancel_scope.cancel()


@attrs.frozen
class _Ear:
    """What the process tells of its signals, from the beginning of a block to the end of the process.

    Nothing takes it back when the block ends: what comes until the process has gone is a stop request
    that changes nothing, and the deadline stays.
    """

    _stop: StopRequest
    _on_other: Callable[[int], None]
    _token: trio.lowlevel.TrioToken
    _others: set[int] = attrs.field(init=False, factory=set)

    def pass_on(self, number: int) -> None:
        """Have trio's thread heed a signal; called in any thread, also after the loop has ended."""
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._heed, number)

    def _heed(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT) or (number == signal.SIGHUP and not self._stop.is_asked):
            self._stop.ask(signal.Signals(number).name)
        elif number not in (0, signal.SIGHUP, *self._others):
            self._others.add(number)
            self._on_other(number)


async def _give_deadlines(process: Process, stop: StopRequest, grace_s: float) -> None:
    await stop.wait()
    process.end_within(grace_s)
    await stop.wait_hurried()
    process.end_within(HURRY_S)
