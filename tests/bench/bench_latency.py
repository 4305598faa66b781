"""From XADD to the handler's start on an idle worker, and what an idle worker costs."""

import os
import queue
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, sleep
from typing import Any
from uuid import uuid4

import redis
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
        pairs = [(_bare_latencies(server), trio.run(_latencies, server)) for _ in range(runs)]
        cpu, calls = zip(*[trio.run(_idle, server) for _ in range(max(1, runs // 2))], strict=True)
    bare, latencies = zip(*pairs, strict=True)
    return [
        Figure(name="XADD to handler, median", values=[percentile(of, 0.5) for of in latencies], unit="ms", at_most=1),
        Figure(name="XADD to handler, p99", values=[percentile(of, 0.99) for of in latencies], unit="ms", at_most=5),
        Figure(name="XADD to a bare blocked read, median", values=[percentile(of, 0.5) for of in bare], unit="ms"),
        Figure(name="idle worker, share of a core", values=cpu, unit="%", at_most=1),
        Figure(name="idle worker, calls to Redis", values=calls, unit="/s", at_most=10),
    ]


def _bare_latencies(server: RedisServer) -> list[float]:
    """Time a thread in redis-py's blocked read: what the machine, Redis and the client take without a worker."""
    client = redis.Redis.from_url(server.url)
    stream, group = f"bare-{uuid4().hex}", "bare"
    client.xgroup_create(stream, group, "0", mkstream=True)
    started: queue.SimpleQueue[float] = queue.SimpleQueue()

    def read() -> None:
        reader = redis.Redis.from_url(server.url)
        for _ in range(ENTRIES):
            reader.xreadgroup(group, "one", {stream: ">"}, count=1, block=5000)
            started.put(perf_counter())
        reader.close()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(read)
        latencies = [_add(client, stream, number, started) for number in range(1, ENTRIES + 1)]
    client.close()
    return latencies


async def _latencies(server: RedisServer) -> list[float]:
    """Time the starts of a handler of an idle worker; who adds is a thread, as the relay's is another process."""
    rig = Rig(server)
    started: queue.SimpleQueue[float] = queue.SimpleQueue()
    latencies: list[float] = []

    def note(_job: object, _ctx: object) -> None:
        started.put(perf_counter())

    def one_by_one() -> None:
        client = redis.Redis.from_url(server.url)
        latencies.extend(_add(client, rig.keys.stream, number, started) for number in range(1, ENTRIES + 1))
        client.close()

    async def measured() -> None:
        await trio.to_thread.run_sync(one_by_one)

    await rig.work({"note": HandlerSpec(kind="note", function=note)}, measured)
    return latencies


def _add(client: Any, stream: str, number: int, started: queue.SimpleQueue[float]) -> float:
    """Add one entry to an idle worker's stream; return the ms until it was started."""
    sleep(0.01)  # the worker is idle again, in its blocked read
    began_at = perf_counter()
    client.xadd(stream, {"kind": "note", "order_id": number, "outbox_id": number, "request_id": "", "trace": ""})
    return (started.get(timeout=10) - began_at) * 1000


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
