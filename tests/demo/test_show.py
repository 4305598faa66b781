"""What a demo shows: figures for programs, and pictures and words for people."""

import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from stagedoor.demo.report import Ending, Report
from stagedoor.demo.show import PlainScreen, View, WorkerView, line_of, picture_of, print_report
from stagedoor.rehearsal.calls import CallsChecked
from stagedoor.rehearsal.check import Checked

KEYS = [
    "orders",
    "refunded",
    "tickets_valid",
    "tickets_void",
    "pdf_files",
    "lost",
    "wrong",
    "duplicate_runs",
    "recovery_s",
    "seconds",
    "tickets_per_second",
    "gil",
    "slots",
]

CHECKED = Checked(
    lost=0,
    wrong=0,
    pdf_files=512,
    tickets_valid=512,
    tickets_void=88,
    refunded=60,
    has_read_codes=True,
    problems=(),
)
REPORT = Report(orders=300, checked=CHECKED, duplicate_runs=7, recovery_s=10.1234, seconds=12.0, gil=False, slots=8)
ENDING = Ending(
    folder=Path("/d"),
    tickets_dir=Path("/d/tickets"),
    logs_dir=Path("/d/logs"),
    orders_url="sqlite:////d/orders.db",
    example=Path("/d/tickets/a" * 20),
    example_of="山田 太郎, 能",
    example_id=2,
    workers=2,
    killed="worker-2",
    killed_held=8,
    killed_running=7,
)
VIEW = View(
    phase="On sale",
    orders=300,
    placed=120,
    rows_written=140,
    rows_published=138,
    issued=100,
    to_refund=60,
    refunded=12,
    tickets=210,
    tickets_per_second=41.6,
    workers=(
        WorkerView(name="worker-1", slots=8, running=6, starts=70),
        WorkerView(name="worker-2", slots=8, running=8, starts=31, is_killed=True),
    ),
)


def printed(what: Any, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(what)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def report_text(report: Report, ending: Ending = ENDING) -> str:
    console = Console(file=io.StringIO(), width=80)
    print_report(console, report, ending)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_the_object_for_programs_has_exactly_these_keys() -> None:
    data = json.loads(json.dumps(REPORT.as_data()))
    assert list(data) == KEYS
    assert data["tickets_per_second"] == 50.0
    assert data["recovery_s"] == 10.12
    assert attrs.evolve(REPORT, recovery_s=None).as_data()["recovery_s"] is None


def test_the_calls_of_a_demo_with_flows_have_a_line_for_people_alone() -> None:
    calls = CallsChecked(
        done=311,
        cancelled=0,
        parked=1,
        steps=2011,
        passes=320,
        by_flow={"fulfil-order": 312},
        problems=("wrong: call outbox-7 …",),
    )
    report = attrs.evolve(REPORT, calls=calls)
    assert list(report.as_data()) == KEYS
    text = " ".join(report_text(report).split())
    said = "calls 311 done, 1 parked, with 2011 steps in 320 passes; 1 are not as they should be"
    assert said in text
    assert "calls" not in report_text(REPORT)


def test_a_line_says_how_far_everything_is() -> None:
    assert line_of(VIEW) == (
        "On sale: placed 120/300, published 138/140, issued 100/300, refunded 12/60; 210 tickets, 42/s; "
        "worker-1 6/8, worker-2 killed"
    )
    assert line_of(attrs.evolve(VIEW, step="3 of 9 files opened")) == "On sale: 3 of 9 files opened"
    assert line_of(attrs.evolve(VIEW, placed=0)) == "On sale …"
    held = attrs.evolve(VIEW, workers=(attrs.evolve(VIEW.workers[0], running=21),))
    assert line_of(held).endswith("; worker-1 8/8 +13 ahead")
    assert line_of(attrs.evolve(VIEW, note="worker-2 was killed")).endswith("; worker-2 was killed")


def test_a_picture_has_bars_and_slots() -> None:
    picture = printed(picture_of(attrs.evolve(VIEW, note="worker-2 was killed while it held 8 entries")))
    assert "120 / 300" in picture
    assert "■■■■■■□□" in picture
    assert "6 of 8 slots" in picture
    assert "killed" in picture
    assert "while it held 8 entries" in picture


def test_a_worker_that_does_not_read_yet_is_starting() -> None:
    workers = (WorkerView(name="worker-1", slots=0, running=0, starts=0),)
    assert "starting" in printed(picture_of(attrs.evolve(VIEW, workers=workers)))


def test_a_screen_that_is_no_terminal_writes_a_line_when_something_new_begins() -> None:
    out = io.StringIO()
    with PlainScreen(Console(file=out, width=200)) as screen:
        screen.show(attrs.evolve(VIEW, placed=0))
        screen.show(attrs.evolve(VIEW, placed=0))
        screen.show(attrs.evolve(VIEW, phase="Coming to rest"))
        screen.show(attrs.evolve(VIEW, phase="Coming to rest", placed=121))
        screen.show(attrs.evolve(VIEW, phase="Coming to rest", note="killed"))
    assert [line.split(":")[0] for line in out.getvalue().splitlines()] == [
        "On sale …",
        "Coming to rest",
        "Coming to rest",
    ]


def test_a_good_report_says_so_and_where_everything_is() -> None:
    text = report_text(REPORT)
    assert "Nothing lost, nothing wrong." in text
    assert "10.1 s" in text
    assert str(ENDING.example) in text, "a path that is to be copied is neither wrapped nor cut"
    words = "-m stagedoor order show 2 --orders-url sqlite:////d/orders.db --tickets-dir /d/tickets\n"
    assert f"{shlex.quote(sys.executable)} {words}" in text, "it works as it is, whichever python the shell's is"


def test_the_extra_that_reads_qr_codes_is_named_with_its_brackets() -> None:
    without = attrs.evolve(REPORT, checked=attrs.evolve(CHECKED, has_read_codes=False))
    assert "with stagedoor[test] their" in " ".join(report_text(without).split())


def test_a_bad_report_names_the_first_problems_and_counts_the_rest() -> None:
    problems = tuple(f"lost: order {number}" for number in range(1, 31))
    bad = attrs.evolve(REPORT, checked=attrs.evolve(CHECKED, lost=30, problems=problems))
    text = report_text(bad)
    assert not bad.is_sound
    assert "Something is lost or wrong." in text
    assert "lost: order 20 " in text
    assert "lost: order 21" not in text
    assert "and 10 more" in text


def test_without_a_kill_there_is_no_word_of_a_recovery() -> None:
    text = report_text(attrs.evolve(REPORT, recovery_s=None), attrs.evolve(ENDING, killed=None))
    assert "recovery" not in text


def test_entries_that_nobody_took_over_are_not_passed_over() -> None:
    assert "never" in report_text(attrs.evolve(REPORT, recovery_s=None))
