"""A process that dies at any call of its port, before or after its effect: the call ends as if it had not."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

import stagedoor
from stagedoor.broker.calls import NewCall
from stagedoor.broker.deliveries import Settlement
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.core.call import CallState, Kind, StepState
from stagedoor.core.flow import FlowSpec, flow_of
from stagedoor.core.journal import Journal
from stagedoor.core.outcome import Outcome
from stagedoor.core.tenure import Stream
from stagedoor.errors import Unavailable
from tests.broker.harness import RedisHarness
from tests.flows.support import Counted, Killed, Worker, World, handle, make_worker

RESULT = '{"seats":[1,2],"paid":"card","files":[1,4,9],"sum":3,"caught":"StepFailed"}'


@attrs.define
class Effects:
    """What steps have done to the world: key, epoch and attempt of each time."""

    done: list[tuple[str, int, int]] = attrs.Factory(list)
    ended: list[str] = attrs.Factory(list)

    def make(self, call: Any, key: str) -> None:
        live = call._run.live
        (seen,) = (step.unit.seen for step in live.running_steps() if step.unit.key == key)
        self.done.append((key, live.right.epoch, (seen.attempts if seen is not None else 0) + 1))


def ten_steps(effects: Effects) -> Callable[[Any], Any]:
    """Return a flow that uses all that there is."""

    def once(call: Any, key: str, value: Any = None, *, fails: int = 0, away: int = 0) -> Any:
        effects.make(call, key)
        count = sum(1 for done, *_ in effects.done if done == key)
        if count <= away:
            raise Unavailable("not now")
        attempt = next(attempt for done, _, attempt in reversed(effects.done) if done == key)
        if attempt <= fails:
            raise ValueError("not yet")
        return value

    @stagedoor.flow("ten", timeout=1e6, on_success=lambda call, result: effects.ended.append(f"{call.id} {result}"))
    def ten(call: stagedoor.Call) -> dict[str, Any]:
        call.memo("opened", once, call, "opened")
        seats = call.step("reserve", once, call, "reserve", [1, 2])
        call.sleep("grace", 0.02)
        call.step("unsure", lambda: once(call, "unsure", fails=2), attempts=3, base=0.001, cap=0.001)
        paid = call.wait_signal("paid", timeout=1000)
        files = call.gather("render", [1, 2, 3], lambda item: once(call, f"render/{item - 1}", item * item))
        total = 0
        for turn in call.sequence("turns", limit=5):
            total += turn.step("add", once, call, f"turns/{turn.number}/add", turn.number)
            if turn.number == 2:
                break
        caught = ""
        try:
            call.step("hopeless", lambda: once(call, "hopeless", fails=9), attempts=1)
        except stagedoor.StepFailed as failed:
            caught = type(failed).__name__
        call.step("notify", once, call, "notify")
        return {"seats": seats, "paid": paid, "files": files, "sum": total, "caught": caught}

    return ten


def check(journal: Journal, effects: Effects, *, crashes: int) -> None:
    """Check that the call has ended right, and that its status tells the truth about what was done."""
    assert journal.outcome is not None
    assert (journal.state, journal.outcome.result) == (CallState.DONE, RESULT)
    assert max(Counter(effects.done).values()) == 1, "twice in one epoch and attempt"
    for key, step in journal.steps.items():
        if step.kind in (Kind.STEP, Kind.MEMO, Kind.ITEM):
            assert (key, step.epoch, step.attempts) in effects.done, f"{key} is {step}, and was not run so"
        assert step.state is (StepState.FAILED if key == "hopeless" else StepState.DONE), key
    planned = Counter({"unsure": 3, **dict.fromkeys(_KEYS, 1)})
    runs = Counter(key for key, *_ in effects.done)
    assert sum((runs - planned).values()) <= crashes, "only what ran when the process died runs again"
    assert len(effects.ended) >= 1
    assert len(effects.ended) <= 1 + crashes


_KEYS = [
    "opened", "reserve", "render/0", "render/1", "render/2", "turns/0/add", "turns/1/add", "turns/2/add", "hopeless",
    "notify",
]  # fmt: skip


def drive(world: "World | RealWorld", deaths: Iterator[tuple[int, bool]], *, most: int = 300) -> int:
    """Run a call to its end through processes that die as told; return how many did."""
    died = 0
    death = next(deaths, None)
    worker = world.worker(counted=_dying(death))
    for _ in range(most):
        try:
            world.run(worker, within_s=10)
        except Killed:
            died += 1
            death = next(deaths, None)
            worker = world.worker(counted=_dying(death))
            world.take_over(worker)
            continue
        journal = world.outside.show("c1")
        assert journal is not None
        if journal.state.has_ended:
            return died
        if journal.waiting_for == "the signal 'paid'":
            world.outside.signal("c1", "paid", '"card"', token="the only one")
    raise AssertionError(f"stuck: {world.outside.show('c1')}")


def _dying(death: tuple[int, bool] | None) -> Callable[[Any], Any]:
    if death is None:
        return Counted
    return lambda calls: Counted(calls, dies_at=death[0], after_effect=death[1])


def calls_of_one_run() -> int:
    """Return how many port calls the whole flow takes when nobody dies."""
    effects = Effects()
    world = World(ten_steps(effects))
    world.start("ten")
    worker = world.worker()
    log: list[str] = worker.calls.log
    drive_with(world, worker)
    check(world.show(), effects, crashes=0)
    return len(log)


def drive_with(world: World, worker: Worker) -> None:
    world.run(worker, within_s=10)
    world.outside.signal("c1", "paid", '"card"', token="the only one")
    world.run(worker)


def test_dying_once_anywhere_changes_nothing() -> None:
    total = calls_of_one_run()
    assert total > 25
    for at in range(1, total + 1):
        for after_effect in (False, True):
            effects = Effects()
            world = World(ten_steps(effects))
            world.start("ten")
            assert drive(world, iter([(at, after_effect)])) == 1, f"nobody died at {at}"
            check(world.show(), effects, crashes=1)


def test_dying_twice_anywhere_changes_nothing() -> None:
    total = calls_of_one_run()
    for first in range(1, total + 1, 2):
        for second in range(1, total + 1, 5):
            effects = Effects()
            world = World(ten_steps(effects))
            world.start("ten")
            died = drive(world, iter([(first, bool(second % 2)), (second, bool(first % 4 == 1))]))
            check(world.show(), effects, crashes=died)


# -- the same over a real Redis ---------------------------------------------------------------


class RealWorld:
    """As `World`, over a real Redis, whose time nobody moves."""

    def __init__(self, harness: RedisHarness, *flows: Callable[[Any], Any]) -> None:
        self.harness = harness
        self.outside = RedisCalls(harness.link, harness.keys)
        self.specs: dict[str, FlowSpec] = {}
        for function in flows:
            spec = flow_of(function)
            assert spec is not None
            self.specs[spec.name] = spec
        self._numbers = iter(range(1, 10_000))
        self._batches = iter(range(1, 1_000_000))

    def worker(self, *, counted: Callable[[Any], Any] = Counted) -> Worker:
        name = f"w{next(self._numbers)}"
        deliveries = self.harness.worker(name)
        calls = counted(RedisCalls(self.harness.link, self.harness.keys, owner=deliveries))  # type: ignore[arg-type]  # it is a real one
        return make_worker(name, deliveries, calls, clock=time.monotonic, pause=time.sleep)

    def run(self, worker: Worker, *, within_s: float) -> Worker:
        while True:
            now_ms = time.time() * 1000
            delayed: Any = self.harness.client.zrange(self.harness.keys.delayed, 0, -1, withscores=True)
            for member, at in delayed:
                if at - now_ms < within_s * 1000:
                    # What waits for its time by the flow's own clock has to be over when it is woken.
                    time.sleep(max(0.0, (at - now_ms) / 1000))
                    self.harness.client.zadd(self.harness.keys.delayed, {member: 0})
            while worker.deliveries.promote().moved:
                pass
            claimed = worker.deliveries.read(1).claimed
            if not claimed:
                return worker
            outcome: Outcome | None = handle(worker, claimed[0], specs=self.specs, now=0.0)
            if outcome is not None:
                settlement = Settlement(tenure=claimed[0].tenure, fields=claimed[0].entry.fields, outcome=outcome)
                worker.deliveries.settle(next(self._batches), [settlement])

    def take_over(self, worker: Worker) -> None:
        for number in range(1, int(worker.name[1:])):
            self.harness.lapse(f"w{number}")
        worker.deliveries.sweep()


@pytest.fixture
def real(redis_url: str, namespace: str) -> Iterator[RedisHarness]:
    harness = RedisHarness(redis_url, namespace, protocol=3)
    yield harness
    harness.close()


@pytest.mark.redis
def test_dying_anywhere_over_a_real_redis_changes_nothing(real: RedisHarness) -> None:
    for at in range(1, calls_of_one_run() + 1, 2):
        effects = Effects()
        world = RealWorld(real, ten_steps(effects))
        world.outside.start(NewCall(call_id="c1", flow="ten"))
        drive(world, iter([(at, at % 4 == 1), (at + 1, at % 4 == 3)]))
        journal = world.outside.show("c1")
        assert journal is not None
        check(journal, effects, crashes=2)
        assert real.length(Stream.CRITICAL) == real.length(Stream.JOBS) == 0
        real.flush()
