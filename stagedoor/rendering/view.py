"""What a ticket is drawn from: the order as one position sees it, and nothing else of it.

A ticket shows its own position, what that extends, and what extends it; of the
others it says how many there are. So a renderer is given no more than that. Two
things follow. A change to one position changes the request, and with it the
content key, of those tickets alone that show it: the others stay as they are,
byte for byte, and are not drawn again. And no ticket can say anything about
somebody whom its holder may not even know.
"""

from collections.abc import Iterator

import attrs

from stagedoor.order import Order, Position
from stagedoor.rendering.api import RenderRequest

__all__ = ["request_for"]


def request_for(order: Order, position: Position | None = None) -> RenderRequest:
    """Return the request for the document of an order, or for the ticket of one position.

    For a position, *order* is narrowed: it has the position, those that it extends and
    the placed ones that extend it; all of these but itself without their tokens and
    versions. The order's version is the one that last changed the position.

    Args:
        order: the order as it was read.
        position: one of its positions; None for a document of the whole order.
    """
    if position is None:
        return RenderRequest(order=order, locale=order.locale)
    placed = [one.id for one in order.placed_positions]
    number = placed.index(position.id) + 1 if position.id in placed else None
    return RenderRequest(
        order=attrs.evolve(order, version=position.version, positions=tuple(_seen(order, position))),
        position=position,
        locale=order.locale,
        number=number,
        total=len(placed),
    )


def _seen(order: Order, position: Position) -> Iterator[Position]:
    """Yield *position* and its relatives, in the sequence in which the order has them."""
    above, below = _extended(order, position), _extending(order, position)
    for one in order.positions:
        if one.id == position.id:
            yield position
        elif one.id in above or (one.id in below and one.status == "placed"):
            yield attrs.evolve(one, token="", version=0)


def _extended(order: Order, position: Position) -> set[int]:
    """Return the ids of what *position* extends, and what that extends; a circle ends it."""
    parents = {one.id: one.addon_to for one in order.positions}
    found: set[int] = set()
    parent = position.addon_to
    while parent is not None and parent not in found:
        found.add(parent)
        parent = parents.get(parent)
    return found


def _extending(order: Order, position: Position) -> set[int]:
    """Return the ids of what extends *position*, and what extends those."""
    found = {position.id}
    size = 0
    while size < len(found):
        size = len(found)
        found |= {one.id for one in order.positions if one.addon_to in found}
    return found - {position.id}
