"""Parts: the services of one worker, wired once; what they do together is the supervisor's."""

import random
import time
from collections.abc import Mapping

import attrs

from stagedoor.broker import Deliveries, Identity, Pulse
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.outcome import Limits
from stagedoor.errors import BrokerError
from stagedoor.events import EventStream, Warned
from stagedoor.settings import Settings
from stagedoor.weather import LONGEST_PAUSE_S, Outages, Weather
from stagedoor.worker.attempt import Attempts, Clocks, MakeContext
from stagedoor.worker.executor import Executor
from stagedoor.worker.heartbeat import Heartbeat
from stagedoor.worker.held import Register
from stagedoor.worker.liveness import Liveness
from stagedoor.worker.pace import Pace
from stagedoor.worker.promoter import Promoter
from stagedoor.worker.reader import Reader
from stagedoor.worker.reclaimer import Reclaimer
from stagedoor.worker.settler import Settler
from stagedoor.worker.standing import Standing
from stagedoor.worker.stopping import ExitCode, StopRequest
from stagedoor.worker.upkeep import Chore, Upkeep
from stagedoor.worker.vitals import Vitals


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


@attrs.frozen(kw_only=True)
class Given:
    """What a worker is made from.

    Args:
        deliveries: the broker; nothing has been called on it yet.
        settings: the worker's part of the settings.
        identity: of this process, drawn anew at its start.
        handlers: by kind.
        make_context: makes a handler's second argument; runs where the handler runs.
        stop: asked by signals, by a test, or by the worker itself.
        events: where everything that happens is told.
        chores: plain functions to be called now and then until the last handler has ended.
        clocks: for tests.
        rng: for jitter; for tests.
        vitals: where the worker writes down how it is, for whoever asks from outside.
        outages: what is told of Redis being away; shared with companions that call it, too.
    """

    deliveries: Deliveries
    settings: WorkerSettings
    identity: Identity
    handlers: Mapping[str, HandlerSpec]
    make_context: MakeContext
    stop: StopRequest
    events: EventStream
    chores: tuple[Chore, ...] = ()
    clocks: Clocks = attrs.field(factory=lambda: Clocks(wall=time.time, monotonic=time.monotonic))
    rng: random.Random = attrs.field(factory=random.Random)
    vitals: Vitals = attrs.field(factory=lambda: Vitals(time.monotonic))
    outages: Outages = attrs.field(default=attrs.Factory(lambda self: Outages(self.events), takes_self=True))


class Parts:
    """The services of one worker, each knowing those that it speaks to."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self.is_marked_stopping = False
        self.standing = Standing(given.settings.liveness_ttl_s, given.clocks.monotonic)
        self.register = Register(self.standing)
        self.weather = Weather(
            events=given.events,
            ensure_groups=given.deliveries.ensure_groups,
            regain=self._regain_name,
            rng=given.rng,
            unavailable=BrokerError,
            outages=given.outages,
            # Others judge us once they have been back for a time to live: we are back, and have beaten, long before.
            longest_pause_s=min(LONGEST_PAUSE_S, given.settings.liveness_ttl_s / 5),
        )
        self.settler = self._make_settler()
        self.executor = self._make_executor()
        self.reader = self._make_reader()
        self.promoter = self._make_promoter()
        self.heartbeat = self._make_heartbeat()
        self.liveness = self._make_liveness()
        self.reclaimer = self._make_reclaimer()
        self.upkeep = [Upkeep(chore, weather=self.weather) for chore in given.chores]
        given.vitals.watch(
            self.reader, executor=self.executor, held=lambda: len(self.register), slots=given.settings.slots
        )

    # -- what they ask of each other ----------------------------------------------------

    def pulse(self) -> Pulse:
        """Return how the worker is, for its record."""
        return Pulse(
            slots=self._given.settings.slots,
            held=len(self.register),
            orphaned=self.executor.orphaned,
            stopping=self.is_marked_stopping,
        )

    def _on_delayed(self, seconds: float) -> None:
        self.promoter.wake_in(seconds)

    def _tick(self) -> None:
        """Twice a second: give back what waits here for too long, and count orphans."""
        self.executor.release_surplus()
        self.executor.release_suspects()
        stop = self._given.stop
        if self.executor.orphaned * 2 >= self._given.settings.slots and not stop.is_asked:
            stop.ask("half the slots hold threads that do not end", ExitCode.ORPHANED)

    def take_name(self) -> str:
        """Join under a name of our own; runs in a thread."""
        sent_at = self.standing.now()
        name = self._given.deliveries.join(self._given.identity, self.pulse())
        # The first beat: from now on, hearing nothing of us for a TTL means that we have lapsed.
        self.standing.beat_succeeded(sent_at)
        return name

    def _regain_name(self) -> None:
        """Go on under a name of our own after another process was found to have ours; runs in a thread.

        What we held is owed by whoever claims it now: its handlers are told to stop, and the fence refuses
        what they write. That Redis may have forgotten us is no reason for this process to end.
        """
        given, held = self._given, self.register.everything()
        self.register.lose_everything()
        given.deliveries.ensure_groups()
        before, sent_at = given.deliveries.name, self.standing.now()
        name = given.deliveries.rejoin([attrs.evolve(one.claimed, tenure=one.tenure) for one in held])
        self.standing.beat_succeeded(sent_at)
        message = f"another process had the name {before!r}: this one goes on as {name!r}, without what it held"
        given.events.emit(Warned(message=message))

    # -- how they are made ----------------------------------------------------------------

    def _make_settler(self) -> Settler:
        return Settler(
            self._given.deliveries,
            register=self.register,
            weather=self.weather,
            events=self._given.events,
            wall_clock=self._given.clocks.wall,
            on_delayed=self._on_delayed,
        )

    def _make_executor(self) -> Executor:
        given, settings = self._given, self._given.settings
        attempts = Attempts(
            given.handlers,
            make_context=given.make_context,
            limits=settings.limits,
            events=given.events,
            clocks=given.clocks,
            rng=given.rng,
        )
        return Executor(
            slots=settings.slots,
            attempts=attempts,
            register=self.register,
            settler=self.settler,
            pace=Pace(settings.read_ahead, slots=settings.slots),
            events=given.events,
            clocks=given.clocks,
            orphan_after_s=settings.grace_s,
        )

    def _make_reader(self) -> Reader:
        return Reader(
            self._given.deliveries,
            executor=self.executor,
            register=self.register,
            weather=self.weather,
            events=self._given.events,
            read_count=self._given.settings.read_count,
            block_ms=self._given.settings.block_ms,
            clock=self._given.clocks.monotonic,
            is_cut_off=self.standing.is_cut_off,
        )

    def _make_promoter(self) -> Promoter:
        return Promoter(
            self._given.deliveries,
            weather=self.weather,
            events=self._given.events,
            on_pool=self.reader.poke,
            on_tick=self._tick,
        )

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self._given.deliveries,
            register=self.register,
            standing=self.standing,
            weather=self.weather,
            events=self._given.events,
            every_s=self._given.settings.renew_every_s,
        )

    def _make_liveness(self) -> Liveness:
        return Liveness(
            self._given.deliveries,
            pulse=self.pulse,
            standing=self.standing,
            weather=self.weather,
            every_s=self._given.settings.beat_every_s,
        )

    def _make_reclaimer(self) -> Reclaimer:
        return Reclaimer(
            self._given.deliveries,
            standing=self.standing,
            weather=self.weather,
            events=self._given.events,
            sweep_every_s=self._given.settings.sweep_every_s,
            reclaim_every_s=self._given.settings.reclaim_every_s,
            rng=self._given.rng,
            on_moved=self.reader.poke,
        )
