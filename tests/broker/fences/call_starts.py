"""Starting and telling calls, and beginning their passes: the histories that go wrong without a check."""

from stagedoor.broker.calls import Again, Begun, Calls, Ended, Pass, Refused, TakenSignal, Told
from stagedoor.broker.deliveries import Deliveries
from stagedoor.core.call import CallOutcome, CallState, Misfit, Sleep
from stagedoor.core.entry import Claimed
from stagedoor.core.outcome import UnknownKind
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerUnavailable
from tests.broker.fences.call_words import (
    DONE,
    ENTRY,
    FOR_EVER,
    LATER_AT,
    PARK,
    SLEEP,
    entries,
    lost,
    sent,
    taken,
    too_much,
)
from tests.broker.fences.removals import Removal
from tests.broker.flow_harness import begun, calls_of, done, new_call, picture, set_field, started, take_one, timers
from tests.broker.harness import Harness, RedisHarness, settled


def started_twice(broker: Harness) -> None:
    _, calls, _, _ = started(broker)
    assert not calls.start(new_call()).created
    assert entries(broker) == 1


def started_into_a_full_stream(broker: Harness) -> None:
    calls = calls_of(broker, stream_maxlen=2)
    calls.start(new_call("a"))
    try:
        calls.start(new_call("b"))
    except BrokerUnavailable:
        return
    raise AssertionError("a call was started into a full stream")


def started_with_a_book(broker: Harness) -> None:
    assert too_much(lambda: calls_of(broker, most_call_bytes=10).start(new_call(metadata={"a": "b" * 20})))


def started_call_is_queued(broker: Harness) -> None:
    calls_of(broker).start(new_call())
    assert entries(broker) == 1


def started_later(broker: Harness) -> None:
    calls_of(broker).start(new_call(delay_s=5))
    assert len(timers(broker)) == 1


def nobody_is_told(broker: Harness) -> None:
    assert sent(calls_of(broker), "1") == [Told.UNKNOWN]
    assert picture(broker) is None


def ended_call_is_told(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, DONE)
    assert calls.wake("c") is Told.ENDED
    assert entries(broker) == 0


def decided_call_is_told(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.record_outcome(right, CallOutcome(state=CallState.DONE))
    assert sent(calls, "1") == [Told.ENDED]


def signal_is_sent_again(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    sent(calls, "1", "1")
    assert taken(calls, right) == TakenSignal("1")
    assert taken(calls, right, key="w2") != TakenSignal("1")


def signal_meets_a_pass_that_is_about_to_wait(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    taken(calls, right)
    sent(calls, "1")
    again = calls.end_pass(right, FOR_EVER)
    assert isinstance(again, Again)
    assert isinstance(calls.end_pass(right, FOR_EVER), Again), "and so after a lost reply"
    assert calls.end_pass(again.right, FOR_EVER) == Ended()


def two_signals_wake_once(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, FOR_EVER)
    sent(calls, "1", "2")
    assert entries(broker) == 1


def signal_wakes(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, FOR_EVER)
    sent(calls, "1")
    assert entries(broker) == 1


def parked_call_is_told(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, PARK)
    sent(calls, "1")
    assert entries(broker) == 0


def running_call_is_resumed(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    assert calls.resume("c") is Told.NOT_PARKED
    assert calls.end_pass(right, FOR_EVER) == Ended()


def resumed_call_forgets_its_misfit(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, Sleep(until=LATER_AT, waiting_for="x", misfit=Misfit(since=1.0, hops=1)))
    set_field(broker, ".state", "parked")
    calls.resume("c")
    journal = calls.show("c")
    assert journal is not None
    assert journal.misfit is None


def many_signals(broker: Harness) -> None:
    _, calls, _, _ = started(broker, most_signals=1)
    assert sent(calls, "1", "2") == [Told.TOLD, Told.FULL]


def large_signals(broker: Harness) -> None:
    _, calls, _, _ = started(broker, most_call_bytes=100)
    assert sent(calls, "1" * 80, "2" * 80) == [Told.TOLD, Told.FULL]


def cancelled_twice(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.cancel("c")
    assert calls.record_step(right, done("a")).is_cancel_requested


def old_process_begins(broker: Harness) -> None:
    old = broker.worker("w")
    calls = calls_of(broker, old)
    calls.start(new_call())
    claimed = take_one(old)
    broker.lapse("w")
    new = broker.worker("w")
    broker.destroy_group()
    new.ensure_groups()
    assert take_one(new).tenure == claimed.tenure
    assert lost(lambda: calls.begin_pass(claimed.tenure, "c"))


def stale_tenure_begins(broker: Harness) -> None:
    worker, other = broker.worker("w"), broker.worker("other")
    calls = calls_of(broker, worker)
    calls.start(new_call())
    claimed = take_one(worker)
    worker.release([claimed])
    take_one(other)
    assert lost(lambda: calls.begin_pass(claimed.tenure, "c"))


def second_entry_begins(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    broker.add(ENTRY, Stream.CRITICAL)
    assert calls.begin_pass(take_one(worker).tenure, "c") is Refused.BUSY
    calls.record_step(right, done("a"))


def second_entry_tells_the_pass(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    broker.add(ENTRY, Stream.CRITICAL)
    calls.begin_pass(take_one(worker).tenure, "c")
    assert isinstance(calls.end_pass(right, FOR_EVER), Again)


def same_entry_takes_over(broker: Harness) -> None:
    worker, _, claimed, _ = started(broker)
    worker.release([claimed])
    other = broker.worker("other")
    assert isinstance(calls_of(broker, other).begin_pass(take_one(other).tenure, "c"), Begun)


def lease_of_an_entry_that_is_gone(broker: Harness) -> None:
    worker, calls, claimed, _ = started(broker)
    broker.trim(claimed.entry.entry_id)
    broker.add(ENTRY, Stream.CRITICAL)
    assert isinstance(calls.begin_pass(take_one(worker).tenure, "c"), Begun)


def zombie(broker: Harness) -> tuple[Calls, Pass, Calls, Pass]:
    """Return a pass that froze, and the one that has taken its call over through the same entry."""
    worker, calls, claimed, right = started(broker)
    worker.release([claimed])
    other = broker.worker("other")
    theirs = calls_of(broker, other)
    return calls, right, theirs, begun(theirs, take_one(other)).right


def zombie_records(broker: Harness) -> None:
    calls, right, theirs, their_right = zombie(broker)
    assert lost(lambda: calls.record_step(right, done("a", value="1")))
    theirs.record_step(their_right, done("a", value="2"))


def finished_call_gets_an_entry(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, DONE)
    broker.add(ENTRY)
    assert calls.begin_pass(take_one(worker).tenure, "c") is Refused.ENDED
    assert entries(broker) == 0


def forgotten_call_gets_an_entry(broker: Harness) -> None:
    worker = broker.worker()
    broker.add(ENTRY)
    assert calls_of(broker, worker).begin_pass(take_one(worker).tenure, "c") is Refused.UNKNOWN
    assert picture(broker) is None


def parked_call_gets_an_entry(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, PARK)
    broker.add(ENTRY)
    assert calls.begin_pass(take_one(worker).tenure, "c") is Refused.PARKED


def refused_entry_is_settled(broker: Harness) -> None:
    finished_call_gets_an_entry(broker)
    assert broker.state().jobs.pending == {}


def pass_begins_before_its_timer(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, SLEEP)
    calls.wake("c")
    begun(calls, take_one(worker))
    assert timers(broker) == {}


def handed_back_entry_is_delayed(broker: Harness) -> None:
    worker = broker.worker()
    calls = calls_of(broker, worker)
    calls.start(new_call())
    worker.settle(1, [settled(take_one(worker), UnknownKind(3600, 1))])
    calls.wake("c")
    assert entries(broker) == 1


def lease_runs_out(real: RedisHarness) -> None:
    started(real)
    assert real.client.pttl(real.keys.call_lease("c")) > 0


def entry_that_had_crashed(broker: Harness) -> tuple[Deliveries, Claimed]:
    """Return an entry, whoever's, that a worker has taken over from one that vanished."""
    broker.worker("gone").read(1)
    broker.lapse("gone")
    worker = broker.worker("w")
    worker.sweep()
    claimed = take_one(worker)
    assert len(broker.state().crashes) == 1
    return worker, claimed


def refused_entry_had_crashed(broker: Harness) -> None:
    broker.add(ENTRY)
    worker, claimed = entry_that_had_crashed(broker)
    assert calls_of(broker, worker).begin_pass(claimed.tenure, "c") is Refused.UNKNOWN
    assert broker.state().crashes == {}


def call_has_lost_its_status(real: RedisHarness) -> None:
    """One that is started anew finds nothing of what was before: no signal that was meant for another."""
    _, calls, _, _ = started(real)
    sent(calls, "1")
    real.client.delete(real.keys.call_status("c"))
    calls.start(new_call())
    kept = picture(real)
    assert kept is not None
    assert kept.meta == {}


REMOVALS: dict[str, Removal] = {
    "start: there is one": Removal(
        "start_call", "if there[2] then return {'there', there[1], there[2]} end", "", started_twice
    ),
    "start: the cap": Removal(
        "start_call",
        "if delay == 0 and redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1])",
        "if false",
        started_into_a_full_stream,
    ),
    "start: its size": Removal("start_call", "if bytes > tonumber(ARGV[2]) then", "if false then", started_with_a_book),
    "start: its entry": Removal("start_call", "queue(KEYS[1], '1', status, call_id)", "", started_call_is_queued),
    "start: its timer": Removal(
        "start_call", "set_timer(KEYS[2], KEYS[3], status, call_id, now + delay, '1')", "", started_later
    ),
    "wake: nobody": Removal(
        "wake", "if not state then return 'unknown' end", "state = state or 'waiting'", nobody_is_told
    ),
    "wake: ended": Removal("wake", "if HAS_ENDED[state] then return 'ended' end", "", ended_call_is_told),
    "wake: decided": Removal("wake", "if known[2] and (verb", "if false and (verb", decided_call_is_told),
    "wake: the token": Removal(
        "wake", "redis.call('HEXISTS', status, '.t:' .. ARGV[6]) == 1", "false", signal_is_sent_again
    ),
    "wake: a pass runs": Removal(
        "wake", "redis.call('HINCRBY', status, '.wakes', 1)", "", signal_meets_a_pass_that_is_about_to_wait
    ),
    "wake: an entry is there": Removal(
        "wake", "elseif not is_queued(KEYS[1], KEYS[2], KEYS[7], known[3]) then", "else", two_signals_wake_once
    ),
    "wake: an entry is delayed": Removal(
        "wake", "if member then return", "if false then return", handed_back_entry_is_delayed
    ),
    "wake: an entry": Removal("wake", "queue(KEYS[2], '2', status, call_id)", "", signal_wakes),
    "wake: parked": Removal(
        "wake", "elseif state == 'parked' and (verb", "elseif false and (verb", parked_call_is_told
    ),
    "wake: not parked": Removal(
        "wake", "if verb == 'resume' and state ~= 'parked' then return 'not parked' end", "", running_call_is_resumed
    ),
    "wake: a resume forgets": Removal(
        "wake",
        "if verb == 'resume' then redis.call('HDEL', status, '.misfit') end",
        "",
        resumed_call_forgets_its_misfit,
    ),
    "wake: many": Removal(
        "wake", ">= tonumber(ARGV[7]) then return false end", ">= 1e9 then return false end", many_signals
    ),
    "wake: large": Removal(
        "wake", "if not take_bytes(status, #name + #value, tonumber(ARGV[8]))", "if false", large_signals
    ),
    "wake: a cancel": Removal("wake", "redis.call('HSETNX', status, '.cancel', now)", "", cancelled_twice),
    "begin: incarnation": Removal("begin_pass", "if why then return {why} end", "", old_process_begins),
    "begin: tenure": Removal("begin_pass", "if not holds(", "if false and not holds(", stale_tenure_begins),
    "begin: lease": Removal(
        "begin_pass", "if held and held ~= place", "if false and held ~= place", second_entry_begins
    ),
    "begin: the pass is told": Removal(
        "begin_pass", "redis.call('HINCRBY', status, '.wakes', 1)", "", second_entry_tells_the_pass
    ),
    "begin: the same entry": Removal("begin_pass", "and held ~= place ", "", same_entry_takes_over),
    "begin: the entry of the lease": Removal(
        "begin_pass", " and is_there(KEYS[1], KEYS[2], held)", "", lease_of_an_entry_that_is_gone
    ),
    "begin: the epoch": Removal("begin_pass", "or '0') + 1)", "or '0') + 0)", zombie_records),
    "begin: ended": Removal("begin_pass", "if HAS_ENDED[state] then", "if false then", finished_call_gets_an_entry),
    "begin: unknown": Removal(
        "begin_pass",
        "if not state then return turned_away('unknown') end",
        "state = state or 'waiting'",
        forgotten_call_gets_an_entry,
    ),
    "begin: parked": Removal("begin_pass", "if state == 'parked' then", "if false then", parked_call_gets_an_entry),
    "begin: what is refused is acknowledged": Removal(
        "begin_pass", "redis.call('XACK', stream, ARGV[1], entry)", "", refused_entry_is_settled
    ),
    "begin: what is refused is deleted": Removal(
        "begin_pass", "redis.call('XDEL', stream, entry)", "", refused_entry_is_settled
    ),
    "begin: the timer": Removal(
        "begin_pass", "drop_timer(KEYS[5], KEYS[6], call_id)", "", pass_begins_before_its_timer
    ),
    "start: what was left of another": Removal(
        "start_call", "redis.call('DEL', status, KEYS[7])", "", call_has_lost_its_status
    ),
    "begin: the lease ends": Removal("begin_pass", "epoch, 'PX', ARGV[8])", "epoch)", lease_runs_out),
    "begin: crashes are forgotten": Removal(
        "begin_pass", "redis.call('HDEL', KEYS[4], place)", "", refused_entry_had_crashed
    ),
}
