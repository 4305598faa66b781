"""Losses: entries that somebody deleted before anybody had read them, noticed and put on record.

Nobody of ours trims a stream. Who does it by hand, or with another program, takes
jobs away that no worker will ever see; only Redis' counters can tell. A loss gets one
dead letter, however many workers look, and is found when the look comes before
the counters lose their track: what is deleted and overtaken within a few seconds is not.
"""

from typing import Any

import attrs

from stagedoor.broker.connection import Link, Script, mapped_errors, sound_reply
from stagedoor.broker.inspection import NOTHING, EntryNumber, RawStream, ask_about_stream, or_none
from stagedoor.core.keys import Keys
from stagedoor.core.tenure import Stream


@attrs.frozen
class Lost:
    """Entries of one stream that were deleted unread, at least so many."""

    stream: Stream
    count: int


@attrs.frozen
class Noted:
    """What is on record of one stream: how many are missing by its counters, and the last deletion by hand."""

    missing: int = 0
    deleted: EntryNumber = NOTHING

    @classmethod
    def of(cls, text: str) -> "Noted":
        """Return what a text says; one that nobody of ours has written says nothing."""
        missing, _, deleted = text.partition(" ")
        ms, _, seq = deleted.partition("-")
        if not all(part.isascii() and part.isdigit() for part in (missing, ms, seq)):
            return cls()
        return cls(int(missing), (int(ms), int(seq)))

    def __str__(self) -> str:
        return f"{self.missing} {self.deleted[0]}-{self.deleted[1]}"


class Losses:
    """Looks for losses in one namespace.

    Args:
        link: the connections to Redis.
        keys: of the namespace.
        dead_maxlen: the dead letters' MAXLEN.
    """

    def __init__(self, link: Link, keys: Keys, *, dead_maxlen: int = 10_000) -> None:
        self._client = link.patient
        self._keys = keys
        self._dead_maxlen = dead_maxlen
        self._notice = Script("notice")

    def note(self) -> tuple[Lost, ...]:
        """Put new losses on record, one dead letter for each stream, and return them.

        Raises:
            BrokerUnavailable: Redis cannot be asked now.

        **Durability**: the letter and the record are written together; safe to repeat and to race.
        """
        looked = zip(Stream, self._look(), strict=True)
        found = (self._note_one(stream, raw, known) for stream, (raw, known) in looked)
        return tuple(lost for lost in found if lost is not None)

    def _look(self) -> list[tuple[RawStream, str]]:
        keys = (self._keys.stream, self._keys.critical)
        # redis-py takes the replies of a transaction apart itself, and stumbles over those of other calls.
        with mapped_errors(), sound_reply(), self._client.pipeline(transaction=True) as pipe:
            pipe.hmget(self._keys.trimmed, [str(stream.value) for stream in Stream])
            for key in keys:
                ask_about_stream(pipe, key)
            known, *answers = [or_none(answer) for answer in pipe.execute(raise_on_error=False)]
            texts = [(text or b"").decode("utf-8", "replace") for text in known]
            return [(RawStream.of(*answers[at : at + 3]), text) for at, text in zip((0, 3), texts, strict=True)]

    def _note_one(self, stream: Stream, raw: RawStream, known: str) -> Lost | None:
        noted, lost = unnoted(raw, Noted.of(known))
        if str(noted) == known or (not known and noted == Noted()):
            return None
        args: list[Any] = [stream.value, known, str(noted), lost, self._dead_maxlen]
        is_ours = self._notice(self._client, [self._keys.trimmed, self._keys.dead], args) == 1
        return Lost(stream, lost) if is_ours and lost else None


def unnoted(raw: RawStream, known: Noted) -> tuple[Noted, int]:
    """Return what is to be on record now, and how many losses are new.

    What was added and not read must be in the stream as long as its first entry is an
    unread one: what is not was deleted. Where pending entries come first, a deletion past
    the last delivered entry is at least one. Where Redis has no count of what was
    read (a group made anew), nothing is known and nothing changes.
    """
    if raw.read is None or raw.last_delivered == NOTHING:
        return known, 0
    if raw.first is None or raw.first > raw.last_delivered:
        missing = max(0, raw.added - raw.read - raw.length)
        return Noted(missing, max(known.deleted, raw.last_deleted)), max(0, missing - known.missing)
    if raw.last_deleted > raw.last_delivered and raw.last_deleted > known.deleted:
        return Noted(known.missing + 1, raw.last_deleted), 1
    return known, 0
