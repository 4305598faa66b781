"""What a handler gets: orders and renders in its own way, the check of its tenure, and a log of the delivery."""

import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from stagedoor.cli.context import AsyncContext, Context, InThreads, Shop
from stagedoor.cli.logs import Logs
from stagedoor.core.job import Job
from stagedoor.errors import LeaseLost, OrderNotFound, RendererNotFound
from stagedoor.orders import OrderBook
from stagedoor.rendering.api import Check, RenderRequest
from stagedoor.rendering.candidates import Candidate
from stagedoor.rendering.pool import RenderPool
from stagedoor.rendering.registry import check_candidates
from tests.support.orders import NACHTMUSIK

JOB = Job(
    kind="k",
    order_id=7,
    outbox_id=3,
    request_id="r-1",
    trace="",
    attempt=1,
    entry_id="5-0",
    origin="5-0",
    queued_at=1.0,
)


class Drawer:
    """A renderer that writes down what it was asked for."""

    name, version, content_type, suffix = "drawer", "1", "text/plain", ".txt"

    def fingerprint(self) -> str:
        return "f"

    def warm_up(self) -> None:
        return None

    def render(self, request: RenderRequest, check: Check) -> bytes:
        check()
        return f"{request.order.order_id} {request.position and request.position.id} {request.locale}".encode()


class Held:
    """A delivery, as far as a context looks at one."""

    def __init__(self, *, is_async: bool = False) -> None:
        self.is_async = is_async
        self.lost = False

    def check(self) -> None:
        if self.lost:
            raise LeaseLost("somebody else has it")


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    with OrderBook.open(f"sqlite:///{tmp_path}/book.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def make(book: OrderBook, said: io.StringIO) -> Callable[..., Any]:
    """Make a context as a worker does."""
    candidate = Candidate(source="test", distribution="test", distribution_version="1", load=lambda: [Drawer()])
    logs = Logs("json", stream=said)

    def make_context(held: Held | None = None) -> Any:
        shop = Shop(
            orders=book,
            pool=RenderPool(check_candidates([candidate]), slots=2),
            ticket_renderer="drawer",
            log=logs.log,
            threads=trio.CapacityLimiter(2),
        )
        return shop.make_context(JOB, held or Held())  # type: ignore[arg-type]  # stands for a HeldDelivery

    make_context.flush = logs.flush  # type: ignore[attr-defined]  # for the test of the log
    return make_context


def test_a_plain_handler_calls_in_its_own_thread(make: Callable[..., Any], book: OrderBook) -> None:
    order = book.place(NACHTMUSIK)
    ctx = make()
    assert isinstance(ctx, Context)
    assert ctx.orders is book
    assert ctx.ticket_renderer == "drawer"
    rendered = ctx.render("drawer", order, order.positions[0])
    assert rendered.content == f"{order.order_id} 1 de-DE".encode()
    assert ctx.content_key("drawer", order, order.positions[0]) == (rendered.key, ".txt", "text/plain")
    assert ctx.content_key("drawer", order)[0] != rendered.key
    assert ctx.render("drawer", order).content == f"{order.order_id} None de-DE".encode()
    with pytest.raises(RendererNotFound, match="installed: drawer"):
        ctx.content_key("painter", order)


def test_a_lost_tenure_ends_check_and_render(make: Callable[..., Any], book: OrderBook) -> None:
    order, held = book.place(NACHTMUSIK), Held()
    ctx = make(held)
    ctx.check()
    held.lost = True
    with pytest.raises(LeaseLost):
        ctx.check()
    with pytest.raises(LeaseLost):
        ctx.render("drawer", order)


async def test_an_async_handler_awaits_orders_and_renders(make: Callable[..., Any]) -> None:
    ctx = make(Held(is_async=True))
    assert isinstance(ctx, AsyncContext)
    order = await ctx.orders.place(NACHTMUSIK)
    assert (await ctx.orders.get(order.order_id)).order_id == order.order_id
    assert (await ctx.render("drawer", order)).content == f"{order.order_id} None de-DE".encode()
    assert (await ctx.orders.outbox.backlog()).waiting == 1
    assert ctx.orders.store.root.name == "tickets"
    with pytest.raises(OrderNotFound):
        await ctx.orders.get(99)


async def test_awaited_methods_leave_the_loop_alone() -> None:
    class Slow:
        def __init__(self) -> None:
            self.may_end = threading.Event()

        def wait(self, *, how: str) -> str:
            assert self.may_end.wait(30)
            return f"{how} in {threading.current_thread() is threading.main_thread()}"

    slow = Slow()
    waiting = InThreads(slow, trio.CapacityLimiter(1))
    async with trio.open_nursery() as nursery:
        results: list[str] = []

        async def wait() -> None:
            results.append(await waiting.wait(how="waited"))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        slow.may_end.set()
    assert results == ["waited in False"]


def test_the_log_knows_the_delivery_and_leaves_out_what_is_empty(make: Any, said: io.StringIO) -> None:
    make().log.info("did_it", tickets=2)
    make.flush()
    data = json.loads(said.getvalue())
    del data["at"]
    assert data == {
        "level": "info",
        "event": "did_it",
        "kind": "k",
        "order_id": 7,
        "entry_id": "5-0",
        "request_id": "r-1",
        "tickets": 2,
    }
