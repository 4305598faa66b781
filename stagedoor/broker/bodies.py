"""What a delivery leaves behind when it is settled: bodies of delayed jobs, and dead letters.

Pure: fields in, bytes out. Scripts move these bytes and never look at a value.
"""

from collections.abc import Mapping

from stagedoor.broker.deliveries import Settlement
from stagedoor.core.codec import Fields, pack, pack_fields
from stagedoor.core.entry import MAX_BYTES, Entry, with_fields
from stagedoor.core.journal import is_call_id
from stagedoor.core.outcome import Dead

_MOST_CRASHES = 999_999_999
"""What a job's field can say."""


def fields_to_move(entry: Entry, crash_log: tuple[str, ...], changes: Mapping[str, str] | None = None) -> Fields:
    """Return the fields with which an entry goes on under a new id.

    All of them, unknown ones too, with the id it was first added under and the
    count of its crashes, for both would be lost with the old id. The fields of
    an entry that was never parsed may say anything there.
    """
    carried = dict(changes or {})
    if entry.value(b"origin") is None:
        carried["origin"] = entry.entry_id
    if crash_log:
        carried["crashes"] = str(min(_tally(entry.value(b"crashes")) + len(crash_log), _MOST_CRASHES))
    return with_fields(entry.fields, carried)


def crash_lines(log: str) -> tuple[str, ...]:
    """Return the lines of a crash log, one for each crash.

    They end with a newline and nothing else: a name may hold another end of line, U+2028 or
    the like, and a crash that counts twice would make a job poison that is none.
    """
    return tuple(line for line in log.split("\n") if line)


def delayed_body(settlement: Settlement, changes: Mapping[str, str]) -> bytes:
    """Return what is kept of a delayed job: the number of the stream it goes back to, and its fields.

    One that was run is no more of a kind that nobody knows: its hand-backs are forgotten.
    """
    tenure = settlement.tenure
    entry = Entry(tenure.stream, tenure.entry_id, settlement.fields)
    was_run = "attempt" in changes and entry.value(b"hops") is not None
    moved = fields_to_move(entry, settlement.crash_log, {**changes, "hops": "0"} if was_run else changes)
    return pack([b"%d" % tenure.stream.value, *(part for pair in moved for part in pair)])


def dead_letter(settlement: Settlement, outcome: Dead, consumer: str) -> Fields:
    """Return the fields of a dead letter; the entry's own are packed into one, cut at 64 KiB."""
    tenure = settlement.tenure
    packed = pack_fields(settlement.fields)
    letter = {
        "reason": outcome.reason.value,
        "error": outcome.error,
        "stream": str(tenure.stream.value),
        "entry_id": tenure.entry_id,
        "consumer": consumer,
        "deliveries": str(tenure.deliveries),
        "history": "\n".join(settlement.crash_log),
        "fields_bytes": str(len(packed)),
    }
    text = tuple((name.encode(), value.encode("utf-8", "backslashreplace")) for name, value in letter.items())
    return (*text, (b"fields", packed[:MAX_BYTES]))


def call_of(settlement: Settlement) -> str | None:
    """Return the flow call that an entry continues, None for an ordinary one; its fields may say anything."""
    raw = next((value for name, value in settlement.fields if name == b"call_id"), None)
    text = raw.decode("ascii", "replace") if raw is not None else ""
    return text if is_call_id(text) else None


def _tally(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() and len(value) <= len(str(_MOST_CRASHES)) else 0
