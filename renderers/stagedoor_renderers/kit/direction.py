"""One line in the order of the paper: the bidirectional algorithm of Unicode (UAX #9).

The library's edition in Python mirrors brackets, but takes each of them for itself: of
"המלט (2026)" in a line from the left it put one to the right of the year and one to the
left of the title. Its edition in Rust pairs them (rule N0) and does not mirror. So this
runs the steps of the first, with the missing one between its rules for weak and for
neutral characters.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from bidi import algorithm
from bidi.mirror import MIRRORED

from stagedoor_renderers.kit import scripts

_DEEPEST_NESTING = 63
"""Rule BD16: where more brackets are open, none of the run are paired."""


def visual(line: str, *, right_to_left: bool) -> str:
    """Return the characters of one line from left to right, as they stand on paper; brackets are mirrored."""
    if not right_to_left and not scripts.has_right_to_left(line):
        return scripts.unmarked(line)
    storage = algorithm.get_empty_storage()
    storage |= {"base_level": int(right_to_left), "base_dir": "R" if right_to_left else "L"}
    algorithm.get_embedding_levels(line, storage)
    algorithm.explicit_embed_and_overrides(storage)
    algorithm.resolve_weak_types(storage)
    _resolve_brackets(storage["chars"], embedding=storage["base_dir"])
    algorithm.resolve_neutral_types(storage, debug=False)
    algorithm.resolve_implicit_levels(storage, debug=False)
    algorithm.reorder_resolved_levels(storage, debug=False)
    algorithm.apply_mirroring(storage, debug=False)
    return scripts.unmarked("".join(char["ch"] for char in storage["chars"]))


def _resolve_brackets(chars: Sequence[dict[str, Any]], *, embedding: str) -> None:
    """Give both brackets of each pair one direction (rule N0); text that was cleaned is a single run.

    That of the line where anything between them has it; else the other one, where it
    is what stands between them and before them too.
    """
    for start, end in sorted(_pairs(chars)):
        within = {strong for char in chars[start + 1 : end] if (strong := _strong(char))}
        if not within:
            continue
        before = next((strong for char in reversed(chars[:start]) if (strong := _strong(char))), embedding)
        direction = embedding if embedding in within else before
        for at in (start, end):
            chars[at]["type"] = direction
            for mark in _marks_after(chars, at):
                mark["type"] = direction


def _strong(char: dict[str, Any]) -> str | None:
    """Return the direction that a character lends to brackets; figures run from the right unless W7 said otherwise."""
    return {"L": "L", "R": "R", "AL": "R", "EN": "R", "AN": "R"}.get(char["type"])


def _marks_after(chars: Sequence[dict[str, Any]], at: int) -> Iterator[dict[str, Any]]:
    for char in chars[at + 1 :]:
        if char["orig"] != "NSM":
            return
        yield char


def _pairs(chars: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return where the brackets of each pair stand (rule BD16)."""
    found: list[tuple[int, int]] = []
    opened: list[tuple[str, int]] = []
    for at, char in enumerate(chars):
        if char["type"] != "ON":
            continue
        kind, other = unicodedata.category(char["ch"]), MIRRORED.get(char["ch"])
        if kind == "Ps" and other is not None:
            if len(opened) == _DEEPEST_NESTING:
                return []
            opened.append((other, at))
        elif kind == "Pe":
            index = next((i for i in reversed(range(len(opened))) if opened[i][0] == char["ch"]), None)
            if index is not None:
                found.append((opened[index][1], at))
                del opened[index:]
    return found
