"""``explain`` of whatever somebody may have written anywhere: nothing in it drives the terminal or forges a line."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from stagedoor.cli.app import run
from stagedoor.cli.output import print_json
from stagedoor.core.codec import pack
from stagedoor.core.entry import with_fields
from stagedoor.core.outcome import Dead, Reason
from stagedoor.orders import OrderBook, open_engine
from stagedoor.orders.schema import metadata
from tests.broker.flow_harness import calls_of, new_call
from tests.broker.harness import RedisHarness, job, settled
from tests.cli.test_order import line
from tests.operate.conftest import Run, Said
from tests.operate.test_explain_order import issue

pytestmark = pytest.mark.redis
EVIL = "x\x1b[31mx\nforged\u2028forged\x85forged\x9b2J\x7f\u202e"
BAD = set("\x1b\u2028\x85\x9b\x7f\u202e\r\t\0")
AT_WORK = {("orders", "status"), ("positions", "status"), ("tickets", "state"), ("book", "key"), ("book", "value")}
"""Columns that the database itself, or the book at its opening, checks."""


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


def texts() -> list[tuple[str, str]]:
    """Return every column with text of every table: what is there one day, too."""
    return [
        (table.name, column.name)
        for table in metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, sa.Text) and (table.name, column.name) not in AT_WORK
    ]


def is_tame(said: Said, *, lines: int | None = None) -> bool:
    everything = said.out + said.err
    assert not BAD & set(everything), everything
    assert "Traceback" not in said.err
    assert not any(one.strip().startswith("forged") for one in everything.splitlines())
    return lines is None or len(said.out.splitlines()) == lines


def ask_all(command: Run, *asked: str) -> str:
    """Ask in every way; returns what people were told."""
    told = []
    for one in asked:
        said = command("explain", *shlex.split(one))
        assert is_tame(said)
        told.append(said.out)
        told_json = command("explain", *shlex.split(one), "--json")
        assert is_tame(told_json)
        if told_json.out:
            assert len(told_json.out.splitlines()) == 1
            json.loads(told_json.out)
    return "".join(told)


def test_whatever_a_column_of_the_order_book_holds(
    real: RedisHarness, book: OrderBook, command: Run, tmp_path: Path
) -> None:
    """One column after the other, for a row that waits, one that is parked, and one that is published."""
    for _ in range(3):
        book.place(line())
    rows = [(row.outbox_id, f"{row.outbox_id}-0", row.outbox_id) for row in book.outbox.pending()]
    book.outbox.mark_published(rows[2:])
    book.outbox.park(2, "no")
    issue(book, 3)
    token = book.get(3).positions[0].token
    engine = open_engine(f"sqlite:///{tmp_path}/stagedoor.db")
    for table, column in texts():
        with engine.begin() as connection:
            # A token is there once.
            where, values = (" WHERE rowid = 3" if column == "token" else ""), {"evil": EVIL}
            kept = connection.execute(sa.text(f"SELECT rowid, {column} FROM {table}")).all()
            connection.execute(sa.text(f"UPDATE {table} SET {column} = :evil{where}"), values)
        ask_all(command, "1", "2 --as outbox", "3", token)
        with engine.begin() as connection:
            for rowid, value in kept:
                connection.execute(
                    sa.text(f"UPDATE {table} SET {column} = :value WHERE rowid = :rowid"),
                    {"value": value, "rowid": rowid},
                )
    engine.dispose()


def test_a_kind_with_an_escape_in_it_is_told_escaped(
    real: RedisHarness, book: OrderBook, command: Run, tmp_path: Path
) -> None:
    order = book.place(line())
    engine = open_engine(f"sqlite:///{tmp_path}/stagedoor.db")
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE outbox SET kind = :evil"), {"evil": EVIL})
    assert r"for a x\x1b[31mx\nforged" in ask_all(command, str(order.order_id), "1 --as outbox")
    book.outbox.mark_published([(1, "1-0", 1)])
    assert r"(x\x1b[31mx\nforged" in ask_all(command, str(order.order_id), "1 --as outbox")
    engine.dispose()


def test_whatever_an_entry_holds_wherever_it_is(real: RedisHarness, command: Run) -> None:
    """In every field, and as the name of one: unread, in hand, dead, and delayed."""
    names = [name.decode() for name, _ in job()] + ["attempt", "origin", "hops", "crashes", "requeued", "call_id", EVIL]
    for name in names:
        for place in ("unread", "held", "dead", "delayed", "homeless"):
            real.client.delete(*real.client.keys(f"{real.keys.namespace}*"), "x")
            worker, fields = real.worker("w"), with_fields(job(), {name: EVIL})
            entry_id = real.add(fields)
            held = worker.read(int(place != "unread")).claimed
            if held:
                real.client.hset(real.keys.crashes, f"1:{entry_id}", f"1 {EVIL}")
                real.client.hset(real.keys.worker("w"), mapping={"host": EVIL, "pid": EVIL, "slots": EVIL})
            if place == "dead":
                worker.settle(1, [settled(claimed, Dead(Reason.PERMANENT, EVIL)) for claimed in held])
            if place in {"delayed", "homeless"}:
                worker.settle(1, [settled(claimed) for claimed in held])
                real.put_delayed(f"1:{entry_id}", pack([b"1", *(part for pair in fields for part in pair)]))
            if place == "homeless":
                real.client.delete(real.keys.delayed)
            assert "nothing of it waits" not in ask_all(command, entry_id), (name, place)
            ask_all(command, "1", "1 --as outbox")


def test_whatever_a_call_holds(real: RedisHarness, command: Run) -> None:
    calls = calls_of(real)
    fields = (".flow", ".state", ".for", ".parked", ".why", ".error", ".outcome", ".queued", ".entry", ".due",
              ".created", ".epoch", ".request_id", ".trace", ".misfit", EVIL)  # fmt: skip
    for field in fields:
        for state in ("waiting", "parked", "failed"):
            real.client.delete(*real.client.keys(f"{real.keys.namespace}*"), "x")
            calls.start(new_call(metadata={"order_id": EVIL, "note": EVIL}))
            real.client.hset(real.keys.call_status("c"), mapping={".state": state, field: EVIL})
            real.client.hset(real.keys.call_meta("c"), mapping={"m:" + EVIL: EVIL, "v:" + EVIL: EVIL})
            ask_all(command, "c", "c --as call")


@pytest.mark.parametrize("asked", [EVIL, "", " ", "\x1b", "\ud800", "a" * 5000, "1:" + EVIL])
def test_whatever_is_asked(
    real: RedisHarness, book: OrderBook, command: Run, asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([], ["--as", "entry"], ["--as", "call"], ["--as", "order"], ["--as", "token"]):
        assert is_tame(command("explain", *words, "--", asked))
        said = command("explain", "--json", *words, "--", asked)
        assert is_tame(said)
        if said.out:
            json.loads(said.out)
    assert run(["explain", "--", ""]) == 2
    assert "expected an id" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["\u2028", "\x85", "\x7f", "\x9b", "\ud800", "\U000e0001", "\u00a0", "東京", "\n"])
def test_json_of_whatever_text_is_one_line_and_the_same_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    data: dict[str, Any] = {"text": text}
    print_json(data)
    out = capsys.readouterr().out
    assert json.loads(out) == data
    assert len(out.splitlines()) == 1
    assert out.rstrip("\n").isprintable()
