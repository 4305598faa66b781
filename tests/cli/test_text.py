"""Text from elsewhere stays on its line, and lengths of time read as people say them."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from stagedoor.cli.output import hanging
from stagedoor.cli.text import counted, printable, span, unknown_kinds


@pytest.mark.parametrize(
    "text,shown",
    [
        ("Zoë 東京 \u05d0", "Zoë 東京 \u05d0"),
        ("a\nb", r"a\nb"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\x85b", r"a\x85b"),
        ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
        ("a\u202eb", r"a\u202eb"),
        ("a\u00a0b", r"a\xa0b"),
        ("a\ud800b", r"a\ud800b"),
        ("a\x00b", r"a\x00b"),
    ],
)
def test_what_is_not_printable_is_written_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()


def test_a_long_text_is_cut_and_says_so() -> None:
    assert printable("x" * 1000, 10) == "x" * 9 + "…"
    assert printable("x" * 10, 10) == "x" * 10


@pytest.mark.parametrize(
    "seconds,said",
    [
        (None, ""),
        (0.00042, "420 µs"),
        (0.0614, "61 ms"),
        (4.21, "4.2 s"),
        (300, "5 min"),
        (7300, "2 h"),
        (400_000, "5 d"),
        (8.64e9, "more than 100,000 d"),
        (1e300, "more than 100,000 d"),
        (float("inf"), "more than 100,000 d"),
    ],
)
def test_a_length_of_time_is_said_in_its_unit(seconds: float | None, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(
    "count,words,said",
    [
        (0, ("order",), "0 orders"),
        (1, ("order",), "1 order"),
        (1200, ("order",), "1,200 orders"),
        (1, ("entry waits", "entries wait"), "1 entry waits"),
        (2, ("entry waits", "entries wait"), "2 entries wait"),
        ("1", ("time",), "1 time"),
        ("?", ("time",), "? times"),
    ],
)
def test_a_count_has_the_words_that_fit_it(count: int | str, words: tuple[str, ...], said: str) -> None:
    assert counted(count, *words) == said


@pytest.mark.parametrize(
    "kinds,looked_at,said",
    [
        ({}, None, []),
        ({"a": 1}, None, ["1 job waits for a worker that knows a"]),
        ({"": 2}, None, ["2 jobs wait for a worker that knows its kind"]),
        ({"a\x1b": 1}, None, [r"1 job waits for a worker that knows a\x1b"]),
        (
            {"d": 1, "c": 1, "b": 9, "a": 1},
            None,
            [
                "9 jobs wait for a worker that knows b",
                "1 job waits for a worker that knows a",
                "1 job waits for a worker that knows c",
                "1 job of 1 more kind waits for workers that know them",
            ],
        ),
        (
            {f"k{number:05}": 2 for number in range(500)},
            1000,
            [
                "2 jobs wait for a worker that knows k00000, among the first 1,000 delayed jobs",
                "2 jobs wait for a worker that knows k00001, among the first 1,000 delayed jobs",
                "2 jobs wait for a worker that knows k00002, among the first 1,000 delayed jobs",
                "994 jobs of 497 more kinds wait for workers that know them, among the first 1,000 delayed jobs",
            ],
        ),
    ],
)
def test_kinds_that_nobody_knows_are_few_lines(kinds: dict[str, int], looked_at: int | None, said: list[str]) -> None:
    assert list(unknown_kinds(kinds, looked_at=looked_at)) == said


def test_a_long_line_goes_on_below_its_beginning() -> None:
    console = Console(width=14, file=io.StringIO())
    with console.capture() as captured:
        console.print(hanging(Text("one two three four"), 4), hanging(Text("five six seven"), 2, first="x"), sep="\n")
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert lines == ["    one two", "    three four", "x five six", "  seven"]
