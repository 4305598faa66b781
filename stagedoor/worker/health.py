"""The small HTTP server of a worker: ``/metrics``, ``/healthz`` and ``/livez``, in threads of its own.

It listens on 127.0.0.1, changes nothing, and says nothing of what is in an entry.
``/healthz`` means progress: 200 only while this worker reads, and starts what
waits. ``/livez`` only says that the event loop turns.
"""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from stagedoor.broker.inspection import Waiting
from stagedoor.errors import ConfigurationError
from stagedoor.worker.vitals import HUNG_S, START_S, Vitals, problems

ADDRESS = "127.0.0.1"
WAIT_S = 10.0
"""How long a connection may say nothing."""
POLL_S = 0.1
"""How long the end of the server may take: the end of a worker must not wait for it."""
LOOK_S = 2.0
"""How old an answer about waiting work may be: probes come every few seconds, and several may come at once."""

type Answer = tuple[int, str, bytes]
"""Status, content type, body."""

_TEXT = "text/plain; charset=utf-8"


class Probes:
    """What the three paths answer.

    Args:
        registry: the metrics.
        vitals: of this worker.
        waiting: how many entries any worker could take, and for how many seconds the first has
            waited; None when Redis cannot be asked, which the reader finds out by itself.
        block_s: how long an idle read blocks.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        vitals: Vitals,
        waiting: Callable[[], Waiting | None],
        block_s: float,
    ) -> None:
        self._registry = registry
        self._vitals = vitals
        self._waiting = waiting
        self._block_s = block_s

    def answer(self, path: str) -> Answer:
        """Return the answer to a GET of this path."""
        match path.partition("?")[0]:
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
            case "/healthz":
                return _verdict(self.problems())
            case "/livez":
                late_s = self._vitals.condition.overdue_s
                return _verdict([f"the event loop has stood still for {late_s:.1f} s"] if late_s > HUNG_S else [])
            case _:
                return 404, _TEXT, b"there are /metrics, /healthz and /livez\n"

    def problems(self) -> list[str]:
        """Return why this worker makes no progress; nothing when it does."""
        condition = self._vitals.condition
        # A worker that gets through work, or has no slot free, makes progress: Redis is not asked for that.
        is_idle = min(condition.free_for_s, condition.still_for_s) > START_S
        waiting = (self._waiting() if is_idle else None) or NOTHING_WAITS
        return problems(condition, block_s=self._block_s, waiting=waiting.count, waiting_s=waiting.for_s)


NOTHING_WAITS = Waiting(count=0, for_s=0.0)


def _verdict(reasons: list[str]) -> Answer:
    if not reasons:
        return 200, _TEXT, b"ok\n"
    return 503, _TEXT, "".join(f"{reason}\n" for reason in reasons).encode()


@contextlib.contextmanager
def serving(port: int, answer: Callable[[str], Answer]) -> Iterator[int]:
    """Serve on 127.0.0.1 in threads of their own, and yield the port.

    Args:
        port: 0 takes a free one.
        answer: called in a thread per request; must not wait for the trio thread.

    Raises:
        ConfigurationError: the port cannot be had.
    """
    try:
        server = _Server((ADDRESS, port), _handler(answer))
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"metrics_port: cannot listen on {ADDRESS}:{port}: {error}; take another") from None
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away in the middle is no event."""


def _handler(answer: Callable[[str], Answer]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = WAIT_S
        server_version = "stagedoor"
        sys_version = ""

        def do_GET(self) -> None:
            status, content_type, body = answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the library looks for this name

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Say nothing: probes come every few seconds."""

    return Handler
