"""Reads documents back, to see whether what was typed came out as text: HTML, XML, JSON, PDF, archives of them.

Structure and text are told apart by the parsers of the standard library, and the text of a
PDF by PDFium where it is installed; nothing of it is needed to draw.
"""

import io
import json
import unicodedata
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from typing import Any

import attrs

_PROGRAMS = frozenset(("script", "style"))
_ACTING = frozenset(
    ("action", "background", "data", "formaction", "href", "poster", "src", "srcdoc", "srcset", "style")
)
"""Attributes of which a browser makes more than text; so it does of all that begin with ``on``."""

_MEMBERS = {
    ".htm": "text/html",
    ".html": "text/html",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".xhtml": "application/xhtml+xml",
    ".xml": "application/xml",
}


class Unreadable(Exception):
    """A document is not what it promises to be; says why."""


@attrs.frozen
class Reading:
    """What a document says.

    *text* is all that is text, squeezed; *shape* names each kind of element with its attributes,
    of key and of member, and does not count them; *acting* is what a browser takes for a
    program, a style or an address, squeezed.
    """

    text: str
    shape: frozenset[tuple[str, ...]] = frozenset()
    acting: str = ""


def read_back(content: bytes, content_type: str) -> Reading | None:
    """Return what the document says, or None when nothing here can read one of its type.

    Raises:
        Unreadable: it is not of its type.
    """
    if content_type == "text/html":
        return _html(content)
    if content_type in {"text/xml", "application/xml"} or content_type.endswith("+xml"):
        return _xml(content)
    if content_type == "application/json" or content_type.endswith("+json"):
        return _json(content)
    if content_type == "application/pdf":
        return _pdf(content)
    if content_type == "text/plain":
        return Reading(squeezed(content.decode("utf-8", "replace")))
    return _archive(content) if zipfile.is_zipfile(io.BytesIO(content)) else None


def squeezed(text: str) -> str:
    """Return *text* without blanks, line ends and signs that nobody sees, its letters small.

    Where a line ends, and whether it is in capitals, is a matter of layout.
    """
    normal = unicodedata.normalize("NFKC", text).casefold()
    return "".join(char for char in normal if not char.isspace() and unicodedata.category(char)[0] != "C")


class _Elements:
    """Gathers what a parser finds."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.acting: list[str] = []
        self.shape: set[tuple[str, ...]] = set()
        self._open: list[str] = []

    def begin(self, tag: str, attributes: Sequence[tuple[str, str | None]]) -> None:
        names = [_local(name) for name, _ in attributes]
        self.shape.add((_local(tag), *sorted(names)))
        self._open.append(_local(tag))
        for name, (_, value) in zip(names, attributes, strict=True):
            (self.acting if name in _ACTING or name.startswith("on") else self.text).append(value or "")

    def end(self, tag: str) -> None:
        self.shape.add((f"/{_local(tag)}",))
        if _local(tag) in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(_local(tag)) :]

    def say(self, data: str) -> None:
        is_program = bool(self._open) and self._open[-1] in _PROGRAMS
        (self.acting if is_program else self.text).append(data)

    def aside(self, kind: str) -> None:
        """Take note of a comment or the like."""
        self.shape.add((kind,))

    def reading(self) -> Reading:
        return Reading(squeezed("".join(self.text)), frozenset(self.shape), squeezed("".join(self.acting)))


def _local(name: str) -> str:
    """Return a name without its namespace, in small letters."""
    return name.rpartition("}")[2].rpartition(":")[2].lower()


class _Html(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found = _Elements()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.begin(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self.found.end(tag)

    def handle_data(self, data: str) -> None:
        self.found.say(data)

    def handle_comment(self, data: str) -> None:
        del data
        self.found.aside("comment")

    def handle_decl(self, decl: str) -> None:
        self.found.aside(f"!{decl.partition(' ')[0]}")

    def handle_pi(self, data: str) -> None:
        del data
        self.found.aside("?")

    def unknown_decl(self, data: str) -> None:
        del data
        self.found.aside("![")


def _html(content: bytes) -> Reading:
    parser = _Html()
    parser.feed(content.decode("utf-8", "replace"))
    parser.close()
    return parser.found.reading()


class _XmlTarget:
    def __init__(self) -> None:
        self.found = _Elements()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.found.begin(tag, list(attributes.items()))

    def end(self, tag: str) -> None:
        self.found.end(tag)

    def data(self, data: str) -> None:
        self.found.say(data)

    def comment(self, data: str) -> None:
        del data
        self.found.aside("comment")

    def pi(self, target: str, data: str | None) -> None:
        del data
        self.found.aside(f"?{target}")

    def close(self) -> None:
        return


def _xml(content: bytes) -> Reading:
    target = _XmlTarget()
    parser = ET.XMLParser(target=target)  # noqa: S314 - made by the renderer under test, of our own words
    try:
        parser.feed(content)
        parser.close()
    except ET.ParseError as error:
        raise Unreadable(f"is no XML: {error}") from error
    return target.found.reading()


def _json(content: bytes) -> Reading:
    try:
        found = json.loads(content)
    except ValueError as error:
        raise Unreadable(f"is no JSON: {error}") from error
    texts, paths = [], set()
    for path, value in _leaves(found, ()):
        paths.add(path)
        texts.append(value)
    return Reading(squeezed("".join(texts)), frozenset(paths))


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    else:
        yield path, str(value)


def _archive(content: bytes) -> Reading:
    """Read the members that can be read; their names belong to the shape, for a text is no path."""
    texts: list[str] = []
    acting: list[str] = []
    shape: set[tuple[str, ...]] = set()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            shape.add((name,))
            dot = name.rfind(".")
            kind = _MEMBERS.get(name[dot:].lower()) if dot >= 0 else None
            reading = read_back(archive.read(name), kind) if kind else None
            if reading is not None:
                texts.append(reading.text)
                acting.append(reading.acting)
                shape |= {(name, *part) for part in reading.shape}
    return Reading("".join(texts), frozenset(shape), "".join(acting))


def _pdf(content: bytes) -> Reading | None:
    try:
        import pypdfium2  # noqa: PLC0415 - not everybody has it, and then PDFs are not read back
    except ImportError:
        return None
    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        raise Unreadable(f"is no PDF: {error}") from error
    try:
        pages = [document[number].get_textpage().get_text_range() for number in range(len(document))]
    finally:
        document.close()
    return Reading(squeezed("".join(pages)))
