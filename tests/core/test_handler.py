"""Handlers: how a function is marked, and which marks are refused."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from stagedoor.core.handler import HandlerSpec, by_kind, handler, spec_of
from stagedoor.errors import ConfigurationError


def plain(_job: object, _ctx: object) -> None:
    """A handler that is run in a thread."""


async def asynchronous(_job: object, _ctx: object) -> None:
    """A handler that is run as a task."""


def test_marking_leaves_the_function_as_it_is() -> None:
    def function(job: object, _ctx: object) -> object:
        return job

    marked = handler("print")(function)
    assert marked is function
    assert marked(7, None) == 7


def test_a_mark_can_be_read() -> None:
    marked = handler("print", attempts=3, timeout=1.5, base=0, cap=9, retry_on=OSError, give_up_on=[KeyError])(
        lambda _job, _ctx: None
    )
    spec = spec_of(marked)
    assert spec is not None
    assert (spec.kind, spec.function, spec.attempts, spec.timeout, spec.base, spec.cap) == (
        "print",
        marked,
        3,
        1.5,
        0,
        9,
    )
    assert (spec.retry_on, spec.give_up_on) == ((OSError,), (KeyError,))


@pytest.mark.parametrize("thing", [None, 7, plain, HandlerSpec, object()])
def test_what_was_not_marked_has_no_spec(thing: object) -> None:
    assert spec_of(thing) is None


def test_one_decorator_may_mark_several_functions() -> None:
    mark = handler("print", retry_on=OSError)
    one, two = mark(lambda _job, _ctx: 1), mark(lambda _job, _ctx: 2)
    first, second = spec_of(one), spec_of(two)
    assert first is not None
    assert second is not None
    assert (first.function, second.function) == (one, two)
    assert first.retry_on == second.retry_on == (OSError,)


def test_async_functions_are_told_from_plain_ones() -> None:
    assert HandlerSpec(kind="k", function=asynchronous).is_async
    assert not HandlerSpec(kind="k", function=plain).is_async


@pytest.mark.parametrize("kind", ["a", "a.b_c-9", "-", "k" * 64])
def test_kinds_that_are_allowed(kind: str) -> None:
    spec = spec_of(handler(kind)(lambda _job, _ctx: None))
    assert spec is not None
    assert spec.kind == kind


@pytest.mark.parametrize("kind", ["", "a b", "ä", "a\n", "k" * 65, "a:b", "٣", 7, None, b"a"])
def test_kinds_that_are_refused(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="the kind"):
        handler(kind)(lambda _job, _ctx: None)


@pytest.mark.parametrize(
    "policy, said",
    [
        ({"attempts": 0}, "attempts of 'k' is 0"),
        ({"attempts": -1}, "attempts of 'k' is -1"),
        ({"attempts": "3"}, "attempts of 'k' is '3'"),
        ({"attempts": 2.5}, "attempts of 'k' is 2.5"),
        ({"timeout": -1}, "timeout of 'k' is -1"),
        ({"timeout": float("inf")}, "timeout of 'k' is inf"),
        ({"timeout": float("nan")}, "timeout of 'k' is nan"),
        ({"timeout": "soon"}, "timeout of 'k' is 'soon'"),
        ({"base": -0.1}, "base of 'k' is -0.1"),
        ({"cap": float("inf")}, "cap of 'k' is inf"),
        ({"retry_on": "ValueError"}, "retry_on of 'k' has 'ValueError'"),
        ({"give_up_on": (ValueError, 7)}, "give_up_on of 'k' has 7"),
        ({"give_up_on": int}, "give_up_on of 'k' has <class 'int'>"),
        ({"retries": 3, "speed": 1}, "unknown policy retries, speed"),
    ],
)
def test_policies_that_are_refused(policy: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        handler("k", **policy)(lambda _job, _ctx: None)
    assert said in str(caught.value)


def test_generator_functions_are_refused() -> None:
    def generator(_job: object, _ctx: object) -> Iterator[int]:
        yield 1

    async def asynchronous_generator(_job: object, _ctx: object) -> AsyncIterator[int]:
        yield 1

    for function in (generator, asynchronous_generator):
        with pytest.raises(ConfigurationError, match="generator function"):
            handler("k")(function)


def test_handlers_are_found_by_kind() -> None:
    one, two = HandlerSpec(kind="one", function=plain), HandlerSpec(kind="two", function=plain)
    assert by_kind([one, two, one]) == {"one": one, "two": two}


def test_two_handlers_of_one_kind_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError) as caught:
        by_kind([HandlerSpec(kind="k", function=plain), HandlerSpec(kind="k", function=asynchronous)])
    assert "test_handler.plain" in str(caught.value)
    assert "test_handler.asynchronous" in str(caught.value)
    assert "'k'" in str(caught.value)
