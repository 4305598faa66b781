"""Dead letters: read in pages, put back into their streams, or dropped for good.

A letter never changes, so what becomes of it is decided here, on what was read;
the scripts only make sure that it is still there when it is moved.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from stagedoor.broker.bodies import crash_lines
from stagedoor.broker.call_texts import LOOK_MS
from stagedoor.broker.connection import Link, Script, mapped_errors
from stagedoor.broker.redis import CAP_SHARE
from stagedoor.core.codec import Fields, pair_up, whole_parts
from stagedoor.core.entry import Entry, with_fields
from stagedoor.core.job import parse_job
from stagedoor.core.keys import Keys
from stagedoor.core.outcome import Reason
from stagedoor.core.tenure import Stream
from stagedoor.errors import MalformedEntry

PAGE = 100
"""Letters per call: each may have 64 KiB."""
_STREAMS = {str(stream.value).encode(): stream for stream in Stream}
_MOST_REQUEUED = 999_999_999
_REFUSALS = {
    b"full": "the stream is at its cap; the letter stays",
    b"unknown": "its call is not there any more, so nothing can go on: drop the letter",
    b"ended": "its call has ended by now, so nothing is left to do: drop the letter",
    b"open": "its call is not parked any more and goes on by itself: drop the letter",
    b"gone": "it was put back or dropped meanwhile",
}


@attrs.frozen(kw_only=True)
class Letter:
    """One dead letter.

    *packed* holds the fields of the entry as far as they were kept; *packed_bytes*
    says how long they were. *raw* has all fields of the letter itself.
    """

    dead_id: str
    reason: str
    error: str
    stream: Stream | None
    entry_id: str
    consumer: str
    deliveries: str
    history: tuple[str, ...]
    packed: bytes
    packed_bytes: int
    raw: Fields

    @property
    def is_truncated(self) -> bool:
        """Whether the fields were longer than what is kept of them."""
        return len(self.packed) < self.packed_bytes

    @property
    def fields(self) -> Fields:
        """The fields of the entry, as far as they were kept."""
        return pair_up(whole_parts(self.packed)[0])

    def text(self, name: bytes) -> str:
        """Return a field of the entry as text, '' where there is none."""
        value = next((value for key, value in self.fields if key == name), b"")
        return value.decode("utf-8", "backslashreplace")


@attrs.frozen
class Requeued:
    """What became of one letter; *entry_id* is the new entry, *problem* says why there is none."""

    dead_id: str
    entry_id: str = ""
    problem: str = ""
    is_full: bool = False
    """Whether only the stream's cap was in the way: it may be asked for again later."""


class DeadLetters:
    """The dead letters of one namespace.

    Every method may raise `BrokerUnavailable` and may be repeated after it.

    Args:
        link: the connections to Redis.
        keys: of the namespace.
        stream_maxlen: as the relay has it: at 95 % of it nothing is put back.
    """

    def __init__(self, link: Link, keys: Keys, *, stream_maxlen: int = 100_000) -> None:
        self._client = link.patient
        self._keys = keys
        self._cap = int(stream_maxlen * CAP_SHARE)
        self._requeue, self._drop = Script("requeue"), Script("drop")
        self._read = Script("page")

    def now_ms(self) -> int:
        """Return Redis' time."""
        with mapped_errors():
            seconds, microseconds = self._client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def count(self) -> int:
        """Return how many there are."""
        with mapped_errors():
            return int(self._client.xlen(self._keys.dead))

    def newest_first(self, before: str = "") -> Iterator[Letter]:
        """Yield letters, the newest first, in pages; *before* is the id of a letter to go on after."""
        end = f"({before}" if before else "+"
        while True:
            page = self._page("down", end, "-")
            yield from page
            if len(page) < PAGE:
                return
            end = f"({page[-1].dead_id}"

    def oldest_first(self) -> Iterator[list[Letter]]:
        """Yield pages of letters, the oldest first; those that come after this call are not among them.

        A job that is put back and dies at once is not met a second time.
        """
        newest = next(self.newest_first(), None)
        if newest is None:
            return
        start = "-"
        while page := self._page("up", start, newest.dead_id):
            yield page
            start = f"({page[-1].dead_id}"

    def find(self, dead_ids: Sequence[str]) -> list[Letter | None]:
        """Return the letters with these ids, in their order, None for one that is not there."""
        pages = (self._page("up", dead_id, dead_id) for dead_id in dead_ids)
        return [next(iter(page), None) for page in pages]

    def requeue(self, letters: Sequence[Letter]) -> list[Requeued]:
        """Put the jobs of at most `PAGE` letters back into their streams, as first attempts.

        A flow's call that was parked when its entry died goes on through it.

        Returns:
            What became of each, in their order; one that can never run is refused with the reason, and
            so is one whose call is not parked.

        **Durability**: each job is either still a letter or in its stream, whatever crashes. Safe to
        repeat: a letter that was put back is gone.
        """
        problems = [problem_of(letter) for letter in letters]
        good = [letter for letter, problem in zip(letters, problems, strict=True) if not problem]
        answers = iter(self._requeue_good(good))
        return [
            Requeued(letter.dead_id, problem=problem) if problem else next(answers)
            for letter, problem in zip(letters, problems, strict=True)
        ]

    def _requeue_good(self, letters: Sequence[Letter]) -> list[Requeued]:
        if not letters:
            return []
        args: list[Any] = [self._cap, LOOK_MS]
        keys = [self._keys.stream, self._keys.critical, self._keys.dead, self._keys.calls, self._keys.calls_states]
        for letter in letters:
            flat = [part for pair in requeued_fields(letter) for part in pair]
            assert letter.stream is not None, "problem_of refuses a letter without one"
            call_id = letter.text(b"call_id")
            args += [letter.dead_id, letter.stream.value, call_id, len(flat), *flat]
            keys += [self._keys.call_status(call_id)] if call_id else []
        replies = self._requeue(self._client, keys, args)
        return [_requeued(letter, *reply) for letter, reply in zip(letters, replies, strict=True)]

    def drop(self, dead_ids: Sequence[str]) -> list[bool]:
        """Delete at most `PAGE` letters for good; returns for each whether it was there.

        **Durability**: gone when it returns. Safe to repeat.
        """
        if not dead_ids:
            return []
        return [answer == 1 for answer in self._drop(self._client, [self._keys.dead], list(dead_ids))]

    def _page(self, direction: str, start: str, end: str) -> list[Letter]:
        rows = self._read(self._client, [self._keys.dead], [direction, start, end, PAGE])
        return [letter_of(dead_id.decode(), pair_up(flat)) for dead_id, flat in rows]


# -- decisions --------------------------------------------------------------------


def problem_of(letter: Letter) -> str:
    """Return why this letter's job cannot be put back, '' when it can."""
    if letter.reason == Reason.TRIMMED.value:
        return "its fields were deleted with the entry; the order book knows the order: have it issued again"
    if letter.is_truncated:
        return f"only {len(letter.packed)} of {letter.packed_bytes} bytes of its fields were kept"
    if letter.stream is None:
        return "it does not say which stream it came from"
    try:
        parse_job(Entry(letter.stream, _entry_id(letter), requeued_fields(letter)))
    except MalformedEntry as error:
        return f"it makes no job and never will: {error}"
    return ""


def requeued_fields(letter: Letter) -> Fields:
    """Return the fields with which a letter's job begins anew.

    All of its own, unknown ones too, and the id it was first added under; but the
    first attempt, no crashes and no hops, and one more in the count of these beginnings.
    """
    entry = Entry(letter.stream or Stream.JOBS, letter.entry_id, letter.fields)
    changes = {"attempt": "1", "requeued": str(min(_number(entry.value(b"requeued")) + 1, _MOST_REQUEUED))}
    if entry.value(b"origin") is None:
        changes["origin"] = letter.entry_id
    kept = tuple(pair for pair in entry.fields if pair[0] not in {b"crashes", b"hops"})
    return with_fields(kept, changes)


def _entry_id(letter: Letter) -> str:
    ms, dash, seq = letter.entry_id.partition("-")
    if not (dash and ms.isdigit() and seq.isdigit()):
        raise MalformedEntry("entry_id", f"expected an entry id, found {letter.entry_id[:40]!a}")
    return letter.entry_id


# -- from replies to values ----------------------------------------------------------


def letter_of(dead_id: str, raw: Fields) -> Letter:
    """Return a letter as it was read; somebody else may have written it, so nothing in it is relied on."""
    of = dict(reversed(raw))
    text = {name.decode("utf-8", "replace"): value.decode("utf-8", "backslashreplace") for name, value in of.items()}
    packed = of.get(b"fields", b"")
    return Letter(
        dead_id=dead_id,
        reason=text.get("reason", ""),
        error=text.get("error", ""),
        stream=_STREAMS.get(of.get(b"stream", b"")),
        entry_id=text.get("entry_id", ""),
        consumer=text.get("consumer", ""),
        deliveries=text.get("deliveries", ""),
        history=crash_lines(text.get("history", "")),
        packed=packed,
        packed_bytes=max(_number(of.get(b"fields_bytes")), len(packed)),
        raw=raw,
    )


def _requeued(letter: Letter, what: bytes, entry_id: bytes) -> Requeued:
    if what == b"added":
        return Requeued(letter.dead_id, entry_id=entry_id.decode())
    return Requeued(letter.dead_id, problem=_REFUSALS[what], is_full=what == b"full")


def _number(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() and len(value) <= len(str(_MOST_REQUEUED)) else 0
