"""The blocked read on a real Redis: it can be ended at any moment, and never takes an entry with it unseen."""

import random
import threading
from collections.abc import Callable

import pytest
import redis

from stagedoor.broker.connection import Link
from stagedoor.broker.deliveries import Deliveries, Pulse
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries
from stagedoor.core.keys import Keys
from stagedoor.errors import BrokerUnavailable
from tests.broker.harness import RedisHarness, identity, ids, job
from tests.support.redis_server import StartRedis

pytestmark = pytest.mark.redis

RACES = 300


def _in_thread(act: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(act())
        except BrokerUnavailable as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def _end(worker: Deliveries, thread: threading.Thread) -> None:
    """End a wait as a stopping worker does: again and again until it has returned."""
    while thread.is_alive():
        worker.unblock()
        thread.join(0.001)


def test_a_wait_that_is_ended_while_entries_arrive_loses_none_in_many_races(real: RedisHarness) -> None:
    """Whatever was added is afterwards with the reader, or unread: never pending and unseen."""
    worker = real.worker("w")
    rng = random.Random(7)
    returned: list[str] = []
    added: list[str] = []
    for _ in range(RACES):
        thread, replies = _in_thread(lambda: worker.wait(4000))
        adder, ids_added = _in_thread(lambda: real.add(job()))
        if rng.random() < 0.5:
            adder.join()
        _end(worker, thread)
        adder.join()
        returned += ids(replies[0])  # type: ignore[arg-type]  # no wait failed: an error has no ids
        added += [str(one) for one in ids_added]
    returned += ids(worker.read(RACES))
    assert sorted(returned) == sorted(added)
    assert sorted(real.state().jobs.pending) == sorted(added)


def test_a_wait_ends_within_its_unblocking_however_often_it_begins(real: RedisHarness) -> None:
    """One shot misses when it comes before the command: repeated, it ends every one."""
    worker = real.worker("w")
    for _ in range(100):
        thread, replies = _in_thread(lambda: worker.wait(15_000))
        _end(worker, thread)
        assert ids(replies[0]) == []  # type: ignore[arg-type]  # no wait failed


def test_unblocking_ends_the_own_connection_only(real: RedisHarness) -> None:
    one, two = real.worker("one"), real.worker("two")
    other, replies = _in_thread(lambda: two.wait(15_000))
    thread, _ = _in_thread(lambda: one.wait(15_000))
    _end(one, thread)
    assert other.is_alive()
    entry_id = real.add(job())
    other.join(5)
    assert ids(replies[0]) == [entry_id]  # type: ignore[arg-type]  # no wait failed


def test_the_id_is_that_of_the_present_connection_after_a_reconnect(real: RedisHarness) -> None:
    worker = real.worker("w")
    for _ in range(5):
        thread, replies = _in_thread(lambda: worker.wait(15_000))
        while not _kill_blocked(real):
            thread.join(0.002)
        thread.join(10)
        assert isinstance(replies[0], BrokerUnavailable)
        again, replies = _in_thread(lambda: worker.wait(15_000))
        _end(worker, again)
        assert ids(replies[0]) == []  # type: ignore[arg-type]  # no wait failed


def _kill_blocked(real: RedisHarness) -> bool:
    for client in real.client.client_list():
        if client["cmd"] == "xreadgroup" and "b" in client["flags"]:
            real.client.client_kill_filter(_id=client["id"])
            return True
    return False


def test_a_wait_can_be_lost_to_the_network_more_often_than_a_pool_has_places(start_redis: StartRedis) -> None:
    """redis-py's pools refuse their 101st connection ever made; a worker outlives many more outages."""
    server = start_redis()
    link = Link(server.url)
    worker = RedisDeliveries(link, Keys("jobs"), settings=DeliverySettings(wanted_name="w"))
    worker.ensure_groups()
    worker.join(identity("i1"), Pulse(slots=8))
    server.stop()
    for _ in range(130):
        with pytest.raises(BrokerUnavailable):
            worker.wait(10)
    server.start()
    worker.ensure_groups()
    client = redis.Redis.from_url(server.url)
    client.xadd("jobs", {"kind": "x"})
    assert len(worker.wait(5000).claimed) == 1
    worker.close()
    client.close()
    link.close()


def test_where_unblocking_is_forbidden_the_socket_is_shut(start_redis: StartRedis) -> None:
    server = start_redis()
    server.cli("ACL", "SETUSER", "worker", "on", "nopass", "~*", "+@all", "-client|unblock")
    _ends_by_socket(server.url.replace("unix://", "unix://worker:x@"))


def test_where_even_the_id_is_secret_the_socket_is_shut(start_redis: StartRedis) -> None:
    server = start_redis()
    server.cli("ACL", "SETUSER", "worker", "on", "nopass", "~*", "+@all", "-client")
    _ends_by_socket(server.url.replace("unix://", "unix://worker:x@"))


def _ends_by_socket(url: str) -> None:
    link = Link(url)
    worker = RedisDeliveries(link, Keys("jobs"), settings=DeliverySettings(wanted_name="w"))
    worker.ensure_groups()
    worker.join(identity("i1"), Pulse(slots=8))
    thread, replies = _in_thread(lambda: worker.wait(15_000))
    _end(worker, thread)
    assert isinstance(replies[0], BrokerUnavailable)
    assert ids(worker.wait(5)) == []
    worker.close()
    link.close()


def test_a_server_that_is_gone_ends_a_blocked_wait(start_redis: StartRedis) -> None:
    server = start_redis()
    harness = RedisHarness(server.url, "jobs")
    worker = harness.worker("w")
    thread, replies = _in_thread(lambda: worker.wait(15_000))
    while not any(client["cmd"] == "xreadgroup" for client in harness.client.client_list()):
        thread.join(0.002)
    server.kill()
    thread.join(10)
    assert isinstance(replies[0], BrokerUnavailable)
    harness.close()


def test_an_idle_wait_longer_than_a_quick_timeout_is_no_error(redis_url: str, namespace: str) -> None:
    """The socket of the blocked read has patience for the whole of it; an empty read is an answer, not a timeout."""
    link = Link(redis_url, block_ms=300)
    worker = RedisDeliveries(link, Keys(namespace), settings=DeliverySettings(wanted_name="w"))
    worker.ensure_groups()
    assert ids(worker.wait(300)) == []
    worker.close()
    link.close()
