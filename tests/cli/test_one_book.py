"""A namespace serves one order book: no worker settles another one's orders, whoever comes first."""

import signal
from pathlib import Path

import pytest

from stagedoor.orders import OrderBook
from tests.cli.fixtures import Start
from tests.cli.test_processes import book
from tests.support.orders import NACHTMUSIK

pytestmark = [pytest.mark.process, pytest.mark.redis]

__all__ = ["book"]

OTHER = "serves another order book"


def place_in(folder: Path) -> OrderBook:
    """Return another order book, which has an order under the same number."""
    folder.mkdir()
    other = OrderBook.open(f"sqlite:///{folder}/stagedoor.db", tickets_dir=folder / "tickets")
    other.place(NACHTMUSIK)
    return other


def test_a_worker_with_another_book_does_not_start_and_no_order_is_settled_by_it(
    start: Start, book: OrderBook, tmp_path: Path
) -> None:
    relay = start("relay", "--log-level", "debug")
    relay.wait_for("relay reads the outbox")
    with place_in(tmp_path / "other"):
        stranger = start("worker", orders_url=f"sqlite:///{tmp_path}/other/stagedoor.db")
        assert stranger.wait() == 2
        assert OTHER in stranger.said()
        assert "Traceback" not in stranger.said()
    order = book.place(NACHTMUSIK)
    worker = start("worker", "--log-format", "json")
    worker.wait_for('"outcome":"done"')
    assert [ticket.state for ticket in book.tickets(order.order_id)] == ["valid"]


def test_a_relay_does_not_publish_to_workers_of_another_book_until_its_book_is_moved(
    start: Start, book: OrderBook, tmp_path: Path
) -> None:
    order = book.place(NACHTMUSIK)
    with place_in(tmp_path / "other") as other:
        stranger = start("worker", orders_url=f"sqlite:///{tmp_path}/other/stagedoor.db")
        stranger.wait_for("reads with")
        relay = start("relay")
        assert relay.wait() == 2
        assert OTHER in relay.said()
        assert book.outbox.backlog().waiting == 1

        moved = start("relay", "--move-book", "--log-level", "debug")
        assert stranger.wait() == 1
        assert OTHER in stranger.said()
        moved.wait_for("1 outbox row published")
        assert not other.tickets(order.order_id)
    worker = start("worker", "--log-format", "json")
    worker.wait_for('"outcome":"done"')
    assert [ticket.state for ticket in book.tickets(order.order_id)] == ["valid"]
    moved.signal(signal.SIGTERM)
    assert moved.wait() == 0
