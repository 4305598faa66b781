"""Redis is away for a while under workers that hold jobs: nobody's are taken, nothing runs twice, nobody is busy.

Here for some seconds, at times to live as short; ``nox -s onsale`` takes
$STAGEDOOR_TEST_OUTAGE_S, a minute of them, at the default settings.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tests.process.support import Theatre, wait_until
from tests.support.redis_server import RedisServer, StartRedis

pytestmark = [pytest.mark.process, pytest.mark.redis]

OUTAGE_S = float(os.environ.get("STAGEDOOR_TEST_OUTAGE_S", "5"))
IS_LONG = OUTAGE_S >= 60
SETTINGS: Mapping[str, str] = (
    {}
    if IS_LONG
    else {"liveness_ttl_s": "3", "beat_every_s": "0.5", "sweep_every_s": "0.3", "renew_every_s": "0.5",
          "reclaim_idle_s": "6", "reclaim_every_s": "0.5"}
)  # fmt: skip
MOST_CPU_SHARE = 0.02 if IS_LONG else 0.15
"""Of a core: whoever spins takes all of it. Over a minute it was 0.7 to 0.8 %, of which each try to connect is a
part, and a busy machine makes that dearer; in a few seconds the first calls, which come fast, weigh more."""
WORKERS, JOBS = "abc", 12


def tenures(theatre: Theatre) -> dict[bytes, tuple[bytes, int]]:
    """Return who holds what, and how often it was handed out."""
    rows = cast("Any", theatre.client.xpending_range(theatre.keys.stream, "workers", "-", "+", 1000))
    return {row["message_id"]: (row["consumer"], row["times_delivered"]) for row in rows}


@contextlib.contextmanager
def frozen_server(server: RedisServer) -> Iterator[None]:
    """It takes connections and requests, and answers nothing."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@contextlib.contextmanager
def killed_server(server: RedisServer) -> Iterator[None]:
    """It is gone, and comes back with all that it has answered."""
    server.kill()
    try:
        yield
    finally:
        server.start()


@pytest.mark.parametrize("away", [frozen_server, killed_server])
def test_after_an_outage_everybody_goes_on_with_what_it_held(
    start_redis: StartRedis, tmp_path: Path, away: Callable[[RedisServer], Any]
) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    with contextlib.closing(Theatre(server.url, "jobs", tmp_path)) as theatre:
        workers = [theatre.start(name, slots="4", **SETTINGS) for name in WORKERS]
        orders = theatre.add("gated", JOBS, trace="0.5")
        theatre.wait_runs("start", JOBS)
        before = tenures(theatre)
        assert {consumer for consumer, _ in before.values()} == {name.encode() for name in WORKERS}
        with away(server):
            for worker in workers:
                worker.wait("broker_down")
            used = [worker.cpu_s() for worker in workers]
            time.sleep(OUTAGE_S)  # what is measured is what they do in this time
            used = [worker.cpu_s() - earlier for worker, earlier in zip(workers, used, strict=True)]
        for worker in workers:
            worker.wait("broker_up")
        orders.append(strand(theatre))
        wait_until(lambda: any(worker.of("worker_swept", worker="gone") for worker in workers))
        assert {entry: held for entry, held in tenures(theatre).items() if held[0] != b"~pool"} == before
        theatre.open()
        theatre.wait_settled()
        theatre.check_books(*orders)
        assert len(theatre.runs("start")) == JOBS
        for worker, seconds in zip(workers, used, strict=True):
            assert (len(worker.of("broker_down")), len(worker.of("broker_up"))) == (1, 1)
            assert worker.of("tenure_lost") == []
            assert {swept["worker"] for swept in worker.of("worker_swept")} <= {"gone"}
            assert seconds <= OUTAGE_S * MOST_CPU_SHARE, f"{seconds:.2f} s of {OUTAGE_S:.0f} s"


def strand(theatre: Theatre) -> int:
    """Add a job, and let it be held by somebody of whom nothing is heard: nobody else reads, with all slots taken."""
    (order_id,) = theatre.add("quick")
    assert theatre.client.xreadgroup("workers", "gone", {theatre.keys.stream: ">"}, count=1)
    return order_id
