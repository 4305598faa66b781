"""Each script about entries is one step: torn in two by a process that dies, a job is lost, doubled or left behind.

An evening is told once whole, with everything that can become of a job, and then once for each
place in between two writes of a script. Between any two calls a job is in one place.
"""

import functools
from collections import Counter
from collections.abc import Callable

import attrs
import pytest

from stagedoor.broker.dead_letters import DeadLetters
from stagedoor.broker.deliveries import Deliveries
from stagedoor.broker.publishing import OutboxEntry
from stagedoor.core.codec import Fields, pair_up, unpack
from stagedoor.core.outcome import Dead, Done, Outcome, Reason, RetryLater
from tests.broker.harness import RedisHarness, job, settled
from tests.broker.torn import Killed, scripts_that_go_wrong, take_scissors

NOT_IN_TWO = {"publish", "settle", "promote", "requeue", "release"}
"""Those by which a job changes its place."""

ENDS: dict[str, Outcome] = {
    "1": Done(),
    "2": RetryLater(1.0, attempt=2, error="why"),
    "3": Dead(Reason.PERMANENT, "why"),
}
"""What becomes of a job by its number; of others, nothing yet."""
EVERYBODY = ("1", "2", "3", "4", "5", "6")


@attrs.define
class Evening:
    """Jobs on their way, and processes of which one may die."""

    real: RedisHarness
    done: set[str] = attrs.Factory(set)
    _processes: int = 0

    def step(self, act: Callable[[], object]) -> None:
        """Make one call; if its process dies of it, others come. Then every job is in one place."""
        try:
            act()
        except Killed:
            self.check()

    def worker(self) -> Deliveries:
        """Return a process of its own, which may die of joining."""
        self._processes += 1
        try:
            return self.real.worker(f"w{self._processes}")
        except Killed:
            return self.worker()

    def places(self) -> Counter[str]:
        """Return in how many places each job is."""
        state = self.real.state()
        is_owed = {*state.jobs.unread, *state.jobs.pending}
        owed = [fields for entry, fields in state.jobs.entries.items() if entry in is_owed]
        delayed = [pair_up(unpack(body)[1:]) for body in state.delayed.values()]
        dead = [pair_up(unpack(letter["fields"])) for letter in state.dead if letter["fields"]]
        return Counter(number_of(fields) for fields in (*owed, *delayed, *dead))

    def check(self) -> None:
        """Check that each job that is not done is in one place, and that nothing lies about beside."""
        places = self.places()
        for number in EVERYBODY:
            least = 0 if number in self.done else 1
            assert least <= places[number] <= 1, f"job {number} is in {places[number]} places"
        state, bodies = self.real.state(), self.real.client.hlen(self.real.keys.delayed_body)
        assert len(state.jobs.entries) == len({*state.jobs.unread, *state.jobs.pending}), "an entry that nobody owes"
        assert len(state.delayed) == bodies, "a body without its member, or a member without its body"


def number_of(fields: Fields) -> str:
    return dict(fields)[b"outbox_id"].decode()


def tell(real: RedisHarness) -> None:
    """Publish, read, settle, give back, promote and put back; look at all jobs in between."""
    real.flush()
    evening = Evening(real)
    relay = real.publishing()
    rows = [OutboxEntry(int(number), job(outbox_id=number)) for number in EVERYBODY]
    real.worker("first")
    for _ in range(2):  # a relay that died offers its rows again
        try:
            relay.publish("book", rows)
        except Killed:
            continue
    evening.check()
    worker = evening.worker()
    claimed = {number_of(one.entry.fields): one for one in worker.read(6).claimed}
    evening.done.add("1")
    ends = [settled(claimed[number], outcome) for number, outcome in ENDS.items() if number in claimed]
    evening.step(lambda: worker.settle(1, ends))
    evening.check()
    real.trim(claimed["4"].entry.entry_id)
    evening.step(lambda: worker.release([claimed["4"]]))
    evening.check()
    real.make_due()
    evening.step(evening.worker().promote)
    evening.check()
    letters = DeadLetters(real.link, real.keys)
    evening.step(lambda: letters.requeue(list(letters.newest_first())))
    evening.check()


@pytest.mark.redis
def test_no_script_about_entries_may_be_two(real: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    scissors = take_scissors(monkeypatch, real.client)
    assert scripts_that_go_wrong(scissors, NOT_IN_TWO, functools.partial(tell, real)) == NOT_IN_TWO
