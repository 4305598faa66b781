"""Cuts a handful of glyphs out of a TrueType font, as a font file of its own.

The cut is a pure function of the font and the glyphs. Hinting is left out: it
is most of a small subset's size, and no viewer or printer of today needs it.
"""

# ruff: noqa: PLR2004 - the numbers are offsets and lengths of a file format, named by the code round them

import struct
from collections.abc import Mapping, Sequence

import attrs

from stagedoor_renderers.kit.sfnt import TrueType

_ARGUMENTS_ARE_WORDS = 1 << 0
_ARGUMENTS_ARE_SHIFTS = 1 << 1
_HAS_SCALE = 1 << 3
_MORE_COMPONENTS = 1 << 5
_HAS_XY_SCALE = 1 << 6
_HAS_TWO_BY_TWO = 1 << 7
_HAS_INSTRUCTIONS = 1 << 8

_CHECKSUM_OF_A_FONT = 0xB1B0AFBA
_MASK = 0xFFFFFFFF


@attrs.frozen
class Composite:
    """A glyph that the font does not have: some of its glyphs, each with its shift in font units.

    It is as wide as the first of its parts.
    """

    parts: tuple[tuple[int, int, int], ...]


type Shape = int | Composite
"""What a code shows: a glyph of the font by its number, or one put together."""


def advance_of(font: TrueType, shape: Shape) -> int:
    """Return how wide *shape* is, in font units."""
    return font.advances[shape.parts[0][0] if isinstance(shape, Composite) else shape]


def box_of(font: TrueType, shape: Shape) -> tuple[int, int, int, int]:
    """Return the box round *shape*, in font units: left, bottom, right, top."""
    if not isinstance(shape, Composite):
        return font.glyph_bbox(shape)
    boxes = [(font.glyph_bbox(glyph), x, y) for glyph, x, y in shape.parts]
    lefts, bottoms, rights, tops = zip(
        *((left + x, bottom + y, right + x, top + y) for (left, bottom, right, top), x, y in boxes), strict=True
    )
    return min(lefts), min(bottoms), max(rights), max(tops)


def cut(font: TrueType, glyphs: Sequence[Shape], *, first_code: int, space: int) -> bytes:
    """Return a TrueType file in which code *first_code* + i shows ``glyphs[i]``.

    Args:
        font: the font to cut from.
        glyphs: up to 223 glyphs of it, or composites of such.
        first_code: the single-byte code of the first of them.
        space: the glyph of code 32.
    """
    order, place = _closure(font, [space, *glyphs])
    outlines = [_unhinted(_outline(font, old), place) for old in order]
    codes = {32: place[space]} | {first_code + i: place[old] for i, old in enumerate(glyphs)}
    offsets, glyf = _laid_out(outlines)
    is_long = offsets[-1] > 0x1FFFE
    most_parts = max((len(shape.parts) for shape in order if isinstance(shape, Composite)), default=0)
    tables = {
        "OS/2": font.tables["OS/2"],
        "cmap": _cmap(codes),
        "glyf": glyf,
        "head": _patched(font.tables["head"], 50, int(is_long)),
        "hhea": _patched(font.tables["hhea"], 34, len(order)),
        "hmtx": b"".join(struct.pack(">Hh", *_metrics(font, old)) for old in order),
        "loca": _loca(offsets, is_long=is_long),
        "maxp": _unhinted_profile(font.tables["maxp"], len(order), most_parts=most_parts),
        "name": font.tables["name"],
        "post": b"\x00\x03\x00\x00" + font.tables["post"][4:16] + bytes(16),
    }
    return _file(tables)


def _closure(font: TrueType, glyphs: Sequence[Shape]) -> tuple[list[Shape], dict[Shape, int]]:
    """Return all glyphs that are needed to draw *glyphs*, in their new order, and their new places.

    Glyph 0, the sign for "no such character", must come first in every font.
    """
    order: list[Shape] = [0]
    place: dict[Shape, int] = {0: 0}
    queue = list(glyphs)
    while queue:
        glyph = queue.pop(0)
        if glyph not in place:
            place[glyph] = len(order)
            order.append(glyph)
            outline = _outline(font, glyph)
            if _is_composite(outline):
                queue += [part for part, _ in _components(outline)]
    return order, place


def _outline(font: TrueType, shape: Shape) -> bytes:
    if not isinstance(shape, Composite):
        return font.glyph(shape)
    flags = _ARGUMENTS_ARE_WORDS | _ARGUMENTS_ARE_SHIFTS
    last = len(shape.parts) - 1
    parts = (
        struct.pack(">HHhh", flags | (_MORE_COMPONENTS if index < last else 0), glyph, x, y)
        for index, (glyph, x, y) in enumerate(shape.parts)
    )
    return struct.pack(">5h", -1, *box_of(font, shape)) + b"".join(parts)


def _metrics(font: TrueType, shape: Shape) -> tuple[int, int]:
    """Return advance and left bearing."""
    if isinstance(shape, Composite):
        return advance_of(font, shape), box_of(font, shape)[0]
    return font.advances[shape], font.bearings[shape]


def _is_composite(outline: bytes) -> bool:
    return len(outline) > 10 and outline[0] & 0x80 != 0


def _components(outline: bytes) -> list[tuple[int, int]]:
    """Return the parts of a composite glyph and where their numbers stand."""
    found: list[tuple[int, int]] = []
    at, flags = 10, _MORE_COMPONENTS
    while flags & _MORE_COMPONENTS:
        flags, glyph = struct.unpack_from(">HH", outline, at)
        found.append((glyph, at + 2))
        at += _component_size(flags)
    return found


def _component_size(flags: int) -> int:
    size = 8 if flags & _ARGUMENTS_ARE_WORDS else 6
    if flags & _HAS_SCALE:
        return size + 2
    if flags & _HAS_XY_SCALE:
        return size + 4
    return size + 8 if flags & _HAS_TWO_BY_TWO else size


def _unhinted(outline: bytes, place: Mapping[Shape, int]) -> bytes:
    """Return the outline without instructions, its parts renumbered."""
    if not outline:
        return outline
    if _is_composite(outline):
        return _unhinted_composite(outline, place)
    (contours,) = struct.unpack_from(">h", outline)
    at = 10 + 2 * contours
    (length,) = struct.unpack_from(">H", outline, at)
    return outline[:at] + b"\x00\x00" + outline[at + 2 + length :]


def _unhinted_composite(outline: bytes, place: Mapping[Shape, int]) -> bytes:
    data = bytearray(outline)
    end = 10
    for glyph, at in _components(outline):
        flags = struct.unpack_from(">H", data, at - 2)[0]
        struct.pack_into(">HH", data, at - 2, flags & ~_HAS_INSTRUCTIONS, place[glyph])
        end = at - 2 + _component_size(flags)
    return bytes(data[:end])


def _laid_out(outlines: Sequence[bytes]) -> tuple[list[int], bytes]:
    offsets, parts, at = [0], [], 0
    for outline in outlines:
        padded = outline + bytes(-len(outline) % 4)
        parts.append(padded)
        at += len(padded)
        offsets.append(at)
    return offsets, b"".join(parts)


def _loca(offsets: Sequence[int], *, is_long: bool) -> bytes:
    if is_long:
        return struct.pack(f">{len(offsets)}L", *offsets)
    return struct.pack(f">{len(offsets)}H", *(offset // 2 for offset in offsets))


def _cmap(codes: dict[int, int]) -> bytes:
    """Return a map of single bytes, format 6: what PDF asks of a symbolic TrueType font."""
    first, last = min(codes), max(codes)
    glyphs = [codes.get(code, 0) for code in range(first, last + 1)]
    head = struct.pack(">4HL", 0, 1, 1, 0, 12)
    body = struct.pack(f">5H{len(glyphs)}H", 6, 10 + 2 * len(glyphs), 0, first, len(glyphs), *glyphs)
    return head + body


def _unhinted_profile(maxp: bytes, glyph_count: int, *, most_parts: int) -> bytes:
    """Return the limits table without anything about instructions, with room for our own composites."""
    data = bytearray(maxp)
    struct.pack_into(">H", data, 4, glyph_count)
    if len(data) >= 32:
        # maxZones stays 1; twilight points, storage, functions, stack and code size are 0.
        struct.pack_into(">7H", data, 14, 1, 0, 0, 0, 0, 0, 0)
        if most_parts:
            parts, depth = struct.unpack_from(">2H", data, 28)
            # Their parts may be composites themselves.
            struct.pack_into(">2H", data, 28, max(parts, most_parts), depth + 1)
    return bytes(data)


def _patched(table: bytes, at: int, value: int) -> bytes:
    return table[:at] + struct.pack(">H", value) + table[at + 2 :]


def _checksum(data: bytes) -> int:
    padded = data + bytes(-len(data) % 4)
    words: tuple[int, ...] = struct.unpack(f">{len(padded) // 4}L", padded)
    return sum(words) & _MASK


@attrs.frozen
class _Search:
    """The binary-search hints at the head of a font file."""

    span: int
    selector: int
    shift: int


def _search(count: int) -> _Search:
    selector = count.bit_length() - 1
    span = 16 << selector
    return _Search(span, selector, 16 * count - span)


def _file(tables: dict[str, bytes]) -> bytes:
    tables = {**tables, "head": _without_checksum(tables["head"])}
    search = _search(len(tables))
    head = [struct.pack(">4s4H", b"\x00\x01\x00\x00", len(tables), search.span, search.selector, search.shift)]
    body: list[bytes] = []
    at = 12 + 16 * len(tables)
    head_at = 0
    for tag, table in sorted(tables.items()):
        if tag == "head":
            head_at = at
        head.append(struct.pack(">4sLLL", tag.encode("latin-1"), _checksum(table), at, len(table)))
        padded = table + bytes(-len(table) % 4)
        body.append(padded)
        at += len(padded)
    data = bytearray(b"".join(head + body))
    struct.pack_into(">L", data, head_at + 8, (_CHECKSUM_OF_A_FONT - _checksum(bytes(data))) & _MASK)
    return bytes(data)


def _without_checksum(head: bytes) -> bytes:
    return head[:8] + bytes(4) + head[12:]
