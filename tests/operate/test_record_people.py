"""``record`` with one person in every field that can hold a text: nothing of her is in the files, and they replay."""

import base64
import json
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagedoor.cli import record_made
from stagedoor.core.codec import Fields
from stagedoor.core.job import FIELD_NAMES
from stagedoor.core.outcome import Dead, Reason, RetryLater
from stagedoor.order import NewOrder, Seat
from stagedoor.orders import OrderBook, Rename, Reseat
from tests.broker.harness import RedisHarness, job, settled
from tests.operate.conftest import Run
from tests.operate.test_explain import publish
from tests.support.filled import filled

MARKER = "Jane Doe 0170 555 0100"
PARTS = ["jane", "doe", "0170", "555", "0100"]
WORD = "Jane-Doe.0170_555_0100"
"""The same where only letters, digits and three marks may stand."""

SHAPED = {"locale": "en-Jane-Doe-0170-555-0100", "currency": "EUR", "event.tz": "Europe/Berlin"}
"""Texts that are not free; a locale may be anything behind its language."""


def everywhere(order_id: int) -> Iterator[Fields]:
    """Entries with the marker in each field that means something, and in all that may be added."""
    order = str(order_id)
    for name in (*FIELD_NAMES, "requeued"):
        for text in (MARKER, WORD, "1705550100"):
            one = (name.encode(), text.encode())
            twice = (*job("render_tickets", order_id=order, outbox_id="4170"), one)
            yield from (twice, tuple(dict(twice).items()))
    # Under ids of rows that the shop does not have: what stands for a row is told by the row.
    yield job(WORD, order_id=order, outbox_id="4171")
    yield job("fulfil-order", order_id=order, outbox_id="4171", call_id=WORD)
    yield job("refund_order", order_id="1705550100", outbox_id="4171")
    yield (*job("render_tickets", order_id=order, outbox_id="4171"), (MARKER.encode(), MARKER.encode()))
    yield (*job("render_tickets", order_id=order, outbox_id="4171"), (b"note", MARKER.encode() * 200))
    for encoding in ("utf-16", "utf-16-be", "utf-32", "cp500"):
        yield (*job("render_tickets", order_id=order), (b"note", f"é{MARKER}".encode(encoding)))
    yield (*job("render_tickets", order_id=order), (MARKER.encode() + b"\xff", MARKER.encode() + b"\xff"))
    yield (*job("render_tickets", order_id=order), *((b"%d" % number, MARKER.encode()) for number in range(70)))


def evening(real: RedisHarness, book: OrderBook) -> None:
    """Orders, changes, rows and entries, delayed ones and dead letters, all of them hers."""
    data = filled(NewOrder, lambda path: SHAPED.get(path, MARKER))
    own = {"request_id": MARKER, "trace": MARKER}
    sold, refunded = (book.place(data, **own) for _ in range(2))
    book.change(sold.order_id, Rename(1, f"{MARKER}s"), Reseat(1, Seat(zone=None, row=MARKER, number="0100")), **own)
    book.refund(refunded.order_id, **own)
    with book._database.write() as connection:
        connection.exec_driver_sql(
            "INSERT INTO outbox (kind, order_id, request_id, trace, created_at) VALUES (?, ?, ?, ?, 1)",
            (WORD, sold.order_id, MARKER, MARKER),
        )
    publish(real, book)
    for fields in everywhere(sold.order_id):
        real.add(fields)
    worker = real.worker()
    claimed = worker.read(12).claimed
    delayed = [settled(one, RetryLater(60, 3, MARKER)) for one in claimed[::2]]
    worker.settle(1, delayed + [settled(one, Dead(Reason.PERMANENT, MARKER)) for one in claimed[1::2]])


def everything_in(folder: Path) -> str:
    """All that the files say, also in base64 and in encodings of two or four bytes a letter."""
    text = "".join(path.read_text("utf-8") for path in folder.iterdir())
    for line in (folder / "entries.jsonl").read_text("utf-8").split("\n")[:-1]:
        entry = json.loads(line).get("entry", {})
        for part in [part for pair in (entry.items() if isinstance(entry, dict) else entry) for part in pair]:
            raw = base64.b64decode(part["base64"]) if isinstance(part, dict) and "base64" in part else b""
            text += raw.decode("ascii", "ignore").replace("\0", "") + raw.decode("cp500")
    return text.replace("\\u0000", "").casefold()


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


@pytest.fixture(autouse=True)
def fixed_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key drawn anew, three letters would once in a while become three that stand in a name."""
    monkeypatch.setattr(record_made, "secrets", types.SimpleNamespace(token_bytes=lambda count: b"k" * count))


@pytest.mark.redis
def test_nobody_is_in_any_field_of_a_recording_and_it_replays_as_it_says(
    real: RedisHarness, book: OrderBook, command: Run, redis_url: str
) -> None:
    evening(real, book)
    said = command("record", "case", "--last", "1000", "--about", "One person.", "--json")
    assert said.code == 0, said.err
    assert said.data["entries"] >= len([*everywhere(1)])
    found = everything_in(Path("case"))
    assert [part for part in PARTS if part in found] == []
    played = command("replay", "case", "--redis-url", redis_url, "--shuffle-seeds", "1")
    assert played.code == 0, played.out + played.err
