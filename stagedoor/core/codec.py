"""Byte strings packed into one value and back, without interpreting them.

A list of byte strings is written as netstrings: ``4:kind,14:render_tickets,``.
The delayed bodies and the dead letters' raw fields are kept so, because every
byte survives, a person can read it, and a script needs five lines to unpack it.
"""

from collections.abc import Iterable, Sequence

from stagedoor.errors import MalformedEntry

Fields = tuple[tuple[bytes, bytes], ...]
"""Field names and values in the order they were added; names may repeat in bad entries."""


def pack(parts: Iterable[bytes]) -> bytes:
    """Return the parts as one byte string from which `unpack` returns them unchanged."""
    return b"".join(b"%d:%b," % (len(part), part) for part in parts)


def unpack(packed: bytes) -> list[bytes]:
    """Return the parts of a packed byte string.

    Raises:
        MalformedEntry: these bytes were not made by `pack`, or were cut short.
    """
    parts, end = whole_parts(packed)
    if end < len(packed):
        raise MalformedEntry("body", f"not a packed list of byte strings at byte {end} of {len(packed)}")
    return parts


def whole_parts(packed: bytes) -> tuple[list[bytes], int]:
    """Return the parts of a packed byte string up to where it was cut, or is none, and how many bytes they take."""
    parts: list[bytes] = []
    at = 0
    while at < len(packed):
        colon = packed.find(b":", at, at + 12)
        length = packed[at:colon] if colon > at else b""
        end = colon + 1 + int(length) if length.isdigit() else -1
        if end < 0 or packed[end : end + 1] != b",":
            break
        parts.append(packed[colon + 1 : end])
        at = end + 1
    return parts, at


def pack_fields(fields: Fields) -> bytes:
    """Pack field names and values alternately."""
    return pack(part for pair in fields for part in pair)


def unpack_fields(packed: bytes) -> Fields:
    """Return the fields of a packed byte string.

    Raises:
        MalformedEntry: not packed fields.
    """
    return pair_up(unpack(packed))


def pair_up(flat: Sequence[bytes]) -> Fields:
    """Return a flat list of names and values as pairs; a name without a value gets an empty one."""
    padded = flat if len(flat) % 2 == 0 else [*flat, b""]
    return tuple(zip(padded[::2], padded[1::2], strict=True))
