"""Values: what is kept comes back equal, in another process too."""

import enum
import functools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.errors import InvalidValue
from stagedoor.flows.values import PLAIN, Values

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Colour(enum.Enum):
    RED = "red"


@attrs.frozen
class Seat:
    row: str
    numbers: tuple[int, ...] = ()
    colour: Colour | None = None


@given(JSON)
def test_json_comes_back_equal(value: Any) -> None:
    values = Values()
    kept = values.keep(value)
    assert kept.value == value
    assert Values().revive(kept.text) == value


@pytest.mark.parametrize(
    "value",
    [[], {}, [[]], {"a": []}, "", 0, 2**70, -(2**63), 9007199254740993, 0.1234567890123456789, 1e300, "\ud800",
     "\u2028", json.loads("[" * 400 + "]" * 400), True, None],
)  # fmt: skip
def test_json_that_others_get_wrong(value: Any) -> None:
    kept = Values().keep(value)
    assert kept.value == value
    assert type(kept.value) is type(value)
    kept.text.encode()


@pytest.mark.parametrize(
    "value, kind",
    [
        ((), tuple[int, ...]), ((1, 2), tuple[int, int]), (Seat("C", (8,), Colour.RED), Seat),
        ([Seat("C")], list[Seat]),
        ({"a": Seat("C")}, dict[str, Seat]), (Colour.RED, Colour), (None, Seat | None), (Seat("C"), Seat | None),
        ({1, 2}, set[int]), (datetime(2026, 7, 1, tzinfo=UTC), datetime), (b"\x00\xff", bytes),
        ({1: "a"}, dict[int, str]), (5, int), (None, None), ([], list[Any]), (frozenset(), frozenset[str]),
    ],
)  # fmt: skip
def test_typed_values_come_back_as_their_type(value: Any, kind: Any) -> None:
    kept = Values().keep(value, kind)
    back = Values().revive(kept.text, kind)
    assert (back, type(back)) == (value, type(value))


@pytest.mark.parametrize(
    "value, kind",
    [
        ("5", list[int]), ((1, 2), tuple[int, str]), (Seat("C"), dict[str, Any]), (object(), Seat), ({"a": 1}, Seat),
        (Decimal("1.5"), PLAIN), (Path("x"), PLAIN), ([1.5], list[int]),
    ],
)  # fmt: skip
def test_what_is_not_what_its_function_says_is_refused(value: Any, kind: Any) -> None:
    with pytest.raises(InvalidValue):
        Values().keep(value, kind)


class Vicious:
    def __eq__(self, other: object) -> bool:
        raise SystemError("no")

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        raise ValueError("no")


def test_a_type_that_fails_in_its_own_code_is_refused_all_the_same() -> None:
    with pytest.raises(InvalidValue, match="a Vicious makes no JSON"):
        Values().keep(Vicious())


def test_nesting_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (endless, deep):
        with pytest.raises(InvalidValue):
            Values().keep(value)
    while isinstance(deep, list):
        deep = deep.pop()


def test_the_return_type_of_whatever_can_be_called() -> None:
    def typed(_x: int) -> Seat:
        raise NotImplementedError

    def nothing() -> None: ...

    def unknown() -> "NoSuchType":  # type: ignore[name-defined]  # noqa: F821 - that is the case
        raise NotImplementedError

    class Holder:
        def method(self) -> Colour:
            return Colour.RED

    cases: list[tuple[Callable[..., Any], Any]] = [
        (typed, Seat),
        (functools.partial(typed, 5), Seat),
        (Holder().method, Colour),
        (nothing, type(None)),
        (unknown, PLAIN),
        (lambda: 5, PLAIN),
        (len, PLAIN),
        (print, PLAIN),
    ]
    values = Values()
    for function, kind in cases * 2:
        assert values.returned_by(function) == kind


def test_digests_tell_lists_apart_and_nothing_else() -> None:
    values = Values()
    same = values.digest_of([Seat("C"), {"a": 1, "b": 2}])
    assert values.digest_of([Seat("C"), {"b": 2, "a": 1}]) == same
    assert (
        len({same, values.digest_of([]), values.digest_of([1]), values.digest_of(["1"]), values.digest_of([[1]])}) == 5
    )
    with pytest.raises(InvalidValue, match="the items make no JSON"):
        values.digest_of([object()])
