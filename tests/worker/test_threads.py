"""Nobody waits for a thread that only he could free, and the loop waits for no thread at all."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
import trio

from stagedoor.broker import Deliveries
from stagedoor.broker.redis import DeliverySettings
from stagedoor.cli.context import Shop
from stagedoor.events import DeliverySettled
from stagedoor.orders import OrderBook
from stagedoor.rendering.api import Check, RenderRequest
from stagedoor.rendering.candidates import Candidate
from stagedoor.rendering.pool import RenderPool
from stagedoor.rendering.registry import check_candidates
from stagedoor.testing import FakeBroker, FakeDeliveries
from tests.support.orders import NACHTMUSIK
from tests.support.recorder import LIMIT_S
from tests.worker.support import Gate, eventually, job_fields, living, spec

SLOTS = 3
OFTEN: dict[str, Any] = {
    "beat_every_s": "0.05",
    "sweep_every_s": "0.05",
    "renew_every_s": "0.05",
    "reclaim_every_s": "0.05",
    "reclaim_idle_s": "60",
    "block_ms": "100",
}


# -- limits that are taken one inside the other ---------------------------------------------


class Drawer:
    """A renderer that goes on when it is let."""

    name, version, content_type, suffix = "drawer", "1", "text/plain", ".txt"

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.is_drawing = threading.Event()

    def fingerprint(self) -> str:
        return "f"

    def warm_up(self) -> None:
        return None

    def render(self, request: RenderRequest, check: Check) -> bytes:
        self.is_drawing.set()
        assert self.may_end.wait(LIMIT_S), "nobody has let it end"
        return b"drawn"


@pytest.fixture
def drawer() -> Drawer:
    return Drawer()


@pytest.fixture
def shop(tmp_path: Path, drawer: Drawer) -> Iterator[Shop]:
    """As little as there can be: one thread for the orders of async handlers, and one render at a time."""
    candidate = Candidate(source="test", distribution="test", distribution_version="1", load=lambda: [drawer])
    with OrderBook.open(f"sqlite:///{tmp_path}/book.db", tickets_dir=tmp_path / "tickets") as book:
        book.place(NACHTMUSIK)
        yield Shop(
            orders=book,
            pool=RenderPool(check_candidates([candidate]), slots=1),
            ticket_renderer="drawer",
            log=structlog.get_logger(),
            threads=trio.CapacityLimiter(1),
        )


class Crowd:
    """Handlers that look at the order and draw it once as many as there are slots have come."""

    def __init__(self) -> None:
        self._came = threading.Condition()
        self.count = 0

    def _come(self) -> None:
        with self._came:
            self.count += 1
            self._came.notify_all()

    def plain(self, job: Any, ctx: Any) -> None:
        self._come()
        with self._came:
            assert self._came.wait_for(lambda: self.count >= SLOTS, LIMIT_S)
        ctx.render("drawer", ctx.orders.get(job.order_id))

    async def awaiting(self, job: Any, ctx: Any) -> None:
        self._come()
        await eventually(lambda: self.count >= SLOTS)
        await ctx.render("drawer", await ctx.orders.get(job.order_id))


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_as_many_handlers_as_slots_use_orders_and_renders_at_once_and_all_end(
    broker: FakeBroker, shop: Shop, drawer: Drawer, is_async: bool
) -> None:
    crowd = Crowd()
    for _ in range(2 * SLOTS):
        broker.add(job_fields())
    drawer.may_end.set()
    handler = spec(crowd.awaiting if is_async else crowd.plain)
    async with living(broker, handler, make_context=shop.make_context, slots=str(SLOTS)) as life:
        await life.recorder.wait(DeliverySettled, 2 * SLOTS)
        assert {event.outcome for event in life.recorder.of(DeliverySettled)} == {"done"}
    assert crowd.count == 2 * SLOTS


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_while_handlers_wait_for_a_render_beats_and_settlements_go_on(
    broker: FakeBroker, shop: Shop, drawer: Drawer, is_async: bool
) -> None:
    def plain(job: Any, ctx: Any) -> None:
        ctx.render("drawer", shop.orders.get(job.order_id))

    async def awaiting(job: Any, ctx: Any) -> None:
        await ctx.render("drawer", await ctx.orders.get(job.order_id))

    def quick(job: Any, ctx: Any) -> None:
        """Be done at once."""

    for _ in range(SLOTS - 1):
        broker.add(job_fields("draw"))
    handlers = spec(awaiting if is_async else plain, "draw"), spec(quick, "quick")
    async with living(broker, *handlers, make_context=shop.make_context, slots=str(SLOTS), **OFTEN) as life:
        await eventually(drawer.is_drawing.is_set)
        beat_ms = broker.workers["w"].beat_ms
        broker.add(job_fields("quick"))
        assert (await life.recorder.wait(DeliverySettled)).kind == "quick"
        await eventually(lambda: broker.workers["w"].beat_ms > beat_ms)
        drawer.may_end.set()
        await life.recorder.wait(DeliverySettled, SLOTS)


# -- a Redis that takes its time ----------------------------------------------------------------


class Late:
    """Deliveries whose every answer comes only after the loop has gone round some times more.

    Where the loop itself waited for an answer, there would never be one.
    """

    def __init__(self, inner: FakeDeliveries) -> None:
        self._inner = inner
        self._loop = threading.current_thread()
        self._turned = threading.Condition()
        self._turns = 0
        self.asked: set[str] = set()
        self.asked_by_the_loop: set[str] = set()

    async def turn(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Go round."""
        task_status.started()
        while True:
            await trio.sleep(0.001)
            with self._turned:
                self._turns += 1
                self._turned.notify_all()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self._late(name, value) if callable(value) else value

    def _late(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.asked.add(name)
            if threading.current_thread() is self._loop:
                self.asked_by_the_loop.add(name)
            else:
                self._wait()
            return verb(*args, **kwargs)

        return call

    def _wait(self) -> None:
        with self._turned:
            enough = self._turns + 10
            assert self._turned.wait_for(lambda: self._turns >= enough, LIMIT_S), "the loop stands still"


async def test_a_redis_that_takes_its_time_with_every_answer_does_not_hold_the_loop_up(broker: FakeBroker) -> None:
    gate, tries = Gate(), 0

    def fails_once(job: Any, held: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ZeroDivisionError

    broker.add(job_fields("held"))
    broker.add(job_fields("again"))
    late = Late(FakeDeliveries(broker, settings=DeliverySettings(wanted_name="w")))
    handlers = spec(gate.handle, "held"), spec(fails_once, "again")
    everything = {"ensure_groups", "join", "read", "wait", "settle", "renew", "beat", "sweep", "reclaim", "promote"}
    async with trio.open_nursery() as nursery:
        await nursery.start(late.turn)
        options: dict[str, Any] = {"backoff_base_s": "0.1", "liveness_ttl_s": "0.4", **OFTEN}
        async with living(broker, *handlers, deliveries=cast("Deliveries", late), slots="2", **options) as life:
            await life.recorder.wait(DeliverySettled, 2)
            await eventually(lambda: late.asked >= everything)
            life.stop.ask("a deploy")
            gate.open()
            await life.wait_ended()
        nursery.cancel_scope.cancel()
    assert [event.outcome for event in life.recorder.of(DeliverySettled)] == ["retry", "done", "done"]
    assert {"unblock", "retire"} <= late.asked
    assert late.asked_by_the_loop == set()
