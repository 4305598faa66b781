"""What the shop's handlers need from whoever runs them: no queue, no trio."""

from typing import Any, Protocol

from stagedoor.order import Order, Position
from stagedoor.orders import OrderBook
from stagedoor.rendering.api import Rendered

__all__ = ["Context", "Job", "Log"]


class Job(Protocol):
    """One entry of the stream, parsed."""

    @property
    def kind(self) -> str:
        """What is to be done."""
        ...

    @property
    def order_id(self) -> int | None:
        """Whose order; None only for jobs of flows."""
        ...

    @property
    def outbox_id(self) -> int | None:
        """Which outbox row it came from; None only for jobs of flows."""
        ...

    @property
    def request_id(self) -> str:
        """Joins the log lines to the request."""
        ...

    @property
    def trace(self) -> str:
        """Joins the log lines to the trace."""
        ...

    @property
    def attempt(self) -> int:
        """Which execution of the work this is, from 1."""
        ...

    @property
    def entry_id(self) -> str:
        """The entry's id in the stream."""
        ...

    @property
    def queued_at(self) -> float:
        """When it was first added, in seconds since the epoch."""
        ...


class Log(Protocol):
    """A structured log; no personal data goes in."""

    def debug(self, event: str, **fields: Any) -> Any:
        """Write one event with its fields, for whoever looks closely: the delivery's one line is the worker's."""
        ...

    def warning(self, event: str, **fields: Any) -> Any:
        """Write one event that somebody should look at although the job succeeds."""
        ...


class Context(Protocol):
    """What a handler works with; every call is made in the handler's own thread."""

    @property
    def orders(self) -> OrderBook:
        """The order book, with its ticket files."""
        ...

    @property
    def ticket_renderer(self) -> str:
        """The name of the renderer that draws tickets."""
        ...

    @property
    def log(self) -> Log:
        """The log of this delivery."""
        ...

    def render(self, name: str, order: Order, position: Position | None = None) -> Rendered:
        """Return the document, drawn by the renderer of this name."""
        ...

    def content_key(self, name: str, order: Order, position: Position | None = None) -> tuple[str, str, str]:
        """Return content key, suffix and content type of a document without drawing it."""
        ...

    def check(self) -> None:
        """Return if this delivery is still ours.

        Raises:
            LeaseLost: somebody else has the entry; stop.
            JobTimeout: the kind's time is up; stop.
        """
        ...
