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

    def publish(
        self, book_id: str, rows: Sequence[OutboxEntry], *, at_least: int = 0
    ) -> tuple[int, tuple[PublishReply, ...]]:
        """Add one entry per row that has none and for which there is room.

        Args:
            book_id: of the order book whose outbox holds the rows.
            rows: at most a few hundred.
            at_least: how many rows the order book knows to be accepted. When Redis counts fewer it
                has lost some, and nothing is added: or its count would grow over the loss, and
                a relay that dies in this moment would be the only one to have seen it.

        Returns:
            The count of accepted rows before this call, and an answer per row; none when that
            count is below *at_least*.

        **Durability**: entry, bit and count are written together; repeating a row answers `DUPLICATE`.
        """
        ...

    def confirmed_seq(self, book_id: str) -> int:
        """Return how many rows of this order book Redis has accepted; less than it once said means it lost some."""
        ...
