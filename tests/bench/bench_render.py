"""The renderer against plain ReportLab, against its own threads, against larger orders, and against its own past."""

import gc
import importlib.resources
import io
import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any
from xml.sax.saxutils import escape

import attrs
from PIL import Image as Pillow

from stagedoor.rendering.api import RenderRequest
from stagedoor_renderers import probe
from stagedoor_renderers.fields import Teller, event_content
from stagedoor_renderers.stock import load_stock
from stagedoor_renderers.ticket_pdf import TicketPdf
from tests.bench.figures import Figure
from tests.bench.platypus_ticket import draw_with_platypus

TICKETS = 60
THREADS = 8
LARGE = 500
MANY = 20_000


def measure(runs: int) -> list[Figure]:
    """Return ratios of times, and the growth of the resident set over many tickets."""
    with tempfile.TemporaryDirectory() as folder:
        logo = _logo()
        ticket = _with_logo(Path(folder), logo)
        requests = [_request(number) for number in range(TICKETS)]
        plain = [_plain(request) for request in requests]
        pairs = [
            (
                _seconds(lambda: [draw_with_platypus(content, logo) for content in plain]),
                _seconds(lambda: [ticket.render(request, probe.no_check) for request in requests]),
            )
            for _ in range(runs)
        ]
        threads = [(_alone(ticket, requests), _together(ticket, requests)) for _ in range(runs)]
        linear = [_large(ticket, LARGE) / (10 * _large(ticket, LARGE // 10)) for _ in range(runs)]
        growth = _growth(ticket)
    cores = os.process_cpu_count() or 1
    return [
        Figure(
            name="A5 ticket with logo, against plain Platypus", values=[old / new for old, new in pairs], at_least=8
        ),
        Figure(name="A5 ticket with logo", values=[new / TICKETS * 1000 for _, new in pairs], unit="ms"),
        Figure(
            name=f"8 threads against 1, per core ({cores})",
            values=[alone / together / cores for alone, together in threads],
            at_least=0.925,
        ),
        Figure(name="500 positions against ten times 50", values=linear, at_most=1.15),
        Figure(name="resident set after 20,000 tickets, growth", values=[growth], unit="MB", at_most=8),
    ]


def _seconds(work: Callable[[], Any]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin


def _request(number: int) -> RenderRequest:
    order = probe.order()
    position = attrs.evolve(order.positions[0], holder=f"Zoë Šimková {number}", token=_token(number))
    return RenderRequest(order=order, position=position, locale=order.locale)


def _token(number: int) -> str:
    return "".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(number * 31 + place * 17) % 32] for place in range(26))


def _plain(request: RenderRequest) -> Mapping[str, str]:
    """Return the same words for the other side, escaped as Platypus wants them."""
    values = load_stock().values
    language = values.language(request.locale)
    position = request.position
    assert position is not None
    content = {
        **event_content(request.order.event, language, values),
        **Teller.of(request.order, language).position(position),
    }
    return {name: escape(value) for name, value in content.items()}


def _logo() -> bytes:
    image = Pillow.linear_gradient("L").resize((360, 120)).convert("RGB")
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _with_logo(folder: Path, logo: bytes) -> TicketPdf:
    """Return a renderer whose layout is the built-in A5 with a logo."""
    built_in = (importlib.resources.files("stagedoor_renderers") / "layouts" / "a5.toml").read_text("utf-8")
    box = '\n[[box]]\ntype = "image"\nimage = "logo"\nx = 108\ny = 12\nw = 30\nh = 10\n'
    (folder / "house.toml").write_text(built_in + box, encoding="utf-8")
    (folder / "logo.png").write_bytes(logo)
    ticket = TicketPdf(layouts=folder, layout="house")
    ticket.warm_up()
    return ticket


# -- threads ------------------------------------------------------------------


def _alone(ticket: TicketPdf, requests: Sequence[RenderRequest]) -> float:
    return _seconds(lambda: [ticket.render(request, probe.no_check) for _ in range(THREADS) for request in requests])


def _together(ticket: TicketPdf, requests: Sequence[RenderRequest]) -> float:
    """Return how long eight threads take for eight times the requests."""

    def work() -> None:
        for request in requests:
            ticket.render(request, probe.no_check)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return _seconds(run)


# -- size ---------------------------------------------------------------------


def _large(ticket: TicketPdf, count: int) -> float:
    order = probe.order()
    positions = tuple(
        attrs.evolve(order.positions[0], id=number, holder=f"Guest {number}", token=_token(number))
        for number in range(1, count + 1)
    )
    request = RenderRequest(order=attrs.evolve(order, positions=positions), locale=order.locale)
    return _seconds(lambda: ticket.render(request, probe.no_check))


def _growth(ticket: TicketPdf) -> float:
    """Return by how many MB the resident set is larger after many tickets than after the first tenth of them."""
    tenth = MANY // 10
    for number in range(tenth):
        ticket.render(_request(number), probe.no_check)
    before = _resident_mb()
    for number in range(tenth, MANY):
        ticket.render(_request(number), probe.no_check)
    return max(0.0, _resident_mb() - before)


def _resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
