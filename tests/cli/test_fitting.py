"""Screens of any width: whole words and whole ids, nothing over the edge."""

import re
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from rich.cells import cell_len
from rich.text import Text

from stagedoor.broker.inspection import Overview, StreamView, WorkerView
from stagedoor.chaos.report import Report, lines_of
from stagedoor.cli import chaos
from stagedoor.cli.output import safe, show, table
from stagedoor.cli.status_view import print_screen
from stagedoor.rehearsal.calls import CallsChecked
from stagedoor.rehearsal.check import Checked
from stagedoor.settings import Settings

type Screen = Callable[[int, Callable[[], None]], list[str]]

WIDTHS = [40, 60, 80, 100]
LETTER = "1796036423383-0"
DEVANAGARI = "आरव शर्मा"
WORKER = WorkerView(
    name="box-of-the-north.2", pid=1_234_567, host="box-of-the-north", slots=8, held=13, orphaned=0,
    stopping=False, beat_age_s=1.9,
)  # fmt: skip
CHECKED = Checked(
    lost=0, wrong=0, pdf_files=1, tickets_valid=2, tickets_void=3, refunded=4, has_read_codes=True, problems=(),
)  # fmt: skip
REPORT = Report(
    seed=1, seconds=60.0, orders=12, rows=1, checked=CHECKED,
    calls=CallsChecked(done=1, cancelled=1, parked=0, steps=1, passes=1, by_flow={"chaos-trial": 2}, problems=()),
    rows_by_flow=1, dead=0, duplicate_runs=1, fenced=1, faults={"kill": 1}, exits={}, told={}, recoveries=(1.5,),
    undisturbed=(), held_at_kills=1, unmeasured=1, gil=False, workers=1, slots=1,
)  # fmt: skip


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Screen:
    """Show something on a terminal of a width; gives the lines."""

    def call(width: int, make: Callable[[], None]) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        make()
        return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()]

    return call


def cells(line: str) -> int:
    """Return how wide a line is where spacing marks have a cell of their own."""
    return cell_len(line) + sum(unicodedata.category(char) == "Mc" for char in line)


def letters() -> None:
    made = table("letter", "reason", "kind", "order", "age", "error", right=("order", "age"))
    for kind in ("render_tickets", "refund_order"):
        error = "ValueError: expected a seat of this hall, found another one"
        made.add_row(*map(safe, (LETTER, "permanent", kind, "4471", "11.7 s", error)))
    show(made)


def people() -> None:
    made = table("pos", "holder", "category", "seat", "amount", right=("pos", "amount"))
    made.add_column("state", no_wrap=True)
    for number in (1, 2):
        seat = "Balkon links, row C, seat 9"
        made.add_row(*map(safe, (number, DEVANAGARI, "Parkett (with 1) और कुछ", seat, "45.00", "placed")))
    show(made)


def status() -> None:
    overview = Overview(
        stream=StreamView(length=7776, unread=7763, pending=13, oldest_age_s=6.8), critical=StreamView(),
        delayed=2224, dead=0, workers=(WORKER,), unknown_kinds={"thank_yu": 3},
    )  # fmt: skip
    print_screen(overview, Settings.load(environ={"STAGEDOOR_ORDERS_URL": "sqlite:////nowhere/at-all.db"}))


def report() -> None:
    chaos._show(REPORT, as_json=False)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "make,words",
    [
        (letters, [LETTER, "permanent", "render_tickets", "refund_order", "ValueError:", "letter", "reason", "error"]),
        (people, ["placed", "45.00", "Parkett", "Balkon", "holder", "category", "amount"]),
        (status, ["worker", "box-of-the-north.2", "1234567", "7,763", "critical", "thank_yu"]),
        (report, ["recovery", "undisturbed", "somebody", "entry", "handler", "measured", "Nothing"]),
    ],
)
def test_no_word_is_broken_and_nothing_is_over_the_edge(
    screen: Screen, width: int, make: Callable[[], None], words: list[str]
) -> None:
    lines = screen(width, make)
    assert max(map(cells, lines)) <= width
    found = {word.strip(",;.") for line in lines for word in line.split()}
    assert {word.strip(",;.") for word in words} <= found, lines


def test_a_table_that_fits_is_a_table_and_one_that_does_not_is_a_block_a_row(screen: Screen) -> None:
    wide, narrow = screen(80, letters), screen(40, letters)
    assert wide[0].split() == ["letter", "reason", "kind", "order", "age", "error"]
    assert wide[1].startswith(f"{LETTER}  permanent  render_tickets   4471  11.7 s  ")
    assert narrow[:5] == [
        f"letter  {LETTER}", "reason  permanent", "kind    render_tickets", "order   4471", "age     11.7 s",
    ]  # fmt: skip
    assert narrow.count("") == 1
    assert narrow[narrow.index("") + 1] == f"letter  {LETTER}"


def test_one_long_word_does_not_make_blocks_of_a_table(screen: Screen) -> None:
    def make() -> None:
        made = table("letter", "error")
        made.add_row(LETTER, safe("x" * 200))
        show(made)

    assert screen(60, make)[0].split() == ["letter", "error"]


def test_empty_tables_and_cells_are_no_trouble(screen: Screen) -> None:
    def make() -> None:
        made = table("a", "b" * 20, "c" * 20)
        show(made)
        made.add_row(Text(), Text("x"), "")
        made.add_row(Text("y"), "", "z")
        show(made)

    assert screen(40, make) == [f"{'b' * 20}  x", "", f"a{' ' * 21}y", f"{'c' * 20}  z"]


def test_the_report_of_a_fault_run_counts_in_words_that_fit() -> None:
    text = "\n".join(lines_of(REPORT))
    assert not re.search(r"\b1 (workers|kills|slots|rows|outbox rows|entries|steps|passes|files|writes)\b", text)
    many: dict[str, Any] = {"workers": 2, "slots": 4, "held_at_kills": 2, "unmeasured": 0, "recoveries": (1.0, 2.0)}
    said = "\n".join(lines_of(attrs.evolve(REPORT, **many)))
    for words in ("2 workers with 4 slots each", "2 entries held at kills; 0 kills could not", "of 2 kills"):
        assert words in said
