"""Reads PDFs back: as a person sees them (PDFium, zxing) and as a program does (pypdf)."""

import io
import threading
import unicodedata
from collections.abc import Iterator
from typing import Any

import pypdf
import pypdfium2
import zxingcpp
from PIL import Image

# PDFium is not thread-safe: one call at a time, in the whole process.
_PDFIUM = threading.Lock()


def lines_of(pdf: bytes, page: int = 0) -> list[str]:
    """The lines of text on a page, as a viewer copies them."""
    with _PDFIUM:
        document = pypdfium2.PdfDocument(pdf)
        try:
            text = document[page].get_textpage().get_text_range()
        finally:
            document.close()
    return [unicodedata.normalize("NFC", line) for line in text.replace("\r", "").split("\n")]


def text_of(pdf: bytes) -> str:
    """All text of all pages, one line after the other."""
    return "\n".join("\n".join(lines_of(pdf, page)) for page in range(page_count(pdf)))


def page_count(pdf: bytes) -> int:
    with _PDFIUM:
        document = pypdfium2.PdfDocument(pdf)
        try:
            return len(document)
        finally:
            document.close()


def picture_of(pdf: bytes, *, dpi: int = 150, page: int = 0) -> Image.Image:
    with _PDFIUM:
        document = pypdfium2.PdfDocument(pdf)
        try:
            image: Image.Image = document[page].render(scale=dpi / 72).to_pil().convert("L").copy()
        finally:
            document.close()
    return image


def codes_in(image: Image.Image) -> list[str]:
    # Words below one another look like a bar code now and then.
    return [
        str(code.text)
        for code in zxingcpp.read_barcodes(image, formats=zxingcpp.BarcodeFormats(zxingcpp.BarcodeFormat.QRCode))
    ]


def codes_of(pdf: bytes, *, dpi: int = 150) -> list[str]:
    """What a scanner reads, page by page."""
    return [code for page in range(page_count(pdf)) for code in codes_in(picture_of(pdf, dpi=dpi, page=page))]


def fonts_of(pdf: bytes) -> Iterator[dict[str, Any]]:
    """Every font dictionary that any page can reach."""
    for page in pypdf.PdfReader(io.BytesIO(pdf)).pages:
        resources: Any = page["/Resources"]
        for font in resources.get_object().get("/Font", {}).get_object().values():
            yield font.get_object()


def glyph_boxes(pdf: bytes, page: int = 0) -> tuple[tuple[float, float], list[tuple[float, float, float, float]]]:
    """The size of a page, and the box of every character on it."""
    with _PDFIUM:
        document = pypdfium2.PdfDocument(pdf)
        try:
            sheet = document[page]
            text = sheet.get_textpage()
            boxes = [text.get_charbox(index, loose=False) for index in range(text.count_chars())]
            return sheet.get_size(), boxes
        finally:
            document.close()


def edges_of(pdf: bytes, page: int = 0) -> dict[str, tuple[float, float]]:
    """Every run of text on a page, with its left and right edge in mm."""
    with _PDFIUM:
        document = pypdfium2.PdfDocument(pdf)
        try:
            text = document[page].get_textpage()
            rects = [text.get_rect(index) for index in range(text.count_rects())]
            return {text.get_text_bounded(*rect).strip(): (rect[0] / 72 * 25.4, rect[2] / 72 * 25.4) for rect in rects}
        finally:
            document.close()
