"""From XADD to the handler's start on an idle worker, and what an idle worker costs."""

import os
from time import perf_counter
from typing import Any

import trio

from stagedoor.core.handler import HandlerSpec
from tests.bench.figures import Figure, percentile
from tests.bench.rig import Rig, private_redis
from tests.support.redis_server import RedisServer

ENTRIES = 200
IDLE_S = 10.0


def measure(runs: int) -> list[Figure]:
    """Return latencies in ms, the idle worker's share of a core in %, and its calls to Redis per second."""
    with private_redis() as server:
        latencies = [trio.run(_latencies, server) for _ in range(runs)]
        cpu, calls = zip(*[trio.run(_idle, server) for _ in range(max(1, runs // 2))], strict=True)
    return [
        Figure(name="XADD to handler, median", values=[percentile(of, 0.5) for of in latencies], unit="ms", at_most=1),
        Figure(name="XADD to handler, p99", values=[percentile(of, 0.99) for of in latencies], unit="ms", at_most=5),
        Figure(name="idle worker, share of a core", values=cpu, unit="%", at_most=1),
        Figure(name="idle worker, calls to Redis", values=calls, unit="/s", at_most=10),
    ]


async def _latencies(server: RedisServer) -> list[float]:
    rig = Rig(server)
    started: dict[int, float] = {}
    arrived = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def note(job: Any, _ctx: object) -> None:
        started[job.outbox_id] = perf_counter()
        token.run_sync_soon(lambda: arrived.set())  # noqa: PLW0108 - `arrived` is replaced for each entry

    added: dict[int, float] = {}

    async def one_by_one() -> None:
        nonlocal arrived
        for number in range(1, ENTRIES + 1):
            await trio.sleep(0.01)  # the worker is idle again, in its blocked read
            arrived = trio.Event()
            added[number] = perf_counter()
            rig.publish("note", 1)
            await arrived.wait()

    await rig.work({"note": HandlerSpec(kind="note", function=note)}, one_by_one)
    return [(started[number] - added[number]) * 1000 for number in added]


async def _idle(server: RedisServer) -> tuple[float, float]:
    rig = Rig(server)
    result: list[float] = []

    async def stay_idle() -> None:
        await trio.sleep(1)
        calls, cpu_s, at = _calls(rig), sum(os.times()[:2]), perf_counter()
        await trio.sleep(IDLE_S)
        seconds = perf_counter() - at
        result.append((sum(os.times()[:2]) - cpu_s) / seconds * 100)
        result.append((_calls(rig) - calls - 1) / seconds)

    await rig.work({}, stay_idle)
    return result[0], result[1]


def _calls(rig: Rig) -> int:
    """Return how many commands clients have sent; commands inside scripts are not counted among them."""
    info: Any = rig.link.patient.info("commandstats")
    return sum(int(of["calls"]) for name, of in info.items() if name.split("|")[0] in _SENT)


_SENT = {"cmdstat_evalsha", "cmdstat_eval", "cmdstat_client", "cmdstat_info", "cmdstat_hgetall"}
