"""How late a delayed job is back in its stream: from when it is due by Redis' clock to the XADD by the same clock."""

import random
from typing import Any

import trio

from stagedoor.core.handler import HandlerSpec
from stagedoor.errors import Retry
from tests.bench.figures import Figure, percentile
from tests.bench.rig import Rig, private_redis
from tests.support.redis_server import RedisServer

JOBS = 400
SOONEST_S, LATEST_S = 0.5, 4.0
LOOK_EVERY_S = 0.1
BUSY_EVERY_S, BUSY_COUNT = 0.01, 20


def measure(runs: int) -> list[Figure]:
    """Return the errors in ms, of an idle worker and of one that also handles 2,000 no-ops a second."""
    with private_redis() as server:
        idle = [trio.run(_errors, server, False) for _ in range(runs)]
        busy = [trio.run(_errors, server, True) for _ in range(runs)]
    return [
        Figure(name="due to XADD, idle, p99", values=[percentile(of, 0.99) for of in idle], unit="ms", at_most=20),
        Figure(name="due to XADD, busy, p99", values=[percentile(of, 0.99) for of in busy], unit="ms", at_most=20),
        Figure(name="due to XADD, earliest", values=[min(of) for of in idle + busy], unit="ms"),
    ]


async def _errors(server: RedisServer, is_busy: bool) -> list[float]:
    rig = Rig(server)
    rng = random.Random(1)
    back: dict[str, str] = {}
    due: dict[str, float] = {}

    def retry(job: Any, _ctx: object) -> None:
        if job.attempt == 1:
            raise Retry(after=rng.uniform(SOONEST_S, LATEST_S))
        back[job.origin] = job.entry_id

    async def see_what_is_due() -> None:
        while True:
            for member, score in await trio.to_thread.run_sync(_delayed, rig):
                due[member.decode().partition(":")[2]] = score
            await trio.sleep(LOOK_EVERY_S)

    async def keep_busy() -> None:
        while True:
            await trio.to_thread.run_sync(rig.publish, "nothing", BUSY_COUNT)
            await trio.sleep(BUSY_EVERY_S)

    async def until_all_are_back() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(see_what_is_due)
            if is_busy:
                nursery.start_soon(keep_busy)
            rig.publish("retry", JOBS)
            while len(back) < JOBS:  # noqa: ASYNC110 - set in threads, which set no trio.Event
                await trio.sleep(LOOK_EVERY_S)
            nursery.cancel_scope.cancel()

    handlers = {
        "retry": HandlerSpec(kind="retry", function=retry),
        "nothing": HandlerSpec(kind="nothing", function=lambda _job, _ctx: None),
    }
    await rig.work(handlers, until_all_are_back)
    return [int(entry_id.partition("-")[0]) - due[origin] for origin, entry_id in back.items() if origin in due]


def _delayed(rig: Rig) -> list[tuple[bytes, float]]:
    found: Any = rig.link.patient.zrange(rig.keys.delayed, 0, -1, withscores=True)
    return [(member, float(score)) for member, score in found]
