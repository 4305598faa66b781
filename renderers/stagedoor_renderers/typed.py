"""How one value of a layout's file is read: what is allowed, and what is said of anything else.

Every attribute of a box is declared with the function that reads it: the declaration
is the whole rule, and a table becomes a box by asking each attribute.
"""

# ruff: noqa: PLR2004 - limits stand where they hold

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from stagedoor_renderers.fields import FIELDS
from stagedoor_renderers.values import word_names

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
MAX_MM = 1000.0
"""The longest side of a page."""


class Wrong(Exception):
    """A value that does not fit; becomes one line of the error."""


@attrs.frozen
class Template:
    """Words and fields: `literals` has one element more than `fields`."""

    literals: tuple[str, ...]
    fields: tuple[str, ...]

    def fill(self, content: Mapping[str, str]) -> str:
        """Return the text, or nothing if it has fields and all of them are empty."""
        if not self.fields:
            return self.literals[0]
        values = [content.get(name, "") for name in self.fields]
        # A label alone is a text of its own; beside an empty field it says nothing.
        telling = [value for name, value in zip(self.fields, values, strict=True) if not name.startswith("label.")]
        if telling and not any(telling):
            return ""
        parts = [self.literals[0]]
        for value, literal in zip(values, self.literals[1:], strict=True):
            parts += (value, literal)
        return "".join(parts)


def declared(read: Callable[[Any], Any], *, default: Any = attrs.NOTHING) -> Any:
    """Declare an attribute that knows how it is read from a file."""
    return attrs.field(metadata={"read": read}, default=default)


def structured[T](data: Mapping[str, Any], cls: type[T]) -> T:
    """Build *cls* from a table; every attribute knows how it is read."""
    known = {field.name: field for field in attrs.fields(cls)}  # type: ignore[arg-type] # only attrs classes come here
    unknown = sorted(data.keys() - known.keys())
    if unknown:
        raise Wrong(f"unknown key {', '.join(unknown)}; there are {', '.join(known)}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name not in data:
            if field.default is attrs.NOTHING:
                raise Wrong(f"{name} is missing")
            continue
        try:
            values[name] = field.metadata["read"](data[name])
        except Wrong as wrong:
            raise Wrong(f"{name} {wrong}") from None
    return cls(**values)


def tables[T](value: Any, cls: type[T]) -> tuple[T, ...]:
    """Read 1 to 20 tables of one kind."""
    if not isinstance(value, list) or not 1 <= len(value) <= 20 or not all(isinstance(item, dict) for item in value):
        raise Wrong(f"must be a list of 1 to 20 tables, found {value!r}")
    return tuple(structured(item, cls) for item in value)


def template(value: Any) -> Template:
    """Read a text of up to 1,000 characters, with fields in braces."""
    if not isinstance(value, str) or len(value) > 1000:
        raise Wrong(f"must be text of up to 1000 characters, found {value!r}")
    parts = _PLACEHOLDER.split(value)
    for name in parts[1::2]:
        field(name)
    for literal in parts[::2]:
        if "{" in literal or "}" in literal:
            raise Wrong(f"has a brace without its partner in {value!r}")
    return Template(tuple(parts[::2]), tuple(parts[1::2]))


def number(low: float, high: float) -> Callable[[Any], float]:
    """Return what reads a finite number from *low* to *high*."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Wrong(f"must be a number from {low:g} to {high:g}, found {value!r}")
        if not low <= value <= high:
            raise Wrong(f"must be from {low:g} to {high:g}, found {value:g}")
        return float(value)

    return read


def whole(low: int, high: int) -> Callable[[Any], int]:
    """Return what reads a whole number from *low* to *high*."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Wrong(f"must be a whole number from {low} to {high}, found {value!r}")
        return value

    return read


def choice(*allowed: Any) -> Callable[[Any], Any]:
    """Return what reads one of *allowed*."""

    def read(value: Any) -> Any:
        if isinstance(value, bool) or value not in allowed:
            raise Wrong(f"must be one of {', '.join(map(str, allowed))}, found {value!r}")
        return value

    return read


def flag(value: Any) -> bool:
    """Read true or false; 0 and 1 are neither."""
    if not isinstance(value, bool):
        raise Wrong(f"must be true or false, found {value!r}")
    return value


def name_of(value: Any) -> str:
    """Read a name of a box, an asset or a colour: lower case, digits and dashes."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise Wrong(f"must be lower-case letters, digits and dashes, found {value!r}")
    return value


def field(value: Any) -> str:
    """Read the name of something that a ticket may show, or of a word in its language."""
    if isinstance(value, str) and value.startswith("label."):
        if value.removeprefix("label.") not in word_names():
            raise Wrong(f"names a word that does not exist: {value!r}; there are {', '.join(word_names())}")
    elif not isinstance(value, str) or value not in FIELDS:
        raise Wrong(f"names a field that does not exist: {value!r}; there are {', '.join(sorted(FIELDS))}")
    return value


def fields(value: Any) -> tuple[str, ...]:
    """Read one name of a field, or a list of them."""
    if isinstance(value, str):
        return (field(value),)
    if not isinstance(value, list):
        raise Wrong(f"must be the name of a field or a list of names, found {value!r}")
    return tuple(field(item) for item in value)


def lengths(value: Any) -> tuple[float, ...]:
    """Read up to 8 lengths in mm."""
    if not isinstance(value, list) or len(value) > 8:
        raise Wrong(f"must be a list of up to 8 numbers, found {value!r}")
    return tuple(number(0, MAX_MM)(item) for item in value)


def is_color(value: str) -> bool:
    """Return whether *value* is a colour itself, not the name of one."""
    return re.fullmatch(r"#[0-9a-f]{6}", value) is not None


def color(value: Any) -> str:
    """Read a colour or the name of one; names are looked up when all of the file is known."""
    if not isinstance(value, str) or not (is_color(value) or _NAME.fullmatch(value)):
        raise Wrong(f"must be #rrggbb in lower case or a name from [colors], found {value!r}")
    return value


mm = number(0, MAX_MM)
points = number(1, 200)
align = choice("start", "end", "left", "center", "right", "auto")
