"""The reference of layouts in the guide, made from the layouts' own model."""

from collections.abc import Iterator
from typing import Any

import attrs

from stagedoor_renderers.boxes import BOX_TYPES, Entry, Fact, PageSize
from stagedoor_renderers.fields import FIELDS
from stagedoor_renderers.typed import Template
from stagedoor_renderers.values import word_names


def keys_of(cls: type) -> tuple[attrs.Attribute[Any], ...]:
    """Return the keys that a table of this kind may have."""
    keys: tuple[attrs.Attribute[Any], ...] = attrs.fields(cls)
    return keys


def boxes_table() -> str:
    """Return every type of box with its keys."""
    rows = ["| `type` | must have | may have |", "|---|---|---|"]
    rows += [_row(f"`{name}`", cls) for name, cls in BOX_TYPES.items()]
    rows += [_row("an item of `facts`", Fact), _row("an item of `stack`", Entry), _row("`[page]`", PageSize)]
    return "\n".join(rows)


def _row(name: str, cls: type) -> str:
    must = [f"`{key.name}`" for key in keys_of(cls) if key.default is attrs.NOTHING]
    may = [f"`{key.name}`{_default(key.default)}" for key in keys_of(cls) if key.default is not attrs.NOTHING]
    return f"| {name} | {' '.join(must)} | {' · '.join(may)} |"


def _default(value: Any) -> str:
    if isinstance(value, Template):
        value = value.fill({name: f"{{{name}}}" for name in value.fields})
    if value in ("", ()):
        return ""
    return (
        f" {str(value).lower()}"
        if isinstance(value, bool)
        else f" {value:g}"
        if isinstance(value, float)
        else f" {value}"
    )


def fields_table() -> str:
    """Return every field, and the words."""
    rows = ["| field | what it says |", "|---|---|", *(f"| `{name}` | {what} |" for name, what in FIELDS.items())]
    return "\n".join([*rows, "", "Words: " + " ".join(_words()) + "."])


def _words() -> Iterator[str]:
    return (f"`label.{name}`" for name in word_names())
