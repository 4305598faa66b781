"""Redis goes away under a real relay and a real worker, and comes back in every state that it can come back in."""

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from stagedoor.broker.connection import Link
from stagedoor.broker.private_server import PrivateRedis
from stagedoor.broker.scratch import Scratch
from stagedoor.core.keys import Keys
from stagedoor.orders import OrderBook
from stagedoor.rehearsal.crew import NAMESPACE, RELAY, Crew, House
from stagedoor.rehearsal.programme import make_orders
from stagedoor.rehearsal.rest import is_empty
from tests.support.redis_server import find_server

pytestmark = [pytest.mark.process, pytest.mark.redis]

WORKER = "worker-1"
QUICK = {"liveness_ttl_s": "2", "beat_every_s": "0.5", "sweep_every_s": "0.5", "block_ms": "500"}
LIMIT_S = 60.0
DOWN_S = 6.0
MOST_CPU_SHARE = 0.05
"""Of a core: whoever spins takes all of it. That an idle worker stays below 1 % is measured in the bench."""
TICKS = os.sysconf("SC_CLK_TCK")


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, "this never came true"
        time.sleep(0.02)


@attrs.frozen
class Stage:
    house: House
    book: OrderBook
    redis: PrivateRedis
    crew: Crew
    scratch: Scratch

    def place(self, count: int, seed: int) -> None:
        for order in make_orders(count, seed):
            self.book.place(order)

    def wait_at_rest(self) -> None:
        def is_at_rest() -> bool:
            return is_empty(self.scratch.leftovers()) and self.book.outbox.backlog().waiting == 0

        wait_until(is_at_rest)

    def told(self, name: str) -> Counter[str]:
        lines = self.house.log(name).read_text("utf-8").splitlines()
        return Counter(str(json.loads(line)["event"]) for line in lines if line.startswith("{"))

    def cpu_s(self, name: str) -> float:
        """Return the CPU time of a process and its threads, in seconds."""
        fields = Path(f"/proc/{self.crew.pid(name)}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def check(self) -> None:
        report = self.book.check_invariant()
        assert (report.lost, report.wrong) == ((), ())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    house = House(folder=tmp_path.resolve())
    house.logs_dir.mkdir()
    with contextlib.ExitStack() as stack:
        book = stack.enter_context(OrderBook.open(house.orders_url, tickets_dir=house.tickets_dir))
        redis = stack.enter_context(PrivateRedis(house.log_of_redis, program=find_server(), is_durable=True))
        crew = stack.enter_context(Crew(house, redis.url, slots=2, settings=QUICK, workers=[WORKER]))
        link = stack.enter_context(contextlib.closing(Link(redis.url)))
        yield Stage(house, book, redis, crew, Scratch(link, Keys(NAMESPACE)))


def assert_one_line_each(stage: Stage, name: str) -> None:
    told = stage.told(name)
    assert (told["broker_down"], told["broker_up"]) == (1, 1), told


def test_while_redis_is_away_nobody_is_busy_and_when_it_comes_back_empty_every_order_has_its_tickets(
    stage: Stage,
) -> None:
    stage.place(4, seed=1)
    wait_until(lambda: stage.told(WORKER)["delivery_settled"] >= 4)
    stage.wait_at_rest()
    pids = {name: stage.crew.pid(name) for name in (WORKER, RELAY)}
    stage.redis.kill()
    stage.place(3, seed=2)
    wait_until(lambda: all(stage.told(name)["broker_down"] for name in pids))
    before = {name: stage.cpu_s(name) for name in pids}
    time.sleep(DOWN_S)  # what is measured is what they do in this time
    used = {name: stage.cpu_s(name) - before[name] for name in pids}
    stage.redis.start_again(is_empty=True)
    wait_until(lambda: stage.told(WORKER)["delivery_settled"] >= 4 + 7)
    stage.wait_at_rest()
    stage.check()
    assert stage.crew.lost() == {}
    assert {name: stage.crew.pid(name) for name in pids} == pids, "nobody was started again"
    for name in pids:
        wait_until(lambda name=name: stage.told(name)["broker_up"] == 1)  # type: ignore[misc]  # bound at once
        assert_one_line_each(stage, name)
        assert used[name] <= DOWN_S * MOST_CPU_SHARE, f"{name} used {used[name]:.2f} s of {DOWN_S:.0f} s"
    assert stage.told(WORKER)["group_recreated"] == 1
    assert stage.told(RELAY)["published_lost"] == 1


def test_when_it_comes_back_with_data_of_before_every_order_has_its_tickets(stage: Stage, tmp_path: Path) -> None:
    stage.place(2, seed=1)
    wait_until(lambda: stage.told(WORKER)["delivery_settled"] >= 2)
    stage.wait_at_rest()
    stage.redis.copy_data(tmp_path / "old")
    stage.place(3, seed=2)
    wait_until(lambda: stage.told(WORKER)["delivery_settled"] >= 5)
    stage.wait_at_rest()
    stage.redis.kill()
    stage.place(2, seed=3)
    stage.redis.start_again(tmp_path / "old")
    wait_until(lambda: stage.told(WORKER)["delivery_settled"] >= 5 + 3 + 2)
    stage.wait_at_rest()
    stage.check()
    assert stage.crew.lost() == {}
    assert stage.told(RELAY)["published_lost"] == 1


def test_at_maxmemory_new_rows_wait_and_when_there_is_memory_again_every_order_has_its_tickets(stage: Stage) -> None:
    stage.place(2, seed=1)
    wait_until(lambda: stage.told(WORKER)["delivery_settled"] >= 2)
    with contextlib.closing(Link(stage.redis.url)) as link:
        link.quick.config_set("maxmemory", "1")
        stage.place(3, seed=2)
        wait_until(lambda: stage.told(RELAY)["broker_down"] == 1)
        assert stage.book.outbox.backlog().waiting == 3
        assert stage.told(WORKER)["broker_down"] == 0, "the worker goes on: what it does makes room"
        link.quick.config_set("maxmemory", "0")
    wait_until(lambda: stage.told(WORKER)["delivery_settled"] >= 5)
    stage.wait_at_rest()
    stage.check()
    assert stage.crew.lost() == {}
    wait_until(lambda: stage.told(RELAY)["broker_up"] == 1)
    assert_one_line_each(stage, RELAY)
