"""``record``: a fixture that replays as it should, and in which nobody can be recognised."""

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagedoor.cli import recording
from stagedoor.core.outcome import Dead, Reason, RetryLater
from stagedoor.order import NewOrder
from stagedoor.orders import OrderBook, RefundPosition, Rename, RotateToken
from stagedoor.replay.fixture import load_fixture
from tests.broker.harness import RedisHarness, job, settled
from tests.cli.test_order import line
from tests.operate.conftest import Run
from tests.operate.test_explain import publish
from tests.support.filled import filled

PEOPLE = ["Ana Lúcia", "Žofie", "李小龍"]
SECRETS = [*PEOPLE, "Parkett", "Bernhard", "Wembley", "Hochzeit", "RE-2026-77", "req-4f2a", "00-trace-9"]


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


def personal(**changes: Any) -> dict[str, Any]:
    position = {"category": "Parkett", "amount_minor": 4500, "seat": {"row": "C", "number": "88"}}
    return line(
        buyer="Bernhard",
        receipt_number="RE-2026-77",
        event={
            "name": "Hochzeit Ana Lúcia",
            "venue": "Wembley",
            "starts_at": "2026-07-01T18:00:00Z",
            "tz": "Europe/Berlin",
        },
        positions=[{"id": number, "holder": name, **position} for number, name in enumerate(PEOPLE, start=1)],
        **changes,
    )


def live(real: RedisHarness, book: OrderBook) -> list[int]:
    """An evening: changed, refunded, refunded in part, delayed, dead, malformed, unknown; returns the orders."""
    orders = [book.place(personal(), request_id="req-4f2a", trace="00-trace-9") for _ in range(4)]
    ids = [order.order_id for order in orders]
    book.change(ids[1], Rename(1, "Žofie"), RotateToken(2), request_id="req-4f2a")
    book.refund(ids[2])
    book.change(ids[3], RefundPosition(2), RefundPosition(3))
    publish(real, book)
    for bad in (
        (*job("render_tickets", order_id="-7"), (b"holder", "Ana Lúcia".encode())),
        ((b"kind", b"render_tickets"), (b"kind", b"Bernhard")),
        job("render_tickets", order_id="9223372036854775808"),
        job("render_tickets", order_id="4471", outbox_id="78", note="Bernhard"),
        job("send_mail", order_id=str(ids[0]), outbox_id="77"),
        (*job(), (b"note", b"\xffBernhard")),
    ):
        real.add(bad)
    worker = real.worker()
    claimed = worker.read(4).claimed
    worker.settle(
        1,
        [
            settled(claimed[0]),
            settled(claimed[1], RetryLater(60, 3, "x")),
            settled(claimed[2], Dead(Reason.ATTEMPTS, "x")),
        ],
    )
    return ids


def files(folder: Path) -> tuple[list[Any], list[Any], Any]:
    orders, entries = (
        [json.loads(row) for row in (folder / name).read_text().splitlines()]
        for name in ("orders.jsonl", "entries.jsonl")
    )
    return orders, entries, json.loads((folder / "expected.json").read_text())


# -- the whole way ---------------------------------------------------------------------------


@pytest.mark.redis
def test_a_recording_replays_as_it_says_in_every_order(
    real: RedisHarness, book: OrderBook, command: Run, redis_url: str, tmp_path: Path
) -> None:
    live(real, book)
    said = command("record", "case", "--json")
    assert (said.code, said.data["orders"]) == (0, 4)
    orders, entries, expected = files(tmp_path / "case")
    assert [order["order_id"] for order in orders] == [1001, 1002, 1003, 1004]
    assert expected["orders"]["1001"] == {"status": "placed", "valid": [1, 2, 3]}
    assert expected["orders"]["1003"] == {"status": "refunded", "valid": []}
    assert expected["orders"]["1004"] == {"status": "placed", "valid": [1]}
    assert sorted(one["reason"] for one in expected["dead"]) == [
        "malformed",
        "malformed",
        "malformed",
        "malformed",
        "permanent",
    ]
    assert len(expected["delayed"]) == 1
    assert {"reissue": 1002} in entries
    assert {"refund": 1003} in entries
    assert {"change": 1004, "refund_positions": [2, 3]} in entries
    played = command("replay", "case", "--redis-url", redis_url, "--shuffle-seeds", "1")
    assert played.code == 0, played.out + played.err


@pytest.mark.redis
def test_nobody_can_be_recognised(real: RedisHarness, book: OrderBook, command: Run, tmp_path: Path) -> None:
    ids = live(real, book)
    tokens = [one.token for order_id in ids for one in book.get(order_id).positions]
    command("record", "case")
    text = "".join(path.read_text() for path in (tmp_path / "case").iterdir())
    for secret in (*SECRETS, *tokens, "Ana", "Lúcia"):
        assert secret not in text
        assert json.dumps(secret)[1:-1] not in text


@pytest.mark.redis
def test_what_a_layout_and_a_parser_trip_over_stays(
    real: RedisHarness, book: OrderBook, command: Run, tmp_path: Path
) -> None:
    live(real, book)
    command("record", "case")
    [order, *_], entries, _ = files(tmp_path / "case")
    name = order["event"]["name"]
    assert [len(word) for word in name.split()] == [8, 3, 5]
    assert all("CJK" in unicodedata.name(char) for char in order["positions"][2]["holder"])
    assert (len(order["positions"][0]["category"]), order["currency"]) == (len("Parkett"), "EUR")
    assert order["event"]["starts_at"].startswith("2026-07-01T18:00:00")
    raw = [step["entry"] for step in entries if "entry" in step]
    assert any(isinstance(entry, list) and [name for name, _ in entry] == ["kind", "kind"] for entry in raw)
    assert any(isinstance(entry, dict) and int(entry.get("order_id", "0")) >= 2**63 for entry in raw)
    assert any(isinstance(entry, dict) and entry.get("order_id", "").startswith("-") for entry in raw)
    holders = {row["positions"][0]["holder"] for row in files(tmp_path / "case")[0]}
    assert len(holders) == 2, "the same name becomes the same invention, another one another"


@pytest.mark.redis
def test_texts_with_every_end_of_a_line_are_recorded_and_replayed(
    real: RedisHarness, book: OrderBook, command: Run, redis_url: str, tmp_path: Path
) -> None:
    odd = "a\nb\r\vc\fd\x1ce\x1df\x1eg\x85h\u2028i\u2029j"
    fixed = {"locale": "de-DE", "currency": "EUR", "event.tz": "Europe/Berlin"}
    order = book.place(filled(NewOrder, lambda path: fixed.get(path, odd)))
    publish(real, book)
    real.add((*job("render_tickets", outbox_id="78"), (b"note", odd.encode())))
    said = command("record", "case")
    assert said.code == 0, said.err
    [written] = load_fixture(tmp_path / "case").orders
    assert [char for char in written.event.terms if not char.isalpha()] == [char for char in odd if not char.isalpha()]
    assert written.positions[0].category != order.positions[0].category
    played = command("replay", "case", "--redis-url", redis_url, "--shuffle-seeds", "0")
    assert played.code == 0, played.out + played.err


@pytest.mark.redis
def test_a_recording_that_failed_can_be_tried_again_under_its_name(
    real: RedisHarness, book: OrderBook, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(real, book)
    before = {*tmp_path.iterdir()}
    with monkeypatch.context() as patched:
        patched.setattr(recording, "format_line", lambda order: "{")
        said = command("record", "new/case")
    assert (said.code, "orders.jsonl:1: " in said.err) == (2, True)
    assert {*tmp_path.iterdir()} == before
    assert command("record", "new/case").code == 0


@pytest.mark.redis
def test_single_orders_are_recorded_with_their_entries(
    real: RedisHarness, book: OrderBook, command: Run, tmp_path: Path
) -> None:
    ids = live(real, book)
    said = command("record", "case", "--order", str(ids[3]), "--about", "Two of three refunded.", "--json")
    assert said.data["order_ids"] == {str(ids[3]): 1001}
    _, entries, expected = files(tmp_path / "case")
    assert expected == {"about": "Two of three refunded.", "orders": {"1001": {"status": "placed", "valid": [1]}}}
    assert [next(iter(step)) for step in entries] == ["entry", "change", "entry"]
    rows = [step["entry"]["outbox_id"] for step in entries if "entry" in step]
    assert rows == ["1", "2"], "numbered anew, as orders are"


@pytest.mark.redis
def test_what_the_outbox_has_forgotten_is_told_before_the_rest(
    real: RedisHarness, book: OrderBook, command: Run, tmp_path: Path
) -> None:
    order = book.place(personal())
    book.refund(order.order_id)
    publish(real, book)
    with book._database.write() as connection:
        connection.exec_driver_sql("DELETE FROM outbox WHERE kind = 'refund_order'")
    command("record", "case", "--order", str(order.order_id))
    steps = files(tmp_path / "case")[1]
    assert steps[0] == {"refund": 1001}
    assert load_fixture(tmp_path / "case").expected.orders[1001].valid == ()


@pytest.mark.redis
def test_nothing_is_overwritten_and_nothing_made_of_nothing(real: RedisHarness, command: Run, tmp_path: Path) -> None:
    assert "no order book" in command("record", "case").err
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets"):
        pass
    assert command("record", "case").code == 1
    assert not (tmp_path / "case").exists()
    assert command("record", "case", "--order", "7").code == 1
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "orders.jsonl").write_text("mine")
    assert command("record", "kept").code == 2
    assert (tmp_path / "kept" / "orders.jsonl").read_text() == "mine"
