"""Settling: the histories that go wrong without a check of its."""

import pytest

from stagedoor.broker.deliveries import Answer
from stagedoor.core.outcome import Outcome
from stagedoor.core.tenure import Stream
from stagedoor.errors import GroupMissing
from tests.broker.fences.removals import Removal
from tests.broker.fences.words import (
    CONSUMER,
    COUNT,
    DEAD,
    LATER,
    WHY,
    fails,
    one,
    refused,
    same_tenure_twice,
    spoil,
    stale_and_fresh,
)
from tests.broker.harness import Harness, RedisHarness, accepted, job, settled


def old_process_settles(broker: Harness) -> None:
    old, new, claimed = same_tenure_twice(broker)
    assert refused(lambda: old.settle(1, [settled(claimed)]))
    assert new.settle(1, [settled(claimed)]).answers == accepted(1)


def other_consumer_settles(broker: Harness) -> None:
    owner, other = broker.worker("owner"), broker.worker("other")
    claimed = one(owner, broker)
    assert other.settle(1, [settled(claimed)]).answers == (Answer.LOST,)
    assert owner.settle(1, [settled(claimed)]).answers == accepted(1)


def stale_count_settles(broker: Harness) -> None:
    worker, stale, fresh = stale_and_fresh(broker)
    assert worker.settle(1, [settled(stale)]).answers == (Answer.LOST,)
    assert worker.settle(2, [settled(fresh)]).answers == accepted(1)


def reply_is_lost(broker: Harness) -> None:
    worker = broker.worker("w")
    batch = [settled(one(worker, broker), LATER)]
    worker.settle(1, batch)
    assert worker.settle(1, batch).answers == accepted(1)


def repeat_comes_late(broker: Harness) -> None:
    """The entry's body was gone, so the fence of consumer and count cannot see that it was settled."""
    worker = broker.worker("w")
    claimed = one(worker, broker)
    broker.trim(claimed.entry.entry_id)
    batch = [settled(claimed, LATER, body_gone=True)]
    worker.settle(1, batch)
    worker.promote()
    worker.settle(2, [])
    worker.settle(1, batch)
    assert broker.state().delayed == {}


def group_is_lost_in_mid_batch(broker: Harness) -> None:
    worker = broker.worker("w")
    first = one(worker, broker)
    broker.add(job(), Stream.CRITICAL)
    (second,) = worker.read(1).claimed
    broker.destroy_group(Stream.CRITICAL)
    batch = [settled(first), settled(second)]
    with pytest.raises(GroupMissing):
        worker.settle(1, batch)
    worker.ensure_groups()
    assert worker.settle(1, batch).answers == (Answer.ACCEPTED, Answer.LOST)


def dead_letters_cannot_be_written(broker: Harness) -> None:
    worker = broker.worker("w")
    claimed = one(worker, broker)
    broker.break_dead()
    assert worker.settle(1, [settled(claimed, DEAD)]).answers == (Answer.FAILED,)
    assert list(broker.state().jobs.pending) == [claimed.entry.entry_id]


def delayed_jobs_cannot_be_written(real: RedisHarness) -> None:
    worker = real.worker("w")
    claimed = one(worker, real)
    real.client.set(real.keys.delayed, "no zset")
    answers = worker.settle(1, [settled(claimed, LATER)])
    assert list(real.client.scan_iter(real.keys.stream)) != []
    assert answers.answers == (Answer.FAILED,)
    assert real.length() == 1


def settled_entry_is_settled_again(broker: Harness) -> None:
    worker = broker.worker("w")
    claimed = one(worker, broker)
    worker.settle(1, [settled(claimed)])
    assert worker.settle(2, [settled(claimed, LATER)]).answers == (Answer.LOST,)
    assert broker.state().delayed == {}


def bodiless_entry_of_another(broker: Harness) -> None:
    worker, other = broker.worker("w"), broker.worker("other")
    claimed = one(worker, broker)
    worker.release([claimed])
    other.read(1)
    broker.trim(claimed.entry.entry_id)
    assert worker.settle(1, [settled(claimed, LATER, body_gone=True)]).answers == (Answer.LOST,)


def entry_with_a_body_is_no_orphan(broker: Harness) -> None:
    worker = broker.worker("w")
    claimed = one(worker, broker)
    broker.destroy_group()
    worker.ensure_groups()
    assert worker.settle(1, [settled(claimed, LATER, body_gone=True)]).answers == (Answer.LOST,)
    assert broker.length() == 1


def done_job_is_deleted(broker: Harness) -> None:
    worker = broker.worker("w")
    worker.settle(1, [settled(one(worker, broker))])
    assert (broker.length(), broker.state().jobs.pending) == (0, {})


def settled_entry_had_crashed(broker: Harness) -> None:
    one(broker.worker("w"), broker)
    broker.lapse("w")
    other = broker.worker("other")
    other.sweep()
    (again,) = other.read(1).claimed
    other.settle(1, [settled(again)])
    assert broker.state().crashes == {}


def neighbours(real: RedisHarness, outcome: Outcome, broken: str) -> None:
    """What cannot be written fails alone, and its neighbour is settled."""
    worker = real.worker("w")
    held, other = one(worker, real), one(worker, real)
    spoil(real, broken)
    batch = [settled(held, outcome), settled(other)]
    assert not fails(lambda: worker.settle(1, batch))
    assert worker.settle(1, batch).answers == (Answer.FAILED, Answer.ACCEPTED)
    assert list(real.state().jobs.pending) == [held.entry.entry_id]


def neighbour_of_a_delayed_body(real: RedisHarness) -> None:
    neighbours(real, LATER, real.keys.delayed_body)


def neighbour_of_a_delayed_job(real: RedisHarness) -> None:
    neighbours(real, LATER, real.keys.delayed)


def neighbour_of_a_dead_letter(real: RedisHarness) -> None:
    neighbours(real, DEAD, real.keys.dead)


def crash_log_cannot_be_cleared(real: RedisHarness) -> None:
    one(real.worker("w"), real)
    real.lapse("w")
    other = real.worker("other")
    other.sweep()
    (again,) = other.read(1).claimed
    assert again.crash_log
    spoil(real, real.keys.crashes)
    assert not fails(lambda: other.settle(1, [settled(again)]))
    assert real.length() == 0


REMOVALS: dict[str, Removal] = {
    "settle: incarnation": Removal("settle", WHY, "", old_process_settles),
    "settle: consumer": Removal("settle", CONSUMER, "", other_consumer_settles),
    "settle: count": Removal("settle", COUNT, "", stale_count_settles),
    "settle: a repeated batch": Removal("settle", "if last[1] == ARGV[4] then", "if false then", reply_is_lost),
    "settle: a late batch": Removal(
        "settle", "if last[1] and tonumber(last[1]) > tonumber(ARGV[4]) then", "if false then", repeat_comes_late
    ),
    "settle: the groups first": Removal(
        "settle", "if not asked[number] then", "if false then", group_is_lost_in_mid_batch
    ),
    "settle: a dead letter that could not be written": Removal(
        "settle", "if problem then", "if false then", dead_letters_cannot_be_written
    ),
    "settle: a delayed job that could not be written": Removal(
        "settle", "if problem then", "if false then", delayed_jobs_cannot_be_written
    ),
    "settle: only who was told": Removal(
        "settle", "(flag == 'g' and is_orphan(stream, id))", "is_orphan(stream, id)", settled_entry_is_settled_again
    ),
    "settle: an orphan is pending with nobody": Removal(
        "settle",
        "return #redis.call('XPENDING', stream, group, id, id, 1) == 0\n    and ",
        "return ",
        bodiless_entry_of_another,
    ),
    "settle: an orphan has no body": Removal(
        "settle", "\n    and #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 0", "", entry_with_a_body_is_no_orphan
    ),
    "settle: what is done is deleted": Removal("settle", "redis.call('XDEL', stream, id)", "", done_job_is_deleted),
    "settle: what is done is acknowledged": Removal(
        "settle", "redis.call('XACK', stream, group, id)", "", done_job_is_deleted
    ),
    "settle: crashes are forgotten": Removal(
        "settle", "if flag ~= '-' then", "if false then", settled_entry_had_crashed
    ),
    "settle: a body beside others": Removal(
        "settle", "redis.pcall('HSET', KEYS[7]", "redis.call('HSET', KEYS[7]", neighbour_of_a_delayed_body
    ),
    "settle: a due time beside others": Removal(
        "settle", "redis.pcall('ZADD', KEYS[6]", "redis.call('ZADD', KEYS[6]", neighbour_of_a_delayed_job
    ),
    "settle: a dead letter beside others": Removal(
        "settle", "redis.pcall('XADD', KEYS[5]", "redis.call('XADD', KEYS[5]", neighbour_of_a_dead_letter
    ),
    "settle: a crash log that is none": Removal(
        "settle", "redis.pcall('HDEL', KEYS[4]", "redis.call('HDEL', KEYS[4]", crash_log_cannot_be_cleared
    ),
}
