"""An on-sale night as a fixture: thousands of orders at once, with refunds and changes among them, from a seed.

The files are written where they are wanted and never kept: the seed is the fixture.
"""

import itertools
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from stagedoor.order import NewOrder
from stagedoor.orders import format_line
from stagedoor.rehearsal.plan import Act, Deed, make_plan
from stagedoor.rehearsal.programme import make_orders

ORDERS = 12_000
REFUND_SHARE = 0.15
MOST_LATE = 300
"""Entries by which one may come later than it was written, so that a refund may overtake its placement."""


@attrs.frozen(kw_only=True)
class Night:
    """One night; ids of orders count from 1, and what happens to an order stands at its place in *plan*."""

    orders: Sequence[NewOrder]
    plan: Sequence[tuple[Deed, ...]]
    seed: int

    @classmethod
    def of(cls, count: int, seed: int) -> "Night":
        """Return the night of a seed."""
        orders = [attrs.evolve(order, order_id=number) for number, order in enumerate(make_orders(count, seed), 1)]
        return cls(orders=orders, plan=make_plan(orders, refund_share=REFUND_SHARE, seed=seed), seed=seed)

    def order_lines(self) -> Iterator[str]:
        """Yield the lines of ``orders.jsonl``."""
        for order in self.orders:
            yield format_line(order)

    def step_lines(self) -> Iterator[str]:
        """Yield the lines of ``entries.jsonl``: what the shop does, and later, in any order, the entries about it."""
        rng = random.Random(f"night {self.seed}")
        rows = itertools.count(1)
        timed: list[tuple[float, str]] = []
        for number, deeds in enumerate(self.plan, 1):
            at = rng.uniform(0, len(self.plan))
            timed.append((at + rng.uniform(0, MOST_LATE), _entry("render_tickets", number, next(rows))))
            for deed in deeds:
                at += rng.uniform(0, MOST_LATE)
                timed.append((at, json.dumps(self._step(number, deed), ensure_ascii=False)))
                kind = "refund_order" if deed.act is Act.REFUND else "render_tickets"
                timed.append((at + rng.uniform(0, MOST_LATE), _entry(kind, number, next(rows))))
        timed.sort(key=lambda one: one[0])
        return (line for _at, line in timed)

    def expected(self) -> Mapping[str, Any]:
        """Return ``expected.json``."""
        ended = {
            str(number): _end(order, deeds)
            for number, (order, deeds) in enumerate(zip(self.orders, self.plan, strict=True), 1)
        }
        return {"about": f"An on-sale night of {len(self.orders)} orders, seed {self.seed}.", "orders": ended}

    def _step(self, number: int, deed: Deed) -> dict[str, Any]:
        position = str(deed.position)
        match deed.act:
            case Act.REFUND:
                return {"refund": number}
            case Act.REISSUE:
                return {"reissue": number}
            case Act.RENAME:
                return {"change": number, "rename": {position: deed.holder}}
            case Act.RESEAT:
                return {"change": number, "reseat": {position: {"row": "Z", "number": str(30 + deed.position)}}}
            case Act.ROTATE:
                return {"change": number, "rotate": [deed.position]}
            case Act.REFUND_POSITION:
                return {"change": number, "refund_positions": [deed.position]}


def write_night(night: Night, folder: Path) -> None:
    """Write the three files of the fixture into a folder that is there."""
    _write(folder / "orders.jsonl", night.order_lines())
    _write(folder / "entries.jsonl", night.step_lines())
    _write(folder / "expected.json", [json.dumps(night.expected())])


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _entry(kind: str, number: int, row: int) -> str:
    fields = {"kind": kind, "order_id": str(number), "outbox_id": str(row), "request_id": "night", "trace": ""}
    return json.dumps({"entry": fields})


def _end(order: NewOrder, deeds: Sequence[Deed]) -> dict[str, Any]:
    if any(deed.act is Act.REFUND for deed in deeds):
        return {"status": "refunded", "valid": []}
    gone = {deed.position for deed in deeds if deed.act is Act.REFUND_POSITION}
    valid = [position.id for position in order.positions if not {position.id, position.addon_to} & gone]
    return {"status": "placed", "valid": valid}
