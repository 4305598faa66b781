"""The ends of passes, and looking after calls: the histories that go wrong without a check."""

from stagedoor.broker.calls import Ended, Looked
from stagedoor.core.call import CallOutcome, CallState, GoOn, Misfit, Sleep, StepState
from stagedoor.core.outcome import UnknownKind
from stagedoor.core.tenure import Stream
from tests.broker.fences.call_starts import entry_that_had_crashed, signal_meets_a_pass_that_is_about_to_wait, zombie
from tests.broker.fences.call_steps import large_result
from tests.broker.fences.call_words import DONE, FOR_EVER, PARK, SLEEP, entries, looks, lost, seen, sent
from tests.broker.fences.removals import Removal
from tests.broker.flow_harness import (
    begun,
    calls_of,
    done,
    end_lease,
    expire,
    is_now,
    lose_timer,
    make_look_due,
    new_call,
    picture,
    set_field,
    started,
    take_one,
    timers,
)
from tests.broker.harness import Harness, RedisHarness, settled


def zombie_ends(broker: Harness) -> None:
    calls, right, theirs, their_right = zombie(broker)
    assert lost(lambda: calls.end_pass(right, FOR_EVER))
    assert theirs.end_pass(their_right, DONE) == Ended()
    assert lost(lambda: calls.end_pass(right, FOR_EVER)), "and after the other's end it is still no repeat"


def decided_outcome_is_the_end(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.record_outcome(right, CallOutcome(state=CallState.FAILED, error="why"))
    calls.end_pass(right, DONE)
    journal = calls.show("c")
    assert journal is not None
    assert (journal.state, journal.outcome) == (CallState.FAILED, CallOutcome(state=CallState.FAILED, error="why"))


def end_is_repeated(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, SLEEP)
    assert not lost(lambda: calls.end_pass(right, SLEEP))


def step_is_written_with_the_end(broker: Harness) -> None:
    _, calls, _, right = started(broker, most_steps=1)
    calls.end_pass(right, SLEEP, write=is_now("s", StepState.SLEEPING))
    assert seen(calls, "s") is not None


def pass_that_cannot_go_on(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    sent(calls, "1")
    assert calls.end_pass(right, SLEEP, must_leave=True) == Ended()
    assert len(broker.state().critical.entries) == 1


def woken_call_ends(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    sent(calls, "1")
    assert calls.end_pass(right, DONE) == Ended()


def sleep_is_over_already(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, Sleep(until=1.0, waiting_for="x"))
    assert len(broker.state().critical.entries) == 1


def sleeping_call_has_a_timer(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, SLEEP)
    assert list(timers(broker)) == ["flow:c"]


def ended_pass_leaves_nothing(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, FOR_EVER)
    kept = picture(broker)
    assert kept is not None
    assert (kept.lease, entries(broker), broker.state().jobs.pending) == (None, 0, {})


def ended_call_expires(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    kept = picture(broker)
    assert kept is not None
    assert not kept.expires
    calls.end_pass(right, DONE)
    kept = picture(broker)
    assert kept is not None
    assert kept.expires


def suspended_call_is_kept(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, FOR_EVER)
    kept = picture(broker)
    assert kept is not None
    assert not kept.expires


def misfit_is_over(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, Sleep(until=1.0, waiting_for="x", misfit=Misfit(since=1.0, hops=1)))
    again = begun(calls, take_one(worker))
    assert again.journal.misfit is not None
    calls.end_pass(again.right, FOR_EVER)
    journal = calls.show("c")
    assert journal is not None
    assert journal.misfit is None


def call_is_not_due_for_a_look(real: RedisHarness) -> None:
    """Two that look at once: what one has looked after, the other leaves alone."""
    _, calls, _, right = started(real)
    calls.end_pass(right, DONE)
    make_look_due(real)
    calls.look()
    assert calls.look() == Looked()
    reply = calls._scripts["look"](real.link.quick, *_look_at(real))  # type: ignore[attr-defined]  # as if it had been asked for before
    assert reply == [0, 0, 0, 0]


def _look_at(real: RedisHarness) -> tuple[list[str], list[object]]:
    keys = real.keys
    names = [keys.stream, keys.critical, keys.delayed, keys.delayed_body, keys.calls, keys.calls_states]
    return [*names, keys.call_status("c"), keys.call_lease("c")], [30000, 3600000, 1000, "c"]


def timer_is_lost(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, SLEEP)
    lose_timer(broker)
    assert looks(broker, calls).timers == 1
    assert len(timers(broker)) == 1


def lost_timer_is_due(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, SLEEP)
    lose_timer(broker)
    set_field(broker, ".due", "1")
    assert looks(broker, calls).woken == 1
    assert len(broker.state().critical.entries) == 1


def timer_is_there(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, SLEEP)
    set_field(broker, ".due", "1")
    assert looks(broker, calls) == Looked(looked=1)
    assert broker.state().critical.entries == {}


def queued_entry_is_lost(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, GoOn())
    broker.trim(*broker.state().critical.entries, stream=Stream.CRITICAL)
    assert looks(broker, calls).woken == 1


def queued_entry_is_there(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, GoOn())
    assert looks(broker, calls) == Looked(looked=1)


def lease_runs_and_entry_is_gone(broker: Harness) -> None:
    _, calls, claimed, right = started(broker)
    broker.trim(claimed.entry.entry_id)
    assert looks(broker, calls) == Looked(looked=1)
    calls.record_step(right, done("a"))


def lease_is_over_and_entry_is_there(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    end_lease(broker)
    assert looks(broker, calls) == Looked(looked=1)
    calls.record_step(right, done("a"))


def nothing_runs_a_running_call(broker: Harness) -> None:
    _, calls, claimed, _ = started(broker)
    end_lease(broker)
    broker.trim(claimed.entry.entry_id)
    assert looks(broker, calls).woken == 1
    assert entries(broker) == 1


def parked_call_is_looked_at(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, PARK)
    assert looks(broker, calls) == Looked(looked=1)
    assert entries(broker) == 0


def waiting_call_is_looked_at(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, FOR_EVER)
    assert looks(broker, calls) == Looked(looked=1)
    assert entries(broker) == 0


def ended_call_is_looked_at(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, DONE)
    assert looks(real, calls) == Looked(looked=1)
    score = real.client.zscore(real.keys.calls, "c")
    assert score is not None
    assert score / 1000 > calls_now(real) + 6 * 86400, "when it expires, and not before"


def calls_now(real: RedisHarness) -> float:
    return float(real.client.time()[0])


def expired_call_is_counted_off(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, SLEEP)
    expire(broker)
    looks(broker, calls)
    assert sum(calls.counts().values()) == 0
    assert (timers(broker), calls.list_calls().calls) == ({}, ())
    assert calls.look() == Looked()


def handed_back_entry_was_promoted(broker: Harness) -> None:
    worker = broker.worker()
    calls = calls_of(broker, worker)
    calls.start(new_call())
    worker.settle(1, [settled(take_one(worker), UnknownKind(0, 1))])
    worker.promote()
    assert looks(broker, calls) == Looked(looked=1)
    assert entries(broker) == 1
    assert looks(broker, calls).woken == 1, "nobody has met it again"


def ended_pass_had_crashed(broker: Harness) -> None:
    calls_of(broker).start(new_call())
    broker.worker("other")
    worker, claimed = entry_that_had_crashed(broker)
    calls = calls_of(broker, worker)
    calls.end_pass(begun(calls, claimed).right, FOR_EVER)
    assert broker.state().crashes == {}


def woken_call_has_no_entry_in_hand(broker: Harness) -> None:
    _, calls, claimed, _ = started(broker)
    end_lease(broker)
    broker.trim(claimed.entry.entry_id)
    assert looks(broker, calls).woken == 1
    kept = picture(broker)
    assert kept is not None
    assert ".entry" not in kept.status, "the one that it waits for is another"


def ended_call_has_lost_its_end(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, DONE)
    real.client.persist(real.keys.call_status("c"))
    assert looks(real, calls) == Looked(looked=1)
    assert real.client.pttl(real.keys.call_status("c")) > 0


def value_comes_with_the_end(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, SLEEP, write=done("s", value="[]"))
    journal = calls.show("c")
    assert journal is not None
    assert journal.value("s") == "[]"


def timer_leaves_no_body(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    calls.end_pass(right, SLEEP)
    calls.wake("c")
    begun(calls, take_one(worker))
    assert real.client.hlen(real.keys.delayed_body) == 0


REMOVALS: dict[str, Removal] = {
    "end: the right": Removal("end_pass", "if not may_write(status, epoch) then", "if false then", zombie_ends),
    "end: a repeat": Removal("end_pass", "and 'ended' or 'lost'}", "and 'lost' or 'lost'}", end_is_repeated),
    "end: no repeat of another's": Removal("end_pass", "last[1] == epoch and last[2] == epoch", "last[2]", zombie_ends),
    "end: its step": Removal("end_pass", "if ARGV[17] ~= '' then", "if false then", step_is_written_with_the_end),
    "end: the wakes": Removal(
        "end_pass",
        "(redis.call('HGET', status, '.wakes') or '0') ~= ARGV[4]",
        "false",
        signal_meets_a_pass_that_is_about_to_wait,
    ),
    "end: it must leave": Removal("end_pass", "if ARGV[5] ~= '1' then", "if true then", pass_that_cannot_go_on),
    "end: it leaves an entry": Removal("end_pass", "  end\n  verb = 'go'", "  end", pass_that_cannot_go_on),
    "end: what is over does not ask": Removal("end_pass", "if not is_over and ", "if ", woken_call_ends),
    "end: a sleep that is over": Removal(
        "end_pass", "if verb == 'sleep' and due <= now then verb = 'go' end", "", sleep_is_over_already
    ),
    "end: the timer": Removal(
        "end_pass", "set_timer(KEYS[4], KEYS[5], status, call_id, ARGV[11], '2')", "", sleeping_call_has_a_timer
    ),
    "end: the lease": Removal("end_pass", "redis.call('DEL', KEYS[10])", "", ended_pass_leaves_nothing),
    "end: the entry is acknowledged": Removal(
        "end_pass", "redis.call('XACK', KEYS[tonumber(number)], ARGV[1], entry)", "", ended_pass_leaves_nothing
    ),
    "end: the entry is deleted": Removal(
        "end_pass", "redis.call('XDEL', KEYS[tonumber(number)], entry)", "", ended_pass_leaves_nothing
    ),
    "end: what was decided": Removal("end_pass", "known[2] or verb", "verb", decided_outcome_is_the_end),
    "end: what was decided is not written again": Removal(
        "end_pass", "if not known[2] then", "if true then", decided_outcome_is_the_end
    ),
    "end: large": Removal(
        "end_pass", "if not take_bytes(status, #ARGV[14]", "if false and not take_bytes(status, #ARGV[14]", large_result
    ),
    "end: it expires": Removal("end_pass", "if HAS_ENDED[next_state] then", "if false then", ended_call_expires),
    "end: not before": Removal("end_pass", "if HAS_ENDED[next_state] then", "if true then", suspended_call_is_kept),
    "end: a misfit": Removal("end_pass", "'.entry', '.misfit'", "'.entry'", misfit_is_over),
    "look: somebody has": Removal(
        "look", "if score and score <= now + 1 then", "if score then", call_is_not_due_for_a_look
    ),
    "look: a timer": Removal("look", "set_timer(KEYS[3], KEYS[4], status, call_id, known[4], '2')", "", timer_is_lost),
    "look: a timer that is due": Removal("look", "if due <= now then return nil end", "", lost_timer_is_due),
    "look: a timer that is there": Removal(
        "look", "if redis.call('ZSCORE', KEYS[3], timer_of(call_id)) then", "if false then", timer_is_there
    ),
    "look: an entry that is lost": Removal(
        "look", "if is_queued(KEYS[1], KEYS[2], KEYS[3], queued) then", "if true then", queued_entry_is_lost
    ),
    "look: an entry that is there": Removal(
        "look", "if is_queued(KEYS[1], KEYS[2], KEYS[3], queued) then", "if false then", queued_entry_is_there
    ),
    "look: a lease": Removal("look", "redis.call('GET', lease) or ", "", lease_runs_and_entry_is_gone),
    "look: an entry of a pass": Removal(
        "look", " or is_there(KEYS[1], KEYS[2], entry) then", " then", lease_is_over_and_entry_is_there
    ),
    "look: neither": Removal(
        "look", "if not again then", "again = again or now\n      if not again then", nothing_runs_a_running_call
    ),
    "look: for a signal": Removal(
        "look",
        "if not due then return now + tonumber(ARGV[2]) end",
        "if not due then return nil end",
        waiting_call_is_looked_at,
    ),
    "look: a parked call": Removal(
        "look",
        "if not due then return now + tonumber(ARGV[2]) end",
        "if not due then return nil end",
        parked_call_is_looked_at,
    ),
    "look: ended": Removal("look", "elseif HAS_ENDED[state] then", "elseif false then", ended_call_is_looked_at),
    "look: expired": Removal("look", "    forget(call_id, score)\n", "", expired_call_is_counted_off),
    "look: its count": Removal("look", "if own == number then", "if false then", expired_call_is_counted_off),
    "look: its timer": Removal("look", "drop_timer(KEYS[3], KEYS[4], call_id)", "", expired_call_is_counted_off),
    "look: missed once": Removal(
        "look", "if string.sub(queued, 1, 2) ~= 'd:' or ", "if true or ", handed_back_entry_was_promoted
    ),
    "look: missed twice": Removal(
        "look", "redis.call('HSET', status, '.missed', queued)", "", handed_back_entry_was_promoted
    ),
    "end: crashes are forgotten": Removal(
        "end_pass", "redis.call('HDEL', KEYS[3], known[1])", "", ended_pass_had_crashed
    ),
    "look: the entry that was in hand": Removal(
        "look", "redis.call('HDEL', status, '.entry')", "", woken_call_has_no_entry_in_hand
    ),
    "look: an end that was lost": Removal("look", "if left < 0 then", "if false then", ended_call_has_lost_its_end),
    "look: its place": Removal("look", "redis.call('ZREM', KEYS[5], call_id)", "", expired_call_is_counted_off),
    "end: the value of its step": Removal(
        "end_pass", "value = ARGV[20] == '1' and ARGV[21] or nil", "value = nil", value_comes_with_the_end
    ),
    "begin: the body of the timer": Removal(
        "begin_pass", "redis.call('HDEL', bodies, timer_of(call_id))", "", timer_leaves_no_body
    ),
}
