"""Flows in a whole worker: slots that are lent, threads that are stuck, and stops."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

import stagedoor
from stagedoor.broker.calls import NewCall
from stagedoor.broker.redis import DeliverySettings
from stagedoor.cli.flow_wiring import flow_parts
from stagedoor.core.call import CallState
from stagedoor.core.flow import flow_of
from stagedoor.events import DeliverySettled, EventStream, HandlerOrphaned
from stagedoor.settings import Settings
from stagedoor.testing import FakeBroker, FakeDeliveries
from stagedoor.testing.fake_calls import FakeCalls
from stagedoor.worker import Given, StopRequest, WorkerSettings, run_worker
from tests.support.recorder import LIMIT_S, Recorder
from tests.worker.support import eventually, identity


@attrs.frozen
class Life:
    broker: FakeBroker
    calls: FakeCalls
    recorder: Recorder
    stop: StopRequest

    async def ended(self, *call_ids: str) -> list[str | None]:
        """Wait until these calls have ended; return their results."""
        await eventually(lambda: all(self._has_ended(name) for name in call_ids))
        outcomes = [self.calls.show(name).outcome for name in call_ids]  # type: ignore[union-attr]  # it is there
        return [None if outcome is None else outcome.result for outcome in outcomes]

    def _has_ended(self, call_id: str) -> bool:
        shown = self.calls.show(call_id)
        return shown is not None and shown.state.has_ended


@asynccontextmanager
async def living(
    *flows: Callable[[Any], Any], broker: FakeBroker | None = None, name: str = "w", **settings: str
) -> AsyncIterator[Life]:
    """Run a worker that knows these flows."""
    broker = broker or FakeBroker()
    specs = {spec.name: spec for spec in map(flow_of, flows) if spec is not None}
    deliveries = FakeDeliveries(broker, settings=DeliverySettings(wanted_name=name))
    made, stop = Settings.load({}, settings), StopRequest()
    parts = flow_parts(
        specs,
        FakeCalls(broker, owner=deliveries),
        settings=made,
        make_context=lambda _job, asked: asked,
        on_pass=lambda *_told: None,
        is_stopping=lambda: stop.is_asked,
    )
    recorder = Recorder()

    async def run() -> None:
        await run_worker(
            Given(
                deliveries=deliveries,
                settings=WorkerSettings.of(made),
                identity=identity(f"i-{name}"),
                handlers=parts.handlers,
                make_context=parts.make_context,
                chores=parts.chores,
                stop=stop,
                events=EventStream(recorder),
            ),
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        try:
            yield Life(broker, FakeCalls(broker), recorder, stop)
        finally:
            stop.ask("the test is over")
            stop.ask("the test is over")


@pytest.mark.parametrize("slots, limit, expected", [(4, 9, 4), (4, 2, 2), (1, 9, 1)])
async def test_a_gather_uses_the_slots_that_are_free_up_to_its_limit(slots: int, limit: int, expected: int) -> None:
    here = threading.Barrier(expected, timeout=LIMIT_S)

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> int:
        return len(call.gather("g", range(expected * 5), lambda _item: here.wait(), limit=limit))

    async with living(f, slots=str(slots)) as life:
        life.calls.start(NewCall(call_id="c1", flow="f"))
        assert await life.ended("c1") == [str(expected * 5)]


async def test_more_gathers_than_slots_all_finish() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> int:
        return sum(call.gather("g", range(20), int))

    async with living(f, slots="2") as life:
        names = [f"c{number}" for number in range(12)]
        for name in names:
            life.calls.start(NewCall(call_id=name, flow="f"))
        assert await life.ended(*names) == ["190"] * 12


async def test_a_step_that_never_ends_costs_its_slot_and_not_its_call() -> None:
    let_go = threading.Event()
    ran: list[int] = []

    def hangs() -> str:
        ran.append(1)
        if len(ran) == 1:
            assert let_go.wait(LIMIT_S)
        return "second"

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        return call.step("hangs", hangs, attempts=2, timeout=0.05, base=0)

    async with living(f, slots="4", grace_s="2") as life:
        life.calls.start(NewCall(call_id="c1", flow="f"))
        assert await life.ended("c1") == ['"second"']
        await life.recorder.wait(HandlerOrphaned)
        let_go.set()


async def test_a_stop_gives_back_a_pass_and_another_worker_ends_the_call() -> None:
    let_go = threading.Event()
    inside = threading.Event()
    ran: list[str] = []

    def slow() -> str:
        ran.append("slow")
        if len(ran) == 1:
            inside.set()
            assert let_go.wait(LIMIT_S)
            return "first"
        return "second"

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        return call.step("slow", slow)

    broker = FakeBroker()
    async with living(f, broker=broker) as first:
        first.calls.start(NewCall(call_id="c1", flow="f"))
        await eventually(inside.is_set)
        first.stop.ask("now")
        first.stop.ask("at once")
        async with living(f, broker=broker, name="v") as second:
            assert await second.ended("c1") == ['"second"']
            shown = second.calls.show("c1")
            let_go.set()
        assert second.calls.show("c1") == shown
    assert shown is not None
    assert shown.state is CallState.DONE


@pytest.mark.parametrize("verb", ["step", "gather"])
async def test_a_stop_lets_the_step_end_and_hands_the_rest_on_so_that_nothing_runs_twice(verb: str) -> None:
    let_go, inside = threading.Event(), threading.Event()
    ran: list[int] = []

    def slow(number: int) -> int:
        ran.append(number)
        if number == 1:
            inside.set()
            assert let_go.wait(LIMIT_S)
        return number

    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> list[int]:
        if verb == "step":
            return [call.step(f"s{number}", slow, number) for number in range(5)]
        return call.gather("g", range(5), slow, limit=1)

    broker = FakeBroker()
    async with living(f, broker=broker) as first:
        first.calls.start(NewCall(call_id="c1", flow="f"))
        await eventually(inside.is_set)
        first.stop.ask("in order")
        let_go.set()
        async with living(f, broker=broker, name="v") as second:
            assert await second.ended("c1") == ["[0,1,2,3,4]"]
            shown = second.calls.show("c1")
    assert ran == [0, 1, 2, 3, 4]
    assert shown is not None
    prefix = "s" if verb == "step" else "g/"
    epochs = [step.epoch for number in range(5) if (step := shown.step(f"{prefix}{number}")) is not None]
    assert epochs[:2] == [1, 1]
    assert min(epochs[2:]) > 1, "the first worker went on with steps after it was asked to stop"


async def test_an_ordinary_sleep_ends_by_itself() -> None:
    @stagedoor.flow("f")
    def f(call: stagedoor.Call) -> str:
        call.sleep("nap", 0.05)
        return "awake"

    async with living(f) as life:
        life.calls.start(NewCall(call_id="c1", flow="f"))
        assert await life.ended("c1") == ['"awake"']


async def test_the_line_of_each_pass_says_how_it_has_left_the_call_and_why() -> None:
    @stagedoor.flow("bad")
    def bad(call: stagedoor.Call) -> None:
        call.wait_signal("go")
        call.step("s", int, "no number", attempts=1)

    async with living(bad) as life:
        life.calls.start(NewCall(call_id="c1", flow="bad"))
        life.calls.signal("c1", "go", "null", token="t")
        await life.ended("c1")
        settled = await life.recorder.wait(DeliverySettled, ended="failed")
    assert "step 's' failed after 1 attempt: ValueError" in str(settled.error)
