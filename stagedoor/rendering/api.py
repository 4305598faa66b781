"""What a renderer implements and what it gets: the whole plugin contract.

A renderer is any object with the attributes of `Renderer`. Publish it as an
entry point of the group ``stagedoor.renderers``; its value is a callable without
arguments (usually the class) that returns the renderer.

A renderer must be pure: the same request gives the same bytes in any thread,
process, hash seed, time zone and day. It reads no clock, no environment, no
file and no network inside `render`, and is called in several threads at once.

What an order says is text: never markup, a path or an address. It is also of any length, and
a thread cannot be stopped from outside: a renderer refuses what is far too much with
`InvalidRequest` and the name of the field, or cuts it off. Content of the type
``application/pdf`` is taken only if its structure is whole.

A renderer that had to replace or leave out something may say so: if it has a
method ``notes(request)`` that returns short sentences, they travel with the
result in `Rendered.notes`. A note names the field and never quotes its text.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import attrs

from stagedoor.order import Event, Order, Position, Seat, TaxLine

__all__ = [
    "ENTRY_POINT_GROUP",
    "Check",
    "Event",
    "Order",
    "Position",
    "RenderRequest",
    "Rendered",
    "Renderer",
    "Seat",
    "TaxLine",
]

ENTRY_POINT_GROUP = "stagedoor.renderers"

Check = Callable[[], None]
"""Call it between pages: it raises when the result is no longer wanted."""


@attrs.frozen(kw_only=True)
class RenderRequest:
    """One thing to draw: *position* is None when the whole order is wanted.

    What handlers ask for of one position has the order as that position sees it, without
    the rest (see `stagedoor.rendering.view`); then *number* of *total* is the ticket's place
    in its order, which is no longer to be counted. Elsewhere both are None.
    """

    order: Order
    position: Position | None = None
    layout: str | None = None
    locale: str = "en"
    number: int | None = None
    total: int | None = None


@attrs.frozen(kw_only=True)
class Rendered:
    """What a renderer made, with the content key that names it before it is drawn.

    *notes* says what the renderer replaced or left out, field by field; most
    documents have none.
    """

    content: bytes
    content_type: str
    suffix: str
    key: str
    notes: tuple[str, ...] = ()


@runtime_checkable
class Renderer(Protocol):
    """The contract of a renderer plugin.

    *suffix* begins with a dot; *version* changes whenever the output may change.
    """

    @property
    def name(self) -> str:
        """The name by which handlers ask for it: lower-case letters, digits, dashes."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the output may change."""
        ...

    @property
    def content_type(self) -> str:
        """The media type of what `render` returns."""
        ...

    @property
    def suffix(self) -> str:
        """The ending of a file of it, with its dot."""
        ...

    def fingerprint(self) -> str:
        """Return a hash of all it draws with: layouts, fonts, images, library and zlib versions."""
        ...

    def warm_up(self) -> None:
        """Do once, single-threaded, whatever must not happen first in eight threads at once.

        Raises:
            Exception: whatever is missing; the worker refuses to start and shows it.
        """
        ...

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the finished document.

        Raises:
            stagedoor.errors.InvalidRequest: the order can never be drawn; names the field.
        """
        ...


RendererFactory = Callable[[], Any]
