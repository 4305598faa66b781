"""The parts of the documentation that are made from the code; ``python -m tests.docs.generated`` writes them.

A part of a Markdown file stands between two comments, ``<!-- made: name -->`` and
``<!-- end -->``. A test compares what stands there with what would be written.
"""

import html
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stagedoor.cli.app import COMMANDS, PROGRAM
from stagedoor.core.call import TRANSITIONS as CALL_TRANSITIONS
from stagedoor.core.call import CallState
from stagedoor.core.outcome import TRANSITIONS, Happening, State
from stagedoor.settings import FIELDS, Settings
from tests.rendering.reference import boxes_table, fields_table

ROOT = Path(__file__).parents[2]
SVG = ROOT / "docs" / "delivery.svg"
CALL_SVG = ROOT / "docs" / "call.svg"
MARK = re.compile(r"(<!-- made: (?P<name>[a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)


# -- tables ---------------------------------------------------------------------


def settings_table() -> str:
    """Return the table of all settings."""
    rows = [f"| `{name}` | {default_of(name)} | {field.metadata['help']} |" for name, field in FIELDS.items()]
    return "\n".join(["| setting | default | what it is |", "|---|---|---|", *rows])


def default_of(name: str) -> str:
    """Return a setting's default as one would write it."""
    if name == "name":
        return "the host's name"
    default: Any = getattr(Settings.load(environ={}), name)
    if default is None:
        return "off"
    if default == ():
        return "none"
    if isinstance(default, float):
        return f"`{default:.10g}`"
    return f"`./{default}`" if isinstance(default, Path) else f"`{default}`"


def commands_table() -> str:
    """Return the table of all commands."""
    rows = [f"| `{PROGRAM} {name}` | {entry.help} |" for name, entry in COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


PARTS: Mapping[str, Callable[[], str]] = {
    "settings": settings_table,
    "commands": commands_table,
    "boxes": boxes_table,
    "fields": fields_table,
}


def with_parts(text: str) -> str:
    """Return a Markdown file with its made parts as they would be written now."""
    return MARK.sub(lambda match: f"{match[1]}{PARTS[match['name']]()}\n{match[3]}", text)


def markdown_files() -> list[Path]:
    """Return the README and the guides."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


# -- the picture of a delivery's life ---------------------------------------------

COLUMN = 236
WIDTH = 3 * COLUMN + 24
BOX = 44
ROW = 40
TOP = 34
FONT = "font-family='system-ui, sans-serif'"
INK, SOFT, LINE, ACCENT = "#1f2328", "#59636e", "#b9c0c8", "#a3161a"


def delivery_svg() -> str:
    """Return the transition table as a picture: states from left to right, what settles a delivery below."""
    states = [state for state in State if TRANSITIONS[state]]
    most = max(sum(next_state is State.SETTLED for next_state, _ in TRANSITIONS[state].values()) for state in states)
    bottom = TOP + BOX + 26 + most * ROW + 14
    parts = [part for place, state in enumerate(states) for part in _column(state, place, bottom)]
    parts += _bar(bottom)
    size = f"viewBox='0 0 {WIDTH} {bottom + BOX + 12}' width='{WIDTH}' height='{bottom + BOX + 12}'"
    title = "<title>The life of one delivery, made from stagedoor.core.outcome.TRANSITIONS</title>"
    background = f"<rect width='{WIDTH}' height='{bottom + BOX + 12}' fill='#ffffff'/>"
    return "\n".join([f"<svg xmlns='http://www.w3.org/2000/svg' {size}>", title, background, *parts, "</svg>", ""])


def _column(state: State, place: int, bottom: int) -> Iterator[str]:
    left = 12 + place * COLUMN
    yield _box(left, TOP, 150, state.value)
    row = TOP + BOX + 26
    for happening, (next_state, outcomes) in TRANSITIONS[state].items():
        if next_state is not State.SETTLED:
            yield _arrow(left + 150, TOP + BOX // 2, left + COLUMN, TOP + BOX // 2)
            yield _text(left + 150 + 38, TOP + BOX // 2 - 9, happening.value, colour=SOFT, size=12)
            continue
        yield from _ending(left, row, happening, outcomes)
        row += ROW
    yield _arrow(left + 10, TOP + BOX, left + 10, bottom)


def _ending(left: int, row: int, happening: Happening, outcomes: tuple[type, ...]) -> Iterator[str]:
    yield f"<circle cx='{left + 10}' cy='{row}' r='3.5' fill='{ACCENT}'/>"
    yield _text(left + 24, row + 1, happening.value, anchor="start")
    yield _text(
        left + 24,
        row + 17,
        " or ".join(outcome.__name__ for outcome in outcomes),
        colour=ACCENT,
        anchor="start",
        size=12,
    )


def call_svg() -> str:
    """Return the transition table of flow calls as a picture: a column for each state that a call can leave."""
    open_states = [state for state in CallState if CALL_TRANSITIONS[state]]
    width = len(open_states) * COLUMN + 24
    most = max(len(CALL_TRANSITIONS[state]) for state in open_states)
    bottom = TOP + BOX + 26 + most * ROW + 14
    parts = [part for place, state in enumerate(open_states) for part in _call_column(state, place)]
    ended = ", ".join(state.value for state in CallState if not CALL_TRANSITIONS[state])
    parts.append(
        f"<rect x='12' y='{bottom}' width='{width - 24}' height='{BOX}' rx='6' fill='#f6f1e7' stroke='{LINE}'/>"
    )
    parts.append(
        _text(width // 2, bottom + BOX // 2 + 5, f"{ended}: nothing changes it any more, and its keys expire", size=14)
    )
    size = f"viewBox='0 0 {width} {bottom + BOX + 12}' width='{width}' height='{bottom + BOX + 12}'"
    title = "<title>The life of one flow call, made from stagedoor.core.call.TRANSITIONS</title>"
    background = f"<rect width='{width}' height='{bottom + BOX + 12}' fill='#ffffff'/>"
    return "\n".join([f"<svg xmlns='http://www.w3.org/2000/svg' {size}>", title, background, *parts, "</svg>", ""])


def _call_column(state: CallState, place: int) -> Iterator[str]:
    left = 12 + place * COLUMN
    yield _box(left, TOP, 150, state.value)
    for row, (happening, following) in enumerate(CALL_TRANSITIONS[state].items()):
        y = TOP + BOX + 26 + row * ROW
        yield f"<circle cx='{left + 10}' cy='{y}' r='3.5' fill='{ACCENT}'/>"
        yield _text(left + 24, y + 1, happening.value, anchor="start")
        stays = "stays so" if following is state else f"→ {following.value}"
        yield _text(left + 24, y + 17, stays, colour=ACCENT, anchor="start", size=12)


def _bar(top: int) -> Iterator[str]:
    width = WIDTH - 24
    yield f"<rect x='12' y='{top}' width='{width}' height='{BOX}' rx='6' fill='#f6f1e7' stroke='{LINE}'/>"
    words = f"{State.SETTLED.value}: one atomic call, refused when the tenure has lapsed"
    yield _text(12 + width // 2, top + BOX // 2 + 5, words, size=14)


def _box(left: int, top: int, width: int, word: str) -> str:
    rect = f"<rect x='{left}' y='{top}' width='{width}' height='{BOX}' rx='6' fill='#ffffff' stroke='{INK}'/>"
    return rect + _text(left + width // 2, top + BOX // 2 + 5, word, size=15)


def _text(x: int, y: int, words: str, *, colour: str = INK, anchor: str = "middle", size: int = 13) -> str:
    style = f"{FONT} font-size='{size}' fill='{colour}' text-anchor='{anchor}'"
    return f"<text x='{x}' y='{y}' {style}>{html.escape(words)}</text>"


def _arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    head = f"M{x2} {y2} l-8 -4 v8 z" if y1 == y2 else f"M{x2} {y2} l-4 -8 h8 z"
    line = f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='{LINE}' stroke-width='1.5'/>"
    return f"{line}<path d='{head}' fill='{SOFT}'/>"


def main() -> None:
    """Write every made part."""
    SVG.write_text(delivery_svg(), "utf-8")
    CALL_SVG.write_text(call_svg(), "utf-8")
    for path in markdown_files():
        path.write_text(with_parts(path.read_text("utf-8")), "utf-8")
    print(f"written: {SVG.name}, {CALL_SVG.name} and the parts of {len(markdown_files())} files", file=sys.stderr)


if __name__ == "__main__":
    main()
