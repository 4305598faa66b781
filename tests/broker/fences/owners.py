"""Names, beats and what becomes of entries whose owner is gone: the histories that go wrong without a check."""

from stagedoor.broker.connection import Script
from stagedoor.broker.deliveries import Pulse
from stagedoor.broker.redis import RedisDeliveries
from stagedoor.core.keys import GROUP, POOL
from tests.broker.fences.removals import Removal
from tests.broker.fences.words import WHY, one, refused, same_tenure_twice
from tests.broker.harness import Harness, RedisHarness, accepted, identity, job, settled


def old_process_retires(broker: Harness) -> None:
    old, _, claimed = same_tenure_twice(broker)
    old.retire()
    assert broker.state().jobs.pending == {claimed.entry.entry_id: ("w", 1)}


def old_process_beats(broker: Harness) -> None:
    old = broker.worker("w")
    broker.lapse("w")
    new = broker.worker("w")
    assert refused(lambda: old.beat(Pulse(slots=8)))
    assert not refused(lambda: new.beat(Pulse(slots=8)))


def second_process_of_a_live_name(broker: Harness) -> None:
    first, second = broker.worker("w"), broker.worker("w")
    assert (first.name, second.name) == ("w", "w.2")


def name_changes_hands_before_the_burial(real: RedisHarness) -> None:
    real.worker("w", incarnation="i1")

    def is_dead(_record: dict[str, str]) -> bool:
        real.lapse("w")
        real.worker("w", incarnation="i2")
        return True

    assert real.new_worker("w", is_process_dead=is_dead).join(identity("i3"), Pulse(slots=8)) == "w.2"


def name_is_taken_over(broker: Harness) -> None:
    held = one(broker.worker("w"), broker)
    broker.lapse("w")
    broker.worker("w")
    assert broker.state().jobs.pending == {held.entry.entry_id: (POOL, 1)}


def clean_stop_is_cut_short(broker: Harness, *, swept: bool) -> None:
    stopping = broker.worker("w")
    one(stopping, broker)
    stopping.beat(Pulse(slots=8, stopping=True))
    broker.lapse("w")
    broker.worker("other").sweep() if swept else broker.worker("w")
    assert broker.state().crashes == {}


def stopping_worker_is_swept(broker: Harness) -> None:
    clean_stop_is_cut_short(broker, swept=True)


def stopping_worker_is_joined_over(broker: Harness) -> None:
    clean_stop_is_cut_short(broker, swept=False)


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


def retired_with_what_cannot_be_buried(broker: Harness) -> None:
    worker = broker.worker("w")
    held = one(worker, broker)
    broker.trim(held.entry.entry_id)
    broker.break_dead()
    worker.retire()
    assert list(broker.state().jobs.pending) == [held.entry.entry_id]


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


def joined_again_after_a_lost_reply(broker: Harness) -> None:
    worker = broker.worker("w", incarnation="i1")
    assert worker.join(identity("i1"), Pulse(slots=8)) == "w"


def flushed_record_is_written_anew(broker: Harness) -> None:
    worker = broker.worker("w")
    broker.forget_record("w")
    assert not refused(lambda: worker.beat(Pulse(slots=8)))
    assert list(broker.state().workers) == ["w"]


def long_list_is_reclaimed(broker: Harness) -> None:
    """The first page is fresh, what comes after it is idle."""
    busy, other = broker.worker("busy"), broker.worker("other")
    entries = [broker.add(job()) for _ in range(150)]
    busy.read(150)
    broker.age(*entries[100:])
    assert other.reclaim().moved == 50


def record_ends_by_itself(real: RedisHarness) -> None:
    """A worker that is never seen again leaves no key behind."""
    real.worker("w")
    assert real.client.pttl(real.keys.worker("w")) > 0


def record_is_flushed_and_ends_by_itself(real: RedisHarness) -> None:
    worker = real.worker("w")
    real.forget_record("w")
    worker.beat(Pulse(slots=8))
    assert real.client.pttl(real.keys.worker("w")) > 0


def crash_log_ends_by_itself(real: RedisHarness, *, swept: bool) -> None:
    one(real.worker("w"), real)
    real.lapse("w")
    real.worker("other").sweep() if swept else real.worker("w")
    assert real.client.pttl(real.keys.crashes) > 0


def crash_log_of_a_sweep(real: RedisHarness) -> None:
    crash_log_ends_by_itself(real, swept=True)


def crash_log_of_a_join(real: RedisHarness) -> None:
    crash_log_ends_by_itself(real, swept=False)


def name_of_a_worker_from_the_future(real: RedisHarness) -> None:
    """Redis' clock was put back: the last beat lies ahead, and would for hours."""
    real.worker("w")
    real.client.hincrby(real.keys.worker("w"), "beat", 3_600_000)
    assert real.worker("w").name == "w"


def joined_again_with_an_entry(broker: Harness) -> None:
    """The reply to the first join was lost, and something was read in between: nobody has crashed."""
    worker = broker.worker("w", incarnation="i1")
    held = one(worker, broker)
    worker.join(identity("i1"), Pulse(slots=8))
    assert broker.state().jobs.pending == {held.entry.entry_id: (POOL, 1)}
    assert broker.state().crashes == {}


def new_process_counts_its_batches_anew(broker: Harness) -> None:
    old = broker.worker("w")
    old.settle(7, [settled(one(old, broker))])
    broker.lapse("w")
    new = broker.worker("w")
    assert new.settle(1, [settled(one(new, broker))]).answers == accepted(1)


def full_page_cannot_be_buried(real: RedisHarness) -> RedisDeliveries:
    """Return a worker that has lapsed with a whole page of bodiless entries, and no dead letters to put them to."""
    worker = real.new_worker("w")
    worker.ensure_groups()
    worker.join(identity("i1"), Pulse(slots=8))
    real.trim(one(worker, real).entry.entry_id)
    real.break_dead()
    real.lapse("w")
    return worker


def page_of_a_stop_cannot_be_buried(real: RedisHarness) -> None:
    worker = full_page_cannot_be_buried(real)
    reply = Script("retire")(real.link.patient, [*worker._mine, real.keys.dead], [GROUP, "w", "i1", 1, 100])
    assert reply[0] == b"ok", "asked again and again it would be as it is"


def page_of_a_name_cannot_be_buried(real: RedisHarness) -> None:
    worker = full_page_cannot_be_buried(real)
    keys = [*worker._mine, real.keys.crashes, real.keys.dead]
    reply = Script("join")(real.link.patient, keys, [GROUP, "w", "i2", 10_000, "", 1, 100, "slots", 8])
    assert reply[0] == b"ok", "asked again and again it would be as it is"


def page_of_a_lapsed_worker_cannot_be_buried(real: RedisHarness) -> None:
    worker = full_page_cannot_be_buried(real)
    keys = [*worker._streams, real.keys.crashes, real.keys.dead, real.keys.worker("w")]
    reply = Script("sweep")(real.link.patient, keys, [GROUP, 10_000, 3_600_000, 1, 100, "w"])
    assert reply[3] == 0, "asked again and again it would be as it is"


def bodiless_entry_of_the_pool_is_reclaimed(broker: Harness) -> None:
    """It belongs to nobody, so nobody can still write a retry for it: it is buried without waiting."""
    worker = broker.worker("w")
    held = one(worker, broker)
    worker.release([held])
    broker.trim(held.entry.entry_id)
    assert len(worker.reclaim().trimmed) == 1


REMOVALS: dict[str, Removal] = {
    "retire: incarnation": Removal("retire", WHY, "", old_process_retires),
    "beat: incarnation": Removal(
        "beat", "if refused(KEYS[1], ARGV[1]) == 'taken' then return 'taken' end", "", old_process_beats
    ),
    "join: a live name": Removal(
        "join",
        "if old[1] and beats and old[1] ~= ARGV[3] and old[1] ~= ARGV[5] then return {'live'} end",
        "",
        second_process_of_a_live_name,
    ),
    "join: the very incarnation that was proved dead": Removal(
        "join", "old[1] ~= ARGV[5]", "ARGV[5] == ''", name_changes_hands_before_the_burial
    ),
    "join: the old entries go to the pool": Removal(
        "join",
        "move_to_pool(KEYS[number], group, consumer, most, number, KEYS[5], ARGV[7], crash)",
        "0, {}, false",
        name_is_taken_over,
    ),
    "join: a clean stop is no crash": Removal("join", " or old[3] == '1'", "", stopping_worker_is_joined_over),
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
    "retire: no consumer goes with entries": Removal(
        "retire",
        "if #redis.call('XPENDING', KEYS[number], group, '-', '+', 1, consumer) == 0 then",
        "if true then",
        retired_with_what_cannot_be_buried,
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
    "join: one's own record": Removal("join", " and old[1] ~= ARGV[3]", "", joined_again_after_a_lost_reply),
    "beat: a record that is gone": Removal(
        "beat", "== 'taken' then return 'taken' end", "then return 'taken' end", flushed_record_is_written_anew
    ),
    "reclaim: the cursor": Removal(
        "reclaim", "#page == tonumber(ARGV[4]) and page[#page][1] or '0-0'", "'0-0'", long_list_is_reclaimed
    ),
    "join: its record ends": Removal("join", "redis.call('PEXPIRE', KEYS[3], 3600000)", "", record_ends_by_itself),
    "beat: its record ends": Removal(
        "beat", "redis.call('PEXPIRE', KEYS[1], 3600000)", "", record_is_flushed_and_ends_by_itself
    ),
    "sweep: a crash log ends": Removal("sweep", "redis.call('PEXPIRE', crashes, 604800000)", "", crash_log_of_a_sweep),
    "join: a crash log ends": Removal("join", "redis.call('PEXPIRE', crashes, 604800000)", "", crash_log_of_a_join),
    "join: a beat from the future": Removal("join", "math.abs(now - ", "(now - ", name_of_a_worker_from_the_future),
    "join: a repeat is no crash": Removal("join", "if old[1] == ARGV[3] or ", "if ", joined_again_with_an_entry),
    "join: the old record goes": Removal("join", "redis.call('DEL', KEYS[3])", "", new_process_counts_its_batches_anew),
    "retire: an end where nothing moves": Removal(
        "retire", " and #live + #trimmed > 0", "", page_of_a_stop_cannot_be_buried
    ),
    "join: an end where nothing moves": Removal(
        "join", " and #live + #trimmed > 0", "", page_of_a_name_cannot_be_buried
    ),
    "sweep: an end where nothing moves": Removal(
        "sweep", " and #live + #trimmed > 0", "", page_of_a_lapsed_worker_cannot_be_buried
    ),
    "reclaim: a bodiless entry of the pool": Removal(
        "reclaim", "(is_pooled or is_idle)", "is_idle", bodiless_entry_of_the_pool_is_reclaimed
    ),
}
