"""Supervisor: the task tree, and the order in which it starts and stops. Start reading here.

    run_worker
     └ outer nursery: liveness · settler · heartbeat · upkeep · vitals · wake-ups   stop last
        └ middle nursery: executor (slots, handlers)         drains, bounded
           └ inner nursery: reader · promoter · reclaimer    stop first

Whoever brings work in stops before whoever does it, and whoever writes its
outcome stops last: at every moment of a stop what is finished can be settled,
and what is not can be released.
"""

import enum
import os
import random
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import trio

from stagedoor.broker import Deliveries, Identity, Pulse
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.outcome import Limits
from stagedoor.errors import BrokerError, NameTaken
from stagedoor.events import EventStream, Warned, WorkerStarted, WorkerStopped, WorkerStopping
from stagedoor.settings import Settings
from stagedoor.weather import Weather
from stagedoor.worker.executor import Clocks, Executor, MakeContext, is_gil_enabled
from stagedoor.worker.groups import leaves
from stagedoor.worker.heartbeat import Heartbeat
from stagedoor.worker.held import Register
from stagedoor.worker.liveness import Liveness
from stagedoor.worker.pace import Pace
from stagedoor.worker.promoter import Promoter
from stagedoor.worker.reader import Reader
from stagedoor.worker.reclaimer import Reclaimer
from stagedoor.worker.settler import Settler
from stagedoor.worker.standing import Standing
from stagedoor.worker.upkeep import Chore, Upkeep
from stagedoor.worker.vitals import Vitals
from stagedoor.worker.wakeups import keep_hearing

RELEASE_S = 2.0
"""The end of the grace that is kept for releasing what could not finish."""
RETIRE_S = 0.5
"""The end of that which is kept for giving up the name; it is the least that matters."""
MARGIN_S = 0.5
"""Before the deadline at which the process is ended: time to leave by itself."""
END_READ_S = 1.0
"""How long a stop waits for the read under way: longer than Redis ever takes when it answers at all."""


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


@attrs.frozen(kw_only=True)
class WorkerSettings:
    """What the worker needs of the settings; seconds and counts as named there."""

    slots: int
    read_count: int
    read_ahead: int
    block_ms: int
    grace_s: float
    liveness_ttl_s: float
    beat_every_s: float
    sweep_every_s: float
    renew_every_s: float
    reclaim_every_s: float
    limits: Limits

    @classmethod
    def of(cls, settings: Settings) -> "WorkerSettings":
        """Return the worker's part of all settings."""
        own = {field.name: getattr(settings, field.name) for field in attrs.fields(cls) if field.name != "limits"}
        limits = {field.name: getattr(settings, field.name) for field in attrs.fields(Limits)}
        return cls(limits=Limits(**limits), **own)


async def run_worker(
    deliveries: Deliveries,
    *,
    settings: WorkerSettings,
    identity: Identity,
    handlers: Mapping[str, HandlerSpec],
    make_context: MakeContext,
    stop: StopRequest,
    events: EventStream,
    check_server: Callable[[], list[str]] = list,
    companions: tuple[Callable[[], Awaitable[None]], ...] = (),
    chores: tuple[Chore, ...] = (),
    clocks: Clocks | None = None,
    rng: random.Random | None = None,
    vitals: Vitals | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> ExitCode:
    """Run one worker until it is asked to stop, then drain.

    Args:
        deliveries: the broker; nothing has been called on it yet.
        settings: the worker's part of the settings.
        identity: of this process, drawn anew at its start.
        handlers: by kind.
        make_context: makes a handler's second argument; runs where the handler runs.
        stop: asked by signals, by a test, or by the worker itself.
        events: where everything that happens is told.
        check_server: run once Redis answers; returns warnings, raises ConfigurationError.
        companions: services to run beside the reader, stopped with it (the relay).
        chores: plain functions to be called now and then until the last handler has ended.
        clocks: for tests.
        rng: for jitter; for tests.
        vitals: where the worker writes down how it is, for whoever asks from outside.
        task_status: started with the worker's name once it reads.

    Returns:
        How the process should end.

    **Cancellation**: as a crash: nothing is settled or released, others take over.

    **Durability**: when it returns, every finished delivery is settled, or, where Redis could not be
    reached within the grace, still pending; everything else is back in the pool.
    """
    worker = _Worker(
        deliveries,
        settings=settings,
        identity=identity,
        handlers=handlers,
        make_context=make_context,
        stop=stop,
        events=events,
        clocks=clocks or Clocks(wall=time.time, monotonic=time.monotonic),
        rng=rng or random.Random(),
        vitals=vitals or Vitals(time.monotonic),
        chores=chores,
    )
    return await worker.run(check_server, companions, task_status)


class _Worker:
    """The services of one worker, wired once."""

    def __init__(
        self,
        deliveries: Deliveries,
        *,
        settings: WorkerSettings,
        identity: Identity,
        handlers: Mapping[str, HandlerSpec],
        make_context: MakeContext,
        stop: StopRequest,
        events: EventStream,
        clocks: Clocks,
        rng: random.Random,
        vitals: Vitals,
        chores: tuple[Chore, ...],
    ) -> None:
        self._deliveries = deliveries
        self._vitals = vitals
        self._settings = settings
        self._identity = identity
        self._kinds = tuple(sorted(handlers))
        self._stop = stop
        self._events = events
        self._is_marked_stopping = False
        self._join_limiter = trio.CapacityLimiter(1)
        self._standing = standing = Standing(settings.liveness_ttl_s, clocks.monotonic)
        self._register = Register(standing)
        self._weather = Weather(events=events, ensure_groups=deliveries.ensure_groups, rng=rng, unavailable=BrokerError)
        self._settler = Settler(
            deliveries,
            register=self._register,
            weather=self._weather,
            events=events,
            wall_clock=clocks.wall,
            on_delayed=self._on_delayed,
        )
        self._executor = Executor(
            slots=settings.slots,
            handlers=handlers,
            make_context=make_context,
            limits=settings.limits,
            register=self._register,
            settler=self._settler,
            pace=Pace(settings.read_ahead, slots=settings.slots),
            events=events,
            clocks=clocks,
            rng=rng,
            orphan_after_s=settings.grace_s,
        )
        self._reader = Reader(
            deliveries,
            executor=self._executor,
            register=self._register,
            weather=self._weather,
            events=events,
            read_count=settings.read_count,
            block_ms=settings.block_ms,
            clock=clocks.monotonic,
            is_cut_off=standing.is_cut_off,
        )
        self._promoter = Promoter(
            deliveries, weather=self._weather, events=events, on_pool=self._reader.poke, on_tick=self._tick
        )
        self._heartbeat = Heartbeat(
            deliveries,
            register=self._register,
            standing=standing,
            weather=self._weather,
            events=events,
            every_s=settings.renew_every_s,
        )
        self._liveness = Liveness(
            deliveries, pulse=self._pulse, standing=standing, weather=self._weather, every_s=settings.beat_every_s
        )
        self._reclaimer = Reclaimer(
            deliveries,
            standing=standing,
            weather=self._weather,
            events=events,
            sweep_every_s=settings.sweep_every_s,
            reclaim_every_s=settings.reclaim_every_s,
            rng=rng,
            on_moved=self._reader.poke,
        )
        self._upkeep = [Upkeep(chore, weather=self._weather) for chore in chores]
        vitals.watch(self._reader, executor=self._executor, held=lambda: len(self._register), slots=settings.slots)

    def _on_delayed(self, seconds: float) -> None:
        self._promoter.wake_in(seconds)

    def _pulse(self) -> Pulse:
        return Pulse(
            slots=self._settings.slots,
            held=len(self._register),
            orphaned=self._executor.orphaned,
            stopping=self._is_marked_stopping,
        )

    def _tick(self) -> None:
        """Twice a second: give back what turned out too slow to be read ahead, and count orphans."""
        self._executor.release_surplus()
        if self._executor.orphaned * 2 >= self._settings.slots and not self._stop.is_asked:
            self._stop.ask("half the slots hold threads that do not end", ExitCode.ORPHANED)

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
            if len(errors) == 1 and not isinstance(errors[0], NameTaken):
                # The caller should see what happened, not in which nursery.
                raise errors[0] from None
            if not all(isinstance(error, NameTaken) for error in errors):
                raise
            self._register.lose_everything()
            self._events.emit(Warned(message=f"{errors[0]}; this one owns nothing any more and stops"))
            return ExitCode.FAILED
        return self._stop.exit_code

    async def _serve(
        self, name: str, companions: tuple[Callable[[], Awaitable[None]], ...], task_status: trio.TaskStatus[str]
    ) -> None:
        async with trio.open_nursery() as outer:
            await outer.start(keep_hearing)
            await outer.start(self._liveness.run)
            await outer.start(self._settler.run)
            await outer.start(self._heartbeat.run)
            for upkeep in self._upkeep:
                await outer.start(upkeep.run)
            await outer.start(self._vitals.run)
            async with trio.open_nursery() as middle:
                await middle.start(self._executor.run)
                await self._read_until_stopped(name, companions, task_status)
                await self._drain()
                # Before the cancellation: what does not heed it must not keep us from leaving in order.
                await self._leave(name)
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
            name = await self._call("join", self._take_name)
            nursery.cancel_scope.cancel()
        return name

    def _take_name(self) -> str:
        sent_at = self._standing.now()
        name = self._deliveries.join(self._identity, self._pulse())
        # The first beat: from now on, hearing nothing of us for a TTL means that we have lapsed.
        self._standing.beat_succeeded(sent_at)
        return name

    async def _call[T](self, name: str, function: Callable[..., T], *args: Any) -> T:
        return await self._weather.call(name, function, *args, limiter=self._join_limiter, abandon=True)

    async def _read_until_stopped(
        self, name: str, companions: tuple[Callable[[], Awaitable[None]], ...], task_status: trio.TaskStatus[str]
    ) -> None:
        async with trio.open_nursery() as inner:
            await inner.start(self._reader.run)
            await inner.start(self._promoter.run)
            await inner.start(self._reclaimer.run)
            for companion in companions:
                inner.start_soon(companion)
            self._events.emit(
                WorkerStarted(
                    worker=name,
                    incarnation=self._identity.incarnation,
                    slots=self._settings.slots,
                    gil=is_gil_enabled(),
                    kinds=self._kinds,
                )
            )
            task_status.started(name)
            await self._stop.wait()
            self._is_marked_stopping = True
            self._vitals.stopping()
            self._liveness.beat_now()
            self._events.emit(
                WorkerStopping(
                    worker=name, why=self._stop.why, held=len(self._register), grace_s=self._settings.grace_s
                )
            )
            self._reader.stop()
            with trio.move_on_after(END_READ_S):
                await self._reader.wait_ended()
            inner.cancel_scope.cancel()

    async def _drain(self) -> None:
        """Finish what runs, release what cannot finish in time."""
        deadline = self._stop.asked_at + self._settings.grace_s - RELEASE_S
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_after, self._stop.wait_hurried, nursery.cancel_scope)
            nursery.cancel_scope.deadline = deadline
            await self._executor.drain()
            nursery.cancel_scope.cancel()
        self._executor.release_running()

    async def _leave(self, name: str) -> None:
        """Write what is owed and vanish; give up when Redis does not let us."""
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            scope.deadline = self._stop.asked_at + self._settings.grace_s - MARGIN_S
            nursery.start_soon(self._hurry, scope, RELEASE_S - MARGIN_S)
            with trio.move_on_at(scope.deadline - RETIRE_S) as writing:
                nursery.start_soon(self._hurry, writing, RELEASE_S - MARGIN_S - RETIRE_S)
                await self._settler.wait_idle()
            # Outcomes are worth waiting for until the deadline; giving up the name properly is not.
            scope.deadline = min(scope.deadline, trio.current_time() + RELEASE_S - MARGIN_S)
            await self._liveness.stop()
            await self._heartbeat.stop()
            await self._call("retire", self._deliveries.retire)
            scope.cancel()
        self._events.emit(
            WorkerStopped(
                worker=name,
                released=self._executor.given_back,
                owed=self._settler.owed,
                orphaned=self._executor.orphaned,
            )
        )

    async def _hurry(self, scope: trio.CancelScope, seconds: float) -> None:
        """Once somebody asks for the second time, leave the scope that many seconds."""
        await self._stop.wait_hurried()
        scope.deadline = min(scope.deadline, trio.current_time() + seconds)


async def _cancel_after(wait: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await wait()
    scope.cancel()


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
