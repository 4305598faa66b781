"""What a group of exceptions says."""

import pytest

from stagedoor.errors import JobTimeout, LeaseLost, Permanent, Retry
from stagedoor.worker.groups import essence, leaves


def group(*errors: BaseException) -> BaseException:
    return BaseExceptionGroup("a nursery's", errors)


@pytest.mark.parametrize("error", [ValueError("x"), Permanent("x"), SystemExit(3), KeyboardInterrupt()])
def test_what_is_no_group_stands_for_itself(error: BaseException) -> None:
    assert essence(error) is error


@pytest.mark.parametrize("one", [ValueError("x"), Retry(after=3), Permanent("x"), LeaseLost("x"), SystemExit(3)])
def test_a_group_of_one_stands_for_the_one_however_deep(one: BaseException) -> None:
    assert essence(group(group(group(one)))) is one


def test_among_several_a_lost_lease_wins_then_what_is_permanent() -> None:
    lost, permanent = LeaseLost("x"), Permanent("x")
    assert essence(group(ValueError("x"), permanent, group(JobTimeout("x"), lost))) is lost
    assert essence(group(ValueError("x"), group(Retry(), permanent))) is permanent


def test_several_retries_are_a_retry() -> None:
    first = Retry(after=3)
    assert essence(group(first, group(Retry(after=9)))) is first


def test_several_other_errors_stay_a_group() -> None:
    several = group(ValueError("x"), Retry())
    assert essence(several) is several


def test_leaves_come_in_order() -> None:
    one, two, three = ValueError(1), ValueError(2), ValueError(3)
    assert list(leaves(group(one, group(two), three))) == [one, two, three]


def test_a_group_nested_a_hundred_thousand_times_needs_no_recursion() -> None:
    innermost = ValueError("x")
    error: BaseException = innermost
    for _ in range(100_000):
        error = group(error)
    assert essence(error) is innermost
    # Taken apart by hand: the interpreter frees such a chain by recursion.
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
