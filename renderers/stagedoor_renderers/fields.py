"""What a ticket says, as text: one set of rules for every output.

A PDF, a wallet pass and a text version of one ticket say the same because all
of them take their words from here. Nothing here knows how a ticket looks.
"""

import datetime as dt
from collections.abc import Mapping, Sequence

import attrs

from stagedoor.rendering.api import Event, Order, Position, RenderRequest, Seat
from stagedoor_renderers.values import Language, Values, utc_offset

SEPARATOR = " · "
TIMES = "\N{MULTIPLICATION SIGN}"
SHORT_CODE = 8
"""Characters of the token that are printed for typing."""

FIELDS: Mapping[str, str] = {
    "event": "name of the event",
    "sub_event": "name of the part, date or hall of it",
    "venue": "where it takes place",
    "date": "day of the start, with its weekday, in the event's zone",
    "short_date": "the same in few characters",
    "start": "time of the start in the event's zone",
    "doors": "time when the doors open, with its day or offset where that is not the start's",
    "offset": "how far the event's clocks are from UTC at the start",
    "zone_name": "the event's time zone",
    "when": "short date, time and offset in one line",
    "terms": "the organiser's terms",
    "holder": "who may come in; an add-on's is its parent's if it has none",
    "category": "kind of ticket",
    "price": "price with currency, or the word for free",
    "seat": "block, row and seat in one line, or general admission",
    "seat_zone": "block",
    "seat_row": "row",
    "seat_number": "number of the seat",
    "general_admission": "the words for it, only where there is no seat",
    "addons": "categories of the add-ons of this position, in one line",
    "addon_list": "the same, one below the other",
    "addon_to": "category and holder of the position that this one extends",
    "order_code": "number of the order",
    "short_code": "the first eight characters of the token, for typing",
    "token": "the token, as in the QR code",
    "ticket_of": "number of this ticket in its order, in words",
    "number": "the same in figures",
    "buyer": "who bought the order",
}
"""Every field that a layout may show; `label.` and the name of a word gives the word."""

Content = Mapping[str, str]


@attrs.frozen(kw_only=True)
class Teller:
    """Tells the fields of the positions of one order; those of its event come from `event_content`."""

    order: Order
    language: Language
    _positions: Mapping[int, Position]
    _addons: Mapping[int, Sequence[Position]]
    _numbers: Mapping[int, int]
    _total: int

    @classmethod
    def of(cls, order: Order, language: Language) -> "Teller":
        """Prepare *order* for telling in *language*."""
        placed = order.placed_positions
        addons: dict[int, list[Position]] = {}
        for position in placed:
            if position.addon_to is not None:
                addons.setdefault(position.addon_to, []).append(position)
        return cls(
            order=order,
            language=language,
            positions={position.id: position for position in order.positions},
            addons=addons,
            numbers={position.id: number for number, position in enumerate(placed, start=1)},
            total=len(placed),
        )

    @classmethod
    def of_request(cls, request: RenderRequest, language: Language) -> "Teller":
        """Prepare what *request* asks for; its one position is numbered as the request says, if it does."""
        teller = cls.of(request.order, language)
        if request.position is None or request.total is None:
            return teller
        numbers = {} if request.number is None else {request.position.id: request.number}
        return attrs.evolve(teller, numbers=numbers, total=request.total)

    def position(self, position: Position) -> Content:
        """Return all fields of *position* that are not the event's.

        Raises:
            InvalidRequest: the currency is unknown.
        """
        seat = self.seat_of(position)
        # Also where there is only one line for all of them: a category may have been typed with a line feed in it.
        addons = [" ".join(name.split()) for name in self._addon_names(position)]
        return {
            **_seat_fields(seat, self.language),
            "holder": self.holder_of(position),
            "category": position.category,
            "price": self.language.price(position.amount_minor, self.order.currency),
            "addons": SEPARATOR.join(addons),
            "addon_list": "\n".join(addons),
            "addon_to": self._parent_words(position),
            "order_code": str(self.order.order_id),
            "short_code": short_code(position.token),
            "token": position.token,
            "buyer": self.order.buyer,
            **self._number_fields(position),
        }

    def seat_of(self, position: Position) -> Seat | None:
        """Return the seat of *position*: its own, or that of the one it extends."""
        return next((one.seat for one in self._with_parent(position) if _has_seat(one.seat)), None)

    def holder_of(self, position: Position) -> str:
        """Return the holder of *position*: its own, or that of the one it extends."""
        return next((one.holder for one in self._with_parent(position) if one.holder.strip()), "")

    def _with_parent(self, position: Position) -> tuple[Position, ...]:
        """Return *position*, and what it extends; that extends nothing (see `limits`)."""
        parent = None if position.addon_to is None else self._positions.get(position.addon_to)
        return (position,) if parent is None else (position, parent)

    def _addon_names(self, position: Position) -> list[str]:
        """Return the categories of the add-ons in their order, equal ones counted."""
        counts: dict[str, int] = {}
        for addon in self._addons.get(position.id, ()):
            counts[addon.category] = counts.get(addon.category, 0) + 1
        return [name if count == 1 else f"{count} {TIMES} {name}" for name, count in counts.items()]

    def _parent_words(self, position: Position) -> str:
        _, *parents = self._with_parent(position)
        return SEPARATOR.join(word for parent in parents for word in (parent.category, parent.holder) if word)

    def _number_fields(self, position: Position) -> Content:
        number, total = self._numbers.get(position.id), self._total
        if number is None:
            return {"ticket_of": "", "number": ""}
        words = self.language.word("ticket_of").format(number=number, total=total)
        return {"ticket_of": words, "number": f"{number} / {total}"}


def short_code(token: str) -> str:
    """Return the beginning of a token in two groups of four: enough to look it up, too little to forge it."""
    head = token[:SHORT_CODE]
    half = SHORT_CODE // 2
    return f"{head[:half]}-{head[half:]}" if len(head) == SHORT_CODE else head


def event_content(event: Event, language: Language, values: Values) -> Content:
    """Return what every ticket of *event* says, and all words of *language* as ``label.…``.

    Raises:
        InvalidRequest: the event's zone is unknown, or one of its times has none.
    """
    labels = {f"label.{name}": word for name, word in language.words.items()}
    return {**labels, **_event_fields(event, language, values)}


def _event_fields(event: Event, language: Language, values: Values) -> Content:
    starts = values.local(event.starts_at, event.tz, field="event.starts_at")
    doors = values.local(event.doors_at, event.tz, field="event.doors_at") if event.doors_at else None
    return {
        "event": event.name,
        "sub_event": event.sub_event or "",
        "venue": event.venue,
        "date": language.long_date(starts),
        "short_date": language.short_date(starts),
        "start": language.time(starts),
        "doors": _doors_words(doors, starts, language) if doors else "",
        "offset": utc_offset(starts),
        "zone_name": event.tz,
        "when": f"{language.short_date(starts)}{SEPARATOR}{language.time(starts)} ({utc_offset(starts)})",
        "terms": event.terms,
    }


def _doors_words(doors: dt.datetime, starts: dt.datetime, language: Language) -> str:
    """Return the time of the doors, with its day and its offset where those are not the start's."""
    written = language.time(doors)
    if doors.date() != starts.date():
        written = f"{language.short_date(doors)}, {written}"
    if doors.utcoffset() != starts.utcoffset():
        written = f"{written} ({utc_offset(doors)})"
    return written


def _has_seat(seat: Seat | None) -> bool:
    return seat is not None and any((seat.zone, seat.row, seat.number))


def _seat_fields(seat: Seat | None, language: Language) -> dict[str, str]:
    if seat is None or not _has_seat(seat):
        words = language.word("general_admission")
        return {"seat": words, "general_admission": words, "seat_zone": "", "seat_row": "", "seat_number": ""}
    parts = (("zone", seat.zone), ("row", seat.row), ("seat", seat.number))
    return {
        "seat": SEPARATOR.join(f"{language.word(name)} {value}" for name, value in parts if value),
        "general_admission": "",
        "seat_zone": seat.zone or "",
        "seat_row": seat.row or "",
        "seat_number": seat.number or "",
    }
