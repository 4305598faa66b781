"""Invented data of the same shape: what a fixture may carry of real orders.

Letters become other letters of the same script and case, digits other digits;
spaces, punctuation and combining marks stay where they are. So a text keeps
what breaks layouts and parsers, its length, its script, its odd characters, and
loses what it says. The same text becomes the same invention within one
recording, and another one in the next: the key is drawn anew and thrown away.
"""

import functools
import hashlib
import hmac
import re
import unicodedata

import attrs

from stagedoor.core.codec import Fields
from stagedoor.core.entry import Entry
from stagedoor.core.job import parse_job
from stagedoor.core.tenure import Stream
from stagedoor.errors import MalformedEntry
from stagedoor.order import Event, Order, Seat

_BLOCK = 64
"""Characters that are taken for neighbours: within it scripts lie together."""
_ASCII = 0x7F
_NUMBERS = frozenset((b"attempt", b"origin", b"hops", b"crashes", b"order_id", b"outbox_id"))
_ADDED = frozenset((b"attempt", b"origin", b"hops", b"crashes", b"requeued"))
_ID = re.compile(rb"[1-9][0-9]{0,18}")


class Inventor:
    """Invents; one for each recording.

    Args:
        key: secret bytes; whoever has them and guesses a text can confirm the guess.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def text(self, text: str) -> str:
        """Return a text of the same shape."""
        stream = self._stream(text.encode("utf-8", "surrogatepass"), len(text))
        return "".join(map(_other, text, stream))

    def maybe(self, text: str | None) -> str | None:
        """Return a text of the same shape, or None for None."""
        return None if text is None else self.text(text)

    def value(self, value: bytes) -> bytes:
        """Return bytes of the same shape; what was no UTF-8 still is none."""
        try:
            return self.text(value.decode()).encode()
        except UnicodeError:
            stream = self._stream(value, len(value))
            pairs = zip(value, stream, strict=True)
            return bytes(0xFF if byte > _ASCII else ord(_other(chr(byte), number)) for byte, number in pairs)

    def _stream(self, seed: bytes, length: int) -> bytes:
        """Return one byte for each place of a text."""
        numbers = (number.to_bytes(8, "big") for number in range(length // 32 + 1))
        return b"".join(hmac.digest(self._key, number + seed, hashlib.sha256) for number in numbers)[:length]


def _other(char: str, number: int) -> str:
    neighbours = _neighbours(char)
    return neighbours[number % len(neighbours)] if neighbours else char


@functools.lru_cache(maxsize=4096)
def _neighbours(char: str) -> str:
    """Return the characters that may stand for this one; none for what keeps its place."""
    if char.isascii():
        ranges = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "123456789")
        return next((letters for letters in ranges if char in letters), "")
    if not char.isalnum():
        return ""
    script, category = _script(char), unicodedata.category(char)
    start = ord(char) // _BLOCK * _BLOCK
    around = map(chr, range(start, start + _BLOCK))
    return "".join(one for one in around if unicodedata.category(one) == category and _script(one) == script)


def _script(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0]


# -- orders and entries ----------------------------------------------------------------


def invented_order(order: Order, inventor: Inventor, order_id: int) -> Order:
    """Return an order of the same shape: amounts, categories, times and languages stay, people and places do not."""
    positions = tuple(
        attrs.evolve(one, holder=inventor.text(one.holder), seat=_seat(one.seat, inventor), token="")
        for one in order.positions
    )
    return attrs.evolve(
        order,
        order_id=order_id,
        event=_event(order.event, inventor),
        buyer=inventor.text(order.buyer),
        positions=positions,
        receipt_number=inventor.maybe(order.receipt_number),
    )


def _event(event: Event, inventor: Inventor) -> Event:
    return attrs.evolve(
        event,
        name=inventor.text(event.name),
        venue=inventor.text(event.venue),
        sub_event=inventor.maybe(event.sub_event),
        terms=inventor.text(event.terms),
    )


def _seat(seat: Seat | None, inventor: Inventor) -> Seat | None:
    if seat is None:
        return None
    return Seat(zone=inventor.maybe(seat.zone), row=inventor.maybe(seat.row), number=inventor.maybe(seat.number))


def invented_fields(fields: Fields, inventor: Inventor, orders: dict[int, int], row: int) -> Fields:
    """Return an entry's fields of the same shape; what made them malformed still does.

    Args:
        fields: as they are on Redis.
        inventor: of this recording.
        orders: the invented id of each order.
        row: the invented id of the outbox row.
    """
    is_malformed = problem_of(fields) is not None
    if not is_malformed:
        fields = tuple((name, value) for name, value in fields if name not in _ADDED)
    # Of a malformed entry nobody knows what its kind is, so only our own are known to say nothing.
    known = frozenset(value for name, value in fields if name == b"kind") if not is_malformed else OUR_KINDS
    made = tuple((name, _field(name, value, inventor, orders=orders, row=row, kinds=known)) for name, value in fields)
    if (problem_of(made) is not None) == is_malformed:
        return made
    # A number that was out of bounds may have become one that is not: such numbers say nothing of anybody.
    kept = zip(fields, made, strict=True)
    return tuple((name, value if name in _NUMBERS else other) for (name, value), (_, other) in kept)


def _field(
    name: bytes, value: bytes, inventor: Inventor, *, orders: dict[int, int], row: int, kinds: frozenset[bytes]
) -> bytes:
    if name == b"kind" and value in kinds:
        return value
    if name == b"order_id" and _ID.fullmatch(value):
        return b"%d" % orders.get(int(value), UNKNOWN_ORDER + row)
    if name == b"outbox_id" and _ID.fullmatch(value):
        return b"%d" % row
    return inventor.value(value)


OUR_KINDS = frozenset((b"render_tickets", b"refund_order"))
UNKNOWN_ORDER = 900_000
"""Above the ids of invented orders: entries that name an order which the book does not know."""


def problem_of(fields: Fields) -> str | None:
    """Return what makes these fields malformed, None when they make a job."""
    try:
        parse_job(Entry(Stream.JOBS, "1-0", fields))
    except MalformedEntry as error:
        return str(error)
    return None
