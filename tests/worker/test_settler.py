"""How outcomes are written: in batches, in order, once, and whatever Redis answers."""

import random
import time
from collections.abc import AsyncIterator, Callable, Sequence

import attrs
import pytest
import trio
from trio.testing import MockClock

from stagedoor.broker import Claimed, Pulse, Settlement
from stagedoor.broker.deliveries import Answer, Answers
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.job import parse_job
from stagedoor.core.outcome import Dead, Done, Outcome, Reason, Release, RetryLater, Settled
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerError, BrokerUnavailable, GroupMissing
from stagedoor.events import DeliverySettled, EntriesReturned, EventStream, SettleRefused, TenureLost
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.weather import Weather
from stagedoor.worker.held import HeldDelivery, Register
from stagedoor.worker.settler import MOST_BYTES, MOST_PER_BATCH, Settler
from stagedoor.worker.standing import Standing
from tests.support.recorder import Recorder
from tests.worker.support import identity, job_fields

pytestmark = pytest.mark.usefixtures("inline")

POISONED = "poisoned"


class Ledger(FakeDeliveries):
    """Notes every call; a settlement of an entry whose trace says so makes Redis refuse the whole batch."""

    def __init__(self, broker: FakeBroker, *, name: str = "w") -> None:
        super().__init__(broker, settings=DeliverySettings(wanted_name=name))
        self.batches: list[tuple[int, tuple[str, ...]]] = []
        self.released: list[int] = []
        self.before: Callable[[], None] = lambda: None
        self.after_release: Callable[[int], None] = lambda _count: None
        self.is_healed = False

    def settle(self, batch: int, settlements: Sequence[Settlement]) -> Answers:
        self.batches.append((batch, tuple(one.tenure.entry_id for one in settlements)))
        self.before()
        if not self.is_healed and any((b"trace", POISONED.encode()) in one.fields for one in settlements):
            raise BrokerError("ERR this script cannot do it")
        return super().settle(batch, settlements)

    def release(self, claimed: Sequence[Claimed]) -> int:
        self.released.append(len(claimed))
        count = super().release(claimed)
        self.after_release(count)
        return count


class Office:
    """A settler at work."""

    def __init__(self, broker: FakeBroker, recorder: Recorder) -> None:
        self.broker = broker
        self.deliveries = Ledger(broker)
        self.deliveries.ensure_groups()
        self.deliveries.join(identity(), Pulse(slots=8))
        self.register = Register(Standing(10, time.monotonic))
        self.delayed: list[float] = []
        events = EventStream(recorder)
        self.settler = Settler(
            self.deliveries,
            register=self.register,
            weather=Weather(
                events=events,
                rng=random.Random(1),
                ensure_groups=self.deliveries.ensure_groups,
                unavailable=BrokerError,
            ),
            events=events,
            wall_clock=time.time,
            on_delayed=self.delayed.append,
        )

    def hold(self, count: int = 1, *, stream: Stream = Stream.JOBS, **more: str) -> list[HeldDelivery]:
        for number in range(count):
            self.broker.add(job_fields(order_id=number + 1, **more), stream=stream)
        taken = []
        for one in self.deliveries.read(count).claimed:
            held = self.register.add(one)
            assert held is not None
            held.job = parse_job(one.entry)
            taken.append(held)
        return taken

    def owe(self, held: Sequence[HeldDelivery], outcome: Outcome) -> None:
        for one in held:
            self.settler.submit(one, outcome)
        self.settler.wake()

    @property
    def left(self) -> int:
        """Entries that are still in the streams."""
        return sum(len(stream.entries) for stream in self.broker.streams.values())


@pytest.fixture
async def office(broker: FakeBroker, recorder: Recorder) -> AsyncIterator[Office]:
    office = Office(broker, recorder)
    async with trio.open_nursery() as nursery:
        await nursery.start(office.settler.run)
        yield office
        nursery.cancel_scope.cancel()


async def test_what_is_done_is_acknowledged_and_told(office: Office, recorder: Recorder) -> None:
    (held,) = office.hold()
    office.owe([held], Done())
    await office.settler.wait_idle()
    assert (office.left, len(office.register), office.settler.owed) == (0, 0, 0)
    assert [(event.outcome, event.entry_id) for event in recorder.of(DeliverySettled)] == [
        ("done", held.tenure.entry_id)
    ]


async def test_what_ended_during_a_batch_goes_in_the_next(office: Office) -> None:
    first, *others = office.hold(4)

    def more_end() -> None:
        office.deliveries.before = lambda: None
        for held in others:
            office.settler.submit(held, Done())

    office.deliveries.before = more_end
    office.owe([first], Done())
    await office.settler.wait_idle()
    assert [(number, len(ids)) for number, ids in office.deliveries.batches] == [(1, 1), (2, 3)]


async def test_a_batch_has_at_most_500_entries(office: Office) -> None:
    office.owe(office.hold(MOST_PER_BATCH + 1), Done())
    await office.settler.wait_idle()
    assert [len(ids) for _number, ids in office.deliveries.batches] == [500, 1]


async def test_a_batch_whose_bodies_move_has_about_a_megabyte(office: Office) -> None:
    held = office.hold(40, extra="x" * 60_000)
    office.owe(held, RetryLater(1.0, 2, "later"))
    await office.settler.wait_idle()
    most = MOST_BYTES // 60_000 + 1
    assert max(len(ids) for _number, ids in office.deliveries.batches) <= most
    assert len(office.broker.delayed) == 40


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_lost_request_or_reply_is_repeated_under_its_number_and_written_once(
    autojump_clock: MockClock, office: Office, recorder: Recorder, after_effect: bool
) -> None:
    held = office.hold(3)
    office.broker.fail_next("settle", BrokerUnavailable("lost"), after_effect=after_effect)
    office.owe(held, Dead(Reason.PERMANENT, "no"))
    await office.settler.wait_idle()
    assert [number for number, _ids in office.deliveries.batches] == [1, 1]
    assert len(office.broker.dead) == 3
    assert len(recorder.of(DeliverySettled)) == 3
    assert recorder.of(TenureLost) == []


async def test_the_reply_of_another_call_is_no_answer(
    autojump_clock: MockClock, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may send a reply twice; then every call on that connection gets the reply of the one before."""
    settle = office.deliveries.settle
    replies = [Answers((Answer.ACCEPTED,) * 7)]
    monkeypatch.setattr(
        office.deliveries, "settle", lambda batch, them: replies.pop() if replies else settle(batch, them)
    )
    office.owe(office.hold(2), Done())
    await office.settler.wait_idle()
    assert (office.left, office.settler.owed) == (0, 0)


async def test_through_an_outage_outcomes_are_kept_and_written_when_it_ends(
    autojump_clock: MockClock, office: Office
) -> None:
    held = office.hold(5)
    with office.broker.outage():
        office.owe(held, Done())
        await trio.sleep(60)
        assert (office.settler.owed, office.left) == (5, 5)
    await office.settler.wait_idle()
    assert (office.settler.owed, office.left) == (0, 0)


async def test_a_lapsed_tenure_writes_nothing_and_is_told(
    office: Office, broker: FakeBroker, recorder: Recorder
) -> None:
    kept, robbed = office.hold(2, request_id="req-7", trace="00-7")
    office.deliveries.release([robbed.claimed])
    thief = Ledger(broker, name="thief")
    thief.join(identity("i2"), Pulse(slots=8))
    assert len(thief.read(1).claimed) == 1
    office.owe([kept, robbed], Dead(Reason.PERMANENT, "no"))
    await office.settler.wait_idle()
    assert len(broker.dead) == 1
    [lost] = recorder.of(TenureLost)
    assert (lost.entry_id, lost.at) == (robbed.tenure.entry_id, "settle")
    assert (lost.request_id, lost.trace, lost.order_id) == ("req-7", "00-7", 2), "it joins the request, too"
    assert len(office.register) == 0


async def test_what_is_handed_to_us_anew_while_it_is_settled_is_settled_under_the_new_tenure(
    office: Office, broker: FakeBroker, recorder: Recorder
) -> None:
    """The group was re-created: the old tenure is refused, and nobody else would ever acknowledge the new one."""
    (held,) = office.hold()

    def hand_out_again() -> None:
        office.deliveries.before = lambda: None
        office.deliveries.release([held.claimed])
        assert office.register.add(office.deliveries.read(1).claimed[0]) is None

    settlement_of_old = held.tenure
    office.deliveries.before = hand_out_again
    office.owe([held], Done())
    await office.settler.wait_idle()
    assert held.tenure.deliveries == settlement_of_old.deliveries + 1
    assert office.left == 0
    assert recorder.of(TenureLost) == []
    assert len(recorder.of(DeliverySettled)) == 1


async def test_what_redis_refuses_waits_aside_and_disturbs_nobody(
    autojump_clock: MockClock, office: Office, recorder: Recorder
) -> None:
    """Dead letters cannot be written: their key is of the wrong type."""
    office.broker.refuse_dead_letters("WRONGTYPE")
    bad = office.hold(2)
    office.owe(bad, Dead(Reason.PERMANENT, "no"))
    await office.settler.wait_idle()
    started = trio.current_time()
    for _ in range(10):
        office.owe(office.hold(), Done())
        await office.settler.wait_idle()
    assert trio.current_time() == started
    assert (office.left, office.settler.owed) == (2, 2)
    await trio.sleep(600)
    # Once each, however long it lasts; and tried ever more seldom.
    assert [event.problem for event in recorder.of(SettleRefused)] == ["WRONGTYPE", "WRONGTYPE"]
    assert len(office.deliveries.batches) < 45
    office.broker.refuse_dead_letters(None)
    await trio.sleep(31)
    assert (office.left, office.settler.owed, len(office.broker.dead)) == (0, 0, 2)


async def test_one_settlement_that_redis_cannot_take_does_not_keep_the_others_from_being_written(
    autojump_clock: MockClock, office: Office, recorder: Recorder
) -> None:
    good, bad = office.hold(3), office.hold(1, trace=POISONED)
    office.owe([*good[:1], *bad, *good[1:]], Done())
    await office.settler.wait_idle()
    assert (office.left, office.settler.owed) == (1, 1)
    assert [event.entry_id for event in recorder.of(SettleRefused)] == [bad[0].tenure.entry_id]
    numbers = [number for number, _ids in office.deliveries.batches]
    assert numbers == sorted(set(numbers))
    office.deliveries.is_healed = True
    await trio.sleep(2)
    assert office.left == 0


async def test_a_missing_group_is_made_anew_and_the_batch_repeated(
    autojump_clock: MockClock, office: Office, recorder: Recorder
) -> None:
    office.broker.fail_next("settle", GroupMissing("NOGROUP"))
    office.owe(office.hold(2), Done())
    await office.settler.wait_idle()
    assert [number for number, _ids in office.deliveries.batches] == [1, 1]
    assert office.left == 0


async def test_what_settled_itself_is_only_told(office: Office, recorder: Recorder) -> None:
    (held,) = office.hold()
    office.owe([held], Settled(ended="failed", error="E: no"))
    await office.settler.wait_idle()
    assert office.deliveries.batches == []
    told = [(event.outcome, event.ended, event.error) for event in recorder.of(DeliverySettled)]
    assert told == [("settled", "failed", "E: no")]
    assert len(office.register) == 0


async def test_what_is_released_is_told_once_for_each_reason(office: Office, recorder: Recorder) -> None:
    held = office.hold(5)
    for one in held[:2]:
        office.settler.submit(one, Release(), why="surplus")
    for one in held[2:]:
        office.settler.submit(one, Release())
    office.settler.wake()
    await office.settler.wait_idle()
    assert recorder.events == [EntriesReturned(why="surplus", count=2), EntriesReturned(why="released", count=3)]
    assert len(office.register) == 0
    assert len(office.deliveries.read(10).claimed) == 5


async def test_what_our_own_reader_takes_out_of_the_pool_at_once_is_a_delivery_of_its_own(office: Office) -> None:
    """It may come before the release has answered; taken for one that still runs, it would never be started."""
    (held,) = office.hold()
    again: list[HeldDelivery | None] = []

    def read_again(count: int) -> None:
        again.extend(office.register.add(one) for one in office.deliveries.read(8).claimed)

    office.deliveries.after_release = read_again
    office.owe([held], Release())
    await office.settler.wait_idle()
    (new,) = again
    assert new is not None
    assert office.register.everything() == [new]


async def test_a_settle_that_delays_tells_how_soon(office: Office) -> None:
    one, two = office.hold(2)
    office.settler.submit(one, RetryLater(30.0, 2, "later"))
    office.settler.submit(two, RetryLater(0.25, 2, "later"))
    office.settler.wake()
    await office.settler.wait_idle()
    assert office.delayed == [0.25]


async def test_waiting_for_it_also_starts_what_nobody_has_woken_it_for(office: Office) -> None:
    (held,) = office.hold()
    office.settler.submit(held, Done())
    await office.settler.wait_idle()
    assert office.left == 0


async def test_a_release_and_an_outcome_of_one_delivery_do_no_harm(office: Office, recorder: Recorder) -> None:
    (held,) = office.hold()
    office.settler.submit(held, Release())
    office.settler.submit(held, Done())
    office.settler.wake()
    await office.settler.wait_idle()
    assert (office.left, len(office.register)) == (0, 0)
    assert attrs.asdict(recorder.of(DeliverySettled)[0])["outcome"] == "done"
