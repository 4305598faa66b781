"""What replays and the demo do to a namespace of their own: add raw entries, take bodies away, look at what is left.

No worker uses this; on a namespace that others use it would lose their jobs.
"""

from collections.abc import Sequence
from typing import Any, cast

import attrs

from stagedoor.broker.connection import Link, mapped_errors, send
from stagedoor.core.codec import Fields, pair_up, unpack, unpack_fields
from stagedoor.core.keys import GROUP, Keys
from stagedoor.errors import MalformedEntry

MOST = 10_000
"""Entries, delayed jobs and dead letters that are looked at; a replay makes a handful."""


@attrs.frozen(kw_only=True)
class DeadLetter:
    """One dead letter; *fields* are the entry's own, as far as they were kept."""

    reason: str
    error: str
    entry_id: str
    fields: Fields


@attrs.frozen(kw_only=True)
class Leftovers:
    """All that is left in a namespace at one moment."""

    waiting: int
    pending: int
    delayed: tuple[Fields, ...]
    dead: tuple[DeadLetter, ...]


class Scratch:
    """A namespace that belongs to the caller alone."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys

    def add(self, fields: Fields) -> str:
        """Add one entry with exactly these fields, also bad ones, and return its id."""
        flat = [part for pair in fields for part in pair]
        with mapped_errors():
            entry_id: Any = send(self._link.patient, "XADD", self._keys.stream, "*", *flat)
        return str(entry_id.decode())

    def delete_body(self, entry_id: str) -> None:
        """Delete an entry from the stream as a trim would: whoever holds it keeps it on the pending list."""
        with mapped_errors():
            send(self._link.patient, "XDEL", self._keys.stream, entry_id)

    def is_owed(self, entry_id: str) -> bool:
        """Return whether an entry is still in the stream: neither settled nor deleted."""
        with mapped_errors():
            return bool(send(self._link.patient, "XRANGE", self._keys.stream, entry_id, entry_id))

    def held_by(self, consumer: str) -> tuple[str, ...]:
        """Return the ids of the entries that are pending under this worker's name, in both streams."""
        with mapped_errors():
            rows: list[Any] = [
                row
                for stream in (self._keys.stream, self._keys.critical)
                for row in cast("Any", self._link.patient.xpending_range(stream, GROUP, "-", "+", MOST, consumer))
            ]
        return tuple(row["message_id"].decode() for row in rows)

    def leftovers(self) -> Leftovers:
        """Return what is left, all of it from one moment."""
        keys = self._keys
        with mapped_errors(), self._link.patient.pipeline(transaction=True) as pipe:
            for stream in (keys.stream, keys.critical):
                pipe.xlen(stream)
                pipe.xpending(stream, GROUP)
            pipe.hvals(keys.delayed_body)
            pipe.xrange(keys.dead, count=MOST)
            reply: list[Any] = pipe.execute(raise_on_error=False)
        jobs, jobs_pending, critical, critical_pending, delayed, dead = reply
        return Leftovers(
            waiting=jobs + critical,
            pending=_pending(jobs_pending) + _pending(critical_pending),
            delayed=tuple(_delayed(body) for body in delayed),
            dead=tuple(_letter(fields) for _entry_id, fields in dead),
        )

    def drop(self, workers: Sequence[str]) -> None:
        """Delete all that these workers have left in the namespace."""
        keys = self._keys
        names = [keys.stream, keys.critical, keys.dead, keys.delayed, keys.delayed_body, keys.crashes]
        with mapped_errors():
            send(self._link.patient, "DEL", *names, *map(keys.worker, workers))


def _pending(summary: Any) -> int:
    """Return how many entries are pending; a stream without the group has none."""
    return 0 if isinstance(summary, Exception) else int(summary["pending"])


def _delayed(body: bytes) -> Fields:
    try:
        return pair_up(unpack(body)[1:])
    except MalformedEntry:
        return ((b"body", body),)


def _letter(letter: dict[bytes, bytes]) -> DeadLetter:
    text = {name: letter.get(name, b"").decode("utf-8", "replace") for name in (b"reason", b"error", b"entry_id")}
    try:
        fields = unpack_fields(letter.get(b"fields", b""))
    except MalformedEntry:
        fields = ()  # they were cut at 64 KiB
    return DeadLetter(reason=text[b"reason"], error=text[b"error"], entry_id=text[b"entry_id"], fields=fields)
