"""Wake-ups: makes sure that the event loop still hears its threads and its signals.

CPython without the GIL (3.14.7 and before) can lose what epoll has said: when a signal
comes while the main thread waits for a stop of all threads to end, ``epoll.poll``
takes its result for an interruption and polls again (15 of 49,770 polls lost, with
signals and collections as fast as they come; none of 174,622 with signals kept from
that thread). Trio has epoll say everything once, so a loop that has missed the word
of its threads never hears of them again: no call returns, no signal is heeded, and
only timers go on. So the loop is asked now and then whether it still hears, and where
it does not epoll is told anew what to listen for.
"""

import contextlib
from typing import Any

import trio

ASK_EVERY_S = 0.5
DEAF_S = 1.0
"""A loop that turns answers within a turn; what it has not heard by then, it will not."""


async def keep_hearing(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Ask this loop for ever whether it hears its threads, and mend it when it does not.

    **Cancellation**: safe anywhere.
    """
    token = trio.lowlevel.current_trio_token()
    task_status.started()
    while True:
        heard = trio.Event()
        token.run_sync_soon(heard.set)
        while not heard.is_set():
            with trio.move_on_after(DEAF_S):
                await heard.wait()
            if not heard.is_set():
                listen_anew()
        await trio.sleep(ASK_EVERY_S)


def listen_anew() -> int:
    """Tell epoll again everything that tasks of this loop wait for; returns how many files that are.

    Trio has no public way to do so. Where a later one is built differently nothing happens here.
    """
    manager = _io_manager()
    registered: dict[int, Any] = getattr(manager, "_registered", {})
    told = 0
    for fd, waiters in list(registered.items()):
        with contextlib.suppress(AttributeError, OSError):
            # It believes that epoll knows; forgetting that makes it say so again.
            waiters.current_flags = 0
            manager._update_registrations(fd)  # noqa: SLF001 - see above
            told += 1
    return told


def _io_manager() -> Any:
    contexts = (getattr(getattr(trio, "_core", None), "_run", None), "GLOBAL_RUN_CONTEXT")
    runner = getattr(getattr(*contexts, None), "runner", None)
    return getattr(runner, "io_manager", None)
