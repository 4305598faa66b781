"""What commands print: tables for people, JSON for programs.

Order data goes through `stagedoor.cli.text.printable` before it comes near a
terminal, and never through rich's markup.
"""

import datetime as dt
import io
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stagedoor.cli.fitting import Fitted
from stagedoor.cli.text import printable

WIDTH_WITHOUT_TERMINAL = 1000
"""Columns where the output goes into a file or a pipe: nothing should be cut there."""


def print_json(value: Any) -> None:
    """Print one object on one line; the only thing that a command with ``--json`` writes to stdout.

    What is not printable is written as JSON's own escape: a reader that also takes U+2028 or U+0085 for
    the end of a line gets one line all the same, and a terminal nothing that drives it.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)
    print(text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text))


def _escaped(char: str) -> str:
    # json.dumps takes DEL for a character like any other.
    return json.dumps(char)[1:-1] if ord(char) > 0xFF else f"\\u{ord(char):04x}"  # noqa: PLR2004 - one byte


def show(*parts: RenderableType) -> None:
    """Print these for a person: in colours and to its width on a terminal, as plain text elsewhere."""
    if sys.stdout is not None and sys.stdout.isatty():
        Console(highlight=False, markup=False, emoji=False).print(Group(*parts))
        return
    plain = Console(file=io.StringIO(), highlight=False, markup=False, emoji=False, width=WIDTH_WITHOUT_TERMINAL)
    with plain.capture() as captured:
        plain.print(Group(*parts))
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def hanging(line: Text, indent: int, *, first: Text | str = "") -> Table:
    """Return a line whose continuations begin where it does, *indent* columns from the left, after *first*."""
    made = Table.grid()
    made.add_column(width=indent)
    made.add_column(overflow="fold")
    made.add_row(first, line)
    return made


def safe(text: object, style: str = "") -> Text:
    """Return text from elsewhere for a table: one line, nothing that drives the terminal."""
    return Text(printable(str(text)), style=style)


def table(*headings: str, right: Sequence[str] = ()) -> Fitted:
    """Return an empty table without lines, for any width; the columns named in *right* hold numbers."""
    made = Fitted(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return made


def facts(rows: Iterable[tuple[str, object]]) -> Table:
    """Return names and values in two columns; empty values are left out."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    made.add_column(style="dim")
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, ""):
            made.add_row(name, value if isinstance(value, Text) else safe(value))
    return made


def utc(at: dt.datetime | float | None) -> str | None:
    """Return a moment as JSON writes it; a number that is no moment of any calendar is shown as a number."""
    if at is None:
        return None
    try:
        moment = at if isinstance(at, dt.datetime) else dt.datetime.fromtimestamp(at, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at:g} s"
    return moment.astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
