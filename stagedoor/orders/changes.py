"""What a shop may change about a placed order, and what the order is afterwards: pure."""

from collections.abc import Callable, Sequence

import attrs

from stagedoor.errors import InvalidOrder, OrderStateError
from stagedoor.order import Order, Position, Seat
from stagedoor.orders.parse import position_problems

__all__ = ["Change", "RefundPosition", "Rename", "Reseat", "RotateToken", "apply_changes"]


@attrs.frozen
class Rename:
    """Give a position another holder; its token stays, so a ticket already sent still opens the door."""

    position: int
    holder: str


@attrs.frozen
class Reseat:
    """Give a position another seat, or none."""

    position: int
    seat: Seat | None


@attrs.frozen
class RotateToken:
    """Give a position a fresh token; the old one is refused from this moment on."""

    position: int


@attrs.frozen
class RefundPosition:
    """Refund one position and the add-ons that extend it; the others stay."""

    position: int


Change = Rename | Reseat | RotateToken | RefundPosition


def apply_changes(order: Order, changes: Sequence[Change], *, new_token: Callable[[], str]) -> Order:
    """Return the order after the changes; what they touch carries the order's version.

    Args:
        order: the order with its version raised already.
        changes: what to do, one after the other.
        new_token: makes a fresh token.

    Raises:
        OrderStateError: a position is not there or is refunded; nothing was changed.
        InvalidOrder: a new holder or seat will not do.
    """
    positions = {position.id: position for position in order.positions}
    for change in changes:
        position = _placed(order.order_id, positions, change.position)
        for changed in _changed(position, change, positions=positions, new_token=new_token):
            positions[changed.id] = attrs.evolve(changed, version=order.version)
    return attrs.evolve(order, positions=tuple(positions.values()))


def _placed(order_id: int, positions: dict[int, Position], position_id: int) -> Position:
    position = positions.get(position_id)
    if position is None:
        raise OrderStateError(f"order {order_id} has no position {position_id}")
    if position.status != "placed":
        raise OrderStateError(f"position {position_id} of order {order_id} is refunded already")
    return position


def _changed(
    position: Position, change: Change, *, positions: dict[int, Position], new_token: Callable[[], str]
) -> list[Position]:
    match change:
        case Rename(holder=holder):
            return [_valid(attrs.evolve(position, holder=holder))]
        case Reseat(seat=seat):
            return [_valid(attrs.evolve(position, seat=seat))]
        case RotateToken():
            return [attrs.evolve(position, token=new_token())]
        case RefundPosition():
            # An add-on without what it extends admits nobody.
            gone = [p for p in positions.values() if position.id in {p.id, p.addon_to} and p.status == "placed"]
            return [attrs.evolve(p, status="refunded") for p in gone]


def _valid(position: Position) -> Position:
    problems = [f"{field}: {problem}" for field, problem in position_problems(f"position {position.id}", position)]
    if problems:
        raise InvalidOrder("; ".join(problems))
    return position
