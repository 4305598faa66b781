"""What a shop does to orders from a terminal: checked as a whole, shown safely, exit codes that scripts can use."""

import copy
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stagedoor.cli import order_show
from stagedoor.cli.app import run
from stagedoor.cli.order_show import amount_text, seat_text
from stagedoor.order import Seat
from stagedoor.orders import NewTicket, OrderBook
from stagedoor_renderers.signing import Signer, new_key
from tests.support.orders import NACHTMUSIK

type Captured = pytest.CaptureFixture[str]
type Order = Callable[..., tuple[int, str, list[str]]]


def line(**changes: Any) -> dict[str, Any]:
    """Return the data of one line of a file of orders."""
    return copy.deepcopy(NACHTMUSIK) | changes


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Order:
    """Run ``order …`` on a book of this test; gives exit code, stdout and the lines of stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, list[str]]:
        code = run(["order", *words])
        said = capsys.readouterr()
        return code, said.out, said.err.splitlines()

    return call


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    """Write a file of orders; texts are lines as they are."""

    def write(*lines: dict[str, Any] | str) -> str:
        path = tmp_path / "orders.jsonl"
        path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines))
        return str(path)

    return write


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


# -- placing --------------------------------------------------------------------------


def test_the_orders_of_a_file_are_placed_and_their_ids_printed(order: Order, file: Callable[..., str]) -> None:
    path = file(line(order_id=7), "", line(), line(order_id=3))
    assert order("place", "--file", path) == (0, "7\n8\n3\n", [])
    code, out, _ = order("place", "--file", file(line(order_id=50)), "--json")
    assert (code, json.loads(out)) == (0, {"placed": [50]})


def test_who_places_an_order_at_a_terminal_is_told_in_words(
    order: Order, file: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert order("place", "--file", file(line(order_id=7), line())) == (0, "order 7 is placed\norder 8 is placed\n", [])


def test_orders_are_read_from_stdin_with_the_marks_that_editors_leave(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"\xef\xbb\xbf" + json.dumps(line(order_id=1)).encode() + b"\r\n" + json.dumps(line(order_id=2)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert order("place", "--file", "-") == (0, "1\n2\n", [])


def test_if_one_line_is_bad_nothing_is_placed_and_every_bad_line_is_named(
    order: Order, file: Callable[..., str], book: OrderBook
) -> None:
    path = file(line(order_id=1), line(currency="euro"), "{", line(order_id=0), line(order_id=1))
    code, out, lines = order("place", "--file", path)
    assert (code, out) == (1, "")
    assert [text.split(":")[1] for text in lines[:-1]] == [" line 2", " line 3", " line 4", " line 5"]
    assert "currency: expected three capital letters" in lines[0]
    assert "order_id: 1 is the id of line 1, too" in lines[3]
    assert lines[-1] == "stagedoor: nothing was placed: all lines are checked first"
    assert book.summary().orders_placed == 0


def test_a_file_of_thousands_of_bad_lines_is_cut(order: Order, file: Callable[..., str]) -> None:
    code, _, lines = order("place", "--file", file(*["{"] * 3000))
    assert code == 1
    assert len(lines) == 52
    assert "2950 more bad lines" in lines[-2]


def test_an_id_that_is_taken_is_said_and_what_was_placed_before_it(order: Order, file: Callable[..., str]) -> None:
    order("place", "--file", file(line(order_id=600)))
    code, _, lines = order("place", "--file", file(*(line(order_id=number) for number in range(1, 601))))
    assert code == 1
    [said] = lines
    assert said.startswith("stagedoor: lines 501 to 600: order_id: 600 is taken")
    assert said.endswith("the 500 orders before them are placed")


@pytest.mark.parametrize("count,ending", [(2, "placed"), (501, "placed, nor anything after it")])
def test_that_nothing_was_placed_is_said_once(order: Order, file: Callable[..., str], count: int, ending: str) -> None:
    order("place", "--file", file(line(order_id=2)))
    path = file(*(line(order_id=number) for number in range(1, count + 1)))
    [said] = order("place", "--file", path)[2]
    assert said.startswith("stagedoor: lines 1 to ")
    assert said.endswith(f"order_id: 2 is taken by an order already; nothing of this batch was {ending}")
    assert said.count("placed") == 1


def test_one_order_can_be_described_by_flags(order: Order) -> None:
    flags = ["--event", "Gala", "--venue", "Halle", "--starts-at", "2026-07-01T18:00:00Z", "--tz", "Europe/Berlin"]
    people = ["--holder", "Ana", "--holder", "Bo", "--seat", "Balcony/C/8", "--amount-minor", "4500"]
    assert order("place", *flags, *people, "--order-id", "12") == (0, "12\n", [])
    code, out, _ = order("show", "12", "--json")
    shown = json.loads(out)
    assert code == 0
    assert [(p["holder"], p["seat"], p["amount_minor"]) for p in shown["positions"]] == [
        ("Ana", {"zone": "Balcony", "row": "C", "number": "8"}, 4500),
        ("Bo", None, 4500),
    ]
    assert shown["buyer"] == "Ana"


@pytest.mark.parametrize(
    "words,said",
    [
        (["place"], "take either --file, or --event"),
        (["place", "--file", "x", "--event", "y"], "take either --file, or --event"),
        (["place", "--file", "not-there.jsonl"], "cannot read not-there.jsonl: No such file"),
        (["place", "--event", "Gala"], "one order also needs --venue and --starts-at"),
        (["place", "--event", "G", "--venue", "V", "--starts-at", "x", "--seat", "C8"], "expected ZONE/ROW/NUMBER"),
        (["change", "1"], "take at least one of --rename"),
        (["change", "1", "--rename", "Ana"], "expected POS=…"),
        (["show", "0"], "expected a number from 1 to 9223372036854775807, found '0'"),
        (["show", "٣"], r"found '\u0663'"),
        (["refund", "9223372036854775808"], "expected a number from 1 to"),
    ],
)
def test_a_mistake_in_the_words_is_named_and_ends_with_2(order: Order, words: list[str], said: str) -> None:
    code, out, lines = order(*words)
    assert (code, out) == (2, "")
    assert said in "\n".join(lines)


def test_fields_of_one_order_are_checked_like_those_of_a_file(order: Order) -> None:
    code, _, lines = order("place", "--event", "G", "--venue", "V", "--starts-at", "tomorrow", "--tz", "Mars/Base")
    assert code == 1
    assert "event.starts_at: expected a time" in lines[0]


# -- changing ----------------------------------------------------------------------------


def test_an_order_is_refunded_once(order: Order, file: Callable[..., str]) -> None:
    order("place", "--file", file(line(order_id=7)))
    assert order("refund", "7") == (0, "order 7 is refunded; it has version 2\n", [])
    assert order("refund", "7") == (1, "", ["stagedoor: order 7 is refunded already"])
    assert order("refund", "8") == (1, "", ["stagedoor: there is no order 8"])


def test_changes_are_made_together(order: Order, file: Callable[..., str]) -> None:
    two = [{"id": number, "holder": f"H{number}", "category": "P", "amount_minor": 0} for number in (1, 2)]
    order("place", "--file", file(line(order_id=7, positions=two)))
    before = json.loads(order("show", "7", "--json")[1])
    changes = ["--rename", "1=Ana = Bo", "--reseat", "1=/D/9", "--rotate", "1", "--refund-position", "2"]
    code, out, _ = order("change", "7", *changes, "--json")
    after = json.loads(out)
    assert code == 0
    one, other = after["positions"]
    assert (one["holder"], one["seat"]) == ("Ana = Bo", {"zone": None, "row": "D", "number": "9"})
    assert one["token"] != before["positions"][0]["token"]
    assert other["status"] == "refunded"
    assert (before["version"], after["version"]) == (1, 2)
    assert json.loads(order("change", "7", "--reseat", "1=-", "--json")[1])["positions"][0]["seat"] is None
    assert order("reissue", "7")[:2] == (0, "order 7 is to be issued again; it has version 4\n")


# -- showing -------------------------------------------------------------------------------


def issue(book: OrderBook, order_id: int) -> list[Path]:
    """Issue tickets of an order, as its handler does, and return their files."""
    order = book.get(order_id)
    files = []
    for position in order.placed_positions:
        path = book.store.path(order_id, position.id, version=order.version, key="k1", suffix=".pdf")
        book.store.write(path, b"%PDF-")
        files.append(NewTicket(position_id=position.id, path=path, content_key="k1", content_type="application/pdf"))
    assert book.commit_tickets(order, files)
    return [book.store.file(file.path) for file in files]


def test_an_order_is_shown_with_its_positions_and_where_its_tickets_are(
    order: Order, file: Callable[..., str], book: OrderBook
) -> None:
    order("place", "--file", file(line(order_id=7)))
    assert "no tickets yet" in order("show", "7")[1]
    [path] = issue(book, 7)
    code, out, _ = order("show", "7")
    assert code == 0
    for part in ("Order 7  placed  version 1", "Wed 01 Jul 2026 20:00 Europe/Berlin", "row C, seat 8", "45.00"):
        assert part in out
    assert str(path) in out.splitlines()
    path.unlink()
    assert "missing" in order("show", "7")[1]
    data = json.loads(order("show", "7", "--json")[1])
    assert [(ticket["state"], ticket["file_present"]) for ticket in data["tickets"]] == [("valid", False)]


def test_what_a_buyer_wrote_cannot_drive_the_terminal(order: Order, file: Callable[..., str]) -> None:
    evil = "A\x1b]0;title\x07\u2028\u202e[bold]"
    event = line()["event"] | {"name": evil, "venue": evil}
    position = {"id": 1, "holder": evil, "category": evil, "amount_minor": 0, "seat": {"row": evil}}
    order("place", "--file", file(line(order_id=7, buyer=evil, event=event, positions=[position])))
    code, out, _ = order("show", "7")
    assert code == 0
    assert all(text.isprintable() for text in out.split("\n"))
    assert r"A\x1b]0;title\x07\u2028\u202e[bold]" in out


@pytest.mark.parametrize("width", [40, 80, 94, 95])
def test_a_token_is_never_broken(order: Order, file: Callable[..., str], book: OrderBook, width: int) -> None:
    order("place", "--file", file(line(order_id=1)))
    token = book.get(1).positions[0].token
    console = Console(width=width, file=io.StringIO(), force_terminal=True)
    with console.capture() as captured:
        console.print(order_show._Positions(book.get(1)))
    shown = captured.get()
    assert token in shown
    assert ("token" in shown.splitlines()[0]) == (width >= 95)


def test_a_token_is_valid_until_its_order_is_refunded(order: Order, file: Callable[..., str], book: OrderBook) -> None:
    order("place", "--file", file(line(order_id=7)))
    token = book.get(7).positions[0].token
    assert order("check", token)[:2] == (1, "unknown: its ticket has not been issued yet (order 7, position 1)\n")
    issue(book, 7)
    assert order("check", token.lower())[:2] == (0, "valid: order 7, position 1, Ana\n")
    book.refund(7)
    code, out, _ = order("check", token, "--json")
    assert (code, json.loads(out)["state"], json.loads(out)["reason"]) == (1, "void", "order refunded")
    assert order("check", "' OR 1=1")[0] == 1


def test_a_signed_code_is_checked_as_the_token_in_it(order: Order, file: Callable[..., str], book: OrderBook) -> None:
    """A door that is online scans it as it is printed; whose key it was, the order book need not know."""
    order("place", "--file", file(line(order_id=7)))
    issue(book, 7)
    placed = book.get(7)
    code = Signer(private_key=new_key(), key=7)(placed, placed.positions[0])
    assert order("check", code)[:2] == (0, "valid: order 7, position 1, Ana\n")
    assert order("check", f" {code.lower()}")[0] == 0
    book.refund(7)
    assert order("check", code)[:2] == (1, "void: order refunded (order 7, position 1)\n")
    assert order("check", code[:-1])[:2] == (1, "unknown: no ticket carries this token\n")


def test_a_signed_code_without_the_engine_is_not_called_unknown(
    order: Order, file: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order("place", "--file", file(line()))
    for name in [name for name in sys.modules if name.partition(".")[0] == "stagedoor_renderers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "stagedoor_renderers", None)
    code, _, lines = order("check", f"S1{'A' * 151}")
    assert (code, len(lines)) == (2, 1)
    assert "order check of a signed code needs the built-in ticket engine" in lines[0]
    assert order("check", "A" * 26)[:2] == (1, "unknown: no ticket carries this token\n")


@pytest.mark.parametrize(
    "minor,currency,shown",
    [
        (4500, "EUR", "45.00"),
        (4500, "JPY", "4,500"),
        (4500, "KWD", "4.500"),
        (0, "EUR", "free"),
        (123456789, "USD", "1,234,567.89"),
    ],
)
def test_amounts_are_in_the_currencys_own_unit(minor: int, currency: str, shown: str) -> None:
    assert amount_text(minor, currency) == shown


def test_a_seat_says_only_what_the_hall_uses() -> None:
    assert seat_text(None) == ""
    assert seat_text(Seat(zone="Balcony", row=None, number="8")) == "Balcony, seat 8"


# -- the set-up ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["show", "1"], ["check", "TOKEN"], ["refund", "1"], ["reissue", "1"], ["change", "1", "--rotate", "1"]]
)
def test_an_order_book_that_is_not_there_is_not_made_by_looking_for_it(
    order: Order, tmp_path: Path, words: list[str]
) -> None:
    code, _, lines = order(*words, "--orders-url", "sqlite:///mistyped.db")
    assert code == 1
    assert lines[0].startswith("stagedoor: there is no order book at sqlite:///mistyped.db; ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("book")
def test_a_tickets_folder_that_cannot_be_written_is_named(order: Order, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    code, _, lines = order("show", "1", "--tickets-dir", str(tmp_path / "occupied" / "tickets"))
    assert code == 2
    assert lines[0].startswith("stagedoor: tickets_dir: cannot write to ")


@pytest.mark.parametrize(
    "url,said",
    [
        ("nonsense", "orders_url: the value is no database address"),
        ("mysql://u:secret@h/x", "is not supported"),
        ("sqlite:////not/there/book.db", "there is no folder /not/there"),
    ],
)
def test_an_order_book_that_cannot_be_opened_is_named(order: Order, url: str, said: str) -> None:
    code, _, lines = order("show", "1", "--orders-url", url)
    assert code == 2
    assert said in lines[0]
    assert "secret" not in lines[0]
