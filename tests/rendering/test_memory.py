"""What is remembered of pure functions: bounded, made outside of any lock, the same for everybody."""

import threading
from concurrent.futures import ThreadPoolExecutor

from stagedoor_renderers.kit.memory import Remembered


def test_what_is_known_is_not_made_again_and_the_oldest_goes_first() -> None:
    made: list[int] = []

    def double(number: int) -> int:
        made.append(number)
        return 2 * number

    remembered = Remembered(double, 8)
    assert [remembered(number) for number in range(8)] == [2 * number for number in range(8)]
    assert [remembered(number) for number in range(8)] == [2 * number for number in range(8)]
    assert made == list(range(8))
    remembered(8)
    assert [remembered(number) for number in range(2, 9)] == [2 * number for number in range(2, 9)]
    assert made == list(range(9)), "a quarter went, and no more"
    remembered(0)
    assert made[-1] == 0


def test_never_more_is_kept_than_was_said() -> None:
    remembered = Remembered(lambda number: number, 8)
    for number in range(1000):
        assert remembered(number) == number
        assert len(remembered._known) <= 8


def test_two_threads_make_at_the_same_time() -> None:
    """With a lock round the making, the second would wait for the first, and the first for the second."""
    both = threading.Barrier(2, timeout=20)

    def make(number: int) -> int:
        both.wait()
        return number

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(Remembered(make), (1, 2))) == [1, 2]


def test_what_raises_is_asked_again() -> None:
    asked: list[str] = []

    def make(text: str) -> int:
        asked.append(text)
        return int(text)

    remembered = Remembered(make)
    for _ in range(2):
        try:
            remembered("x")
        except ValueError:
            continue
    assert asked == ["x", "x"]
