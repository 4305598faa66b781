"""``explain`` of an order and the calls that no row leads to: started by hand, or by a row that was pruned since."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from stagedoor.broker import tracing
from stagedoor.cli import explain_view
from stagedoor.core.call import CallOutcome, CallState, Ending, Finish, Sleep
from stagedoor.order import Order
from stagedoor.orders import OrderBook
from tests.broker.flow_harness import begun, calls_of, new_call, set_field, take_one
from tests.broker.harness import RedisHarness
from tests.cli.test_order import line
from tests.operate.conftest import Run
from tests.operate.test_explain import publish
from tests.operate.test_explain_order import LATER, issue, trouble, whats

pytestmark = pytest.mark.redis
SLEEPS = Sleep(until=LATER, waiting_for="sleep 'grace'")


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


@attrs.frozen
class Sold:
    """An order, and the entry of its own, which somebody has deleted unread."""

    order: Order
    entry_id: str

    @property
    def number(self) -> str:
        """Its id as it is asked for."""
        return str(self.order.order_id)


@pytest.fixture
def sold(real: RedisHarness, book: OrderBook) -> Sold:
    order = book.place(line())
    real.worker()
    entry_id = publish(real, book)
    real.trim(entry_id)
    return Sold(order, entry_id)


def begin_call(real: RedisHarness, sold: Sold, call_id: str, ending: Ending | None, flow: str = "fulfil-order") -> None:
    """Start a call for the order; it waits unread unless a pass ends it."""
    worker = real.worker("w-2")
    calls = calls_of(real, worker)
    calls.start(new_call(call_id, flow=flow, metadata={"order_id": sold.number}))
    if ending is not None:
        calls.end_pass(begun(calls, take_one(worker), call_id).right, ending)


def forget_rows(folder: Path) -> None:
    """Prune the outbox."""
    with contextlib.closing(sqlite3.connect(folder / "stagedoor.db")) as database, database:
        database.execute("DELETE FROM outbox")


def assert_under_way(command: Run, sold: Sold, call_id: str) -> None:
    """By whatever it is asked for, the order is not lost; the call is told where it is known that it belongs to it."""
    for asked in ([call_id], [sold.number], [sold.order.positions[0].token]):
        said = command("explain", *asked, "--json")
        assert said.data["order"]["problems"], asked
        assert said.data["accounts"][0]["id"] == call_id, asked
        assert not {"lost", "stuck", "settled", "nothing"} & set(whats(said)), asked
    for asked in ([sold.entry_id], ["1", "--as", "outbox"]):
        assert not {"lost", "stuck"} & set(whats(command("explain", *asked, "--json"))), asked


@pytest.mark.parametrize("ending", [None, SLEEPS])
def test_an_order_is_not_lost_while_a_call_that_somebody_started_waits_or_sleeps(
    real: RedisHarness, sold: Sold, command: Run, ending: Ending | None
) -> None:
    begin_call(real, sold, "mine", ending)
    assert_under_way(command, sold, "mine")


@pytest.mark.parametrize("ending", [None, SLEEPS])
def test_an_order_is_not_lost_while_a_call_waits_or_sleeps_whose_row_was_pruned(
    real: RedisHarness, sold: Sold, command: Run, tmp_path: Path, ending: Ending | None
) -> None:
    begin_call(real, sold, "outbox-1", ending)
    forget_rows(tmp_path)
    assert_under_way(command, sold, "outbox-1")


def test_a_row_that_was_pruned_leads_to_its_call(real: RedisHarness, sold: Sold, command: Run, tmp_path: Path) -> None:
    begin_call(real, sold, "outbox-1", SLEEPS)
    forget_rows(tmp_path)
    [call] = command("explain", "1", "--as", "outbox", "--json").data["accounts"]
    assert (call["what"], call["id"]) == ("call", "outbox-1")


def test_an_order_is_not_lost_where_the_call_that_was_asked_for_is_one_that_nothing_else_leads_to(
    real: RedisHarness, sold: Sold, command: Run
) -> None:
    """Somebody has deleted the index of calls."""
    begin_call(real, sold, "mine", SLEEPS)
    real.client.delete(real.keys.calls)
    assert whats(command("explain", "mine", "--json")) == ["call"]


def test_a_call_that_has_ended_is_what_is_left(real: RedisHarness, sold: Sold, command: Run, tmp_path: Path) -> None:
    begin_call(real, sold, "mine", Finish(outcome=CallOutcome(state=CallState.FAILED, error="E: x")))
    forget_rows(tmp_path)
    assert whats(command("explain", sold.number, "--json")) == ["call", "stuck"]


def test_a_call_of_a_shops_own_flow_is_told_for_what_it_is(real: RedisHarness, sold: Sold, command: Run) -> None:
    begin_call(real, sold, "mine", SLEEPS, flow="thank-you")
    said = command("explain", sold.number, "--json")
    assert whats(said) == ["call", "stuck"]
    assert "thank-you, only the shop knows whether it does that" in trouble(said)["where"]


def test_of_very_many_calls_and_of_one_that_cannot_be_read_it_is_said_where_they_are(
    real: RedisHarness, sold: Sold, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        begin_call(real, sold, f"mine-{number}", SLEEPS)
    begin_call(real, sold, "ended", Finish(outcome=CallOutcome(state=CallState.FAILED, error="E: x")))
    monkeypatch.setattr(explain_view, "MOST_CALLS", 2)
    told = command("explain", sold.number, "--json").data["accounts"]
    assert sorted(account["id"] for account in told) == ["ended", "mine-0", "mine-1", "mine-2"]
    assert {account["what"] for account in told} == {"call"}
    assert "ended" not in [account["id"] for account in told[:2]], "what goes on is read first"
    assert told[2]["next"] == f"explain {told[2]['id']} --as call says"
    set_field(real, ".epoch", "x", "mine-0")
    told = command("explain", sold.number, "--json").data["accounts"]
    [spoilt] = [account for account in told if account["id"] == "mine-0"]
    assert spoilt["where"] == "call mine-0 of the flow fulfil-order is sleeping"
    assert "cannot be read" in command("explain", "mine-0").err
    monkeypatch.setattr(explain_view, "MOST_CALLS", 0)
    assert whats(command("explain", sold.number, "--json")) == ["call"] * 4


def test_where_not_all_calls_were_looked_at_nothing_is_called_lost_or_settled(
    real: RedisHarness, book: OrderBook, sold: Sold, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        calls_of(real).start(new_call(f"c-{number}"))
    monkeypatch.setattr(tracing, "MOST_CALLS", 100)
    said = command("explain", sold.number, "--json")
    assert (whats(said), said.data["is_complete"]) == (["stuck"], False)
    assert trouble(said)["where"].endswith("nothing goes on with that by itself, as far as was looked")
    issue(book, sold.order.order_id)
    said = command("explain", sold.number, "--json")
    assert said.data["accounts"][0]["where"].endswith("; there is more on Redis than was looked at")
