"""The reply of another call, on a connection that has lost its step, is no reply: the call is to be repeated."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import redis

from stagedoor.broker.connection import Script
from stagedoor.broker.deliveries import Deliveries
from stagedoor.broker.losses import Losses
from stagedoor.broker.redis import RedisDeliveries
from stagedoor.core.entry import Claimed, Entry
from stagedoor.core.outcome import Dead, Reason
from stagedoor.core.tenure import Stream, Tenure
from stagedoor.errors import BrokerUnavailable
from tests.broker.harness import RedisHarness, accepted, job, settled

pytestmark = pytest.mark.redis

TENURE = Tenure(Stream.JOBS, "1-0", 1)
CLAIMED = Claimed(Entry(Stream.JOBS, "1-0", job()), TENURE)
CALLS: dict[str, Callable[[Deliveries], object]] = {
    "read": lambda worker: worker.read(8),
    "renew": lambda worker: worker.renew([TENURE]),
    "release": lambda worker: worker.release([CLAIMED]),
    "sweep": lambda worker: worker.sweep(),
    "reclaim": lambda worker: worker.reclaim(),
    "promote": lambda worker: worker.promote(),
    "retire": lambda worker: worker.retire(),
}
REPLIES: dict[str, Any] = {
    "nothing": None,
    "a number": 7,
    "a word": b"ok",
    "no word": b"hello",
    "a list": [],
    "of a renewal": [b"ok", [b"ok", b"what"]],
    "of a read": [b"ok", [b"1 1 3 0\n1-0"], []],
    "of a reclaim": [b"no cursor", 0, []],
    "of a settle": [b"ok", b"ok", -1],
}


def spoil(monkeypatch: pytest.MonkeyPatch, verb: str, reply: Any) -> None:
    """Let the next call of a script be given this reply instead of its own."""
    call, misfits = Script.__call__, [reply]

    def spoiled(script: Script, *args: Any) -> Any:
        own = call(script, *args)
        return misfits.pop() if script.name == verb and misfits else own

    monkeypatch.setattr(Script, "__call__", spoiled)


@pytest.mark.parametrize("reply", REPLIES.values(), ids=list(REPLIES))
@pytest.mark.parametrize("verb", CALLS)
def test_a_reply_that_does_not_fit_is_a_call_that_nothing_is_known_of(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch, verb: str, reply: Any
) -> None:
    """It may fit by chance; anything but an answer or "nothing is known" would end the worker."""
    worker = real.worker("w")
    spoil(monkeypatch, verb, reply)
    with contextlib.suppress(BrokerUnavailable):
        CALLS[verb](worker)
    CALLS[verb](worker)


@pytest.mark.parametrize("verb", CALLS)
def test_it_is_told_from_a_reply_that_fits(real: RedisHarness, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    worker = real.worker("w")
    spoil(monkeypatch, verb, 7)
    with pytest.raises(BrokerUnavailable, match="does not fit"):
        CALLS[verb](worker)


def test_a_settle_whose_reply_was_anothers_is_repeated_and_written_once(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = real.worker("w")
    real.add(job())
    batch = [settled(one, Dead(Reason.PERMANENT, "no")) for one in worker.read(1).claimed]
    spoil(monkeypatch, "settle", [b"ok", [b"ok"]])
    with pytest.raises(BrokerUnavailable, match="does not fit"):
        worker.settle(1, batch)
    assert worker.settle(1, batch).answers == accepted(1)
    assert (real.length(), len(real.state().dead)) == (0, 1)


def test_a_walk_does_not_go_on_from_a_cursor_that_is_none(real: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = real.worker("w")
    spoil(monkeypatch, "reclaim", [b"no cursor", 0, []])
    with pytest.raises(BrokerUnavailable, match="no cursor"):
        worker.reclaim()
    worker.reclaim()


def test_a_blocked_read_with_anothers_reply_makes_its_connection_anew(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = real.worker("w")
    assert isinstance(worker, RedisDeliveries)
    worker.wait(10)
    run, misfits = worker._blocked.run, [[b"ok", b"ok"]]
    monkeypatch.setattr(worker._blocked, "run", lambda *command: misfits.pop() if misfits else run(*command))
    before = worker._blocked._id
    with pytest.raises(BrokerUnavailable, match="does not fit"):
        worker.wait(10)
    entry_id = real.add(job())
    assert [one.entry.entry_id for one in worker.wait(10).claimed] == [entry_id]
    assert worker._blocked._id != before


@pytest.mark.parametrize("replies", [[None], [b"+OK"] * 7, [[]], [[b"", b""], b"1-0", 7, b"x", None, None, None]])
def test_replies_of_others_to_a_look_for_losses_are_none(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch, replies: list[Any]
) -> None:
    losses = Losses(real.link, real.keys, dead_maxlen=100)
    with monkeypatch.context() as patched:
        patched.setattr(redis.client.Pipeline, "execute", lambda *_, **__: replies)
        with contextlib.suppress(BrokerUnavailable):  # they may fit by chance
            losses.note()

        def stumble(*_: object, **__: object) -> None:
            raise AttributeError("'bytes' object has no attribute 'insert'")

        patched.setattr(redis.client.Pipeline, "execute", stumble)
        with pytest.raises(BrokerUnavailable, match="does not fit"):
            losses.note()
    assert losses.note() == ()
