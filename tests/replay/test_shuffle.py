"""Shuffled orders: what is late may come, what is early may not."""

import random

from hypothesis import given
from hypothesis import strategies as st

from stagedoor.replay.fixture import AddEntry, Refund, Rest, Step
from stagedoor.replay.shuffle import must_precede, shuffled


def entry(line: int, order_id: int, *, refunds: int | None = None) -> Step:
    hook = () if refunds is None else (Refund(refunds),)
    return Step(line, AddEntry(fields=((b"order_id", b"%d" % order_id),), at_render=hook))


def refund(line: int, order_id: int) -> Step:
    return Step(line, Refund(order_id))


def test_an_entry_stays_behind_the_change_that_it_is_about() -> None:
    assert must_precede(refund(1, 7), entry(2, 7))


def test_an_entry_may_come_after_a_change_that_stood_behind_it() -> None:
    assert not must_precede(entry(1, 7), refund(2, 7))


def test_entries_and_changes_of_different_orders_are_free() -> None:
    assert not must_precede(refund(1, 7), entry(2, 8))
    assert not must_precede(entry(1, 7), entry(2, 7))


def test_the_changes_of_one_order_keep_their_sequence() -> None:
    assert must_precede(refund(1, 7), refund(2, 7))


def test_a_change_in_a_hook_counts_as_one() -> None:
    assert must_precede(entry(1, 7, refunds=7), entry(2, 7))
    assert must_precede(entry(1, 7, refunds=8), entry(2, 8))
    assert not must_precede(entry(1, 7, refunds=8), entry(2, 7))


def test_nothing_crosses_a_rest() -> None:
    assert must_precede(entry(1, 7), Step(2, Rest()))
    assert must_precede(Step(1, Rest()), entry(2, 7))


steps = st.lists(
    st.one_of(
        st.builds(lambda order_id: entry(0, order_id), st.integers(1, 3)),
        st.builds(lambda order_id: refund(0, order_id), st.integers(1, 3)),
        st.just(Step(0, Rest())),
    ),
    max_size=8,
).map(lambda found: [Step(line, step.what) for line, step in enumerate(found, start=1)])


@given(steps, st.integers(0, 50))
def test_a_shuffled_order_has_the_same_steps_and_keeps_what_must_precede(before: list[Step], seed: int) -> None:
    after = shuffled(before, random.Random(seed))
    assert sorted(step.line for step in after) == [step.line for step in before]
    for place, step in enumerate(after):
        assert not any(later.line < step.line and must_precede(later, step) for later in after[place + 1 :])


def test_a_seed_always_gives_the_same_order_and_some_give_others() -> None:
    before = [entry(line, line) for line in range(1, 7)]
    orders = [tuple(step.line for step in shuffled(before, random.Random(seed))) for seed in range(20)]
    assert orders == [tuple(step.line for step in shuffled(before, random.Random(seed))) for seed in range(20)]
    assert len(set(orders)) > 10
