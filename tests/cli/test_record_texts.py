"""``record`` with any text that an order can have: it is written, read again, and can be placed again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.cli import record_made
from stagedoor.cli.invented import new_inventor
from stagedoor.cli.recording import Kinds, RawEntry, Recorded, record
from stagedoor.errors import ConfigurationError
from stagedoor.order import NewOrder, Order
from stagedoor.orders import OrderBook, format_line
from stagedoor.replay import FixtureError, load_fixture
from stagedoor.replay.fixture import AddEntry, Refund
from tests.broker.harness import job
from tests.support.filled import filled

LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
ODD = LINE_ENDS + '\t\x01\x1b\x7f\xa0\u200b\u200f\u202e\ufeff\ufffe\ufffd"\\#{}é李७🎫\U000e0041\U0010ffff'
FIXED = {"locale": "de-DE", "currency": "EUR", "event.tz": "Europe/Berlin"}
"""Texts that are not free."""

TEXTS = st.text(
    st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=100
)
"""As long as the shortest text of an order may be."""
KINDS = Kinds(handlers=frozenset(("render_tickets", "refund_order")), flows=frozenset())


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrderBook]:
    folder = tmp_path_factory.mktemp("book")
    with OrderBook.open(f"sqlite:///{folder}/orders.db", tickets_dir=folder / "tickets") as opened:
        yield opened


def recorded(orders: list[Order], raw: list[RawEntry]) -> Recorded:
    inventor = new_inventor(b"k", KINDS.all)
    return record(orders, [], raw, inventor=inventor, kinds=KINDS, about="Any text.")


@st.composite
def data(draw: st.DrawFn) -> dict[str, Any]:
    """An order in which every free text is any text."""

    def text_for(path: str) -> str:
        if path in FIXED:
            return FIXED[path]
        return draw(TEXTS.filter(str.strip)) if path == "event.name" else draw(TEXTS)

    return filled(NewOrder, text_for)


@given(data(), st.lists(st.tuples(TEXTS, TEXTS), max_size=3))
def test_every_text_that_an_order_may_have_is_recorded_and_can_be_placed(
    book: OrderBook, tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any], extra: list[tuple[str, str]]
) -> None:
    placed = book.place(data)
    fields = (*job("render_tickets"), *((name.encode(), value.encode()) for name, value in extra))
    made = recorded([placed], [RawEntry(entry_id="1-1", fields=fields)])
    folder = tmp_path_factory.mktemp("recorded") / "case"
    record_made.write_fixture(folder, made)
    fixture = load_fixture(folder)
    assert [format_line(order) for order in fixture.orders] == made.orders.split("\n")[:-1]
    [step] = fixture.steps
    assert isinstance(step.what, AddEntry)
    assert [len(value) for _, value in step.what.fields][5:] == [len(value) for _, value in fields][5:]
    book.place_many([attrs.evolve(order, order_id=None) for order in fixture.orders])


def test_a_line_of_json_ends_at_a_newline_and_nowhere_else(tmp_path: Path) -> None:
    order = filled(NewOrder, lambda path: FIXED.get(path, f"a{ODD}b")) | {"order_id": 7}
    step = {"entry": {"kind": f"a{ODD}b"}}
    expected = {"orders": {"7": {"status": "placed", "valid": [1]}}, "dead": [{"line": 2, "reason": "malformed"}]}
    line_of_nothing = " \t"
    (tmp_path / "orders.jsonl").write_bytes((json.dumps(order, ensure_ascii=False) + "\r\n").encode())
    entries = f"{line_of_nothing}\n{json.dumps(step, ensure_ascii=False)}\n" + '{"refund":\r7}\r\n'
    (tmp_path / "entries.jsonl").write_bytes(entries.encode())
    (tmp_path / "expected.json").write_bytes(json.dumps(expected).encode())
    fixture = load_fixture(tmp_path)
    assert fixture.orders[0].event.name == f"a{ODD}b"
    [read, refund] = fixture.steps
    assert (refund.line, refund.what) == (3, Refund(7))
    assert isinstance(read.what, AddEntry)
    assert (read.line, read.what.fields) == (2, ((b"kind", f"a{ODD}b".encode()),))


@pytest.mark.parametrize("line", ["\u2028", "\x0c", "\x85"])
def test_a_line_of_something_that_json_does_not_know_is_not_blank(tmp_path: Path, line: str) -> None:
    (tmp_path / "entries.jsonl").write_bytes(f"{line}\n".encode())
    with pytest.raises(FixtureError, match=r"entries\.jsonl:1: not JSON"):
        load_fixture(tmp_path)


def test_long_values_and_bytes_are_read_as_they_were_written(tmp_path: Path) -> None:
    values = (b"y" * 2001, b"y" * 1_500_000, b"\xff" * 2001, b"")
    fields = tuple((b"f%d" % number, value) for number, value in enumerate(values))
    record_made.write_fixture(tmp_path / "case", recorded([], [RawEntry(entry_id="1-1", fields=(*job(), *fields))]))
    fixture = load_fixture(tmp_path / "case")
    [step] = fixture.steps
    assert isinstance(step.what, AddEntry)
    assert [len(value) for _, value in step.what.fields[5:]] == [2001, 1_000_000, 2001, 0]
    assert step.what.fields[7][1] == b"\xff" * 2001
    assert fixture.expected.dead[0].reason == "malformed"


# -- all or nothing -----------------------------------------------------------------------------

MADE = Recorded(orders="", entries="", expected="{}\n", order_ids={})


@pytest.mark.parametrize("name", ["case", "new/deep/case", "empty"])
def test_a_recording_that_fails_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    bad = attrs.evolve(MADE, entries="{\n")
    with pytest.raises(ConfigurationError) as caught:
        record_made.write_fixture(tmp_path / name, bad)
    assert str(tmp_path / name / "entries.jsonl:1: not JSON") in caught.value.problems[0]
    assert "nothing of it is left" in caught.value.problems[-1]
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]
    record_made.write_fixture(tmp_path / name, MADE)
    assert {path.name for path in (tmp_path / name).iterdir()} == {"orders.jsonl", "entries.jsonl", "expected.json"}


def test_a_folder_that_cannot_be_filled_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def fails(path: Path, target: Path) -> Path:
        if target.name == "expected.json":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(ConfigurationError, match="No space left on device"):
        record_made.write_fixture(tmp_path, MADE)
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"file/case: cannot be written"):
        record_made.write_fixture(tmp_path / "file" / "case", MADE)


def test_others_may_read_a_recording_as_they_may_any_folder(tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    record_made.write_fixture(tmp_path / "case", MADE)
    assert (tmp_path / "case").stat().st_mode == (tmp_path / "usual").stat().st_mode
