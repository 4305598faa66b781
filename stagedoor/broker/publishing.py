"""The port of the relay: outbox rows into the stream, each at most once."""

import enum
from collections.abc import Sequence
from typing import Protocol

import attrs

from stagedoor.core.codec import Fields


@attrs.frozen
class OutboxEntry:
    """One row to publish: its id, and the entry's fields."""

    outbox_id: int
    fields: Fields


class Published(enum.Enum):
    """What became of one row."""

    ADDED = "added"
    DUPLICATE = "dup"
    """It has an entry already, or had one that was settled."""
    FULL = "full"
    """The stream is at its cap; the row waits in the outbox."""


@attrs.frozen
class PublishReply:
    """One row's answer; *seq* counts the rows that Redis has accepted up to and including this one."""

    what: Published
    entry_id: str
    seq: int


class Publishing(Protocol):
    """What the relay may ask of the broker; may raise `BrokerUnavailable`, after which repeat the call."""

    def publish(self, book_id: str, rows: Sequence[OutboxEntry]) -> tuple[int, tuple[PublishReply, ...]]:
        """Add one entry per row that has none and for which there is room.

        Returns:
            The count of accepted rows before this call, and an answer per row.

        **Durability**: entry, bit and count are written together; repeating a row answers `DUPLICATE`.
        """
        ...

    def confirmed_seq(self, book_id: str) -> int:
        """Return how many rows of this order book Redis has accepted; less than it once said means it lost some."""
        ...
