"""The worker and the relay as real processes: they do their work, stop when asked, and say what is wrong."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from stagedoor.broker.connection import Link
from stagedoor.cli import plugins, wiring
from stagedoor.cli.app import run
from stagedoor.events import Event, EventStream, Warned
from stagedoor.orders import OrderBook
from stagedoor.rendering.registry import Registry
from tests.cli.fixtures import Start
from tests.process.support import wait_until
from tests.support.orders import NACHTMUSIK
from tests.support.redis_server import StartRedis

pytestmark = [pytest.mark.process, pytest.mark.redis]

HANDLERS = """
    import threading
    import stagedoor

    @stagedoor.handler("forever")
    def forever(job, ctx):
        # A thread that is no daemon: an ordinary exit would wait for it.
        threading.Thread(target=threading.Event().wait, daemon=False).start()
        ctx.log.info("it_began")
        threading.Event().wait()

    @stagedoor.handler("awaited")
    async def awaited(job, ctx):
        order = await ctx.orders.get(job.order_id)
        ctx.log.info("it_was_awaited", version=order.version)
"""


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    """The order book that the processes of this test open."""
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


@pytest.fixture
def handlers(tmp_path: Path) -> str:
    """A plugin module with handlers of its own."""
    (tmp_path / "test_handlers.py").write_text(textwrap.dedent(HANDLERS))
    return "test_handlers"


def add_row(book: OrderBook, kind: str, order_id: int) -> None:
    """Add an outbox row as a shop does."""
    from stagedoor.orders import outbox

    with book._database.engine.begin() as connection:
        outbox.add(connection, kind, order_id)


# -- working ----------------------------------------------------------------------


def test_an_order_becomes_a_ticket_through_relay_and_worker_and_a_refund_voids_it(
    start: Start, book: OrderBook
) -> None:
    order = book.place(NACHTMUSIK, request_id="r-1")
    worker = start("--relay", "--slots", "4", "--log-format", "json")
    worker.wait_for('"outcome":"done"')
    [ticket] = book.tickets(order.order_id)
    assert ticket.state == "valid"
    assert book.store.read(ticket.path).startswith(b"%PDF-")
    assert '"request_id":"r-1"' in worker.wait_for('"outcome":"done"')

    book.refund(order.order_id)
    worker.wait_for('"outcome":"done"', count=2)
    assert [each.state for each in book.tickets(order.order_id)] == ["void"]
    assert book.check_invariant().is_sound

    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert '"event":"worker_stopped"' in worker.said().splitlines()[-1]


def test_a_relay_alone_publishes_and_ends_at_once_when_asked(start: Start, book: OrderBook) -> None:
    relay = start("relay", "--log-level", "debug")
    relay.wait_for("relay reads the outbox")
    book.place(NACHTMUSIK)
    relay.wait_for("1 outbox row published")
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0
    assert "the relay has stopped (SIGTERM)" in relay.said()


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """The end for writing of a pipe that takes nothing any more, for nobody reads it."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    yield writing
    os.close(reading)
    os.close(writing)


def test_a_log_that_nobody_reads_keeps_no_relay_from_working_and_ending(
    environ: dict[str, str], book: OrderBook, tmp_path: Path, full_pipe: int
) -> None:
    book.place(NACHTMUSIK)
    command = [sys.executable, "-m", "stagedoor", "relay", "--log-level", "debug"]
    with (
        subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=full_pipe) as relay,
        # The client's own limit is shorter than the read.
        Redis.from_url(environ["STAGEDOOR_REDIS_URL"], socket_timeout=70) as client,
    ):
        try:
            assert client.xread({environ["STAGEDOOR_NAMESPACE"]: "0"}, block=60_000)
            relay.send_signal(signal.SIGTERM)
            assert relay.wait(60) == 0
        finally:
            relay.kill()


def test_a_log_that_nobody_reads_keeps_no_worker_from_drawing_and_ending(
    environ: dict[str, str], book: OrderBook, tmp_path: Path, full_pipe: int
) -> None:
    orders = [book.place(NACHTMUSIK).order_id for _ in range(3)]
    command = [sys.executable, "-m", "stagedoor", "--relay", "--slots", "2", "--log-level", "debug"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=full_pipe) as worker:
        try:
            wait_until(lambda: all(book.tickets(order_id) for order_id in orders))
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
        finally:
            worker.kill()
    assert book.check_invariant().is_sound


def test_plugins_run_and_a_handler_that_never_returns_does_not_keep_the_process(
    start: Start, book: OrderBook, handlers: str
) -> None:
    order = book.place(NACHTMUSIK)
    add_row(book, "awaited", order.order_id)
    worker = start("--relay", "--plugins", handlers, "--log-format", "json")
    assert '"version":1' in worker.wait_for("it_was_awaited")
    worker.wait_for('"outcome":"done"', count=2)
    add_row(book, "forever", order.order_id)
    worker.wait_for("it_began")
    worker.signal(signal.SIGTERM)
    assert '"held":1' in worker.wait_for("worker_stopping")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert '"released":1' in worker.wait_for("worker_stopped")


# -- Redis and its weather -----------------------------------------------------------


def test_a_worker_waits_for_a_redis_that_is_away_and_goes_on_when_it_is_there(
    start: Start, book: OrderBook, start_redis: StartRedis
) -> None:
    server = start_redis()
    server.kill()
    order = book.place(NACHTMUSIK)
    worker = start("--relay", redis_url=server.url)
    line = worker.wait_for("Redis cannot be used")
    assert server.url in line
    assert "set STAGEDOOR_REDIS_URL" in line
    server.start()
    worker.wait_for("Redis is back")
    worker.wait_for("done     render_tickets")
    assert [ticket.state for ticket in book.tickets(order.order_id)] == ["valid"]
    assert worker.said().count("Redis cannot be used") == 1
    # Worker and relay meet the same outage: it is told once.
    server.kill()
    book.place(NACHTMUSIK)
    worker.wait_for("Redis cannot be used", count=2)
    time.sleep(2.5)  # whoever tells of it for itself does so at its next try after a second of failing
    server.start()
    worker.wait_for("Redis is back", count=2)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert [worker.said().count(line) for line in ("Redis cannot be used", "Redis is back")] == [2, 2]


def test_a_relay_that_waits_for_redis_stops_when_asked(start: Start, start_redis: StartRedis) -> None:
    server = start_redis()
    server.kill()
    relay = start("relay", redis_url=server.url)
    relay.wait_for("Redis cannot be used")
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0


async def test_a_redis_that_evicts_keys_is_warned_of(start_redis: StartRedis) -> None:
    link = Link(start_redis("--maxmemory-policy", "allkeys-lru").url, block_ms=0)
    told: list[Event] = []
    await wiring.check_server(link, EventStream(told.append))
    [event] = told
    assert isinstance(event, Warned)
    assert "maxmemory-policy is 'allkeys-lru'" in event.message
    assert "set maxmemory-policy noeviction" in event.message
    link.close()


# -- what is wrong with the set-up: exit code 2, lines, no traceback --------------------


def test_everything_that_is_wrong_is_said_at_once(start: Start, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    (tmp_path / "bad_plugin.py").write_text("import not_there_at_all")
    folder = str(tmp_path / "occupied" / "tickets")
    worker = start("--tickets-dir", folder, "--plugins", "bad_plugin", "--redis-url", "redis://u:secret@h:port")
    assert worker.wait() == 2
    lines = worker.said().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("stagedoor: ") for line in lines)
    said = worker.said()
    assert "redis_url: 'redis://u:***@h:port' is not understood" in said
    assert f"tickets_dir: cannot write to {folder}" in said
    assert (
        "the module bad_plugin could not be imported: ModuleNotFoundError: No module named 'not_there_at_all'" in said
    )


def test_an_unknown_setting_ends_every_command(start: Start) -> None:
    process = start("relay", slotz="4")
    assert process.wait() == 2
    assert process.said() == "stagedoor: STAGEDOOR_SLOTZ: there is no such setting; did you mean STAGEDOOR_SLOTS?"


@pytest.fixture
def in_process(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a worker that cannot start in this very process, where things can be replaced."""
    monkeypatch.chdir(tmp_path)
    for name, value in environ.items():
        if name.startswith("STAGEDOOR_"):
            monkeypatch.setenv(name, value)
    return lambda *words: run(["worker", *words])


def test_a_server_that_is_too_old_is_refused(
    in_process: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    light = plugins.Plugins(handlers={}, registry=Registry())
    monkeypatch.setattr(wiring, "load_plugins", lambda *_, **__: light)
    monkeypatch.setattr(Redis, "info", lambda *_: {"redis_version": "6.2.14"})
    assert in_process() == 2
    [line] = [line for line in capfd.readouterr().err.splitlines() if line.startswith("stagedoor: ")]
    assert "this server is Redis 6.2.14; Stagedoor needs Redis 7.0" in line


def test_a_package_that_turned_the_gil_on_is_named_and_the_worker_does_not_start(
    in_process: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    text = "The global interpreter lock (GIL) has been enabled to load module 'redis.speedups', which has not declared"
    (tmp_path / "turns_the_gil_on.py").write_text(
        f"import stagedoor, warnings\nwarnings.warn({text!r}, RuntimeWarning)\n"
        "@stagedoor.handler('k')\ndef k(job, ctx): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_can_do_without", lambda: True)
    monkeypatch.setattr(plugins, "_is_gil_enabled", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_process("--plugins", "turns_the_gil_on") == 2
    [line] = capfd.readouterr().err.splitlines()
    assert "the GIL is on: the package redis " in line
    assert "uninstall it" in line
