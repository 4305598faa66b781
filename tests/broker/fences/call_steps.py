"""What a pass writes while it runs: the histories that go wrong without a check."""

from stagedoor.broker.calls import Calls, Kept, Running, TakenSignal, TimedOut
from stagedoor.core.call import CallOutcome, CallState, Finish, StepState
from tests.broker.fences.call_starts import cancelled_twice, zombie, zombie_records
from tests.broker.fences.call_words import FOR_EVER, LATER_AT, lost, seen, sent, taken, too_much
from tests.broker.fences.removals import Removal
from tests.broker.fences.words import fails, spoil
from tests.broker.flow_harness import (
    begun,
    calls_of,
    done,
    end_lease,
    is_now,
    new_call,
    picture,
    set_field,
    started,
    take_one,
)
from tests.broker.harness import Harness, RedisHarness

MAY = "if not may_write(KEYS[1], ARGV[1]) then return 'lost' end"
STATE = "known[1] == 'running' and "
EPOCH = " and known[2] == epoch"


def zombie_decides(broker: Harness) -> None:
    calls, right, _, _ = zombie(broker)
    assert lost(lambda: calls.record_outcome(right, CallOutcome(state=CallState.FAILED)))


def zombie_takes_a_signal(broker: Harness) -> None:
    calls, right, theirs, their_right = zombie(broker)
    sent(calls, "1")
    assert lost(lambda: taken(calls, right))
    assert taken(theirs, their_right) == TakenSignal("1")


def zombie_keeps(broker: Harness) -> None:
    calls, right, _, _ = zombie(broker)
    assert calls.keep([Running(right)]) == (Kept(holds=False),)


def pass_that_has_ended_records(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.end_pass(right, FOR_EVER)
    assert lost(lambda: calls.record_step(right, done("late")))


def step_is_something_else(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.record_step(right, is_now("a", StepState.RETRY))
    assert lost(lambda: calls.record_step(right, done("a", seen=None)))


def own_heartbeat_marks_a_step(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.keep([Running(right, (is_now("a", StepState.RUNNING),))])
    assert not lost(lambda: calls.record_step(right, done("a")))


def late_heartbeat_meets_a_recorded_step(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.record_step(right, is_now("a", StepState.RETRY))
    calls.keep([Running(right, (is_now("a", StepState.RUNNING),))])
    step = seen(calls, "a")
    assert step is not None
    assert step.state is StepState.RETRY


def write_is_repeated(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.record_step(right, done("a"))
    assert not lost(lambda: calls.record_step(right, done("a")))


def write_is_repeated_with_another_value(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.record_step(right, done("a", value="1"))
    assert lost(lambda: calls.record_step(right, done("a", value="2")))


def value_comes_with_its_step(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.record_step(right, done("a", value="[]"))
    journal = calls.show("c")
    assert journal is not None
    assert journal.value("a") == "[]"


def many_steps(broker: Harness) -> None:
    _, calls, _, right = started(broker, most_steps=1)
    calls.record_step(right, done("a", 1))
    assert too_much(lambda: calls.record_step(right, done("b", 2)))


def large_values(broker: Harness) -> None:
    _, calls, _, right = started(broker, most_call_bytes=300)
    calls.record_step(right, done("a", 1, value="1" * 150))
    assert too_much(lambda: calls.record_step(right, done("b", 2, value="1" * 150)))


def large_result(broker: Harness) -> None:
    _, calls, _, right = started(broker, most_call_bytes=100)
    outcome = CallOutcome(state=CallState.DONE, result="1" * 200)
    assert too_much(lambda: calls.record_outcome(right, outcome))
    assert too_much(lambda: calls.end_pass(right, Finish(outcome=outcome)))


def outcome_is_decided_once(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    calls.record_outcome(right, CallOutcome(state=CallState.FAILED, error="why"))
    assert lost(lambda: calls.record_outcome(right, CallOutcome(state=CallState.DONE)))


def signal_is_taken_once(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    sent(calls, "1", "2")
    assert [taken(calls, right, key=key) for key in ("w1", "w2")] == [TakenSignal("1"), TakenSignal("2")]
    journal = calls.show("c")
    assert journal is not None
    assert journal.mailbox == {}


def take_is_repeated(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    sent(calls, "1", "2")
    writes = [is_now("w", state) for state in (StepState.DONE, StepState.WAITING)]

    def take() -> None:
        found = calls.take_signal(right, "go", taken=writes[0], timed_out=None, waiting=writes[1])
        assert found == TakenSignal("1")

    take()
    assert not lost(take)


def time_out_is_repeated(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    states = (StepState.DONE, StepState.FAILED, StepState.WAITING)
    got, over, waiting = (is_now("w", state, due_at=1.0) for state in states)
    assert calls.take_signal(right, "go", taken=got, timed_out=over, waiting=waiting) == TimedOut()
    sent(calls, "1")
    assert not lost(lambda: calls.take_signal(right, "go", taken=got, timed_out=over, waiting=waiting))


def signal_and_time_out_meet(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    sent(calls, "1")
    assert taken(calls, right, due_at=1.0) == TakenSignal("1")


def time_is_not_over_yet(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    assert taken(calls, right, due_at=LATER_AT) != TimedOut()


def lease_is_renewed(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    end_lease(broker)
    calls.keep([Running(right)])
    kept = picture(broker)
    assert kept is not None
    assert kept.lease is not None


def is_in_the_mailbox(calls: Calls, signal: str) -> bool:
    journal = calls.show("c")
    return journal is not None and journal.mailbox == {"go": (signal,)}


def signal_for_one_step_too_many(broker: Harness) -> None:
    _, calls, _, right = started(broker, most_steps=1)
    calls.record_step(right, done("a"))
    sent(calls, "1")
    assert too_much(lambda: taken(calls, right))
    assert is_in_the_mailbox(calls, "1")


def signal_for_a_full_call(broker: Harness) -> None:
    _, calls, _, right = started(broker, most_call_bytes=12)
    sent(calls, "1")
    assert too_much(lambda: taken(calls, right))
    assert is_in_the_mailbox(calls, "1")


def signal_for_a_step_that_is_something_else(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    got, waiting = is_now("w", StepState.DONE), is_now("w", StepState.WAITING)
    calls.record_step(right, is_now("w", StepState.RETRY))
    sent(calls, "1")
    assert lost(lambda: calls.take_signal(right, "go", taken=got, timed_out=None, waiting=waiting))
    assert is_in_the_mailbox(calls, "1")


def signal_moves_in_a_full_call(broker: Harness) -> None:
    """What is taken out of the mailbox makes room for the value of the step."""
    _, calls, _, right = started(broker, most_call_bytes=700)
    sent(calls, "1" * 400)
    assert not too_much(lambda: taken(calls, right))


def full_call_records_less(broker: Harness) -> None:
    """The limit was lowered: what shrinks a call is no reason to refuse it."""
    worker, calls, _, right = started(broker)
    calls.record_step(right, is_now("a", StepState.RETRY, error="x" * 400))
    small = calls_of(broker, worker, most_call_bytes=50)
    assert not too_much(lambda: small.record_step(right, done("a", seen=seen(calls, "a"))))


def beat_is_kept(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    set_field(broker, ".beat", "1")
    calls.keep([Running(right)])
    kept = picture(broker)
    assert kept is not None
    assert int(kept.status[".beat"]) > 1


def two_are_kept_and_one_is_none(real: RedisHarness) -> None:
    worker, calls, _, right = started(real)
    calls.start(new_call("other"))
    other = begun(calls, take_one(worker), "other").right
    spoil(real, real.keys.call_status("c"))
    kept: list[Kept] = []
    assert not fails(lambda: kept.extend(calls.keep([Running(right), Running(other)])))
    assert [one.holds for one in kept] == [False, True]


def decided_result_is_kept(broker: Harness) -> None:
    _, calls, _, right = started(broker)
    outcome = CallOutcome(state=CallState.DONE, result="[1]")
    calls.record_outcome(right, outcome)
    calls.end_pass(right, Finish(outcome=outcome))
    journal = calls.show("c")
    assert journal is not None
    assert journal.outcome == outcome


REMOVALS: dict[str, Removal] = {
    "record: the epoch": Removal("record_step", EPOCH, "", zombie_records),
    "record: it runs": Removal("record_step", STATE, "", pass_that_has_ended_records),
    "record: the right": Removal("record_step", MAY, "", zombie_records),
    "record: as it was seen": Removal(
        "record_step",
        "if words ~= write.seen and words ~= 'running ' .. epoch then return 'lost' end",
        "",
        step_is_something_else,
    ),
    "record: its own mark": Removal("record_step", " and words ~= 'running ' .. epoch", "", own_heartbeat_marks_a_step),
    "record: a repeat": Removal("record_step", "if current == write.text and (", "if false and (", write_is_repeated),
    "record: a repeat with another value": Removal(
        "record_step",
        "redis.call('HGET', meta, 'v:' .. write.key) == write.value",
        "true",
        write_is_repeated_with_another_value,
    ),
    "record: its value": Removal(
        "record_step",
        "if write.value then redis.call('HSET', meta, 'v:' .. write.key, write.value) end",
        "",
        value_comes_with_its_step,
    ),
    "record: many": Removal("record_step", ">= limits.steps then", ">= 1e9 then", many_steps),
    "record: large": Removal("record_step", "if not take_bytes(status, more, limits.bytes)", "if false", large_values),
    "record: a cancel": Removal(
        "record_step", "== 1 and 'cancel' or 'ok'", "== 2 and 'cancel' or 'ok'", cancelled_twice
    ),
    "decide: the right": Removal("decide", MAY, "", zombie_decides),
    "decide: once": Removal("decide", "if decided then", "if false then", outcome_is_decided_once),
    "decide: large": Removal(
        "decide", "if not take_bytes(KEYS[1]", "if false and not take_bytes(KEYS[1]", large_result
    ),
    "take: the right": Removal(
        "take_signal", "if not may_write(status, ARGV[1]) then return {'lost'} end", "", zombie_takes_a_signal
    ),
    "take: the letter goes": Removal("take_signal", "redis.call('HDEL', meta, letter)", "", signal_is_taken_once),
    "take: the next one": Removal(
        "take_signal", "redis.call('HSET', status, '.out:' .. name, number)", "", signal_is_taken_once
    ),
    "take: a repeat": Removal("take_signal", "if current == ARGV[8] then", "if false then", take_is_repeated),
    "take: a repeat of a time out": Removal(
        "take_signal", "if current and current == ARGV[9] then", "if false then", time_out_is_repeated
    ),
    "take: the signal wins": Removal(
        "take_signal",
        "if value then\n",
        "if value and (ARGV[5] == '' or now_ms() < tonumber(ARGV[5])) then\n",
        signal_and_time_out_meet,
    ),
    "take: the time": Removal("take_signal", "now_ms() >= tonumber(ARGV[5])", "true", time_is_not_over_yet),
    "keep: the right": Removal("keep", "if not may_write(status, epoch) then return 'lost' end", "", zombie_keeps),
    "keep: the lease": Removal(
        "keep", "redis.call('SET', lease, (known[1] or '') .. ' ' .. epoch, 'PX', ARGV[1])", "", lease_is_renewed
    ),
    "keep: what is recorded": Removal(
        "keep",
        "if words ~= write.seen and words ~= 'running ' .. epoch then return 'lost' end",
        "",
        late_heartbeat_meets_a_recorded_step,
    ),
    "take: one step too many": Removal(
        "take_signal", "if reply[1] == 'taken' then", "if true then", signal_for_one_step_too_many
    ),
    "take: too large": Removal("take_signal", "if reply[1] == 'taken' then", "if true then", signal_for_a_full_call),
    "take: a step that is something else": Removal(
        "take_signal", "if reply[1] == 'taken' then", "if true then", signal_for_a_step_that_is_something_else
    ),
    "take: the room in the mailbox": Removal(
        "take_signal", "value, #name + #value)", "value, 0)", signal_moves_in_a_full_call
    ),
    "record: less than before": Removal("record_step", "if more > 0 and ", "if ", full_call_records_less),
    "keep: the beat": Removal("keep", "redis.call('HSET', status, '.beat', now)", "", beat_is_kept),
    "keep: each by itself": Removal(
        "keep",
        "local is_sound, answer = pcall(keep, ",
        "local is_sound, answer = true, keep(",
        two_are_kept_and_one_is_none,
    ),
    "decide: the result": Removal(
        "decide", "if result then redis.call('HSET', KEYS[2], 'result', result) end", "", decided_result_is_kept
    ),
}
