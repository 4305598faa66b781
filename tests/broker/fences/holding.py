"""Handing out, renewing and releasing: the histories that go wrong without a check of theirs."""

from stagedoor.broker.deliveries import Renewal
from tests.broker.fences.removals import Removal
from tests.broker.fences.settling import stale_count_settles
from tests.broker.fences.words import CONSUMER, COUNT, WHY, one, refused, same_tenure_twice, stale_and_fresh
from tests.broker.harness import Harness, job


def old_process_renews(broker: Harness) -> None:
    old, _, claimed = same_tenure_twice(broker)
    assert refused(lambda: old.renew([claimed.tenure]))


def old_process_releases(broker: Harness) -> None:
    old, _, claimed = same_tenure_twice(broker)
    assert refused(lambda: old.release([claimed]))
    assert broker.state().jobs.pending == {claimed.entry.entry_id: ("w", 1)}


def old_process_reads(broker: Harness) -> None:
    old = broker.worker("w")
    broker.lapse("w")
    broker.worker("w")
    entry_id = broker.add(job())
    assert refused(lambda: old.read(1))
    assert broker.state().jobs.unread == (entry_id,)


def other_consumer_renews(broker: Harness) -> None:
    owner, other = broker.worker("owner"), broker.worker("other")
    claimed = one(owner, broker)
    assert other.renew([claimed.tenure]) == (Renewal.LOST,)
    assert broker.state().jobs.pending == {claimed.entry.entry_id: ("owner", 1)}


def other_consumer_releases(broker: Harness) -> None:
    owner, other = broker.worker("owner"), broker.worker("other")
    claimed = one(owner, broker)
    assert other.release([claimed]) == 0
    assert broker.state().jobs.pending == {claimed.entry.entry_id: ("owner", 1)}


def stale_count_renews(broker: Harness) -> None:
    worker, stale, fresh = stale_and_fresh(broker)
    assert worker.renew([stale.tenure, fresh.tenure]) == (Renewal.LOST, Renewal.RENEWED)


def stale_count_releases(broker: Harness) -> None:
    worker, stale, fresh = stale_and_fresh(broker)
    assert worker.release([stale]) == 0
    assert broker.state().jobs.pending == {fresh.entry.entry_id: ("w", 2)}


def bodiless_entry_cannot_be_buried(broker: Harness) -> None:
    worker = broker.worker("w")
    held = one(worker, broker)
    worker.release([held])
    broker.trim(held.entry.entry_id)
    broker.break_dead()
    worker.read(1)
    assert list(broker.state().jobs.pending) == [held.entry.entry_id]


def bodiless_release_is_repeated(broker: Harness) -> None:
    worker = broker.worker("w")
    held = one(worker, broker)
    broker.trim(held.entry.entry_id)
    worker.release([held])
    worker.release([held])
    assert broker.length() == 1


def limit_over_pool_and_new(broker: Harness) -> None:
    worker = broker.worker("w")
    held = one(worker, broker)
    worker.release([held])
    broker.add(job())
    assert len(worker.read(1).claimed) == 1


def renewed_without_a_body(broker: Harness) -> None:
    worker = broker.worker("w")
    held = one(worker, broker)
    broker.trim(held.entry.entry_id)
    assert worker.renew([held.tenure]) == (Renewal.GONE,)
    assert list(broker.state().jobs.pending) == [held.entry.entry_id]


def released_without_a_body(broker: Harness) -> None:
    worker = broker.worker("w")
    held = one(worker, broker)
    broker.trim(held.entry.entry_id)
    assert worker.release([held]) == 1
    assert broker.length() == 1


def pooled_without_a_body(broker: Harness) -> None:
    worker = broker.worker("w")
    held = one(worker, broker)
    worker.release([held])
    broker.trim(held.entry.entry_id)
    assert len(worker.read(1).trimmed) == 1
    assert [letter["reason"] for letter in broker.state().dead] == [b"trimmed"]


def renewed_entry_is_fresh(broker: Harness) -> None:
    worker = broker.worker("w")
    held = one(worker, broker)
    broker.age(held.entry.entry_id)
    worker.renew([held.tenure])
    assert broker.worker("other").reclaim().moved == 0


def bodiless_entry_is_buried_once(broker: Harness) -> None:
    worker = broker.worker("w")
    held = one(worker, broker)
    worker.release([held])
    broker.trim(held.entry.entry_id)
    worker.read(1)
    worker.read(1)
    assert (len(broker.state().dead), broker.state().jobs.pending) == (1, {})


REMOVALS: dict[str, Removal] = {
    "renew: incarnation": Removal("renew", WHY, "", old_process_renews),
    "release: incarnation": Removal("release", WHY, "", old_process_releases),
    "read: incarnation": Removal("read", WHY, "", old_process_reads),
    "renew: consumer": Removal("renew", CONSUMER, "", other_consumer_renews),
    "release: consumer": Removal("release", CONSUMER, "", other_consumer_releases),
    "renew: count": Removal("renew", COUNT, "", stale_count_renews),
    "release: count": Removal("release", COUNT, "", stale_count_releases),
    "read: a change of owner raises the count": Removal(
        "read",
        "redis.call('XCLAIM', KEYS[number], group, consumer, 0, id)",
        "redis.call('XCLAIM', KEYS[number], group, consumer, 0, id, 'JUSTID') deliveries = deliveries - 1",
        stale_count_settles,
    ),
    "release: what was added anew is acknowledged": Removal(
        "release", "redis.call('XACK', stream, group, id)", "", bodiless_release_is_repeated
    ),
    "bury: a dead letter that could not be written": Removal(
        "read", "if type(written) == 'table' and written.err then return false end", "", bodiless_entry_cannot_be_buried
    ),
    "read: one limit for all": Removal(
        "read", "take_new(1, limit - #taken)", "take_new(1, limit)", limit_over_pool_and_new
    ),
    "renew: a body that is gone": Removal(
        "renew",
        "if #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 0 then",
        "if false then",
        renewed_without_a_body,
    ),
    "release: a body that is gone": Removal(
        "release",
        "if #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 1 then",
        "if true then",
        released_without_a_body,
    ),
    "read: a body that is gone": Removal("read", "trimmed[#trimmed + 1] = {number, id}", "", pooled_without_a_body),
    "renew: the idle time": Removal(
        "renew", "redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')", "", renewed_entry_is_fresh
    ),
    "bury: what is buried is acknowledged": Removal(
        "read", "  redis.call('XACK', stream, group, id)\n  return true", "  return true", bodiless_entry_is_buried_once
    ),
}
