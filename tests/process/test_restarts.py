"""A long healthy job outlives any number of restarts that were asked for."""

import signal

import pytest

from tests.process.support import Theatre, wait_until

pytestmark = [pytest.mark.process, pytest.mark.redis]

RESTARTS = 12
"""More than the five crashes that make an entry poison, of each kind."""


def test_restarts_that_were_asked_for_never_kill_a_long_job_also_with_sigkill_a_moment_later(theatre: Theatre) -> None:
    (order_id,) = theatre.add("gated")
    for number in range(1, RESTARTS + 1):
        worker = theatre.start("a", grace_s="3600")
        theatre.wait_runs("start", number)
        worker.send(signal.SIGTERM)
        if number % 2:
            wait_until(lambda: theatre.client.hget(theatre.keys.worker("a"), "stopping") == b"1")
            worker.kill()
        else:
            worker.wait("worker_stopping")
            worker.send(signal.SIGTERM)
            worker.wait_exit()
    theatre.open()
    last = theatre.start("a")
    settled = last.wait("delivery_settled")
    assert (settled["order_id"], settled["outcome"], settled["crashes"], settled["attempt"]) == (order_id, "done", 0, 1)
    theatre.check_books(order_id)
