"""Reads TrueType files: tables, outlines' places, widths, character map, kerning, anchors.

Everything is read once, into a frozen value; nothing here has a cursor. That is
the point: ReportLab's own reader walks a face with one cursor per font, so two
documents that are saved at the same time may end up with each other's glyphs.

What cannot be embedded or drawn (PostScript outlines, bitmap emoji, a font whose
owner forbids embedding) is refused here, at start, with the name of the file.
"""

# ruff: noqa: PLR2004 - the numbers are offsets and lengths of a file format, named by the code round them

import itertools
import struct
from collections.abc import Mapping
from typing import NoReturn

import attrs

from stagedoor_renderers.kit.anchors import Anchors, read_anchors

_POSTSCRIPT = b"OTTO"
_COLLECTION = b"ttcf"
_TRUETYPE = (b"\x00\x01\x00\x00", b"true")
_REQUIRED = ("head", "hhea", "maxp", "hmtx", "cmap", "loca", "glyf", "OS/2", "post", "name")

_EMBEDDING_FORBIDDEN = 0x0002
_NO_SUBSETTING = 0x0100
_BITMAPS_ONLY = 0x0200

_RECORD = struct.Struct(">4sLLL")


class FontError(Exception):
    """A font file cannot be used; the message names the file and says why."""


@attrs.frozen(kw_only=True, eq=False)
class TrueType:
    """One TrueType file, read.

    Measures are in the font's own units; *units_per_em* of them make the type
    size. *cmap* maps code points to glyphs, *advances* is by glyph, *offsets*
    has one more element than there are glyphs, *kerning* is by glyph pairs, and
    *anchors* say where marks sit on their letters.
    """

    file: str
    postscript_name: str
    tables: Mapping[str, bytes] = attrs.field(repr=False)
    units_per_em: int
    cmap: Mapping[int, int] = attrs.field(repr=False)
    advances: tuple[int, ...] = attrs.field(repr=False)
    bearings: tuple[int, ...] = attrs.field(repr=False)
    offsets: tuple[int, ...] = attrs.field(repr=False)
    kerning: Mapping[tuple[int, int], int] = attrs.field(repr=False)
    anchors: Anchors = attrs.field(repr=False)
    bbox: tuple[int, int, int, int]
    ascent: int
    descent: int
    cap_height: int
    weight: int

    def glyph(self, index: int) -> bytes:
        """Return the outline of glyph *index*; empty for a blank one."""
        return self.tables["glyf"][self.offsets[index] : self.offsets[index + 1]]

    def glyph_bbox(self, index: int) -> tuple[int, int, int, int]:
        """Return the box round the outline of glyph *index*: left, bottom, right, top."""
        data = self.glyph(index)
        if len(data) < 10:
            return (0, 0, 0, 0)
        left, bottom, right, top = struct.unpack(">4h", data[2:10])
        return (left, bottom, right, top)


def read_truetype(data: bytes, file: str) -> TrueType:
    """Return the font in *data*; *file* is its name for messages.

    Raises:
        FontError: it is no TrueType font, has no outlines, or may not be embedded.
    """
    try:
        return _read(data, file)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise FontError(f"font file {file} is damaged: {error}") from error


def _read(data: bytes, file: str) -> TrueType:
    tables = _tables(data, file)
    _refuse_what_may_not_be_embedded(tables["OS/2"], file)
    head, maxp, os2 = tables["head"], tables["maxp"], tables["OS/2"]
    units_per_em = _u16(head, 18)
    if not units_per_em:
        _refuse(file, "it has 0 units per em")
    glyph_count = _u16(maxp, 4)
    advances, bearings = _metrics(tables, glyph_count)
    (cap_height,) = struct.unpack(">h", os2[88:90]) if len(os2) >= 90 else (0,)
    ascent, descent = struct.unpack(">2h", tables["hhea"][4:8])
    left, bottom, right, top = struct.unpack(">4h", head[36:44])
    return TrueType(
        file=file,
        postscript_name=_postscript_name(tables["name"], file),
        tables=tables,
        units_per_em=units_per_em,
        cmap=_cmap(tables["cmap"], file),
        advances=advances,
        bearings=bearings,
        offsets=_offsets(tables, glyph_count, file),
        kerning=_kerning(tables.get("kern", b"")),
        anchors=read_anchors(tables.get("GPOS", b"")),
        bbox=(left, bottom, right, top),
        ascent=ascent,
        descent=descent,
        cap_height=cap_height or round(0.7 * units_per_em),
        weight=_u16(os2, 4),
    )


def _u16(data: bytes, at: int) -> int:
    value: int = struct.unpack_from(">H", data, at)[0]
    return value


def _u32(data: bytes, at: int) -> int:
    value: int = struct.unpack_from(">L", data, at)[0]
    return value


def _refuse(file: str, why: str) -> NoReturn:
    raise FontError(f"font file {file} cannot be used: {why}")


def _tables(data: bytes, file: str) -> Mapping[str, bytes]:
    magic = data[:4]
    if magic == _POSTSCRIPT:
        _refuse(file, "it has PostScript outlines (OpenType CFF); use the TrueType edition of the font")
    if magic == _COLLECTION:
        _refuse(file, "it is a collection of fonts; use a file with one font")
    if magic not in _TRUETYPE:
        _refuse(file, "it is no TrueType font")
    tables: dict[str, bytes] = {}
    for index in range(_u16(data, 4)):
        tag, _, offset, length = _RECORD.unpack_from(data, 12 + 16 * index)
        if offset + length > len(data):
            _refuse(file, f"table {tag!r} reaches beyond the end of the file")
        tables[tag.decode("latin-1")] = data[offset : offset + length]
    missing = [tag for tag in _REQUIRED if tag not in tables]
    if "glyf" in missing or "loca" in missing:
        _refuse(file, "it has no TrueType outlines (a bitmap or colour emoji font)")
    if missing:
        _refuse(file, f"its tables {', '.join(missing)} are missing")
    return tables


def _refuse_what_may_not_be_embedded(os2: bytes, file: str) -> None:
    rights = _u16(os2, 8)
    if rights & 0x000F == _EMBEDDING_FORBIDDEN:
        _refuse(file, f"its owner forbids embedding it in documents (fsType {rights:#06x})")
    if rights & (_NO_SUBSETTING | _BITMAPS_ONLY):
        _refuse(file, f"its owner forbids embedding parts of it (fsType {rights:#06x})")


def _metrics(tables: Mapping[str, bytes], glyph_count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    full = _u16(tables["hhea"], 34)
    hmtx = tables["hmtx"]
    pairs = struct.unpack_from(f">{'Hh' * full}", hmtx)
    rest = struct.unpack_from(f">{glyph_count - full}h", hmtx, 4 * full)
    advances = pairs[::2] + (pairs[-2],) * (glyph_count - full)
    return advances, pairs[1::2] + rest


def _offsets(tables: Mapping[str, bytes], glyph_count: int, file: str) -> tuple[int, ...]:
    """Return where the outlines are, checked: they are cut out much later, when a ticket needs them."""
    if _u16(tables["head"], 50):
        found: tuple[int, ...] = struct.unpack_from(f">{glyph_count + 1}L", tables["loca"])
    else:
        found = tuple(2 * half for half in struct.unpack_from(f">{glyph_count + 1}H", tables["loca"]))
    if found[-1] > len(tables["glyf"]) or any(first > last for first, last in itertools.pairwise(found)):
        _refuse(file, "it is damaged: outlines are not where they should be")
    return found


def _postscript_name(name: bytes, file: str) -> str:
    count, strings = _u16(name, 2), _u16(name, 4)
    for index in range(count):
        platform, _, _, name_id, length, offset = struct.unpack_from(">6H", name, 6 + 12 * index)
        if name_id == 6:
            raw = name[strings + offset : strings + offset + length]
            return raw.decode("utf-16-be" if platform in (0, 3) else "latin-1").replace(" ", "")
    return _refuse(file, "it has no PostScript name")


# -- characters ---------------------------------------------------------------


def _cmap(cmap: bytes, file: str) -> Mapping[int, int]:
    """Return the best Unicode map of the font: the one beyond U+FFFF if it has one."""
    best: tuple[int, int] | None = None
    for index in range(_u16(cmap, 2)):
        platform, encoding, offset = struct.unpack_from(">HHL", cmap, 4 + 8 * index)
        is_unicode = platform == 0 or (platform == 3 and encoding in (1, 10))
        form = _u16(cmap, offset)
        if is_unicode and form in (4, 12) and (best is None or form > best[0]):
            best = (form, offset)
    if best is None:
        _refuse(file, "it has no Unicode character map of format 4 or 12")
    form, offset = best
    pairs = _segments_12(cmap, offset) if form == 12 else _segments_4(cmap, offset)
    return {code: glyph for code, glyph in pairs.items() if glyph}


def _segments_12(cmap: bytes, offset: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for index in range(_u32(cmap, offset + 12)):
        first, last, glyph = struct.unpack_from(">3L", cmap, offset + 16 + 12 * index)
        found.update(zip(range(first, last + 1), range(glyph, glyph + last - first + 1), strict=True))
    return found


def _segments_4(cmap: bytes, offset: int) -> dict[int, int]:
    count = _u16(cmap, offset + 6) // 2
    ends = struct.unpack_from(f">{count}H", cmap, offset + 14)
    starts = struct.unpack_from(f">{count}H", cmap, offset + 16 + 2 * count)
    deltas = struct.unpack_from(f">{count}h", cmap, offset + 16 + 4 * count)
    ranges_at = offset + 16 + 6 * count
    ranges = struct.unpack_from(f">{count}H", cmap, ranges_at)
    found: dict[int, int] = {}
    for index, (first, last, delta, range_offset) in enumerate(zip(starts, ends, deltas, ranges, strict=True)):
        for code in range(first, min(last, 0xFFFE) + 1):
            if not range_offset:
                found[code] = (code + delta) & 0xFFFF
                continue
            # The offset counts from where it stands itself: a trick of the format.
            glyph = _u16(cmap, ranges_at + 2 * index + range_offset + 2 * (code - first))
            found[code] = (glyph + delta) & 0xFFFF if glyph else 0
    return found


def _kerning(kern: bytes) -> Mapping[tuple[int, int], int]:
    """Return the pairs of the old `kern` table; a font without one is set without kerning."""
    if len(kern) < 18 or _u16(kern, 0) != 0:
        return {}
    coverage, count = _u16(kern, 8), _u16(kern, 10)
    horizontal_pairs = 0x0001
    if coverage != horizontal_pairs:
        return {}
    # The length field of the subtable is 16 bits wide and overflows in large
    # fonts; the number of pairs does not.
    count = min(count, (len(kern) - 18) // 6)
    values = struct.unpack_from(f">{'HHh' * count}", kern, 18)
    return {(values[i], values[i + 1]): values[i + 2] for i in range(0, 3 * count, 3)}
