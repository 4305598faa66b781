"""Stopping: who asks the worker to stop, and what ends the process when nothing else does."""

import enum
import os
import signal
import threading

import trio


class ExitCode(enum.IntEnum):
    """How the process ends."""

    OK = 0
    FAILED = 1
    ORPHANED = 70
    """Half the slots hold threads that do not end: only a new process gets them back."""


class StopRequest:
    """Somebody wants the worker to stop; asking a second time means at once.

    *asked_at* is trio's time of the first request: everything that a stop may take counts from there.
    Belongs to the trio thread.
    """

    def __init__(self) -> None:
        self._asked = trio.Event()
        self._hurried = trio.Event()
        self.asked_at = float("inf")
        self.why = ""
        self.exit_code = ExitCode.OK

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
    whatever its threads do.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_process_at_deadline, stop, grace_s)
            task_status.started()
            async for number in signals:
                stop.ask(signal.Signals(number).name)


async def _end_process_at_deadline(stop: StopRequest, grace_s: float) -> None:
    """End this process at its deadline: threads cannot be killed, a process can.

    A thread keeps the time, for the trio thread may be what hangs.
    """
    await stop.wait()
    timer = threading.Timer(grace_s, _end_process, [stop])
    timer.daemon = True
    timer.start()
    try:
        await trio.sleep_forever()
    finally:
        timer.cancel()


def _end_process(stop: StopRequest) -> None:
    os._exit(int(stop.exit_code) or int(ExitCode.FAILED))
