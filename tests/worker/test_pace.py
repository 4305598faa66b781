"""How far to read ahead."""

import pytest

from stagedoor.worker.pace import Pace


def paced(*runs: tuple[str, float], most: int = 500) -> Pace:
    pace = Pace(most, slots=8)
    for kind, run_s in runs:
        pace.note(kind, run_s)
    return pace


def test_nothing_is_read_ahead_before_anything_has_run() -> None:
    assert paced().ahead() == 0


def test_a_kind_of_a_tenth_of_a_millisecond_is_read_ahead_for_fifty() -> None:
    assert paced(("fast", 0.0001)).ahead() == 500
    assert paced(("fast", 0.0001), most=2000).ahead() in range(499, 501)


def test_no_run_time_at_all_is_still_bounded_by_the_setting() -> None:
    assert paced(("fast", 0.0), most=70).ahead() == 70


def test_a_setting_of_zero_reads_nothing_ahead() -> None:
    assert paced(("fast", 0.0001), most=0).ahead() == 0


def test_one_slow_kind_among_fast_ones_stops_reading_ahead() -> None:
    assert paced(("fast", 0.0001), ("slow", 0.9), ("fast", 0.0001)).ahead() == 0


@pytest.mark.parametrize("run_s, ahead", [(0.01, 80), (0.1, 8), (0.4, 2), (0.8, 1), (0.81, 0)])
def test_of_documents_no_more_is_ahead_than_all_slots_start_in_a_tenth_of_a_second(run_s: float, ahead: int) -> None:
    assert paced(("render", run_s)).ahead() == ahead


def test_what_is_ahead_lasts_until_the_trio_thread_is_told_again() -> None:
    documents = paced(("render", 0.1))
    assert documents.tell_every_s() < documents.ahead() * 0.1 / 8
    fast = paced(("fast", 0.0001))
    assert fast.tell_every_s() < fast.ahead() * 0.0001
    assert paced().tell_every_s() == fast.tell_every_s()


def test_a_slow_kind_that_no_longer_comes_is_forgotten() -> None:
    pace = paced(("slow", 0.05), *[("fast", 0.0001)] * 1000)
    assert pace.ahead() == 500


def test_slow_and_unknown_kinds_get_a_slot_each() -> None:
    assert paced().slots_for(5) == 5
    assert paced(("slow", 0.05)).slots_for(5) == 5


def test_short_jobs_share_a_slot_for_each_millisecond_of_work() -> None:
    pace = paced(("fast", 0.0001))
    assert [pace.slots_for(waiting) for waiting in (1, 10, 11, 40)] == [1, 1, 2, 4]
