"""What a process holds, and what a handler is told when it asks whether it may go on."""

import attrs
import pytest

from stagedoor.core.tenure import Stream, Tenure
from stagedoor.errors import JobTimeout, LeaseLost
from stagedoor.worker.held import HeldDelivery, Register
from stagedoor.worker.standing import Standing
from tests.worker.support import claim, spec


class Hand:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def held_in(register: Register) -> HeldDelivery:
    held = register.add(claim())
    assert held is not None
    return held


def test_an_entry_that_is_held_and_handed_out_again_is_adopted_under_the_new_tenure() -> None:
    register = Register(Standing(10, Hand()))
    held = held_in(register)
    held.lost = True

    again = register.add(claim(deliveries=3))

    assert again is None
    assert (held.tenure.deliveries, held.lost, len(register)) == (3, False, 1)


def test_an_adopted_delivery_knows_the_crashes_that_came_with_it() -> None:
    register = Register(Standing(10, Hand()))
    held = held_in(register)
    register.add(attrs.evolve(claim(deliveries=2), crash_log=("1 w i0",)))
    register.add(claim(deliveries=3))
    assert (held.crashes, held.tenure.deliveries) == (1, 3)


def test_the_same_id_on_the_other_stream_is_another_entry() -> None:
    register = Register(Standing(10, Hand()))
    held_in(register)
    assert register.add(claim(stream=Stream.CRITICAL)) is not None
    assert register.tenures() == [
        Tenure(Stream.JOBS, "1700000000000-0", 1),
        Tenure(Stream.CRITICAL, "1700000000000-0", 1),
    ]


def test_letting_go_twice_does_not_let_go_of_what_came_later() -> None:
    register = Register(Standing(10, Hand()))
    first = held_in(register)
    register.remove(first)
    second = held_in(register)

    register.remove(first)

    assert register.holds(second)
    assert not register.holds(first)


def test_a_handler_may_go_on_while_nothing_is_wrong() -> None:
    held_in(Register(Standing(10, Hand()))).check()


def test_a_handler_is_told_that_its_tenure_has_lapsed() -> None:
    register = Register(Standing(10, Hand()))
    held = held_in(register)
    register.lose_everything()
    with pytest.raises(LeaseLost, match="1700000000000-0"):
        held.check()
    assert held.was_refused


def test_a_handler_is_told_when_the_process_could_not_beat_for_a_ttl() -> None:
    clock = Hand()
    standing = Standing(10, clock)
    held = held_in(Register(standing))
    standing.beat_succeeded(clock.now)
    clock.now += 10.1
    with pytest.raises(LeaseLost):
        held.check()


def test_a_handler_is_told_when_its_time_is_up() -> None:
    clock = Hand()
    held = held_in(Register(Standing(10, clock)))
    held.spec = spec(lambda job, held: None, timeout=2.0)
    held.start(clock.now)
    clock.now += 2.0
    held.check()
    clock.now += 0.1
    with pytest.raises(JobTimeout):
        held.check()
