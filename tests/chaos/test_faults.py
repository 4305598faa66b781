"""The plan of a chaos run, the replies that its proxy takes apart, its clocks and its figures."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from stagedoor.chaos.faults import MEAN_PAUSE_S, Fault, make_plan, parse_faults
from stagedoor.chaos.recovery import Recoveries, percentile
from stagedoor.chaos.resp import reply_length
from stagedoor.chaos.skewed import write_offset
from stagedoor.rehearsal.kill import Killed
from stagedoor.rehearsal.watch import Started, Watch


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert make_plan(Fault, seconds=60, seed=1) == make_plan(Fault, seconds=60, seed=1)
    assert make_plan(Fault, seconds=60, seed=1) != make_plan(Fault, seconds=60, seed=2)


@pytest.mark.parametrize("seed", range(20))
def test_every_fault_comes_in_the_first_half_also_of_a_short_run(seed: int) -> None:
    early = [planned for planned in make_plan(Fault, seconds=30, seed=seed) if planned.at_s <= 15]
    assert {planned.fault for planned in early} == set(Fault)


def test_ten_minutes_have_their_share_of_each_fault() -> None:
    counts = [0] * len(Fault)
    for seed in range(20):
        plan = make_plan(Fault, seconds=600, seed=seed)
        for place, fault in enumerate(Fault):
            counts[place] += sum(planned.fault is fault for planned in plan)
    for fault, count in zip(Fault, counts, strict=True):
        assert count / 20 == pytest.approx(600 / MEAN_PAUSE_S[fault], rel=0.3)


def test_a_fault_that_was_not_asked_for_is_not_planned_and_does_not_move_the_others() -> None:
    alone = make_plan([Fault.KILL], seconds=60, seed=3)
    assert alone == [planned for planned in make_plan(Fault, seconds=60, seed=3) if planned.fault is Fault.KILL]


def test_faults_are_named_each_once() -> None:
    assert parse_faults("kill, stop,kill") == (Fault.KILL, Fault.STOP)


@pytest.mark.parametrize("text", ["", "kil", "kill,fire"])
def test_a_fault_that_is_none_is_refused_with_the_names_of_all(text: str) -> None:
    with pytest.raises(ValueError, match="the faults are kill, stop, redis-restart, proxy, clock"):
        parse_faults(text)


@pytest.mark.parametrize(
    "reply",
    [
        b"+OK\r\n",
        b"-LOADING Redis is loading\r\n",
        b":12\r\n",
        b"$5\r\nhe\r\no\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"*0\r\n",
        b"*2\r\n*1\r\n:1\r\n$2\r\nab\r\n",
        b"%1\r\n+a\r\n*1\r\n:1\r\n",
        b"~1\r\n:1\r\n",
        b"=7\r\ntxt:abc\r\n",
    ],
)
def test_a_reply_ends_where_it_ends(reply: bytes) -> None:
    assert reply_length(reply) == len(reply)
    assert reply_length(reply + b":1\r\n") == len(reply)
    for cut in range(len(reply)):
        assert reply_length(reply[:cut]) is None


def test_what_is_no_reply_is_refused() -> None:
    with pytest.raises(ValueError, match="no reply of Redis"):
        reply_length(b"HTTP/1.1 400 Bad Request\r\n")


def test_the_clock_of_a_process_follows_its_file(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    write_offset(clock, 0.0)
    program = (
        "import sys; from pathlib import Path; from stagedoor.chaos.skewed import skew_clock;"
        "skew_clock(Path(sys.argv[1])); import time\n"
        "for line in sys.stdin: print(time.time(), time.time_ns(), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(clock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for offset in (0.0, 3600.0, -3600.0):
            write_offset(clock, offset)
            process.stdin.write("now\n")
            process.stdin.flush()
            seconds, nanoseconds = process.stdout.readline().split()
            assert float(seconds) - time.time() == pytest.approx(offset, abs=60)
            assert int(nanoseconds) / 1e9 == pytest.approx(float(seconds), abs=60)
        process.stdin.close()


def started(entry_id: str, at: float) -> Started:
    return Started(at=at, worker="w", kind="render_tickets", entry_id=entry_id, order_id=1)


def test_a_kill_is_recovered_from_when_its_last_entry_has_started_again() -> None:
    watch = Watch({})
    watch.starts += [started("1-0", 1.0), started("2-0", 1.0)]
    recoveries = Recoveries(watch)
    recoveries.add(Killed(worker="w", at=2.0, held=frozenset({"1-0", "2-0"}), slots_in_use=2))
    watch.starts.append(started("1-0", 3.0))
    recoveries.look()
    assert recoveries.seconds == []
    watch.starts += [started("2-0", 5.5), started("2-0", 9.0)]
    recoveries.look()
    assert recoveries.seconds == [3.5]


def test_a_kill_whose_entries_were_lost_with_redis_is_not_measured() -> None:
    recoveries = Recoveries(Watch({}))
    recoveries.add(Killed(worker="w", at=2.0, held=frozenset({"1-0"}), slots_in_use=1))
    recoveries.add(Killed(worker="w", at=2.0, held=frozenset(), slots_in_use=0))
    recoveries.give_up()
    assert (recoveries.unmeasured, recoveries.seconds) == (1, [])


def test_a_kill_is_undisturbed_only_while_nothing_else_fails_and_somebody_is_there() -> None:
    watch = Watch({})
    recoveries = Recoveries(watch)
    for entry_id, is_disturbed in (("1-0", False), ("2-0", True), ("3-0", False)):
        recoveries.add(
            Killed(worker="w", at=0.0, held=frozenset({entry_id}), slots_in_use=1), is_disturbed=is_disturbed
        )
    watch.starts += [started("1-0", 1.0), started("2-0", 2.0)]
    recoveries.disturb()
    watch.starts.append(started("3-0", 3.0))
    recoveries.look()
    assert (recoveries.seconds, recoveries.undisturbed) == ([1.0, 2.0, 3.0], [1.0])


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]
    assert percentile([], 0.5) is None
    assert percentile([7.0], 0.99) == 7.0
