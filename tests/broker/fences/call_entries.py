"""What settling and putting back do to calls: the histories that go wrong without a check."""

from collections.abc import Callable

from stagedoor.broker.calls import Again, Calls, Pass
from stagedoor.broker.dead_letters import DeadLetters
from stagedoor.broker.deliveries import Answer
from stagedoor.core.call import CallState
from stagedoor.core.outcome import Dead, Outcome, Reason, RetryLater, UnknownKind
from stagedoor.core.tenure import Stream
from tests.broker.fences.call_words import DONE, ENTRY, FOR_EVER, SLEEP, entries, lost
from tests.broker.fences.removals import Removal
from tests.broker.fences.words import fails, spoil
from tests.broker.flow_harness import calls_of, done, end_lease, new_call, picture, set_field, started, take_one, timers
from tests.broker.harness import Harness, RedisHarness, accepted, settled


def both_held(broker: Harness, *, lease: bool) -> tuple[Calls, Pass, Callable[[Outcome], None]]:
    """Return a pass that runs, and how to settle another entry of its call, which is held too."""
    worker, calls, _, right = started(broker)
    if not lease:
        end_lease(broker)
    broker.add(ENTRY, Stream.CRITICAL)
    stray = take_one(worker)

    def settle(outcome: Outcome) -> None:
        worker.settle(1, [settled(stray, outcome)])

    return calls, right, settle


def entry_dies(broker: Harness) -> None:
    worker, calls, claimed, right = started(broker)
    worker.settle(1, [settled(claimed, Dead(Reason.POISON, "x"))])
    kept = picture(broker)
    assert kept is not None
    assert (kept.status[".state"], kept.lease) == ("parked", None)
    assert lost(lambda: calls.record_step(right, done("late")))


def letters_of_a_parked_call(real: RedisHarness) -> tuple[Calls, DeadLetters]:
    worker, calls, claimed, _ = started(real)
    worker.settle(1, [settled(claimed, Dead(Reason.POISON, "x"))])
    return calls, DeadLetters(real.link, real.keys)


def letter_of_a_parked_call_is_put_back(real: RedisHarness) -> None:
    _, letters = letters_of_a_parked_call(real)
    letters.requeue(list(letters.newest_first()))
    kept = picture(real)
    assert kept is not None
    assert (kept.status[".state"], kept.counted_as) == ("waiting", CallState.WAITING)


def letter_of_a_resumed_call_is_put_back(real: RedisHarness) -> None:
    calls, letters = letters_of_a_parked_call(real)
    calls.resume("c")
    letters.requeue(list(letters.newest_first()))
    assert (real.length(), letters.count()) == (0, 1)


def letter_of_an_ended_call_is_put_back(real: RedisHarness) -> None:
    _, letters = letters_of_a_parked_call(real)
    set_field(real, ".state", "cancelled")
    letters.requeue(list(letters.newest_first()))
    kept = picture(real)
    assert kept is not None
    assert kept.status[".state"] == "cancelled"


def entry_of_an_ended_call_dies(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, DONE)
    broker.add(ENTRY)
    worker.settle(1, [settled(take_one(worker), Dead(Reason.POISON, "x"))])
    kept = picture(broker)
    assert kept is not None
    assert kept.status[".state"] == "done"


def other_entry_dies(broker: Harness) -> None:
    calls, right, settle = both_held(broker, lease=True)
    settle(Dead(Reason.POISON, "x"))
    assert not lost(lambda: calls.record_step(right, done("a")))


def one_of_three_has_lapsed(broker: Harness) -> None:
    worker, calls = broker.worker(), calls_of(broker)
    for name in ("a", "b", "c"):
        calls.start(new_call(name))
    claimed = worker.read(3).claimed
    worker.release([claimed[1]])
    worker.settle(1, [settled(one, Dead(Reason.POISON, "x")) for one in claimed])
    states = [line.call_id for line in calls.list_calls(state=CallState.PARKED).calls]
    assert sorted(states) == ["a", "c"]


def dead_entry_leaves_no_timer(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, SLEEP)
    calls.wake("c")
    worker.settle(1, [settled(take_one(worker), Dead(Reason.POISON, "x"))])
    assert timers(broker) == {}


def other_entry_is_handed_back(broker: Harness) -> None:
    calls, right, settle = both_held(broker, lease=False)
    settle(UnknownKind(0, 1))
    assert broker.state().delayed == {}
    assert not lost(lambda: calls.record_step(right, done("a")))


def two_entries_are_handed_back(broker: Harness) -> None:
    worker = broker.worker()
    calls_of(broker).start(new_call())
    broker.add(ENTRY)
    worker.settle(1, [settled(one, UnknownKind(0, 1)) for one in worker.read(2).claimed])
    assert entries(broker) == 1


def pass_fails_and_is_retried(broker: Harness) -> None:
    worker, calls, claimed, right = started(broker)
    worker.settle(1, [settled(claimed, RetryLater(0, 2, "x"))])
    assert lost(lambda: calls.record_step(right, done("late")))


def entry_of_an_ended_call_is_handed_back(broker: Harness) -> None:
    worker, calls, _, right = started(broker)
    calls.end_pass(right, DONE)
    broker.add(ENTRY)
    worker.settle(1, [settled(take_one(worker), UnknownKind(0, 1))])
    kept = picture(broker)
    assert kept is not None
    assert kept.status[".state"] == "done"


def delay_cannot_be_written(real: RedisHarness, broken: str) -> None:
    worker, _, claimed, _ = started(real)
    spoil(real, broken)
    assert worker.settle(1, [settled(claimed, RetryLater(0, 2, "x"))]).answers == (Answer.FAILED,)
    assert list(real.state().jobs.pending) == [claimed.entry.entry_id]
    real.client.delete(broken)
    assert worker.settle(2, [settled(claimed, RetryLater(0, 2, "x"))]).answers == accepted(1)
    assert (entries(real), real.state().jobs.pending) == (1, {})


def due_time_cannot_be_written(real: RedisHarness) -> None:
    delay_cannot_be_written(real, real.keys.delayed)


def delayed_body_cannot_be_written(real: RedisHarness) -> None:
    delay_cannot_be_written(real, real.keys.delayed_body)


def settled_beside_a_broken_key(real: RedisHarness, outcome: Outcome, broken: str) -> None:
    """What cannot be said about the call is no reason to keep its entry, whose place is taken by now."""
    worker, _, claimed, _ = started(real)
    spoil(real, broken)
    batch = [settled(claimed, outcome)]
    assert not fails(lambda: worker.settle(1, batch))
    assert worker.settle(1, batch).answers == accepted(1)
    state = real.state()
    assert (state.jobs.pending, len(state.delayed) + len(state.dead)) == ({}, 1)


def retried_call_cannot_be_indexed(real: RedisHarness) -> None:
    settled_beside_a_broken_key(real, RetryLater(0, 2, "x"), real.keys.calls)


def retried_call_is_none(real: RedisHarness) -> None:
    settled_beside_a_broken_key(real, RetryLater(0, 2, "x"), real.keys.call_status("c"))


def dead_call_is_none(real: RedisHarness) -> None:
    settled_beside_a_broken_key(real, Dead(Reason.POISON, "x"), real.keys.call_status("c"))


def letter_of_a_call_cannot_be_written(broker: Harness) -> None:
    worker, calls, claimed, right = started(broker)
    broker.break_dead()
    batch = [settled(claimed, Dead(Reason.POISON, "x"))]
    assert not fails(lambda: worker.settle(1, batch))
    assert worker.settle(1, batch).answers == (Answer.FAILED,)
    calls.record_step(right, done("a"))


def retried_pass_dies(broker: Harness) -> None:
    """Its entry comes back under another id, and the lease of the pass before is still there."""
    worker, calls, claimed, _ = started(broker)
    worker.settle(1, [settled(claimed, RetryLater(0, 2, "x"))])
    worker.promote()
    worker.settle(2, [settled(take_one(worker), Dead(Reason.POISON, "x"))])
    assert [line.call_id for line in calls.list_calls(state=CallState.PARKED).calls] == ["c"]


def only_entry_is_handed_back(broker: Harness) -> None:
    """Somebody has deleted the entry that the call waits for, and there is this one."""
    worker = broker.worker()
    calls_of(broker).start(new_call())
    broker.trim(*broker.state().jobs.entries)
    broker.add(ENTRY)
    worker.settle(1, [settled(one, UnknownKind(0, 1)) for one in worker.read(2).claimed])
    assert len(broker.state().delayed) == 1


def entry_beside_a_pass_is_handed_back(broker: Harness) -> None:
    calls, right, settle = both_held(broker, lease=True)
    settle(UnknownKind(0, 1))
    assert isinstance(calls.end_pass(right, FOR_EVER), Again), "whoever added it had something to say"


def dead_pass_ends(broker: Harness) -> None:
    worker, calls, claimed, right = started(broker)
    worker.settle(1, [settled(claimed, Dead(Reason.POISON, "x"))])
    assert lost(lambda: calls.end_pass(right, DONE))


REST = "number, id, string.sub(argument, #call_id + #reason + 3))"

REMOVALS: dict[str, Removal] = {
    "requeue: the call is parked": Removal(
        "requeue", "if state ~= 'parked' then return 'open' end", "", letter_of_a_resumed_call_is_put_back
    ),
    "requeue: an ended call": Removal(
        "requeue",
        "if HAS_ENDED[state] then return 'ended' end\n  if state ~= 'parked' then return 'open' end",
        "",
        letter_of_an_ended_call_is_put_back,
    ),
    "requeue: the call goes on": Removal(
        "requeue",
        "if status then resume(status, call_id, number .. ':' .. id) end",
        "",
        letter_of_a_parked_call_is_put_back,
    ),
    "settle: a dead entry parks": Removal(
        "settle",
        "redis.call('HSET', status, '.state', 'parked',",
        "redis.call('HSET', status, '.x', 'parked',",
        entry_dies,
    ),
    "settle: its lease": Removal("settle", "redis.call('DEL', lease)\n  drop_timer", "drop_timer", entry_dies),
    "settle: an ended call": Removal(
        "settle",
        "if not state or HAS_ENDED[state] or state == 'parked' then return end",
        "",
        entry_of_an_ended_call_dies,
    ),
    "settle: another entry": Removal(
        "settle", "if held and string.match(held, '^%S+') ~= place then return end", "", other_entry_dies
    ),
    "settle: each its own": Removal(
        "settle",
        "if verb == 'park' or verb == 'again' then call_at = call_at + 2 end",
        "if holds(KEYS[tonumber(number)], group, consumer, id, tonumber(deliveries)) then call_at = call_at + 2 end",
        one_of_three_has_lapsed,
    ),
    "settle: its timer": Removal("settle", "drop_timer(KEYS[6], KEYS[7], call_id)", "", dead_entry_leaves_no_timer),
    "settle: handed back beside a pass": Removal(
        "settle",
        "if known[1] == 'running' then return known[3] ~= place and is_there(KEYS[1], KEYS[2], known[3]) end",
        "",
        other_entry_is_handed_back,
    ),
    "settle: handed back twice": Removal(
        "settle", "if is_open and has_another(known, place) then", "if false then", two_entries_are_handed_back
    ),
    "settle: a pass that is retried": Removal(
        "settle", "if is_open then pcall(wait_delayed", "if false then pcall(wait_delayed", pass_fails_and_is_retried
    ),
    "settle: handed back after the end": Removal(
        "settle", "not HAS_ENDED[known[1]] and ", "", entry_of_an_ended_call_is_handed_back
    ),
    "settle: a retry that could not be written": Removal(
        "settle",
        "local refusal = verbs.delay(" + REST + "\n  if refusal then return refusal end",
        "verbs.delay(" + REST,
        due_time_cannot_be_written,
    ),
    "settle: a retry whose body could not be written": Removal(
        "settle",
        "local refusal = verbs.delay(" + REST + "\n  if refusal then return refusal end",
        "verbs.delay(" + REST,
        delayed_body_cannot_be_written,
    ),
    "settle: a retried call that cannot be indexed": Removal(
        "settle",
        "if is_open then pcall(wait_delayed, status,",
        "if is_open then wait_delayed(status,",
        retried_call_cannot_be_indexed,
    ),
    "settle: a retried call that is none": Removal(
        "settle",
        "redis.pcall('HMGET', status, '.state', '.queued', '.entry')",
        "redis.call('HMGET', status, '.state', '.queued', '.entry')",
        retried_call_is_none,
    ),
    "settle: a dead call that is none": Removal("settle", "pcall(park, ", "park(", dead_call_is_none),
    "settle: a dead call whose letter could not be written": Removal(
        "settle",
        "bury(string.sub(argument, space + 1))\n  if refusal then return refusal end",
        "bury(string.sub(argument, space + 1))",
        letter_of_a_call_cannot_be_written,
    ),
    "settle: the lease of a pass that is retried": Removal(
        "settle",
        "  redis.call('DEL', lease)\n  index(KEYS[8], KEYS[9], call_id, state, 'waiting', due)",
        "  index(KEYS[8], KEYS[9], call_id, state, 'waiting', due)",
        retried_pass_dies,
    ),
    "settle: the only entry": Removal(
        "settle", " and is_queued(KEYS[1], KEYS[2], KEYS[6], known[2])", "", only_entry_is_handed_back
    ),
    "settle: the pass is told": Removal(
        "settle", "redis.call('HINCRBY', status, '.wakes', 1)", "", entry_beside_a_pass_is_handed_back
    ),
    "end: no repeat where none has ended": Removal(
        "end_pass", "last[1] == epoch and last[2] == epoch", "last[1] == epoch", dead_pass_ends
    ),
}
