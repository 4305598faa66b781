"""What brings entries into the streams and out of their sight: the histories that go wrong without a check."""

import pytest

from stagedoor.broker.checkup import Checkup
from stagedoor.broker.dead_letters import DeadLetters
from stagedoor.broker.losses import Losses
from stagedoor.broker.publishing import OutboxEntry
from stagedoor.core.codec import pack
from stagedoor.core.outcome import RetryLater
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerError
from tests.broker.fences.removals import Removal
from tests.broker.fences.words import DEAD, LATER, fails, one, spoil
from tests.broker.harness import Harness, RedisHarness, ids, job, settled


def promoted_twice(broker: Harness) -> None:
    worker = broker.worker("w")
    worker.settle(1, [settled(one(worker, broker), LATER)])
    assert (worker.promote().moved, worker.promote().moved, broker.length()) == (1, 0, 1)
    assert broker.state().dead == ()


def promoted_into_a_stream_that_is_none(real: RedisHarness) -> None:
    worker = real.worker("w")
    worker.settle(1, [settled(one(worker, real), LATER)])
    real.client.delete(real.keys.stream)
    real.client.set(real.keys.stream, "no stream")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        worker.promote()
    assert real.command("ZCARD", real.keys.delayed) == 1


def published_twice(broker: Harness) -> None:
    broker.worker()
    relay = broker.publishing()
    relay.publish("book", [OutboxEntry(1, job())])
    relay.publish("book", [OutboxEntry(1, job())])
    assert broker.length() == 1


def published_into_a_full_stream(broker: Harness) -> None:
    broker.worker()
    broker.publishing(stream_maxlen=4).publish("book", [OutboxEntry(number, job()) for number in range(9)])
    assert broker.length() == 3


def published_over_a_loss(broker: Harness) -> None:
    broker.worker()
    broker.publishing().publish("book", [OutboxEntry(1, job())], at_least=5)
    assert broker.length() == 0


def queued_before_the_first_worker(broker: Harness) -> None:
    entry_id = broker.add(job())
    assert ids(broker.worker().read(1)) == [entry_id]


def retry_in_an_hour(broker: Harness) -> None:
    worker = broker.worker("w")
    worker.settle(1, [settled(one(worker, broker), RetryLater(3600, 2, "x"))])
    assert worker.promote().moved == 0


def many_are_due(broker: Harness) -> None:
    worker = broker.worker("w")
    for _ in range(150):
        broker.add(job())
    worker.settle(1, [settled(claimed, LATER) for claimed in worker.read(150).claimed])
    assert worker.promote().moved == 100


def broken_body_is_due(broker: Harness) -> None:
    worker = broker.worker("w")
    broker.put_delayed("1:1-0", b"no body")
    assert worker.promote().broken == 1
    assert len(broker.state().dead) == 1


def broken_body_cannot_be_buried(broker: Harness) -> None:
    worker = broker.worker("w")
    broker.put_delayed("1:1-0", b"no body")
    broker.break_dead()
    worker.promote()
    assert list(broker.state().delayed) == ["1:1-0"]


def published_rows_are_counted(broker: Harness) -> None:
    broker.worker()
    relay = broker.publishing()
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


def odd_body_is_due(broker: Harness) -> None:
    """A name without its value: no entry can be made of it, and it must not keep the others."""
    worker = broker.worker("w")
    broker.put_delayed("1:1-0", pack([b"1", b"kind", b"k", b"order_id"]))
    assert not fails(worker.promote)
    assert [letter["reason"] for letter in broker.state().dead] == [b"malformed"]


def promoted_without_a_group(broker: Harness) -> None:
    worker = broker.worker("w")
    worker.settle(1, [settled(one(worker, broker), LATER)])
    broker.destroy_group(Stream.CRITICAL)
    assert not fails(worker.promote)
    assert broker.length() == 1


def letter_of_a_call_that_is_none(real: RedisHarness) -> None:
    """It stays, and the letter beside it is put back."""
    worker = real.worker("w")
    spoil(real, real.keys.call_status("c"))
    for fields in (job(kind="f", call_id="c"), job()):
        real.add(fields)
    worker.settle(1, [settled(claimed, DEAD) for claimed in worker.read(2).claimed])
    letters = DeadLetters(real.link, real.keys)
    assert not fails(lambda: letters.requeue(list(letters.newest_first())))
    assert (real.length(), letters.count()) == (1, 1)


def dropped_letter_is_gone(real: RedisHarness) -> None:
    worker = real.worker("w")
    worker.settle(1, [settled(one(worker, real), DEAD) for _ in range(2)])
    letters = DeadLetters(real.link, real.keys)
    newest, oldest = letters.newest_first()
    letters.drop([newest.dead_id])
    assert [letter.dead_id for letter in letters.newest_first()] == [oldest.dead_id]


def letters_are_read_both_ways(real: RedisHarness) -> None:
    worker = real.worker("w")
    held = [one(worker, real) for _ in range(3)]
    worker.settle(1, [settled(claimed, DEAD) for claimed in held])
    letters = DeadLetters(real.link, real.keys)
    in_order = [claimed.entry.entry_id for claimed in held]
    assert [letter.entry_id for letter in letters.newest_first()] == in_order[::-1]
    assert [letter.entry_id for page in letters.oldest_first() for letter in page] == in_order


# -- losses and delayed members that never come due ------------------------------------


def unread_entry_is_deleted(real: RedisHarness) -> Losses:
    """Return what looks for losses, where there is one that nobody has noticed."""
    lost = [real.add(job()) for _ in range(3)][2]
    real.worker("w").read(1)
    real.trim(lost)
    return Losses(real.link, real.keys)


def two_have_seen_one_loss(real: RedisHarness) -> None:
    slow, fast = unread_entry_is_deleted(real), Losses(real.link, real.keys)
    seen, _ = slow._look()
    fast.note()
    slow._note_one(Stream.JOBS, *seen)
    assert len(real.state().dead) == 1


def loss_is_looked_at_twice(real: RedisHarness) -> None:
    losses = unread_entry_is_deleted(real)
    losses.note()
    losses.note()
    assert len(real.state().dead) == 1


def done_job_is_no_loss(real: RedisHarness) -> None:
    """Settling deletes too, which is noted, and is nobody's loss."""
    worker = real.worker("w")
    worker.settle(1, [settled(one(worker, real))])
    Losses(real.link, real.keys).note()
    assert real.state().dead == ()


NEVER_MS = 1e300


def in_an_hour_ms(real: RedisHarness) -> float:
    return (real.client.time()[0] + 3600) * 1000.0


def mended(real: RedisHarness, *, due: float | None, body: bool) -> float | None:
    """Return when a member is due after it was mended."""
    member, keys = "1:1-1", real.keys
    if due is not None:
        real.client.zadd(keys.delayed, {member: due})
    if body:
        real.client.hset(keys.delayed_body, member, pack([b"1", b"kind", b"k"]))
    Checkup(real.link, keys).mend([member])
    return real.client.zscore(keys.delayed, member)


def sound_member_is_mended(real: RedisHarness) -> None:
    due = in_an_hour_ms(real)
    assert mended(real, due=due, body=True) == due


def member_that_was_promoted_is_mended(real: RedisHarness) -> None:
    assert mended(real, due=None, body=False) is None


def member_that_is_due_is_mended(real: RedisHarness) -> None:
    """The next promotion buries it; until then it stays where it is."""
    assert mended(real, due=1.0, body=False) == 1.0


def body_without_a_due_time_is_mended(real: RedisHarness) -> None:
    assert mended(real, due=None, body=True) is not None


def member_without_a_body_is_mended(real: RedisHarness) -> None:
    due = in_an_hour_ms(real)
    assert mended(real, due=due, body=False) != due


def member_that_is_never_due_is_mended(real: RedisHarness) -> None:
    assert mended(real, due=NEVER_MS, body=True) != NEVER_MS


def set_aside(real: RedisHarness) -> bool:
    """Whether the doctor takes the stream of jobs for a key that holds something else."""
    return Checkup(real.link, real.keys).set_aside(real.keys.stream, "stream") is not None


def key_is_put_right_before_it_is_set_aside(real: RedisHarness) -> None:
    entry_id = real.add(job())
    assert not set_aside(real)
    assert ids(real.worker().read(1)) == [entry_id]


def key_is_gone_before_it_is_set_aside(real: RedisHarness) -> None:
    assert not fails(lambda: set_aside(real))


def groups_are_made_twice(broker: Harness) -> None:
    worker = broker.worker()
    assert not fails(worker.ensure_groups)


REMOVALS: dict[str, Removal] = {
    "promote: the member goes after its entry is there": Removal(
        "promote",
        "redis.call('XADD', stream, '*', unpack(parts, 2, #parts))",
        "redis.call('ZREM', KEYS[3], member) redis.call('XADD', stream, '*', unpack(parts, 2, #parts))",
        promoted_into_a_stream_that_is_none,
    ),
    "promote: the member goes": Removal("promote", "redis.call('ZREM', KEYS[3], member)", "", promoted_twice),
    "publish: the bit": Removal(
        "publish", "if redis.call('GETBIT', bitmap, bit) == 1 then", "if false then", published_twice
    ),
    "publish: the cap": Removal(
        "publish", "elseif length >= tonumber(ARGV[1]) then", "elseif false then", published_into_a_full_stream
    ),
    "publish: a loss": Removal("publish", "if seq < tonumber(ARGV[4]) then", "if false then", published_over_a_loss),
    "group: its beginning": Removal("group", "'0', 'MKSTREAM'", "'$', 'MKSTREAM'", queued_before_the_first_worker),
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
    "promote: a name without a value": Removal("promote", " or #parts % 2 == 0", "", odd_body_is_due),
    "promote: a group that is gone": Removal(
        "promote",
        "redis.pcall('XPENDING', KEYS[number], group)",
        "redis.call('XPENDING', KEYS[number], group)",
        promoted_without_a_group,
    ),
    "requeue: a call that is none": Removal(
        "requeue",
        "redis.pcall('HGET', status, '.state')",
        "redis.call('HGET', status, '.state')",
        letter_of_a_call_that_is_none,
    ),
    "drop: the letter goes": Removal("drop", "redis.call('XDEL', KEYS[1], ARGV[i])", "1", dropped_letter_is_gone),
    "page: the oldest first": Removal("page", "if ARGV[1] == 'up' then", "if false then", letters_are_read_both_ways),
    "page: the newest first": Removal("page", "if ARGV[1] == 'up' then", "if true then", letters_are_read_both_ways),
    "notice: what is known": Removal("notice", "if known ~= ARGV[2] then return 0 end", "", two_have_seen_one_loss),
    "notice: it is noted": Removal(
        "notice", "redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])", "", loss_is_looked_at_twice
    ),
    "notice: no letter about nothing": Removal(
        "notice", "if tonumber(ARGV[4]) > 0 then", "if true then", done_job_is_no_loss
    ),
    "mend: a member that has its body": Removal(
        "mend", "score > now and not body", "score > now", sound_member_is_mended
    ),
    "mend: a member that comes due": Removal(
        "mend", "(score and score > tonumber(ARGV[1]))", "score", sound_member_is_mended
    ),
    "mend: a member that is nowhere": Removal(
        "mend", "not score and body,", "not score,", member_that_was_promoted_is_mended
    ),
    "mend: a member that is due": Removal(
        "mend", "score and score > now and not body", "score and not body", member_that_is_due_is_mended
    ),
    "mend: no due time": Removal("mend", "if is_homeless or ", "if ", body_without_a_due_time_is_mended),
    "mend: no body": Removal("mend", " or is_bodiless or ", " or ", member_without_a_body_is_mended),
    "mend: too late": Removal(
        "mend", " or (score and score > tonumber(ARGV[1]))", "", member_that_is_never_due_is_mended
    ),
    "set aside: what is in order": Removal(
        "set_aside", "found == ARGV[1] or ", "", key_is_put_right_before_it_is_set_aside
    ),
    "set aside: what is gone": Removal("set_aside", " or found == 'none'", "", key_is_gone_before_it_is_set_aside),
    "group: it is there": Removal(
        "group", "if string.find(made.err, 'BUSYGROUP', 1, true) then return 0 end", "", groups_are_made_twice
    ),
}
