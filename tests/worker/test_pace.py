"""How far to read ahead."""

from stagedoor.worker.pace import Pace


def paced(*runs: tuple[str, float], most: int = 500) -> Pace:
    pace = Pace(most)
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
    assert paced(("fast", 0.0001), ("slow", 0.05), ("fast", 0.0001)).ahead() == 0


def test_a_slow_kind_that_no_longer_comes_is_forgotten() -> None:
    pace = paced(("slow", 0.05), *[("fast", 0.0001)] * 1000)
    assert pace.ahead() == 500


def test_slow_and_unknown_kinds_get_a_slot_each() -> None:
    assert paced().slots_for(5) == 5
    assert paced(("slow", 0.05)).slots_for(5) == 5


def test_short_jobs_share_a_slot_for_each_millisecond_of_work() -> None:
    pace = paced(("fast", 0.0001))
    assert [pace.slots_for(waiting) for waiting in (1, 10, 11, 40)] == [1, 1, 2, 4]
