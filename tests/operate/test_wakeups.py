"""A loop that has missed the word of its threads hears them again, and the signals that came meanwhile."""

import os
import select
import signal
from typing import Any

import pytest
import trio
import trio.testing

from stagedoor.worker import wakeups
from stagedoor.worker.wakeups import _io_manager, keep_hearing, listen_anew

HAS_EPOLL = hasattr(select, "epoll")
LIMIT_S = 30.0


def lose_what_epoll_said() -> int:
    """Disarm all that epoll watches once, as an event does that is said and not heard; returns how many."""
    manager = _io_manager()
    for fd in manager._registered:
        manager._epoll.modify(fd, select.EPOLLONESHOT)
    return len(manager._registered)


@pytest.mark.skipif(not HAS_EPOLL, reason="trio uses epoll on Linux only")
async def test_threads_are_heard_again() -> None:
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_hearing)
            await trio.testing.wait_all_tasks_blocked()
            assert lose_what_epoll_said() >= 1
            assert await trio.to_thread.run_sync(os.getpid) == os.getpid()
            nursery.cancel_scope.cancel()


@pytest.mark.skipif(not HAS_EPOLL, reason="trio uses epoll on Linux only")
async def test_without_asking_they_are_not() -> None:
    """What the test above guards against is real: the same loop, unasked, waits for ever."""
    await trio.testing.wait_all_tasks_blocked()
    with trio.move_on_after(0.5) as scope:
        lose_what_epoll_said()
        await trio.to_thread.run_sync(os.getpid, abandon_on_cancel=True)
    assert scope.cancelled_caught
    assert listen_anew() >= 1
    with trio.fail_after(LIMIT_S):
        await trio.to_thread.run_sync(os.getpid)


@pytest.mark.skipif(not HAS_EPOLL, reason="trio uses epoll on Linux only")
async def test_a_signal_that_came_meanwhile_is_heeded() -> None:
    with trio.fail_after(LIMIT_S), trio.open_signal_receiver(signal.SIGUSR1) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_hearing)
            await trio.testing.wait_all_tasks_blocked()
            lose_what_epoll_said()
            os.kill(os.getpid(), signal.SIGUSR1)
            async for number in signals:
                assert number == signal.SIGUSR1
                break
            nursery.cancel_scope.cancel()


async def test_a_loop_that_hears_is_left_alone(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended: list[Any] = []
    monkeypatch.setattr(wakeups, "listen_anew", lambda: mended.append(1))
    with trio.move_on_after(60):
        await keep_hearing()
    assert mended == []


def test_a_trio_that_is_built_differently_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "_io_manager", object)
    assert listen_anew() == 0
    assert _io_manager() is None, "outside of a loop there is none"
