"""Everything that came out of a rehearsal, looked at: each order, each file, each QR code."""

import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from stagedoor.orders import InvariantReport, OrderBook

DPI = 110
"""A QR module of 0.5 mm has two pixels: enough for a reader, and quick to draw."""
THREADS = 4


@attrs.frozen(kw_only=True)
class Ticket:
    """A valid ticket: the code its QR must carry, and its file."""

    order_id: int
    position_id: int
    token: str
    path: Path


@attrs.frozen(kw_only=True)
class Checked:
    """What a check found; *problems* are in words."""

    lost: int
    wrong: int
    pdf_files: int
    tickets_valid: int
    tickets_void: int
    refunded: int
    has_read_codes: bool
    problems: tuple[str, ...]


def check_everything(book: OrderBook, tickets_dir: Path, *, progress: Callable[[int, int], None]) -> Checked:
    """Check all orders against the invariant and open the file of every valid ticket.

    Args:
        book: the order book, at rest.
        tickets_dir: its files.
        progress: told how many of how many files have been opened.
    """
    report = book.check_invariant()
    tickets = list(_valid_tickets(book, tickets_dir, report))
    reader = CodeReader() if can_read_codes() else None
    bad = list(_bad_files(tickets, reader, progress=progress))
    problems = [*_in_words(report), *bad]
    return Checked(
        lost=len(report.lost),
        wrong=len(report.wrong) + len(bad),
        pdf_files=sum(1 for _ in tickets_dir.rglob("*.pdf")),
        tickets_valid=report.tickets_valid,
        tickets_void=report.tickets_void,
        refunded=report.refunded,
        has_read_codes=reader is not None,
        problems=tuple(problems),
    )


def can_read_codes() -> bool:
    """Return whether what reads PDFs and QR codes is installed (the extra ``test``)."""
    return all(importlib.util.find_spec(name) is not None for name in ("pypdfium2", "zxingcpp"))


def _in_words(report: InvariantReport) -> Iterator[str]:
    for kind, findings in (("lost", report.lost), ("wrong", report.wrong)):
        for finding in findings:
            position = "" if finding.position_id is None else f", position {finding.position_id}"
            yield f"{kind}: order {finding.order_id}{position}: {finding.problem}"


def _valid_tickets(book: OrderBook, tickets_dir: Path, report: InvariantReport) -> Iterator[Ticket]:
    for order_id in range(1, report.orders + 1):
        for ticket in book.tickets(order_id):
            if ticket.state == "valid":
                yield Ticket(
                    order_id=order_id,
                    position_id=ticket.position_id,
                    token=ticket.token,
                    path=tickets_dir / ticket.path,
                )


def _bad_files(
    tickets: Sequence[Ticket], reader: "CodeReader | None", *, progress: Callable[[int, int], None]
) -> Iterator[str]:
    with ThreadPoolExecutor(THREADS) as threads:
        found = threads.map(lambda ticket: problem_of(ticket, reader), tickets)
        for done, (ticket, problem) in enumerate(zip(tickets, found, strict=True), start=1):
            progress(done, len(tickets))
            if problem is not None:
                yield f"wrong: order {ticket.order_id}, position {ticket.position_id}: {ticket.path.name} {problem}"


def problem_of(ticket: Ticket, reader: "CodeReader | None") -> str | None:
    """Return what is wrong with the file of a ticket, None for nothing."""
    try:
        content = ticket.path.read_bytes()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not content.startswith(b"%PDF-") or not content.rstrip().endswith(b"%%EOF"):
        return "is no complete PDF"
    if reader is None:
        return None
    return reader.problem_of(content, ticket.token)


class CodeReader:
    """Draws the page of a ticket and reads its QR code."""

    def __init__(self) -> None:
        # PDFium is not thread-safe; reading the code is, and takes longer.
        self._pdfium = threading.Lock()

    def problem_of(self, content: bytes, token: str) -> str | None:
        """Return what is wrong with this PDF, None when it has one page with one code, the token."""
        import zxingcpp  # noqa: PLC0415 - of the extra `test`

        try:
            pages, image = self._drawn(content)
        except Exception as error:  # noqa: BLE001 - whatever PDFium finds wrong is wrong with the file
            return f"cannot be opened: {error}"
        if pages != 1:
            return f"has {pages} pages instead of one"
        # Upright and black on white, as it was drawn: looking for nothing else takes a tenth of the time.
        wanted = zxingcpp.barcode_formats_from_str("QRCode")
        found = zxingcpp.read_barcodes(image, formats=wanted, try_rotate=False, try_downscale=False, try_invert=False)
        codes = [code.text for code in found]
        if token not in codes:
            return f"shows the codes {codes} instead of its token" if codes else "has no code that can be read"
        return None

    def _drawn(self, content: bytes) -> tuple[int, Any]:
        import pypdfium2  # noqa: PLC0415 - of the extra `test`

        with self._pdfium:
            document = pypdfium2.PdfDocument(content)
            try:
                page = document[0]
                image = page.render(scale=DPI / 72, grayscale=True).to_pil()
                return len(document), image
            finally:
                document.close()
