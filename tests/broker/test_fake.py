"""What the fake broker offers to tests beside the ports: a clock to move, and faults on demand."""

import threading

import attrs
import pytest

from stagedoor.broker.deliveries import Pulse, ReadReply
from stagedoor.broker.publishing import OutboxEntry
from stagedoor.broker.redis import DeliverySettings
from stagedoor.core.outcome import RetryLater
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerUnavailable, GroupMissing
from stagedoor.testing import FakeBroker, FakeDeliveries, FakePublishing, ManualClock
from tests.broker.harness import accepted, identity, ids, job, settled

HOUR_MS = 3_600_000


@attrs.frozen
class Bench:
    """A fake broker on a clock that stands still."""

    clock: ManualClock
    broker: FakeBroker

    def worker(self, name: str = "w") -> FakeDeliveries:
        made = FakeDeliveries(self.broker, settings=DeliverySettings(wanted_name=name))
        made.ensure_groups()
        made.join(identity(f"i-{name}"), Pulse(slots=8))
        return made


@pytest.fixture
def bench() -> Bench:
    clock = ManualClock()
    return Bench(clock, FakeBroker(clock))


def _waiting(worker: FakeDeliveries, block_ms: int) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(worker.wait(block_ms))
        except (BrokerUnavailable, GroupMissing) as error:
            results.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    while not worker.is_blocked and thread.is_alive():
        thread.join(0.001)
    return thread, results


# -- the clock -----------------------------------------------------------------------


def test_a_wait_ends_when_the_clock_is_moved_past_it_and_not_before(bench: Bench) -> None:
    worker = bench.worker()
    thread, replies = _waiting(worker, 5000)
    bench.clock.advance(4999)
    thread.join(0.02)
    assert thread.is_alive()
    bench.clock.advance(1)
    thread.join(5)
    assert replies == [ReadReply(())]


def test_a_clock_that_is_no_manual_one_is_looked_at_after_a_wake() -> None:
    now = [1000]
    broker = FakeBroker(lambda: now[0])
    worker = Bench(ManualClock(), broker).worker()
    thread, replies = _waiting(worker, 10)
    now[0] += 10
    broker.wake()
    thread.join(5)
    assert replies == [ReadReply(())]


def test_workers_lapse_and_delayed_jobs_become_due_with_the_clock(bench: Bench) -> None:
    worker, other = bench.worker("w"), bench.worker("other")
    bench.broker.add(job())
    bench.broker.add(job())
    held, retried = worker.read(2).claimed
    assert worker.settle(1, [settled(retried, RetryLater(7, 2, ""))]).next_due_s == 7
    bench.clock.advance(6999)
    assert other.promote().next_due_s == 0.001
    assert other.sweep().workers == ()
    bench.clock.advance(4000)
    assert other.promote().moved == 1
    other.beat(Pulse(slots=8))
    assert other.sweep().workers == (("w", 1, True),)
    assert ids(other.read(1)) == [held.entry.entry_id]


def test_a_record_a_crash_log_and_the_bits_of_published_rows_expire(bench: Bench) -> None:
    worker, relay = bench.worker(), FakePublishing(bench.broker)
    relay.publish("book", [OutboxEntry(1, job())])
    worker.read(1)
    bench.clock.advance(HOUR_MS)
    assert bench.broker.record("w") is None
    other = bench.worker("other")
    other.sweep()
    bench.clock.advance(47 * HOUR_MS - 1)
    assert relay.publish("book", [OutboxEntry(1, job())])[1][0].what.value == "dup"
    bench.clock.advance(1)
    assert relay.publish("book", [OutboxEntry(1, job())])[1][0].what.value == "added"
    (claimed, _) = bench.worker("late").read(2).claimed
    assert len(claimed.crash_log) == 1
    bench.worker("late").stray([])
    bench.clock.advance(7 * 24 * HOUR_MS)
    (claimed, _) = bench.worker("later").read(2).claimed
    assert claimed.crash_log == ()


def test_ids_grow_when_the_clock_stands_or_goes_back(bench: Bench) -> None:
    worker = bench.worker()
    added = [bench.broker.add(job()), bench.broker.add(job())]
    bench.clock.advance(-5000)
    added.append(bench.broker.add(job()))
    assert ids(worker.read(8)) == added
    assert len(set(added)) == 3


def test_a_consumer_is_forgotten_an_hour_after_it_was_last_heard_of(bench: Bench) -> None:
    bench.worker("gone")
    bench.clock.advance(HOUR_MS + 1)
    bench.worker("other").sweep()
    assert set(bench.broker.streams[Stream.JOBS].require_group().consumers) == {"other"}


# -- faults ------------------------------------------------------------------------------


def test_a_lost_request_did_nothing(bench: Bench) -> None:
    worker = bench.worker()
    entry_id = bench.broker.add(job())
    bench.broker.fail_next("read", BrokerUnavailable("lost"))
    with pytest.raises(BrokerUnavailable, match="lost"):
        worker.read(1)
    assert worker.stray([]) == 0
    assert ids(worker.read(1)) == [entry_id]


def test_a_lost_reply_did_everything(bench: Bench) -> None:
    worker = bench.worker()
    bench.broker.add(job())
    bench.broker.fail_next("read", BrokerUnavailable("lost"), after_effect=True)
    with pytest.raises(BrokerUnavailable, match="lost"):
        worker.read(1)
    assert worker.read(1) == ReadReply(())
    assert worker.stray([]) == 1


def test_a_settle_whose_reply_was_lost_can_be_repeated(bench: Bench) -> None:
    worker = bench.worker()
    bench.broker.add(job())
    batch = [settled(worker.read(1).claimed[0], RetryLater(3, 2, ""))]
    bench.broker.fail_next("settle", BrokerUnavailable("lost"), after_effect=True, times=2)
    for _ in range(2):
        with pytest.raises(BrokerUnavailable):
            worker.settle(1, batch)
    answers = worker.settle(1, batch)
    assert (answers.answers, answers.next_due_s, len(bench.broker.delayed)) == (accepted(1), 3, 1)


@pytest.mark.parametrize(
    "verb",
    [
        "ensure_groups",
        "join",
        "beat",
        "retire",
        "read",
        "wait",
        "stray",
        "settle",
        "renew",
        "sweep",
        "reclaim",
        "promote",
    ],
)
def test_every_verb_can_be_made_to_fail_once(bench: Bench, verb: str) -> None:
    worker = bench.worker()
    arguments: dict[str, tuple[object, ...]] = {
        "join": (identity("i-w"), Pulse(slots=8)),
        "beat": (Pulse(slots=8),),
        "read": (1,),
        "wait": (0,),
        "stray": ([],),
        "settle": (1, []),
        "renew": ([],),
    }
    bench.broker.fail_next(verb, BrokerUnavailable(verb))
    with pytest.raises(BrokerUnavailable, match=verb):
        getattr(worker, verb)(*arguments.get(verb, ()))
    getattr(worker, verb)(*arguments.get(verb, ()))


def test_the_relays_verbs_can_be_made_to_fail_too(bench: Bench) -> None:
    bench.worker()
    relay = FakePublishing(bench.broker)
    bench.broker.fail_next("publish", BrokerUnavailable("lost"), after_effect=True)
    with pytest.raises(BrokerUnavailable):
        relay.publish("book", [OutboxEntry(1, job())])
    assert relay.publish("book", [OutboxEntry(1, job())])[1][0].what.value == "dup"
    bench.broker.fail_next("confirmed_seq", BrokerUnavailable("lost"))
    with pytest.raises(BrokerUnavailable):
        relay.confirmed_seq("book")
    assert relay.confirmed_seq("book") == 1


def test_during_an_outage_every_call_fails_and_nothing_changes(bench: Bench) -> None:
    worker = bench.worker()
    entry_id = bench.broker.add(job())
    with bench.broker.outage():
        for verb in (lambda: worker.read(1), worker.sweep, worker.promote, lambda: worker.wait(5)):
            with pytest.raises(BrokerUnavailable):
                verb()
        worker.unblock()
    assert ids(worker.read(1)) == [entry_id]


def test_an_outage_ends_a_blocked_wait(bench: Bench) -> None:
    thread, replies = _waiting(bench.worker(), 5000)
    bench.broker.cut()
    thread.join(5)
    assert replies == [BrokerUnavailable]
    bench.broker.restore()


@pytest.mark.parametrize("stream", Stream)
def test_destroying_a_group_ends_a_blocked_wait(bench: Bench, stream: Stream) -> None:
    thread, replies = _waiting(bench.worker(), 5000)
    bench.broker.destroy_group(stream=stream)
    thread.join(5)
    assert replies == [GroupMissing]


def test_a_flush_ends_a_blocked_wait(bench: Bench) -> None:
    thread, replies = _waiting(bench.worker(), 5000)
    bench.broker.flush()
    thread.join(5)
    assert replies == [GroupMissing]


def test_fields_may_be_given_as_text(bench: Bench) -> None:
    worker = bench.worker()
    bench.broker.add({"kind": "print", "note": "ü"})
    assert worker.read(1).claimed[0].entry.fields == ((b"kind", b"print"), (b"note", "ü".encode()))


def test_trimming_without_ids_deletes_every_body(bench: Bench) -> None:
    worker = bench.worker()
    bench.broker.add(job())
    bench.broker.add(job())
    worker.read(1)
    bench.broker.trim()
    assert worker.read(8) == ReadReply(())
    worker.stray([])
    assert len(worker.reclaim().trimmed) == 0
    bench.clock.advance(60_000)
    assert len(worker.reclaim().trimmed) == 1


def test_the_dead_letters_are_bounded(bench: Bench) -> None:
    worker = FakeDeliveries(bench.broker, settings=DeliverySettings(wanted_name="w", dead_maxlen=3))
    worker.ensure_groups()
    worker.join(identity("i1"), Pulse(slots=8))
    for number in range(5):
        bench.broker.delayed[f"broken-{number}"] = 0
    worker.promote()
    assert [dict(letter)[b"entry_id"] for letter in bench.broker.dead] == [b"broken-2", b"broken-3", b"broken-4"]


def test_many_threads_share_one_broker_and_each_entry_is_settled_once(bench: Bench) -> None:
    workers = [bench.worker(f"w{number}") for number in range(4)]
    for number in range(400):
        bench.broker.add(job(outbox_id=str(number + 1)))
    taken: list[str] = []

    def run(worker: FakeDeliveries) -> None:
        for batch in range(1, 1000):
            claimed = worker.read(3).claimed
            if not claimed:
                return
            assert worker.settle(batch, [settled(one) for one in claimed]).answers == accepted(len(claimed))
            taken.extend(one.entry.entry_id for one in claimed)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 400
    assert bench.broker.streams[Stream.JOBS].entries == {}
