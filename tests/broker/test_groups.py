"""The consumer group: who creates it, where it begins, and what happens when it is lost."""

import threading

import pytest

from stagedoor.broker.deliveries import Promoted, Pulse, Renewal
from stagedoor.core.outcome import RetryLater
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerError, GroupMissing
from tests.broker.harness import Harness, RedisHarness, accepted, identity, ids, job, settled
from tests.support.redis_server import StartRedis


def test_the_group_is_created_once_on_both_streams(broker: Harness) -> None:
    worker = broker.new_worker()
    assert worker.ensure_groups() is True
    assert worker.ensure_groups() is False
    state = broker.state()
    assert state.jobs.group
    assert state.critical.group


@pytest.mark.parametrize("stream", Stream)
def test_one_missing_group_is_created(broker: Harness, stream: Stream) -> None:
    worker = broker.worker()
    broker.destroy_group(stream)
    assert worker.ensure_groups() is True
    assert broker.state().of(stream).group


def test_a_new_group_begins_at_the_first_entry(broker: Harness) -> None:
    worker = broker.worker()
    added = [broker.add(job()) for _ in range(3)]
    broker.destroy_group()
    worker.ensure_groups()
    assert list(broker.state().jobs.unread) == added


def test_many_that_create_the_group_at_once_all_succeed(broker: Harness) -> None:
    workers = [broker.new_worker(f"w{number}") for number in range(8)]
    barrier = threading.Barrier(len(workers))
    results: list[object] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            results.append(workers[number].ensure_groups())
        except BrokerError as error:
            results.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) <= {True, False}
    assert True in results


@pytest.mark.redis
def test_a_key_of_another_type_is_no_success(real: RedisHarness) -> None:
    real.client.set(real.keys.stream, "x")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        real.new_worker().ensure_groups()


@pytest.mark.parametrize("stream", Stream)
def test_with_its_group_destroyed_nothing_of_a_stream_is_lost(broker: Harness, stream: Stream) -> None:
    """Held, pooled and unread: each runs once more and can be settled; who held it before has lost it."""
    one, two = broker.worker("one"), broker.worker("two")
    added = [broker.add(job(), stream) for _ in range(6)]
    held = one.read(2).claimed
    two.release(two.read(2).claimed)
    broker.destroy_group(stream)

    for verb in (lambda: two.read(1), lambda: one.settle(1, [settled(held[0])]), lambda: one.renew([held[0].tenure])):
        with pytest.raises(GroupMissing):
            verb()
    assert two.ensure_groups() is True

    assert one.renew([claimed.tenure for claimed in held]) == (Renewal.LOST,) * 2
    claimed = two.read(8).claimed
    assert [one.entry.entry_id for one in claimed] == added
    assert two.settle(1, [settled(one) for one in claimed]).answers == accepted(6)
    assert broker.length(stream) == 0


def test_after_a_flush_everything_starts_anew(broker: Harness) -> None:
    worker = broker.worker("w", incarnation="i1")
    broker.add(job())
    (held,) = worker.read(1).claimed
    broker.flush()
    for verb in (lambda: worker.read(1), worker.sweep, worker.reclaim, worker.retire):
        with pytest.raises(GroupMissing):
            verb()

    assert worker.ensure_groups() is True

    entry_id = broker.add(job())
    assert worker.renew([held.tenure]) == (Renewal.LOST,)
    claimed = worker.read(8).claimed
    assert [one.entry.entry_id for one in claimed] == [entry_id]
    assert worker.settle(2, [settled(claimed[0])]).answers == accepted(1)
    assert broker.state().workers == {"w": "i1"}


def test_promoting_needs_no_group(broker: Harness) -> None:
    worker = broker.worker()
    broker.add(job())
    worker.settle(1, [settled(worker.read(1).claimed[0], RetryLater(0, 2, ""))])
    broker.make_due()
    broker.destroy_group()
    broker.destroy_group(Stream.CRITICAL)
    assert worker.promote() == Promoted(moved=1)
    worker.ensure_groups()
    assert len(ids(worker.read(8))) == 1


def test_a_stopping_worker_whose_group_was_lost_says_so_and_can_retire_after_it_is_back(broker: Harness) -> None:
    worker = broker.new_worker("w")
    worker.ensure_groups()
    worker.join(identity("i1"), Pulse(slots=8))
    broker.destroy_group()
    with pytest.raises(GroupMissing):
        worker.retire()
    worker.ensure_groups()
    worker.retire()
    assert broker.state().workers == {}


@pytest.mark.redis
def test_a_hundred_flushes_under_a_working_worker_lose_nothing_that_came_after(start_redis: StartRedis) -> None:
    server = start_redis()
    harness = RedisHarness(server.url, "jobs")
    worker = harness.worker("w")
    for batch in range(100):
        harness.add(job())
        server.cli("FLUSHALL")
        entry_id = harness.add(job())
        with pytest.raises(GroupMissing):
            worker.read(1)
        assert worker.ensure_groups() is True
        (claimed,) = worker.read(8).claimed
        assert claimed.entry.entry_id == entry_id
        assert worker.settle(batch, [settled(claimed)]).answers == accepted(1)
    assert harness.length() == 0
    harness.close()
