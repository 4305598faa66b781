"""The content key: equal only for equal things, known before anything is drawn."""

import datetime as dt
import subprocess
import sys
from typing import Any

import attrs
import pypdfium2
import pytest
from PIL import features

from stagedoor.errors import InvalidRequest
from stagedoor.order import Seat, TaxLine
from stagedoor.rendering.api import RenderRequest
from stagedoor.rendering.key import content_key
from stagedoor_renderers.stock import own_fingerprint
from stagedoor_renderers.ticket_png import TicketPng
from tests.rendering.orders import event, order, position, request
from tests.rendering.test_registry import Plain

UTC = dt.UTC
REQUEST = request(position(1), position(2))


def changed(**changes: Any) -> RenderRequest:
    return attrs.evolve(REQUEST, order=attrs.evolve(REQUEST.order, **changes))


DIFFERENT = {
    "layout": attrs.evolve(REQUEST, layout="a4"),
    "locale": attrs.evolve(REQUEST, locale="de"),
    "other position": attrs.evolve(REQUEST, position=REQUEST.order.positions[1]),
    "whole order": attrs.evolve(REQUEST, position=None),
    "version": changed(version=2),
    "status": changed(status="refunded"),
    "receipt number": changed(receipt_number="7"),
    "taxes": changed(taxes=(TaxLine(label="7 %", amount_minor=1),)),
    "event": changed(event=event(name="Fidelio")),
    "doors": changed(event=event(doors_at=dt.datetime(2026, 7, 1, 17, tzinfo=UTC))),
    "sub-event": changed(event=event(sub_event="Premiere")),
    "terms": changed(event=event(terms="no dogs")),
    "seat": changed(positions=(position(1, seat=Seat(row="C", number="9")), position(2))),
    "parts of the seat": changed(positions=(position(1, seat=Seat(zone="C", row="8")), position(2))),
    "no seat": changed(positions=(position(1, seat=None), position(2))),
    "order of positions": changed(positions=(position(2), position(1))),
    "fewer positions": changed(positions=(position(1),)),
}


def test_every_value_of_a_request_counts() -> None:
    keys = {name: content_key(item, Plain()) for name, item in DIFFERENT.items()}
    keys["itself"] = content_key(REQUEST, Plain())
    assert len(set(keys.values())) == len(keys)


@pytest.mark.parametrize("attribute", ["name", "version", "content_type", "suffix"])
def test_every_property_of_the_renderer_counts(attribute: str) -> None:
    other = Plain()
    setattr(other, attribute, getattr(other, attribute) + "x")
    assert content_key(REQUEST, other) != content_key(REQUEST, Plain())


def test_the_fingerprint_counts() -> None:
    other = Plain()
    other.fingerprint = lambda: "g"  # type: ignore[method-assign] # other fonts
    assert content_key(REQUEST, other) != content_key(REQUEST, Plain())


@pytest.mark.parametrize("part", ["PYPDFIUM_INFO", "PDFIUM_INFO"])
def test_the_key_of_a_picture_covers_what_draws_it(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another PDFium may draw other pixels of the same page."""
    renderer = TicketPng()
    before = content_key(REQUEST, renderer)
    monkeypatch.setattr(pypdfium2.version, part, "999.0")
    assert content_key(REQUEST, renderer) != before


def test_the_key_of_a_ticket_covers_what_makes_its_pictures_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow may use libraries of the system, which change without it."""
    before = own_fingerprint()
    monkeypatch.setattr(features, "version", lambda name: "999.0" if name == "littlecms2" else "1")
    between = own_fingerprint()
    monkeypatch.setattr(features, "version", lambda _: "1")
    assert len({before, between, own_fingerprint()}) == 3


def test_moving_text_from_one_field_to_the_next_changes_the_key() -> None:
    """Fields are kept apart, not strung together."""
    one = request(position(holder="Anna", category="Bell"))
    two = request(position(holder="AnnaB", category="ell"))
    assert content_key(one, Plain()) != content_key(two, Plain())


def test_one_instant_has_one_key_in_whatever_zone_it_is_given() -> None:
    berlin = dt.timezone(dt.timedelta(hours=2))
    shifted = changed(event=event(starts_at=dt.datetime(2026, 7, 1, 20, 0, tzinfo=berlin)))
    assert content_key(shifted, Plain()) == content_key(REQUEST, Plain())


def test_a_time_without_a_zone_is_refused_by_name() -> None:
    naive = changed(event=event(starts_at=dt.datetime(2026, 7, 1, 20, 0)))  # noqa: DTZ001 - the case
    with pytest.raises(InvalidRequest, match="starts_at: the time has no zone"):
        content_key(naive, Plain())


def test_a_type_that_orders_do_not_have_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="holder: float has no place in an order"):
        content_key(request(position(holder=1.5)), Plain())


def test_a_list_where_a_tuple_belongs_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="positions: list has no place in an order"):
        content_key(changed(positions=[position(1)]), Plain())


def test_a_lone_surrogate_has_a_key() -> None:
    """JSON allows it in a name; it must not break anything before the renderer says what it thinks of it."""
    assert len(content_key(request(position(holder="\ud800")), Plain())) == 64


def test_the_key_does_not_depend_on_the_hash_seed() -> None:
    code = "from tests.rendering.test_key import REQUEST, Plain, content_key; print(content_key(REQUEST, Plain()))"
    path = ":".join(sys.path)
    keys = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert keys == {content_key(REQUEST, Plain())}


def test_an_order_that_is_read_twice_has_one_key() -> None:
    again = attrs.evolve(REQUEST, order=order(position(1), position(2)))
    assert content_key(again, Plain()) == content_key(REQUEST, Plain())
