"""What signals do to a worker process: it drains or releases, within its grace, and acknowledges nothing unfinished.

That a process ends no later than the deadline that it was given is shown of its owner, with a clock of its own;
here it says which one it was given, and ends.
"""

import signal

import pytest

from stagedoor.core.keys import POOL
from stagedoor.worker.stopping import HURRY_S
from tests.process.support import Theatre, WorkerProcess, frozen, wait_until
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.process, pytest.mark.redis]

TERM = signal.SIGTERM
GRACE = {"grace_s": "4"}
GRACE_S = 4.0


def deadlines(worker: WorkerProcess) -> list[float]:
    """Return the seconds within which a process had to end, from the moment it was told so."""
    (serving,) = worker.of("serving")
    given = [told["within_s"] for told in worker.of("must_end")]
    assert given == [serving["grace_s"], serving["hurry_s"]][: len(given)]
    return given


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains_and_the_exit_code_is_zero(theatre: Theatre, number: signal.Signals) -> None:
    orders = theatre.add("gated", 2)
    worker = theatre.start(slots="2")
    theatre.wait_runs("start", 2)
    worker.send(number)
    stopping = worker.wait("worker_stopping")
    assert (stopping["why"], stopping["held"]) == (number.name, 2)
    orders += theatre.add("quick")
    theatre.open()

    assert worker.wait_exit() == 0

    assert len(worker.of("delivery_settled", outcome="done")) == 2
    assert theatre.places() == {orders[2]: ["stream"]}
    theatre.check_books(*orders)
    assert not theatre.client.exists(theatre.keys.worker("a"))


def test_a_signal_during_a_blocked_read_ends_it_and_what_comes_later_is_left_alone(theatre: Theatre) -> None:
    worker = theatre.start(block_ms="60000")
    worker.send(TERM)
    worker.wait("worker_stopping")
    (order_id,) = theatre.add("quick")
    assert worker.wait_exit() == 0
    theatre.check_books(order_id)
    if theatre.runs("end") == []:
        assert theatre.places() == {order_id: ["stream"]}


def test_a_thread_that_never_returns_keeps_nobody(theatre: Theatre) -> None:
    """The process ends within its grace; the job runs elsewhere, and neither a crash nor an attempt is counted."""
    (order_id,) = theatre.add("stuck", trace="a")
    worker = theatre.start("a", **GRACE)
    theatre.wait_runs("start", 1)
    other = theatre.start("b")
    worker.send(TERM)
    assert worker.wait_exit() == 0
    assert deadlines(worker) == [GRACE_S]
    assert worker.of("worker_stopped")[0]["released"] == 1
    assert worker.of("delivery_settled") == []

    settled = other.wait("delivery_settled")
    assert (settled["order_id"], settled["attempt"], settled["crashes"]) == (order_id, 1, 0)
    theatre.check_books(order_id)


def test_a_second_signal_releases_at_once_and_another_worker_takes_it_at_its_next_look(
    own_theatre: Theatre, server: RedisServer
) -> None:
    """It is in the pool before its worker gives up the name; and every worker looks twice a second."""
    (order_id,) = own_theatre.add("stuck", trace="a")
    worker = own_theatre.start("a", grace_s="3600")
    own_theatre.wait_runs("start", 1)
    other = own_theatre.start("b")
    worker.send(TERM)
    worker.wait("worker_stopping")
    with server.client() as client, client.monitor() as monitor:
        worker.send(TERM)
        asked: list[str] = []
        while not asked or not asked[-1].startswith("XCLAIM jobs workers b "):
            asked.append(monitor.next_command()["command"])
    released = next(at for at, command in enumerate(asked) if command.startswith("XCLAIM jobs workers ~pool "))
    assert asked.index("DEL jobs:worker:a") > released
    assert sum(command.startswith("ZRANGEBYSCORE jobs:delayed ") for command in asked[released:]) <= 2
    assert worker.wait_exit() == 0
    other.wait("delivery_settled", order_id=order_id)
    own_theatre.check_books(order_id)


def test_a_handler_that_heeds_no_cancellation_keeps_nobody_and_is_no_failure(theatre: Theatre) -> None:
    """All was released in order: at its deadline the process ends as one that was asked to."""
    orders = theatre.add("shielded", 2, trace="ab")
    patient = theatre.start("a", slots="1", **GRACE)
    hurried = theatre.start("b", slots="1", grace_s="3600")
    theatre.wait_runs("start", 2)
    for worker in (patient, hurried):
        worker.send(TERM)
        worker.wait("worker_stopping")
    hurried.send(TERM)
    assert (patient.wait_exit(), hurried.wait_exit()) == (0, 0)
    assert (deadlines(patient), deadlines(hurried)) == ([GRACE_S], [3600, HURRY_S])
    assert [worker.of("worker_stopped")[0]["released"] for worker in (patient, hurried)] == [1, 1]
    theatre.start("c")
    theatre.wait_settled()
    theatre.check_books(*orders)


def test_fifty_signals_do_no_more_than_two(theatre: Theatre) -> None:
    """Also the last ones, while the process leaves, do not kill it. (Those that come at once may count as one.)"""
    orders = theatre.add("stuck", 3, trace="a")
    worker = theatre.start("a", **GRACE)
    theatre.wait_runs("start", 3)
    worker.send(*[TERM] * 25)
    worker.wait("worker_stopping")
    worker.send(*[TERM] * 25)
    assert worker.wait_exit() == 0
    assert theatre.owners() == [POOL] * 3
    theatre.check_books(*orders)


def test_a_signal_before_redis_answers_ends_the_start(own_theatre: Theatre, server: RedisServer) -> None:
    (order_id,) = own_theatre.add("quick")
    with frozen(server.pid):
        worker = own_theatre.start_unawaited(**GRACE)
        worker.send(TERM)
        assert worker.wait_exit() == 0, "at its deadline it would have ended with 1"
    assert deadlines(worker) == [GRACE_S]
    own_theatre.check_books(order_id)
    assert worker.of("worker_started") == []


def test_a_signal_before_there_is_any_redis_ends_the_start(own_theatre: Theatre, server: RedisServer) -> None:
    server.stop()
    worker = own_theatre.start_unawaited()
    worker.send(TERM)
    assert worker.wait_exit() == 0


@pytest.mark.parametrize("kind", ["idle", "working"])
def test_a_signal_while_redis_hangs_ends_it_within_the_grace(
    own_theatre: Theatre, server: RedisServer, kind: str
) -> None:
    worker = own_theatre.start(**GRACE)
    orders = []
    if kind == "working":
        orders = own_theatre.add("stuck", trace="a")
        own_theatre.wait_runs("start", 1)
    with frozen(server.pid):
        worker.send(TERM)
        assert worker.wait_exit() == 0
    assert deadlines(worker) == [GRACE_S]
    own_theatre.check_books(*orders)


def test_a_signal_while_redis_is_down_ends_it(own_theatre: Theatre, server: RedisServer) -> None:
    worker = own_theatre.start(grace_s="3600")
    server.stop()
    worker.wait("broker_down")
    worker.send(TERM)
    assert worker.wait_exit() == 0


def test_killed_a_moment_after_it_was_asked_to_stop_it_has_not_crashed(theatre: Theatre) -> None:
    (order_id,) = theatre.add("gated")
    worker = theatre.start("a", grace_s="3600")
    theatre.wait_runs("start", 1)
    worker.send(TERM)
    wait_until(lambda: theatre.client.hget(theatre.keys.worker("a"), "stopping") == b"1")
    worker.kill()
    theatre.open()
    again = theatre.start("a")
    settled = again.wait("delivery_settled")
    assert (settled["order_id"], settled["crashes"], settled["attempt"]) == (order_id, 0, 1)
    theatre.check_books(order_id)


def test_signals_while_jobs_come_at_full_speed_lose_none(theatre: Theatre) -> None:
    orders = theatre.add("quick", 200)
    for name in ("a", "b"):
        worker = theatre.start(name)
        worker.send(TERM)
        orders += theatre.add("quick", 200)
        assert worker.wait_exit() == 0
        theatre.check_books(*orders)
    theatre.start("c")
    theatre.wait_settled()
    theatre.check_books(*orders)
