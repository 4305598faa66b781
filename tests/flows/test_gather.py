"""gather: every item once, as many at a time as may be, and no waiting for anybody."""

import threading
from typing import Any

import pytest

import stagedoor
from stagedoor.core.call import CallState, StepState
from tests.flows import support
from tests.flows.support import Threads, World, all_steps


def run_with(world: World, threads: Threads, monkeypatch: pytest.MonkeyPatch) -> support.Worker:
    """Run everything with a worker whose free slots are these threads."""
    plain = support.delivery
    monkeypatch.setattr(support, "delivery", lambda worker, tenure: plain(worker, tenure, lend=threads))
    worker = world.run()
    threads.join()
    return worker


def test_items_keep_their_order_and_are_steps_of_their_own() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[Any]:
        return [call.gather("g", ["a", "b", "c"], str.upper), call.gather("empty", [], str.upper)]

    world = World(f)
    world.start("f")
    world.run()
    assert world.result() == '[["A","B","C"],[]]'
    assert dict(all_steps(world.show())) == dict.fromkeys(["g", "empty", "g/0", "g/1", "g/2"], "done")


def test_helpers_join_up_to_the_limit_and_each_item_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.Barrier(4, timeout=30)
    ran: list[int] = []
    most = [0]
    inside = [0]
    lock = threading.Lock()

    def item(number: int) -> int:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            ran.append(number)
        if number < 4:
            here.wait()  # four of them are here at once, or the test fails
        with lock:
            inside[0] -= 1
        return number

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[int]:
        return call.gather("g", range(200), item, limit=4)

    world = World(f)
    world.start("f")
    run_with(world, Threads(50), monkeypatch)
    assert world.result() == str(list(range(200))).replace(" ", "")
    assert (sorted(ran), most[0]) == (list(range(200)), 4)


def test_without_a_free_slot_it_finishes_alone() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> int:
        return sum(call.gather("g", range(50), int, limit=8))

    world = World(f)
    world.start("f")
    worker = world.run()
    assert world.result() == "1225"
    assert worker.lent[0][1] == 7, "it has asked for help, and none came"


def test_help_that_comes_when_all_is_over_does_nothing() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> int:
        return sum(call.gather("g", range(5), int, limit=3))

    world = World(f)
    world.start("f")
    worker = world.run()
    writes = len(worker.calls.log)
    for work, _most in worker.lent:
        work()
    assert len(worker.calls.log) == writes


def test_help_that_was_asked_for_twice_stays_within_the_limit() -> None:
    entered, let_go = threading.Event(), threading.Event()
    main = threading.get_ident()
    ran: list[int] = []
    within: list[int] = []

    def item(number: int) -> int:
        ran.append(number)
        if threading.get_ident() != main:
            entered.set()
            assert let_go.wait(30)
        elif number == 3:
            # Three offers were made by now, and all of them come late, and at once.
            first, second, third = (work for work, _most in worker.lent[:3])
            helper = threading.Thread(target=first)
            helper.start()
            assert entered.wait(30)
            before = len(ran)
            for work in (second, third):
                work()
            within.append(len(ran) - before)
            let_go.set()
        return number

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[int]:
        return call.gather("g", range(8), item, limit=2)

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run(worker)
    assert world.result() == "[0,1,2,3,4,5,6,7]"
    assert within == [0], "one helper was at work, and two threads are all that may be"


def test_an_item_is_tried_again_while_the_others_go_on() -> None:
    attempts: dict[int, int] = {}

    def item(number: int) -> int:
        attempts[number] = attempts.get(number, 0) + 1
        if number % 2 and attempts[number] < 3:
            raise ValueError(number)
        return number

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[int]:
        return call.gather("g", range(5), item, attempts=3, base=10, cap=10)

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    assert world.state() is CallState.SLEEPING
    assert world.show().waiting_for == "the next attempt of items of gather 'g'"
    assert attempts == dict.fromkeys(range(5), 1)
    world.run(worker)
    assert world.result() == "[0,1,2,3,4]"
    assert attempts == {0: 1, 1: 3, 2: 1, 3: 3, 4: 1}


def test_a_failure_begins_no_new_items_and_all_failures_are_listed_on_every_pass() -> None:
    ran: list[int] = []
    seen: list[Any] = []

    def item(number: int) -> int:
        ran.append(number)
        if number == 2:
            raise ValueError("broken")
        return number

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        try:
            call.gather("g", range(9), item, attempts=1)
        except stagedoor.StepFailed as failed:
            seen.append((failed.key, failed.error, [(one.key, one.error) for one in failed.failures]))
        call.sleep("nap", 5)
        return "caught"

    world = World(f)
    world.start("f")
    world.run()
    assert ran == [0, 1, 2]
    assert seen == [("g", "item 2: ValueError: broken", [("g/2", "ValueError: broken")])] * 2
    step = world.show().step("g")
    assert step is not None
    assert step.state is StepState.FAILED


def test_two_failures_at_once_are_both_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.Barrier(2, timeout=30)

    def item(number: int) -> None:
        here.wait()
        raise ValueError(f"no {number}")

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[str]:
        try:
            call.gather("g", range(2), item, limit=2, attempts=1)
        except stagedoor.StepFailed as failed:
            return [one.error for one in failed.failures]
        return []

    world = World(f)
    world.start("f")
    run_with(world, Threads(4), monkeypatch)
    assert world.result() == '["ValueError: no 0","ValueError: no 1"]'


def test_a_cancel_begins_no_new_items() -> None:
    world = World()
    ran: list[int] = []

    def item(number: int) -> None:
        ran.append(number)
        if number == 3:
            world.outside.cancel("c1")

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.gather("g", range(50), item)

    world.know(f)
    world.start("f")
    world.run()
    assert (world.state(), ran) == (CallState.CANCELLED, [0, 1, 2, 3])


def test_an_abort_in_a_helper_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.Barrier(2, timeout=30)
    main = threading.get_ident()

    def item(_number: int) -> None:
        here.wait()
        if threading.get_ident() != main:
            raise stagedoor.Abort("from a helper")

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.gather("g", range(2), item, limit=2)

    world = World(f)
    world.start("f")
    run_with(world, Threads(4), monkeypatch)
    assert (world.state(), world.error()) == (CallState.ABORTED, "Abort: from a helper")


@pytest.mark.parametrize(
    "first, second, told",
    [
        ([1, 2, 3], [1, 2], "gather 'g' had 3 items when it began, and has 2 now"),
        ([1, 2], [1, 2, 3], "gather 'g' had 2 items when it began, and has 3 now"),
        ([1, 2], [1, 5], "gather 'g' has other items now than when it began"),
        ([1, 2], [2, 1], "gather 'g' has other items now than when it began"),
    ],
)
@pytest.mark.parametrize("is_done", [False, True])
def test_another_list_is_a_change_of_the_flow(first: list[int], second: list[int], told: str, *, is_done: bool) -> None:
    items = list(first)
    fails = [not is_done]

    def item(number: int) -> int:
        if fails[0]:
            raise ValueError
        return number

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[int]:
        found = call.gather("g", items, item, attempts=9, base=5, cap=5)
        call.sleep("nap", 5)
        return found

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    items[:] = second
    fails[0] = False
    world.advance(10)
    world.run_ready(worker)
    assert told in world.show().waiting_for
    items[:] = first
    world.run(worker)
    assert world.state() is CallState.DONE


def test_items_that_make_no_json_fail_the_call_with_a_reason() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.gather("g", [object()], str)

    world = World(f)
    world.start("f")
    world.run()
    assert (world.state(), "the items make no JSON" in world.error()) == (CallState.FAILED, True)


def test_keys_of_items_and_of_other_operations_do_not_meet() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.step("g/1", int)
        call.gather("g", [1, 2], str)

    world = World(f)
    world.start("f")
    worker = world.worker()
    world.run_ready(worker)
    assert "the key 'g/1' is an item's of a gather and another operation's" in world.show().waiting_for
