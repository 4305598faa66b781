"""The format of fixtures: what is read, and how mistakes are named."""

import json
from pathlib import Path
from typing import Any

import pytest

from stagedoor.orders import RefundPosition, Rename, Reseat, RotateToken
from stagedoor.replay import FixtureError, find_fixtures, load_fixture
from stagedoor.replay.fixture import (
    AddEntry,
    ChangeOrder,
    Crash,
    ExpectedLetter,
    Meanwhile,
    Refund,
    Reissue,
    Rest,
    Trim,
)

EVENT = {"name": "Hamlet", "venue": "Globe", "starts_at": "2026-07-01T18:00:00Z", "tz": "Europe/London"}
POSITION = {"id": 1, "holder": "Zoë", "category": "Yard", "amount_minor": 1000}
ORDER = {"order_id": 7, "event": EVENT, "locale": "en-GB", "currency": "GBP", "buyer": "Zoë", "positions": [POSITION]}
EXPECTED: dict[str, Any] = {"orders": {"7": {"status": "placed", "valid": [1]}}}
ENTRY = {"entry": {"kind": "render_tickets", "order_id": "7"}}


def write(folder: Path, *steps: object, orders: list[Any] | None = None, expected: Any = EXPECTED) -> Path:
    orders = [ORDER] if orders is None else orders
    (folder / "orders.jsonl").write_text("".join(f"{json.dumps(order)}\n" for order in orders), "utf-8")
    lines = [step if isinstance(step, str) else json.dumps(step) for step in steps]
    (folder / "entries.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (folder / "expected.json").write_text(expected if isinstance(expected, str) else json.dumps(expected), "utf-8")
    return folder


def test_every_kind_of_step_is_read_with_its_line(tmp_path: Path) -> None:
    change = {"change": 7, "rename": {"1": "Ann"}, "reseat": {"1": None}, "rotate": [1], "refund_positions": [1]}
    hooks = {
        "at_start": [{"crash": 2}],
        "at_render": [{"refund": 7}, {"trim": "this"}],
        "at_end": [{"reissue": 7}, ENTRY],
    }
    fixture = load_fixture(
        write(tmp_path, "# a word about it", {**ENTRY, **hooks}, "", {"rest": True}, change, {"refund": 7})
    )
    entry, rest, changed, refund = (step.what for step in fixture.steps)
    assert [step.line for step in fixture.steps] == [2, 4, 5, 6]
    assert entry == AddEntry(
        fields=((b"kind", b"render_tickets"), (b"order_id", b"7")),
        at_start=(Crash(2),),
        at_render=(Refund(7), Trim()),
        at_end=(Reissue(7), Meanwhile(((b"kind", b"render_tickets"), (b"order_id", b"7")))),
    )
    assert rest == Rest()
    assert changed == ChangeOrder(7, (Rename(1, "Ann"), Reseat(1, None), RotateToken(1), RefundPosition(1)))
    assert refund == Refund(7)


def test_raw_fields_may_be_any_bytes_and_there_twice(tmp_path: Path) -> None:
    pairs = [["kind", {"base64": "//4="}], ["kind", {"repeat": "9", "times": 3}], [{"base64": "AA=="}, ""]]
    fixture = load_fixture(write(tmp_path, {"entry": pairs}))
    (step,) = fixture.steps
    assert isinstance(step.what, AddEntry)
    assert step.what.fields == ((b"kind", b"\xff\xfe"), (b"kind", b"999"), (b"\x00", b""))


def test_what_is_expected_is_read(tmp_path: Path) -> None:
    expected = {
        "about": "a case",
        **EXPECTED,
        "dead": [{"line": 2, "reason": "poison"}, {"line": 1, "reason": "malformed", "error": "order_id"}],
        "delayed": [2],
    }
    fixture = load_fixture(write(tmp_path, ENTRY, ENTRY, expected=expected))
    assert fixture.expected.about == "a case"
    assert fixture.expected.dead == (
        ExpectedLetter(line=1, reason="malformed", error="order_id"),
        ExpectedLetter(line=2, reason="poison"),
    )
    assert fixture.expected.delayed == (2,)


@pytest.mark.parametrize(
    "step,said",
    [
        ("{", r"entries\.jsonl:1: not JSON at column"),
        ("[]", r"entries\.jsonl:1: it: expected an object"),
        ({"pay": 7}, r"expected one of entry, refund"),
        ({"refund": "7"}, r"refund: expected a whole number from 1"),
        ({"refund": True}, r"refund: expected a whole number"),
        ({"refund": 7, "reissue": 7}, r"unknown: 'reissue'"),
        ({"change": 7}, r"say what changes"),
        ({"change": 7, "rename": {"x": "Ann"}}, r"expected the id of a position, found 'x'"),
        ({"change": 7, "reseat": {"1": {"aisle": "4"}}}, r"unknown: 'aisle'"),
        ({"entry": {}}, r"entry: expected an object or a list"),
        ({"entry": [["kind"]]}, r"entry: expected an object or a list"),
        ({"entry": {"kind": 4}}, r"a name or value is a text"),
        ({"entry": {"kind": {"base64": "%"}}}, r"base64: "),
        ({"entry": {"kind": {"repeat": "x", "times": 10**9}}}, r"times: expected a whole number from 1 to 1000000"),
        ({**ENTRY, "at_dawn": []}, r"unknown: 'at_dawn'"),
        ({**ENTRY, "at_end": []}, r"a hook is a list of steps"),
        ({**ENTRY, "at_end": [{"rest": True}]}, r"expected one of entry, refund"),
        ({**ENTRY, "at_end": [{"trim": "that"}]}, r'trim: expected "this"'),
        ({**ENTRY, "at_end": [{"crash": 0}]}, r"crash: expected a whole number from 1 to 100"),
        ({"trim": "this"}, r"trim, crash in a hook"),
    ],
)
def test_a_bad_step_is_named_with_file_and_line(tmp_path: Path, step: Any, said: str) -> None:
    with pytest.raises(FixtureError, match=said):
        load_fixture(write(tmp_path, step))


@pytest.mark.parametrize(
    "expected,said",
    [
        ("", r"expected\.json: not JSON"),
        ({}, r"expected one for each placed order; missing: \['7'\]"),
        ({"orders": {"8": {"status": "placed", "valid": []}}}, r"not placed: \[8\]"),
        ({"orders": {"7": {"status": "paid", "valid": []}}}, r"status: expected placed or refunded, found 'paid'"),
        ({"orders": {"7": {"status": "placed"}}}, r"valid: expected a list, found None"),
        ({"orders": {"7": {"status": "placed", "valid": [0]}}}, r"valid: expected a whole number from 1"),
        ({**EXPECTED, "dead": [{"line": 1, "reason": "bored"}]}, r"reason: expected one of malformed, permanent"),
        ({**EXPECTED, "dead": [{"line": 9, "reason": "poison"}]}, r"there is no entry in line 9"),
        ({**EXPECTED, "delayed": [2]}, r"there is no entry in line 2"),
        ({**EXPECTED, "alive": []}, r"unknown: 'alive'"),
    ],
)
def test_a_bad_expectation_is_named(tmp_path: Path, expected: Any, said: str) -> None:
    with pytest.raises(FixtureError, match=said):
        load_fixture(write(tmp_path, ENTRY, {"refund": 7}, expected=expected))


def test_a_bad_order_is_named_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(FixtureError, match=r"orders\.jsonl:2: .*currency"):
        load_fixture(write(tmp_path, ENTRY, orders=[ORDER, {**ORDER, "order_id": 8, "currency": "euro"}]))
    with pytest.raises(FixtureError, match=r"orders\.jsonl:1: order_id: an order of a fixture needs one"):
        load_fixture(write(tmp_path, ENTRY, orders=[{**ORDER, "order_id": None}]))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (write(tmp_path, ENTRY) / "orders.jsonl").unlink()
    with pytest.raises(FixtureError, match=r"orders\.jsonl: cannot be read"):
        load_fixture(tmp_path)


def test_a_folder_stands_for_the_fixtures_in_it_each_once(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, ENTRY)
    (tmp_path / "notes").mkdir()
    assert find_fixtures([tmp_path / "b", tmp_path]) == [tmp_path / "b", tmp_path / "a"]


def test_every_path_without_a_fixture_is_named(tmp_path: Path) -> None:
    with pytest.raises(FixtureError) as caught:
        find_fixtures([tmp_path, tmp_path / "gone"])
    assert len(caught.value.problems) == 2
