"""Stopping: who asks the worker to stop, and what ends the process when nothing else does."""

import enum
import os
import signal
import threading

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

    async def wait(self) -> None:
        """Wait for the first request."""
        await self._asked.wait()

    async def wait_hurried(self) -> None:
        """Wait for the second request."""
        await self._hurried.wait()


async def watch_signals(
    stop: StopRequest,
    grace_s: float,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Turn SIGTERM and SIGINT into stop requests, until cancelled.

    The receiver stays open through the whole drain: leaving it would restore the
    default action, and the second SIGTERM would kill the draining process. A stop,
    whoever asked for it, also starts the clock after which the process is ended
    whatever its handlers do: `grace_s` after the first request, `HURRY_S` after the
    second. Two signals of one kind that come before the first was looked at, within a
    millisecond say, are one: the system keeps no count of them.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_process_at_deadline, stop, grace_s)
            task_status.started()
            async for number in signals:
                stop.ask(signal.Signals(number).name)


async def _end_process_at_deadline(stop: StopRequest, grace_s: float) -> None:
    """End this process at its deadline: threads cannot be killed, a process can.

    Threads keep the time, for the trio thread may be what hangs.
    """
    timers = []
    try:
        for wait, seconds in ((stop.wait, grace_s), (stop.wait_hurried, HURRY_S)):
            await wait()
            timers.append(threading.Timer(seconds, _end_process, [stop]))
            timers[-1].daemon = True
            timers[-1].start()
        await trio.sleep_forever()
    finally:
        for timer in timers:
            timer.cancel()


def _end_process(stop: StopRequest) -> None:
    os._exit(code_at_deadline(stop))


def code_at_deadline(stop: StopRequest) -> int:
    """Return the exit code of a process that has not ended by itself at its deadline.

    Where the worker has left in order, only a handler does not end: an ``async def`` one that shields itself
    from its cancellation, say. Its entry is in the pool, and the stop that was asked for has succeeded.
    """
    return int(stop.exit_code) if stop.has_left else int(stop.exit_code) or int(ExitCode.FAILED)
