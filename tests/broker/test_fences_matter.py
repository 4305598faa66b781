"""Each fence is there for a history that goes wrong without it.

One row takes one check out of a script's text, and tells the shortest history
that is right with the check and wrong without. So a check that nobody needs,
or that no history shows, cannot stay unnoticed here.
"""

from collections.abc import Callable

import attrs
import pytest

from stagedoor.broker import connection
from stagedoor.broker.dead_letters import DeadLetters
from stagedoor.broker.deliveries import Answer, Deliveries, Pulse, Renewal
from stagedoor.broker.publishing import OutboxEntry
from stagedoor.core.entry import Claimed
from stagedoor.core.keys import POOL
from stagedoor.core.outcome import Dead, Reason, RetryLater
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerError, GroupMissing, NameTaken
from tests.broker.harness import RedisHarness, accepted, identity, ids, job, settled

pytestmark = pytest.mark.redis

LATER = RetryLater(0, 2, "x")
DEAD = Dead(Reason.PERMANENT, "x")


def one(worker: Deliveries, real: RedisHarness) -> Claimed:
    """Let a worker hold a new entry."""
    real.add(job())
    (claimed,) = worker.read(1).claimed
    return claimed


def refused(act: Callable[[], object]) -> bool:
    """Whether the broker says that the name has another owner."""
    try:
        act()
    except NameTaken:
        return True
    return False


def same_tenure_twice(real: RedisHarness) -> tuple[Deliveries, Deliveries, Claimed]:
    """Return an old and a new process of one name; the new one holds what the old one remembers, count and all."""
    old = real.worker("w")
    claimed = one(old, real)
    real.lapse("w")
    new = real.worker("w")
    real.destroy_group()
    new.ensure_groups()
    assert [again.tenure for again in new.read(1).claimed] == [claimed.tenure]
    return old, new, claimed


# -- histories --------------------------------------------------------------------------


def old_process_settles(real: RedisHarness) -> None:
    old, new, claimed = same_tenure_twice(real)
    assert refused(lambda: old.settle(1, [settled(claimed)]))
    assert new.settle(1, [settled(claimed)]).answers == accepted(1)


def old_process_renews(real: RedisHarness) -> None:
    old, _, claimed = same_tenure_twice(real)
    assert refused(lambda: old.renew([claimed.tenure]))


def old_process_releases(real: RedisHarness) -> None:
    old, _, claimed = same_tenure_twice(real)
    assert refused(lambda: old.release([claimed]))
    assert real.state().jobs.pending == {claimed.entry.entry_id: ("w", 1)}


def old_process_retires(real: RedisHarness) -> None:
    old, _, claimed = same_tenure_twice(real)
    old.retire()
    assert real.state().jobs.pending == {claimed.entry.entry_id: ("w", 1)}


def old_process_reads(real: RedisHarness) -> None:
    old = real.worker("w")
    real.lapse("w")
    real.worker("w")
    entry_id = real.add(job())
    assert refused(lambda: old.read(1))
    assert real.state().jobs.unread == (entry_id,)


def old_process_beats(real: RedisHarness) -> None:
    old = real.worker("w")
    real.lapse("w")
    new = real.worker("w")
    assert refused(lambda: old.beat(Pulse(slots=8)))
    assert not refused(lambda: new.beat(Pulse(slots=8)))


def other_consumer_settles(real: RedisHarness) -> None:
    owner, other = real.worker("owner"), real.worker("other")
    claimed = one(owner, real)
    assert other.settle(1, [settled(claimed)]).answers == (Answer.LOST,)
    assert owner.settle(1, [settled(claimed)]).answers == accepted(1)


def other_consumer_renews(real: RedisHarness) -> None:
    owner, other = real.worker("owner"), real.worker("other")
    claimed = one(owner, real)
    assert other.renew([claimed.tenure]) == (Renewal.LOST,)
    assert real.state().jobs.pending == {claimed.entry.entry_id: ("owner", 1)}


def other_consumer_releases(real: RedisHarness) -> None:
    owner, other = real.worker("owner"), real.worker("other")
    claimed = one(owner, real)
    assert other.release([claimed]) == 0
    assert real.state().jobs.pending == {claimed.entry.entry_id: ("owner", 1)}


def _stale(real: RedisHarness) -> tuple[Deliveries, Claimed, Claimed]:
    worker = real.worker("w")
    stale = one(worker, real)
    worker.release([stale])
    (fresh,) = worker.read(1).claimed
    return worker, stale, fresh


def stale_count_settles(real: RedisHarness) -> None:
    worker, stale, fresh = _stale(real)
    assert worker.settle(1, [settled(stale)]).answers == (Answer.LOST,)
    assert worker.settle(2, [settled(fresh)]).answers == accepted(1)


def stale_count_renews(real: RedisHarness) -> None:
    worker, stale, fresh = _stale(real)
    assert worker.renew([stale.tenure, fresh.tenure]) == (Renewal.LOST, Renewal.RENEWED)


def stale_count_releases(real: RedisHarness) -> None:
    worker, stale, fresh = _stale(real)
    assert worker.release([stale]) == 0
    assert real.state().jobs.pending == {fresh.entry.entry_id: ("w", 2)}


def reply_is_lost(real: RedisHarness) -> None:
    worker = real.worker("w")
    batch = [settled(one(worker, real), LATER)]
    worker.settle(1, batch)
    assert worker.settle(1, batch).answers == accepted(1)


def repeat_comes_late(real: RedisHarness) -> None:
    """The entry's body was gone, so the fence of consumer and count cannot see that it was settled."""
    worker = real.worker("w")
    claimed = one(worker, real)
    real.trim(claimed.entry.entry_id)
    batch = [settled(claimed, LATER, body_gone=True)]
    worker.settle(1, batch)
    worker.promote()
    worker.settle(2, [])
    worker.settle(1, batch)
    assert real.state().delayed == {}


def group_is_lost_in_mid_batch(real: RedisHarness) -> None:
    worker = real.worker("w")
    first = one(worker, real)
    real.add(job(), Stream.CRITICAL)
    (second,) = worker.read(1).claimed
    real.destroy_group(Stream.CRITICAL)
    batch = [settled(first), settled(second)]
    with pytest.raises(GroupMissing):
        worker.settle(1, batch)
    worker.ensure_groups()
    assert worker.settle(1, batch).answers == (Answer.ACCEPTED, Answer.LOST)


def dead_letters_cannot_be_written(real: RedisHarness) -> None:
    worker = real.worker("w")
    claimed = one(worker, real)
    real.break_dead()
    assert worker.settle(1, [settled(claimed, DEAD)]).answers == (Answer.FAILED,)
    assert list(real.state().jobs.pending) == [claimed.entry.entry_id]


def delayed_jobs_cannot_be_written(real: RedisHarness) -> None:
    worker = real.worker("w")
    claimed = one(worker, real)
    real.client.set(real.keys.delayed, "no zset")
    answers = worker.settle(1, [settled(claimed, LATER)])
    assert list(real.client.scan_iter(real.keys.stream)) != []
    assert answers.answers == (Answer.FAILED,)
    assert real.length() == 1


def settled_entry_is_settled_again(real: RedisHarness) -> None:
    worker = real.worker("w")
    claimed = one(worker, real)
    worker.settle(1, [settled(claimed)])
    assert worker.settle(2, [settled(claimed, LATER)]).answers == (Answer.LOST,)
    assert real.state().delayed == {}


def bodiless_entry_of_another(real: RedisHarness) -> None:
    worker, other = real.worker("w"), real.worker("other")
    claimed = one(worker, real)
    worker.release([claimed])
    other.read(1)
    real.trim(claimed.entry.entry_id)
    assert worker.settle(1, [settled(claimed, LATER, body_gone=True)]).answers == (Answer.LOST,)


def entry_with_a_body_is_no_orphan(real: RedisHarness) -> None:
    worker = real.worker("w")
    claimed = one(worker, real)
    real.destroy_group()
    worker.ensure_groups()
    assert worker.settle(1, [settled(claimed, LATER, body_gone=True)]).answers == (Answer.LOST,)
    assert real.length() == 1


def second_process_of_a_live_name(real: RedisHarness) -> None:
    first, second = real.worker("w"), real.worker("w")
    assert (first.name, second.name) == ("w", "w.2")


def name_changes_hands_before_the_burial(real: RedisHarness) -> None:
    real.worker("w", incarnation="i1")

    def is_dead(_record: dict[str, str]) -> bool:
        real.lapse("w")
        real.worker("w", incarnation="i2")
        return True

    assert real.new_worker("w", is_process_dead=is_dead).join(identity("i3"), Pulse(slots=8)) == "w.2"


def name_is_taken_over(real: RedisHarness) -> None:
    held = one(real.worker("w"), real)
    real.lapse("w")
    real.worker("w")
    assert real.state().jobs.pending == {held.entry.entry_id: (POOL, 1)}


def clean_stop_is_cut_short(real: RedisHarness, *, swept: bool) -> None:
    stopping = real.worker("w")
    one(stopping, real)
    stopping.beat(Pulse(slots=8, stopping=True))
    real.lapse("w")
    real.worker("other").sweep() if swept else real.worker("w")
    assert real.state().crashes == {}


def stopping_worker_is_swept(real: RedisHarness) -> None:
    clean_stop_is_cut_short(real, swept=True)


def stopping_worker_is_joined_over(real: RedisHarness) -> None:
    clean_stop_is_cut_short(real, swept=False)


def frozen_worker_lapses_twice(real: RedisHarness) -> None:
    frozen, other = real.worker("frozen"), real.worker("other")
    one(frozen, real)
    for _ in range(2):
        real.lapse("frozen")
        other.sweep()
        frozen.read(1)
    assert [len(log) for log in real.state().crashes.values()] == [1]


def live_worker_is_swept(real: RedisHarness) -> None:
    held = one(real.worker("live"), real)
    real.worker("other").sweep()
    assert real.state().jobs.pending == {held.entry.entry_id: ("live", 1)}


def clock_jumps_back(real: RedisHarness) -> None:
    held = one(real.worker("w"), real)
    real.client.hincrby(real.keys.worker("w"), "beat", 3_600_000)
    real.worker("other").sweep()
    assert real.state().jobs.pending == {held.entry.entry_id: (POOL, 1)}


def long_gone_worker_held_an_entry(real: RedisHarness) -> None:
    held = one(real.worker("gone"), real)
    real.forget_record("gone")
    real.worker("other").sweep()
    assert list(real.state().jobs.pending) == [held.entry.entry_id]


def busy_worker_is_reclaimed_from(real: RedisHarness) -> None:
    held = one(real.worker("busy"), real)
    real.worker("other").reclaim()
    assert real.state().jobs.pending == {held.entry.entry_id: ("busy", 1)}


def busy_worker_without_a_body_is_reclaimed_from(real: RedisHarness) -> None:
    held = one(real.worker("busy"), real)
    real.trim(held.entry.entry_id)
    assert real.worker("other").reclaim().trimmed == ()


def bodiless_entry_cannot_be_buried(real: RedisHarness) -> None:
    worker = real.worker("w")
    held = one(worker, real)
    worker.release([held])
    real.trim(held.entry.entry_id)
    real.break_dead()
    worker.read(1)
    assert list(real.state().jobs.pending) == [held.entry.entry_id]


def retired_with_what_cannot_be_buried(real: RedisHarness) -> None:
    worker = real.worker("w")
    held = one(worker, real)
    real.trim(held.entry.entry_id)
    real.break_dead()
    worker.retire()
    assert list(real.state().jobs.pending) == [held.entry.entry_id]


def bodiless_release_is_repeated(real: RedisHarness) -> None:
    worker = real.worker("w")
    held = one(worker, real)
    real.trim(held.entry.entry_id)
    worker.release([held])
    worker.release([held])
    assert real.length() == 1


def promoted_twice(real: RedisHarness) -> None:
    worker = real.worker("w")
    worker.settle(1, [settled(one(worker, real), LATER)])
    assert (worker.promote().moved, worker.promote().moved, real.length()) == (1, 0, 1)
    assert real.state().dead == ()


def promoted_into_a_stream_that_is_none(real: RedisHarness) -> None:
    worker = real.worker("w")
    worker.settle(1, [settled(one(worker, real), LATER)])
    real.client.delete(real.keys.stream)
    real.client.set(real.keys.stream, "no stream")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        worker.promote()
    assert real.command("ZCARD", real.keys.delayed) == 1


def published_twice(real: RedisHarness) -> None:
    real.worker()
    relay = real.publishing()
    relay.publish("book", [OutboxEntry(1, job())])
    relay.publish("book", [OutboxEntry(1, job())])
    assert real.length() == 1


def published_into_a_full_stream(real: RedisHarness) -> None:
    real.worker()
    real.publishing(stream_maxlen=4).publish("book", [OutboxEntry(number, job()) for number in range(9)])
    assert real.length() == 3


def published_over_a_loss(real: RedisHarness) -> None:
    real.worker()
    real.publishing().publish("book", [OutboxEntry(1, job())], at_least=5)
    assert real.length() == 0


def queued_before_the_first_worker(real: RedisHarness) -> None:
    entry_id = real.add(job())
    assert ids(real.worker().read(1)) == [entry_id]


def limit_over_pool_and_new(real: RedisHarness) -> None:
    worker = real.worker("w")
    held = one(worker, real)
    worker.release([held])
    real.add(job())
    assert len(worker.read(1).claimed) == 1


def worker_without_a_record_is_swept(real: RedisHarness) -> None:
    held = one(real.worker("w"), real)
    real.forget_record("w")
    real.worker("other").sweep()
    assert real.state().jobs.pending == {held.entry.entry_id: (POOL, 1)}


def bodiless_entry_of_a_lapsed_worker(real: RedisHarness) -> None:
    held = one(real.worker("w"), real)
    real.trim(held.entry.entry_id)
    real.lapse("w")
    real.worker("other").sweep()
    assert [letter["reason"] for letter in real.state().dead] == [b"trimmed"]


def vanished_worker_is_blamed(real: RedisHarness) -> None:
    one(real.worker("w"), real)
    real.lapse("w")
    real.worker("other").sweep()
    assert len(real.state().crashes) == 1


def joined_again_after_a_lost_reply(real: RedisHarness) -> None:
    worker = real.worker("w", incarnation="i1")
    assert worker.join(identity("i1"), Pulse(slots=8)) == "w"


def flushed_record_is_written_anew(real: RedisHarness) -> None:
    worker = real.worker("w")
    real.forget_record("w")
    assert not refused(lambda: worker.beat(Pulse(slots=8)))
    assert list(real.state().workers) == ["w"]


def done_job_is_deleted(real: RedisHarness) -> None:
    worker = real.worker("w")
    worker.settle(1, [settled(one(worker, real))])
    assert (real.length(), real.state().jobs.pending) == (0, {})


def settled_entry_had_crashed(real: RedisHarness) -> None:
    one(real.worker("w"), real)
    real.lapse("w")
    other = real.worker("other")
    other.sweep()
    (again,) = other.read(1).claimed
    other.settle(1, [settled(again)])
    assert real.state().crashes == {}


def renewed_without_a_body(real: RedisHarness) -> None:
    worker = real.worker("w")
    held = one(worker, real)
    real.trim(held.entry.entry_id)
    assert worker.renew([held.tenure]) == (Renewal.GONE,)
    assert list(real.state().jobs.pending) == [held.entry.entry_id]


def released_without_a_body(real: RedisHarness) -> None:
    worker = real.worker("w")
    held = one(worker, real)
    real.trim(held.entry.entry_id)
    assert worker.release([held]) == 1
    assert real.length() == 1


def pooled_without_a_body(real: RedisHarness) -> None:
    worker = real.worker("w")
    held = one(worker, real)
    worker.release([held])
    real.trim(held.entry.entry_id)
    assert len(worker.read(1).trimmed) == 1
    assert [letter["reason"] for letter in real.state().dead] == [b"trimmed"]


def retry_in_an_hour(real: RedisHarness) -> None:
    worker = real.worker("w")
    worker.settle(1, [settled(one(worker, real), RetryLater(3600, 2, "x"))])
    assert worker.promote().moved == 0


def many_are_due(real: RedisHarness) -> None:
    worker = real.worker("w")
    for _ in range(150):
        real.add(job())
    worker.settle(1, [settled(claimed, LATER) for claimed in worker.read(150).claimed])
    assert worker.promote().moved == 100


def broken_body_is_due(real: RedisHarness) -> None:
    worker = real.worker("w")
    real.put_delayed("1:1-0", b"no body")
    assert worker.promote().broken == 1
    assert len(real.state().dead) == 1


def broken_body_cannot_be_buried(real: RedisHarness) -> None:
    worker = real.worker("w")
    real.put_delayed("1:1-0", b"no body")
    real.break_dead()
    worker.promote()
    assert list(real.state().delayed) == ["1:1-0"]


def long_list_is_reclaimed(real: RedisHarness) -> None:
    """The first page is fresh, what comes after it is idle."""
    busy, other = real.worker("busy"), real.worker("other")
    entries = [real.add(job()) for _ in range(150)]
    busy.read(150)
    real.age(*entries[100:])
    assert other.reclaim().moved == 50


def published_rows_are_counted(real: RedisHarness) -> None:
    real.worker()
    relay = real.publishing()
    relay.publish("book", [OutboxEntry(1, job()), OutboxEntry(2, job())])
    assert relay.confirmed_seq("book") == 2


def put_back_twice(real: RedisHarness) -> None:
    worker = real.worker("w")
    worker.settle(1, [settled(one(worker, real), DEAD)])
    letters = DeadLetters(real.link, real.keys)
    (letter,) = letters.newest_first()
    letters.requeue([letter])
    letters.requeue([letter])
    assert real.length() == 1


def put_back_into_a_full_stream(real: RedisHarness) -> None:
    worker = real.worker("w")
    worker.settle(1, [settled(one(worker, real), DEAD)])
    for _ in range(3):
        real.add(job())
    letters = DeadLetters(real.link, real.keys, stream_maxlen=3)
    letters.requeue(list(letters.newest_first()))
    assert (real.length(), letters.count()) == (3, 1)


# -- removals -----------------------------------------------------------------------------


@attrs.frozen
class Removal:
    """What is taken out of a script, and the history that then goes wrong."""

    script: str
    old: str
    new: str
    history: Callable[[RedisHarness], None]


WHY = "if why then return {why} end"
CONSUMER = "and seen[1][2] == consumer "
COUNT = " and seen[1][4] == deliveries"

REMOVALS: dict[str, Removal] = {
    # Who may write.
    "settle: incarnation": Removal("settle", WHY, "", old_process_settles),
    "renew: incarnation": Removal("renew", WHY, "", old_process_renews),
    "release: incarnation": Removal("release", WHY, "", old_process_releases),
    "retire: incarnation": Removal("retire", WHY, "", old_process_retires),
    "read: incarnation": Removal("read", WHY, "", old_process_reads),
    "beat: incarnation": Removal(
        "beat", "if refused(KEYS[1], ARGV[1]) == 'taken' then return 'taken' end", "", old_process_beats
    ),
    "settle: consumer": Removal("settle", CONSUMER, "", other_consumer_settles),
    "renew: consumer": Removal("renew", CONSUMER, "", other_consumer_renews),
    "release: consumer": Removal("release", CONSUMER, "", other_consumer_releases),
    "settle: count": Removal("settle", COUNT, "", stale_count_settles),
    "renew: count": Removal("renew", COUNT, "", stale_count_renews),
    "release: count": Removal("release", COUNT, "", stale_count_releases),
    "read: a change of owner raises the count": Removal(
        "read",
        "redis.call('XCLAIM', KEYS[number], group, consumer, 0, id)",
        "redis.call('XCLAIM', KEYS[number], group, consumer, 0, id, 'JUSTID') deliveries = deliveries - 1",
        stale_count_settles,
    ),
    # Repeats.
    "settle: a repeated batch": Removal("settle", "if last[1] == ARGV[4] then", "if false then", reply_is_lost),
    "settle: a late batch": Removal(
        "settle", "if last[1] and tonumber(last[1]) > tonumber(ARGV[4]) then", "if false then", repeat_comes_late
    ),
    "settle: the groups first": Removal(
        "settle", "if not asked[number] then", "if false then", group_is_lost_in_mid_batch
    ),
    "release: what was added anew is acknowledged": Removal(
        "release", "redis.call('XACK', stream, group, id)", "", bodiless_release_is_repeated
    ),
    # Write first, acknowledge then.
    "settle: a dead letter that could not be written": Removal(
        "settle", "if problem then", "if false then", dead_letters_cannot_be_written
    ),
    "settle: a delayed job that could not be written": Removal(
        "settle", "if problem then", "if false then", delayed_jobs_cannot_be_written
    ),
    "bury: a dead letter that could not be written": Removal(
        "read", "if type(written) == 'table' and written.err then return false end", "", bodiless_entry_cannot_be_buried
    ),
    "promote: the member goes after its entry is there": Removal(
        "promote",
        "redis.call('XADD', stream, '*', unpack(parts, 2, #parts))",
        "redis.call('ZREM', KEYS[3], member) redis.call('XADD', stream, '*', unpack(parts, 2, #parts))",
        promoted_into_a_stream_that_is_none,
    ),
    "promote: the member goes": Removal("promote", "redis.call('ZREM', KEYS[3], member)", "", promoted_twice),
    # Bodies that are gone.
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
        "settle",
        "\n    and #redis.call('XRANGE', stream, id, id, 'COUNT', 1) == 0",
        "",
        entry_with_a_body_is_no_orphan,
    ),
    # Names.
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
    # Liveness.
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
    # New work.
    "publish: the bit": Removal(
        "publish", "if redis.call('GETBIT', bitmap, bit) == 1 then", "if false then", published_twice
    ),
    "publish: the cap": Removal(
        "publish", "elseif length >= tonumber(ARGV[1]) then", "elseif false then", published_into_a_full_stream
    ),
    "publish: a loss": Removal("publish", "if seq < tonumber(ARGV[4]) then", "if false then", published_over_a_loss),
    "group: its beginning": Removal("group", "'0', 'MKSTREAM'", "'$', 'MKSTREAM'", queued_before_the_first_worker),
    "read: one limit for all": Removal(
        "read", "take_new(1, limit - #taken)", "take_new(1, limit)", limit_over_pool_and_new
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
    "settle: what is done is deleted": Removal("settle", "redis.call('XDEL', stream, id)", "", done_job_is_deleted),
    "settle: what is done is acknowledged": Removal(
        "settle", "redis.call('XACK', stream, group, id)", "", done_job_is_deleted
    ),
    "settle: crashes are forgotten": Removal(
        "settle", "if flag ~= '-' then", "if false then", settled_entry_had_crashed
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
    "promote: not before it is due": Removal(
        "promote", "KEYS[3], '-inf', now, 'LIMIT'", "KEYS[3], '-inf', '+inf', 'LIMIT'", retry_in_an_hour
    ),
    "promote: a bounded move": Removal("promote", ", 'LIMIT', 0, ARGV[2]))", "))", many_are_due),
    "promote: a body that is none": Removal(
        "promote", "return bury_broken(member, body) and 'broken' or 'stuck'", "return 'broken'", broken_body_is_due
    ),
    "promote: what cannot be buried": Removal(
        "promote", "if became == 'stuck' then", "if false then", broken_body_cannot_be_buried
    ),
    "reclaim: the cursor": Removal(
        "reclaim",
        "#page == tonumber(ARGV[4]) and page[#page][1] or '0-0'",
        "'0-0'",
        long_list_is_reclaimed,
    ),
    "publish: the count": Removal("publish", "redis.call('HSET', KEYS[2], 'seq', seq)", "", published_rows_are_counted),
    "publish: the bit is set": Removal("publish", "redis.call('SETBIT', bitmap, bit, 1)", "", published_twice),
    "requeue: the letter goes": Removal("requeue", "redis.call('XDEL', KEYS[3], letter)", "", put_back_twice),
    "requeue: the letter is there": Removal(
        "requeue",
        "if #redis.call('XRANGE', KEYS[3], letter, letter, 'COUNT', 1) == 0 then",
        "if false then",
        put_back_twice,
    ),
    "requeue: the cap": Removal(
        "requeue",
        "elseif number == 1 and length >= tonumber(ARGV[1]) then",
        "elseif false then",
        put_back_into_a_full_stream,
    ),
}


@pytest.fixture(autouse=True)
def _forget_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a consumer without a record count as long gone at once."""
    monkeypatch.setattr("stagedoor.broker.redis.FORGET_CONSUMER_MS", -1)


@pytest.mark.parametrize("what", REMOVALS)
def test_with_its_checks_the_history_is_right(real: RedisHarness, what: str) -> None:
    REMOVALS[what].history(real)


@pytest.mark.parametrize("what", REMOVALS)
def test_without_the_check_the_history_goes_wrong(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    check_goes_wrong(real, monkeypatch, REMOVALS[what])


def check_goes_wrong(real: RedisHarness, monkeypatch: pytest.MonkeyPatch, removal: Removal) -> None:
    """See that the history is wrong without the check, and not for a script that does not run any more."""
    patch_script(monkeypatch, removal)
    with pytest.raises(AssertionError) as failed:
        removal.history(real)
    assert "user_script" not in str(failed.value), "the patched script is broken, which proves nothing"


def patch_script(monkeypatch: pytest.MonkeyPatch, removal: Removal) -> None:
    """Let every script be read without the check."""
    read_script = connection.read_script

    def patched(name: str) -> str:
        text: str = read_script(name)
        if name != removal.script:
            return text
        assert text.count(removal.old) == 1, f"{removal.old!r} is {text.count(removal.old)} times in {name}.lua"
        return text.replace(removal.old, removal.new)

    monkeypatch.setattr(connection, "read_script", patched)
    # The patched text must stand before a history begins, or its own assertion would pass for the history's.
    patched(removal.script)


def test_every_script_has_a_removal() -> None:
    scripts: set[str] = {removal.script for removal in REMOVALS.values()}
    assert scripts == {"group", "read", "settle", "renew", "release", "join", "beat", "retire", "sweep", "reclaim"} | {
        "promote",
        "publish",
        "requeue",
    }
