"""What a worker process does while Redis is in trouble: it waits, says so once, and goes on without a restart."""

import contextlib
import threading
import time
from pathlib import Path

import pytest

from tests.process.support import Theatre, WorkerProcess, wait_until
from tests.support.redis_server import RedisServer, StartRedis

pytestmark = [pytest.mark.process, pytest.mark.redis]

BUSY_SHARE = 0.25
"""Of one core; what spins takes all of it."""


def test_after_a_flush_it_works_on_with_one_warning(own_theatre: Theatre) -> None:
    worker = own_theatre.start()
    for _ in range(3):
        own_theatre.client.flushall()
        own_theatre.add("quick")
        own_theatre.wait_settled()
    assert len(own_theatre.runs("end")) == 3
    assert 1 <= len(worker.of("group_recreated")) <= 3
    assert worker.of("broker_down") == []
    wait_until(lambda: own_theatre.client.exists(own_theatre.keys.worker("a")))


@pytest.mark.parametrize("how", ["destroy", "delete", "rename"])
def test_a_group_that_vanishes_under_running_jobs_is_one_incident_and_no_job_runs_twice(
    own_theatre: Theatre, how: str
) -> None:
    orders = own_theatre.add("gated", 3)
    worker = own_theatre.start(renew_every_s="0.3", **({"block_ms": "200"} if how == "rename" else {}))
    own_theatre.wait_runs("start", 3)
    stream = own_theatre.keys.stream
    match how:
        case "destroy":
            own_theatre.client.xgroup_destroy(stream, "workers")
        case "delete":
            own_theatre.client.delete(stream)
        case "rename":
            own_theatre.client.rename(stream, f"{stream}-elsewhere")
    (later,) = own_theatre.add("quick")
    worker.wait("delivery_settled", order_id=later)
    own_theatre.open()
    own_theatre.wait_runs("end", 4)
    if how == "destroy":
        worker.wait("delivery_settled", 4)
        own_theatre.check_books(*orders, later)
    else:
        # Their entries are gone, and with them whatever could be written about them.
        worker.wait("tenure_lost", 3)
    assert len(own_theatre.runs("start")) == 3
    assert len(worker.of("group_recreated")) == 1
    assert worker.of("broker_down") == []


def test_redis_down_for_seconds_is_two_lines_no_load_and_no_restart(own_theatre: Theatre, server: RedisServer) -> None:
    worker = own_theatre.start()
    orders = own_theatre.add("quick", 5)
    worker.wait("delivery_settled", 5)
    server.stop()
    worker.wait("broker_down")
    assert_at_rest(worker, 1.0)
    server.start()
    worker.wait("broker_up")
    orders += own_theatre.add("quick", 5)
    worker.wait("delivery_settled", 10)
    own_theatre.check_books(*orders)
    assert (len(worker.of("broker_down")), len(worker.of("broker_up"))) == (1, 1)
    assert len(worker.of("worker_started")) == 1


def test_a_redis_that_comes_back_with_old_data_costs_no_worker(own_theatre: Theatre, server: RedisServer) -> None:
    """In the copy the name is its former process', which is provably dead."""
    former = own_theatre.start()
    orders = own_theatre.add("sleep", trace="0")
    former.wait("delivery_settled")
    orders += own_theatre.add("stuck", trace="a")
    own_theatre.wait_runs("start", 2)
    own_theatre.client.save()
    former.kill()

    worker = own_theatre.start()
    record = own_theatre.keys.worker("a")
    incarnation = own_theatre.client.hget(record, "incarnation")
    wait_until(lambda: len(own_theatre.runs("start")) >= 3)
    server.kill()
    server.start()
    warned = worker.wait("warned")
    assert "goes on as 'a'" in warned["message"]
    wait_until(lambda: own_theatre.client.hget(record, "incarnation") == incarnation)
    orders += own_theatre.add("quick")
    assert worker.wait("delivery_settled", order_id=orders[-1])["outcome"] == "done"
    assert worker.is_running
    own_theatre.check_books(*orders)


def test_what_was_finished_while_redis_was_away_is_settled_when_it_comes_back_with_its_data(
    start_redis: StartRedis, tmp_path: Path
) -> None:
    server = start_redis("--appendonly", "yes")
    with contextlib.closing(Theatre(server.url, "jobs", tmp_path)) as theatre:
        orders = theatre.add("gated", 3)
        worker = theatre.start()
        theatre.wait_runs("start", 3)
        server.stop()
        theatre.open()
        theatre.wait_runs("end", 3)
        worker.wait("broker_down")
        server.start()
        worker.wait("delivery_settled", 3, outcome="done")
        theatre.check_books(*orders)
        assert len(theatre.runs("start")) == 3


def test_a_key_of_the_wrong_type_is_told_once_and_no_hot_loop(own_theatre: Theatre) -> None:
    worker = own_theatre.start(block_ms="200")
    stream = own_theatre.keys.stream
    own_theatre.client.delete(stream)
    own_theatre.client.set(stream, "somebody's")
    worker.wait("broker_down")
    assert_at_rest(worker, 1.0)
    own_theatre.client.delete(stream)
    (order_id,) = own_theatre.add("quick")
    worker.wait("delivery_settled", order_id=order_id)
    worker.wait("broker_up")
    assert (len(worker.of("broker_down")), len(worker.of("broker_up"))) == (1, 1)


def test_a_group_that_is_destroyed_all_the_time_is_no_hot_loop(own_theatre: Theatre) -> None:
    worker = own_theatre.start(block_ms="200")
    used, until = worker.cpu_s(), time.monotonic() + 1
    while time.monotonic() < until:
        own_theatre.client.xgroup_destroy(own_theatre.keys.stream, "workers")
        time.sleep(0.002)
    assert worker.cpu_s() - used < 1 * BUSY_SHARE
    (order_id,) = own_theatre.add("quick")
    worker.wait("delivery_settled", order_id=order_id)


def test_an_idle_worker_makes_at_most_ten_calls_a_second_and_has_no_load(
    own_theatre: Theatre, server: RedisServer
) -> None:
    worker = own_theatre.start()
    worker.wait("worker_started")
    seconds, over = 3.0, "that is all"
    calls: list[str] = []
    used = worker.cpu_s()
    with server.client() as client, client.monitor() as monitor:
        bell = threading.Timer(seconds, own_theatre.client.echo, [over])
        bell.start()
        for line in iter(monitor.next_command, None):
            if over in line["command"]:
                break
            if line["client_type"] != "lua":
                calls.append(line["command"].split()[0])
        bell.join()
    used = worker.cpu_s() - used
    assert len(calls) >= seconds, "it looks for what is due twice a second"
    assert len(calls) / seconds <= 10
    assert used / seconds < 0.05


def assert_at_rest(worker: WorkerProcess, seconds: float) -> None:
    """For so long the worker uses next to no processor time."""
    used = worker.cpu_s()
    time.sleep(seconds)
    assert worker.cpu_s() - used < seconds * BUSY_SHARE
