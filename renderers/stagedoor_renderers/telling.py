"""The content of every ticket that a request asks for, in the words of its language, cleaned."""

from collections.abc import Callable, Mapping

import attrs

from stagedoor.errors import InvalidRequest
from stagedoor.rendering.api import Order, Position, RenderRequest
from stagedoor_renderers.fields import Content, Teller, event_content
from stagedoor_renderers.kit import text
from stagedoor_renderers.limits import checked
from stagedoor_renderers.values import Language, Values

Sign = Callable[[Order, Position], str]
"""Returns what the code of a position says: its token, or its token signed."""

_LINES_OF_TEXT = frozenset(("terms", "addon_list"))
"""Fields that keep their line breaks; all others are one line."""

_AMOUNTS = frozenset(("amount", "price"))
"""Fields that hold nothing that was typed: the marks of direction in them are their language's own, and stay."""


def plain_token(order: Order, position: Position) -> str:
    """Return the token as it is."""
    del order
    return position.token


@attrs.frozen(kw_only=True)
class Told:
    """What one request says: its language, and the content of each ticket beside its position."""

    language: Language
    tickets: tuple[tuple[Position, Content], ...]


def told(request: RenderRequest, values: Values, *, sign: Sign = plain_token) -> Told:
    """Return the content of every ticket that *request* asks for.

    Raises:
        InvalidRequest: the order is beyond a limit, or cannot be told; names the field.
    """
    order = checked(request)
    language = values.language(request.locale or order.locale)
    shared = event_content(order.event, language, values)
    teller = Teller.of_request(request, language)
    tickets = tuple(
        (position, clean({**shared, **teller.position(position), "token": sign(order, position)}))
        for position in wanted_positions(request)
    )
    return Told(language=language, tickets=tickets)


def clean(content: Mapping[str, str]) -> Content:
    """Return *content* composed and without anything invisible; see `kit.text`."""
    return {name: _cleaned(name, value) for name, value in content.items()}


def _cleaned(name: str, value: str) -> str:
    if name in _AMOUNTS:
        return value
    return text.cleaned(value) if name in _LINES_OF_TEXT else text.one_line(value)


def wanted_positions(request: RenderRequest) -> tuple[Position, ...]:
    """Return the one position of *request*, or all that are placed.

    Raises:
        InvalidRequest: none is placed.
    """
    if request.position is not None:
        return (request.position,)
    placed = request.order.placed_positions
    if not placed:
        raise InvalidRequest("order.positions: none is placed, so there is no ticket to draw")
    return placed


SHOWN = (
    ("category", "category"),
    ("holder", "holder"),
    ("date", "date"),
    ("start", "start"),
    ("doors", "doors"),
    ("venue", "venue"),
    ("seat", "seat"),
    ("addons", "addons"),
    ("addon", "addon_to"),
    ("price", "price"),
    ("order", "order_code"),
    ("code", "short_code"),
)
"""Word and field of everything that a version in plain text shows, in its order."""


def facts_of(content: Content) -> list[tuple[str, str]]:
    """Return label and value of everything that *content* has; the start has its offset and zone with it."""
    clocks = f" ({content['offset']}, {content['zone_name']})"
    return [
        (content[f"label.{word}"], content[field] + (clocks if field == "start" else ""))
        for word, field in SHOWN
        if content[field]
    ]
