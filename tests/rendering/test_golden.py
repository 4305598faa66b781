"""What each layout draws, operator by operator: a change that nobody meant shows itself.

Streams are compared inflated, so another zlib changes nothing. After a change
that was meant, look at the previews, then write the files again::

    python -m tests.rendering.test_golden
"""

import hashlib
import io
import re
from pathlib import Path
from typing import Any

import pypdf
import pytest

from stagedoor.rendering.api import RenderRequest
from stagedoor_renderers import probe
from stagedoor_renderers.receipt_pdf import ReceiptPdf
from stagedoor_renderers.stock import built_in_layouts
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.rendering.orders import no_check

FOLDER = Path(__file__).parent / "golden"
NAMES = (*built_in_layouts(), "receipt")


def drawn(name: str) -> bytes:
    order = probe.order()
    if name == "receipt":
        return ReceiptPdf().render(RenderRequest(order=order, locale="de-DE"), no_check)
    return TicketPdf().render(RenderRequest(order=order, layout=name, locale="de-DE"), no_check)


def written(pdf: bytes) -> str:
    """The operators of every page, and the fonts by name and hash, as text."""
    lines: list[str] = []
    reader = pypdf.PdfReader(io.BytesIO(pdf))
    fonts: dict[str, str] = {}
    for number, page in enumerate(reader.pages, start=1):
        box = " ".join(f"{float(value):.2f}" for value in page.mediabox)
        lines.append(f"-- page {number}: {box}")
        contents: Any = page["/Contents"]
        lines += contents.get_object().get_data().decode("ascii").strip().split("\n")
        resources: Any = page["/Resources"]
        for name, font in resources.get_object()["/Font"].get_object().items():
            data = font.get_object()["/FontDescriptor"].get_object()["/FontFile2"].get_object().get_data()
            fonts[name] = f"{font.get_object()['/BaseFont']} {hashlib.sha256(data).hexdigest()[:16]}"
    lines.append("-- fonts")
    lines += [f"{name} {fonts[name]}" for name in sorted(fonts)]
    return "\n".join(re.sub(r"\s+$", "", line) for line in lines) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_layout_draws_what_it_drew(name: str) -> None:
    expected = (FOLDER / f"{name}.txt").read_text("ascii").split("\n")
    found = written(drawn(name)).split("\n")
    differing = [
        f"line {i}: {a!r} is now {b!r}" for i, (a, b) in enumerate(zip(expected, found, strict=False), 1) if a != b
    ]
    assert found == expected, "; ".join(differing[:3])


def main() -> None:
    """Write the files again."""
    FOLDER.mkdir(exist_ok=True)
    for name in NAMES:
        (FOLDER / f"{name}.txt").write_text(written(drawn(name)), encoding="ascii")


if __name__ == "__main__":
    main()
