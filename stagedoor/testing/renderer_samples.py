"""The requests that the conformance suite asks renderers for: usual ones, hostile ones, and far too large ones."""

import datetime as dt
import hashlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from stagedoor.order import Event, Order, Position, Seat, TaxLine
from stagedoor.rendering.api import RenderRequest

NAMES = (
    "Zoë Šimková Řehoř",
    "Nguyễn Thị Ánh",
    "山田太郎",
    "שלום עולם",
    "مرحبا بالعالم",
    "Ольга Їжакевич",
    "Add-on 🎉 VIP",
    "क्षत्रिय",
    "",
)
"""Names that a renderer must take: it may replace what it cannot draw, it may not fail."""

HOSTILE = (
    "AT&T",
    "<b>Anna",
    "</para>",
    "<img src='/etc/hostname'/>",
    "<img src='http://169.254.169.254/'/>",
    "&#99999999999;",
    "A\tB\x07\x1b[31m\x00",
    "A\u202egnp.exe",
    "W" * 300,
    "a" + "\u0301" * 300,
    "{holder} %s $(id) `id`",
    "\ud800",
)
"""Names that make careless renderers fail, open files, or draw something else."""


def sample_order(holder: str = "Zoë Šimková", *, positions: int = 3) -> Order:
    """Return an order that uses every field, with *holder* on each of its positions."""
    made = tuple(
        Position(
            id=number,
            holder=holder,
            category="Stalls" if number % 2 else "Programme",
            amount_minor=0 if number % 3 == 0 else 4500,
            token=_token(f"{holder} {number}"),
            version=1,
            seat=Seat(zone="B", row="C", number=str(number)) if number % 2 else None,
            addon_to=None if number % 2 else number - 1,
        )
        for number in range(1, positions + 1)
    )
    return Order(
        order_id=4471,
        version=2,
        status="placed",
        event=Event(
            name="The Magic Flute",
            sub_event="Main hall",
            venue="Stadttheater, Bremen",
            starts_at=dt.datetime(2026, 7, 1, 18, 0, tzinfo=dt.UTC),
            doors_at=dt.datetime(2026, 7, 1, 17, 0, tzinfo=dt.UTC),
            tz="Europe/Berlin",
            terms="Latecomers are admitted after the first act.\nNo photographs.",
        ),
        locale="en-GB",
        currency="EUR",
        buyer="Zoë Šimková",
        positions=made,
        receipt_number="2026-4471",
        taxes=(TaxLine(label="7 %", amount_minor=589),),
    )


def _token(seed: str) -> str:
    """Return a token of the usual form, made from *seed*."""
    digest = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()
    return "".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[byte % 32] for byte in digest[:26])


def sample_requests(holder: str = "Zoë Šimková") -> tuple[RenderRequest, RenderRequest]:
    """Return a request for one position and one for the whole order."""
    order = sample_order(holder)
    return (
        RenderRequest(order=order, position=order.positions[0], locale=order.locale),
        RenderRequest(order=order, locale=order.locale),
    )


def with_holder(holder: str) -> RenderRequest:
    """Return a request with this holder and a token that does not depend on it."""
    order = sample_order()
    position = attrs.evolve(order.positions[0], holder=holder)
    return RenderRequest(order=order, position=position, locale=order.locale)


def with_words(words: str) -> Iterator[RenderRequest]:
    """Yield requests that have *words* wherever somebody can type."""
    order = sample_order(words)
    event = attrs.evolve(order.event, name=words, venue=words, sub_event=words, terms=words)
    seat = Seat(zone=words, row=words, number=words)
    position = attrs.evolve(order.positions[0], category=words, seat=seat)
    yield RenderRequest(order=order, position=order.positions[0], locale="en")
    yield RenderRequest(order=attrs.evolve(order, event=event, buyer=words), position=position, locale="en")


# -- text that would act as markup ------------------------------------------------

MARKUP = (
    "AT&T S&P;",
    "&amp;&lt;i&",
    "<b>Q</b>",
    "</p></para>",
    '"\'><i b="c">',
    '\'"; x="y"//',
    "&#65;&#x42;",
    "]]><![CDATA[",
    "<!d><?p q?>",
    "\\b{x} $y$ #z",
    "{0} %s {id}",
)
"""What means something to HTML, XML, JavaScript, ReportLab, TeX or Python; all of it is on any keyboard."""

PLAIN = "W" * 12
"""Means nothing, and is as wide as any of `MARKUP`: where it has room, they have."""

SHOWN = (
    "event.name",
    "event.sub_event",
    "event.venue",
    "event.terms",
    "order.buyer",
    "position.holder",
    "position.category",
    "position.seat.zone",
    "position.seat.row",
    "position.seat.number",
)
"""The fields that somebody types."""


def marked(field: str, words: str) -> str:
    """Return *words* between marks that tell in which field they were typed."""
    mark = f"Zq{chr(ord('a') + SHOWN.index(field))}"
    return f"{mark}{words}{mark}"


def saying(words: str) -> tuple[RenderRequest, RenderRequest]:
    """Return a request for a position and one for its order, with *words* in every field, each with its mark."""
    said = {field: marked(field, words) for field in SHOWN}
    order = filled(sample_order(positions=1), said)
    return RenderRequest(order=order, position=order.positions[0], locale="en"), RenderRequest(order=order, locale="en")


def filled(order: Order, said: Mapping[str, str]) -> Order:
    """Return *order* with other words in the fields that *said* names; those of positions in its first."""
    first = order.positions[0]
    parts: dict[str, dict[str, Any]] = {"event": {}, "order": {}, "position": {}, "position.seat": {}}
    for field, words in said.items():
        owner, _, name = field.rpartition(".")
        parts[owner][name] = words
    seat = attrs.evolve(first.seat or Seat(), **parts["position.seat"])
    position = attrs.evolve(first, seat=seat, **parts["position"])
    event = attrs.evolve(order.event, **parts["event"])
    return attrs.evolve(order, event=event, positions=(position, *order.positions[1:]), **parts["order"])


# -- far too much -------------------------------------------------------------------

_FAR_TOO_MANY = 20_000
"""Positions or tax lines: forty times what the built-in renderers draw, and of each hundred bytes and more."""


def far_too_much(size: int) -> Iterator[tuple[str, RenderRequest, RenderRequest]]:
    """Yield fields with requests in which they are far too large, for a position and for the order.

    Args:
        size: characters of a text that is too long; they do not compress to a tenth.
    """
    words = _noise(size)
    for field in (*SHOWN, "order.receipt_number"):
        order = filled(sample_order(), {field: words})
        yield _both(field, order, order)
    usual = sample_order()
    first = usual.positions[0]
    many = [
        attrs.evolve(first, id=number, holder=f"Zoë {words[number : number + 80]}", seat=None)
        for number in range(2, _FAR_TOO_MANY)
    ]
    addons = [attrs.evolve(position, addon_to=first.id) for position in many]
    yield _both(
        "order.positions",
        attrs.evolve(usual, positions=(first, *addons)),
        attrs.evolve(usual, positions=(first, *many)),
    )
    taxes = tuple(TaxLine(label=words[number : number + 80], amount_minor=number) for number in range(_FAR_TOO_MANY))
    taxed = attrs.evolve(usual, taxes=taxes)
    yield _both("order.taxes", taxed, taxed)


def _both(field: str, seen: Order, whole: Order) -> tuple[str, RenderRequest, RenderRequest]:
    single = RenderRequest(order=seen, position=seen.positions[0], locale="en")
    return field, single, RenderRequest(order=whole, locale="en")


def _noise(size: int) -> str:
    """Return words of random letters, in lines of usual length, the same ones every time."""
    letters = "".join(random.Random(4471).choices("abcdefghijklmnopqrstuvwxyz", k=size))
    return "\n".join(" ".join(letters[at : at + 8] for at in range(line, line + 64, 8)) for line in range(0, size, 64))
