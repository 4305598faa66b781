"""The outbox: rows written with the order, and what the relay does with them.

A row waits while it is neither published nor parked. The relay asks for waiting
rows, adds each to the stream, and marks it afterwards with the entry's id and
the sequence number that Redis counted. Rows are chosen by that state alone: ids
are handed out before their transactions commit, so a row may become visible
after one with a higher id, and a cursor over ids would have passed it.

No call here keeps a transaction open when it returns.
"""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from stagedoor.errors import ConfigurationError, InvalidOrder, OrderError
from stagedoor.orders.engine import Database
from stagedoor.orders.parse import Problem, check_id, check_text
from stagedoor.orders.schema import book, outbox

__all__ = ["Backlog", "Outbox", "OutboxRow", "ParkedRow", "PublishedElsewhere", "TransactionRequired", "add"]

_KIND = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MAX_TEXT = 128
_OFFER_AGAIN_S = 48 * 3600
_PRUNE_BATCH = 5_000
_MAX_ERROR = 2_000

type Clock = Callable[[], float]


class TransactionRequired(OrderError):
    """An outbox row was to be added outside of a transaction: it would be there without its order, or the reverse."""


class PublishedElsewhere(ConfigurationError):
    """The book's rows are published in another namespace; two relays would take each other's counts for losses."""

    def __init__(self, *, found: str, wanted: str) -> None:
        super().__init__(
            f"namespace: this order book is published in {found!r}, and this relay is set to {wanted!r}; set"
            f" STAGEDOOR_NAMESPACE={found}, or move the book: stop the relays of {found!r}, then start one with"
            f" python -m stagedoor relay --namespace {wanted} --move-book"
        )


@attrs.frozen(kw_only=True)
class OutboxRow:
    """One row that waits to be published; everything but the two ids is text as the entry carries it."""

    outbox_id: int
    kind: str
    order_id: int
    request_id: str
    trace: str


@attrs.frozen(kw_only=True)
class ParkedRow:
    """One row that was set aside, and why."""

    row: OutboxRow
    parked_at: float
    error: str


@attrs.frozen(kw_only=True)
class Backlog:
    """What has not been published: rows waiting, rows parked, and the age in seconds of the oldest waiting one."""

    waiting: int
    parked: int
    oldest_age_s: float | None


# -- the shop's side ----------------------------------------------------------


def add(
    connection: Connection,
    kind: str,
    order_id: int,
    request_id: str = "",
    trace: str = "",
    *,
    clock: Clock = time.time,
) -> int:
    """Add an outbox row inside the caller's transaction, and return its id.

    The connection is the shop's own, of any database that holds the ``outbox``
    table (``stagedoor.orders.schema.outbox``). On SQLite with savepoints use an
    engine from `stagedoor.orders.open_engine`: the driver's default way of
    beginning transactions commits at the release of a savepoint that comes first.

    Args:
        connection: inside a transaction that the caller has begun.
        kind: what to do: 1 to 64 letters, digits, dots, underscores and dashes.
        order_id: 1 to 2^63-1.
        request_id: joins log lines to the request; printable, up to 128 characters.
        trace: as *request_id*, for the trace.
        clock: gives the time of the row, in seconds since the epoch.

    Raises:
        TransactionRequired: there is no transaction, or the connection commits by itself.
        InvalidOrder: names the argument that will not do.

    **Durability**: the row is there exactly if the caller's transaction commits.
    """
    _check_transaction(connection)
    row = make_row(kind, order_id, request_id=request_id, trace=trace, now=clock())
    result = connection.execute(outbox.insert(), row)
    key = result.inserted_primary_key
    assert key is not None, "a single insert has a key"
    return int(key[0])


def make_row(kind: str, order_id: int, *, request_id: str, trace: str, now: float) -> dict[str, Any]:
    """Return the checked values of a new row.

    Raises:
        InvalidOrder: names the argument that will not do.
    """
    problems = [*_kind_problems(kind), *check_id("order_id", order_id)]
    problems += [*_label_problems("request_id", request_id), *_label_problems("trace", trace)]
    if problems:
        raise InvalidOrder("; ".join(f"{field}: {problem}" for field, problem in problems))
    return {"kind": kind, "order_id": order_id, "request_id": request_id, "trace": trace, "created_at": now}


def _kind_problems(kind: object) -> list[Problem]:
    if isinstance(kind, str) and _KIND.fullmatch(kind):
        return []
    return [("kind", f"expected 1 to 64 letters, digits, '.', '_' or '-', found {ascii(kind)[:80]}")]


def _label_problems(field: str, value: object) -> list[Problem]:
    problems = list(check_text(field, value, _MAX_TEXT))
    if not problems and isinstance(value, str) and not value.isprintable():
        problems.append((field, "holds a character that cannot be printed"))
    return problems


def _check_transaction(connection: Connection) -> None:
    advice = "; add the row between BEGIN and COMMIT of the order: with engine.begin() as connection: …"
    if not connection.in_transaction():
        raise TransactionRequired("outbox.add: the connection is not inside a transaction" + advice)
    if _commits_by_itself(connection):
        raise TransactionRequired("outbox.add: the connection is in autocommit mode" + advice)


def _commits_by_itself(connection: Connection) -> bool:
    """Ask the driver, for SQLAlchemy speaks of a transaction in autocommit mode, too."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    driver: Any = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite":
        # Without an isolation level the driver begins nothing: somebody must have said BEGIN.
        begins_by_itself = driver.isolation_level is not None and driver.autocommit is not True
        return not begins_by_itself and not driver.in_transaction
    return getattr(driver, "autocommit", False) is True


# -- the relay's side ---------------------------------------------------------


class Outbox:
    """What the relay needs; may be used by several threads and several relays at once.

    Every method may be repeated after `OrderBookUnavailable`.
    """

    def __init__(self, database: Database, *, book_id: str, clock: Clock) -> None:
        self._database = database
        self._book_id = book_id
        self._clock = clock

    def book_id(self) -> str:
        """Return the random id that this order book was given when it was made."""
        return self._book_id

    def namespace(self) -> str | None:
        """Return the namespace that the book's rows are published in, None before there was a relay."""
        with self._database.read() as connection:
            return connection.scalar(_NAMESPACE)

    def publish_in(self, namespace: str, *, is_moving: bool = False) -> None:
        """Let the book remember that its rows are published in this namespace.

        Args:
            namespace: of the stream; the relay's own.
            is_moving: let it take the place of another one. The counts of the old namespace are
                forgotten, for in the new one they would look like a loss; rows that wait go to the new one.

        Raises:
            PublishedElsewhere: the rows are published in another namespace, and *is_moving* is false.

        **Durability**: on disk when it returns. Safe to repeat, and by several relays at once.
        """
        if self.namespace() == namespace:
            return
        with self._database.write() as connection:
            # Of two first relays one waits here, and then sees what the other has written.
            connection.execute(book.update().where(book.c.key == "id").values(value=book.c.value))
            found = connection.scalar(_NAMESPACE)
            if found is None:
                connection.execute(book.insert(), {"key": _NAMESPACE_KEY, "value": namespace})
            elif found != namespace:
                if not is_moving:
                    raise PublishedElsewhere(found=found, wanted=namespace)
                connection.execute(book.update().where(book.c.key == _NAMESPACE_KEY).values(value=namespace))
                connection.execute(outbox.update().where(outbox.c.seq.is_not(None)).values(seq=None))

    def pending(self, limit: int = 200) -> list[OutboxRow]:
        """Return waiting rows, those with the lowest ids first; nothing is marked or kept locked.

        Args:
            limit: how many at most.
        """
        statement = sa.select(*_ROW).where(*_IS_WAITING).order_by(outbox.c.id).limit(limit)
        with self._database.read() as connection:
            # Another relay that is marking rows just now holds them locked: they need nobody.
            return [_to_row(row) for row in connection.execute(statement.with_for_update(skip_locked=True))]

    def mark_published(self, published: Iterable[tuple[int, str | None, int | None]]) -> int:
        """Mark rows as published, and return how many were not yet.

        Args:
            published: outbox id, id of the stream's entry and the sequence number that Redis
                counted, for each; the latter two may be None where Redis had the row already.

        **Durability**: all of them or none. Safe to repeat: the first mark stays.
        """
        now = self._clock()
        rows = [
            {"row": row, "entry": entry, "count": seq, "now": now} for row, entry, seq in sorted(published, key=_id)
        ]
        if not rows:
            return 0
        statement = (
            outbox.update()
            .where(outbox.c.id == sa.bindparam("row"), outbox.c.published_at.is_(None))
            .values(
                published_at=sa.bindparam("now"),
                entry_id=sa.bindparam("entry"),
                seq=sa.bindparam("count"),
                parked_at=None,
                error=None,
            )
        )
        with self._database.write() as connection:
            return connection.execute(statement, rows).rowcount

    def park(self, outbox_id: int, error: str) -> None:
        """Set a waiting row aside that can never be published, so that the others flow past it.

        Args:
            outbox_id: the row.
            error: why; kept with the row, up to 2,000 characters.
        """
        shown = error[:_MAX_ERROR].encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        with self._database.write() as connection:
            connection.execute(
                outbox.update()
                .where(outbox.c.id == outbox_id, *_IS_WAITING)
                .values(parked_at=self._clock(), error=shown)
            )

    def unpark(self, outbox_id: int) -> bool:
        """Let a parked row wait again, and return whether there was one."""
        parked = (outbox.c.id == outbox_id, outbox.c.published_at.is_(None), outbox.c.parked_at.is_not(None))
        with self._database.write() as connection:
            changed = connection.execute(outbox.update().where(*parked).values(parked_at=None, error=None))
            return changed.rowcount == 1

    def parked(self, limit: int = 200) -> list[ParkedRow]:
        """Return parked rows, those with the lowest ids first."""
        statement = (
            sa.select(*_ROW, outbox.c.parked_at, outbox.c.error)
            .where(outbox.c.published_at.is_(None), outbox.c.parked_at.is_not(None))
            .order_by(outbox.c.id)
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(statement).all()
        return [ParkedRow(row=_to_row(row), parked_at=row.parked_at, error=row.error) for row in rows]

    def highest_seq(self, namespace: str | None = None) -> int:
        """Return the highest sequence number that Redis confirmed, 0 if none is kept.

        Args:
            namespace: the one that the caller publishes in, None for somebody who only looks.

        Raises:
            PublishedElsewhere: the book has been moved to another namespace; what it keeps
                says nothing of the caller's any more.
        """
        with self._database.read() as connection:
            seq, found = connection.execute(_HIGHEST_SEQ).one()
        if namespace is not None and found not in {None, namespace}:
            raise PublishedElsewhere(found=found, wanted=namespace)
        return int(seq)

    def offer_again(self, above_seq: int, *, within_s: float = _OFFER_AGAIN_S) -> int:
        """Let rows wait again that Redis had confirmed and has lost, and return how many.

        To be called before the reply that showed the loss is marked, with the
        number that Redis must have fallen back to: one less than the lowest
        number in that reply.

        Args:
            above_seq: rows with a higher sequence number were lost.
            within_s: how far back, in seconds. Older rows stay published and only lose their
                number, which says nothing any more: else it would look like a loss for ever.

        **Durability**: all of them or none. Safe to repeat.
        """
        lost = outbox.c.seq > above_seq
        recent = outbox.c.published_at >= self._clock() - within_s
        with self._database.write() as connection:
            again = connection.execute(
                outbox.update().where(lost, recent).values(published_at=None, entry_id=None, seq=None)
            )
            connection.execute(outbox.update().where(lost).values(seq=None))
            return again.rowcount

    def backlog(self) -> Backlog:
        """Return what has not been published."""
        waits = sa.case((outbox.c.parked_at.is_(None), 1), else_=0)
        since = sa.case((outbox.c.parked_at.is_(None), outbox.c.created_at))
        statement = sa.select(sa.func.coalesce(sa.func.sum(waits), 0), sa.func.count(), sa.func.min(since)).where(
            outbox.c.published_at.is_(None)
        )
        with self._database.read() as connection:
            waiting, total, oldest = connection.execute(statement).one()
        age_s = None if oldest is None else max(0.0, self._clock() - oldest)
        return Backlog(waiting=int(waiting), parked=total - int(waiting), oldest_age_s=age_s)

    def waiting_ids(self) -> tuple[int, int] | None:
        """Return the lowest and the highest id of the rows that have not been published, None where all have."""
        ids = sa.select(sa.func.min(outbox.c.id), sa.func.max(outbox.c.id)).where(outbox.c.published_at.is_(None))
        with self._database.read() as connection:
            lowest, highest = connection.execute(ids).one()
        return None if lowest is None else (lowest, highest)

    def prune(self, older_than_s: float) -> int:
        """Remove rows that were published longer ago than this, and return how many.

        Args:
            older_than_s: at least 48 hours, in seconds: until then a row may have to be offered again.

        Raises:
            ValueError: *older_than_s* is less.

        **Durability**: batch after batch; a crash leaves the rest for the next call.
        """
        if older_than_s < _OFFER_AGAIN_S:
            raise ValueError(f"older_than_s: expected at least {_OFFER_AGAIN_S} (48 hours), found {older_than_s}")
        old = outbox.c.published_at < self._clock() - older_than_s
        batch = sa.select(outbox.c.id).where(old).order_by(outbox.c.id).limit(_PRUNE_BATCH)
        removed = 0
        while True:
            with self._database.write() as connection:
                gone = connection.execute(outbox.delete().where(outbox.c.id.in_(batch))).rowcount
            removed += gone
            if gone < _PRUNE_BATCH:
                return removed


_NAMESPACE_KEY = "namespace"
_NAMESPACE = sa.select(book.c.value).where(book.c.key == _NAMESPACE_KEY)
_HIGHEST_SEQ = sa.select(sa.func.coalesce(sa.func.max(outbox.c.seq), 0), _NAMESPACE.scalar_subquery())
_ROW = (outbox.c.id, outbox.c.kind, outbox.c.order_id, outbox.c.request_id, outbox.c.trace)
_IS_WAITING = (outbox.c.published_at.is_(None), outbox.c.parked_at.is_(None))


def _to_row(row: Any) -> OutboxRow:
    return OutboxRow(outbox_id=row.id, kind=row.kind, order_id=row.order_id, request_id=row.request_id, trace=row.trace)


def _id(published: Sequence[Any]) -> Any:
    """Two relays that mark the same rows must lock them in the same order."""
    return published[0]
