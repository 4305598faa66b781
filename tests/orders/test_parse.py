"""The boundary: what a line of orders.jsonl may be, and what is said about one that may not."""

import contextlib
import datetime as dt
import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.errors import InvalidOrder
from stagedoor.order import Event, NewOrder, NewPosition, Seat, TaxLine
from stagedoor.orders import OrderBook, format_line, parse_line, parse_order
from stagedoor.orders.parse import accept
from tests.orders.support import order_data, position_data


def with_position(**changes: Any) -> dict[str, Any]:
    return order_data(positions=[position_data(1, **changes)])


def with_event(**changes: Any) -> dict[str, Any]:
    data = order_data()
    return data | {"event": data["event"] | changes}


def without(*path: str) -> dict[str, Any]:
    data = order_data()
    target = data
    for key in path[:-1]:
        target = target[key] if key != "positions" else target["positions"][0]
    del target[path[-1]]
    return data


def test_a_line_becomes_values() -> None:
    line = json.dumps(order_data(order_id=4471, receipt_number="R-1", taxes=[{"label": "7 %", "amount_minor": 294}]))
    order = parse_line(line)
    assert order.order_id == 4471
    assert order.event.starts_at == dt.datetime(2026, 7, 1, 18, tzinfo=dt.UTC)
    assert order.positions[0].seat == Seat(row="C", number="1")
    assert order.taxes == (TaxLine(label="7 %", amount_minor=294),)
    assert parse_line(line.encode()) == order


def test_a_time_with_an_offset_becomes_utc() -> None:
    order = parse_order(with_event(starts_at="2026-07-01T20:00:00+02:00", doors_at="2026-07-01T19:00+02:00"))
    assert order.event.starts_at.isoformat() == "2026-07-01T18:00:00+00:00"
    assert order.event.doors_at == dt.datetime(2026, 7, 1, 17, tzinfo=dt.UTC)


def test_optional_fields_may_be_left_out() -> None:
    data = order_data(positions=[{"id": 1, "holder": "", "category": "", "amount_minor": 0}])
    del data["event"]["doors_at"]
    order = parse_order(data)
    assert order.order_id is None
    assert order.positions == (NewPosition(id=1, holder="", category="", amount_minor=0),)


def test_500_positions_are_accepted() -> None:
    assert len(parse_order(order_data(positions=500)).positions) == 500


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown zone": (with_event(tz="Europe/Atlantis"), r"event\.tz: expected a time zone"),
    "a folder of zones": (with_event(tz="Europe"), r"event\.tz: "),
    "a zone by path": (with_event(tz="../../etc/passwd"), r"event\.tz: "),
    "an absolute zone": (with_event(tz="/etc/localtime"), r"event\.tz: "),
    "an empty zone": (with_event(tz=""), r"event\.tz: "),
    "currency in small letters": (order_data(currency="eur"), r"currency: expected three capital letters .*'eur'"),
    "currency sign": (order_data(currency="€"), r"currency: .*'\\u20ac'"),
    "four letters": (order_data(currency="EURO"), r"currency: "),
    "naive time": (with_event(starts_at="2026-07-01T18:00:00"), r"event\.starts_at: the time has no offset"),
    "naive datetime": (
        with_event(starts_at=dt.datetime(2026, 7, 1)),  # noqa: DTZ001 - that is what is refused
        r"event\.starts_at: the time has no offset",
    ),
    "a date": (with_event(starts_at="2026-07-01"), r"event\.starts_at: expected a time such as"),
    "no such day": (with_event(starts_at="2026-02-30T18:00:00Z"), r"event\.starts_at: "),
    "a number as time": (with_event(starts_at=1780000000), r"event\.starts_at: expected a time .* found 1780000000"),
    "before year 1 in UTC": (
        with_event(starts_at="0001-01-01T00:00:00+14:00"),
        r"event\.starts_at: .* years 1 to 9999",
    ),
    "doors naive": (with_event(doors_at="2026-07-01T18:00:00"), r"event\.doors_at: the time has no offset"),
    "no event name": (with_event(name="  "), r"event\.name: must not be empty"),
    "lone surrogate": (with_position(holder="Zo\ud800"), r"positions\[0\]\.holder: holds half of a surrogate pair"),
    "NUL": (order_data(buyer="A\0B"), r"buyer: holds a NUL"),
    "long holder": (with_position(holder="W" * 501), r"positions\[0\]\.holder: at most 500 characters, found 501"),
    "long terms": (with_event(terms="x" * 20_001), r"event\.terms: at most 20000"),
    "long seat": (with_position(seat={"row": "x" * 101}), r"positions\[0\]\.seat\.row: at most 100"),
    "a bad locale": (order_data(locale="../de"), r"locale: expected a language tag"),
    "501 positions": (order_data(positions=501), r"positions: at most 500, found 501"),
    "no positions": (order_data(positions=[]), r"positions: expected 1 to 500, found 0"),
    "duplicate ids": (
        order_data(positions=[position_data(1), position_data(1)]),
        r"positions\[1\]\.id: 1 is the id of",
    ),
    "unknown parent": (with_position(addon_to=9), r"positions\[0\]\.addon_to: there is no position 9"),
    "its own parent": (with_position(addon_to=1), r"positions\[0\]\.addon_to: a position cannot extend itself"),
    "an add-on of an add-on": (
        order_data(positions=[position_data(1), position_data(2, addon_to=1), position_data(3, addon_to=2)]),
        r"positions\[2\]\.addon_to: position 2 is an add-on itself",
    ),
    "negative amount": (with_position(amount_minor=-1), r"positions\[0\]\.amount_minor: expected 0 to"),
    "amount in text": (with_position(amount_minor="45.00"), r"positions\[0\]\.amount_minor: .* found text"),
    "amount as fraction": (with_position(amount_minor=45.0), r"positions\[0\]\.amount_minor: .* found 45\.0"),
    "NaN": (with_position(amount_minor=float("nan")), r"positions\[0\]\.amount_minor: .* found nan"),
    "true": (with_position(amount_minor=True), r"positions\[0\]\.amount_minor: .* found true"),
    "negative tax": (order_data(taxes=[{"label": "x", "amount_minor": -1}]), r"taxes\[0\]\.amount_minor: expected 0"),
    "order id 0": (order_data(order_id=0), r"order_id: expected 1 to 9223372036854775807, found 0"),
    "order id 2^63": (order_data(order_id=2**63), r"order_id: expected 1 to"),
    "a huge order id": (order_data(order_id=10**5000), r"order_id: .* a number of 16610 bits"),
    "order id in text": (order_data(order_id="7"), r"order_id: expected a whole number, found text"),
    "position id 0": (with_position(id=0), r"positions\[0\]\.id: expected 1 to"),
    "position id null": (with_position(id=None), r"positions\[0\]\.id: expected a whole number, found null"),
    "holder null": (with_position(holder=None), r"positions\[0\]\.holder: expected text, found null"),
    "seat as text": (with_position(seat="C 8"), r"positions\[0\]\.seat: expected an object or null, found text"),
    "seat number": (with_position(seat={"number": 8}), r"positions\[0\]\.seat\.number: expected text, found 8"),
    "positions as object": (order_data(positions={}), r"positions: expected a list, found an object"),  # type: ignore[arg-type]  # that is what is refused
    "positions as text": (order_data(positions="12"), r"positions: expected a list, found text"),  # type: ignore[arg-type]  # that is what is refused
    "a position as text": (order_data(positions=["1"]), r"positions\[0\]: expected an object, found text"),  # type: ignore[list-item]  # that is what is refused
    "event as text": (order_data(event="Oper"), r"event: expected an object, found text"),
    "a typing error": (order_data(curency="EUR"), r"holds unknown fields: 'curency'"),
    "an unknown field of a position": (with_position(token="A" * 26), r"positions\[0\]: holds unknown fields: 'token'"),
    "no currency": (without("currency"), r"currency: is missing"),
    "no event": (without("event"), r"event: is missing"),
    "no event zone": (without("event", "tz"), r"event\.tz: is missing"),
    "no holder": (without("positions", "holder"), r"positions\[0\]\.holder: is missing"),
}


@pytest.mark.parametrize("data, message", WRONG.values(), ids=WRONG.keys())
def test_what_will_not_do_is_refused_by_its_name(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOrder, match=message):
        parse_order(data)


def test_all_problems_are_named_at_once() -> None:
    data = with_position(holder="\ud800", amount_minor=-1) | {"currency": "x", "locale": "?"}
    with pytest.raises(InvalidOrder) as caught:
        parse_order(data)
    for field in ("currency", "locale", "positions[0].holder", "positions[0].amount_minor"):
        assert f"{field}: " in str(caught.value)


def test_a_thousand_problems_are_not_a_thousand_lines() -> None:
    with pytest.raises(InvalidOrder, match="and 480 more") as caught:
        parse_order(order_data(positions=[position_data(n, amount_minor=-1) for n in range(1, 501)]))
    assert len(str(caught.value)) < 3_000


def test_messages_do_not_quote_people() -> None:
    with pytest.raises(InvalidOrder) as caught:
        parse_order(order_data(buyer="Šimková" * 100, positions=[position_data(1, holder="Řehoř\0")]))
    assert "imkov" not in str(caught.value)
    assert "eho" not in str(caught.value)


LINES: dict[str, tuple[str | bytes, str]] = {
    "not JSON": ("{", "the line: not JSON at column 2"),
    "empty": ("", "the line: not JSON"),
    "a list": ("[]", "the line: expected an object, found a list"),
    "a number": ("4471", "the line: expected an object, found 4471"),
    "NaN": ('{"order_id": NaN}', "the line: holds NaN"),
    "infinity": ('{"order_id": -Infinity}', "the line: holds -Infinity"),
    "a field twice": ('{"order_id": 1, "order_id": 2}', "'order_id': given more than once"),
    "5,000 digits": ('{"order_id": ' + "9" * 5_000 + "}", "the line: holds a number that is too long"),
    "not UTF-8": (b'{"buyer": "\xff"}', "the line: not UTF-8 at byte 11"),
    "a deep one": ('{"a":' * 100_000, "the line: nested too deeply|the line: not JSON"),
    "a very long one": ('"' + "x" * (4 * 1024 * 1024) + '"', "the line: at most"),
}


@pytest.mark.parametrize("line, message", LINES.values(), ids=LINES.keys())
def test_what_is_no_line_is_refused(line: str | bytes, message: str) -> None:
    with pytest.raises(InvalidOrder, match=message):
        parse_line(line)


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidOrder, match="expected an object, found a list"):
        parse_order([])  # type: ignore[arg-type]  # a shop without a type checker may do this


def test_values_are_checked_as_well_as_mappings() -> None:
    good = parse_order(order_data())
    with pytest.raises(InvalidOrder, match="currency"):
        accept(attrs.evolve(good, currency="x"))
    naive = attrs.evolve(good.event, starts_at=dt.datetime(2026, 7, 1))  # noqa: DTZ001 - that is what is refused
    with pytest.raises(InvalidOrder, match=r"event\.starts_at: the time has no offset"):
        accept(attrs.evolve(good, event=naive))
    local = attrs.evolve(good.event, starts_at=good.event.starts_at.astimezone(dt.timezone(dt.timedelta(hours=2))))
    assert accept(attrs.evolve(good, event=local)).event.starts_at.utcoffset() == dt.timedelta(0)


def test_an_order_is_written_as_a_line_without_its_tokens(book: OrderBook) -> None:
    placed = book.place(order_data(positions=2))
    line = format_line(placed)
    assert "\n" not in line
    assert placed.positions[0].token not in line
    assert parse_line(line).positions == parse_order(order_data(positions=2)).positions
    assert parse_line(line).order_id == placed.order_id


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
optional_texts = st.none() | texts
seats = st.none() | st.builds(Seat, zone=optional_texts, row=optional_texts, number=optional_texts)
amounts = st.integers(0, 2**63 - 1)
instants = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001 - bounds are naive by contract
events = st.builds(
    Event,
    name=texts.filter(str.strip),
    venue=texts,
    starts_at=instants,
    tz=st.sampled_from(["Europe/Berlin", "UTC", "America/Argentina/Buenos_Aires"]),
    doors_at=st.none() | instants,
    sub_event=optional_texts,
    terms=texts,
)
positions = st.lists(
    st.builds(
        NewPosition,
        id=st.integers(1, 2**63 - 1),
        holder=texts,
        category=texts,
        amount_minor=amounts,
        seat=seats,
        addon_to=st.none(),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda position: position.id,
).map(tuple)
new_orders = st.builds(
    NewOrder,
    event=events,
    locale=st.sampled_from(["de-DE", "en", "zh-Hans-CN", "pt_BR"]),
    currency=st.sampled_from(["EUR", "JPY", "KWD"]),
    buyer=texts,
    positions=positions,
    order_id=st.none() | st.integers(1, 2**63 - 1),
    receipt_number=optional_texts,
    taxes=st.lists(st.builds(TaxLine, label=texts, amount_minor=amounts), max_size=2).map(tuple),
)


@given(new_orders)
def test_every_order_survives_its_line(new: NewOrder) -> None:
    assert parse_line(format_line(new)) == new
    assert accept(new) == new


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_anything_in_any_place_is_parsed_or_refused(data: st.DataObject) -> None:
    """A bad value is an InvalidOrder, whatever it is and wherever it stands; nothing else ever comes out."""
    order = order_data()
    place = data.draw(st.sampled_from([order, order["event"], order["positions"][0], order["positions"][0]["seat"]]))
    place[data.draw(st.sampled_from([*place, "unknown"]))] = data.draw(json_values)
    with contextlib.suppress(InvalidOrder):
        new = parse_order(order)
        assert parse_line(format_line(new)) == new
