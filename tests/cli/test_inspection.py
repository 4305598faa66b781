"""What is where on Redis: counts that hold, and what was lost to somebody's deletions."""

from collections.abc import Iterator
from typing import Any

import pytest

from stagedoor.broker.connection import Link
from stagedoor.broker.inspection import Inspection, Overview, entry_number
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries
from stagedoor.core.keys import GROUP, POOL, Keys
from stagedoor.errors import BrokerError, BrokerUnavailable

pytestmark = pytest.mark.redis


class Place:
    """A namespace of one test, with what Redis' own commands do to it."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self.link, self.keys = link, keys
        self.client: Any = link.patient

    def look(self) -> Overview:
        return Inspection(self.link, self.keys).look()

    def make_group(self, start: str = "0") -> None:
        for key in (self.keys.stream, self.keys.critical):
            self.client.xgroup_create(key, GROUP, start, mkstream=True)

    def add(self, count: int = 1, key: str | None = None) -> list[bytes]:
        return [self.client.xadd(key or self.keys.stream, {"kind": "k"}) for _ in range(count)]

    def read(self, count: int, consumer: str = "w") -> list[bytes]:
        reply = self.client.xreadgroup(GROUP, consumer, {self.keys.stream: ">"}, count=count)
        entries = [
            entry
            for found in (reply.values() if isinstance(reply, dict) else (rows for _, rows in reply))
            for entry in found
        ]
        flat = entries[0] if entries and isinstance(entries[0], list) else entries
        return [entry_id for entry_id, _ in flat]

    def settle(self, *entry_ids: bytes) -> None:
        self.client.xack(self.keys.stream, GROUP, *entry_ids)
        self.client.xdel(self.keys.stream, *entry_ids)


@pytest.fixture
def place(redis_url: str, namespace: str) -> Iterator[Place]:
    link = Link(redis_url, block_ms=0)
    yield Place(link, Keys(namespace))
    link.close()


def test_a_namespace_that_nobody_used_is_empty_and_no_error(place: Place) -> None:
    found = place.look()
    assert (found.stream.length, found.stream.oldest_age_s, found.workers) == (0, None, ())
    assert (found.pool, found.delayed, found.dead, found.trimmed_unread) == (0, 0, 0, 0)
    assert place.client.keys(f"{place.keys.namespace}*") == []


def test_a_stream_without_a_group_is_all_unread(place: Place) -> None:
    place.add(3)
    found = place.look().stream
    assert (found.length, found.unread, found.pending) == (3, 3, 0)


def test_unread_and_pending_together_are_the_length(place: Place) -> None:
    place.make_group()
    place.add(10)
    one, *_ = place.read(4)
    place.settle(one)
    found = place.look().stream
    assert (found.length, found.unread, found.pending) == (9, 6, 3)
    assert found.oldest_age_s is not None
    assert 0 <= found.oldest_age_s < 60


def test_the_age_is_that_of_the_oldest_entry_that_is_owed(place: Place) -> None:
    place.make_group()
    place.client.xadd(place.keys.stream, {"kind": "k"}, id="1000-0")
    [old] = place.read(1)
    place.add(1)
    age_s = place.look().stream.oldest_age_s
    assert age_s is not None
    assert age_s > 1_000_000_000
    place.client.xdel(place.keys.stream, old)
    assert (place.look().stream.oldest_age_s or 0) > 1_000_000_000, "still pending, though its body is gone"


def test_the_pool_counts_both_streams(place: Place) -> None:
    place.make_group()
    place.add(3)
    place.read(2, POOL)
    place.add(1, place.keys.critical)
    place.client.xreadgroup(GROUP, POOL, {place.keys.critical: ">"})
    found = place.look()
    assert (found.pool, found.stream.pool, found.critical.pool, found.critical.pending) == (3, 2, 1, 1)


def test_delayed_and_dead_jobs_are_counted(place: Place) -> None:
    place.client.zadd(place.keys.delayed, {"a": 1, "b": 2})
    place.client.xadd(place.keys.dead, {"reason": "permanent"})
    found = place.look()
    assert (found.delayed, found.dead) == (2, 1)


def test_workers_are_those_that_have_a_record(place: Place) -> None:
    from stagedoor.broker import Identity, Pulse

    deliveries = RedisDeliveries(place.link, place.keys, settings=DeliverySettings(wanted_name="box-1"))
    deliveries.ensure_groups()
    identity = Identity(incarnation="i", host="box", boot_id="b", pid_namespace="p", pid=42, started=7)
    deliveries.join(identity, Pulse(slots=8))
    deliveries.beat(Pulse(slots=8, held=3, orphaned=1, stopping=True))
    place.client.xgroup_createconsumer(place.keys.stream, GROUP, "without-a-record")
    place.client.xgroup_createconsumer(place.keys.stream, GROUP, "no worker's name\n")

    [worker] = place.look().workers

    assert (worker.name, worker.pid, worker.host) == ("box-1", 42, "box")
    assert (worker.slots, worker.held, worker.orphaned, worker.stopping) == (8, 3, 1, True)
    assert 0 <= worker.beat_age_s < 60


def test_a_record_full_of_nonsense_is_shown_with_zeros(place: Place) -> None:
    place.make_group()
    place.client.xgroup_createconsumer(place.keys.stream, GROUP, "w")
    place.client.hset(place.keys.worker("w"), mapping={"pid": b"\xff", "slots": "-3", "host": b"\xff\n"})
    [worker] = place.look().workers
    assert (worker.pid, worker.slots, worker.held) == (0, 0, 0)


# -- entries that were deleted while unread -------------------------------------------------


def test_what_is_settled_is_not_taken_for_lost(place: Place) -> None:
    place.make_group()
    place.add(10)
    place.settle(*place.read(3))
    assert place.look().trimmed_unread == 0
    place.settle(*place.read(7))
    assert place.look().trimmed_unread == 0
    place.add(2)
    assert place.look().trimmed_unread == 0


def test_entries_trimmed_before_anybody_read_them_are_counted(place: Place) -> None:
    place.make_group()
    place.add(10)
    place.settle(*place.read(3))
    place.client.xtrim(place.keys.stream, maxlen=4, approximate=False)
    assert place.look().trimmed_unread == 3
    assert place.look().stream.unread == 4


def test_a_trim_that_took_pending_bodies_too_counts_the_unread_ones(place: Place) -> None:
    place.make_group()
    place.add(10)
    place.read(3)
    place.client.xtrim(place.keys.stream, maxlen=4, approximate=False)
    found = place.look()
    assert (found.trimmed_unread, found.stream.unread, found.stream.pending) == (3, 4, 3)
    place.client.xtrim(place.keys.stream, maxlen=0, approximate=False)
    assert place.look().trimmed_unread == 7


def test_an_unread_entry_that_was_deleted_by_its_id_is_noticed(place: Place) -> None:
    place.make_group()
    *_, last = place.add(10)
    place.read(3)
    place.client.xdel(place.keys.stream, last)
    assert place.look().trimmed_unread == 1
    place.read(6)
    assert place.look().stream.pending == 9


def test_a_group_that_was_made_anew_is_no_alarm(place: Place) -> None:
    place.make_group()
    place.add(10)
    place.settle(*place.read(8))
    place.client.xgroup_destroy(place.keys.stream, GROUP)
    place.client.xgroup_create(place.keys.stream, GROUP, "0")
    found = place.look()
    assert (found.trimmed_unread, found.stream.unread) == (0, 2)
    place.settle(*place.read(2))
    assert place.look().trimmed_unread == 0


# -- trouble -----------------------------------------------------------------------------------


def test_a_redis_that_cannot_be_asked_is_said() -> None:
    link = Link("redis://127.0.0.1:1/0", block_ms=0)
    with pytest.raises(BrokerUnavailable):
        Inspection(link, Keys("jobs")).look()
    link.close()


def test_a_key_of_another_type_is_no_empty_stream(place: Place) -> None:
    place.client.set(place.keys.stream, "somebody's")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        place.look()


def test_ids_compare_as_numbers() -> None:
    assert entry_number(b"9-10") < entry_number("10-2") < entry_number("10-11")
