"""What happens to the jobs of a process that vanishes, freezes or kills itself."""

import signal
import time
from collections.abc import Iterator
from uuid import uuid4

import attrs
import pytest

from tests.process.support import QUICK, Theatre, WorkerProcess, frozen, wait_until
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.process, pytest.mark.redis]

RECOVERY_S = 15.0
"""What is promised at the default settings."""
CRASHES = 5
"""As many as make an entry poison by default."""


@attrs.frozen
class Kill:
    """A worker that was killed with three jobs in hand, and the one that is left."""

    theatre: Theatre
    orders: list[int]
    other: WorkerProcess
    at: float


@pytest.fixture(scope="module", autouse=True)
def kill(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kill]:
    """Killed before the first test of this file: the seconds in which nothing is to be seen pass during the others."""
    theatre = Theatre(redis_server.url, f"t-{uuid4().hex[:20]}", tmp_path_factory.mktemp("kill"))
    orders = theatre.add("stuck", 3, trace="a")
    victim = theatre.start("a")
    theatre.wait_runs("start", 3)
    other = theatre.start("b")
    victim.kill()
    yield Kill(theatre, orders, other, time.monotonic())
    theatre.close()


def test_a_worker_that_comes_back_under_its_name_takes_its_leftovers_at_once(theatre: Theatre) -> None:
    """Its lease would run for another ten seconds, but the process that has it is provably dead."""
    orders = theatre.add("stuck", 3, trace="a")
    victim = theatre.start("a")
    theatre.wait_runs("start", 3)
    victim.kill()
    theatre.add("quick", 20)
    again = theatre.start("a", slots="3")
    assert again.wait("worker_started")["worker"] == "a"
    leftovers = theatre.wait_runs("start", 6)[3:]
    assert sorted(run["order_id"] for run in leftovers) == orders
    assert {(run["pid"], run["deliveries"]) for run in leftovers} == {(again.pid, 2)}
    assert again.of("worker_swept") == []
    # They came before what was new.
    assert theatre.runs("end") == []


def test_two_workers_of_one_name_on_one_host_are_told_apart_and_neither_takes_the_others_jobs(
    theatre: Theatre,
) -> None:
    orders = theatre.add("gated", 1)
    one = theatre.start("a", slots="1")
    theatre.wait_runs("start", 1)
    two = theatre.start("a", slots="1")
    assert two.of("worker_started")[0]["worker"] == "a.2"
    orders += theatre.add("gated", 1)
    starts = theatre.wait_runs("start", 2)
    assert [run["pid"] for run in starts] == [one.pid, two.pid]
    theatre.open()
    theatre.wait_settled()
    assert len(theatre.runs("start")) == 2
    theatre.check_books(*orders)


def test_a_worker_that_froze_past_its_lease_has_its_settle_refused_and_nothing_doubles(theatre: Theatre) -> None:
    (order_id,) = theatre.add("gated")
    sleeper = theatre.start("a", **QUICK)
    theatre.wait_runs("start", 1)
    other = theatre.start("b", **QUICK)
    with frozen(sleeper.pid):
        other.wait("worker_swept", worker="a", crashed=True)
        theatre.wait_runs("start", 2)
        theatre.open()
        settled = other.wait("delivery_settled")
        assert (settled["order_id"], settled["outcome"], settled["deliveries"]) == (order_id, "done", 2)
    # It ends its work, too, and may not write it.
    theatre.wait_runs("end", 2)
    lost = sleeper.wait("tenure_lost")
    assert (lost["entry_id"], lost["deliveries"]) == (settled["entry_id"], 1)
    # It is as good as new.
    (next_order,) = theatre.add("quick")
    theatre.wait_settled()
    assert sleeper.of("delivery_settled", order_id=order_id) == []
    theatre.check_books(order_id, next_order)
    assert len(sleeper.of("worker_started")) == 1


@pytest.mark.parametrize("kind,number", [("segfault", signal.SIGSEGV), ("sigkill", signal.SIGKILL)])
def test_a_job_that_kills_its_process_ends_as_poison_and_its_neighbours_are_done(
    theatre: Theatre, kind: str, number: signal.Signals
) -> None:
    """At the default settings, under somebody who starts the worker again each time."""
    neighbours = theatre.add("sleep", 3, trace="0.2")
    (deadly,) = theatre.add(kind)
    neighbours += theatre.add("sleep", 3, trace="0.2")
    keeper = theatre.start_keeper("a")
    for life in range(1, CRASHES + 1):
        keeper.ask()
        assert keeper.wait("died", life)["code"] == -number
    keeper.ask()
    dead = keeper.wait("delivery_settled", outcome="dead")
    assert (dead["order_id"], dead["reason"], dead["crashes"]) == (deadly, "poison", CRASHES)
    assert len([run for run in theatre.runs("start") if run["order_id"] == deadly]) == CRASHES
    theatre.wait_runs("end", len(neighbours))
    wait_until(lambda: theatre.places() == {deadly: ["dead"]})
    theatre.check_books(deadly, *neighbours)
    assert theatre.client.hlen(theatre.keys.crashes) == 0
    # From its third start on it ran alone: nobody else was taken along more than twice.
    assert max(run["crashes"] for run in keeper.of("delivery_settled", outcome="done")) <= 2


def test_a_job_longer_than_every_idle_time_runs_once(theatre: Theatre) -> None:
    short = {**QUICK, "reclaim_idle_s": "1.6", "reclaim_every_s": "0.3"}
    (order_id,) = theatre.add("sleep", trace="4")
    one, two = theatre.start("a", **short), theatre.start("b", **short)
    theatre.wait_settled()
    assert len(theatre.runs("start")) == 1
    assert one.of("entries_reclaimed") == two.of("entries_reclaimed") == []
    theatre.check_books(order_id)


def test_killed_again_and_again_while_jobs_come_no_job_is_lost(theatre: Theatre) -> None:
    orders = []
    for _ in range(2):
        orders += theatre.add("quick", 100)
        worker = theatre.start("a", **QUICK)
        worker.wait("delivery_settled", 20)
        worker.kill()
        theatre.check_books(*orders)
    theatre.start("a", **QUICK)
    theatre.wait_settled()
    theatre.check_books(*orders)


def test_what_a_killed_worker_held_runs_elsewhere_within_fifteen_seconds_at_default_settings(kill: Kill) -> None:
    swept = kill.other.wait("worker_swept")
    assert (swept["worker"], swept["entries"], swept["crashed"]) == ("a", 3, True)
    kill.other.wait("delivery_settled", 3)
    starts = [run["at"] for run in kill.theatre.runs("start") if run["worker"] == "b"]
    assert max(starts) - kill.at < RECOVERY_S
    assert {run["crashes"] for run in kill.other.of("delivery_settled")} == {1}
    kill.theatre.check_books(*kill.orders)
