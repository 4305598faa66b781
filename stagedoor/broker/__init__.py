"""The broker: the only importer of redis. Its ports are synchronous; callers bring the threads."""

from stagedoor.broker.deliveries import (
    Answer,
    Claimed,
    Deliveries,
    Identity,
    Promoted,
    Pulse,
    Reclaimed,
    Renewal,
    Settlement,
    Swept,
    Trimmed,
)
from stagedoor.broker.publishing import OutboxEntry, Published, Publishing, PublishReply

__all__ = [
    "Answer",
    "Claimed",
    "Deliveries",
    "Identity",
    "OutboxEntry",
    "Promoted",
    "PublishReply",
    "Published",
    "Publishing",
    "Pulse",
    "Reclaimed",
    "Renewal",
    "Settlement",
    "Swept",
    "Trimmed",
]
