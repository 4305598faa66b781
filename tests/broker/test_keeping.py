"""What is kept when work is over: nothing that grows with the work that was done."""

import pytest

from stagedoor.broker.deliveries import Deliveries, Pulse
from stagedoor.broker.losses import Losses
from stagedoor.broker.publishing import OutboxEntry
from stagedoor.core.call import CallOutcome, CallState, Finish, StepState
from stagedoor.core.outcome import Dead, Done, Outcome, Reason, RetryLater
from tests.broker.flow_harness import begun, calls_of, done, expire, is_now, make_look_due, new_call, take_one
from tests.broker.harness import RedisHarness, accepted, identity, job, settled

pytestmark = pytest.mark.redis

DEAD_MAXLEN = 100
NODE = 100
"""Entries that Redis may keep more than `MAXLEN ~` says: it deletes whole nodes only."""


class Season:
    """Everything that a job or a call can go through, again and again, in one namespace."""

    def __init__(self, real: RedisHarness) -> None:
        self.real = real
        self.rows = 0
        self.starts = 0

    def pass_by(self) -> None:
        """Let fifty rows and a call come and go."""
        worker, gone = self._worker("w"), self._worker("gone")
        self._publish(50)
        outcomes: list[Outcome] = [Done(), Done(), RetryLater(0, 2, "x"), Dead(Reason.PERMANENT, "x")]
        batch = zip(worker.read(40).claimed, outcomes * 10, strict=True)
        assert worker.settle(1, [settled(one, outcome) for one, outcome in batch]).answers == accepted(40)
        gone.read(10)
        self.real.lapse("gone")
        worker.sweep()
        self._expires(self.real.keys.worker("w"), self.real.keys.crashes)
        worker.promote()
        rest = worker.read(20).claimed
        assert worker.settle(2, [settled(one) for one in rest]).answers == accepted(20)
        self._call(worker)
        Losses(self.real.link, self.real.keys).note()
        worker.retire()
        self.real.forget_record("gone")

    def _worker(self, name: str) -> Deliveries:
        self.starts += 1
        made = self.real.new_worker(name, dead_maxlen=DEAD_MAXLEN)
        made.ensure_groups()
        made.join(identity(f"i{self.starts}"), Pulse(slots=8))
        return made

    def _publish(self, count: int) -> None:
        rows = [OutboxEntry(self.rows + number, job()) for number in range(1, count + 1)]
        self.real.publishing().publish("book", rows)
        self.rows += count

    def _call(self, worker: Deliveries) -> None:
        calls = calls_of(self.real, worker)
        calls.start(new_call(metadata={"order": "7"}))
        right = begun(calls, take_one(worker)).right
        calls.signal("c", "go", "[1]", token="t")
        got, waiting = (is_now("w", state, place=2) for state in (StepState.DONE, StepState.WAITING))
        calls.record_step(right, done("a"))
        calls.take_signal(right, "go", taken=got, timed_out=None, waiting=waiting)
        calls.end_pass(right, Finish(outcome=CallOutcome(state=CallState.DONE, result="1")))
        self._expires(self.real.keys.call_status("c"), self.real.keys.call_meta("c"))
        expire(self.real)
        make_look_due(self.real)
        assert calls.look().forgotten == 1

    def _expires(self, *names: str) -> None:
        assert all(self.real.client.pttl(name) > 0 for name in names)

    def kept(self) -> dict[str, int]:
        """Return what stays for good, in bytes: all but what has a time to live, and the dead letters."""
        names = [name.decode() for name in self.real.client.scan_iter(f"{self.real.keys.namespace}*")]
        return {
            name.removeprefix(self.real.keys.namespace): int(self.real.client.memory_usage(name, samples=0) or 0)
            for name in names
            if self.real.client.pttl(name) == -1 and name != self.real.keys.dead
        }


def test_what_is_done_leaves_nothing_behind_that_grows_with_it(real: RedisHarness) -> None:
    season = Season(real)
    for _ in range(20):
        season.pass_by()
    before = season.kept()
    assert set(before) == {"", ":critical", ":trimmed", ":published:book", ":calls:states"}
    for _ in range(20):
        season.pass_by()
    assert real.client.xlen(real.keys.dead) <= DEAD_MAXLEN + NODE
    assert season.kept() == before, "what has no time to live is as large as it was a thousand jobs ago"
