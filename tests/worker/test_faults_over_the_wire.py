"""A whole worker over a real Redis behind a proxy that spoils its connections: one line when it begins, one when
it is over, no restart, and every job runs."""

import random
from collections import Counter
from typing import Any

import pytest
import trio

from stagedoor.broker.connection import Link
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries
from stagedoor.chaos.proxy import Mode, Proxy, Spoil
from stagedoor.core.keys import Keys
from stagedoor.events import BrokerDown, BrokerUp, DeliverySettled
from stagedoor.testing import FakeBroker
from tests.broker.harness import RedisHarness, job, socket_of
from tests.broker.test_faults_on_each_call import ERRORS, name_of
from tests.worker.support import Life, eventually, living, spec

pytestmark = [pytest.mark.redis, pytest.mark.process]

QUICK: dict[str, Any] = {
    "liveness_ttl_s": "2",
    "beat_every_s": "0.5",
    "sweep_every_s": "0.3",
    "renew_every_s": "0.5",
    "reclaim_idle_s": "3",
    "reclaim_every_s": "0.5",
    "block_ms": "200",
}
"""What a request that came too late has claimed is reclaimed within the test."""
OUTAGES = [
    *(Mode(spoil=Spoil.REFUSE, error=error) for error in ERRORS),
    Mode(spoil=Spoil.DROP),
    Mode(spoil=Spoil.FREEZE),
    Mode(spoil=Spoil.RESET),
]
NUISANCES = [
    Mode(spoil=Spoil.DOUBLE, share=0.5),
    Mode(spoil=Spoil.DELAY, delay_s=0.3),
    Mode(spoil=Spoil.DROP, share=0.2),
    Mode(spoil=Spoil.RESET, share=0.2),
]
NUISANCE_S = 2.0


class Place:
    """A worker with a proxy and a namespace of its own, and what has run there."""

    def __init__(self, url: str, namespace: str) -> None:
        self.real = RedisHarness(url, namespace)
        self.proxy = Proxy(socket_of(url), rng=random.Random(1))
        self.link = Link(self.proxy.url, block_ms=200)
        self.deliveries = RedisDeliveries(
            self.link,
            Keys(namespace),
            settings=DeliverySettings(wanted_name="w", liveness_ttl_ms=2000, reclaim_idle_ms=3000),
        )
        self.ran: Counter[int] = Counter()
        self.added = 0

    def add(self, count: int) -> None:
        for _ in range(count):
            self.added += 1
            self.real.add(job("work", outbox_id=str(self.added)))

    def work(self, work: Any, _held: Any) -> None:
        self.ran[work.outbox_id] += 1

    async def wait_settled(self) -> None:
        await eventually(lambda: len(self.ran) == self.added)
        await eventually(lambda: self.real.length() == 0)

    def close(self) -> None:
        self.deliveries.close()
        self.link.close()
        self.proxy.close()
        self.real.close()


async def outlast(place: Place, life: Life, fault: Mode) -> None:
    """Let a fault last until it has been told of, with jobs before, during and after it."""
    is_outage = fault in OUTAGES
    place.add(5)
    place.proxy.mode = fault
    place.add(5)
    if is_outage:
        await life.recorder.wait(BrokerDown)
    else:
        await trio.sleep(NUISANCE_S)
    place.add(5)
    place.proxy.mode = Mode()
    if is_outage:
        await life.recorder.wait(BrokerUp)
    place.add(5)
    await place.wait_settled()
    assert place.proxy.spoiled > 0
    if is_outage:
        assert (len(life.recorder.of(BrokerDown)), len(life.recorder.of(BrokerUp))) == (1, 1)
    outcomes = Counter(event.outcome for event in life.recorder.of(DeliverySettled))
    assert set(outcomes) <= {"done"}, outcomes
    assert not life.ended.is_set(), "it has recovered without a restart"


async def at(url: str, namespace: str, fault: Mode) -> None:
    place = Place(url, namespace)
    try:
        async with living(
            FakeBroker(), spec(place.work), deliveries=place.deliveries, incarnation=f"i-{namespace}", **QUICK
        ) as life:
            await outlast(place, life, fault)
    except BaseException as error:
        error.add_note(f"the fault was {name_of(fault)}, share {fault.share}")
        raise
    finally:
        place.close()


async def test_every_kind_of_outage_has_one_line_at_each_end_and_no_job_is_lost(redis_url: str, namespace: str) -> None:
    async with trio.open_nursery() as nursery:
        for number, fault in enumerate(OUTAGES):
            nursery.start_soon(at, redis_url, f"{namespace}-{number}", fault)


async def test_replies_that_are_late_or_lost_or_come_twice_lose_no_job(redis_url: str, namespace: str) -> None:
    async with trio.open_nursery() as nursery:
        for number, fault in enumerate(NUISANCES):
            nursery.start_soon(at, redis_url, f"{namespace}-{number}", fault)
