"""Who says what becomes of a delivery: exactly one."""

import threading
from collections.abc import Callable

from stagedoor.worker.held import HeldDelivery
from stagedoor.worker.slot import Slot
from stagedoor.worker.standing import Standing
from tests.worker.support import claim


def delivery() -> HeldDelivery:
    return HeldDelivery(claim(), Standing(10, lambda: 0.0))


def holding(held: HeldDelivery) -> Slot:
    slot = Slot()
    assert slot.take(lambda: held) is held
    return slot


def test_who_comes_second_has_nothing_to_say() -> None:
    verbs: list[Callable[[Slot, HeldDelivery], bool]] = [
        Slot.conclude,
        Slot.orphan,
        lambda slot, held: slot.give_up() is held,
    ]
    for first in verbs:
        for second in verbs:
            held = delivery()
            slot = holding(held)
            assert first(slot, held)
            assert not second(slot, held)


def test_nobody_gives_up_on_a_job_that_has_ended_because_its_successor_runs() -> None:
    first, second = delivery(), delivery()
    slot = holding(first)
    slot.conclude(first)
    slot.take(lambda: second)
    assert not slot.orphan(first)
    assert slot.current is second


def test_nothing_starts_in_a_slot_that_was_given_up() -> None:
    for give_up in (Slot.give_up, lambda slot: slot.orphan(slot.current)):
        slot = holding(delivery())
        give_up(slot)
        assert slot.take(_must_not_be_asked) is None


def _must_not_be_asked() -> HeldDelivery:
    raise AssertionError("a delivery was taken for a slot that was given up")


def test_of_three_at_once_exactly_one_speaks() -> None:
    for _ in range(100):
        held = delivery()
        slot = holding(held)
        start = threading.Barrier(3)
        said: list[bool] = []

        def race(verb: Callable[[], bool], start: threading.Barrier = start, said: list[bool] = said) -> None:
            start.wait()
            said.append(verb())

        verbs = [
            lambda: slot.conclude(held),  # noqa: B023 - the threads end within this turn
            lambda: slot.orphan(held),  # noqa: B023 - as above
            lambda: slot.give_up() is held,  # noqa: B023 - as above
        ]
        threads = [threading.Thread(target=race, args=(verb,)) for verb in verbs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(said) == [False, False, True]
