"""What becomes of entries whose owner has lapsed or forgotten them: the histories that go wrong without a check."""

from stagedoor.core.keys import POOL
from tests.broker.fences.names import (
    asked_long_ago,
    clean_stop_is_cut_short,
    crash_log_ends_by_itself,
    full_page_cannot_be_buried,
    hold_many,
)
from tests.broker.fences.removals import Removal
from tests.broker.fences.words import fails, one, spoil
from tests.broker.harness import Harness, RedisHarness, job


def stopping_worker_is_swept(broker: Harness) -> None:
    clean_stop_is_cut_short(broker, swept=True)


def frozen_worker_lapses_twice(broker: Harness) -> None:
    frozen, other = broker.worker("frozen"), broker.worker("other")
    one(frozen, broker)
    for _ in range(2):
        broker.lapse("frozen")
        other.sweep()
        frozen.read(1)
    assert [len(log) for log in broker.state().crashes.values()] == [1]


def live_worker_is_swept(broker: Harness) -> None:
    held = one(broker.worker("live"), broker)
    broker.worker("other").sweep()
    assert broker.state().jobs.pending == {held.entry.entry_id: ("live", 1)}


def clock_jumps_back(real: RedisHarness) -> None:
    held = one(real.worker("w"), real)
    real.client.hincrby(real.keys.worker("w"), "beat", 3_600_000)
    real.worker("other").sweep()
    assert real.state().jobs.pending == {held.entry.entry_id: (POOL, 1)}


def long_gone_worker_held_an_entry(broker: Harness) -> None:
    held = one(broker.worker("gone"), broker)
    broker.forget_record("gone")
    broker.worker("other").sweep()
    assert list(broker.state().jobs.pending) == [held.entry.entry_id]


def busy_worker_is_reclaimed_from(broker: Harness) -> None:
    held = one(broker.worker("busy"), broker)
    broker.worker("other").reclaim()
    assert broker.state().jobs.pending == {held.entry.entry_id: ("busy", 1)}


def busy_worker_without_a_body_is_reclaimed_from(broker: Harness) -> None:
    held = one(broker.worker("busy"), broker)
    broker.trim(held.entry.entry_id)
    assert broker.worker("other").reclaim().trimmed == ()


def worker_without_a_record_is_swept(broker: Harness) -> None:
    held = one(broker.worker("w"), broker)
    broker.forget_record("w")
    broker.worker("other").sweep()
    assert broker.state().jobs.pending == {held.entry.entry_id: (POOL, 1)}


def bodiless_entry_of_a_lapsed_worker(broker: Harness) -> None:
    held = one(broker.worker("w"), broker)
    broker.trim(held.entry.entry_id)
    broker.lapse("w")
    broker.worker("other").sweep()
    assert [letter["reason"] for letter in broker.state().dead] == [b"trimmed"]


def vanished_worker_is_blamed(broker: Harness) -> None:
    one(broker.worker("w"), broker)
    broker.lapse("w")
    broker.worker("other").sweep()
    assert len(broker.state().crashes) == 1


def long_list_is_reclaimed(broker: Harness) -> None:
    """The first page is fresh, what comes after it is idle."""
    busy, other = broker.worker("busy"), broker.worker("other")
    entries = [broker.add(job()) for _ in range(150)]
    busy.read(150)
    broker.age(*entries[100:])
    assert other.reclaim().moved == 50


def crash_log_of_a_sweep(real: RedisHarness) -> None:
    crash_log_ends_by_itself(real, swept=True)


def page_of_a_lapsed_worker_cannot_be_buried(real: RedisHarness) -> None:
    full_page_cannot_be_buried(real, "sweep", lambda worker: worker.sweep())


def late_sweep(real: RedisHarness) -> None:
    held = one(real.worker("w"), real)
    other = real.worker("other")
    other.sweep()
    real.lapse("w")
    asked_long_ago(real, other.sweep, lambda: None)
    assert real.state().jobs.pending == {held.entry.entry_id: ("w", 1)}


def late_reclaim(real: RedisHarness) -> None:
    held = one(real.worker("w"), real)
    real.age(held.entry.entry_id)
    asked_long_ago(real, real.worker("other").reclaim, lambda: None)
    assert real.state().jobs.pending == {held.entry.entry_id: ("w", 1)}


def record_is_spoilt_and_swept(real: RedisHarness) -> None:
    held = one(real.worker("w"), real)
    spoil(real, real.keys.worker("w"))
    assert not fails(lambda: real.worker("other").sweep())
    real.client.delete(real.keys.worker("w"))
    assert real.state().jobs.pending == {held.entry.entry_id: (POOL, 1)}


def bodiless_entry_of_the_pool_is_reclaimed(broker: Harness) -> None:
    """It belongs to nobody, so nobody can still write a retry for it: it is buried without waiting."""
    worker = broker.worker("w")
    held = one(worker, broker)
    worker.release([held])
    broker.trim(held.entry.entry_id)
    assert len(worker.reclaim().trimmed) == 1


def idle_entry_is_reclaimed(broker: Harness) -> None:
    held = one(broker.worker("w"), broker)
    broker.age(held.entry.entry_id)
    assert broker.worker("other").reclaim().moved == 1
    assert broker.state().jobs.pending == {held.entry.entry_id: (POOL, 1)}


def idle_entry_without_a_body_is_reclaimed(broker: Harness) -> None:
    held = one(broker.worker("w"), broker)
    broker.age(held.entry.entry_id)
    broker.trim(held.entry.entry_id)
    assert len(broker.worker("other").reclaim().trimmed) == 1
    assert [letter["reason"] for letter in broker.state().dead] == [b"trimmed"]


def entry_of_the_pool_is_reclaimed(broker: Harness) -> None:
    """It is where it belongs, however long it has been there."""
    worker = broker.worker("w")
    held = one(worker, broker)
    worker.release([held])
    broker.age(held.entry.entry_id)
    assert worker.reclaim().moved == 0


def lapsed_worker_held_many(broker: Harness) -> None:
    hold_many(broker)
    broker.lapse("w")
    assert broker.worker("other").sweep().workers == (("w", 101, True),)


REMOVALS: dict[str, Removal] = {
    "sweep: the beat": Removal(
        "sweep", "local lapsed = not record[1] or ", "local lapsed = true or ", live_worker_is_swept
    ),
    "sweep: a beat from the future": Removal("sweep", "math.abs(now - ", "(now - ", clock_jumps_back),
    "sweep: a clean stop is no crash": Removal(
        "sweep", "if record[3] ~= '1' then", "if true then", stopping_worker_is_swept
    ),
    "sweep: once per incarnation": Removal(
        "sweep", "if string.find(log, incarnation, 1, true) then return end", "", frozen_worker_lapses_twice
    ),
    "sweep: no consumer goes with entries": Removal(
        "sweep", "if lapsed and pending > 0 then", "if false then", long_gone_worker_held_an_entry
    ),
    "reclaim: the idle time": Removal("reclaim", "row[3] >= tonumber(ARGV[2])", "true", busy_worker_is_reclaimed_from),
    "reclaim: the idle time of a bodiless entry": Removal(
        "reclaim", "if (is_pooled or is_idle) and ", "if ", busy_worker_without_a_body_is_reclaimed_from
    ),
    "sweep: a worker without a record": Removal(
        "sweep", "local lapsed = not record[1] or ", "local lapsed = record[1] and ", worker_without_a_record_is_swept
    ),
    "sweep: a body that is gone": Removal(
        "sweep",
        "if #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 0 then",
        "if false then",
        bodiless_entry_of_a_lapsed_worker,
    ),
    "sweep: who vanishes is blamed": Removal(
        "sweep", "if crash then blame(crash[1], number, id, crash[2], crash[3]) end", "", vanished_worker_is_blamed
    ),
    "sweep: a look at what is none": Removal(
        "sweep", "redis.pcall('HMGET', key,", "redis.call('HMGET', key,", record_is_spoilt_and_swept
    ),
    "sweep: served late": Removal("sweep", "if is_late(ARGV[6], ttl) then return {{}, {}, {}, 0} end", "", late_sweep),
    "reclaim: served late": Removal(
        "reclaim", "if is_late(ARGV[7], ARGV[2]) then return {cursor, 0, {}} end", "", late_reclaim
    ),
    "reclaim: the cursor": Removal(
        "reclaim", "#page == tonumber(ARGV[4]) and page[#page][1] or '0-0'", "'0-0'", long_list_is_reclaimed
    ),
    "sweep: a crash log ends": Removal("sweep", "redis.call('PEXPIRE', crashes, 604800000)", "", crash_log_of_a_sweep),
    "sweep: an end where nothing moves": Removal(
        "sweep", " and #live + #trimmed > 0", "", page_of_a_lapsed_worker_cannot_be_buried
    ),
    "reclaim: a bodiless entry of the pool": Removal(
        "reclaim", "(is_pooled or is_idle)", "is_idle", bodiless_entry_of_the_pool_is_reclaimed
    ),
    "reclaim: it moves": Removal(
        "reclaim",
        "redis.call('XCLAIM', stream, group, '~pool', 0, unpack(idle, 1, #idle))",
        "",
        idle_entry_is_reclaimed,
    ),
    "reclaim: an idle entry without a body": Removal(
        "reclaim", "(is_pooled or is_idle)", "is_pooled", idle_entry_without_a_body_is_reclaimed
    ),
    "reclaim: not from the pool": Removal(
        "reclaim", "is_idle and not is_pooled", "is_idle", entry_of_the_pool_is_reclaimed
    ),
    "sweep: more than one page": Removal("sweep", "if again then more = 1 end", "", lapsed_worker_held_many),
}
