"""What a handler gets as ``ctx``: orders, rendering, the check of its tenure, and a log.

One is made per attempt, so making one has to cost next to nothing: what a
handler may not use is made when it is used.
"""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from stagedoor.core.job import Job
from stagedoor.order import Order, Position
from stagedoor.orders import OrderBook
from stagedoor.rendering.api import Rendered
from stagedoor.rendering.key import content_key
from stagedoor.rendering.pool import RenderPool
from stagedoor.rendering.view import request_for
from stagedoor.worker import HeldDelivery


@attrs.frozen(kw_only=True)
class Shop:
    """What all contexts of a process share.

    *threads* bounds the order book's threads of async handlers; *log* is what
    each attempt's log is bound from.
    """

    orders: OrderBook
    pool: RenderPool
    ticket_renderer: str
    log: Any
    threads: trio.CapacityLimiter

    def make_context(self, job: Job, held: HeldDelivery) -> "Context | AsyncContext":
        """Return the context of one attempt; runs where the handler runs."""
        return AsyncContext(self, job, held) if held.is_async else Context(self, job, held)


class _Common:
    """What plain and async handlers use alike."""

    def __init__(self, shop: Shop, job: Job, held: HeldDelivery) -> None:
        self._shop = shop
        self._job = job
        self._held = held

    @property
    def ticket_renderer(self) -> str:
        """The name of the renderer that draws tickets here."""
        return self._shop.ticket_renderer

    @functools.cached_property
    def log(self) -> Any:
        """A structlog logger that says on every line which delivery it is about; keep personal data out."""
        job = self._job
        bound = {
            "kind": job.kind,
            "order_id": job.order_id,
            "entry_id": job.entry_id,
            "request_id": job.request_id,
            "trace": job.trace,
        }
        return self._shop.log.bind(**{name: value for name, value in bound.items() if value not in (None, "")})

    def check(self) -> None:
        """Return when this attempt may go on; call it between pages, and before anything irreversible.

        Raises:
            LeaseLost: somebody else has the entry. Stop.
            JobTimeout: the kind's timeout has passed. Stop.
        """
        self._held.check()

    def content_key(self, name: str, order: Order, position: Position | None = None) -> tuple[str, str, str]:
        """Return content key, suffix and content type of a document without drawing it.

        Raises:
            RendererNotFound: nothing of that name is installed.
        """
        renderer = self._shop.pool.registry.get(name)
        return content_key(request_for(order, position), renderer), renderer.suffix, renderer.content_type


class Context(_Common):
    """What a plain handler gets; every call is made in the handler's own thread."""

    @property
    def orders(self) -> OrderBook:
        """The order book."""
        return self._shop.orders

    def render(self, name: str, order: Order, position: Position | None = None) -> Rendered:
        """Return the document that renderer *name* draws of the order, or of one position.

        Raises:
            RendererNotFound: nothing of that name is installed.
            InvalidRequest: it can never be drawn; names the field.
            RendererBroken: the renderer failed.
            LeaseLost: somebody else has the entry.
            JobTimeout: the kind's timeout has passed.
        """
        return self._shop.pool.render(name, request_for(order, position), check=self._held.check)


class AsyncContext(_Common):
    """What an async handler gets: as `Context`, with ``orders`` and ``render`` to be awaited."""

    @functools.cached_property
    def orders(self) -> "InThreads":
        """The order book, its methods to be awaited: ``order = await ctx.orders.get(4471)``."""
        return InThreads(self._shop.orders, self._shop.threads)

    async def render(self, name: str, order: Order, position: Position | None = None) -> Rendered:
        """As `Context.render`; runs in a thread under the limit of renders."""
        return await self._shop.pool.render_async(name, request_for(order, position), check=self._held.check)


class InThreads:
    """An object whose methods are awaited: each runs in a thread, so that the loop never waits.

    **Cancellation**: waits for the thread that is under way; what it writes is written whole.
    """

    def __init__(self, target: Any, limiter: trio.CapacityLimiter) -> None:
        self._target = target
        self._limiter = limiter

    def __getattr__(self, name: str) -> Any:
        """Return a method to be awaited, a part of the object wrapped in the same way, or a plain value."""
        value = getattr(self._target, name)
        if callable(value):
            return self._awaitable(value)
        return InThreads(value, self._limiter) if type(value).__module__.startswith("stagedoor.orders") else value

    def _awaitable(self, method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await trio.to_thread.run_sync(functools.partial(method, *args, **kwargs), limiter=self._limiter)

        return call
