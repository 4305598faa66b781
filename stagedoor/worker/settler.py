"""Settler: writes outcomes, in batches, in the order in which work ended.

What ended while the last batch was in flight goes in the next. A batch whose
reply was lost is repeated with its number until it has been answered, so no
outcome is written twice; through an outage outcomes are kept and written when
it ends.
"""

from collections import deque
from collections.abc import Callable, Sequence

import attrs
import trio

from stagedoor.broker import Answer, Deliveries, Settlement
from stagedoor.broker.deliveries import Answers
from stagedoor.core.backoff import exponential_s
from stagedoor.core.outcome import Dead, Outcome, Release, RetryLater, Settled, UnknownKind
from stagedoor.errors import BrokerError, BrokerUnavailable, GroupMissing, NameTaken
from stagedoor.events import DeliverySettled, EntriesReturned, EventStream, SettleRefused, TenureLost
from stagedoor.weather import Weather
from stagedoor.worker.held import HeldDelivery, Register
from stagedoor.worker.strangers import Strangers

MOST_PER_BATCH = 500
MOST_BYTES = 1024 * 1024
"""A script this large takes Redis some 6 ms (measured: 78,000 entries a second); others wait no longer."""
LONGEST_LABEL = 128
REFUSED_PAUSE_S = 1.0
LONGEST_REFUSED_PAUSE_S = 30.0


@attrs.define
class _Owed:
    held: HeldDelivery
    outcome: Outcome
    why: str = "released"
    refusals: int = 0


class Settler:
    """Takes outcomes from any thread and writes them."""

    def __init__(
        self,
        deliveries: Deliveries,
        *,
        register: Register,
        weather: Weather,
        events: EventStream,
        wall_clock: Callable[[], float],
        on_delayed: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._deliveries = deliveries
        self._register = register
        self._weather = weather
        self._events = events
        self._wall_clock = wall_clock
        self._on_delayed = on_delayed
        self._owed: deque[_Owed] = deque()
        self._refused: list[tuple[float, _Owed]] = []
        self._in_flight = 0
        self._batch = 0
        self._work = trio.Event()
        self._idle = trio.Condition()
        self._when_idle: dict[Callable[[], None], None] = {}
        self._limiter = trio.CapacityLimiter(1)
        self._strangers = Strangers(events, clock=trio.current_time)

    @property
    def owed(self) -> int:
        """Outcomes that are not written yet."""
        return len(self._owed) + self._in_flight + len(self._refused)

    @property
    def is_idle(self) -> bool:
        """Whether everything is written but what Redis has refused."""
        return not self._owed and not self._in_flight

    def call_when_idle(self, callback: Callable[[], None]) -> None:
        """Call this once when everything is written; asked several times, still once."""
        self._when_idle[callback] = None
        self.wake()

    def submit(self, held: HeldDelivery, outcome: Outcome, *, why: str = "released") -> None:
        """Owe an outcome; may be called from any thread, but only the trio thread's `wake` starts the writing.

        Args:
            held: the delivery.
            outcome: what becomes of it.
            why: for a `Release`, what the event of its return says.
        """
        self._owed.append(_Owed(held, outcome, why))

    def wake(self) -> None:
        """Start writing what is owed; call it in the trio thread after `submit`."""
        self._work.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write outcomes for ever.

        **Cancellation**: what is owed stays pending on Redis and is run again elsewhere.
        """
        task_status.started()
        while True:
            await self._wait_for_work()
            while self._owed:
                await self.settle_once()
            async with self._idle:
                self._idle.notify_all()
            waiting, self._when_idle = self._when_idle, {}
            for callback in waiting:
                callback()

    async def _wait_for_work(self) -> None:
        """Wait until something is owed, or the next refused outcome is to be tried again."""
        with trio.move_on_at(min((at for at, _owed in self._refused), default=float("inf"))):
            await self._work.wait()
        self._work = trio.Event()
        now = trio.current_time()
        self._owed.extend(owed for at, owed in self._refused if at <= now)
        self._refused = [(at, owed) for at, owed in self._refused if at > now]

    async def wait_idle(self) -> None:
        """Wait until everything is written but what Redis has refused."""
        self.wake()
        async with self._idle:
            while not self.is_idle:
                await self._idle.wait()

    async def settle_once(self) -> None:
        """Write one batch."""
        batch = self._take()
        self._in_flight = len(batch)
        try:
            await self._settle([owed for owed in batch if not isinstance(owed.outcome, Release | Settled)])
            await self._release([owed for owed in batch if isinstance(owed.outcome, Release)])
            for owed in batch:
                if isinstance(owed.outcome, Settled):
                    self._report(owed)
        finally:
            self._in_flight = 0

    def _take(self) -> list[_Owed]:
        batch: list[_Owed] = []
        size = 0
        while self._owed and len(batch) < MOST_PER_BATCH and size < MOST_BYTES:
            owed = self._owed.popleft()
            if isinstance(owed.outcome, RetryLater | Dead | UnknownKind | Release):
                size += owed.held.claimed.entry.size
            batch.append(owed)
        return batch

    async def _settle(self, batch: Sequence[_Owed]) -> None:
        if not batch:
            return
        self._batch += 1
        settlements = [_settlement(owed) for owed in batch]
        reply = await self._call(settlements)
        if isinstance(reply, Answers):
            self._heed(batch, settlements, reply)
        elif len(batch) == 1:
            self._set_aside(batch[0], str(reply))
        else:
            # One of them did it: alone, each answers for itself.
            for owed in batch:
                await self._settle([owed])

    async def _call(self, settlements: Sequence[Settlement]) -> Answers | BrokerError:
        """Return the answers, or the error of a Redis that serves but will not have this batch."""

        def settle(batch: int) -> Answers | BrokerError:
            try:
                reply = self._deliveries.settle(batch, settlements)
            except (BrokerUnavailable, GroupMissing, NameTaken):
                raise
            except BrokerError as error:
                return error
            if len(reply.answers) != len(settlements):
                # The reply of another call: on a connection that has lost its step nothing is known of this one.
                raise BrokerUnavailable(f"expected {len(settlements)} answers, got {len(reply.answers)}")
            return reply

        return await self._weather.call("settle", settle, self._batch, limiter=self._limiter, abandon=True)

    def _heed(self, batch: Sequence[_Owed], settlements: Sequence[Settlement], reply: Answers) -> None:
        problems = iter(reply.problems)
        for owed, settlement, answer in zip(batch, settlements, reply.answers, strict=True):
            if answer is Answer.FAILED:
                self._set_aside(owed, next(problems, ""))
            elif answer is Answer.LOST and owed.held.tenure != settlement.tenure:
                # Handed to us again while this was under way: it is owed under the new tenure.
                self._owed.append(owed)
            else:
                self._report(owed, lost=answer is Answer.LOST)
        if reply.next_due_s is not None:
            self._on_delayed(reply.next_due_s)

    def _set_aside(self, owed: _Owed, problem: str) -> None:
        """Try it again later, out of the way of the others; one event for each delivery."""
        pause_s = exponential_s(owed.refusals + 1, REFUSED_PAUSE_S, LONGEST_REFUSED_PAUSE_S)
        if owed.refusals == 0:
            self._events.emit(SettleRefused(entry_id=owed.held.tenure.entry_id, problem=problem))
        owed.refusals += 1
        self._refused.append((trio.current_time() + pause_s, owed))

    async def _release(self, batch: Sequence[_Owed]) -> None:
        for why in dict.fromkeys(owed.why for owed in batch):
            await self._release_for(why, [owed.held for owed in batch if owed.why == why])

    async def _release_for(self, why: str, batch: Sequence[HeldDelivery]) -> None:
        claimed = [attrs.evolve(held.claimed, tenure=held.tenure) for held in batch]
        # Before the call: our own reader may have them out of the pool again before we know that they were in,
        # and must not take them for deliveries that still run.
        for held in batch:
            self._register.remove(held)
        count = await self._weather.call(
            "release", self._deliveries.release, claimed, limiter=self._limiter, abandon=True
        )
        if count:
            self._events.emit(EntriesReturned(why=why, count=count))

    def _report(self, owed: _Owed, *, lost: bool = False) -> None:
        held = owed.held
        self._register.remove(held)
        if lost:
            self._events.emit(
                TenureLost(
                    kind=held.kind,
                    entry_id=held.tenure.entry_id,
                    deliveries=held.tenure.deliveries,
                    at="settle",
                    order_id=held.job.order_id if held.job else None,
                    request_id=held.job.request_id if held.job else None,
                    trace=held.job.trace if held.job else None,
                )
            )
        elif self._events.is_heard:
            line = self._canonical(held, owed.outcome)
            self._events.emit(line)
            if isinstance(owed.outcome, UnknownKind):
                self._strangers.note(line)

    def _canonical(self, held: HeldDelivery, outcome: Outcome) -> DeliverySettled:
        job = held.job
        return DeliverySettled(
            outcome=outcome.word,
            kind=held.kind,
            entry_id=held.tenure.entry_id,
            origin=job.origin if job and job.origin != held.tenure.entry_id else None,
            order_id=job.order_id if job else None,
            outbox_id=job.outbox_id if job else None,
            call_id=job.call_id if job else None,
            attempt=job.attempt if job else None,
            deliveries=held.tenure.deliveries,
            crashes=held.crashes,
            request_id=job.request_id if job else _label(held, b"request_id"),
            trace=job.trace if job else _label(held, b"trace"),
            queue_age_s=round(self._wall_clock() - job.queued_at, 3) if job else None,
            run_s=round(held.run_s, 6) if held.run_s is not None else None,
            retry_in_s=round(outcome.after_s, 3) if isinstance(outcome, RetryLater | UnknownKind) else None,
            hops=outcome.hops if isinstance(outcome, UnknownKind) else None,
            ended=outcome.ended if isinstance(outcome, Settled) else None,
            reason=outcome.reason.value if isinstance(outcome, Dead) else None,
            error=outcome.error if isinstance(outcome, RetryLater | Dead | Settled) else None,
        )


def _settlement(owed: _Owed) -> Settlement:
    held = owed.held
    return Settlement(
        tenure=held.tenure,
        fields=held.claimed.entry.fields,
        outcome=owed.outcome,
        crash_log=held.claimed.crash_log,
        body_gone=held.body_gone,
    )


def _label(held: HeldDelivery, name: bytes) -> str | None:
    """Return a label of an entry that makes no job, where it is sound: its line joins the request all the same."""
    text = (held.claimed.entry.value(name) or b"").decode("utf-8", "replace")
    return text if len(text) <= LONGEST_LABEL and text.isprintable() else None
