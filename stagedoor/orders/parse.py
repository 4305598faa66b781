"""The boundary of the shop's data: what comes in is a `NewOrder`, or named and refused.

One line of ``orders.jsonl`` is one order. Its types are checked by cattrs,
strictly: nothing is converted on the way, an unknown field is a typing error.
What the values mean is checked afterwards, by pure functions, and all problems
are named at once.
"""

import datetime as dt
import json
import re
import zoneinfo
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import cattrs
from cattrs.errors import ForbiddenExtraKeysError

from stagedoor.errors import InvalidOrder
from stagedoor.order import Event, NewOrder, NewPosition, Order, Position, Seat

__all__ = [
    "MAX_ID",
    "MAX_POSITIONS",
    "accept",
    "check_id",
    "check_text",
    "format_line",
    "parse_line",
    "parse_order",
    "position_problems",
    "validate",
]

MAX_ID = 2**63 - 1
MAX_POSITIONS = 500
MAX_TAXES = 50
MAX_LINE = 4 * 1024 * 1024
"""Characters of one line; 500 positions with every text at its limit stay below."""

# Characters per text. A ticket has room for a tenth of it; the rest is what people paste.
_LIMITS = {
    "event.name": 500,
    "event.venue": 500,
    "event.sub_event": 500,
    "event.terms": 20_000,
    "event.tz": 64,
    "locale": 35,
    "currency": 3,
    "buyer": 500,
    "receipt_number": 100,
    "holder": 500,
    "category": 200,
    "seat": 100,
    "label": 200,
}
_CURRENCY = re.compile(r"[A-Z]{3}")
_LOCALE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8})*")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:[Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")

type Problem = tuple[str, str]
"""A field's path, and what is wrong with it."""


def parse_line(line: str | bytes) -> NewOrder:
    """Return the order that one line of ``orders.jsonl`` describes.

    Raises:
        InvalidOrder: names each field that will not do, and why.
    """
    return parse_order(_decode(line))


def parse_order(data: Mapping[str, Any]) -> NewOrder:
    """Return the order that this mapping describes (the same shape as a line).

    Times may be ``datetime`` objects as well as text.

    Raises:
        InvalidOrder: names each field that will not do, and why.
    """
    if not isinstance(data, Mapping):
        raise InvalidOrder(f"the order: expected an object, found {_named(data)}")
    problems = list(_shape(data))
    if problems:
        raise _invalid(problems)
    try:
        new = _CONVERTER.structure(data, NewOrder)
    except (cattrs.BaseValidationError, ForbiddenExtraKeysError) as error:
        raise _invalid(_structure_problems(error)) from None
    validate(new)
    return new


def accept(data: Mapping[str, Any] | NewOrder) -> NewOrder:
    """Return the checked order, its times in UTC, whichever way it was given.

    Raises:
        InvalidOrder: names each field that will not do, and why.
    """
    if not isinstance(data, NewOrder):
        return parse_order(data)
    validate(data)
    starts_at, doors_at = data.event.starts_at, data.event.doors_at
    event = attrs.evolve(
        data.event, starts_at=starts_at.astimezone(dt.UTC), doors_at=doors_at and doors_at.astimezone(dt.UTC)
    )
    return attrs.evolve(data, event=event)


def format_line(order: Order | NewOrder) -> str:
    """Return the order as one line of ``orders.jsonl``, without its end of line; tokens stay out."""
    return json.dumps(_CONVERTER.unstructure(_as_new(order)), ensure_ascii=False, separators=(",", ":"))


def validate(new: NewOrder) -> None:
    """Check what the values mean.

    Raises:
        InvalidOrder: names each field that will not do, and why.
    """
    problems = [*_order_problems(new), *_event_problems(new.event), *_tax_problems(new)]
    problems += _position_problems(new.positions)
    if problems:
        raise _invalid(problems)


def check_text(field: str, value: object, limit: int, *, required: bool = False) -> Iterator[Problem]:
    """Yield what is wrong with a text that is to be kept in the database."""
    if not isinstance(value, str):
        yield field, f"expected text, found {_named(value)}"
        return
    if len(value) > limit:
        yield field, f"at most {limit} characters, found {len(value)}"
    if required and not value.strip():
        yield field, "must not be empty"
    if "\0" in value:
        yield field, "holds a NUL character, which no database keeps"
    if _SURROGATE.search(value):
        yield field, "holds half of a surrogate pair, which no encoding can write"


def check_id(field: str, value: object) -> Iterator[Problem]:
    """Yield what is wrong with an id."""
    if not isinstance(value, int) or isinstance(value, bool):
        yield field, f"expected a whole number, found {_named(value)}"
    elif not 1 <= value <= MAX_ID:
        yield field, f"expected 1 to {MAX_ID}, found {_number(value)}"


# -- from text to JSON --------------------------------------------------------


def _decode(line: str | bytes) -> Mapping[str, Any]:
    if len(line) > MAX_LINE:
        raise InvalidOrder(f"the line: at most {MAX_LINE} characters, found {len(line)}")
    try:
        text = line.decode("utf-8") if isinstance(line, bytes) else line
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidOrder(f"the line: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise InvalidOrder("the line: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise InvalidOrder(f"the line: not JSON at column {error.colno}: {error.msg}") from None
    except ValueError:
        # Python refuses to read numbers of thousands of digits, and says so in words of its own.
        raise InvalidOrder("the line: holds a number that is too long") from None
    if not isinstance(data, dict):
        raise InvalidOrder(f"the line: expected an object, found {_named(data)}")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidOrder(f"{_quoted(twice)}: given more than once")
    return result


def _refuse_constant(name: str) -> None:
    raise InvalidOrder(f"the line: holds {name}, which is no number")


# -- from JSON to values ------------------------------------------------------


def _whole_number(value: Any, _: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a whole number, found {_named(value)}")
    return value


def _text(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {_named(value)}")
    return value


def _instant(value: Any, _: Any) -> dt.datetime:
    if isinstance(value, str):
        if not _INSTANT.fullmatch(value):
            raise ValueError(f"expected a time such as 2026-07-01T18:00:00Z, found {_quoted(value)}")
        value = dt.datetime.fromisoformat(value.upper())
    if not isinstance(value, dt.datetime):
        raise TypeError(f"expected a time such as '2026-07-01T18:00:00Z', found {_named(value)}")
    if value.utcoffset() is None:
        raise ValueError("the time has no offset: end it with Z or one such as +02:00")
    return value.astimezone(dt.UTC)


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(int, _whole_number)
    converter.register_structure_hook(str, _text)
    converter.register_structure_hook(dt.datetime, _instant)
    converter.register_unstructure_hook(dt.datetime, lambda value: value.isoformat().replace("+00:00", "Z"))
    return converter


_CONVERTER = _make_converter()
"""Used like a constant: nothing is registered on it after this line."""


def _shape(data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield containers that are none: cattrs would walk through a text as if it were a list."""
    for field in ("positions", "taxes"):
        found = data.get(field, [])
        if not isinstance(found, list | tuple):
            yield field, f"expected a list, found {_named(found)}"
            continue
        limit = MAX_POSITIONS if field == "positions" else MAX_TAXES
        if len(found) > limit:
            yield field, f"at most {limit}, found {len(found)}"
            continue
        for index, item in enumerate(found):
            if not isinstance(item, Mapping):
                yield f"{field}[{index}]", f"expected an object, found {_named(item)}"
            elif item.get("seat") is not None and not isinstance(item["seat"], Mapping):
                yield f"{field}[{index}].seat", f"expected an object or null, found {_named(item['seat'])}"
    if "event" in data and not isinstance(data["event"], Mapping):
        yield "event", f"expected an object, found {_named(data['event'])}"


def _structure_problems(error: Exception) -> list[Problem]:
    """Turn what cattrs raised into fields and reasons."""
    lines = cattrs.transform_error(error, path="order", format_exception=_reason)
    split = [line.rpartition(" @ ") for line in lines]
    return [(path.removeprefix("order").removeprefix(".") or "the order", reason) for reason, _, path in split]


def _reason(error: BaseException, _: type | None) -> str:
    if isinstance(error, KeyError):
        return "is missing"
    if isinstance(error, ForbiddenExtraKeysError):
        return "holds unknown fields: " + ", ".join(sorted(_quoted(str(key)) for key in error.extra_fields))
    if isinstance(error, OverflowError):
        return "the time is outside the years 1 to 9999 in UTC"
    return str(error)


# -- what the values mean -----------------------------------------------------


def _order_problems(new: NewOrder) -> Iterator[Problem]:
    if new.order_id is not None:
        yield from check_id("order_id", new.order_id)
    yield from _limited("locale", new.locale)
    if not _LOCALE.fullmatch(str(new.locale)):
        yield "locale", f"expected a language tag such as de-DE, found {_quoted(str(new.locale))}"
    yield from _limited("currency", new.currency)
    if not _CURRENCY.fullmatch(str(new.currency)):
        yield "currency", f"expected three capital letters such as EUR, found {_quoted(str(new.currency))}"
    yield from _limited("buyer", new.buyer)
    if new.receipt_number is not None:
        yield from _limited("receipt_number", new.receipt_number)


def _event_problems(event: Event) -> Iterator[Problem]:
    yield from _limited("event.name", event.name, required=True)
    yield from _limited("event.venue", event.venue)
    yield from _limited("event.terms", event.terms)
    if event.sub_event is not None:
        yield from _limited("event.sub_event", event.sub_event)
    yield from _limited("event.tz", event.tz)
    if not _is_zone(event.tz):
        yield "event.tz", f"expected a time zone such as Europe/Berlin, found {_quoted(str(event.tz))}"
    for field, value in (("event.starts_at", event.starts_at), ("event.doors_at", event.doors_at)):
        if field == "event.doors_at" and value is None:
            continue
        if not isinstance(value, dt.datetime):
            yield field, f"expected a time, found {_named(value)}"
        elif value.utcoffset() is None:
            yield field, "the time has no offset"


def _tax_problems(new: NewOrder) -> Iterator[Problem]:
    if len(new.taxes) > MAX_TAXES:
        yield "taxes", f"at most {MAX_TAXES}, found {len(new.taxes)}"
    for index, line in enumerate(new.taxes):
        yield from _limited(f"taxes[{index}].label", line.label, key="label")
        yield from _amount(f"taxes[{index}].amount_minor", line.amount_minor)


def _position_problems(positions: tuple[NewPosition, ...]) -> Iterator[Problem]:
    if not 1 <= len(positions) <= MAX_POSITIONS:
        yield "positions", f"expected 1 to {MAX_POSITIONS}, found {len(positions)}"
    seen: set[int] = set()
    for index, position in enumerate(positions):
        field = f"positions[{index}]"
        id_problems = list(check_id(f"{field}.id", position.id))
        yield from id_problems
        if not id_problems and position.id in seen:
            yield f"{field}.id", f"{position.id} is the id of an earlier position, too"
        seen.add(position.id)
        yield from position_problems(field, position)
    yield from _addon_problems(positions)


def position_problems(field: str, position: NewPosition | Position) -> Iterator[Problem]:
    """Yield what is wrong with one position by itself; *field* is its path."""
    yield from _limited(f"{field}.holder", position.holder, key="holder")
    yield from _limited(f"{field}.category", position.category, key="category")
    yield from _seat_problems(f"{field}.seat", position.seat)
    yield from _amount(f"{field}.amount_minor", position.amount_minor)


def _seat_problems(field: str, seat: object) -> Iterator[Problem]:
    if seat is None:
        return
    if not isinstance(seat, Seat):
        yield field, f"expected a seat, found {_named(seat)}"
        return
    for name in ("zone", "row", "number"):
        value = getattr(seat, name)
        if value is not None:
            yield from _limited(f"{field}.{name}", value, key="seat")


def _addon_problems(positions: tuple[NewPosition, ...]) -> Iterator[Problem]:
    """An add-on shows the seat of the position that it extends, so that one must be there and be none itself."""
    parents = {position.id: position.addon_to for position in positions}
    for index, position in enumerate(positions):
        if position.addon_to is None:
            continue
        field = f"positions[{index}].addon_to"
        if position.addon_to not in parents:
            yield field, f"there is no position {_number(position.addon_to)} in this order"
        elif position.addon_to == position.id:
            yield field, "a position cannot extend itself"
        elif parents[position.addon_to] is not None:
            yield field, f"position {position.addon_to} is an add-on itself"


def _amount(field: str, value: object) -> Iterator[Problem]:
    if not isinstance(value, int) or isinstance(value, bool):
        yield field, f"expected a whole number of the currency's smallest unit, found {_named(value)}"
    elif not 0 <= value <= MAX_ID:
        yield field, f"expected 0 to {MAX_ID}, found {_number(value)}"


def _limited(field: str, value: object, *, key: str | None = None, required: bool = False) -> Iterator[Problem]:
    yield from check_text(field, value, _LIMITS[key or field], required=required)


def _is_zone(name: object) -> bool:
    try:
        zoneinfo.ZoneInfo(name)  # type: ignore[arg-type]  # anything may come from a shop's own code
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        # OSError: "Europe" is a folder of the data base.
        return False
    return True


# -- words for messages -------------------------------------------------------

_SHOWN_BITS = 128
_SHOWN_CHARACTERS = 40
_JSON_NAMES: tuple[tuple[type, str], ...] = ((str, "text"), (list, "a list"), (tuple, "a list"), (dict, "an object"))


def _named(value: object) -> str:
    """Name a value without quoting a person's data."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return _number(value)
    return next((name for kind, name in _JSON_NAMES if isinstance(value, kind)), type(value).__name__)


def _number(value: float) -> str:
    # A number of thousands of digits cannot be written out, and nobody would read it.
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"a number of {value.bit_length()} bits"
    return str(value)


def _quoted(value: str) -> str:
    shown = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
    return ascii(shown)


def _invalid(problems: list[Problem]) -> InvalidOrder:
    shown = [f"{field}: {problem}" for field, problem in problems[:20]]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return InvalidOrder("; ".join(shown))


def _as_new(order: Order | NewOrder) -> NewOrder:
    if isinstance(order, NewOrder):
        return order
    return NewOrder(
        order_id=order.order_id,
        event=order.event,
        locale=order.locale,
        currency=order.currency,
        buyer=order.buyer,
        positions=tuple(_as_new_position(position) for position in order.positions),
        receipt_number=order.receipt_number,
        taxes=order.taxes,
    )


def _as_new_position(position: Position) -> NewPosition:
    shared = {field.name: getattr(position, field.name) for field in attrs.fields(NewPosition)}
    return NewPosition(**shared)
