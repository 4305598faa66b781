"""What the tests of the shop half share: data, a clock, and books on SQLite and PostgreSQL."""

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from stagedoor.order import Order, Position
from stagedoor.orders import NewTicket, OrderBook


def order_data(*, positions: int | list[dict[str, Any]] = 1, **changes: Any) -> dict[str, Any]:
    """Return the data of an order with these positions, or this many."""
    if isinstance(positions, int):
        positions = [position_data(number) for number in range(1, positions + 1)]
    data: dict[str, Any] = {
        "event": {
            "name": "Die Zauberflöte",
            "venue": "Opernhaus",
            "starts_at": "2026-07-01T18:00:00Z",
            "doors_at": None,
            "tz": "Europe/Berlin",
        },
        "locale": "de-DE",
        "currency": "EUR",
        "buyer": "Zoë Šimková",
        "positions": positions,
    }
    return data | changes


def position_data(number: int, **changes: Any) -> dict[str, Any]:
    """Return the data of one position."""
    data = {
        "id": number,
        "holder": f"Holder {number}",
        "category": "Parkett",
        "seat": {"zone": None, "row": "C", "number": str(number)},
        "amount_minor": 4500,
        "addon_to": None,
    }
    return data | changes


@attrs.define
class Clock:
    """A clock that stands until it is moved."""

    now: float = 1_780_000_000.0

    def __call__(self) -> float:
        return self.now


def content_of(order: Order, position: Position) -> bytes:
    """Return what stands for the PDF of a ticket: it tells the position's version, holder and token apart."""
    return f"{order.order_id} {position.version} {position.id} {position.holder} {position.token}".encode()


def write_tickets(book: OrderBook, order: Order, *, key: str = "k1") -> list[NewTicket]:
    """Write the files of an order's placed positions, as a handler does."""
    files = []
    for position in order.placed_positions:
        path = book.store.path(order.order_id, position.id, version=order.version, key=key, suffix=".pdf")
        book.store.write(path, content_of(order, position))
        files.append(NewTicket(position_id=position.id, path=path, content_key=key, content_type="application/pdf"))
    return files


def issue(book: OrderBook, order: Order) -> bool:
    """Write and commit the tickets of an order, as a handler does."""
    return book.commit_tickets(order, write_tickets(book, order))


@contextmanager
def fast_folder() -> Iterator[Path]:
    """Yield a new folder, in memory where that is possible: the tests fsync a lot."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="stagedoor-", dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


# -- PostgreSQL ---------------------------------------------------------------


def postgres_reason() -> str | None:
    """Return why there can be no private PostgreSQL, or None."""
    if _program("initdb") is None or shutil.which("setpriv") is None:
        return "no PostgreSQL server is installed, or no setpriv"
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    if os.geteuid() == 0 and _account() is None:
        return "PostgreSQL does not run as root, and there is no account 'postgres'"
    return None


@attrs.define
class Postgres:
    """A private PostgreSQL server on a unix socket; each schema is an order book's own database."""

    folder: Path
    _count: Iterator[int] = attrs.field(factory=itertools.count)
    _process: subprocess.Popen[bytes] | None = None

    def new_url(self) -> str:
        """Return the address of a new, empty schema."""
        schema = f"book{next(self._count)}"
        psql = [_required("psql"), "-q", "-h", str(self.folder), "-U", "stagedoor", "-d", "postgres"]
        subprocess.run([*psql, "-c", f"CREATE SCHEMA {schema}"], check=True)
        options = urllib.parse.quote(f"-csearch_path={schema} -clock_timeout=5000")
        return f"postgresql://stagedoor@/postgres?host={self.folder}&options={options}"

    def start(self) -> None:
        """Make the data folder and start the server."""
        if _account():
            shutil.chown(self.folder, "postgres")
        data = self.folder / "data"
        _run("initdb", "-D", str(data), "-A", "trust", "-U", "stagedoor", "--no-sync", "-E", "UTF8")
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "fsync=off"]
        options = [part for setting in settings for part in ("-c", setting)]
        # A run that is killed must not leave a server behind.
        program = ["setpriv", "--pdeathsig", "QUIT", _required("postgres"), "-D", str(data), *options]
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(program, stdout=log, stderr=log, user=_account(), cwd="/")
        ready = [_required("pg_isready"), "-q", "-h", str(self.folder)]
        while subprocess.run(ready, check=False).returncode != 0:
            if self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server at once; nobody needs its data any more."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)


def private_postgres(config: pytest.Config) -> Postgres:
    """Return the run's private PostgreSQL; the first to ask starts it, the end of the run stops it."""
    reason = postgres_reason()
    if reason:
        pytest.skip(reason)
    if _POSTGRES not in config.stash:
        # A short path: that of a unix socket has 107 bytes at most.
        folder = Path(tempfile.mkdtemp(prefix="postgres-of-a-test-", dir="/tmp"))
        server = Postgres(folder)
        server.start()
        config.stash[_POSTGRES] = server
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.add_cleanup(server.stop)
    return config.stash[_POSTGRES]


_POSTGRES = pytest.StashKey[Postgres]()


def _account() -> str | None:
    import pwd

    if os.geteuid() != 0:
        return None
    return "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else None


def _program(name: str) -> str | None:
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(versions[0]) if versions else shutil.which(name)


def _required(name: str) -> str:
    program = _program(name)
    assert program, f"PostgreSQL comes without {name}"
    return program


def _run(name: str, *arguments: str) -> None:
    subprocess.run([_required(name), *arguments], check=True, stdout=subprocess.DEVNULL, user=_account(), cwd="/")
