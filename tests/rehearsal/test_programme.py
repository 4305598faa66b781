"""The orders of a rehearsal: they can be placed, they look like the world's, and a seed decides them."""

import hashlib
import unicodedata
from collections import Counter

import pytest

from stagedoor.orders.parse import accept
from stagedoor.rehearsal.plan import Act, Moment, make_plan
from stagedoor.rehearsal.programme import MOST_POSITIONS, ProgrammeInvalid, make_orders, read_programme, shows

ORDERS = list(make_orders(400, seed=1))


def test_every_order_can_be_placed() -> None:
    for order in ORDERS:
        accept(order)


def test_the_first_orders_are_of_every_show() -> None:
    assert [order.event.name for order in ORDERS[: len(shows())]] == [show.name for show in shows()]


def test_the_same_seed_makes_the_same_orders_and_another_makes_others() -> None:
    assert list(make_orders(400, seed=1)) == ORDERS
    assert list(make_orders(400, seed=2)) != ORDERS


@pytest.mark.parametrize(
    "seed,digest", [(0, "b6cd643b3c5b98278bd7f106974d8355"), (4471, "00a435fcd2766bb8746e13516fb18bcc")]
)
def test_a_seed_makes_the_orders_that_it_always_made(seed: int, digest: str) -> None:
    """A seed in a report or a bug stands for its orders; a programme that changes has new digests here."""
    said = "".join(map(repr, make_orders(300, seed)))
    assert hashlib.sha256(said.encode()).hexdigest()[:32] == digest


SHOW = """
[[show]]
name = "Rusalka"
venue = "Praha"
tz = "Europe/Prague"
locale = "cs-CZ"
currency = "EUR"
starts = ["2027-05-08T19:00"]
categories = [{ name = "Balkon", amount_minor = 2600 }]
given = ["Ana"]
family = ["Malá"]
"""


def test_a_programme_of_one_show() -> None:
    [show] = read_programme(SHOW)
    assert (show.name, show.doors_minutes, show.addons, show.joint) == ("Rusalka", None, (), " ")


@pytest.mark.parametrize(
    "old,new,said",
    [
        ("[[show]]", "[[", "no TOML"),
        ("[[show]]", "[[play]]", "found play"),
        (SHOW, "", "found nothing"),
        (SHOW, "show = [1]", "show 1: expected a table, found 1"),
        ('venue = "Praha"', "", "venue"),
        ('venue = "Praha"', "venue = 7", "expected str @ show.venue"),
        ("2600", '"2600"', r"expected int @ show.categories\[0\].amount_minor"),
        ("2600", "-1", r"\(Rusalka\): amount_minor: expected 0 or more"),
        ("2600", "2600, is_seated = 0", r"expected bool @ show.categories\[0\].is_seated"),
        ('given = ["Ana"]', "given = []", "given: expected at least one"),
        ("2027-05-08T19:00", "soon", "starts, tz: "),
        ("Europe/Prague", "Europe/Nowhere", "starts, tz: "),
        ("[[show]]", "[[show]]\ncolour = 'red'", "colour"),
    ],
)
def test_a_programme_that_cannot_be_played_says_which_show_and_why(old: str, new: str, said: str) -> None:
    with pytest.raises(ProgrammeInvalid, match=said):
        read_programme(SHOW.replace(old, new))


def test_more_orders_begin_with_the_same_ones() -> None:
    assert list(make_orders(40, seed=1)) == ORDERS[:40]


@pytest.mark.parametrize(
    "script", ["LATIN", "GREEK", "CYRILLIC", "HEBREW", "ARABIC", "CJK", "HIRAGANA", "KATAKANA", "HANGUL"]
)
def test_the_scripts_of_the_world_are_there(script: str) -> None:
    texts = [position.holder + position.category for order in ORDERS for position in order.positions]
    texts += [order.event.name + order.event.venue + order.event.terms for order in ORDERS]
    assert any(unicodedata.name(char, "").startswith(script) for text in texts for char in text)


def test_the_currencies_of_the_world_and_free_places_are_there() -> None:
    assert {order.currency for order in ORDERS} >= {"EUR", "USD", "GBP", "JPY", "KWD", "INR"}
    assert any(position.amount_minor == 0 and not position.addon_to for o in ORDERS for position in o.positions)


def test_orders_have_one_to_four_positions_seats_standing_places_and_addons() -> None:
    sizes = Counter(len(order.positions) for order in ORDERS)
    positions = [position for order in ORDERS for position in order.positions]
    assert set(sizes) == set(range(1, MOST_POSITIONS + 1))
    assert any(position.seat is None and position.addon_to is None for position in positions)
    assert any(position.seat is not None and position.seat.row for position in positions)
    assert any(position.addon_to is not None for position in positions)


def test_families_are_called_as_men_and_women_are() -> None:
    holders = [position.holder for order in ORDERS if order.locale == "el-GR" for position in order.positions]
    assert not any("|" in holder for holder in holders)
    assert not any(holder.startswith("Γιώργος") and holder.endswith("Ξενάκη") for holder in holders)


@pytest.mark.parametrize("share,count", [(0.0, 0), (0.2, 80), (0.333, 133), (1.0, 400)])
def test_exactly_the_wanted_share_is_refunded(share: float, count: int) -> None:
    plan = make_plan(ORDERS, refund_share=share, seed=1)
    assert sum(deed.act is Act.REFUND for deeds in plan for deed in deeds) == count


def test_a_refund_is_the_last_thing_that_happens_to_an_order() -> None:
    for deeds in make_plan(ORDERS, refund_share=0.5, seed=1):
        assert all(deed.act is not Act.REFUND for deed in deeds[:-1])


def test_things_happen_at_every_moment_and_in_every_way() -> None:
    deeds = [deed for deeds in make_plan(ORDERS, refund_share=0.3, seed=1) for deed in deeds]
    assert {deed.moment for deed in deeds} == set(Moment)
    assert {deed.act for deed in deeds} == set(Act)


def test_a_seed_decides_the_plan() -> None:
    assert make_plan(ORDERS, refund_share=0.3, seed=1) == make_plan(ORDERS, refund_share=0.3, seed=1)
    assert make_plan(ORDERS, refund_share=0.3, seed=1) != make_plan(ORDERS, refund_share=0.3, seed=2)


def test_no_order_loses_its_last_place_to_the_refund_of_a_position() -> None:
    for order, deeds in zip(ORDERS, make_plan(ORDERS, refund_share=0.3, seed=1), strict=True):
        if any(deed.act is Act.REFUND_POSITION for deed in deeds):
            assert sum(position.addon_to is None for position in order.positions) > 1
