"""A PDF is told from what only begins and ends like one, before anybody publishes it."""

import io
import re
from collections.abc import Callable

import pypdf
import pytest

from stagedoor.errors import RendererBroken
from stagedoor.rendering.pdf import pdf_problem
from stagedoor_renderers.receipt_pdf import ReceiptPdf
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import named
from tests.rendering.test_pool import pool

OBJECTS = (b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>")


def pdf_of(*objects: bytes, root: int = 1) -> bytes:
    """A PDF of these objects, with a table of where they are."""
    made, places = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    table += b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer\n<< /Size %d /Root %d 0 R >>\n" % (len(objects) + 1, root)
    return made + table + trailer + b"startxref\n%d\n%%%%EOF\n" % len(made)


def compressed_pdf(root: bytes = b"/Root 1 0 R") -> bytes:
    """The ends of a PDF whose table is compressed."""
    made = b"%PDF-1.7\n1 0 obj\n" + OBJECTS[0] + b"\nendobj\n"
    table = b"2 0 obj\n<< /Type /XRef /Size 3 " + root + b" >>\nstream\nxx\nendstream\nendobj\n"
    return made + table + b"startxref\n%d\n%%%%EOF\n" % len(made)


WHOLE = pdf_of(*OBJECTS)


@pytest.mark.parametrize(
    "content, said",
    [
        (b"ticket", "does not start with %PDF-"),
        (b"%PDF-1.4 cut off", "does not end with %%EOF"),
        (b"%PDF-1.7\ngarbage\n%%EOF\n", "end does not say where its table of objects is"),
        (b"%PDF-1.7\n" + b"<p>Anna</p>" * 99 + b"\nstartxref\n20\n%%EOF", "end points at no table of objects"),
        (b"%PDF-1.7\nstartxref\n9999\n%%EOF\n", "end points at no table of objects"),
        (b"%PDF-1.7\nstartxref\n9999999999999\n%%EOF\n", "end does not say where"),
        (b"%PDF-1.7\nxref\n0 9\n0000000000 65535 f \nstartxref\n9\n%%EOF", "table of objects is cut off"),
        (WHOLE.replace(b"/Root", b"/Boot"), "table of objects does not name the document"),
        (WHOLE.replace(b"trailer", b"trainer"), "table of objects does not name the document"),
        (pdf_of(*OBJECTS, root=2), "names something as the document that is none"),
        (WHOLE.replace(b"2 0 obj", b"garbage"), "objects are not where its table says"),
        (WHOLE.replace(b"1 0 obj", b"7 0 obj"), "objects are not where its table says"),
        (re.sub(rb"obj\n.*endobj\n", lambda found: b"\n" * len(found[0]), WHOLE, flags=re.DOTALL), "objects are not"),
        (compressed_pdf(root=b""), "table of objects does not name the document"),
        (compressed_pdf().replace(b"/XRef", b"/Xref"), "end points at no table of objects"),
        (compressed_pdf().replace(b"stream", b"strain"), "end points at no table of objects"),
    ],
)
def test_what_is_no_whole_pdf_is_refused_before_it_is_written(content: bytes, said: str) -> None:
    with pytest.raises(RendererBroken, match=re.escape(said)):
        pool(lambda request, check: content, content_type="application/pdf").render("plain", named("Anna"))


@pytest.mark.parametrize("content", [WHOLE, WHOLE.rstrip(), compressed_pdf()])
def test_a_whole_pdf_is_taken(content: bytes) -> None:
    made = pool(lambda request, check: content, content_type="application/pdf")
    assert made.render("plain", named("Anna")).content == content


def test_another_type_is_not_looked_at() -> None:
    assert pool(lambda request, check: b"ticket").render("plain", named("Anna")).content == b"ticket"


def _as_drawn(pdf: bytes) -> bytes:
    return pdf


def _written_again(pdf: bytes) -> bytes:
    made = io.BytesIO()
    pypdf.PdfWriter(io.BytesIO(pdf)).write(made)
    return made.getvalue()


def _added_to(pdf: bytes) -> bytes:
    made, writer = io.BytesIO(), pypdf.PdfWriter(io.BytesIO(pdf), incremental=True)
    writer.add_blank_page(100, 100)
    writer.write(made)
    return made.getvalue()


@pytest.mark.parametrize("change", [_as_drawn, _written_again, _added_to])
def test_real_pdfs_are_taken(change: Callable[[bytes], bytes], ticket: TicketPdf, receipt: ReceiptPdf) -> None:
    for renderer in (ticket, receipt):
        assert pdf_problem(change(renderer.render(named("Zoë"), lambda: None))) is None


@pytest.mark.parametrize("kept", [0.3, 0.9])
def test_a_pdf_with_a_hole_in_it_is_found(kept: float, ticket: TicketPdf) -> None:
    """Two halves of a file that were written over each other: both ends are right."""
    pdf = ticket.render(named("Zoë"), lambda: None)
    cut = int(len(pdf) * kept)
    assert pdf_problem(pdf[:cut] + pdf[cut + 200 :]) is not None
    assert pdf_problem(pdf[:cut] + pdf[cut - 200 :]) is not None
