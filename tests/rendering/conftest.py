"""The built-in renderers, warmed up once for all tests of this folder."""

import pytest

from stagedoor_renderers.kit.faces import Faces
from stagedoor_renderers.receipt_pdf import ReceiptPdf
from stagedoor_renderers.stock import Stock, load_stock
from stagedoor_renderers.ticket_pdf import TicketPdf


@pytest.fixture(scope="session")
def stock() -> Stock:
    return load_stock()


@pytest.fixture(scope="session")
def faces(stock: Stock) -> Faces:
    return stock.faces


@pytest.fixture(scope="session")
def ticket() -> TicketPdf:
    renderer = TicketPdf()
    renderer.warm_up()
    return renderer


@pytest.fixture(scope="session")
def receipt() -> ReceiptPdf:
    renderer = ReceiptPdf()
    renderer.warm_up()
    return renderer
