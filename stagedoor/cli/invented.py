"""Orders and entries with everything invented that names somebody; what stays is said here. Pure.

A text of an order is replaced unless `_KEPT` says otherwise, so that one that is new is, too.
"""

import re
from collections.abc import Mapping
from typing import Any

import attrs

from stagedoor.cli.inventing import Inventor
from stagedoor.core.codec import Fields
from stagedoor.core.entry import Entry
from stagedoor.core.job import FIELD_NAMES, MAX_ID, parse_job
from stagedoor.core.tenure import Stream
from stagedoor.errors import MalformedEntry
from stagedoor.order import Order, Position
from stagedoor.replay.fixture import LONGEST_VALUE

OUR_KINDS = frozenset(("render_tickets", "refund_order"))
UNKNOWN_ORDER = 900_000
"""Above the ids of invented orders: entries that name an order which the book does not know."""
LONG = 2000
"""Bytes of a value past which it keeps its length only, and whether it is text."""
_NO_TEXT = b"\xff"
"""No text of UTF-8 has it in it."""

_KEPT = frozenset(("status", "currency", "event.tz", "positions.status", "positions.token"))
"""Texts of an order that say nothing of anybody (a token goes altogether); the locale stays in part."""
_ADDED = frozenset((b"attempt", b"origin", b"hops", b"crashes", b"requeued"))
_KNOWN = frozenset(name.encode() for name in FIELD_NAMES) | _ADDED
_ID = re.compile(rb"[1-9][0-9]{0,18}")

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}")
_REGION = re.compile(r"[-_](?:[A-Za-z]{2}|[0-9]{3})(?![A-Za-z0-9])")
_SCRIPTS = "Arab|Armn|Beng|Cyrl|Deva|Ethi|Geor|Grek|Gujr|Guru|Hans|Hant|Hebr|Jpan|Khmr|Knda|Kore|Laoo|Latn|Mlym|Mong"
_SCRIPT = re.compile(rf"[-_](?:{_SCRIPTS}|Mymr|Orya|Sinh|Taml|Telu|Tfng|Thaa|Thai|Tibt)(?![A-Za-z0-9])", re.IGNORECASE)


def new_inventor(key: bytes, kinds: frozenset[str]) -> Inventor:
    """Return an inventor of entries that are handled where these kinds are known."""
    return Inventor(key, names=(name.decode() for name in _KNOWN), kinds=kinds | OUR_KINDS)


# -- orders ----------------------------------------------------------------------------


def invented_order(order: Order, inventor: Inventor, order_id: int) -> Order:
    """Return an order of the same shape: amounts, times, currency and language stay, people and places do not."""
    made: Order = _invented(order, inventor, "")
    numbers = {old: new for new, old in enumerate(sorted(one.id for one in order.positions), start=1)}
    positions = tuple(_renumbered(one, numbers) for one in made.positions)
    return attrs.evolve(made, order_id=order_id, positions=positions)


def _invented(value: Any, inventor: Inventor, path: str) -> Any:
    """Return a value with every text in it replaced; *path* names it without the numbers of lists."""
    if path in _KEPT:
        return value
    if path == "locale":
        return invented_locale(value, inventor)
    if isinstance(value, str):
        return inventor.text(value)
    if isinstance(value, tuple):
        return tuple(_invented(one, inventor, path) for one in value)
    if attrs.has(type(value)):
        names = [field.name for field in attrs.fields(type(value))]
        inside = {name: _invented(getattr(value, name), inventor, f"{path}.{name}".lstrip(".")) for name in names}
        return attrs.evolve(value, **inside)
    return value


def _renumbered(position: Position, numbers: Mapping[int, int]) -> Position:
    addon_to = None if position.addon_to is None else numbers[position.addon_to]
    return attrs.evolve(position, id=numbers[position.id], addon_to=addon_to, token="")


def invented_locale(locale: str, inventor: Inventor) -> str:
    """Return a locale whose language, script and region stay: what stands behind them may be anything."""
    end = 0
    for part in (_LANGUAGE, _SCRIPT, _REGION):
        found = part.match(locale, end)
        end = found.end() if found else end
    return locale[:end] + inventor.text(locale[end:])


# -- entries ----------------------------------------------------------------------------


def invented_fields(
    fields: Fields, inventor: Inventor, *, orders: Mapping[int, int], row: int, kinds: frozenset[str]
) -> Fields:
    """Return an entry's fields of the same shape; what made them malformed still does.

    Args:
        fields: as they are on Redis.
        inventor: of this recording.
        orders: the invented id of each order.
        row: the invented id of the outbox row.
        kinds: that say nothing of anybody: those of handlers and flows.
    """
    if problem_of(fields) is None:
        fields = tuple((name, value) for name, value in fields if name not in _ADDED)
    made = tuple(
        (
            name if name in _KNOWN else inventor.name(name),
            _value(name, value, inventor, orders=orders, row=row, kinds=kinds),
        )
        for name, value in fields
    )
    was, now = (Entry(Stream.JOBS, "1-0", each) for each in (fields, made))
    return made if was.is_oversized == now.is_oversized else _with_more(made, was.size - now.size)


def _value(
    name: bytes, value: bytes, inventor: Inventor, *, orders: Mapping[int, int], row: int, kinds: frozenset[str]
) -> bytes:
    if len(value) > LONG:
        return _long(value)
    if name == b"kind":
        is_known = value.decode("utf-8", "replace") in kinds | OUR_KINDS
        return value if is_known else inventor.kind(value)
    if name in {b"order_id", b"outbox_id"} and _ID.fullmatch(value):
        if int(value) > MAX_ID:
            # It still is too large.
            return b"99" + inventor.value(value[2:])
        return b"%d" % (row if name == b"outbox_id" else orders.get(int(value), UNKNOWN_ORDER + row))
    return inventor.value(value)


def _long(value: bytes) -> bytes:
    """Return what a fixture can tell of a long value: its length, and whether it is text."""
    return (b"x" if _is_text(value) else _NO_TEXT) * min(len(value), LONGEST_VALUE)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _with_more(fields: Fields, more: int) -> Fields:
    """Return an entry of which so many bytes are in its longest value: the ids are longer or shorter than they were."""
    longest = max(range(len(fields)), key=lambda place: len(fields[place][1]))
    name, value = fields[longest]
    if len(value) + more < 0:
        return fields
    return (*fields[:longest], (name, b"x" * (len(value) + more)), *fields[longest + 1 :])


def problem_of(fields: Fields) -> str | None:
    """Return what makes these fields malformed, None when they make a job."""
    try:
        parse_job(Entry(Stream.JOBS, "1-0", fields))
    except MalformedEntry as error:
        return str(error)
    return None
