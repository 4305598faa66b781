"""What stands in a recording in place of what was there: of the same shape, and nobody's."""

import datetime as dt
import unicodedata
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.cli.invented import invented_fields, invented_locale, invented_order, new_inventor, problem_of
from stagedoor.cli.inventing import Inventor
from stagedoor.core.codec import Fields
from stagedoor.core.entry import MAX_BYTES, Entry
from stagedoor.core.job import FIELD_NAMES
from stagedoor.core.tenure import Stream
from stagedoor.order import Event, Order, Position, TaxLine
from tests.broker.harness import job

KINDS = frozenset(("jobs.mine", "fulfil-order"))


def told(*fields: tuple[bytes, bytes], inventor: Inventor | None = None) -> Fields:
    inventor = inventor or new_inventor(b"k", KINDS)
    return invented_fields(fields, inventor, orders={1: 1001, 4473: 1002}, row=5, kinds=KINDS)


# -- texts --------------------------------------------------------------------------------------


@given(st.text(max_size=60))
def test_a_text_keeps_its_shape(text: str) -> None:
    made = Inventor(b"k").text(text)
    assert [unicodedata.category(char) for char in made] == [unicodedata.category(char) for char in text]
    assert [char.isspace() for char in made] == [char.isspace() for char in text]
    assert Inventor(b"k").text(text) == made
    assert len(made.encode("utf-16", "surrogatepass")) == len(text.encode("utf-16", "surrogatepass"))
    assert len(made.encode("utf-8", "surrogatepass")) == len(text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=60))
def test_bytes_stay_as_valid_or_invalid_as_they_were(value: bytes) -> None:
    def is_text(value: bytes) -> bool:
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
        return True

    made = Inventor(b"k").value(value)
    assert is_text(made) == is_text(value)
    assert len(made) == len(value)


@pytest.mark.parametrize(
    "texts",
    [
        [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ"],
        [*"123456789"],
        [f"0{digit}" for digit in range(10)],
        [f"Row {number}" for number in range(10, 100)],
        [*"абвгдежзийклмнопрстуфхцчшщъыьэюяѐёђѓєѕіїјљњћќѝўџ"],
    ],
    ids=lambda texts: texts[0],
)
def test_the_same_is_the_same_and_another_is_another_also_where_there_are_few(texts: list[str]) -> None:
    inventor = Inventor(b"k")
    made = [inventor.text(text) for text in texts]
    assert len(set(made)) == len(texts)
    assert [inventor.text(text) for text in texts] == made


def test_a_text_does_not_become_itself_where_it_can_be_another() -> None:
    assert all(Inventor(b"%d" % number).text("C") != "C" for number in range(200))


def test_every_digit_is_replaced_and_a_number_keeps_whether_it_begins_with_a_zero() -> None:
    inventor = Inventor(b"k")
    made = [inventor.text(f"0170 555 01{number:02}") for number in range(100)]
    assert all(text[0] == text[9] == "0" and text[5] != "0" for text in made)
    for place in (1, 2, 3, 6, 7, 10, 11, 12):
        assert {text[place] for text in made} == set("0123456789"), place


@pytest.mark.parametrize("text", ["Ⓙⓐⓝⓔ", "🅹🅰🅽🅴", "🇯🇦🇳🇪", "⠚⠁⠝⠑", "\U000e004a\U000e0061", "𝐉𝐚𝐧𝐞", "Ｊａｎｅ", "①②③"])
def test_letters_that_are_symbols_are_replaced_as_well(text: str) -> None:
    made = Inventor(b"k").text(text)
    assert len(made) == len(text)
    assert sum(one == other for one, other in zip(made, text, strict=True)) <= 1


def test_bytes_that_are_no_text_say_nothing_either() -> None:
    made = Inventor(b"k").value("Žofie José".encode("iso8859-2"))
    assert made[:1] == made[-1:] == b"\xff"
    assert made[1:5] != b"ofie"
    assert Inventor(b"k").value("李小龍".encode("gbk")) == b"\xff" * 6


def test_two_recordings_invent_differently() -> None:
    assert Inventor(b"one").text("Bernhard Meier") != Inventor(b"two").text("Bernhard Meier")


@pytest.mark.parametrize(
    "locale,kept",
    [
        ("de", "de"),
        ("en-GB", "en-GB"),
        ("sr_latn_RS", "sr_latn_RS"),
        ("zh-Hant-TW", "zh-Hant-TW"),
        ("es-419", "es-419"),
        ("en-Jane-Doe", "en"),
        ("en-GB-Jane", "en-GB"),
        ("en-0170-555-0100", "en"),
    ],
)
def test_of_a_locale_language_script_and_region_stay(locale: str, kept: str) -> None:
    made = invented_locale(locale, Inventor(b"k"))
    assert made.startswith(kept)
    assert len(made) == len(locale)
    assert (made == locale) == (kept == locale)


# -- orders -------------------------------------------------------------------------------------


def order() -> Order:
    box = Position(id=70, holder="Jane Doe", category="Jane's Box", amount_minor=0, token="t0ken", version=1)
    others = (attrs.evolve(box, id=9, category="Yard", addon_to=70), attrs.evolve(box, id=80))
    return Order(
        order_id=4473,
        version=1,
        status="placed",
        event=Event(name="Hamlet", venue="Globe", starts_at=dt.datetime(2026, 7, 1, tzinfo=dt.UTC), tz="Europe/London"),
        locale="en-GB",
        currency="GBP",
        buyer="Jane Doe",
        positions=(box, *others),
        taxes=(TaxLine(label="VAT for Jane Doe", amount_minor=7),),
    )


def test_categories_and_tax_labels_are_replaced_and_what_is_equal_stays_equal() -> None:
    made = invented_order(order(), Inventor(b"k"), 1001)
    [box, yard, other_box] = [position.category for position in made.positions]
    assert box == other_box != yard
    assert (len(box), box[4], box[-4]) == (10, "'", " ")
    assert not {"Jane", "Box", "Yard"} & {*box.replace("'s", "").split(), yard}
    assert made.taxes[0].amount_minor == 7
    assert "VAT" not in made.taxes[0].label
    assert {position.holder for position in made.positions} == {made.buyer}


def test_positions_are_numbered_anew_in_the_same_sequence() -> None:
    made = invented_order(order(), Inventor(b"k"), 1001)
    assert [position.id for position in made.positions] == [2, 1, 3]
    assert [position.addon_to for position in made.positions] == [None, 2, None]
    assert {position.token for position in made.positions} == {""}


# -- entries ------------------------------------------------------------------------------------

NAMES = [b"kind", b"order_id", b"outbox_id", b"request_id", b"trace", b"attempt", b"origin", b"x", b"y", b"z", b"\xff"]
NAMES += [b"requeued", b"call_id", b"hops"]
VALUES = [b"1", b"0", b"-1", b"007", b"9223372036854775808", "٣".encode(), b"\xff", b"", b"render_tickets", b"1-1"]
LONG_VALUES = [b"999999999999", b"a\nb", b"x" * 129, b"y" * 2001, b"\xff" * 2001, b"z" * 65_390, b"z" * 70_000]
LONG_VALUES += [b"0170555", b"5" * 19, b"9" * 19, b"Jane Doe"]
FIELDS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES + LONG_VALUES)), max_size=8)


@given(FIELDS)
def test_what_is_malformed_stays_malformed_and_what_is_not_does_not_become_it(
    fields: list[tuple[bytes, bytes]],
) -> None:
    for raw in (tuple(fields), (*job(), *fields)):
        assert (problem_of(told(*raw)) is None) == (problem_of(raw) is None)


@pytest.mark.parametrize("order_id", [b"1", b"4473", b"1234567890"])
@pytest.mark.parametrize("beyond", range(-12, 13))
def test_an_entry_at_the_edge_of_its_size_stays_on_its_side(order_id: bytes, beyond: int) -> None:
    fields = (*job(order_id=order_id.decode(), outbox_id="123456789"), (b"note", b""))
    note = b"n" * (MAX_BYTES + beyond - Entry(Stream.JOBS, "1-0", fields).size)
    raw = (*fields[:-1], (b"note", note))
    made = told(*raw)
    assert (problem_of(made) is None) == (problem_of(raw) is None) == (beyond <= 0)
    assert order_id not in {value for _, value in made}


def test_a_kind_that_nobody_has_registered_is_replaced() -> None:
    for kind in ("render_tickets", "refund_order", *KINDS):
        assert dict(told(*job(kind)))[b"kind"] == kind.encode()
    made = dict(told(*job("jane.doe")))[b"kind"]
    assert made != b"jane.doe"
    assert len(made) == 8
    assert made[4:5] == b"."


def test_an_invented_kind_is_none_that_is_registered() -> None:
    letters = frozenset("abcdefghijklmnopqrstuvwxyz")
    for missing in "aq":
        kinds = letters - {"j", missing}
        inventor = new_inventor(b"k", kinds)
        made = invented_fields(job("j"), inventor, orders={}, row=1, kinds=kinds)
        assert dict(made)[b"kind"] == missing.encode()


def test_names_of_fields_that_mean_nothing_are_replaced_and_stay_different() -> None:
    made = told(*job(), (b"Jane Doe note", b"1"), *((b"%d" % digit, b"") for digit in range(10)))
    assert [name for name, _ in made[:5]] == [name for name, _ in job()]
    assert made[5][0] != b"Jane Doe note"
    assert len(made[5][0]) == 13
    assert sorted(name for name, _ in made[6:]) == [b"%d" % digit for digit in range(10)]
    twice = told(*job(), (b"note", b"1"), (b"note", b"2"))
    assert twice[5][0] == twice[6][0]


def test_the_guide_names_every_field_whose_name_stays() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "fixtures.md").read_text("utf-8")
    stays = guide[guide.index("And this stays:") : guide.index("## In other projects")]
    for name in (*FIELD_NAMES, "requeued"):
        assert f"`{name}`" in stays
        assert dict(told((name.encode(), b"x"))).keys() == {name.encode()}


def test_a_name_does_not_become_one_that_means_something() -> None:
    inventor = Inventor(b"k", names=[letter for letter in "abcdefghijklmnopqrstuvwxyz" if letter not in "xy"])
    assert inventor.name(b"x") == b"y"


def test_an_id_that_is_too_large_still_is_and_is_another() -> None:
    made = dict(told(*job(order_id="9223372036854775808")))[b"order_id"]
    assert len(made) == 19
    assert int(made) > 2**63
    assert made != b"9223372036854775808"


@pytest.mark.parametrize("value,told_as", [
    (b"Jane Doe " * 300, b"x" * 2700),
    (b"Jane Doe\xff" * 300, b"\xff" * 2700),
    ("Jane Doe ".encode("utf-16") * 200, b"\xff" * 4000),
    (b"Jane Doe " * 150_000, b"x" * 1_000_000),
    (b"\xff" * 1_100_000, b"\xff" * 1_000_000),
])  # fmt: skip
def test_a_long_value_keeps_its_length_and_whether_it_is_text(value: bytes, told_as: bytes) -> None:
    """Up to a million bytes: a fixture holds no more."""
    for name in (b"note", b"kind"):
        [*_, (_, made)] = told(*job(), (name, value))
        assert made == told_as
