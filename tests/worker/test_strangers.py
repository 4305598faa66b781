"""Kinds that a worker does not know: each told once by its name, a bounded number of them, and all of them counted."""

import random
import time

import pytest
import trio

from stagedoor.broker import Pulse
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.job import parse_job
from stagedoor.core.outcome import Done, UnknownKind
from stagedoor.errors import BrokerError
from stagedoor.events import DeliverySettled, EventStream, JobsHandedBack, KindUnknown
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.weather import Weather
from stagedoor.worker.held import Register
from stagedoor.worker.settler import Settler
from stagedoor.worker.standing import Standing
from stagedoor.worker.strangers import FORGET_S, LAST_COUNT_S, MOST_COUNTED, MOST_NAMED, Strangers
from tests.support.recorder import Recorder
from tests.worker.support import identity, job_fields


class Door:
    """Strangers, and a clock of the test's own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.recorder = Recorder()
        self.strangers = Strangers(EventStream(self.recorder), clock=lambda: self.now)

    def note(self, kind: str, *, after_s: float = 0.0) -> None:
        self.now += after_s
        self.strangers.note(
            DeliverySettled(outcome="unknown", kind=kind, entry_id="5-0", order_id=7, deliveries=1, hops=1)
        )

    @property
    def named(self) -> list[str]:
        return [event.kind for event in self.recorder.of(KindUnknown)]

    @property
    def counts(self) -> list[JobsHandedBack]:
        return self.recorder.of(JobsHandedBack)


@pytest.fixture
def door() -> Door:
    return Door()


def test_a_kind_is_told_once_with_its_first_job(door: Door) -> None:
    for _ in range(100):
        door.note("thank_yu")
    assert door.named == ["thank_yu"]
    [event] = door.recorder.of(KindUnknown)
    assert (event.entry_id, event.order_id, event.severity) == ("5-0", 7, "warning")


def test_of_ten_thousand_kinds_ten_are_named_and_all_are_counted(door: Door) -> None:
    """For a whole day, each every five seconds: some thirty lines."""
    for _turn in range(3):
        for number in range(10_000):
            door.note(f"kind_{number}", after_s=0.001)
        door.now += 60
    assert door.named == [f"kind_{number}" for number in range(MOST_NAMED)]
    first = door.counts[0]
    assert (first.kinds, first.or_more, first.within_s) == (MOST_COUNTED, True, 70)
    assert first.count == 10_001


def test_counts_become_rarer_up_to_one_an_hour(door: Door) -> None:
    for _ in range(24 * 720):
        door.note("k", after_s=5)
    assert door.named == ["k"]
    waits = [event.within_s for event in door.counts]
    assert waits[:3] == [60, 120, 240]
    assert max(waits) == LAST_COUNT_S
    assert len(waits) < 35
    assert (door.counts[0].kinds, door.counts[0].count, door.counts[0].or_more) == (1, 13, False)


def test_a_kind_that_comes_again_after_a_long_time_is_news_again(door: Door) -> None:
    door.note("k")
    door.note("k", after_s=FORGET_S)
    assert door.named == ["k"]
    door.note("k", after_s=FORGET_S + 1)
    assert door.named == ["k", "k"]
    assert door.counts[-1].within_s <= FORGET_S, "nothing is counted for the time in which nothing came"


def test_kinds_that_come_no_more_make_room_for_others(door: Door) -> None:
    for number in range(MOST_NAMED):
        door.note(f"old_{number}")
    door.note("late")
    assert "late" not in door.named
    for _ in range(3):
        door.note("old_0", after_s=FORGET_S * 0.5)
    door.note("late")
    assert door.named[-1] == "late"
    assert door.named.count("old_0") == 1


async def test_the_settler_tells_of_hand_backs_and_of_nothing_else(broker: FakeBroker, recorder: Recorder) -> None:
    """The one line of each delivery is there all the same, for who debugs."""
    deliveries = FakeDeliveries(broker, settings=DeliverySettings(wanted_name="w"))
    deliveries.ensure_groups()
    deliveries.join(identity(), Pulse(slots=8))
    register, events = Register(Standing(10, time.monotonic)), EventStream(recorder)
    weather = Weather(
        events=events, rng=random.Random(1), ensure_groups=deliveries.ensure_groups, unavailable=BrokerError
    )
    settler = Settler(deliveries, register=register, weather=weather, events=events, wall_clock=time.time)
    for kind in ("strange", "strange", "known"):
        broker.add(job_fields(kind=kind))
    async with trio.open_nursery() as nursery:
        await nursery.start(settler.run)
        for one in deliveries.read(3).claimed:
            held = register.add(one)
            assert held is not None
            held.job = parse_job(one.entry)
            settler.submit(held, Done() if held.job.kind == "known" else UnknownKind(1.0, 1))
        await settler.wait_idle()
        nursery.cancel_scope.cancel()
    assert [event.kind for event in recorder.of(KindUnknown)] == ["strange"]
    assert [(event.kind, event.severity) for event in recorder.of(DeliverySettled)] == [
        ("strange", "debug"), ("strange", "debug"), ("known", "info"),
    ]  # fmt: skip
