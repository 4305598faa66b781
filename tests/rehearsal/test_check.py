"""The check at the end of a rehearsal finds what is wrong, not only what is right."""

import io
from pathlib import Path
from typing import Any

import pytest

from stagedoor.orders import NewTicket, OrderBook
from stagedoor.rehearsal.check import CodeReader, Ticket, can_read_codes, check_everything, problem_of
from stagedoor.rehearsal.programme import make_orders

TOKEN = "AIA7QSLC" + "B" * 18


@pytest.fixture
def reader() -> CodeReader:
    if not can_read_codes():
        pytest.skip("pypdfium2 and zxing-cpp come with the extra test")
    return CodeReader()


def pdf_of(token: str | None, *, pages: int = 1) -> bytes:
    """Return a PDF whose first page has a QR code of the token, drawn by nothing that the product draws with."""
    from PIL import Image

    images = [Image.new("L", (400, 400), 255) for _ in range(pages)]
    if token is not None:
        images[0] = qr_image(token)
    out = io.BytesIO()
    images[0].save(out, "PDF", resolution=100, save_all=True, append_images=images[1:])
    return out.getvalue()


def qr_image(token: str) -> Any:
    """Return a PIL image; imported here, for it comes with the renderers."""
    import segno
    from PIL import Image

    out = io.BytesIO()
    segno.make(token, error="m").save(out, kind="png", scale=8, border=4)
    with Image.open(out) as image:
        return image.convert("L")


def ticket(path: Path) -> Ticket:
    return Ticket(order_id=1, position_id=1, token=TOKEN, path=path)


def test_a_good_file_has_no_problem(tmp_path: Path, reader: CodeReader) -> None:
    (tmp_path / "t.pdf").write_bytes(pdf_of(TOKEN))
    assert problem_of(ticket(tmp_path / "t.pdf"), reader) is None


def test_the_code_of_another_ticket_is_found(tmp_path: Path, reader: CodeReader) -> None:
    (tmp_path / "t.pdf").write_bytes(pdf_of("C" * 26))
    assert "instead of its token" in str(problem_of(ticket(tmp_path / "t.pdf"), reader))


def test_a_file_without_a_code_is_found(tmp_path: Path, reader: CodeReader) -> None:
    (tmp_path / "t.pdf").write_bytes(pdf_of(None))
    assert problem_of(ticket(tmp_path / "t.pdf"), reader) == "has no code that can be read"


def test_a_second_page_is_found(tmp_path: Path, reader: CodeReader) -> None:
    (tmp_path / "t.pdf").write_bytes(pdf_of(TOKEN, pages=2))
    assert problem_of(ticket(tmp_path / "t.pdf"), reader) == "has 2 pages instead of one"


def test_a_file_that_is_no_pdf_is_found_also_where_no_code_is_read(tmp_path: Path) -> None:
    whole = pdf_of(TOKEN) if can_read_codes() else b"%PDF-1.4\n%%EOF\n"
    (tmp_path / "cut.pdf").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "html.pdf").write_bytes(b"<html>")
    assert problem_of(ticket(tmp_path / "cut.pdf"), None) == "is no complete PDF"
    assert problem_of(ticket(tmp_path / "html.pdf"), None) == "is no complete PDF"
    assert "cannot be read" in str(problem_of(ticket(tmp_path / "gone.pdf"), None))


def test_garbage_between_the_right_ends_is_found(tmp_path: Path, reader: CodeReader) -> None:
    (tmp_path / "t.pdf").write_bytes(b"%PDF-1.7\ngarbage\n%%EOF\n")
    assert "cannot be opened" in str(problem_of(ticket(tmp_path / "t.pdf"), reader))


def issue(book: OrderBook, order_id: int, content: bytes) -> list[str]:
    """Issue tickets with this content for an order, and return their paths."""
    order = book.get(order_id)
    files = []
    for position in order.placed_positions:
        path = book.store.path(order_id, position.id, version=order.version, key="0" * 64, suffix=".pdf")
        book.store.write(path, content)
        files.append(
            NewTicket(position_id=position.id, path=path, content_key="0" * 64, content_type="application/pdf")
        )
    assert book.commit_tickets(order, files)
    return [file.path for file in files]


def test_lost_and_wrong_tickets_are_counted_and_named(tmp_path: Path) -> None:
    tickets_dir = tmp_path / "tickets"
    with OrderBook.open(f"sqlite:///{tmp_path}/orders.db", tickets_dir=tickets_dir) as book:
        missing, refunded = book.place_many(make_orders(2, seed=1))
        issue(book, refunded, b"no pdf")
        book.refund(refunded)
        opened: list[tuple[int, int]] = []
        checked = check_everything(book, tickets_dir, progress=lambda done, total: opened.append((done, total)))
        positions = {order_id: len(book.get(order_id).positions) for order_id in (missing, refunded)}
    assert checked.lost == positions[missing]
    assert checked.wrong == 2 * positions[refunded], "valid though refunded, and no PDF"
    assert checked.pdf_files == positions[refunded]
    assert any(f"lost: order {missing}, position 1" in problem for problem in checked.problems)
    assert any("is no complete PDF" in problem for problem in checked.problems)
    assert opened[-1] == (positions[refunded], positions[refunded])
