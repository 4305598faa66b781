"""What is renewed, and what a renewal that was refused means."""

import random
import time
from collections.abc import Callable, Sequence

import pytest
import trio
from trio.testing import MockClock

from stagedoor.broker import Pulse, Renewal
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.tenure import Tenure
from stagedoor.errors import BrokerUnavailable
from stagedoor.events import EntryTrimmed, EventStream, TenureLost
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.weather import Weather
from stagedoor.worker.heartbeat import MOST_PER_CALL, Heartbeat
from stagedoor.worker.held import HeldDelivery, Register
from stagedoor.worker.standing import Standing
from tests.support.recorder import Recorder
from tests.worker.support import identity, job_fields, trust

pytestmark = pytest.mark.usefixtures("inline")


class Counted(FakeDeliveries):
    """Counts renewals; *on_renew* runs during each, after the broker has answered."""

    sizes: list[int]
    on_renew: Callable[[], None]

    def renew(self, tenures: Sequence[Tenure]) -> tuple[Renewal, ...]:
        self.sizes.append(len(tenures))
        answers = super().renew(tenures)
        self.on_renew()
        return answers


class Ward:
    def __init__(self, broker: FakeBroker, recorder: Recorder, *, incarnation: str = "i1") -> None:
        self.broker = broker
        self.deliveries = Counted(broker, settings=DeliverySettings(wanted_name="w"))
        self.deliveries.sizes, self.deliveries.on_renew = [], lambda: None
        self.deliveries.ensure_groups()
        self.deliveries.join(identity(incarnation), Pulse(slots=8))
        self.standing = Standing(10, time.monotonic)
        self.register = Register(self.standing)
        events = EventStream(recorder)
        self.heartbeat = Heartbeat(
            self.deliveries,
            register=self.register,
            standing=self.standing,
            weather=Weather(events=events, rng=random.Random(1)),
            events=events,
            every_s=10,
        )

    def hold(self, count: int = 1) -> list[HeldDelivery]:
        for number in range(count):
            self.broker.add(job_fields(order_id=number + 1))
        return [held for one in self.deliveries.read(count).claimed if (held := self.register.add(one)) is not None]

    def rob(self, held: HeldDelivery) -> None:
        """Give its entry to another worker."""
        thief = FakeDeliveries(self.broker, settings=DeliverySettings(wanted_name="thief"))
        thief.join(identity("i2"), Pulse(slots=8))
        self.deliveries.release([held.claimed])
        assert len(thief.read(1).claimed) == 1


@pytest.fixture
def ward(broker: FakeBroker, recorder: Recorder) -> Ward:
    return Ward(broker, recorder)


async def test_everything_held_is_renewed_every_ten_seconds(autojump_clock: MockClock, ward: Ward) -> None:
    ward.hold(3)
    with trio.move_on_after(25):
        await ward.heartbeat.run()
    assert ward.deliveries.sizes == [3, 3]


async def test_nothing_held_costs_no_call(autojump_clock: MockClock, ward: Ward) -> None:
    with trio.move_on_after(100):
        await ward.heartbeat.run()
    assert ward.deliveries.sizes == []


async def test_much_is_renewed_in_pages(ward: Ward) -> None:
    ward.hold(MOST_PER_CALL + 7)
    await ward.heartbeat.renew_once()
    assert ward.deliveries.sizes == [MOST_PER_CALL, 7]


async def test_a_handler_is_told_once_that_its_tenure_has_lapsed(ward: Ward, recorder: Recorder) -> None:
    kept, robbed = ward.hold(2)
    ward.rob(robbed)
    await ward.heartbeat.renew_once()
    await ward.heartbeat.renew_once()
    assert (kept.lost, robbed.lost) == (False, True)
    assert [(event.entry_id, event.at) for event in recorder.of(TenureLost)] == [(robbed.tenure.entry_id, "renew")]


async def test_what_was_settled_during_the_renewal_is_not_lost(ward: Ward, recorder: Recorder) -> None:
    (held,) = ward.hold()
    ward.rob(held)
    ward.deliveries.on_renew = lambda: ward.register.remove(held)
    await ward.heartbeat.renew_once()
    assert not held.lost
    assert recorder.events == []


async def test_what_was_handed_to_us_anew_during_the_renewal_is_not_lost(ward: Ward, recorder: Recorder) -> None:
    """The answer is about the tenure that was asked about."""
    (held,) = ward.hold()
    ward.deliveries.release([held.claimed])

    def read_again() -> None:
        ward.register.add(ward.deliveries.read(1).claimed[0])

    ward.deliveries.on_renew = read_again
    await ward.heartbeat.renew_once()
    assert (held.lost, held.tenure.deliveries) == (False, 2)
    assert recorder.events == []


async def test_a_body_that_is_gone_is_told_once_and_remembered_for_the_settle(ward: Ward, recorder: Recorder) -> None:
    (held,) = ward.hold()
    ward.broker.trim()
    await ward.heartbeat.renew_once()
    await ward.heartbeat.renew_once()
    assert held.body_gone
    assert [event.entry_id for event in recorder.of(EntryTrimmed)] == [held.tenure.entry_id]


async def test_a_failed_renewal_is_repeated_and_keeps_us_from_judging_others(
    autojump_clock: MockClock, ward: Ward
) -> None:
    ward.hold()
    trust(ward.standing)
    ward.broker.fail_next("renew", BrokerUnavailable("away"))
    await ward.heartbeat.renew_once()
    assert ward.deliveries.sizes == [1, 1]
    assert not ward.standing.may_judge()


async def test_the_reply_of_another_call_is_no_answer(
    autojump_clock: MockClock, ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may send a reply twice; then every call on that connection gets the reply of the one before."""
    renew = ward.deliveries.renew
    replies = [(Renewal.RENEWED,) * 3]
    monkeypatch.setattr(ward.deliveries, "renew", lambda tenures: replies.pop() if replies else renew(tenures))
    ward.hold(2)
    await ward.heartbeat.renew_once()
    assert ward.deliveries.sizes == [2]


async def test_once_stopped_it_renews_nothing_more(autojump_clock: MockClock, ward: Ward) -> None:
    ward.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ward.heartbeat.run)
        await trio.sleep(15)
        await ward.heartbeat.stop()
        await trio.sleep(60)
    assert ward.deliveries.sizes == [1]
