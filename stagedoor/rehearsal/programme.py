"""Orders that look like those of real shops, from a seed.

What is on stands in ``programme.toml`` beside this module: names, venues, zones
and currencies of the world, as far as the built-in renderers can write them:
Latin with accents, Vietnamese, Greek, Cyrillic, Hebrew, Arabic, Chinese,
Japanese and Korean.
"""

import datetime as dt
import functools
import importlib.resources
import random
import tomllib
import zoneinfo
from collections.abc import Iterator
from typing import Any

import attrs
import cattrs

from stagedoor.errors import StagedoorError
from stagedoor.order import Event, NewOrder, NewPosition, Seat, TaxLine

ROWS = "ABCDEFGHKLMNPRST"
MOST_POSITIONS = 4
ADDON_SHARE = 0.18
REDUCED_SHARE = 0.2
TAX_PERCENT = {"EUR": 7, "GBP": 20, "INR": 18}


class ProgrammeInvalid(StagedoorError):
    """A programme cannot be played; says which show, and why."""


@attrs.frozen(kw_only=True)
class Category:
    """One kind of place; its price counts the currency's smallest unit, and where one stands there are no seats."""

    name: str
    amount_minor: int
    zone: str | None = None
    is_seated: bool = True


@attrs.frozen(kw_only=True)
class Addon:
    """What is sold with a ticket."""

    name: str
    amount_minor: int


@attrs.frozen(kw_only=True)
class Show:
    """One event on sale, and who buys it; ``programme.toml`` says what its fields mean."""

    name: str
    venue: str
    tz: str
    locale: str
    currency: str
    starts: tuple[str, ...]
    categories: tuple[Category, ...]
    given: tuple[str, ...]
    family: tuple[str, ...]
    doors_minutes: int | None = None
    reduced: str = ""
    addons: tuple[Addon, ...] = ()
    men: tuple[str, ...] = ()
    family_first: bool = False
    joint: str = " "
    sub_event: str | None = None
    rows: str = ROWS
    tax: str = ""
    terms: str = ""


# -- the programme ------------------------------------------------------------------


@functools.cache
def shows() -> tuple[Show, ...]:
    """Return what is on, read once."""
    return read_programme(importlib.resources.files(__package__).joinpath("programme.toml").read_text("utf-8"))


def read_programme(text: str) -> tuple[Show, ...]:
    """Return the shows of a programme.

    Raises:
        ProgrammeInvalid: it has none, or one that cannot be played.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProgrammeInvalid(f"the programme is no TOML: {error}") from None
    entries = found.get("show")
    if found.keys() != {"show"} or not isinstance(entries, list) or not entries:
        raise ProgrammeInvalid(f"expected [[show]] tables and nothing else, found {', '.join(found) or 'nothing'}")
    return tuple(_read_show(number, entry) for number, entry in enumerate(entries, 1))


def _read_show(number: int, entry: object) -> Show:
    if not isinstance(entry, dict):
        raise ProgrammeInvalid(f"show {number}: expected a table, found {entry!r}")
    try:
        show = _CONVERTER.structure(entry, Show)
    except cattrs.BaseValidationError as error:
        raise ProgrammeInvalid(f"show {number}: {'; '.join(cattrs.transform_error(error, path='show'))}") from None
    for problem in _problems(show):
        raise ProgrammeInvalid(f"show {number} ({show.name}): {problem}")
    return show


def _problems(show: Show) -> Iterator[str]:
    for name in ("name", "starts", "categories", "given", "family", "rows"):
        if not getattr(show, name):
            yield f"{name}: expected at least one"
    if min(0, *(one.amount_minor for one in show.categories), *(one.amount_minor for one in show.addons)) < 0:
        yield "amount_minor: expected 0 or more"
    try:
        for start in show.starts:
            _instant(start, show.tz)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
        yield f"starts, tz: {error}"


def _make_converter() -> cattrs.Converter:
    """Return a converter that takes what TOML says as it is: nothing becomes a text or a number by itself."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly)
    return converter


def _exactly[T](value: Any, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {value!r}")
    return value


_CONVERTER = _make_converter()


# -- orders -------------------------------------------------------------------------


def make_orders(count: int, seed: int) -> Iterator[NewOrder]:
    """Yield so many orders; the same seed yields the same ones."""
    rng = random.Random(f"programme {seed}")
    on_sale = shows()
    for number in range(1, count + 1):
        show = on_sale[number - 1] if number <= len(on_sale) else rng.choice(on_sale)
        yield _order(show, number, rng)


def _order(show: Show, number: int, rng: random.Random) -> NewOrder:
    positions = tuple(_positions(show, rng))
    total = sum(position.amount_minor for position in positions)
    starts_at = _instant(rng.choice(show.starts), show.tz)
    doors_at = None if show.doors_minutes is None else starts_at - dt.timedelta(minutes=show.doors_minutes)
    event = Event(
        name=show.name,
        venue=show.venue,
        starts_at=starts_at,
        doors_at=doors_at,
        tz=show.tz,
        sub_event=show.sub_event,
        terms=show.terms,
    )
    percent = TAX_PERCENT.get(show.currency, 0)
    taxes = (TaxLine(label=f"{show.tax} {percent} %", amount_minor=round(total * percent / (100 + percent))),)
    return NewOrder(
        event=event,
        locale=show.locale,
        currency=show.currency,
        buyer=positions[0].holder,
        positions=positions,
        receipt_number=f"{starts_at.year}-{number:05d}",
        taxes=taxes if percent and total and show.tax else (),
    )


def _instant(local: str, tz: str) -> dt.datetime:
    return dt.datetime.fromisoformat(local).replace(tzinfo=zoneinfo.ZoneInfo(tz)).astimezone(dt.UTC)


def _positions(show: Show, rng: random.Random) -> Iterator[NewPosition]:
    family = rng.choice(show.family)
    category = rng.choice(show.categories)
    admissions = rng.choices((1, 2, 3, MOST_POSITIONS), weights=(30, 45, 15, 10))[0]
    seats = _seats(category, show.rows, admissions, rng=rng)
    position_id = 0
    for place in range(admissions):
        position_id += 1
        admission = position_id
        is_reduced = place > 0 and category.amount_minor > 0 and rng.random() < REDUCED_SHARE
        yield NewPosition(
            id=position_id,
            holder=_name(show, family, rng),
            category=f"{category.name}, {show.reduced}" if is_reduced else category.name,
            amount_minor=category.amount_minor * 6 // 10 if is_reduced else category.amount_minor,
            seat=seats[place],
        )
        has_room = position_id + admissions - place - 1 < MOST_POSITIONS
        if show.addons and has_room and rng.random() < ADDON_SHARE:
            position_id += 1
            addon = rng.choice(show.addons)
            yield NewPosition(
                id=position_id,
                holder="",
                category=addon.name,
                amount_minor=addon.amount_minor,
                addon_to=admission,
            )


def _seats(category: Category, rows: str, count: int, *, rng: random.Random) -> list[Seat | None]:
    """Return neighbours in one row, or no seats where one stands or sits where one likes."""
    if not category.is_seated:
        return [None] * count
    row, first = rng.choice(rows), rng.randrange(1, 28)
    return [Seat(zone=category.zone, row=row, number=str(first + place)) for place in range(count)]


def _name(show: Show, family: str, rng: random.Random) -> str:
    given = rng.choice(show.given + show.men)
    # One in five goes with somebody of another name.
    own = family if rng.random() < 4 / 5 else rng.choice(show.family)
    own = own.split("|")[-1 if given in show.men else 0]
    return f"{own}{show.joint}{given}" if show.family_first else f"{given}{show.joint}{own}"
