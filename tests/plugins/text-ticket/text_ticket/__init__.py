"""Tickets as plain text: the smallest renderer that keeps the whole contract."""

import hashlib
import unicodedata
from pathlib import Path

from stagedoor.errors import InvalidRequest
from stagedoor.rendering.api import Check, Position, RenderRequest

__all__ = ["TextTicket"]

_WIDTH = 64
_MOST = 500


class TextTicket:
    """Writes a few lines for each position."""

    name = "text-ticket"
    version = "1"
    content_type = "text/plain"
    suffix = ".txt"

    def fingerprint(self) -> str:
        """Return a hash of this file: it is all that this renderer draws with."""
        return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()

    def warm_up(self) -> None:
        """Do nothing: there is nothing that could be done first."""

    def render(self, request: RenderRequest, check: Check) -> bytes:
        """Return the tickets as UTF-8.

        Raises:
            InvalidRequest: the order has no placed position, or too many.
        """
        if len(request.order.positions) > _MOST:
            raise InvalidRequest(f"order.positions: at most {_MOST} are written")
        positions = (request.position,) if request.position else request.order.placed_positions
        if not positions:
            raise InvalidRequest("order.positions: none is placed")
        pages: list[str] = []
        for position in positions:
            check()
            pages.append(_page(request, position))
        return ("\n" + "-" * _WIDTH + "\n").join(pages).encode()


def _page(request: RenderRequest, position: Position) -> str:
    event = request.order.event
    lines = (event.name, event.venue, position.holder, position.category, position.token)
    return "\n".join(_line(line) for line in lines if line)


def _line(text: str) -> str:
    """Return *text* on one line, composed, without anything invisible."""
    kept = (char for char in unicodedata.normalize("NFC", text) if unicodedata.category(char)[0] != "C")
    return "".join(kept)[:_WIDTH]
