"""What the outbox remembers of orders and entries: for people who ask, not for the relay.

Published rows stay for a week. There is no index for these questions: they are
asked now and then, by hand.
"""

from collections.abc import Sequence
from typing import Any

import attrs
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from stagedoor.orders.engine import Database
from stagedoor.orders.outbox import OutboxRow
from stagedoor.orders.schema import outbox

__all__ = ["History", "OutboxRecord", "is_book"]

_MOST = 200
"""Rows of one order: a shop that changes an order more often looks at the last ones."""


@attrs.frozen(kw_only=True)
class OutboxRecord:
    """One row of the outbox, and what became of it; times are seconds since the epoch."""

    row: OutboxRow
    created_at: float
    published_at: float | None
    entry_id: str | None
    parked_at: float | None
    error: str | None

    @property
    def state(self) -> str:
        """``waiting``, ``parked`` or ``published``."""
        if self.published_at is not None:
            return "published"
        return "parked" if self.parked_at is not None else "waiting"


def is_book(database: Database) -> bool:
    """Return whether a database holds an order book; of one that cannot be read, say yes: opening it says why."""
    try:
        return sa.inspect(database.engine).has_table(outbox.name)
    except DBAPIError:
        return True


class History:
    """Reads the outbox; may be used by several threads at once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def row(self, outbox_id: int) -> OutboxRecord | None:
        """Return the row with this id, None when there is none (any more)."""
        return next(iter(self._rows(outbox.c.id == outbox_id)), None)

    def of_order(self, order_id: int) -> list[OutboxRecord]:
        """Return the rows of an order, oldest first; of very many the last ones."""
        return self._rows(outbox.c.order_id == order_id)

    def of_entries(self, entry_ids: Sequence[str]) -> list[OutboxRecord]:
        """Return the rows whose entries these are, or were."""
        return self._rows(outbox.c.entry_id.in_(entry_ids))

    def last(self, count: int) -> list[OutboxRecord]:
        """Return the last rows of all, oldest first."""
        return self._rows(sa.true(), limit=count)

    def _rows(self, condition: Any, *, limit: int = _MOST) -> list[OutboxRecord]:
        statement = sa.select(outbox).where(condition).order_by(outbox.c.id.desc()).limit(limit)
        with self._database.read() as connection:
            return [_record(row) for row in reversed(connection.execute(statement).all())]


def _record(row: Any) -> OutboxRecord:
    return OutboxRecord(
        row=OutboxRow(
            outbox_id=row.id, kind=row.kind, order_id=row.order_id, request_id=row.request_id, trace=row.trace
        ),
        created_at=row.created_at,
        published_at=row.published_at,
        entry_id=row.entry_id,
        parked_at=row.parked_at,
        error=row.error,
    )
