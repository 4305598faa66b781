"""The tables of an order book: one schema for SQLite and PostgreSQL.

- ``orders`` holds an order's version, its status, and ``issued``: the version
  that its valid tickets belong to, null while there are none.
- ``positions`` holds the admissions, each with the token that its ticket carries.
- ``tickets`` is append-only but for `state`: a row turns void and stays. The
  partial unique index lets the database refuse a second valid ticket.
- ``outbox`` holds what the relay owes to the stream.
- ``book`` holds the book's random id, the schema's version, and, from the first
  relay on, the namespace that its rows are published in.

Times are seconds since the epoch in UTC, as floats.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

__all__ = ["SCHEMA_VERSION", "book", "metadata", "orders", "outbox", "positions", "tickets"]

SCHEMA_VERSION = "1"
"""Raised with every change of these tables; a book of another version is refused at open."""

metadata = MetaData()

# SQLite hands out row ids only for a column of type INTEGER, which holds 64 bits there.
_Id = BigInteger().with_variant(Integer, "sqlite")

book = Table(
    "book",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

orders = Table(
    "orders",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("version", _Id, nullable=False),
    Column("status", Text, nullable=False),
    Column("issued", _Id),
    Column("event", Text, nullable=False),
    Column("locale", Text, nullable=False),
    Column("currency", Text, nullable=False),
    Column("buyer", Text, nullable=False),
    Column("receipt_number", Text),
    Column("taxes", Text, nullable=False),
    Column("placed_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("refunded_at", Double),
    CheckConstraint("status IN ('placed', 'refunded')", name="orders_status"),
)

positions = Table(
    "positions",
    metadata,
    Column("order_id", _Id, ForeignKey("orders.id"), primary_key=True, autoincrement=False),
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("place", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    Column("category", Text, nullable=False),
    Column("seat", Text),
    Column("amount_minor", _Id, nullable=False),
    Column("addon_to", _Id),
    Column("token", Text, nullable=False),
    Column("version", _Id, nullable=False),
    Column("status", Text, nullable=False),
    UniqueConstraint("token", name="positions_token"),
    CheckConstraint("status IN ('placed', 'refunded')", name="positions_status"),
)

tickets = Table(
    "tickets",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("order_id", _Id, ForeignKey("orders.id"), nullable=False),
    Column("position_id", _Id, nullable=False),
    Column("order_version", _Id, nullable=False),
    Column("token", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("content_key", Text, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("issued_at", Double, nullable=False),
    Column("voided_at", Double),
    Column("void_reason", Text),
    CheckConstraint("state IN ('valid', 'void')", name="tickets_state"),
)
Index("tickets_order", tickets.c.order_id)
Index("tickets_token", tickets.c.token)
_VALID = text("state = 'valid'")
Index(
    "tickets_one_valid",
    tickets.c.order_id,
    tickets.c.position_id,
    unique=True,
    sqlite_where=_VALID,
    postgresql_where=_VALID,
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("order_id", _Id, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("trace", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("published_at", Double),
    Column("entry_id", Text),
    Column("seq", _Id),
    Column("parked_at", Double),
    Column("error", Text),
    # An id must never come back after old rows were pruned: the relay remembers
    # published ids on Redis and would take the new row for a published one.
    sqlite_autoincrement=True,
)
_WAITING = text("published_at IS NULL")
_COUNTED = text("seq IS NOT NULL")
Index("outbox_waiting", outbox.c.id, sqlite_where=_WAITING, postgresql_where=_WAITING)
Index("outbox_seq", outbox.c.seq, sqlite_where=_COUNTED, postgresql_where=_COUNTED)
