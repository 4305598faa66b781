"""The flow journal on a Redis that is full, answers something else, holds other keys, or has very much to do."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from stagedoor.broker.calls import Again, Calls, Ended, Looked, Pass, Running, TakenSignal, Told
from stagedoor.broker.redis_calls import _whole
from stagedoor.core.call import CallOutcome, CallState, Finish, StepState, Wait
from stagedoor.core.entry import Claimed
from stagedoor.errors import BrokerError, BrokerUnavailable, LeaseLost
from tests.broker.flow_harness import (
    begun,
    calls_of,
    done,
    is_now,
    lose_timer,
    make_look_due,
    new_call,
    started,
    take_one,
    timers,
)
from tests.broker.harness import RedisHarness
from tests.broker.test_misfit_replies import REPLIES, spoil
from tests.support.redis_server import StartRedis

pytestmark = pytest.mark.redis

FOR_EVER = Wait(waiting_for="signal go")


def take(calls: Calls, right: Pass) -> object:
    states = (StepState.DONE, StepState.FAILED, StepState.WAITING)
    got, over, waiting = (is_now("w", state, due_at=4e9) for state in states)
    return calls.take_signal(right, "go", taken=got, timed_out=over, waiting=waiting)


CALLS: dict[str, tuple[str, Callable[[Calls, Claimed, Pass], object]]] = {
    "start": ("start_call", lambda calls, _, __: calls.start(new_call("other"))),
    "wake": ("wake", lambda calls, _, __: calls.wake("c")),
    "begin_pass": ("begin_pass", lambda calls, claimed, _: calls.begin_pass(claimed.tenure, "c")),
    "record_step": ("record_step", lambda calls, _, right: calls.record_step(right, done("a"))),
    "record_outcome": (
        "decide",
        lambda calls, _, right: calls.record_outcome(right, CallOutcome(state=CallState.DONE)),
    ),
    "take_signal": ("take_signal", lambda calls, _, right: take(calls, right)),
    "end_pass": ("end_pass", lambda calls, _, right: calls.end_pass(right, FOR_EVER)),
    "keep": ("keep", lambda calls, _, right: calls.keep([Running(right)])),
    "look": ("look", lambda calls, _, __: calls.look()),
}


@pytest.mark.parametrize("verb", CALLS)
def test_a_reply_that_does_not_fit_is_a_call_that_nothing_is_known_of(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """It may fit by chance; what is raised else must be something that a pass is prepared for."""
    script, act = CALLS[verb]
    _, calls, claimed, right = started(real)
    for reply in (*REPLIES.values(), [b"begun", b"x", 1], [b"again", 1], [b"taken"], b"\xff", [b"created", 1, 2]):
        make_look_due(real)
        with monkeypatch.context() as patch, contextlib.suppress(BrokerUnavailable, LeaseLost, BrokerError):
            spoil(patch, script, reply)
            act(calls, claimed, right)
    make_look_due(real)
    spoil(monkeypatch, script, {"no": "reply"})
    with pytest.raises(BrokerUnavailable, match="does not fit"):
        act(calls, claimed, right)


def test_names_and_values_of_any_bytes_are_read_as_they_are(real: RedisHarness) -> None:
    """Both ways of reading a call whole give what its keys hold: separators, nothing, half characters, a lot."""
    _, calls, claimed, _ = started(real)
    odd: dict[bytes, bytes] = {
        b"v:1 2\n3": b"",
        b"v:": b"4 5\n",
        b"v:\xc3": b"\xfc\x00\r\n",
        "v:ü".encode(): "ü€𝄞".encode() * 9,
        b"v:x": b"x" * 99,
    }
    for name, value in odd.items():
        real.client.hset(real.keys.call_meta("c"), name, value)
    real.client.hset(real.keys.call_status("c"), "a 1\n", 'done 1 {"kind":"step"}')

    read = begun(calls, claimed)
    assert read.journal == calls.show("c")
    for name, value in odd.items():
        assert read.journal.meta[name.decode("utf-8", "replace")] == value.decode("utf-8", "replace")
    calls.wake("c")
    again = calls.end_pass(read.right, FOR_EVER)
    assert isinstance(again, Again)
    assert again.journal == calls.show("c")
    assert again.journal.meta == read.journal.meta


def test_a_call_that_was_cut_anywhere_is_no_call() -> None:
    value = b"6 7 1 0 3 4\n.statewaitingax yz1 2"
    assert _whole(value) == {".state": "waiting", "a": "", "x y": "z1 2"}
    assert _whole(b"\n") == {}
    for end in range(len(value)):
        with pytest.raises(ValueError):
            _whole(value[:end])


def test_at_maxmemory_no_call_is_started_and_those_that_run_come_to_their_end(
    start_redis: StartRedis, namespace: str
) -> None:
    server = start_redis()
    full = RedisHarness(server.url, namespace)
    try:
        worker, calls, _, right = started(full)
        server.cli("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(BrokerUnavailable, match=r"OutOfMemory|OOM"):
            calls.start(new_call("other"))
        assert calls.signal("c", "go", "[1]", token="t") is Told.TOLD
        assert take(calls, right) == TakenSignal("[1]")
        calls.record_step(right, done("a"))
        assert calls.keep([Running(right)])[0].holds
        calls.cancel("c")
        calls.end_pass(right, FOR_EVER, must_leave=True)
        again = begun(calls, take_one(worker))
        assert calls.end_pass(again.right, Finish(outcome=CallOutcome(state=CallState.CANCELLED))) == Ended()
        server.cli("CONFIG", "SET", "maxmemory", 0)
        make_look_due(full)
        server.cli("CONFIG", "SET", "maxmemory", 1)
        assert calls.look() == Looked(looked=1)
    finally:
        full.close()


@pytest.mark.parametrize("key", ["call_status", "call_meta", "call_lease"])
def test_a_key_of_the_wrong_type_is_an_error_and_no_outage(real: RedisHarness, key: str) -> None:
    _, calls, claimed, right = started(real)
    name = getattr(real.keys, key)("c")
    real.client.delete(name)
    real.client.lpush(name, "x")

    def act() -> object:
        return calls.begin_pass(claimed.tenure, "c") if key == "call_lease" else calls.record_step(right, done("a"))

    with pytest.raises(BrokerError, match="WRONGTYPE") as raised:
        act()
    assert not isinstance(raised.value, BrokerUnavailable)


def test_what_is_large_is_given_time(real: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick call's time is too short for it, and every repeat would find the same."""
    calls = calls_of(real)
    calls.start(new_call())
    monkeypatch.setattr(real.link, "quick", None)
    calls.start(new_call("large", metadata={"x": "y" * 1_000_000}))
    assert calls.signal("c", "go", f'"{"y" * 200_000}"', token="t") is Told.TOLD


def _spoil_status(real: RedisHarness) -> None:
    real.client.delete(real.keys.call_status("spoilt"))
    real.client.set(real.keys.call_status("spoilt"), "x")


def _spoil_state(real: RedisHarness) -> None:
    real.client.hset(real.keys.call_status("spoilt"), ".state", "no state that there is")


def _spoil_lease(real: RedisHarness) -> None:
    real.client.hset(real.keys.call_status("spoilt"), ".state", "running")
    real.client.lpush(real.keys.call_lease("spoilt"), "x")


SPOILS = [_spoil_status, _spoil_state, _spoil_lease]


@pytest.mark.parametrize("spoil_call", SPOILS)
def test_one_spoilt_call_keeps_nobody_from_being_looked_after(
    real: RedisHarness, spoil_call: Callable[[RedisHarness], None]
) -> None:
    calls = calls_of(real)
    calls.start(new_call("spoilt"))
    calls.start(new_call("sleeper", delay_s=3600))
    lose_timer(real, "sleeper")
    spoil_call(real)
    make_look_due(real, "spoilt", "sleeper")
    assert calls.look() == Looked(looked=2, timers=1)
    assert calls.look() == Looked()


@pytest.mark.parametrize("spoil_call", SPOILS)
def test_one_spoilt_call_hides_no_others_in_a_list(
    real: RedisHarness, spoil_call: Callable[[RedisHarness], None]
) -> None:
    calls = calls_of(real)
    calls.start(new_call("spoilt"))
    calls.start(new_call("sleeper", delay_s=3600))
    spoil_call(real)
    assert "sleeper" in [line.call_id for line in calls.list_calls().calls]


def test_what_no_call_can_be_called_hides_nobody_who_is_due(real: RedisHarness) -> None:
    calls = calls_of(real)
    calls.start(new_call("sleeper", delay_s=3600))
    lose_timer(real, "sleeper")
    make_look_due(real, "sleeper")
    real.client.zadd(real.keys.calls, {b"\xff%d" % number: 0 for number in range(100)} | {b"a b": 0})
    assert [calls.look() for _ in range(3)] == [Looked(more=True), Looked(looked=1, timers=1), Looked()]
    assert real.client.zcard(real.keys.calls) == 1


def test_a_count_of_wakes_that_is_none_is_an_error_and_no_outage(real: RedisHarness) -> None:
    """What is taken for an outage is asked again, and each time begins a pass."""
    worker = real.worker()
    calls = calls_of(real, worker)
    calls.start(new_call())
    real.client.hset(real.keys.call_status("c"), ".wakes", "x")
    with pytest.raises(BrokerError, match="expected a number of wakes, found 'x'") as raised:
        calls.begin_pass(take_one(worker).tenure, "c")
    assert not isinstance(raised.value, BrokerUnavailable)


def test_one_spoilt_call_takes_no_other_lease_with_it(real: RedisHarness) -> None:
    _, calls, _, right = started(real)
    _spoil_status(real)
    real.client.delete(real.keys.call_lease("c"))
    answers = calls.keep([Running(Pass("spoilt", 1, 0)), Running(right)])
    assert [answer.holds for answer in answers] == [False, True]
    assert real.client.exists(real.keys.call_lease("c"))


def test_many_sleepers_that_are_due_at_once_come_back_in_bounded_calls_once_each(real: RedisHarness) -> None:
    calls, worker = calls_of(real), real.worker()
    names = [f"c{number}" for number in range(450)]
    for name in names:
        calls.start(new_call(name, delay_s=3600))
    real.make_due()
    for name in names[:50]:
        lose_timer(real, name)
    moved = [worker.promote().moved for _ in range(5)]
    assert moved == [100, 100, 100, 100, 0]
    assert timers(real) == {}
    with real.client.pipeline() as pipe:
        for name in names[:50]:
            pipe.hset(real.keys.call_status(name), ".due", "1")
        pipe.execute()
    make_look_due(real, *names[:50])
    assert calls.look() == Looked(looked=50, woken=50)
    assert real.length() + len(real.state().critical.entries) == len(names)


def _entries_of(real: RedisHarness) -> Any:
    return [dict(fields)[b"call_id"] for fields in real.state().critical.entries.values()]


def test_two_that_look_at_once_wake_each_call_once(real: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read who is due before either looks after them."""
    calls, other = calls_of(real), calls_of(real)
    for name in ("a", "b"):
        calls.start(new_call(name, delay_s=3600))
        lose_timer(real, name)
        real.client.hset(real.keys.call_status(name), ".due", "1")
    make_look_due(real, "a", "b")
    run = calls._run  # type: ignore[attr-defined]  # the moment between the two halves of a look

    def late(name: str, *args: Any, **kwargs: Any) -> Any:
        assert other.look() == Looked(looked=2, woken=2)
        return run(name, *args, **kwargs)

    monkeypatch.setattr(calls, "_run", late)
    assert calls.look() == Looked()
    assert sorted(_entries_of(real)) == [b"a", b"b"]
