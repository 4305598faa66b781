"""Heartbeat: renews every held entry, buffered ones too, so that a slow worker is never robbed."""

from collections.abc import Sequence

import trio

from stagedoor.broker import Deliveries, Renewal
from stagedoor.core.tenure import Tenure
from stagedoor.errors import BrokerUnavailable
from stagedoor.events import EntryTrimmed, EventStream, TenureLost
from stagedoor.weather import Weather
from stagedoor.worker.held import HeldDelivery, Register
from stagedoor.worker.standing import Standing

MOST_PER_CALL = 500


class Heartbeat:
    """Renews tenures, and tells handlers when theirs has lapsed."""

    def __init__(
        self,
        deliveries: Deliveries,
        *,
        register: Register,
        standing: Standing,
        weather: Weather,
        events: EventStream,
        every_s: float,
    ) -> None:
        self._deliveries = deliveries
        self._register = register
        self._standing = standing
        self._weather = weather
        self._events = events
        self._every_s = every_s
        self._limiter = trio.CapacityLimiter(1)
        self._stopping = trio.Event()
        self._ended = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Renew for ever.

        **Cancellation**: safe anywhere; what is no longer renewed is taken over after its idle time.
        """
        task_status.started()
        try:
            while not self._stopping.is_set():
                with trio.move_on_after(self._every_s):
                    await self._stopping.wait()
                    break
                await self.renew_once()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """End `run`; returns when no call of it is under way any more."""
        self._stopping.set()
        await self._ended.wait()

    async def renew_once(self) -> None:
        """Renew everything held."""
        everything = self._register.everything()
        for start in range(0, len(everything), MOST_PER_CALL):
            page = everything[start : start + MOST_PER_CALL]
            tenures = [held.tenure for held in page]
            answers = await self._weather.call(
                "renew",
                self._renew,
                tenures,
                limiter=self._limiter,
                on_failure=self._standing.failed,
                abandon=True,
            )
            for held, tenure, answer in zip(page, tenures, answers, strict=True):
                # What was settled meanwhile, or was handed to us anew, is not lost.
                if self._register.holds(held) and held.tenure == tenure:
                    self._note(held, answer)

    def _renew(self, tenures: Sequence[Tenure]) -> tuple[Renewal, ...]:
        answers = self._deliveries.renew(tenures)
        if len(answers) != len(tenures):
            # The reply of another call: on a connection that has lost its step nothing is known of this one.
            raise BrokerUnavailable(f"expected answers to {len(tenures)} renewals, got {len(answers)}")
        return answers

    def _note(self, held: HeldDelivery, answer: Renewal) -> None:
        if answer is Renewal.LOST and not held.lost:
            held.lost = True
            self._events.emit(
                TenureLost(kind=held.kind, entry_id=held.tenure.entry_id, deliveries=held.tenure.deliveries, at="renew")
            )
        elif answer is Renewal.GONE and not held.body_gone:
            held.body_gone = True
            self._events.emit(EntryTrimmed(stream=held.tenure.stream.name.lower(), entry_id=held.tenure.entry_id))
