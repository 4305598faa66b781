"""The worker of a replay: one life after the other, each ended by a crash or by the end of the replay.

A crash is a cancellation of the whole worker: nothing is settled, released or
written, its threads get no further call through, and the next life takes the
name over from a process that is provably gone. That is what others see of a
SIGKILL, at a point that can be chosen.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, Protocol, Self

import attrs
import trio

from stagedoor.broker.connection import Link
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.job import Job
from stagedoor.core.keys import Keys
from stagedoor.events import EventStream
from stagedoor.settings import Settings
from stagedoor.worker import Given, HeldDelivery, StopRequest, WorkerSettings, run_worker
from stagedoor.worker.identity import current_identity

WORKER = "replay"
THREADS_END_S = 10.0
"""How long the threads of a life that has ended may take to meet their next call."""


class Died(BaseException):
    """The worker of this thread is dead: nothing it does counts any more."""


class Hooks(Protocol):
    """What is to happen while a job is worked on; a point is ``start``, ``render`` or ``end``."""

    def reached(self, point: str, job: Job) -> bool:
        """Take the steps of this point; return whether the worker is to die here."""
        ...


@attrs.frozen(kw_only=True)
class Parts:
    """What the worker runs: the handlers by kind, and what makes their contexts."""

    handlers: Mapping[str, HandlerSpec]
    make_context: Callable[[Job, HeldDelivery], Any]


@attrs.define(eq=False)
class Life:
    """One worker process, so to say."""

    stop: StopRequest
    scope: trio.CancelScope
    token: trio.lowlevel.TrioToken
    is_dead: bool = False
    is_over: threading.Event = attrs.Factory(threading.Event)

    def check(self) -> None:
        """Return if this life goes on; called in a handler's thread.

        Raises:
            Died: it has ended, and nothing that the thread says is heard any more.
        """
        if self.is_dead:
            self.is_over.wait()
            raise Died

    def die(self) -> NoReturn:
        """End this life from a handler's thread; never returns."""
        self.is_dead = True
        with contextlib.suppress(trio.RunFinishedError):
            self.token.run_sync_soon(self.scope.cancel)
        self.check()
        raise AssertionError("a dead life's check raises")

    async def die_async(self) -> NoReturn:
        """End this life from a handler's task; never returns."""
        self.is_dead = True
        self.scope.cancel()
        await trio.sleep_forever()


class Lives:
    """Runs worker lives in a thread of its own; a context manager that stops the last one."""

    def __init__(self, link: Link, keys: Keys, *, parts: Parts, hooks: Hooks, settings: Settings) -> None:
        self._link = link
        self._keys = keys
        self._parts = parts
        self._hooks = hooks
        self._settings = settings
        self._buried: set[str] = set()
        self._life: Life | None = None
        self._is_stopping = False
        self._lock = threading.Lock()
        self._inside = 0
        self._left = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="replay-worker", daemon=True)
        self.deaths = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_stopping = True
            life = self._life
        if life is not None:
            with contextlib.suppress(trio.RunFinishedError):
                life.token.run_sync_soon(life.stop.ask, "the replay has ended")
        self._thread.join()

    # -- in the worker's thread -------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                trio.run(self._live)
                self._bury()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the replay has to report it
            self.error = error

    async def _live(self) -> None:
        identity = current_identity()
        life = Life(StopRequest(), trio.CancelScope(), trio.lowlevel.current_trio_token())
        with self._lock:
            self._life = life
            if self._is_stopping:
                return
        with contextlib.closing(self._deliveries()) as deliveries, life.scope:
            await run_worker(
                Given(
                    deliveries=deliveries,
                    settings=WorkerSettings.of(self._settings),
                    identity=identity,
                    handlers={kind: self._watched(spec, life) for kind, spec in self._parts.handlers.items()},
                    make_context=lambda job, held: self._context(job, held, life),
                    stop=life.stop,
                    events=EventStream(),
                ),
            )
        self._buried.add(identity.incarnation)

    def _deliveries(self) -> RedisDeliveries:
        return RedisDeliveries(
            self._link,
            self._keys,
            settings=DeliverySettings(wanted_name=WORKER),
            is_process_dead=lambda record: record.get("incarnation") in self._buried,
        )

    def _bury(self) -> None:
        """Wait until the threads of the life that has ended are out of the handlers."""
        life, self._life = self._life, None
        if life is None or not life.is_dead:
            return
        self.deaths += 1
        life.is_over.set()
        with self._left:
            self._left.wait_for(lambda: self._inside == 0, THREADS_END_S)

    # -- in the handlers' threads -------------------------------------------------

    def _context(self, job: Job, held: HeldDelivery, life: Life) -> Any:
        inner = self._parts.make_context(job, held)
        is_async = held.spec is not None and held.spec.is_async
        kind = _AsyncContext if is_async else _Context
        return kind(inner, _Point(self._hooks, job, life))

    def _watched(self, spec: HandlerSpec, life: Life) -> HandlerSpec:
        """Return the handler with its first and last hook around it."""

        def run(job: Job, ctx: Any) -> Any:
            here = _Point(self._hooks, job, life)
            with self._counted():
                here.meet("start")
                result = spec.function(job, ctx)
                here.meet("end")
                return result

        async def run_async(job: Job, ctx: Any) -> Any:
            here = _Point(self._hooks, job, life)
            await here.meet_async("start")
            result = await spec.function(job, ctx)
            await here.meet_async("end")
            return result

        return attrs.evolve(spec, function=run_async if spec.is_async else run)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._left:
            self._inside += 1
        try:
            yield
        finally:
            with self._left:
                self._inside -= 1
                self._left.notify_all()


@attrs.frozen
class _Point:
    """Where a job is in its handler, and whose life that is."""

    hooks: Hooks
    job: Job
    life: Life

    def meet(self, name: str) -> None:
        self.life.check()
        if self.hooks.reached(name, self.job):
            self.life.die()

    async def meet_async(self, name: str) -> None:
        # The steps speak to SQL and Redis: not on the trio thread.
        if await trio.to_thread.run_sync(self.hooks.reached, name, self.job, limiter=trio.CapacityLimiter(1)):
            await self.life.die_async()


class _Context:
    """A plain handler's context that ends with its life, and has a hook after its first document."""

    def __init__(self, inner: Any, point: _Point) -> None:
        self._inner = inner
        self._point = point
        self._has_rendered = False

    def __getattr__(self, name: str) -> Any:
        self._point.life.check()
        return getattr(self._inner, name)

    @property
    def orders(self) -> Any:
        return _UntilDeath(self._inner.orders, self._point.life)

    def render(self, *args: Any, **kwargs: Any) -> Any:
        self._point.life.check()
        rendered = self._inner.render(*args, **kwargs)
        if not self._has_rendered:
            self._has_rendered = True
            self._point.meet("render")
        return rendered


class _AsyncContext:
    """The same for an ``async def`` handler, whom a cancellation ends."""

    def __init__(self, inner: Any, point: _Point) -> None:
        self._inner = inner
        self._point = point
        self._has_rendered = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def render(self, *args: Any, **kwargs: Any) -> Any:
        rendered = await self._inner.render(*args, **kwargs)
        if not self._has_rendered:
            self._has_rendered = True
            await self._point.meet_async("render")
        return rendered


class _UntilDeath:
    """The order book as long as its worker lives: no call of a dead one goes through."""

    def __init__(self, book: Any, life: Life) -> None:
        self._book = book
        self._life = life

    def __getattr__(self, name: str) -> Any:
        self._life.check()
        return getattr(self._book, name)
