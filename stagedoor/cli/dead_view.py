"""Dead letters, shown to people and to programs, and what is done to them in chunks."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import batched
from typing import Any

import attrs
from rich.text import Text

from stagedoor.broker.connection import Link, masked
from stagedoor.broker.dead_letters import PAGE, DeadLetters, Letter, Requeued, problem_of
from stagedoor.cli.output import facts, print_json, safe, show, table
from stagedoor.cli.text import counted, printable, span
from stagedoor.core.codec import Fields
from stagedoor.core.entry import queued_ms
from stagedoor.core.keys import Keys
from stagedoor.errors import BrokerUnavailable
from stagedoor.settings import Settings

_LONGEST_VALUE = 4000
"""Characters of a field's value that `show` prints; what is longer is in the JSON."""
_STYLES = {"malformed": "yellow", "unknown_kind": "yellow"}


@attrs.frozen(kw_only=True)
class Wanted:
    """Which letters are meant."""

    reason: str | None = None
    kind: str | None = None

    def matches(self, letter: Letter) -> bool:
        """Return whether it is one of them."""
        if self.reason is not None and letter.reason != self.reason:
            return False
        return self.kind is None or letter.text(b"kind") == self.kind


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[DeadLetters]:
    """Open the dead letters of a namespace.

    Raises:
        BrokerUnavailable: Redis cannot be asked; says where it was looked for.
    """
    link = Link(settings.redis_url, block_ms=0, namespace=settings.namespace)
    try:
        yield DeadLetters(link, Keys(settings.namespace), stream_maxlen=settings.stream_maxlen)
    except BrokerUnavailable as error:
        raise BrokerUnavailable(f"{masked(settings.redis_url)}: {error}") from error
    finally:
        link.close()


# -- looking ------------------------------------------------------------------------


def list_letters(letters: DeadLetters, wanted: Wanted, *, limit: int, before: str, as_json: bool) -> None:
    """Print the newest letters that match."""
    found: list[Letter] = []
    for letter in letters.newest_first(before):
        if wanted.matches(letter):
            found.append(letter)
        if len(found) > limit:
            break
    more, shown = len(found) > limit, found[:limit]
    now_ms = letters.now_ms()
    if as_json:
        print_json({"dead": [summary_of(letter, now_ms) for letter in shown], "more": more})
        return
    if not shown:
        print("no dead letters" if wanted == Wanted() and not before else "no such dead letters")
        return
    made = table("letter", "reason", "kind", "order", "age", "error", right=("order", "age"))
    for letter in shown:
        made.add_row(
            safe(letter.dead_id),
            safe(letter.reason, _STYLES.get(letter.reason, "red")),
            safe(letter.text(b"kind")[:64]),
            safe(letter.text(b"order_id")[:20]),
            Text(span(_age_s(letter, now_ms)), style="dim"),
            Text(printable(letter.error, 80)),
        )
    show(made)
    if more:
        print(f"… older ones: dead list --before {shown[-1].dead_id}")


def summary_of(letter: Letter, now_ms: int) -> dict[str, Any]:
    """Return one line of a list as JSON has it."""
    return {
        "id": letter.dead_id,
        "reason": letter.reason,
        "kind": letter.text(b"kind") or None,
        "order_id": letter.text(b"order_id") or None,
        "outbox_id": letter.text(b"outbox_id") or None,
        "entry_id": letter.entry_id,
        "error": letter.error,
        "age_s": _age_s(letter, now_ms),
    }


def show_letter(letters: DeadLetters, dead_id: str, *, as_json: bool) -> int:
    """Print all that is kept of one letter; returns the exit code."""
    [letter] = letters.find([dead_id])
    if letter is None:
        print_json({"id": dead_id, "found": False}) if as_json else print(f"{dead_id}: {_GONE}")
        return 1
    data = data_of(letter, letters.now_ms())
    if as_json:
        print_json(data)
        return 0
    heading = Text.assemble((f"Dead letter {dead_id}", "bold"), "  ", (printable(letter.reason), "red"))
    kept = f"{len(letter.packed):,} of {letter.packed_bytes:,} bytes" if letter.is_truncated else ""
    told = [
        ("error", printable(letter.error, _LONGEST_VALUE)),
        ("age", span(data["age_s"])),
        ("entry", f"{letter.entry_id} of {data['stream'] or 'an unknown stream'}"),
        ("held by", letter.consumer),
        ("deliveries", letter.deliveries),
        ("fields kept", kept),
        ("requeue", data["requeue_problem"] or "can be put back"),
    ]
    parts: list[Any] = [heading, facts(told), Text(), Text("fields", style="dim"), facts(_escaped(letter.fields))]
    if letter.history:
        parts += [Text(), Text("crashes", style="dim"), *(safe(line) for line in letter.history)]
    unknown = [(name, value) for name, value in letter.raw if name not in _KNOWN]
    if unknown:
        parts += [Text(), Text("else in the letter", style="dim"), facts(_escaped(unknown))]
    show(*parts)
    return 0


_KNOWN = frozenset(
    b"reason error stream entry_id consumer deliveries history fields_bytes fields".split(),
)
_GONE = "there is no such dead letter: it was put back or dropped already, or it never was one"


def data_of(letter: Letter, now_ms: int) -> dict[str, Any]:
    """Return a whole letter as JSON has it; bytes that are no UTF-8 are written as escapes."""
    return summary_of(letter, now_ms) | {
        "found": True,
        "stream": letter.stream.name.lower() if letter.stream else None,
        "consumer": letter.consumer,
        "deliveries": letter.deliveries,
        "history": list(letter.history),
        "fields": [[_text(name), _text(value)] for name, value in letter.fields],
        "fields_bytes": letter.packed_bytes,
        "is_truncated": letter.is_truncated,
        "requeue_problem": problem_of(letter) or None,
    }


def _escaped(fields: Fields | list[tuple[bytes, bytes]]) -> Iterator[tuple[str, str]]:
    for name, value in fields:
        yield printable(_text(name), 64) or EMPTY, printable(_text(value), _LONGEST_VALUE) or EMPTY


EMPTY = "(empty)"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _age_s(letter: Letter, now_ms: int) -> float:
    return max(0, now_ms - queued_ms(letter.dead_id)) / 1000


# -- doing ----------------------------------------------------------------------------


def requeue(letters: DeadLetters, dead_ids: Sequence[str], wanted: Wanted, *, as_json: bool) -> int:
    """Put jobs back, chunk by chunk, and say what became of each; stops at a stream that is full."""
    done: list[Requeued] = []
    for chunk in _chunks(letters, dead_ids, wanted):
        done += [Requeued(dead_id, problem=_GONE) for dead_id, letter in chunk if letter is None]
        done += letters.requeue([letter for _dead_id, letter in chunk if letter is not None])
        if any(one.is_full for one in done):
            break
    back = [one for one in done if one.entry_id]
    refused = [one for one in done if not one.entry_id]
    if as_json:
        told = [{"id": one.dead_id, "problem": one.problem} for one in refused]
        print_json({"requeued": [{"id": one.dead_id, "entry_id": one.entry_id} for one in back], "refused": told})
        return int(bool(refused))
    for one in refused:
        print(f"{one.dead_id}: {printable(one.problem)}")
    print(f"{counted(len(back), 'job')} put back" + (f", {len(refused)} not" if refused else ""))
    if any(one.is_full for one in refused):
        print("the stream is full; give the same command again when workers have caught up")
    return int(bool(refused))


def drop(letters: DeadLetters, dead_ids: Sequence[str], wanted: Wanted, *, as_json: bool) -> int:
    """Delete letters, chunk by chunk, and say how many."""
    dropped: list[str] = []
    gone: list[str] = []
    for chunk in _chunks(letters, dead_ids, wanted):
        ids = [dead_id for dead_id, _letter in chunk]
        for dead_id, was_there in zip(ids, letters.drop(ids), strict=True):
            (dropped if was_there else gone).append(dead_id)
    if as_json:
        print_json({"dropped": dropped, "gone": gone})
        return int(bool(gone))
    for dead_id in gone:
        print(f"{dead_id}: {_GONE}")
    print(f"{counted(len(dropped), 'job')} dropped")
    return int(bool(gone))


def _chunks(letters: DeadLetters, dead_ids: Sequence[str], wanted: Wanted) -> Iterator[list[tuple[str, Letter | None]]]:
    """Yield letters in chunks of at most a page: those named, or all that match."""
    if dead_ids:
        for ids in batched(dict.fromkeys(dead_ids), PAGE, strict=False):
            yield list(zip(ids, letters.find(ids), strict=True))
        return
    for page in letters.oldest_first():
        yield [(letter.dead_id, letter) for letter in _matching(page, wanted)]


def _matching(page: Iterable[Letter], wanted: Wanted) -> Iterator[Letter]:
    return (letter for letter in page if wanted.matches(letter))
