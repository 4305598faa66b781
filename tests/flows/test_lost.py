"""Passes that are lost, slow, stuck or kept alive: who writes, and what people see meanwhile."""

import contextlib
import threading
from typing import Any

import pytest

import stagedoor
from stagedoor.broker.calls import Refused
from stagedoor.broker.deliveries import Pulse
from stagedoor.core.call import CallState, StepState
from stagedoor.core.outcome import Release
from stagedoor.errors import BrokerUnavailable
from tests.flows import support
from tests.flows.support import Threads, World, all_steps, wait_until
from tests.flows.test_crashes import RESULT, Effects, ten_steps


def texts(world: World) -> tuple[dict[str, str], dict[str, str]]:
    shown = world.show()
    return dict(shown.status), dict(shown.meta)


def in_thread(world: World, worker: support.Worker) -> tuple[threading.Thread, list[Any]]:
    """Let a worker run the entry that is next in a thread; return that, and where what it answers will be."""
    claimed = worker.deliveries.read(1).claimed[0]
    outcomes: list[Any] = []

    def run() -> None:
        outcomes.append(support.handle(worker, claimed, specs=world.specs, now=0.0))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcomes


class Freezing(Effects):
    """Effects of which one, the n-th, takes until another worker has finished the call."""

    def freeze(self, world: World, at: int) -> None:
        self.world, self.at = world, at
        self.done_then = -1
        self.seen: list[tuple[dict[str, str], dict[str, str]]] = []

    def make(self, call: Any, key: str) -> None:
        super().make(call, key)
        if len(self.done) == self.at:
            self.at = 0
            other = self.world.worker()
            self.world.take_over(other)
            self.world.run(other, within_s=10)
            self.world.outside.signal("c1", "paid", '"card"', token="the only one")
            self.world.run(other, within_s=10)
            assert self.world.result() == RESULT
            self.seen.append(texts(self.world))
            self.done_then = len(self.done)


@pytest.mark.parametrize("at", range(1, 14))
def test_a_worker_that_froze_in_a_step_and_thawed_after_another_finished_changes_nothing(at: int) -> None:
    effects = Freezing()
    world = World(ten_steps(effects))
    effects.freeze(world, at)
    world.start("ten")
    first = world.worker()
    outcomes: list[Any] = []
    for _ in range(8):
        world.promote(first)
        with contextlib.suppress(stagedoor.StagedoorError):  # its name has been taken by then
            (claimed,) = first.deliveries.read(1).claimed or (None,)
            if claimed is not None:
                outcomes.append(support.handle(first, claimed, specs=world.specs, now=world.now()))
        if effects.seen:
            break
        world.advance(1)
        if world.show().waiting_for == "the signal 'paid'":
            world.signal("paid", '"card"', token="the only one")
    assert effects.seen, "it never froze"
    assert [texts(world)] == effects.seen
    assert len(effects.done) == effects.done_then, "it went on with steps that are another's"
    assert outcomes[-1] == Release()


def test_a_step_is_told_that_another_pass_has_begun() -> None:
    world = World()
    heard: list[str] = []

    def slow(ctx: support.FakeCtx) -> None:
        if heard:
            return
        heard.append("began")
        other = world.worker()
        world.take_over(other)
        world.run(other)
        first.keeper.keep_once()
        world.advance(11)
        first.keeper.keep_once()
        try:
            ctx.check()
        except stagedoor.LeaseLost:
            heard.append("lost")
            raise

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.step("slow", slow, call.ctx)

    world.know(f)
    world.start("f")
    first = world.worker()
    claimed = first.deliveries.read(1).claimed[0]
    outcome = support.handle(first, claimed, specs=world.specs, now=0.0)
    assert (outcome, heard, world.state()) == (Release(), ["began", "lost"], CallState.DONE)


def test_an_entry_that_is_taken_away_ends_the_pass_before_its_next_step() -> None:
    ran: list[str] = []

    def step(name: str) -> None:
        ran.append(name)
        worker.is_ours = False

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.step("one", step, "one")
        call.step("two", step, "two")

    world = World(f)
    world.start("f")
    worker = world.worker()
    claimed = worker.deliveries.read(1).claimed[0]
    assert support.handle(worker, claimed, specs=world.specs, now=0.0) == Release()
    assert ran == ["one"]


def test_nobody_insists_on_an_answer_for_an_entry_that_was_given_up() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.step("one", int)

    world = World(f)
    world.start("f")
    worker = world.worker()
    worker.is_ours = False
    world.broker.fail_next("begin_pass", BrokerUnavailable("gone"), times=10)
    claimed = worker.deliveries.read(1).claimed[0]
    assert support.handle(worker, claimed, specs=world.specs, now=0.0) == Release()
    assert world.paused == []


# -- the keeper ---------------------------------------------------------------------------------


def test_a_lease_is_renewed_while_its_step_takes_minutes() -> None:
    world = World()
    other = world.worker()
    refused: list[Any] = []

    def slow() -> None:
        for _ in range(120):
            world.advance(1)
            worker.keeper.keep_once()
        world.outside.wake("c1")
        # Somebody adds an entry by hand: the lease is held all the same.
        world.broker.add({"kind": "f", "call_id": "c1", "request_id": "", "trace": ""})
        (claimed,) = other.deliveries.read(1).claimed
        refused.append(other.calls.begin_pass(claimed.tenure, "c1"))

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.step("slow", slow)

    world.know(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker, most=1)
    assert refused == [Refused.BUSY]
    assert world.state() is CallState.DONE
    # One when it had run for a second, then one each 10 s; not one each second.
    assert worker.calls.log.count("keep") == 12


def test_a_long_step_is_seen_to_be_running_and_then_to_be_done() -> None:
    world = World()
    seen: list[Any] = []

    def slow() -> str:
        seen.append(world.show().step("slow"))
        world.advance(2)
        worker.keeper.keep_once()
        step = world.show().step("slow")
        assert step is not None
        seen.append((step.state, step.attempts, step.place))
        if len(seen) < 3:
            raise ValueError
        return "done"

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        return call.step("slow", slow, attempts=3)

    world.know(f)
    world.start("f")
    worker = world.worker()
    world.run(worker)
    assert seen[:2] == [None, (StepState.RUNNING, 0, 1)]
    assert seen[3] == (StepState.RUNNING, 1, 1)
    step = world.show().step("slow")
    assert step is not None
    assert (step.state, step.attempts, world.result()) == (StepState.DONE, 2, '"done"')


def test_a_step_past_its_timeout_is_told_so_and_that_is_an_attempt() -> None:
    world = World()

    def slow(ctx: support.FakeCtx) -> None:
        world.advance(30)
        ctx.check()
        world.advance(31)
        ctx.check()

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.step("slow", slow, call.ctx, attempts=2, timeout=60)

    world.know(f)
    world.start("f")
    worker = world.run()
    assert (
        "step 'slow' failed after 2 attempts: JobTimeout: step 'slow': its timeout of 60 s has passed" in world.error()
    )
    assert worker.limits == [60, None, 60, None]


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("is_woken", [False, True])
def test_a_step_that_does_not_end_is_given_up_and_the_call_goes_on_elsewhere(attempts: int, *, is_woken: bool) -> None:
    world = World()
    stuck, let_go = threading.Event(), threading.Event()
    ran: list[str] = []

    def hangs() -> str:
        ran.append("hangs")
        if len(ran) == 1:
            stuck.set()
            assert let_go.wait(30)
        return "second"

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        try:
            return call.step("hangs", hangs, attempts=attempts, timeout=10, base=0)
        except stagedoor.StepFailed as failed:
            return failed.error

    world.know(f)
    world.start("f")
    first = world.worker()
    thread, outcomes = in_thread(world, first)
    assert stuck.wait(30)
    world.advance(14)
    first.keeper.keep_once()
    assert world.state() is CallState.RUNNING
    if is_woken:
        world.signal("anything")
    world.advance(2)
    first.keeper.keep_once()
    assert world.state() is not CallState.RUNNING
    world.run(world.worker())
    expected = {1: '"JobTimeout: given up 5 s after its timeout of 10 s"', 2: '"second"'}
    assert world.result() == expected[attempts]
    before = texts(world)
    let_go.set()
    thread.join(30)
    assert (texts(world), outcomes) == (before, [Release()])


def test_an_item_that_hangs_in_a_helper_does_not_hold_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    stuck, let_go = threading.Event(), threading.Event()
    main: list[int] = []

    def item(_number: int) -> str:
        if threading.get_ident() not in main and not let_go.is_set():
            stuck.set()
            assert let_go.wait(30)
        else:
            assert stuck.wait(30)
        return "done"

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[str]:
        main.append(threading.get_ident())
        return call.gather("g", range(2), item, limit=2, timeout=10, base=0)

    threads = Threads(1)
    plain = support.delivery
    monkeypatch.setattr(support, "delivery", lambda worker, tenure: plain(worker, tenure, lend=threads))
    world.know(f)
    world.start("f")
    first = world.worker()
    thread, outcomes = in_thread(world, first)
    assert stuck.wait(30)
    # The thread of the pass has done its item, and waits for the helper.
    wait_until(lambda: "done" in dict(all_steps(world.show())).values())
    world.advance(16)
    first.keeper.keep_once()
    thread.join(30)
    assert outcomes == [Release()]
    let_go.set()
    threads.join()
    world.run(world.worker())
    assert world.result() == '["done","done"]'


def test_lost_timers_and_entries_are_made_anew() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        call.sleep("nap", 100)
        return "awake"

    world = World(f)
    for number in range(250):
        world.start("f", f"c{number}")
    worker = world.worker()
    world.run_ready(worker)
    world.broker.delayed.clear()
    world.broker.delayed_bodies.clear()
    world.advance(3 * 3600)
    worker.deliveries.beat(Pulse(slots=4))
    looked = worker.keeper.look_once()
    assert looked.woken == 250
    world.run(worker)
    assert {world.result(f"c{number}") for number in range(250)} == {'"awake"'}
