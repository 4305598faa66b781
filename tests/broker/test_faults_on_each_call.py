"""Every fault of the network and every error of Redis, on each call of the broker, over a real connection.

One scenario makes each call once; one fault hits one of them, the caller repeats
it as the worker does, and at the end every job must be exactly where it belongs.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from stagedoor.broker import connection
from stagedoor.broker.connection import Link
from stagedoor.broker.deliveries import Answer, Answers, Pulse, ReadReply, Renewal
from stagedoor.broker.publishing import OutboxEntry
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries, RedisPublishing
from stagedoor.chaos.proxy import Mode, Proxy, Spoil
from stagedoor.core.entry import Claimed
from stagedoor.core.keys import Keys
from stagedoor.core.outcome import Dead, Done, Outcome, Reason, RetryLater
from stagedoor.errors import BrokerError, BrokerUnavailable
from tests.broker.harness import RedisHarness, identity, job, settled, socket_of

pytestmark = pytest.mark.redis

ERRORS = [
    "LOADING Redis is loading the dataset in memory",
    "READONLY You can't write against a read only replica.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "NOAUTH Authentication required.",
    "CLUSTERDOWN The cluster is down",
    "MOVED 3999 127.0.0.1:6381",
]
FAULTS = [
    *(Mode(spoil=Spoil.REFUSE, error=error) for error in ERRORS),
    Mode(spoil=Spoil.DROP),
    Mode(spoil=Spoil.DELAY, delay_s=0.5),
    Mode(spoil=Spoil.DOUBLE),
    Mode(spoil=Spoil.FREEZE),
    Mode(spoil=Spoil.RESET),
]
CALLS = [
    *("ensure_groups", "join", "publish", "confirmed_seq", "beat", "read", "renew", "settle", "promote", "wait"),
    *("stray", "release", "sweep", "reclaim", "retire"),
]
ROWS = 6
MOST_TRIES = 100
"""On a busy machine many a call takes longer than the tenth of a second that it has."""


def name_of(fault: Mode) -> str:
    return fault.error.partition(" ")[0] or fault.spoil.value


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    with Proxy(socket_of(redis_url), rng=random.Random(1)) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reads that carry bodies give up as soon as the others."""
    monkeypatch.setattr(connection, "PATIENT_MARGIN_S", 0.1)


class Scene:
    """A worker and a relay behind the proxy, and what has become of each row."""

    def __init__(self, proxy: Proxy, namespace: str, *, hit: str, fault: Mode) -> None:
        self.link = Link(proxy.url, block_ms=10)
        keys = Keys(namespace)
        self.worker = RedisDeliveries(self.link, keys, settings=DeliverySettings(wanted_name="w"))
        self.relay = RedisPublishing(self.link, keys)
        self.failures: list[BrokerError] = []
        self.done: Counter[bytes] = Counter()
        self._proxy = proxy
        self._hit = hit
        self._fault = fault
        self._batch = 0
        self._held: list[Claimed] = []

    def call[T](self, name: str, act: Callable[[], T], mend: Callable[[], object] = lambda: None) -> T:
        """Make a call until it goes through; the fault is there for its first try alone."""
        if name == self._hit:
            self._proxy.mode, self._hit = self._fault, ""
        for _ in range(MOST_TRIES):
            try:
                return act()
            except BrokerUnavailable as error:  # anything else is no weather, and fails the test
                self.failures.append(error)
                self._proxy.mode = Mode()
                self._until(mend)
            finally:
                self._proxy.mode = Mode()
        raise AssertionError(f"{name} never went through: {self.failures}")

    def _until(self, mend: Callable[[], object]) -> None:
        for _ in range(MOST_TRIES):
            try:
                mend()
            except BrokerUnavailable as error:
                self.failures.append(error)
            else:
                return

    def stray(self) -> int:
        return self.worker.stray([claimed.tenure for claimed in self._held])

    def take(self, name: str, read: Callable[[], ReadReply]) -> list[Claimed]:
        claimed = list(self.call(name, read, self.stray).claimed)
        known = {one.tenure.entry for one in self._held}
        self._held += [one for one in claimed if one.tenure.entry not in known]
        return claimed

    def settle(self) -> Answers:
        batch = [settled(claimed, outcome_of(claimed)) for claimed in self._held]
        self._batch += 1
        answers = self.call("settle", lambda: self.worker.settle(self._batch, batch))
        for settlement, answer in zip(batch, answers.answers, strict=True):
            assert answer is Answer.ACCEPTED
            if isinstance(settlement.outcome, Done):
                self.done[dict(settlement.fields)[b"outbox_id"]] += 1
        self._held.clear()
        return answers


def outcome_of(claimed: Claimed) -> Outcome:
    """Let one row fail once, one for good, and the others succeed."""
    fields = dict(claimed.entry.fields)
    if fields[b"outbox_id"] == b"3":
        return Dead(Reason.PERMANENT, "x")
    return RetryLater(0, 2, "x") if fields[b"outbox_id"] == b"2" and b"attempt" not in fields else Done()


def play(scene: Scene) -> None:
    """Make every call once at least; leave nothing in the streams."""
    worker, relay = scene.worker, scene.relay
    rows = [OutboxEntry(number, job(outbox_id=str(number))) for number in range(1, ROWS + 1)]
    scene.call("ensure_groups", worker.ensure_groups)
    assert scene.call("join", lambda: worker.join(identity("i1"), Pulse(slots=8))) == "w"
    scene.call("publish", lambda: relay.publish("book", rows[:-1]))
    assert scene.call("confirmed_seq", lambda: relay.confirmed_seq("book")) == ROWS - 1
    scene.call("beat", lambda: worker.beat(Pulse(slots=8)))
    scene.take("read", lambda: worker.read(3))
    held = [claimed.tenure for claimed in scene._held]
    assert set(scene.call("renew", lambda: worker.renew(held))) <= {Renewal.RENEWED}
    scene.settle()
    scene.call("promote", worker.promote)
    while scene.take("read", lambda: worker.read(1)):
        pass
    scene.call("publish", lambda: relay.publish("book", rows))
    scene.take("wait", lambda: worker.wait(10))
    scene.call("stray", scene.stray)
    scene.call("release", lambda: worker.release(scene._held))
    scene._held.clear()
    scene.call("sweep", worker.sweep)
    scene.call("reclaim", worker.reclaim)
    for _ in range(4):
        # A request that was held up on its way may claim entries after its caller has looked for them;
        # with nobody to renew them they would be reclaimed a minute later.
        scene.call("stray", scene.stray)
        scene.call("promote", worker.promote)
        scene.take("read", lambda: worker.read(10))
        scene.settle()
    scene.call("retire", worker.retire)


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
@pytest.mark.parametrize("hit", CALLS)
def test_a_call_that_a_fault_hits_is_repeated_and_every_job_is_where_it_belongs(
    proxy: Proxy, redis_url: str, namespace: str, hit: str, fault: Mode
) -> None:
    scene = Scene(proxy, namespace, hit=hit, fault=fault)
    play(scene)
    assert proxy.spoiled >= 1, "the fault was there"
    real = RedisHarness(redis_url, namespace)
    state = real.state()
    dead = Counter(letter["reason"] for letter in state.dead)
    assert (state.jobs.entries, state.jobs.pending, state.delayed) == ({}, {}, {})
    assert dead == {b"permanent": 1}
    assert sorted(scene.done.values()) == [1] * (ROWS - 1), "each of the other rows was settled once"
    scene.worker.close()
    scene.link.close()
    real.close()
