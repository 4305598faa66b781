"""An entry: one record in a stream, as bytes, before anybody has trusted it."""

import attrs

from stagedoor.core.codec import Fields
from stagedoor.core.tenure import Stream, Tenure

MAX_FIELDS = 64
MAX_BYTES = 64 * 1024
"""Names and values together; an entry carries ids, not documents."""

_ADDED_FIELDS = frozenset((b"attempt", b"origin", b"hops", b"crashes", b"requeued"))
_ADDED_BYTES = 40
"""The longest that we write: two numbers of 19 digits and a dash. Past it somebody else wrote the value."""


@attrs.frozen
class Entry:
    """One record of a stream; *entry_id* is ``<ms>-<seq>``, its ms the time it was queued."""

    stream: Stream
    entry_id: str
    fields: Fields

    @property
    def size(self) -> int:
        """Bytes of all names and values."""
        return sum(len(name) + len(value) for name, value in self.fields)

    @property
    def produced(self) -> tuple[int, int]:
        """How many fields and bytes its producer wrote: what we add at a retry must not make it too large."""
        added = {
            name: len(name) + min(len(value), _ADDED_BYTES) for name, value in self.fields if name in _ADDED_FIELDS
        }
        return len(self.fields) - len(added), self.size - sum(added.values())

    @property
    def is_oversized(self) -> bool:
        """Whether it has more fields or bytes than an entry may have."""
        if len(self.fields) <= MAX_FIELDS and self.size <= MAX_BYTES:
            return False
        count, size = self.produced
        return count > MAX_FIELDS or size > MAX_BYTES

    def value(self, name: bytes) -> bytes | None:
        """Return the first value of this name, or None."""
        return next((value for key, value in self.fields if key == name), None)


@attrs.frozen
class Claimed:
    """One delivery as the broker hands it out: the entry, the tenure, and who crashed on it before.

    *crash_log* holds one line per process that vanished while it held this entry.
    """

    entry: Entry
    tenure: Tenure
    crash_log: tuple[str, ...] = ()


def queued_ms(entry_id: str) -> int:
    """Return the Unix time in ms at which an entry of this id was added."""
    return int(entry_id.partition("-")[0])


def with_fields(fields: Fields, changes: dict[str, str]) -> Fields:
    """Return the fields with some set anew; all others, also unknown ones, keep place and bytes."""
    wanted = {name.encode(): value.encode() for name, value in changes.items()}
    kept = tuple((name, wanted.pop(name, value)) for name, value in fields)
    return kept + tuple(wanted.items())
