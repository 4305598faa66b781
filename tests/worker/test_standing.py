"""When a worker may judge others, and when it must take itself for lost."""

import pytest

from stagedoor.worker.standing import Standing

TTL_S = 10.0


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def standing(clock: Hand) -> Standing:
    return Standing(TTL_S, clock)


def beat(standing: Standing, clock: Hand, *, after_s: float = 0.0) -> None:
    clock.now += after_s
    standing.beat_succeeded(clock.now)


def test_before_its_first_beat_it_may_not_judge_and_is_not_cut_off(standing: Standing) -> None:
    assert (standing.may_judge(), standing.is_cut_off()) == (False, False)


def test_it_may_judge_once_all_has_gone_well_for_a_whole_ttl(standing: Standing, clock: Hand) -> None:
    beat(standing, clock)
    for _ in range(3):
        beat(standing, clock, after_s=2.5)
        assert not standing.may_judge()
    beat(standing, clock, after_s=2.5)
    assert standing.may_judge()


def test_a_failed_beat_or_renewal_starts_the_time_anew(standing: Standing, clock: Hand) -> None:
    for _ in range(5):
        beat(standing, clock, after_s=2.5)
    standing.failed()
    assert not standing.may_judge()
    for _ in range(4):
        beat(standing, clock, after_s=2.5)
        assert not standing.may_judge()
    beat(standing, clock, after_s=2.5)
    assert standing.may_judge()


def test_without_a_beat_for_more_than_a_ttl_it_is_cut_off_and_judges_nobody(standing: Standing, clock: Hand) -> None:
    for _ in range(5):
        beat(standing, clock, after_s=2.5)
    clock.now += TTL_S
    assert not standing.is_cut_off()
    clock.now += 0.1
    assert standing.is_cut_off()
    assert not standing.may_judge()


def test_after_a_freeze_it_may_judge_only_a_ttl_later(standing: Standing, clock: Hand) -> None:
    for _ in range(5):
        beat(standing, clock, after_s=2.5)
    beat(standing, clock, after_s=TTL_S + 1)
    assert not standing.may_judge()
    assert not standing.is_cut_off()


def test_a_beat_counts_from_when_it_was_sent(standing: Standing, clock: Hand) -> None:
    """A process that freezes between the reply and its noting must not take itself for alive."""
    sent_at = clock.now
    clock.now += TTL_S + 1
    standing.beat_succeeded(sent_at)
    assert standing.is_cut_off()
