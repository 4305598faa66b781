"""The other side of the comparison: the same words on a ticket as ReportLab's guide would make it.

Paragraphs, tables and the QR widget of ReportLab in a simple document; fonts are
registered once. It is drawn in one thread only, which is all that it is safe in.
"""

import functools
import importlib.resources
import io
from collections.abc import Mapping
from typing import Any

from reportlab.graphics.barcode.qr import QrCodeWidget
from reportlab.graphics.shapes import Drawing
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import Image, Paragraph, SimpleDocTemplate, Table


@functools.cache
def _styles() -> Mapping[str, Any]:
    fonts = importlib.resources.files("stagedoor_renderers") / "fonts" / "lato"
    pdfmetrics.registerFont(TTFont("BenchRegular", str(fonts / "Lato-Regular.ttf")))
    pdfmetrics.registerFont(TTFont("BenchBold", str(fonts / "Lato-Bold.ttf")))
    body = ParagraphStyle("body", fontName="BenchRegular", fontSize=10, leading=13)
    return {
        "body": body,
        "title": ParagraphStyle("title", parent=body, fontName="BenchBold", fontSize=26, leading=30),
        "label": ParagraphStyle("label", parent=body, fontSize=6.5, leading=9),
    }


def draw_with_platypus(content: Mapping[str, str], logo: bytes) -> bytes:
    """Return a PDF of one A5 page."""
    styles = _styles()

    def paragraph(field: str, style: str = "body") -> Any:
        return Paragraph(content[field], styles[style])

    def table(*facts: tuple[str, str]) -> Any:
        return Table([[paragraph(label, "label") for label, _ in facts], [paragraph(field) for _, field in facts]])

    widget = QrCodeWidget(content["token"], barLevel="M")
    widget.barWidth = widget.barHeight = 42 * mm
    code = Drawing(42 * mm, 42 * mm)
    code.add(widget)
    story = [
        Image(io.BytesIO(logo), width=30 * mm, height=10 * mm),
        paragraph("category", "label"),
        paragraph("event", "title"),
        paragraph("sub_event"),
        paragraph("date"),
        paragraph("venue"),
        table(("label.start", "start"), ("label.doors", "doors"), ("zone_name", "offset"), ("label.price", "price")),
        table(("label.zone", "seat_zone"), ("label.row", "seat_row"), ("label.seat", "seat_number")),
        code,
        paragraph("short_code"),
        table(("label.holder", "holder"), ("label.order", "order_code"), ("label.category", "number")),
        paragraph("terms", "label"),
    ]
    buffer = io.BytesIO()
    page = (210 * mm, 148 * mm)
    SimpleDocTemplate(buffer, pagesize=page, leftMargin=16, rightMargin=16, topMargin=8, bottomMargin=8).build(story)
    return buffer.getvalue()
