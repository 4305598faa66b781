"""Supervisor: the task tree, and the order in which it starts and stops. Start reading here.

    run_worker
     └ outer nursery: liveness · settler · heartbeat · upkeep · vitals · wake-ups   stop last
        └ middle nursery: executor (slots, handlers)         drains, bounded
           └ inner nursery: reader · promoter · reclaimer    stop first

Whoever brings work in stops before whoever does it, and whoever writes its
outcome stops last: at every moment of a stop what is finished can be settled,
and what is not can be released.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from stagedoor.events import Warned, WorkerStarted, WorkerStopped, WorkerStopping
from stagedoor.worker.groups import leaves
from stagedoor.worker.parts import Given, Parts
from stagedoor.worker.stopping import ExitCode
from stagedoor.worker.wakeups import keep_hearing

RELEASE_S = 2.0
"""The end of the grace that is kept for releasing what could not finish."""
RETIRE_S = 0.5
"""The end of that which is kept for giving up the name; it is the least that matters."""
MARGIN_S = 0.5
"""Before the deadline at which the process is ended: time to leave by itself."""
END_READ_S = 1.0
"""How long a stop waits for the read under way: longer than Redis ever takes when it answers at all."""


async def run_worker(
    given: Given,
    *,
    check_server: Callable[[], list[str]] = list,
    companions: tuple[Callable[[], Awaitable[None]], ...] = (),
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> ExitCode:
    """Run one worker until it is asked to stop, then drain.

    Args:
        given: what it is made from.
        check_server: run once Redis answers; returns warnings, raises ConfigurationError.
        companions: services to run beside the reader, stopped with it (the relay).
        task_status: started with the worker's name once it reads.

    Returns:
        How the process should end.

    **Cancellation**: as a crash: nothing is settled or released, others take over.

    **Durability**: when it returns, every finished delivery is settled, or, where Redis could not be
    reached within the grace, still pending; everything else is back in the pool.
    """
    return await _Worker(given).run(check_server, companions, task_status)


class _Worker:
    """The life of one worker: what is started when, and what is stopped after what."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._deliveries = given.deliveries
        self._stop = given.stop
        self._events = given.events
        self._parts = Parts(given)
        self._join_limiter = trio.CapacityLimiter(1)

    async def run(
        self,
        check_server: Callable[[], list[str]],
        companions: tuple[Callable[[], Awaitable[None]], ...],
        task_status: trio.TaskStatus[str],
    ) -> ExitCode:
        try:
            name = await self._join(check_server)
            if name is not None:
                await self._serve(name, companions, task_status)
        except BaseExceptionGroup as group:
            errors = list(leaves(group))
            if len(errors) > 1:
                raise
            # The caller should see what happened, not in which nursery.
            raise errors[0] from None
        return self._stop.exit_code

    async def _serve(
        self, name: str, companions: tuple[Callable[[], Awaitable[None]], ...], task_status: trio.TaskStatus[str]
    ) -> None:
        async with trio.open_nursery() as outer:
            await outer.start(keep_hearing)
            await outer.start(self._parts.liveness.run)
            await outer.start(self._parts.settler.run)
            await outer.start(self._parts.heartbeat.run)
            for upkeep in self._parts.upkeep:
                await outer.start(upkeep.run)
            await outer.start(self._given.vitals.run)
            async with trio.open_nursery() as middle:
                await middle.start(self._parts.executor.run)
                await self._read_until_stopped(name, companions, task_status)
                await self._drain()
                # Before the cancellation: what does not heed it must not keep us from leaving in order.
                await self._leave()
                middle.cancel_scope.cancel()
            outer.cancel_scope.cancel()

    async def _join(self, check_server: Callable[[], list[str]]) -> str | None:
        """Take a name once Redis answers; None when a stop was asked for before it did."""
        name: str | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_after, self._stop.wait, nursery.cancel_scope)
            for warning in await self._call("info", check_server):
                self._events.emit(Warned(message=warning))
            await self._call("ensure_groups", self._deliveries.ensure_groups)
            name = await self._call("join", self._parts.take_name)
            nursery.cancel_scope.cancel()
        return name

    async def _call[T](self, name: str, function: Callable[..., T], *args: Any) -> T:
        return await self._parts.weather.call(name, function, *args, limiter=self._join_limiter, abandon=True)

    async def _read_until_stopped(
        self, name: str, companions: tuple[Callable[[], Awaitable[None]], ...], task_status: trio.TaskStatus[str]
    ) -> None:
        async with trio.open_nursery() as inner:
            await inner.start(self._parts.reader.run)
            await inner.start(self._parts.promoter.run)
            await inner.start(self._parts.reclaimer.run)
            for companion in companions:
                inner.start_soon(companion)
            self._events.emit(
                WorkerStarted(
                    worker=name,
                    incarnation=self._given.identity.incarnation,
                    slots=self._given.settings.slots,
                    gil=_is_gil_enabled(),
                    kinds=tuple(sorted(self._given.handlers)),
                )
            )
            task_status.started(name)
            await self._stop.wait()
            self._parts.is_marked_stopping = True
            self._given.vitals.stopping()
            self._parts.liveness.beat_now()
            self._events.emit(
                WorkerStopping(
                    worker=self._deliveries.name,
                    why=self._stop.why,
                    held=len(self._parts.register),
                    grace_s=self._given.settings.grace_s,
                )
            )
            self._parts.reader.stop()
            with trio.move_on_after(END_READ_S):
                await self._parts.reader.wait_ended()
            inner.cancel_scope.cancel()

    async def _drain(self) -> None:
        """Finish what runs, release what cannot finish in time."""
        deadline = self._stop.asked_at + self._given.settings.grace_s - RELEASE_S
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_after, self._stop.wait_hurried, nursery.cancel_scope)
            nursery.cancel_scope.deadline = deadline
            await self._parts.executor.drain()
            nursery.cancel_scope.cancel()
        self._parts.executor.release_running()

    async def _leave(self) -> None:
        """Write what is owed and vanish; give up when Redis does not let us."""
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            scope.deadline = self._stop.asked_at + self._given.settings.grace_s - MARGIN_S
            nursery.start_soon(self._hurry, scope, RELEASE_S - MARGIN_S)
            with trio.move_on_at(scope.deadline - RETIRE_S) as writing:
                nursery.start_soon(self._hurry, writing, RELEASE_S - MARGIN_S - RETIRE_S)
                await self._parts.settler.wait_idle()
            # Outcomes are worth waiting for until the deadline; giving up the name properly is not.
            scope.deadline = min(scope.deadline, trio.current_time() + RELEASE_S - MARGIN_S)
            await self._parts.liveness.stop()
            await self._parts.heartbeat.stop()
            await self._call("retire", self._deliveries.retire)
            scope.cancel()
        self._stop.has_left = True
        self._events.emit(
            WorkerStopped(
                worker=self._deliveries.name,
                released=self._parts.executor.given_back,
                owed=self._parts.settler.owed,
                orphaned=self._parts.executor.orphaned,
            )
        )

    async def _hurry(self, scope: trio.CancelScope, seconds: float) -> None:
        """Once somebody asks for the second time, leave the scope that many seconds."""
        await self._stop.wait_hurried()
        scope.deadline = min(scope.deadline, trio.current_time() + seconds)


async def _cancel_after(wait: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await wait()
    scope.cancel()


def _is_gil_enabled() -> bool:
    """Return whether this interpreter runs threads one at a time."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()
