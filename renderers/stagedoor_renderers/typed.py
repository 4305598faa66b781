"""How one value of a layout's file is read: what is allowed, and what is said of anything else.

Every attribute of a box is declared with the function that reads it: the declaration
is the whole rule, and a table becomes a box by asking each attribute. A table of which
something is wrong becomes a box too, with a blank in that place, so that the rest of
it can be looked at, and all that is wrong be said at once.
"""

# ruff: noqa: PLR2004 - limits stand where they hold

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from stagedoor_renderers.fields import FIELDS
from stagedoor_renderers.values import word_names

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_LONGEST_NAME = 64
"""Names are compared with what is known up to this length; the longest there is has 17."""

MAX_MM = 1000.0
"""The longest side of a page."""


class Wrong(Exception):
    """A value that does not fit; *problems* are what is to be said of it, a line each."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems


class WrongItems(Wrong):
    """Tables of a list that do not fit; *rest* is what could be read of them."""

    def __init__(self, *problems: str, rest: Sequence[Any]) -> None:
        super().__init__(*problems)
        self.rest = tuple(rest)


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


_BLANKS: Mapping[Any, Any] = {float: math.nan, str: "", Template: Template(("",), ())}
"""What stands where nothing could be read: it lies nowhere and says nothing. A list is empty."""


def structured[T](data: Mapping[str, Any], cls: type[T]) -> tuple[T, list[str]]:
    """Return what a table says, and a line for everything in it that is wrong.

    If anything is, the object has blanks, and is good for finding what else is wrong.
    """
    known = {field.name: field for field in attrs.fields(cls)}  # type: ignore[arg-type] # only attrs classes come here
    problems = [f"unknown key {key}; {meant(key, known)}" for key in data if key not in known]
    values: dict[str, Any] = {}
    for name, field in known.items():
        values[name], wrong = _value(field, data)
        problems += wrong
    return cls(**values), problems


def _value(field: "attrs.Attribute[Any]", data: Mapping[str, Any]) -> tuple[Any, Sequence[str]]:
    """Return what *data* has for one attribute, or what stands for it, and what is wrong with it."""
    must = field.default is attrs.NOTHING
    otherwise = _BLANKS.get(field.type, ()) if must else field.default
    if field.name not in data:
        return otherwise, [f"{field.name} is missing"] if must else []
    try:
        return field.metadata["read"](data[field.name]), []
    except WrongItems as wrong:
        return wrong.rest, wrong.problems
    except Wrong as wrong:
        return otherwise, [f"{field.name} {problem}" for problem in wrong.problems]


def meant(name: str, known: Iterable[str]) -> str:
    """Return which of *known* is probably meant by *name*, or what there is to choose from."""
    known = list(known)
    close = difflib.get_close_matches(name[:_LONGEST_NAME], known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"


def tables[T](value: Any, cls: type[T]) -> tuple[T, ...]:
    """Read 1 to 20 tables of one kind."""
    if not isinstance(value, list) or not 1 <= len(value) <= 20 or not all(isinstance(item, dict) for item in value):
        raise Wrong(f"must be a list of 1 to 20 tables, found {value!r}")
    items = [structured(item, cls) for item in value]
    problems = [f"item {number}: {problem}" for number, (_, wrong) in enumerate(items, start=1) for problem in wrong]
    done = tuple(item for item, _ in items)
    if problems:
        raise WrongItems(*problems, rest=done)
    return done


def _each[T](read: Callable[[Any], T], values: Iterable[Any]) -> tuple[T, ...]:
    """Read all of *values*; what is wrong with any of them is said of all of them."""
    done: list[T] = []
    problems: list[str] = []
    for value in values:
        try:
            done.append(read(value))
        except Wrong as wrong:
            problems += wrong.problems
    if problems:
        raise Wrong(*problems)
    return tuple(done)


def template(value: Any) -> Template:
    """Read a text of up to 1,000 characters, with fields in braces."""
    if not isinstance(value, str) or len(value) > 1000:
        raise Wrong(f"must be text of up to 1000 characters, found {value!r}")
    parts = _PLACEHOLDER.split(value)
    read = _each(lambda part: field(part[1]) if part[0] % 2 else _literal(part[1]), enumerate(parts))
    return Template(read[::2], read[1::2])


def _literal(value: str) -> str:
    """Read what stands between fields."""
    if "{" in value or "}" in value:
        raise Wrong(f"has a brace without its partner in {value!r}")
    return value


def number(low: float, high: float) -> Callable[[Any], float]:
    """Return what reads a finite number from *low* to *high*."""

    def read(value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # A whole number may be too large for `math`, but not for a comparison.
        if not is_number or (isinstance(value, float) and not math.isfinite(value)):
            raise Wrong(f"must be a number from {low:g} to {high:g}, found {value!r}")
        if not low <= value <= high:
            raise Wrong(f"must be from {low:g} to {high:g}, found {value}")
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


def is_name(value: Any) -> bool:
    """Return whether *value* may be the name of a box, an asset or a colour."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def name_of(value: Any) -> str:
    """Read a name of a box, an asset or a colour: lower case, digits and dashes."""
    if not is_name(value):
        raise Wrong(f"must be lower-case letters, digits and dashes, found {value!r}")
    return str(value)


def field(value: Any) -> str:
    """Read the name of something that a ticket may show, or of a word in its language."""
    if isinstance(value, str) and value.startswith("label."):
        words = [f"label.{word}" for word in word_names()]
        if value not in words:
            raise Wrong(f"names a word that does not exist: {value!r}; {meant(value, words)}")
    elif not isinstance(value, str) or value not in FIELDS:
        raise Wrong(f"names a field that does not exist: {value!r}; {meant(str(value), sorted(FIELDS))}")
    return value


def fields(value: Any) -> tuple[str, ...]:
    """Read one name of a field, or a list of them."""
    if isinstance(value, str):
        return (field(value),)
    if not isinstance(value, list):
        raise Wrong(f"must be the name of a field or a list of names, found {value!r}")
    return _each(field, value)


def lengths(value: Any) -> tuple[float, ...]:
    """Read up to 8 lengths in mm."""
    if not isinstance(value, list) or len(value) > 8:
        raise Wrong(f"must be a list of up to 8 numbers, found {value!r}")
    return _each(number(0, MAX_MM), value)


def is_color(value: str) -> bool:
    """Return whether *value* is a colour itself, not the name of one."""
    return re.fullmatch(r"#[0-9a-f]{6}", value) is not None


def color(value: Any) -> str:
    """Read a colour or the name of one; names are looked up when all of the file is known."""
    if not isinstance(value, str) or not (is_color(value) or is_name(value)):
        raise Wrong(f"must be #rrggbb in lower case or a name from [colors], found {value!r}")
    return value


mm = number(0, MAX_MM)
points = number(1, 200)
align = choice("start", "end", "left", "center", "right", "auto")
