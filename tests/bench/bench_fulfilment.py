"""Tickets through one worker, against a bare loop of the same renderer in as many threads."""

import datetime as dt
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import trio

from stagedoor.core.handler import HandlerSpec
from stagedoor.handlers.render_tickets import render_tickets
from stagedoor.order import Event, Order, Position, Seat
from stagedoor.orders import OrderBook
from stagedoor.rendering.api import RenderRequest
from stagedoor.rendering.key import content_key
from stagedoor.rendering.pool import RenderPool
from stagedoor.rendering.registry import load_renderers
from tests.bench.figures import Figure
from tests.bench.rig import Countdown, Rig, private_redis
from tests.support.redis_server import RedisServer

SLOTS = 8
RENDERS = 240
POSITIONS = 10
"""As many pages as make one document take 10 ms or more: the figure is about rendering, not about hand-over."""
RENDERER = "ticket-pdf"


def measure(runs: int) -> list[Figure]:
    """Return the worker's rate over the bare loop's, for rendering alone and for the whole job."""
    registry = load_renderers()
    registry.warm_up()
    pool = RenderPool(registry, slots=SLOTS)
    fixed, whole, one_ms = [], [], []
    with private_redis() as server:
        for _ in range(runs):
            bare = _bare_rate(pool)
            fixed.append(_fixed_rate(server, pool) / bare)
            whole.append(_whole_rate(server, pool) / bare)
            one_ms.append(_one_render_ms(pool))
    return [
        Figure(name="worker that renders a fixed order / bare loop", values=fixed, at_least=0.97),
        Figure(name="render_tickets with its order book / bare loop", values=whole),
        Figure(name="one render alone", values=one_ms, unit="ms", at_least=10),
    ]


def _order() -> Order:
    event = Event(
        name="Così fan tutte",
        venue="Volksbühne",
        starts_at=dt.datetime(2026, 7, 1, 18, tzinfo=dt.UTC),
        tz="Europe/Berlin",
    )
    positions = tuple(
        Position(
            id=number,
            holder=f"Žofie Nováková {number}",
            category="Parkett",
            amount_minor=4500,
            token=f"{number:026d}".replace("0", "A").replace("1", "B").replace("8", "C").replace("9", "D"),
            version=1,
            seat=Seat(row="C", number=str(number)),
        )
        for number in range(1, POSITIONS + 1)
    )
    return Order(
        order_id=1, version=1, status="placed", event=event, locale="de-DE", currency="EUR", buyer="Jan Novák",
        positions=positions,
    )  # fmt: skip


def _render(pool: RenderPool) -> None:
    pool.render(RENDERER, RenderRequest(order=_order(), locale="de-DE"))


def _one_render_ms(pool: RenderPool) -> float:
    began_at = perf_counter()
    for _ in range(10):
        _render(pool)
    return (perf_counter() - began_at) * 100


def _bare_rate(pool: RenderPool) -> float:
    with ThreadPoolExecutor(SLOTS) as threads:
        list(threads.map(lambda _: None, range(SLOTS)))
        began_at = perf_counter()
        list(threads.map(lambda _: _render(pool), range(RENDERS)))
        return RENDERS / (perf_counter() - began_at)


def _fixed_rate(server: RedisServer, pool: RenderPool) -> float:
    rig = Rig(server)
    rig.publish("fixed", RENDERS)
    countdown = Countdown(RENDERS)

    def fixed(_job: object, _ctx: object) -> None:
        countdown.begin()
        _render(pool)
        countdown.hit()

    trio.run(rig.work, {"fixed": HandlerSpec(kind="fixed", function=fixed)}, countdown.wait)
    return RENDERS / countdown.seconds


class _Context:
    """What `render_tickets` needs, without the command line around it."""

    ticket_renderer = RENDERER

    def __init__(self, book: OrderBook, pool: RenderPool) -> None:
        self.orders = book
        self._pool = pool
        self.log = self

    def warning(self, _event: str, **_fields: Any) -> None:
        """Nobody is told."""

    def debug(self, _event: str, **_fields: Any) -> None:
        """Say nothing."""

    def check(self) -> None:
        """Find the tenure whole."""

    def render(self, name: str, order: Order, position: Position | None = None) -> Any:
        """Render under the pool."""
        return self._pool.render(name, RenderRequest(order=order, position=position, locale=order.locale))

    def content_key(self, name: str, order: Order, position: Position | None = None) -> tuple[str, str, str]:
        """Return what names the document."""
        request = RenderRequest(order=order, position=position, locale=order.locale)
        renderer = self._pool.registry.get(name)
        return content_key(request, renderer), renderer.suffix, renderer.content_type


def _whole_rate(server: RedisServer, pool: RenderPool) -> float:
    """Return documents per second, counted as the bare loop's: ten tickets are one of its documents."""
    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        root = Path(folder)
        with OrderBook.open(f"sqlite:///{root / 'orders.db'}", tickets_dir=root / "tickets") as book:
            book.place_many(_new_order(number) for number in range(1, RENDERS + 1))
            rig = Rig(server)
            rig.publish("render_tickets", RENDERS)
            countdown = Countdown(RENDERS)
            context = _Context(book, pool)

            def whole(job: Any, ctx: Any) -> None:
                countdown.begin()
                render_tickets(job, ctx)
                countdown.hit()

            spec = HandlerSpec(kind="render_tickets", function=whole)
            trio.run(rig.work, {"render_tickets": spec}, countdown.wait, lambda _job, _held: context)
            return RENDERS / countdown.seconds


def _new_order(number: int) -> dict[str, Any]:
    order = _order()
    positions = [
        {"id": p.id, "holder": p.holder, "category": p.category, "seat": {"zone": None, "row": "C", "number": "8"},
         "amount_minor": p.amount_minor, "addon_to": None}
        for p in order.positions
    ]  # fmt: skip
    event = {"name": order.event.name, "venue": order.event.venue, "starts_at": "2026-07-01T18:00:00Z",
             "doors_at": None, "tz": order.event.tz}  # fmt: skip
    return {
        "order_id": number, "event": event, "locale": order.locale, "currency": order.currency,
        "buyer": order.buyer, "positions": positions,
    }  # fmt: skip
