"""Every Redis key name, and nothing that speaks to Redis."""

import re

import attrs

from stagedoor.errors import ConfigurationError
from stagedoor.settings import NAME_PATTERN, NAMESPACE_PATTERN

GROUP = "workers"
POOL = "~pool"
"""The reserved consumer that owns what no live process owns; no worker can be named so."""

ROWS_PER_BITMAP = 8192
"""Outbox ids that share one bitmap of published rows: 1 KiB each."""


def is_worker_name(name: str) -> bool:
    """Return whether a worker may be called so: it becomes part of a key and of a log line."""
    return re.fullmatch(NAME_PATTERN, name) is not None


@attrs.frozen
class Keys:
    """The key names of one namespace.

    Raises:
        ConfigurationError: the namespace is not ``[A-Za-z0-9._-]{1,32}``, optionally in braces.
    """

    namespace: str = attrs.field(default="jobs")

    @namespace.validator
    def _check(self, _attribute: object, value: str) -> None:
        if re.fullmatch(NAMESPACE_PATTERN, value) is None:
            raise ConfigurationError(
                f"namespace: {value!r} is not allowed; take 1 to 32 letters, digits, '.', '_' or '-', "
                "on Redis Cluster in one pair of braces, as in {jobs}"
            )

    @property
    def is_single_slot(self) -> bool:
        """Whether all keys share one hash slot, as Redis Cluster needs."""
        return self.namespace.startswith("{")

    @property
    def stream(self) -> str:
        """Stream of new entries."""
        return self.namespace

    @property
    def critical(self) -> str:
        """Stream of continuations of started flows, read before `stream`."""
        return f"{self.namespace}:critical"

    @property
    def dead(self) -> str:
        """Stream of dead letters."""
        return f"{self.namespace}:dead"

    @property
    def delayed(self) -> str:
        """Sorted set: member to due time in ms."""
        return f"{self.namespace}:delayed"

    @property
    def delayed_body(self) -> str:
        """Hash: member to packed target stream and fields."""
        return f"{self.namespace}:delayed:body"

    @property
    def crashes(self) -> str:
        """Hash: stream and entry id to one line per crash."""
        return f"{self.namespace}:crashes"

    @property
    def trimmed(self) -> str:
        """Hash: stream number to what has been noted of entries that were deleted unread."""
        return f"{self.namespace}:trimmed"

    @property
    def calls(self) -> str:
        """Sorted set: flow call to the ms at which to look at it next, with its state's number in the fraction."""
        return f"{self.namespace}:calls"

    @property
    def calls_states(self) -> str:
        """Hash: state of a call to how many are in it."""
        return f"{self.namespace}:calls:states"

    def call_status(self, call_id: str) -> str:
        """Hash: what the engine knows of one flow call, and one field for each of its steps."""
        return f"{self.namespace}:call:{call_id}_status"

    def call_meta(self, call_id: str) -> str:
        """Hash: metadata, values and signals of one flow call."""
        return f"{self.namespace}:call:{call_id}_meta"

    def call_lease(self, call_id: str) -> str:
        """String with a time to live: the entry and epoch of the pass that runs now."""
        return f"{self.namespace}:call:{call_id}_lease"

    @property
    def book(self) -> str:
        """String: the id of the order book that the namespace serves."""
        return f"{self.namespace}:book"

    def worker(self, name: str) -> str:
        """Hash: the record of one worker process."""
        return f"{self.namespace}:worker:{name}"

    def published(self, book_id: str) -> str:
        """Hash: how many rows of this order book Redis has accepted."""
        return f"{self.namespace}:published:{book_id}"

    def published_rows(self, book_id: str, outbox_id: int) -> str:
        """Bitmap: one bit for each published row of a run of outbox ids."""
        return f"{self.namespace}:published:{book_id}:{outbox_id // ROWS_PER_BITMAP}"
