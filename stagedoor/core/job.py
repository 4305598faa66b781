"""A job: an entry that was parsed. Parsing is a boundary: typed, or refused.

The fields were written by another process and may be anything. Ids are ASCII
digits without sign, space or leading zero, so that one id has one spelling
everywhere (a spelling that `int()` would also take, ``0x10`` or ``٣`` or
`` 7 ``, is refused, not repaired).
"""

import re
from collections.abc import Callable
from typing import Any, NewType

import attrs
import cattrs

from stagedoor.core.entry import MAX_BYTES, MAX_FIELDS, Entry, queued_ms
from stagedoor.errors import MalformedEntry

MAX_ID = 2**63 - 1
_LONGEST_LABEL = 128

RowId = NewType("RowId", int)
Kind = NewType("Kind", str)
Label = NewType("Label", str)
Ordinal = NewType("Ordinal", int)
Tally = NewType("Tally", int)
EntryId = NewType("EntryId", str)
CallId = NewType("CallId", str)


@attrs.frozen(kw_only=True)
class _Fields:
    """The known fields, by their names on the stream."""

    kind: Kind
    order_id: RowId | None = None
    outbox_id: RowId | None = None
    request_id: Label | None = None
    trace: Label | None = None
    attempt: Ordinal = Ordinal(1)
    origin: EntryId | None = None
    hops: Tally = Tally(0)
    crashes: Tally = Tally(0)
    call_id: CallId | None = None


FIELD_NAMES = tuple(field.name for field in attrs.fields(_Fields))
"""Of the fields that mean something; others are carried along."""


@attrs.frozen(kw_only=True)
class Job:
    """What a handler gets.

    *attempt* counts from 1; *queued_at* is the Unix time in seconds at which
    the job was first added, also after retries. *origin* is the id it had then.
    *order_id* and *outbox_id* are None only for jobs of flows.
    """

    kind: str
    order_id: int | None
    outbox_id: int | None
    request_id: str
    trace: str
    attempt: int
    entry_id: str
    origin: str
    queued_at: float
    hops: int = 0
    crashes: int = 0
    call_id: str | None = None


def _matching[T](pattern: str, convert: Callable[[str], T], allowed: str) -> Callable[[Any, Any], T]:
    full = re.compile(pattern, re.ASCII)

    def structure(value: Any, _type: Any) -> T:
        if full.fullmatch(value) is None:
            raise ValueError(f"expected {allowed}, got {_shown(value)}")
        return convert(value)

    return structure


def _row_id(text: str) -> int:
    number = int(text)
    if number > MAX_ID:
        raise ValueError(f"expected an id up to {MAX_ID}, got {text}")
    return number


def _label(value: Any, _type: Any) -> str:
    if len(value) > _LONGEST_LABEL or not value.isprintable():
        raise ValueError(f"expected up to {_LONGEST_LABEL} printable characters, got {_shown(value)}")
    return str(value)


def _shown(text: str, limit: int = 40) -> str:
    """Return the text as one line that cannot forge another: escaped, cut, with its length."""
    return ascii(text) if len(text) <= limit else f"{text[:limit]!a}… ({len(text)} characters)"


def _optional[T](structure: Callable[[Any, Any], T]) -> Callable[[Any, Any], T | None]:
    return lambda value, kind: None if value is None else structure(value, kind)


def make_converter(*, detailed: bool) -> cattrs.Converter:
    """Return the converter of the boundary; *detailed* also says which field was wrong (and is slower)."""
    converter = cattrs.Converter(detailed_validation=detailed)
    digits = "digits without sign, space or leading zero"
    hooks: dict[Any, Callable[[Any, Any], Any]] = {
        RowId: _matching(r"[1-9][0-9]{0,18}", _row_id, f"1 to 19 {digits}"),
        Kind: _matching(r"[A-Za-z0-9._-]{1,64}", str, "1 to 64 letters, digits, '.', '_' or '-'"),
        Label: _label,
        Ordinal: _matching(r"[1-9][0-9]{0,8}", int, f"1 to 9 {digits}"),
        Tally: _matching(r"0|[1-9][0-9]{0,8}", int, f"1 to 9 {digits}"),
        EntryId: _matching(r"[0-9]{1,19}-[0-9]{1,19}", str, "an entry id such as 1758200000000-0"),
        CallId: _matching(r"[A-Za-z0-9._-]{1,64}", str, "1 to 64 letters, digits, '.', '_' or '-'"),
    }
    for kind, hook in hooks.items():
        converter.register_structure_hook(kind, hook)
        converter.register_structure_hook(kind | None, _optional(hook))
    return converter


_FAST = make_converter(detailed=False)
_DETAILED = make_converter(detailed=True)
_REQUIRED = ("order_id", "outbox_id", "request_id", "trace")


def parse_job(entry: Entry) -> Job:
    """Return the job that these fields make.

    Raises:
        MalformedEntry: they make none; says which field, what was expected and what was found.
    """
    text = _as_text(entry)
    fields = _structure(text)
    if fields.call_id is None:
        missing = next((name for name in _REQUIRED if name not in text), None)
        if missing is not None:
            raise MalformedEntry(missing, "the field is missing")
    origin = fields.origin or entry.entry_id
    return Job(
        kind=fields.kind,
        order_id=fields.order_id,
        outbox_id=fields.outbox_id,
        request_id=fields.request_id or "",
        trace=fields.trace or "",
        attempt=fields.attempt,
        entry_id=entry.entry_id,
        origin=origin,
        queued_at=queued_ms(origin) / 1000,
        hops=fields.hops,
        crashes=fields.crashes,
        call_id=fields.call_id,
    )


def _as_text(entry: Entry) -> dict[str, str]:
    if entry.is_oversized:
        count, size = entry.produced
        allowed = f"expected at most {MAX_FIELDS} fields of {MAX_BYTES} bytes in all"
        raise MalformedEntry("fields", f"{allowed}, got {count} of {size} bytes")
    text: dict[str, str] = {}
    for raw_name, raw_value in entry.fields:
        try:
            name = raw_name.decode()
            value = raw_value.decode()
        except UnicodeDecodeError as error:
            raise MalformedEntry(ascii(raw_name[:64]), f"not UTF-8: {error.reason} at byte {error.start}") from None
        if name in text:
            raise MalformedEntry(_shown(name, 64), "the field is there twice")
        text[name] = value
    if "kind" not in text:
        raise MalformedEntry("kind", "the field is missing")
    return text


def _structure(text: dict[str, str]) -> _Fields:
    try:
        return _FAST.structure(text, _Fields)
    except ValueError:
        pass
    try:
        return _DETAILED.structure(text, _Fields)
    except cattrs.ClassValidationError as group:
        with_notes, _without = group.group_exceptions()
        error, note = with_notes[0]
        raise MalformedEntry(note.name, str(error)) from None
