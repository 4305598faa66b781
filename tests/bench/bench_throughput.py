"""No-op jobs through one worker, against a bare loop that reads 100 entries and acknowledges them."""

from time import perf_counter
from typing import Any

import redis
import trio

from stagedoor.core.handler import HandlerSpec
from tests.bench.figures import Figure
from tests.bench.rig import Countdown, Rig, private_redis
from tests.support.redis_server import RedisServer

JOBS = 20_000
READ = 100


def measure(runs: int) -> list[Figure]:
    """Return the ratios of both kinds of handlers, and the bare loop's own rate."""
    bare, plain, tasks = [], [], []
    with private_redis() as server:
        for _ in range(runs):
            bare.append(_bare_rate(server))
            plain.append(_worker_rate(server, is_async=False))
            tasks.append(_worker_rate(server, is_async=True))
    return [
        Figure(name="plain handlers / bare loop", values=_ratios(plain, bare), at_least=0.25),
        Figure(name="async handlers / bare loop", values=_ratios(tasks, bare), at_least=0.25),
        Figure(name="plain handlers", values=plain, unit="jobs/s"),
        Figure(name="async handlers", values=tasks, unit="jobs/s"),
        Figure(name="bare loop of redis-py", values=bare, unit="entries/s"),
    ]


def _ratios(one: list[float], other: list[float]) -> list[float]:
    return [a / b for a, b in zip(one, other, strict=True)]


def _bare_rate(server: RedisServer) -> float:
    rig = Rig(server)
    rig.publish("noop", JOBS)
    client: Any = redis.Redis.from_url(server.url)
    stream = rig.keys.stream
    client.xgroup_create(stream, "bare", "0")
    done = 0
    began_at = perf_counter()
    while done < JOBS:
        reply = client.xreadgroup("bare", "one", {stream: ">"}, count=READ)
        batches = reply.values() if isinstance(reply, dict) else [entries for _stream, entries in reply]
        for batch in batches:
            entries = batch[0] if isinstance(reply, dict) else batch
            client.xack(stream, "bare", *[entry_id for entry_id, _fields in entries])
            done += len(entries)
    seconds = perf_counter() - began_at
    client.delete(stream)
    client.close()
    return JOBS / seconds


def _worker_rate(server: RedisServer, *, is_async: bool) -> float:
    rig = Rig(server)
    rig.publish("noop", JOBS)
    countdown = Countdown(JOBS)

    def plain(_job: object, _ctx: object) -> None:
        countdown.hit()

    async def task(_job: object, _ctx: object) -> None:
        countdown.hit()

    spec = HandlerSpec(kind="noop", function=task if is_async else plain)
    trio.run(rig.work, {"noop": spec}, countdown.wait)
    return JOBS / countdown.seconds
