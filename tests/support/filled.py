"""Data of a class with every field filled in, derived from the class: a field that is new is in it, too."""

import datetime as dt
import types
import typing
from collections.abc import Callable
from typing import Any

import attrs

type TextFor = Callable[[str], str]
"""Gives the text for a field by its path, such as ``positions.seat.row``."""


def filled(cls: type, text_for: TextFor, path: str = "") -> dict[str, Any]:
    """Return the data of one value, as JSON has it: no number is missing and no list is empty."""
    hints = typing.get_type_hints(cls)
    return {
        field.name: _filled(hints[field.name], text_for, f"{path}.{field.name}".lstrip("."))
        for field in attrs.fields(cls)
    }


def _filled(hint: Any, text_for: TextFor, path: str) -> Any:
    inner = [one for one in typing.get_args(hint) if one not in {type(None), Ellipsis}]
    if isinstance(hint, types.UnionType):
        # Of a number, None is as good as any.
        return None if inner == [int] else _filled(inner[0], text_for, path)
    if typing.get_origin(hint) is tuple:
        return [_filled(inner[0], text_for, path)]
    if hint is str:
        return text_for(path)
    if hint is int:
        return 1
    if hint is dt.datetime:
        return "2026-07-01T18:00:00Z"
    if attrs.has(hint):
        return filled(hint, text_for, path)
    raise AssertionError(f"{path} is of a type that this does not know: {hint}")
