"""Tells a PDF from something that only begins and ends like one, without a PDF library.

A reader of PDF starts at the end: the last lines say where the table of all objects
begins, and the table says where each object is and which of them is the document.
This walks the same way and looks only at those places, so it takes microseconds where
a library would take longer than the drawing. What is on a page it does not see.

The structure is that of ISO 32000-1, 7.5: file structure.
"""

import re
from collections.abc import Iterator, Mapping

_TAIL = 64
"""The last bytes hold ``startxref``, a number of up to ten digits and ``%%EOF``, with their line ends."""

_END = re.compile(rb"startxref\s+(\d{1,10})\s+%%EOF\s*\Z")
_SECTION = re.compile(rb"\s*(\d{1,10})[ ]+(\d{1,10})\s*?[\r\n]+")
_ENTRY = re.compile(rb"(\d{10}) (\d{5}) ([nf])\s{1,2}")
_TRAILER = re.compile(rb"\s*trailer\s*<<")
_OBJECT = re.compile(rb"\s*(\d{1,10})\s+\d{1,5}\s+obj\b")
_ROOT = re.compile(rb"/Root\s+(\d{1,10})\s+\d{1,5}\s+R\b")
_CATALOG = re.compile(rb"/Type\s*/Catalog\b")
_TABLE_STREAM = re.compile(rb"/Type\s*/XRef\b")
_BROKEN = "promised a PDF and returned something whose {}"


def pdf_problem(content: bytes) -> str | None:
    """Say in what way *content* is no whole PDF, or None if its structure holds.

    Looked at are its two ends, the table of objects that the end points at, whether every
    object of it begins where the table says, and whether one of them is the document. Where
    the table is compressed (an XRef stream), only that it is there and names the document.
    """
    if not content.startswith(b"%PDF-"):
        return "promised a PDF and returned something that does not start with %PDF-"
    if not content[-32:].rstrip().endswith(b"%%EOF"):
        return "promised a PDF and returned something that does not end with %%EOF"
    end = _END.search(content, max(0, len(content) - _TAIL))
    if end is None:
        return _BROKEN.format("end does not say where its table of objects is")
    start = int(end[1])
    if content.startswith(b"xref", start):
        wrong = _table_problem(content, start + len(b"xref"))
    elif _OBJECT.match(content, start):
        wrong = _stream_problem(content, start, end.start())
    else:
        wrong = "end points at no table of objects"
    return _BROKEN.format(wrong) if wrong else None


def _table_problem(content: bytes, start: int) -> str | None:
    places: dict[int, int] = {}
    at = start
    while section := _SECTION.match(content, at):
        at = section.end()
        for number in range(int(section[1]), int(section[1]) + int(section[2])):
            entry = _ENTRY.match(content, at)
            if entry is None:
                return "table of objects is cut off"
            at = entry.end()
            if entry[3] == b"n":
                places[number] = int(entry[1])
    trailer = _TRAILER.match(content, at)
    root = _ROOT.search(content, trailer.end()) if trailer else None
    if root is None:
        return "table of objects does not name the document"
    if next(_misplaced(content, places), None) is not None:
        return "objects are not where its table says"
    # In a file that was added to later, the document may be in an earlier table.
    place = places.get(int(root[1]))
    is_there = place is None or _CATALOG.search(content, place, _end_of_object(content, place))
    return None if is_there else "table of objects names something as the document that is none"


def _misplaced(content: bytes, places: Mapping[int, int]) -> Iterator[int]:
    for number, place in places.items():
        found = _OBJECT.match(content, place)
        if found is None or int(found[1]) != number:
            yield number


def _end_of_object(content: bytes, place: int) -> int:
    end = content.find(b"endobj", place)
    return end if end >= 0 else len(content)


def _stream_problem(content: bytes, start: int, end: int) -> str | None:
    dictionary = content.find(b"stream", start, end)
    if dictionary < 0 or not _TABLE_STREAM.search(content, start, dictionary):
        return "end points at no table of objects"
    if not _ROOT.search(content, start, dictionary):
        return "table of objects does not name the document"
    return None
