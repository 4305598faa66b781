"""What the shop does to each order besides selling it, and at which moment: pure, from a seed.

The moments are the hard ones: before a worker has looked at the order, while
its tickets are being drawn, and after they were issued.
"""

import enum
import random
from collections.abc import Sequence

import attrs

from stagedoor.order import NewOrder

CHANGE_SHARE = 0.15
CHANGED_AND_REFUNDED_SHARE = 0.2
"""Of the refunded orders: they are changed first."""


class Moment(enum.Enum):
    """When something happens to an order, by where its tickets are."""

    BEFORE = "before"
    RENDERING = "rendering"
    AFTER = "after"


class Act(enum.Enum):
    """What happens to an order."""

    REFUND = "refund"
    RENAME = "rename"
    RESEAT = "reseat"
    ROTATE = "rotate"
    REISSUE = "reissue"
    REFUND_POSITION = "refund position"


@attrs.frozen(kw_only=True)
class Deed:
    """One act, *delay_s* seconds after its moment has come; the deeds of one order come one after the other.

    *holder* is the new name of a position that is renamed.
    """

    act: Act
    moment: Moment
    delay_s: float
    position: int = 1
    holder: str = ""


LONGEST_DELAY_S = {Moment.BEFORE: 0.02, Moment.RENDERING: 0.03, Moment.AFTER: 0.4}
"""Rendering takes tens of ms: a longer delay would miss it."""

_CHANGES = (Act.RENAME, Act.RESEAT, Act.ROTATE, Act.REISSUE, Act.REFUND_POSITION)
_WEIGHTS = (40, 20, 15, 15, 10)


def make_plan(orders: Sequence[NewOrder], *, refund_share: float, seed: int) -> list[tuple[Deed, ...]]:
    """Return what happens to each order, in their sequence.

    Args:
        orders: the orders.
        refund_share: how many of them are refunded, from 0 to 1; rounded to whole orders.
        seed: the same one gives the same plan.
    """
    rng = random.Random(f"plan {seed}")
    refunded = set(rng.sample(range(len(orders)), round(len(orders) * refund_share)))
    names: dict[str, list[str]] = {}
    for order in orders:
        names.setdefault(order.locale, []).append(order.buyer)
    return [
        _deeds(order, names[order.locale], rng, is_refunded=place in refunded) for place, order in enumerate(orders)
    ]


def _deeds(order: NewOrder, names: Sequence[str], rng: random.Random, *, is_refunded: bool) -> tuple[Deed, ...]:
    share = CHANGED_AND_REFUNDED_SHARE if is_refunded else CHANGE_SHARE
    changes = (_change(order, names, rng),) if rng.random() < share else ()
    return (*changes, _deed(Act.REFUND, rng)) if is_refunded else changes


def _change(order: NewOrder, names: Sequence[str], rng: random.Random) -> Deed:
    act = rng.choices(_CHANGES, weights=_WEIGHTS)[0]
    admissions = [position.id for position in order.positions if position.addon_to is None]
    if act is Act.REFUND_POSITION and len(admissions) == 1:
        act = Act.ROTATE  # an order without a position left would be a refund
    # Somebody who speaks the language takes the place.
    holder = rng.choice(names) if act is Act.RENAME else ""
    return _deed(act, rng, position=rng.choice(admissions), holder=holder)


def _deed(act: Act, rng: random.Random, *, position: int = 1, holder: str = "") -> Deed:
    moment = rng.choice(list(Moment))
    delay_s = rng.uniform(0, LONGEST_DELAY_S[moment])
    return Deed(act=act, moment=moment, delay_s=delay_s, position=position, holder=holder)
