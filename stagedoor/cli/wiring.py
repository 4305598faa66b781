"""Wiring: the parts of a worker and of a relay, put together from the settings.

What can be wrong with the set-up is tried here, before anything is claimed:
plugins are loaded, the order book is opened, the tickets folder is written to.
Redis alone may be away: that is weather, and the worker waits for it.
"""

import contextlib
import functools
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

import attrs
import trio

from stagedoor.broker.binding import Binding, ServesAnotherBook
from stagedoor.broker.connection import Link, masked
from stagedoor.broker.inspection import Inspection
from stagedoor.broker.losses import Losses
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries, RedisPublishing
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.cli.context import Shop
from stagedoor.cli.flow_wiring import FlowParts, call_settings, flow_parts
from stagedoor.cli.logs import Logs
from stagedoor.cli.plugins import Plugins, load_plugins
from stagedoor.cli.process import ServiceProcess, name_of
from stagedoor.core.keys import Keys
from stagedoor.errors import ConfigurationError
from stagedoor.events import EventStream, RelayStopped, Warned
from stagedoor.flows.engine import OnPass
from stagedoor.orders import OrderBook, Outbox, open_engine
from stagedoor.orders.engine import Database, create_schema
from stagedoor.relay import Relay
from stagedoor.rendering.pool import RenderPool
from stagedoor.settings import Settings
from stagedoor.weather import Outages, Weather
from stagedoor.worker import ExitCode, Given, StopRequest, WorkerSettings, heeding, run_worker
from stagedoor.worker.identity import current_identity, is_provably_gone
from stagedoor.worker.lookout import Lookout
from stagedoor.worker.upkeep import Chore
from stagedoor.worker.vitals import Vitals
from stagedoor.worker.wakeups import keep_hearing

ORDER_THREADS = 8
"""Threads in which the order book works for async handlers; plain ones bring their own."""


@attrs.frozen(kw_only=True)
class Equipment:
    """What a worker works with, opened and tried."""

    settings: Settings
    plugins: Plugins
    book: OrderBook
    link: Link
    events: EventStream
    logs: Logs


@contextlib.contextmanager
def equipped(
    settings: Settings, logs: Logs, *, with_relay: bool = False, gil_culprits: Sequence[str] = ()
) -> Iterator[Equipment]:
    """Open what a worker needs, and close it afterwards.

    Raises:
        ConfigurationError: everything that is wrong with the plugins, the order book, the
            tickets folder and the addresses, at once.
    """
    problems: list[str] = []
    with contextlib.ExitStack() as stack:
        link = _tried(problems, lambda: stack.enter_context(open_link(settings)))
        book = _tried(
            problems,
            lambda: stack.enter_context(OrderBook.open(settings.orders_url, tickets_dir=settings.tickets_dir)),
        )
        plugins = _tried(
            problems,
            lambda: load_plugins(settings.plugins, ticket_renderer=settings.ticket_renderer, gil_culprits=gil_culprits),
        )
        if with_relay and book is not None:
            _tried(problems, functools.partial(book.outbox.publish_in, settings.namespace))
        if problems or link is None or book is None or plugins is None:
            raise ConfigurationError(problems)
        events = EventStream()
        logs.listen(events)
        yield Equipment(settings=settings, plugins=plugins, book=book, link=link, events=events, logs=logs)


def _tried[T](problems: list[str], function: Callable[[], T]) -> T | None:
    try:
        return function()
    except ConfigurationError as error:
        problems += error.problems
        return None


@contextlib.contextmanager
def open_link(settings: Settings) -> Iterator[Link]:
    """Make the connections to Redis; none is connected before it is used."""
    link = Link(settings.redis_url, block_ms=settings.block_ms, namespace=settings.namespace)
    try:
        yield link
    finally:
        link.close()


@contextlib.contextmanager
def open_outbox(url: str, namespace: str, *, is_moving: bool = False) -> Iterator[Outbox]:
    """Open an order book's outbox alone, to be published in this namespace: a relay needs no tickets folder.

    Args:
        url: the order book's.
        namespace: the stream's.
        is_moving: whether the book leaves the namespace that it was published in.

    Raises:
        ConfigurationError: the address, its driver or the database will not do, or the book is
            published in another namespace.
    """
    database = Database(open_engine(url))
    try:
        outbox = Outbox(database, book_id=create_schema(database), clock=time.time)
        outbox.publish_in(namespace, is_moving=is_moving)
        yield outbox
    finally:
        database.close()


# -- a worker ---------------------------------------------------------------------


async def serve_worker(equipment: Equipment, process: ServiceProcess, *, with_relay: bool = False) -> ExitCode:
    """Run a worker until a signal ends it.

    Raises:
        ConfigurationError: the server is none that we can work with.
    """
    stop = StopRequest()
    settings, link, events = equipment.settings, equipment.link, equipment.events
    deliveries = _deliveries(settings, link)
    binding = Binding(link, Keys(settings.namespace), equipment.book.outbox.book_id())
    watch_book = _BookWatch(binding=binding, stop=stop, events=events)
    for note in equipment.plugins.notes:
        events.emit(Warned(message=note))
    # One for the worker and its companions: an outage of Redis is told once.
    outages = Outages(events)
    code = ExitCode.FAILED
    async with heeding(process, stop, settings.grace_s, on_other=functools.partial(_tell_of_other, events)):
        try:
            with watched(equipment) as watch:
                flows = _flows(equipment, deliveries, watch, stop)
                code = await run_worker(
                    Given(
                        deliveries=deliveries,
                        settings=WorkerSettings.of(settings),
                        identity=current_identity(),
                        handlers={**equipment.plugins.handlers, **flows.handlers},
                        make_context=flows.make_context,
                        stop=stop,
                        events=events,
                        chores=(*flows.chores, Chore(name="book", every_s=settings.beat_every_s, once=watch_book.look)),
                        vitals=watch.vitals,
                        outages=outages,
                    ),
                    check_server=functools.partial(_check, link, binding),
                    companions=tuple(_companions(equipment, outages, with_relay=with_relay)),
                )
        finally:
            deliveries.close()
    return code


def _check(link: Link, binding: Binding) -> list[str]:
    """Make sure that the server will do, and that its namespace serves our order book; returns warnings."""
    warnings = link.check_server()
    binding.bind()
    return warnings


@attrs.frozen(kw_only=True)
class _BookWatch:
    """Stops a worker whose namespace serves another order book by now, before it works for that."""

    binding: Binding
    stop: StopRequest
    events: EventStream

    def look(self) -> None:
        """Look once; in a thread."""
        try:
            self.binding.bind()
        except ServesAnotherBook as error:
            if not self.stop.is_asked:
                self.events.emit(Warned(message=str(error)))
                trio.from_thread.run_sync(self.stop.ask, "the namespace serves another order book", ExitCode.FAILED)


def _deliveries(settings: Settings, link: Link) -> RedisDeliveries:
    return RedisDeliveries(
        link,
        Keys(settings.namespace),
        settings=DeliverySettings(
            wanted_name=settings.name,
            dead_maxlen=settings.dead_maxlen,
            liveness_ttl_ms=round(settings.liveness_ttl_s * 1000),
            reclaim_idle_ms=round(settings.reclaim_idle_s * 1000),
        ),
        is_process_dead=is_provably_gone,
    )


def _companions(equipment: Equipment, outages: Outages, *, with_relay: bool) -> Iterator[Callable[[], Awaitable[None]]]:
    settings, link, events = equipment.settings, equipment.link, equipment.events
    losses = Losses(link, Keys(settings.namespace), dead_maxlen=settings.dead_maxlen)
    # Thrice as often as the pending lists are walked: the counters soon lose track of a loss.
    yield Lookout(losses.note, events=events, every_s=settings.reclaim_every_s / 3, rng=random.Random()).run
    if with_relay:
        yield make_relay(equipment.book.outbox, link, settings=settings, events=events, outages=outages).run


def _flows(equipment: Equipment, deliveries: RedisDeliveries, watch: "Watch", stop: StopRequest) -> FlowParts:
    settings, link = equipment.settings, equipment.link
    return flow_parts(
        equipment.plugins.flows,
        RedisCalls(link, Keys(settings.namespace), settings=call_settings(settings), owner=deliveries),
        settings=settings,
        make_context=_shop(equipment, watch.rendered).make_context,
        on_pass=watch.passed,
        is_stopping=lambda: stop.is_asked,
    )


@attrs.frozen(kw_only=True)
class Watch:
    """What a worker is watched by; *rendered* is told of each render, *passed* of each pass of a flow's call."""

    vitals: Vitals
    rendered: Callable[[str, float], None] = lambda _name, _seconds: None
    passed: OnPass = lambda _flow, _ended, _seconds, _outcomes: None


@contextlib.contextmanager
def watched(equipment: Equipment) -> Iterator[Watch]:
    """Serve metrics and probes where a port is set for them.

    Raises:
        ConfigurationError: the port cannot be had.
    """
    settings = equipment.settings
    vitals = Vitals(time.monotonic)
    if settings.metrics_port is None:
        yield Watch(vitals=vitals)
        return
    from stagedoor.worker.health import LOOK_S, Probes, serving  # noqa: PLC0415 - most workers need none of it
    from stagedoor.worker.metrics import Metrics, Remembered  # noqa: PLC0415 - as above

    keys = Keys(settings.namespace)
    metrics = Metrics(
        kinds=[*equipment.plugins.handlers, *equipment.plugins.flows],
        renderers=[item.name for item in equipment.plugins.registry.installed],
        vitals=vitals,
        look=Inspection(equipment.link, keys).look_at_queues,
        clock=time.monotonic,
    )
    for subscriber in (vitals.take, metrics.take):
        equipment.events.subscribe(subscriber)
    hasty = Inspection(equipment.link, keys, is_hasty=True)
    waiting = Remembered(hasty.look_for_waiting, LOOK_S, time.monotonic)
    probes = Probes(metrics.registry, vitals=vitals, waiting=waiting, block_s=settings.block_ms / 1000)
    with serving(settings.metrics_port, probes.answer):
        yield Watch(vitals=vitals, rendered=metrics.rendered, passed=metrics.passed)


def _shop(equipment: Equipment, rendered: Callable[[str, float], None]) -> Shop:
    registry, slots = equipment.plugins.registry, equipment.settings.slots
    return Shop(
        orders=equipment.book,
        pool=RenderPool(
            registry,
            slots=slots,
            on_rendered=rendered,
            refuse_incomplete=equipment.settings.missing_glyphs == "refuse",
        ),
        ticket_renderer=equipment.settings.ticket_renderer,
        log=equipment.logs.log,
        threads=trio.CapacityLimiter(ORDER_THREADS),
    )


def _tell_of_other(events: EventStream, number: int) -> None:
    events.emit(Warned(message=f"{name_of(number)} has come and means nothing here"))


# -- a relay ------------------------------------------------------------------------


def make_relay(
    outbox: Outbox, link: Link, *, settings: Settings, events: EventStream, outages: Outages | None = None
) -> Relay:
    """Return a relay between this outbox and this Redis."""
    publishing = RedisPublishing(link, Keys(settings.namespace), stream_maxlen=settings.stream_maxlen)
    every_s = settings.relay_every_ms / 1000
    return Relay(outbox, publishing, events=events, namespace=settings.namespace, every_s=every_s, outages=outages)


async def serve_relay(
    outbox: Outbox,
    link: Link,
    process: ServiceProcess,
    *,
    settings: Settings,
    events: EventStream,
    is_moving: bool = False,
) -> None:
    """Run a relay alone until a signal ends it; *is_moving* lets the namespace serve this order book from now on.

    Raises:
        ConfigurationError: the server is none that we can work with, or the namespace serves another order book.
    """
    stop = StopRequest()
    relay = make_relay(outbox, link, settings=settings, events=events)
    heeded = heeding(process, stop, RELAY_GRACE_S, on_other=functools.partial(_tell_of_other, events))
    async with heeded, trio.open_nursery() as nursery:
        nursery.start_soon(_stop_when_asked, stop, nursery.cancel_scope)
        nursery.start_soon(keep_hearing)
        await check_server(link, events)
        binding = Binding(link, Keys(settings.namespace), outbox.book_id())
        if await _bound(binding, events, is_moving=is_moving):
            # Workers of the book before look at each beat: nothing of ours comes before they have gone.
            await trio.sleep(2 * settings.beat_every_s)
        await relay.run()
    events.emit(RelayStopped(why=stop.why))


RELAY_GRACE_S = 5.0
"""A relay leaves at once; this ends the process if that should fail."""


async def _stop_when_asked(stop: StopRequest, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


async def _bound(binding: Binding, events: EventStream, *, is_moving: bool) -> bool:
    """Bind or move; returns whether the namespace served another order book before."""
    weather, limiter = Weather(events=events, rng=random.Random()), trio.CapacityLimiter(1)
    if is_moving:
        return await weather.call("book", binding.move, limiter=limiter, abandon=True)
    await weather.call("book", binding.bind, limiter=limiter, abandon=True)
    return False


async def check_server(link: Link, events: EventStream) -> None:
    """Wait until Redis answers, and make sure that we can work with it; warnings become events."""
    weather = Weather(events=events, rng=random.Random())
    limiter = trio.CapacityLimiter(1)
    for warning in await weather.call("info", link.check_server, limiter=limiter, abandon=True):
        events.emit(Warned(message=warning))


def make_logs(settings: Settings, *, level: str) -> Logs:
    """Return the logs of this process, on stderr."""
    return Logs(settings.log_format, level=level, redis_url=masked(settings.redis_url))
