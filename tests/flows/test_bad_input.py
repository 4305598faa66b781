"""What nobody should do with a call, and what they are told."""

import asyncio
import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import stagedoor
from stagedoor.broker.call_texts import CallSettings
from stagedoor.broker.calls import Told
from stagedoor.core.call import CallState
from stagedoor.flows import look_up, open_calls, send_signal, start
from tests.flows.support import World

NAN, INF = float("nan"), float("inf")


def outcome(function: Any) -> tuple[CallState, str]:
    """Run a flow of one function, and return its state and error."""
    world = World(stagedoor.flow("f")(function))
    world.start("f")
    world.run()
    return world.state(), world.error()


@pytest.mark.parametrize("seconds", [-1, -0.001, NAN, INF, -INF, 1e18, "5", None, True, [1]])
def test_sleeps_that_are_no_time(seconds: Any) -> None:
    state, error = outcome(lambda call: call.sleep("nap", seconds))
    assert state is CallState.FAILED
    assert "FlowMisused: sleep 'nap': expected 0 to 316224000 seconds (ten years), got" in error


@pytest.mark.parametrize("seconds", [-1, NAN, INF, "5", True])
def test_waits_that_are_no_time(seconds: Any) -> None:
    state, error = outcome(lambda call: call.wait_signal("s", timeout=seconds))
    assert (state, "FlowMisused: wait_signal 's'" in error) == (CallState.FAILED, True)


@pytest.mark.parametrize("key", ["", ".dot", "a\nb", "a\x00", "x" * 201, "\u202e", 5, None, b"k"])
@pytest.mark.parametrize("verb", ["step", "memo", "sleep", "wait_signal", "gather", "sequence"])
def test_keys_that_are_none(verb: str, key: Any) -> None:
    def use(call: Any) -> None:
        operations: dict[str, Any] = {
            "step": lambda: call.step(key, int),
            "memo": lambda: call.memo(key, int),
            "sleep": lambda: call.sleep(key, 0),
            "wait_signal": lambda: call.wait_signal(key),
            "gather": lambda: call.gather(key, [1], str),
            "sequence": lambda: list(call.sequence(key)),
        }
        operations[verb]()

    state, error = outcome(use)
    assert state is CallState.FAILED
    assert "FlowMisused" in error
    assert "1 to 200 printable characters" in error


@pytest.mark.parametrize(
    "key", ["x", "x" * 200, "Ünï/☃ 'q' \"d\"", "a:b", "a b", "0", "state", "{x}", "v:x", "on_success"]
)
def test_keys_that_are_odd_and_allowed(key: str) -> None:
    def use(call: Any) -> Any:
        return [call.step(key, int), [turn.memo(key, int) for turn in call.sequence("s", limit=2)]]

    world = World(stagedoor.flow("f")(use))
    world.start("f")
    world.run()
    assert world.result() == "[0,[0,0]]", world.error()


async def coroutine() -> None:
    await asyncio.sleep(0)


def generator() -> Iterator[int]:
    yield 1


class Callable:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize("function", [coroutine, generator, Callable(), 5, None, "print"])
def test_what_is_no_plain_function_is_no_step(function: Any) -> None:
    state, error = outcome(lambda call: call.step("s", function))
    assert (state, "FlowMisused" in error) == (CallState.FAILED, True)


def hidden(function: Any) -> Any:
    return function()


@pytest.mark.parametrize("function", [coroutine, generator])
def test_what_returns_a_coroutine_or_a_generator_is_no_step(function: Any) -> None:
    state, error = outcome(lambda call: call.step("s", functools.partial(hidden, function)))
    assert state is CallState.FAILED
    assert "a step is a plain function" in error


@pytest.mark.parametrize("function", [coroutine, generator, Callable()])
def test_what_is_no_plain_function_is_no_flow(function: Any) -> None:
    with pytest.raises(stagedoor.StagedoorError, match="coroutine or generator function"):
        stagedoor.flow("f")(function)
    with pytest.raises(stagedoor.StagedoorError, match="on_failure of 'f'"):
        stagedoor.flow("f", on_failure=function)(lambda call: None)


def test_what_cannot_be_marked_says_what_to_do_instead() -> None:
    class Shop:
        def close(self, _call: stagedoor.Call) -> str:
            return "closed"

    with pytest.raises(stagedoor.StagedoorError, match=r"cannot be marked; write a function that calls it"):
        stagedoor.flow("f")(Shop().close)
    world = World(stagedoor.flow("f")(functools.partial(Shop().close)))
    world.start("f")
    world.run()
    assert world.result() == '"closed"'


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "ä", 5, None])
def test_names_that_are_no_flow_s(name: Any) -> None:
    with pytest.raises(stagedoor.StagedoorError, match="the name"):
        stagedoor.flow(name)(lambda call: None)


@pytest.mark.parametrize("timeout", [0, -1, NAN, INF, "5", True])
def test_timeouts_that_are_none(timeout: Any) -> None:
    with pytest.raises(stagedoor.StagedoorError, match="timeout of 'f'"):
        stagedoor.flow("f", timeout=timeout)(lambda call: None)


@pytest.mark.parametrize(
    "policy", [{"attempts": 0}, {"attempts": -1}, {"attempts": 1.5}, {"attempts": True}, {"base": -1}, {"cap": NAN},
               {"timeout": -1}, {"timeout": "x"}, {"base": INF}]
)  # fmt: skip
def test_policies_that_are_none(policy: dict[str, Any]) -> None:
    state, error = outcome(lambda call: call.step("s", int, **policy))
    assert (state, "FlowMisused: 's': " + next(iter(policy)) in error) == (CallState.FAILED, True)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None])
def test_limits_that_are_none(limit: Any) -> None:
    state, error = outcome(lambda call: call.gather("g", [1], str, limit=limit))
    assert (state, "limit is" in error) == (CallState.FAILED, True)


class Opaque:
    pass


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), Opaque(), b"bytes", NAN, INF, [NAN], {1: "a"}, (1, 2), {"a": {(1,): 2}}, 1j, print]
)
@pytest.mark.parametrize("verb", ["step", "memo"])
def test_values_that_would_not_come_back_equal_are_refused_when_they_are_made(verb: str, value: Any) -> None:
    ran: list[int] = []

    def make() -> Any:
        ran.append(1)
        return value

    state, error = outcome(lambda call: getattr(call, verb)("s", make))
    assert (state, ran) == (CallState.FAILED, [1]), "an attempt more would not make it JSON"
    assert "InvalidValue" in error


def test_a_value_of_10_mb_is_refused_with_its_size() -> None:
    state, error = outcome(lambda call: call.step("s", lambda: "x" * 10_000_000))
    assert state is CallState.FAILED
    assert "a value of 10,000,002 bytes, expected at most 262,144" in error


def test_too_many_bytes_in_all_end_the_call() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        for number in range(100):
            call.step(f"s{number}", lambda: "x" * 260_000)

    world = World(f)
    world.start("f")
    world.run()
    assert (world.state(), "FlowLimitExceeded" in world.error()) == (CallState.FAILED, True)
    assert len(world.show().steps) == 64


def test_more_items_than_a_call_may_have_steps_are_refused_before_the_first_is_done() -> None:
    ran: list[int] = []
    state, error = outcome(lambda call: call.gather("g", range(10_000), ran.append))
    assert (state, ran) == (CallState.FAILED, [])
    assert "10,000 items" in error


def test_an_entry_of_another_kind_does_not_run_another_function_for_a_call() -> None:
    @stagedoor.flow("f")
    def f(_call: stagedoor.Call) -> str:
        return "f"

    @stagedoor.flow("g")
    def g(_call: stagedoor.Call) -> str:
        return "g"

    world = World(f, g)
    world.start("f", delay_s=60)
    world.broker.add(((b"kind", b"g"), (b"call_id", b"c1")))
    world.run()
    assert (world.state(), world.result()) == (CallState.DONE, '"f"')


def test_a_call_whose_mailbox_is_full_ends_and_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the error of its end fitted; five passes of a thousand tries each parked it instead."""
    settings = CallSettings(most_call_bytes=1000)
    monkeypatch.setattr("stagedoor.testing.fake_calls.CallSettings", lambda: settings)

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> None:
        call.wait_signal("go")
        call.step("s", lambda: "x" * 100)

    for verb in ("wake", "cancel"):
        world = World(f)
        world.start("f")
        worker = world.run()
        world.signal("go")
        for size in (200, 20, 1):
            while world.signal("other", "1" * size) is Told.TOLD:
                pass
        getattr(world.outside, verb)("c1")
        world.run(worker)
        assert world.state() is {"wake": CallState.FAILED, "cancel": CallState.CANCELLED}[verb]


def test_operations_inside_a_step_or_an_item_or_from_a_thread_or_after_the_pass() -> None:
    kept: list[Any] = []
    errors: dict[str, str] = {}

    def use(call: Any) -> None:
        def try_it(where: str) -> None:
            try:
                call.step("inner", int)
            except stagedoor.FlowMisused as error:
                errors[where] = str(error)

        call.step("s", try_it, "step")
        call.gather("g", [1], lambda _item: try_it("item"))
        thread = threading.Thread(target=try_it, args=("thread",))
        thread.start()
        thread.join()
        kept.append(try_it)

    assert outcome(use)[0] is CallState.DONE
    kept[0]("later")
    assert errors == {
        "step": "'inner': called inside 's'; a step cannot have steps of its own",
        "item": "'inner': called inside 'g/0'; a step cannot have steps of its own",
        "thread": "'inner': called from another thread, or from an item of a gather",
        "later": "'inner': the pass is over; a call must not be kept after its function has ended",
    }


def test_metadata_is_read_only() -> None:
    def use(call: Any) -> None:
        call.metadata["x"] = "y"

    state, error = outcome(use)
    assert (state, "TypeError" in error) == (CallState.FAILED, True)


# -- from outside ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"call_id": ""}, {"call_id": "a b"}, {"call_id": "x" * 65}, {"call_id": 5}, {"call_id": "ä"},
        {"metadata": {"": "x"}}, {"metadata": {".x": "x"}}, {"metadata": {"x": 5}}, {"metadata": {5: "x"}},
        {"delay_s": -1}, {"delay_s": NAN}, {"delay_s": INF}, {"delay_s": "1"}, {"delay_s": True},
        {"request_id": "a\nb"}, {"trace": "x" * 129}, {"request_id": 5},
        {"flow": "a b"}, {"flow": ""}, {"flow": print}, {"flow": 5},
    ],
)  # fmt: skip
def test_starts_that_are_refused(arguments: dict[str, Any]) -> None:
    world = World()
    flow = arguments.pop("flow", "f")
    with pytest.raises(stagedoor.FlowMisused):
        start(world.outside, flow, **arguments)


def test_starting_an_id_again_returns_the_call_that_there_is() -> None:
    world = World()
    first = start(world.outside, "f", call_id="c1", metadata={"x": "1"})
    again = start(world.outside, "f", call_id="c1", metadata={"x": "2"})
    assert (first.is_new, again.is_new, again.state) == (True, False, CallState.WAITING)
    assert world.show().metadata == {"x": "1"}
    assert start(world.outside, "f").call_id != start(world.outside, "f").call_id
    with pytest.raises(stagedoor.FlowMisused, match="'c1' is a call of the flow 'f', not of 'g'"):
        start(world.outside, "g", call_id="c1")


def test_a_flow_is_started_by_its_function_as_well_as_by_its_name() -> None:
    @stagedoor.flow("f")
    def f(_call: stagedoor.Call) -> int:
        return 5

    world = World(f)
    start(world.outside, f, call_id="c1")
    world.run()
    assert world.result() == "5"


@pytest.mark.parametrize(
    "arguments", [("a b", "n"), ("c1", ""), ("c1", ".n"), ("c1", "n", {1}), ("c1", "n", "x" * 300_000)]
)
def test_signals_that_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((stagedoor.FlowMisused, stagedoor.InvalidValue)):
        send_signal(World().outside, *arguments)


@pytest.mark.parametrize("token", ["", "x" * 201, "a\nb", ".t"])
def test_tokens_that_are_refused(token: str) -> None:
    with pytest.raises(stagedoor.FlowMisused, match="expected 1 to 200 printable"):
        send_signal(World().outside, "c1", "n", token=token)


def test_a_call_is_looked_up() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[int]:
        if call.metadata:
            raise ValueError("no")
        return [1, call.wait_signal("s")]

    world = World(f)
    assert look_up(world.outside, "c1") is None
    start(world.outside, f, call_id="c1")
    start(world.outside, f, call_id="c2", metadata={"x": "y"})
    worker = world.run()
    view = look_up(world.outside, "c1")
    assert view is not None
    assert (view.state, view.result, view.error) == (CallState.WAITING, None, "")
    send_signal(world.outside, "c1", "s", 2)
    world.run(worker)
    done, failed = look_up(world.outside, "c1"), look_up(world.outside, "c2")
    assert done is not None
    assert failed is not None
    assert (done.state, done.result, done.flow) == (CallState.DONE, [1, 2], "f")
    assert (failed.state, failed.result, failed.error) == (CallState.FAILED, None, "ValueError: no")


def test_a_signal_sent_twice_with_one_token_is_one() -> None:
    world = World()
    world.start("f")
    for _ in range(2):
        send_signal(world.outside, "c1", "n", [1], token="t")
    assert world.show().mailbox == {"n": ("[1]",)}


def test_calls_are_opened_without_connecting() -> None:
    with open_calls("redis://127.0.0.1:1/0", namespace="x") as calls, pytest.raises(stagedoor.Unavailable):
        start(calls, "f")
