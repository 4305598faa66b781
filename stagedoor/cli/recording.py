"""From what an order book and a stream know to the three files of a fixture. Pure.

The order book has orders as they are now. Their history is told by the outbox:
each row after an order's first stands for something that the shop did, and the
last state says what it was. What cannot be known, who was called what before a
change, is told as a reissue, which raises the version all the same.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from stagedoor.cli.invented import LONG, invented_fields, invented_order, problem_of
from stagedoor.cli.inventing import Inventor
from stagedoor.core.codec import Fields
from stagedoor.order import Order
from stagedoor.orders import format_line
from stagedoor.orders.history import OutboxRecord

RENDER, REFUND = "render_tickets", "refund_order"
FIRST_ORDER = 1001

type Step = dict[str, Any]
type _Moment = tuple[tuple[int, int], Iterator[Step]]
"""What happened, in steps, with what sorts it."""


@attrs.frozen(kw_only=True)
class RawEntry:
    """An entry as it is on Redis, wherever it was found; *at* sorts them."""

    entry_id: str
    fields: Fields

    @property
    def at(self) -> tuple[int, int]:
        """The id as two numbers."""
        ms, _, seq = self.entry_id.partition("-")
        return (int(ms), int(seq)) if ms.isdigit() and seq.isdigit() else (0, 0)


@attrs.frozen(kw_only=True)
class Recorded:
    """The three files, as text."""

    orders: str
    entries: str
    expected: str
    order_ids: Mapping[int, int]


@attrs.frozen(kw_only=True)
class Kinds:
    """The kinds that somebody has registered here: nothing else says what an entry's kind may tell."""

    handlers: frozenset[str]
    flows: frozenset[str]
    """A replay runs none: their entries wait."""

    @property
    def all(self) -> frozenset[str]:
        """Both."""
        return self.handlers | self.flows


@attrs.frozen(kw_only=True)
class _Teller:
    """Tells of entries in invented words; *order_ids* and *rows* have the invented ids."""

    inventor: Inventor
    kinds: Kinds
    order_ids: Mapping[int, int]
    rows: Mapping[int, int]

    def entry(self, fields: Fields, row: int) -> Step:
        made = invented_fields(fields, self.inventor, orders=self.order_ids, row=row, kinds=self.kinds.all)
        return {"entry": made}


@attrs.define
class _Writer:
    """Writes steps down, and remembers at which line an entry that is not simply done stands."""

    steps: list[Step] = attrs.Factory(list)
    dead: list[Step] = attrs.Factory(list)
    delayed: list[int] = attrs.Factory(list)

    def add(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps)


def record(
    orders: Sequence[Order],
    records: Sequence[OutboxRecord],
    raw: Sequence[RawEntry],
    *,
    inventor: Inventor,
    kinds: Kinds,
    about: str,
) -> Recorded:
    """Return a fixture of these orders.

    Args:
        orders: as they are now.
        records: all outbox rows of these orders.
        raw: entries on Redis that no row stands for: malformed ones, and what others have added.
        inventor: replaces personal data.
        kinds: that are registered where the fixture will be replayed.
        about: one sentence for the fixture.
    """
    ids = {order.order_id: number for number, order in enumerate(orders, start=FIRST_ORDER)}
    rows = {row: number for number, row in enumerate(sorted(one.row.outbox_id for one in records), start=1)}
    teller = _Teller(inventor=inventor, kinds=kinds, order_ids=ids, rows=rows)
    invented = {ids[order.order_id]: invented_order(order, inventor, ids[order.order_id]) for order in orders}
    moments: list[_Moment] = []
    for order in orders:
        of_order = [one for one in records if one.row.order_id == order.order_id]
        moments += _of_order(invented[ids[order.order_id]], of_order, teller)
    for number, entry in enumerate(raw, start=len(records) + 1):
        moments.append((entry.at, iter([teller.entry(entry.fields, number)])))
    writer = _told(moments, frozenset(invented), kinds.handlers)
    lines = (json.dumps(_written(step), ensure_ascii=False) for step in writer.steps)
    expected = {"about": about} | _expectations(invented, writer)
    return Recorded(
        orders="".join(f"{format_line(order)}\n" for order in invented.values()),
        entries="".join(f"{line}\n" for line in lines),
        expected=json.dumps(expected, ensure_ascii=False, indent=2) + "\n",
        order_ids=ids,
    )


def _told(moments: Iterable[_Moment], orders: frozenset[int], kinds: frozenset[str]) -> _Writer:
    """Return all steps, the first moment's first."""
    writer = _Writer()
    for _at, steps in sorted(moments, key=lambda moment: moment[0]):
        for step in steps:
            _note(writer, writer.add(step), step, orders, kinds)
    return writer


def _expectations(invented: Mapping[int, Order], writer: _Writer) -> Step:
    """Return what is to be there in the end; what is not there at all is not written down."""
    expected: Step = {"orders": {str(order_id): _expected(order) for order_id, order in invented.items()}}
    expected |= {"dead": writer.dead} if writer.dead else {}
    expected |= {"delayed": writer.delayed} if writer.delayed else {}
    return expected


def _of_order(order: Order, records: Sequence[OutboxRecord], teller: _Teller) -> Iterator[_Moment]:
    """Yield what happened to one order: at which moment, and in which steps."""
    renders = [one for one in records if one.row.kind == RENDER]
    refunds = [one for one in records if one.row.kind == REFUND]
    change = _positions_refunded(order)
    for one in records:
        steps: list[Step] = []
        if one in renders and one is not renders[0] and one is not renders[-1]:
            steps.append({"reissue": order.order_id})
        elif one in renders and one is renders[-1] and (change or one is not renders[0]):
            steps.append(change or {"reissue": order.order_id})
        elif one in refunds and one is refunds[-1] and order.status == "refunded":
            steps.append({"refund": order.order_id})
        steps.append(teller.entry(_fields(one), teller.rows[one.row.outbox_id]))
        yield _moment(one), iter(steps)
    if order.status == "refunded" and not refunds:
        # Its row is older than what the outbox keeps: so it was refunded before all that is told.
        yield (0, 0), iter([{"refund": order.order_id}])
    elif change and not renders:
        yield (0, 0), iter([change])


def _positions_refunded(order: Order) -> Step | None:
    """Return the step that refunds single positions; add-ons go with what they extend."""
    if order.status == "refunded":
        return None
    refunded = [one for one in order.positions if one.status == "refunded"]
    own = {one.id for one in refunded}
    named = [one.id for one in refunded if one.addon_to not in own]
    return {"change": order.order_id, "refund_positions": named} if named else None


def _fields(record: OutboxRecord) -> Fields:
    row = record.row
    values = {
        "kind": row.kind,
        "order_id": str(row.order_id),
        "outbox_id": str(row.outbox_id),
        "request_id": row.request_id,
        "trace": row.trace,
    }
    return tuple((name.encode(), value.encode()) for name, value in values.items())


def _moment(record: OutboxRecord) -> tuple[int, int]:
    if record.entry_id:
        return RawEntry(entry_id=record.entry_id, fields=()).at
    return int(record.created_at * 1000), record.row.outbox_id


def _written(step: Step) -> Step:
    """Return a step as JSON has it."""
    if "entry" not in step:
        return step
    fields: Fields = step["entry"]
    pairs = [(_value(name), _value(value)) for name, value in fields]
    names = [name for name, _ in pairs]
    is_plain = all(isinstance(name, str) for name in names) and len({str(name) for name in names}) == len(names)
    return {"entry": dict(pairs) if is_plain else [list(pair) for pair in pairs]}


def _value(value: bytes) -> Any:
    if len(value) > LONG and value == b"x" * len(value):
        return {"repeat": "x", "times": len(value)}
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _note(writer: _Writer, line: int, step: Step, orders: frozenset[int], kinds: frozenset[str]) -> None:
    """Note how an entry must end, where that is not simply done."""
    if "entry" not in step:
        return
    fields: Fields = step["entry"]
    if problem_of(fields) is not None:
        writer.dead.append({"line": line, "reason": "malformed"})
        return
    values = dict(fields)
    if values[b"kind"].decode() not in kinds:
        writer.delayed.append(line)
    elif int(values.get(b"order_id", b"0")) not in orders:
        writer.dead.append({"line": line, "reason": "permanent"})


def _expected(order: Order) -> Step:
    return {"status": order.status, "valid": [one.id for one in order.placed_positions]}
