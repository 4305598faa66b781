"""A namespace serves one order book: its entries name orders by numbers that mean something in that one only."""

import pytest

from stagedoor.broker.binding import Binding, ServesAnotherBook
from tests.broker.harness import RedisHarness


def binding(real: RedisHarness, book_id: str) -> Binding:
    return Binding(real.link, real.keys, book_id)


def test_the_first_book_is_served_and_all_its_processes_are_welcome(real: RedisHarness) -> None:
    for _ in range(3):
        binding(real, "one").bind()
    assert real.client.get(real.keys.book) == b"one"


def test_another_book_is_refused_with_the_ways_out(real: RedisHarness) -> None:
    binding(real, "one").bind()
    with pytest.raises(ServesAnotherBook, match=r"serves another order book.*STAGEDOOR_ORDERS_URL.*--move-book"):
        binding(real, "two").bind()
    assert real.client.get(real.keys.book) == b"one"


def test_whoever_moves_says_whether_another_book_was_served(real: RedisHarness) -> None:
    assert binding(real, "one").move() is False
    assert binding(real, "one").move() is False
    assert binding(real, "two").move() is True
    with pytest.raises(ServesAnotherBook):
        binding(real, "one").bind()


def test_after_a_flush_it_is_bound_anew(real: RedisHarness) -> None:
    binding(real, "one").bind()
    real.flush()
    binding(real, "one").bind()
    assert real.client.get(real.keys.book) == b"one"
