"""How the order book is opened, read and written: the edge to the database.

Every writing transaction begins with a write, and one that must look first
begins with BEGIN IMMEDIATE. On SQLite a transaction that reads before it writes
cannot be saved once somebody else has written in between; on PostgreSQL it
decides on a state that is gone. No transaction is open during a render or a
call to Redis.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from stagedoor.errors import ConfigurationError, OrderError, Unavailable
from stagedoor.orders import schema

__all__ = ["Database", "OrderBookUnavailable", "open_engine"]

_BEGIN = "stagedoor_begin"
# Any constant does, as long as nobody else in the database uses it: "stagedoo" as bytes.
_SCHEMA_LOCK = 0x73746167_65646F6F
# The worker's handler threads, the relay, and whoever looks; SQLite connections are cheap.
_POOL_SIZE = 8
_POOL_OVERFLOW = 24
_CONNECT_S = 5


class OrderBookUnavailable(OrderError, Unavailable):
    """The database cannot serve this call now (down, locked for too long, full, read-only).

    Nothing was written unless the connection broke while a commit was under way.
    Every call of the order book that a handler or the relay makes may be repeated.
    """


def open_engine(url: str, *, busy_timeout_s: float = 30.0) -> Engine:
    """Return an engine with the settings that the order book needs; shops may use it for their own tables.

    On SQLite: WAL, ``synchronous=FULL``, foreign keys, a busy timeout, and an
    explicit BEGIN before the first statement of each transaction, so that
    savepoints and rollbacks do what they say (the driver's own way of beginning
    commits at the release of a savepoint that comes first).

    Args:
        url: ``sqlite:///path/to/file.db`` or ``postgresql://user@host/name``.
        busy_timeout_s: how long a SQLite writer waits for another one, in seconds.

    Raises:
        ConfigurationError: the address, its driver or its folder will not do.
    """
    address = _address(url)
    try:
        if address.get_backend_name() == "sqlite":
            return _sqlite_engine(address, busy_timeout_s)
        return _postgresql_engine(address)
    except ImportError as error:
        raise ConfigurationError(
            f"orders_url: {_shown(address)} needs the Python package {error.name or address.get_driver_name()!r}, which"
            " is not installed; for PostgreSQL: pip install 'stagedoor[postgres]'"
        ) from None


class Database:
    """One engine with its way to read and to write; may be used by many threads at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"
        # SQLite has one writer at a time. Its busy handler polls and is not fair, so the
        # threads of one process queue here first; the processes still meet at the file.
        self._writers = threading.Lock() if self.is_sqlite else None
        self._closing = threading.Lock()
        self._is_closed = False

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a short transaction for reading; one statement sees one state of the book."""
        with _mapped(), self._watched(), self.engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a transaction in which all statements see the same state."""
        options: dict[str, Any] = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with _mapped(), self._watched(), self.engine.connect().execution_options(**options) as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that commits at the end of the block and rolls back when it raises.

        Its first statement must be one that writes.
        """
        turn = self._writers or contextlib.nullcontext()
        with _mapped(), self._watched(), turn, self.engine.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections: those at rest now, one that a call has out as soon as that call is over.

        A call that was left behind at a cancellation may still be at work; it ends as it would have.
        Safe to repeat.
        """
        with self._closing:
            self._is_closed = True
        self.engine.pool.dispose()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Close what a call leaves in the pool after the database was closed.

        Its connection is back in the pool before it looks: either it sees that the database
        is closed, or that was said later, and then `close` finds the connection.
        """
        try:
            yield
        finally:
            with self._closing:
                is_closed = self._is_closed
            if is_closed:
                self.engine.pool.dispose()


@contextlib.contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise OrderBookUnavailable(f"the order book's database cannot serve this call now: {reason}") from error


# -- addresses ----------------------------------------------------------------


def _address(url: str) -> URL:
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "orders_url: the value is no database address; expected something like sqlite:///stagedoor.db or"
            " postgresql://user@host/name"
        ) from None
    if address.drivername in {"postgres", "postgresql"}:
        address = address.set(drivername="postgresql+psycopg")
    if address.get_backend_name() not in {"sqlite", "postgresql"}:
        raise ConfigurationError(
            f"orders_url: {address.drivername!r} is not supported; expected sqlite:///… or postgresql://…"
        )
    _check_driver(address)
    return address


def _check_driver(address: URL) -> None:
    try:
        is_async = address.get_dialect().is_async
    except NoSuchModuleError:
        raise ConfigurationError(f"orders_url: there is no driver {address.drivername!r}") from None
    if is_async:
        raise ConfigurationError(
            f"orders_url: {address.drivername!r} is a driver for asyncio; expected sqlite:///… or postgresql://…"
        )


def _shown(address: URL) -> str:
    return address.render_as_string(hide_password=True)


# -- SQLite -------------------------------------------------------------------


def _sqlite_engine(address: URL, busy_timeout_s: float) -> Engine:
    if address.database in {None, "", ":memory:"} or "mode=memory" in str(address):
        raise ConfigurationError(
            f"orders_url: {_shown(address)} is a database in memory, which other threads and processes cannot see;"
            " expected a file, such as sqlite:///stagedoor.db"
        )
    folder = Path(str(address.database)).absolute().parent
    if not folder.is_dir():
        raise ConfigurationError(f"orders_url: {_shown(address)}: there is no folder {folder}; make it first")
    engine = sa.create_engine(
        address,
        # The driver begins nothing by itself: `_begin` does, with a word of ours.
        connect_args={"isolation_level": None, "timeout": busy_timeout_s, "check_same_thread": False},
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_OVERFLOW,
        # An error message must not carry a buyer's name into a log.
        hide_parameters=True,
    )
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin)
    return engine


def _set_pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        _use_wal(cursor)
    finally:
        cursor.close()


def _use_wal(cursor: Any) -> None:
    """Switch the file to WAL, which lasts; the switch itself does not wait for others, so it is tried again."""
    deadline = time.monotonic() + _CONNECT_S
    while True:
        mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
        if mode == "wal":
            return
        try:
            mode = cursor.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise ConfigurationError(
                f"orders_url: SQLite cannot use a write-ahead log on this file (it stays in {mode!r} mode); put it on a"
                " local disk"
            )


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get(_BEGIN, '')}")


# -- PostgreSQL ---------------------------------------------------------------


def _postgresql_engine(address: URL) -> Engine:
    return sa.create_engine(
        address,
        # The conditional writes lean on it: an UPDATE that waited looks at its row again.
        isolation_level="READ COMMITTED",
        connect_args={} if "connect_timeout" in address.query else {"connect_timeout": _CONNECT_S},
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_OVERFLOW,
        pool_pre_ping=True,
        hide_parameters=True,
    )


# -- the schema ---------------------------------------------------------------


def create_schema(database: Database) -> str:
    """Create what is missing, and return the book's id; safe when several processes do it at once.

    Raises:
        ConfigurationError: the database cannot be opened, or holds tables of somebody else.
    """
    shown = _shown(database.engine.url)
    try:
        with database.engine.connect().execution_options(**{_BEGIN: "IMMEDIATE"}) as connection, connection.begin():
            if not database.is_sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK)))
            schema.metadata.create_all(connection)
            _check_columns(connection, shown)
            return _book_id(connection, shown)
    except DBAPIError as error:
        raise ConfigurationError(f"orders_url: cannot open the order book {shown}: {error.orig}") from error


def _check_columns(connection: Connection, shown: str) -> None:
    inspector = sa.inspect(connection)
    for table in schema.metadata.sorted_tables:
        found = {column["name"] for column in inspector.get_columns(table.name)}
        missing = [column.name for column in table.columns if column.name not in found]
        if missing:
            raise ConfigurationError(
                f"orders_url: {shown} holds a table {table.name!r} that is not Stagedoor's (no column"
                f" {', '.join(missing)}); give the order book a database or a schema of its own"
            )


def _book_id(connection: Connection, shown: str) -> str:
    kept = {row.key: row.value for row in connection.execute(sa.select(schema.book))}
    if not kept:
        kept = {"id": secrets.token_hex(8), "schema": schema.SCHEMA_VERSION}
        connection.execute(schema.book.insert(), [{"key": key, "value": value} for key, value in kept.items()])
    if kept.get("schema") != schema.SCHEMA_VERSION:
        raise ConfigurationError(
            f"orders_url: the order book {shown} has schema {kept.get('schema')!r}, this release needs"
            f" {schema.SCHEMA_VERSION!r}; run the release that made it"
        )
    return str(kept["id"])
