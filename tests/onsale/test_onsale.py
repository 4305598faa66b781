"""The on-sale night: thousands of orders at once, with refunds and changes among them, on two real workers.

Here a small one; ``nox -s onsale`` plays the whole night, as many orders as
$STAGEDOOR_TEST_ONSALE_ORDERS says.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from stagedoor.broker.connection import Link
from stagedoor.broker.private_server import PrivateRedis
from stagedoor.broker.scratch import Scratch
from stagedoor.core.keys import Keys
from stagedoor.orders import OrderBook
from stagedoor.rehearsal.check import check_everything
from stagedoor.rehearsal.crew import NAMESPACE, WORKERS, Crew, House
from stagedoor.rehearsal.night import Night, write_night
from stagedoor.rehearsal.rest import STALL_LIMIT_S, Moved, is_empty
from stagedoor.replay.fixture import AddEntry, ChangeOrder, Fixture, Refund, Reissue, load_fixture
from tests.support.redis_server import find_server

ORDERS = int(os.environ.get("STAGEDOOR_TEST_ONSALE_ORDERS", "120"))
SEED = 2026
POLL_S = 0.1


@attrs.frozen
class Stage:
    house: House
    book: OrderBook
    crew: Crew
    scratch: Scratch


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    house = House(folder=tmp_path.resolve())
    house.logs_dir.mkdir()
    with contextlib.ExitStack() as stack:
        book = stack.enter_context(OrderBook.open(house.orders_url, tickets_dir=house.tickets_dir))
        redis = stack.enter_context(PrivateRedis(house.log_of_redis, program=find_server()))
        # The fixture says which entries there are, and when: nobody relays the outbox.
        crew = stack.enter_context(Crew(house, redis.url, slots=4, workers=WORKERS, with_relay=False))
        link = stack.enter_context(contextlib.closing(Link(redis.url)))
        yield Stage(house, book, crew, Scratch(link, Keys(NAMESPACE)))


def play(fixture: Fixture, stage: Stage) -> None:
    """Sell everything, then take every step as fast as it goes."""
    stage.book.place_many(fixture.orders)
    for step in fixture.steps:
        match step.what:
            case AddEntry(fields=fields):
                stage.scratch.add(fields)
            case Refund(order_id):
                stage.book.refund(order_id)
            case Reissue(order_id):
                stage.book.reissue(order_id)
            case ChangeOrder(order_id, changes):
                stage.book.change(order_id, *changes)


def wait_for_rest(stage: Stage) -> None:
    moved = Moved()
    while not is_empty(left := stage.scratch.leftovers()):
        assert moved.lately((left.waiting, left.pending, len(left.delayed)), STALL_LIMIT_S), f"stuck with {left}"
        assert stage.crew.lost() == {}
        time.sleep(POLL_S)
    assert left.dead == ()


@pytest.mark.process
@pytest.mark.redis
def test_after_the_night_every_order_has_what_it_should_have(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "onsale"
    folder.mkdir()
    write_night(Night.of(ORDERS, SEED), folder)
    fixture = load_fixture(folder)
    assert len(fixture.orders) == ORDERS
    play(fixture, stage)
    wait_for_rest(stage)
    stage.crew.stop()
    checked = check_everything(stage.book, stage.house.tickets_dir, progress=lambda _done, _total: None)
    assert (checked.lost, checked.wrong, checked.problems) == (0, 0, ())
    for order_id, expected in fixture.expected.orders.items():
        valid = tuple(sorted(t.position_id for t in stage.book.tickets(order_id) if t.state == "valid"))
        assert (order_id, stage.book.get(order_id).status, valid) == (order_id, expected.status, expected.valid)
    starts = [stage.house.log(name).read_text("utf-8").count('"delivery_started"') for name in WORKERS]
    assert min(starts) > 0, "both workers have worked"
    assert sum(starts) == sum(isinstance(step.what, AddEntry) for step in fixture.steps), "each entry ran once"


def test_the_same_seed_is_the_same_night(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        write_night(Night.of(30, seed), tmp_path / name)
    texts = {name: (tmp_path / name / "entries.jsonl").read_text("utf-8") for name in ("one", "again", "other")}
    assert texts["one"] == texts["again"] != texts["other"]


def test_a_night_has_refunds_and_changes_and_news_that_overtakes_other_news() -> None:
    night = Night.of(400, SEED)
    lines = list(night.step_lines())
    assert sum('"refund"' in line for line in lines) == 60
    assert sum('"change"' in line or '"reissue"' in line for line in lines) > 40
    rows = [int(line.split('"outbox_id": "')[1].split('"')[0]) for line in lines if "outbox_id" in line]
    assert rows != sorted(rows)
