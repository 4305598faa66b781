"""The renderer against plain ReportLab, its own threads, processes, larger orders, and its own past."""

import gc
import importlib.resources
import io
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Self
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
        cores = os.process_cpu_count() or 1
        shared = [_request(number) for number in range(TICKETS * THREADS)]
        with _Processes(Path(folder), cores) as processes:
            threads = [
                (_taken(_alone, ticket, shared), _taken(_together, ticket, shared), processes.together())
                for _ in range(runs)
            ]
        linear = [_large(ticket, LARGE) / (10 * _large(ticket, LARGE // 10)) for _ in range(runs)]
        growth = _growth(ticket)
    return [
        Figure(
            name="A5 ticket with logo, against plain Platypus", values=[old / new for old, new in pairs], at_least=8
        ),
        Figure(name="A5 ticket with logo", values=[new / TICKETS * 1000 for _, new in pairs], unit="ms"),
        Figure(
            name=f"8 threads against 1, per core ({cores})",
            values=[alone.seconds / together.seconds / cores for alone, together, _ in threads],
            at_least=0.925,
        ),
        Figure(
            name=f"one process per core against 1 thread, per core ({cores}): what the machine itself gives",
            values=[alone.seconds / apart / cores for alone, _, apart in threads],
        ),
        Figure(
            name="8 threads against one process per core",
            values=[apart / together.seconds for _, together, apart in threads],
        ),
        Figure(
            name="processor time of a ticket in 1 thread against 8: what is lost to each other",
            values=[alone.cpu_seconds / together.cpu_seconds for alone, together, _ in threads],
        ),
        Figure(name="500 positions against ten times 50", values=linear, at_most=1.15),
        Figure(name="resident set after 20,000 tickets, growth", values=[growth], unit="MB", at_most=8),
    ]


def _seconds(work: Callable[[], Any]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin


@attrs.frozen
class _Taken:
    """How long something took, on the clock and of the processors."""

    seconds: float
    cpu_seconds: float


def _taken(
    work: Callable[[TicketPdf, Sequence[RenderRequest]], float], ticket: TicketPdf, requests: Sequence[RenderRequest]
) -> _Taken:
    begin = process_time()
    seconds = work(ticket, requests)
    return _Taken(seconds, process_time() - begin)


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
    """Return how long one thread takes: a handler's, as in a worker, not the one that has warmed up."""
    return _drawn_in(1, ticket, requests)


def _together(ticket: TicketPdf, requests: Sequence[RenderRequest]) -> float:
    """Return how long eight threads take that share the requests: no two of them draw one ticket."""
    return _drawn_in(THREADS, ticket, requests)


def _drawn_in(count: int, ticket: TicketPdf, requests: Sequence[RenderRequest]) -> float:
    def work(share: Sequence[RenderRequest]) -> None:
        for request in share:
            ticket.render(request, probe.no_check)

    threads = [threading.Thread(target=work, args=(requests[index::count],)) for index in range(count)]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return _seconds(run)


class _Processes:
    """One warmed-up interpreter per core, each with its share of the same work, and no memory in common.

    The control of the threads' figure: cores that share a cache, a clock that falls
    under load and neighbours on the machine slow both down alike.
    """

    def __init__(self, folder: Path, count: int) -> None:
        command = [sys.executable, "-m", "tests.bench.bench_render", str(folder), str(THREADS // count or 1)]
        pipe = subprocess.PIPE
        self._running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(count)]

    def __enter__(self) -> Self:
        self._hear()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.communicate()

    def together(self) -> float:
        """Return how long they take for what eight threads do, all at once."""
        return _seconds(self._work)

    def _work(self) -> None:
        for process in self._running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        self._hear()

    def _hear(self) -> None:
        for process in self._running:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"


def _serve(folder: Path, times: int) -> None:
    """Draw so many times as many tickets for each line that is read: what a process of `_Processes` does."""
    ticket = TicketPdf(layouts=folder, layout="house")
    ticket.warm_up()
    requests = [_request(number) for number in range(TICKETS * times)]
    print("done", flush=True)
    for _ in sys.stdin:
        for request in requests:
            ticket.render(request, probe.no_check)
        print("done", flush=True)


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


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
