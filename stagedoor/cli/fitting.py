"""Tables on terminals of any width: no word, id or time is broken for want of room.

A table that does not fit gives its columns what their words need, and shares out
the rest. Where even the words do not fit, each row is a block of lines, for an id
in three pieces is one that nobody can copy.
"""

import unicodedata
from collections.abc import Iterator, Sequence

import attrs
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

GAP = 2
"""Columns between two columns."""
LONGEST_WORD = 24
"""Cells of a word that is kept whole: an id or a time. What is longer, a path say, does not decide how all looks."""


@attrs.frozen
class _Need:
    """What a column needs: cells for its longest word, and for its longest line."""

    least: int
    most: int


class Fitted(Table):
    """A table without lines that fits; made by `stagedoor.cli.output.table`."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or its rows one below the other."""
        needs = [_need_of(column, console, options) for column in self.columns]
        # The last columns must not be pushed over the edge by signs that only some terminals give a cell.
        room = options.max_width - GAP * (len(needs) - 1) - _doubtful(self.columns)
        if sum(need.least for need in needs) > room:
            yield from _blocks(self.columns)
            return
        for column, width in zip(self.columns, _shared_out(needs, room), strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)


def _need_of(column: Column, console: Console, options: ConsoleOptions) -> _Need:
    found = [Measurement.get(console, options.update(max_width=_ENDLESS), cell) for cell in column.cells]
    head = Measurement.get(console, options.update(max_width=_ENDLESS), column.header)
    most = max((one.maximum for one in [*found, head]), default=0)
    # Numbers with their units are words, too.
    is_whole = column.no_wrap or column.justify == "right"
    words = [one.maximum if is_whole else min(one.minimum, LONGEST_WORD) for one in found]
    return _Need(least=max([*words, head.minimum]), most=most)


_ENDLESS = 10_000


def _shared_out(needs: Sequence[_Need], room: int) -> list[int]:
    """Return widths that fit into the room: what each needs at the least, and the rest to whoever has most lines."""
    widths = [need.least for need in needs]
    for _ in range(room - sum(widths)):
        wanting = [at for at, need in enumerate(needs) if widths[at] < need.most]
        if not wanting:
            break
        widths[max(wanting, key=lambda at: needs[at].most / max(1, widths[at]))] += 1
    return widths


def _doubtful(columns: Sequence[Column]) -> int:
    """Return by how many cells a row may be wider than it is measured: spacing marks of Indic scripts."""
    rows = zip(*(column.cells for column in columns), strict=True)
    marks = (sum(unicodedata.category(char) == "Mc" for cell in row for char in _plain(cell)) for row in rows)
    return max(marks, default=0)


def _blocks(columns: Sequence[Column]) -> Iterator[Table | Text]:
    for number, row in enumerate(zip(*(column.cells for column in columns), strict=True)):
        if number:
            yield Text()
        block = Table.grid(padding=(0, GAP, 0, 0))
        block.add_column(style="dim", no_wrap=True)
        block.add_column(overflow="fold")
        for column, cell in zip(columns, row, strict=True):
            if _plain(cell):
                block.add_row(column.header, cell)
        yield block


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
