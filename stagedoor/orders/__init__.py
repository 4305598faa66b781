"""The order book: orders, their tickets, and the outbox, on SQLite or PostgreSQL.

The only room that knows SQL. A shop places, changes and refunds orders here, or
adds outbox rows on its own connection with `stagedoor.orders.outbox.add`;
handlers read the current order and commit tickets for exactly the version that
they read.
"""

from stagedoor.order import NewOrder, NewPosition
from stagedoor.orders import outbox
from stagedoor.orders.book import OrderBook, Summary
from stagedoor.orders.changes import Change, RefundPosition, Rename, Reseat, RotateToken
from stagedoor.orders.check import Finding, InvariantReport
from stagedoor.orders.engine import OrderBookUnavailable, open_engine
from stagedoor.orders.outbox import Backlog, Outbox, OutboxRow, ParkedRow, PublishedElsewhere, TransactionRequired
from stagedoor.orders.parse import format_line, parse_line, parse_order
from stagedoor.orders.store import TicketFileMissing, TicketStore, TicketStoreUnavailable
from stagedoor.orders.sweep import Leftover
from stagedoor.orders.tickets import NewTicket, Ticket, TokenState

__all__ = [
    "Backlog",
    "Change",
    "Finding",
    "InvariantReport",
    "Leftover",
    "NewOrder",
    "NewPosition",
    "NewTicket",
    "OrderBook",
    "OrderBookUnavailable",
    "Outbox",
    "OutboxRow",
    "ParkedRow",
    "PublishedElsewhere",
    "RefundPosition",
    "Rename",
    "Reseat",
    "RotateToken",
    "Summary",
    "Ticket",
    "TicketFileMissing",
    "TicketStore",
    "TicketStoreUnavailable",
    "TokenState",
    "TransactionRequired",
    "format_line",
    "open_engine",
    "outbox",
    "parse_line",
    "parse_order",
]
