"""A long healthy job outlives any number of restarts that were asked for."""

import os
import signal
import time

import pytest

from tests.process.support import Theatre, wait_until

pytestmark = [pytest.mark.process, pytest.mark.redis]

RESTARTS = 20
"""Ten of each kind: twice as many as the crashes that make an entry poison."""


def test_restarts_that_were_asked_for_never_kill_a_long_job_also_with_sigkill_a_second_later(theatre: Theatre) -> None:
    (order_id,) = theatre.add("gated")
    keeper = theatre.start_keeper("a", grace_s="3600", beat_every_s="0.3")
    for number in range(1, RESTARTS + 1):
        keeper.ask()
        pid = keeper.wait("born", number)["pid"]
        theatre.wait_runs("start", number)
        os.kill(pid, signal.SIGTERM)
        if number % 2:
            wait_until(lambda: theatre.client.hget(theatre.keys.worker("a"), "stopping") == b"1")
            # Its beats of the second that follows must go on to say so.
            kill_at = theatre.clock_s() + 1
            while theatre.clock_s() < kill_at:
                time.sleep(0.01)
            os.kill(pid, signal.SIGKILL)
        else:
            keeper.wait("worker_stopping", number)
            os.kill(pid, signal.SIGTERM)
        assert keeper.wait("died", number)["code"] == (-signal.SIGKILL if number % 2 else 0)
    theatre.open()
    keeper.ask()
    settled = keeper.wait("delivery_settled")
    assert (settled["order_id"], settled["outcome"], settled["crashes"], settled["attempt"]) == (order_id, "done", 0, 1)
    os.kill(keeper.wait("born", RESTARTS + 1)["pid"], signal.SIGTERM)
    assert keeper.wait("died", RESTARTS + 1)["code"] == 0
    theatre.check_books(order_id)
