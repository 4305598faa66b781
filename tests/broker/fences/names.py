"""Names and beats, and what becomes of what a name held: the histories that go wrong without a check."""

from collections.abc import Callable
from typing import Any
from unittest import mock

from stagedoor.broker.deliveries import Deliveries, Pulse
from stagedoor.broker.redis import RedisDeliveries
from stagedoor.core.keys import POOL
from tests.broker.fences.removals import Removal
from tests.broker.fences.words import WHY, fails, one, refused, same_tenure_twice, spoil
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


def stopping_worker_is_joined_over(broker: Harness) -> None:
    clean_stop_is_cut_short(broker, swept=False)


def retired_with_what_cannot_be_buried(broker: Harness) -> None:
    worker = broker.worker("w")
    held = one(worker, broker)
    broker.trim(held.entry.entry_id)
    broker.break_dead()
    worker.retire()
    assert list(broker.state().jobs.pending) == [held.entry.entry_id]


def joined_again_after_a_lost_reply(broker: Harness) -> None:
    worker = broker.worker("w", incarnation="i1")
    assert worker.join(identity("i1"), Pulse(slots=8)) == "w"


def flushed_record_is_written_anew(broker: Harness) -> None:
    worker = broker.worker("w")
    broker.forget_record("w")
    assert not refused(lambda: worker.beat(Pulse(slots=8)))
    assert list(broker.state().workers) == ["w"]


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


def full_page_cannot_be_buried(real: RedisHarness, script: str, act: Callable[[RedisDeliveries], object]) -> None:
    """A worker holds a whole page of bodiless entries, and the dead letters are none: asked again it is as it was."""
    worker = real.new_worker("w")
    worker.ensure_groups()
    worker.join(identity("i1"), Pulse(slots=8))
    real.trim(one(worker, real).entry.entry_id)
    real.break_dead()
    actor = worker if script == "retire" else real.new_worker("w")
    run, asked = actor._scripts[script], []

    def counted(*args: Any) -> Any:
        asked.append(args)
        assert len(asked) < 5, "it would go on for ever"
        return run(*args)

    if script != "retire":
        real.lapse("w")
    with mock.patch.dict(actor._scripts, {script: counted}), mock.patch("stagedoor.broker.redis.MOST_PER_MOVE", 1):
        act(actor)
    assert len(real.state().jobs.pending) == 1


def page_of_a_stop_cannot_be_buried(real: RedisHarness) -> None:
    full_page_cannot_be_buried(real, "retire", lambda worker: worker.retire())


def page_of_a_name_cannot_be_buried(real: RedisHarness) -> None:
    full_page_cannot_be_buried(real, "join", lambda worker: worker.join(identity("i2"), Pulse(slots=8)))


def asked_long_ago(real: RedisHarness, act: Callable[[], object], meanwhile: Callable[[], object]) -> None:
    """Let a call to judge others be served a quarter of a minute after it was sent; if it asks again, at once."""
    asked: list[int] = []

    def now_ms(_worker: RedisDeliveries) -> int:
        seconds, microseconds = real.client.time()
        asked.append(seconds * 1000 + microseconds // 1000)
        if len(asked) == 1:
            return asked[0] - 15_100
        meanwhile()
        return asked[-1]

    with mock.patch.object(RedisDeliveries, "_now_ms", now_ms):
        act()


def late_join(real: RedisHarness) -> None:
    """What the server served next was the beat of the one whose name it is."""
    owner, second = real.worker("w"), real.new_worker("w")
    real.lapse("w")
    asked_long_ago(real, lambda: second.join(identity("i2"), Pulse(slots=8)), lambda: owner.beat(Pulse(slots=8)))
    assert second.name == "w.2"


def record_is_spoilt_and_beaten_for(real: RedisHarness) -> None:
    worker = real.worker("w")
    spoil(real, real.keys.worker("w"))
    assert not fails(lambda: worker.beat(Pulse(slots=8)))
    assert list(real.state().workers) == ["w"]


def record_is_spoilt_and_read_under(real: RedisHarness) -> None:
    worker = real.worker("w")
    entry_id = real.add(job())
    spoil(real, real.keys.worker("w"))
    assert not fails(lambda: worker.read(1))
    assert real.state().jobs.pending == {entry_id: ("w", 1)}


def record_is_spoilt_and_joined_over(real: RedisHarness) -> None:
    real.worker("w")
    spoil(real, real.keys.worker("w"))
    assert not fails(lambda: real.worker("w"))


def name_of_a_process_that_is_proved_dead(broker: Harness) -> None:
    """On its own host nobody has to wait for its beat to lapse."""
    broker.worker("w")
    assert broker.worker("w", is_process_dead=lambda _record: True).name == "w"


def hold_many(broker: Harness) -> Deliveries:
    """Return a worker that holds more than one call moves."""
    worker = broker.worker("w")
    for _ in range(101):
        broker.add(job())
    assert len(worker.read(200).claimed) == 101
    return worker


def owners_of_many(broker: Harness) -> set[str]:
    owners = [owner for owner, _ in broker.state().jobs.pending.values()]
    assert len(owners) == 101
    return set(owners)


def name_held_many(broker: Harness) -> None:
    hold_many(broker)
    broker.lapse("w")
    broker.worker("w")
    assert owners_of_many(broker) == {POOL}


def stopping_worker_holds_many(broker: Harness) -> None:
    hold_many(broker).retire()
    assert owners_of_many(broker) == {POOL}


def stopped_worker_leaves_its_name(broker: Harness) -> None:
    broker.worker("w").retire()
    assert broker.state().workers == {}
    assert broker.consumers() == set()


REMOVALS: dict[str, Removal] = {
    "retire: incarnation": Removal("retire", WHY, "", old_process_retires),
    "beat: incarnation": Removal("beat", "if why == 'taken' then return why end", "", old_process_beats),
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
    "retire: no consumer goes with entries": Removal(
        "retire",
        "if #redis.call('XPENDING', KEYS[number], group, '-', '+', 1, consumer) == 0 then",
        "if true then",
        retired_with_what_cannot_be_buried,
    ),
    "join: one's own record": Removal("join", " and old[1] ~= ARGV[3]", "", joined_again_after_a_lost_reply),
    "beat: a record that is gone": Removal(
        "beat",
        "if why == 'taken' then return why end",
        "if why then return 'taken' end",
        flushed_record_is_written_anew,
    ),
    "beat: a record that is none": Removal(
        "beat", "if why then redis.call('DEL', KEYS[1]) end", "", record_is_spoilt_and_beaten_for
    ),
    "beat: a look at what is none": Removal(
        "beat",
        "redis.pcall('HGET', record, 'incarnation')",
        "redis.call('HGET', record, 'incarnation')",
        record_is_spoilt_and_beaten_for,
    ),
    "read: a look at what is none": Removal(
        "read",
        "redis.pcall('HGET', record, 'incarnation')",
        "redis.call('HGET', record, 'incarnation')",
        record_is_spoilt_and_read_under,
    ),
    "join: a look at what is none": Removal(
        "join", "redis.pcall('HMGET', key,", "redis.call('HMGET', key,", record_is_spoilt_and_joined_over
    ),
    "join: served late": Removal("join", "if is_late(ARGV[8], ARGV[4]) then return {'late'} end", "", late_join),
    "join: its record ends": Removal("join", "redis.call('PEXPIRE', KEYS[3], 3600000)", "", record_ends_by_itself),
    "beat: its record ends": Removal(
        "beat", "redis.call('PEXPIRE', KEYS[1], 3600000)", "", record_is_flushed_and_ends_by_itself
    ),
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
    "join: a process that is proved dead": Removal(
        "join", " and old[1] ~= ARGV[5]", "", name_of_a_process_that_is_proved_dead
    ),
    "join: more than one page": Removal("join", "if more then return {'more', moved, trimmed} end", "", name_held_many),
    "retire: more than one page": Removal(
        "retire", "if more then return {'more', moved} end", "", stopping_worker_holds_many
    ),
    "retire: the record goes": Removal("retire", "redis.call('DEL', KEYS[3])", "", stopped_worker_leaves_its_name),
    "retire: the consumer goes": Removal(
        "retire",
        "    redis.call('XGROUP', 'DELCONSUMER', KEYS[number], group, consumer)",
        "",
        stopped_worker_leaves_its_name,
    ),
}
