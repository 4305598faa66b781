"""``explain`` of an order that is not as it must be: says so whenever nothing is under way that would put it right."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from stagedoor.broker.tracing import Trace, TracedEntry
from stagedoor.cli.explain_view import LOOKS
from stagedoor.cli.explaining_jobs import Rules
from stagedoor.cli.explaining_order import OrderFacts, Surroundings, stuck
from stagedoor.core.call import CallOutcome, CallState, Finish, Park, Sleep
from stagedoor.core.outcome import Dead, Reason, RetryLater
from stagedoor.core.tenure import Stream
from stagedoor.orders import NewTicket, OrderBook
from stagedoor_renderers.signing import Signer, new_key
from tests.broker.flow_harness import begun, calls_of, new_call, take_one
from tests.broker.harness import RedisHarness, job, settled
from tests.cli.test_order import line
from tests.operate.conftest import Run, Said
from tests.operate.test_explain import publish

pytestmark = pytest.mark.redis
LATER = 4_102_444_800.0


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


def issue(book: OrderBook, order_id: int) -> Path:
    """Issue the tickets of an order; returns a file of theirs."""
    order, key = book.get(order_id), "k" * 32
    files = []
    for position in order.placed_positions:
        path = book.store.path(order_id, position.id, version=order.version, key=key, suffix=".pdf")
        book.store.write(path, b"%PDF")
        files.append(NewTicket(position_id=position.id, path=path, content_key=key, content_type="application/pdf"))
    assert book.commit_tickets(order, files)
    return Path(book.store.file(files[0].path))


def whats(said: Said) -> list[str]:
    return [account["what"] for account in said.data["accounts"]]


def trouble(said: Said) -> dict[str, Any]:
    """Return what is said of an order that stays as it is."""
    [found] = [account for account in said.data["accounts"] if account["what"] in {"lost", "stuck"}]
    return found  # type: ignore[no-any-return]  # JSON


# -- nothing is left ----------------------------------------------------------------------------


def test_a_job_that_was_deleted_unread_is_lost_by_whatever_it_is_asked_for(
    real: RedisHarness, book: OrderBook, command: Run
) -> None:
    order = book.place(line())
    entry_id = publish(real, book)
    real.worker()
    real.trim(entry_id)
    for asked in ([entry_id], [str(order.order_id)], ["1", "--as", "outbox"], [order.positions[0].token]):
        said = command("explain", *asked, "--json")
        lost = trouble(said)
        assert (said.code, whats(said)) == (0, ["lost"])
        assert lost["where"].startswith("it is lost: its tickets are owed, and no job that would do it is anywhere")
        assert f"order reissue {order.order_id} has its tickets made" in lost["next"]
        assert "doctor --fix" in lost["next"]
        assert [told.split()[:3] for told in lost["history"]] == [["outbox", "row", "1"]]
    text = command("explain", str(order.order_id)).out
    assert "settled" not in text
    assert "it is lost" in text


def test_what_is_said_to_do_puts_it_right(real: RedisHarness, book: OrderBook, command: Run) -> None:
    order = book.place(line())
    real.worker()
    real.trim(publish(real, book))
    assert command("order", "reissue", str(order.order_id)).code == 0
    assert whats(command("explain", str(order.order_id), "--json")) == ["outbox"]
    publish(real, book)
    assert whats(command("explain", str(order.order_id), "--json")) == ["entry"]


def test_a_missing_file_that_nobody_will_make_again_is_told(real: RedisHarness, book: OrderBook, command: Run) -> None:
    order = book.place(line())
    entry_id = publish(real, book)
    issue(book, order.order_id).unlink()
    real.trim(entry_id)
    lost = trouble(command("explain", str(order.order_id), "--json"))
    assert "its tickets are not as they must be" in lost["where"]
    assert "order reissue" in lost["next"]


def test_a_refunded_order_whose_tickets_nobody_voids_is_told(real: RedisHarness, book: OrderBook, command: Run) -> None:
    order = book.place(line())
    first = publish(real, book)
    issue(book, order.order_id)
    book.refund(order.order_id)
    second = publish(real, book)
    asked = ("explain", str(order.order_id), "--json")
    assert whats(command(*asked)) == ["entry", "entry"]
    real.trim(second)
    assert whats(command(*asked)) == ["entry", "stuck"], "render_tickets voids nothing"
    real.trim(first)
    lost = trouble(command(*asked))
    assert (lost["what"], "doctor --fix voids them" in lost["next"]) == ("lost", True)


def test_an_order_as_it_must_be_is_settled(real: RedisHarness, book: OrderBook, command: Run) -> None:
    order = book.place(line())
    entry_id = publish(real, book)
    issue(book, order.order_id)
    real.trim(entry_id)
    assert whats(command("explain", str(order.order_id), "--json")) == ["settled"]


# -- something is left, and nothing goes on ---------------------------------------------------------


def give_up(real: RedisHarness) -> None:
    worker = real.worker()
    worker.settle(1, [settled(one, Dead(Reason.PERMANENT, "x")) for one in worker.read(1).claimed])


def acknowledge(real: RedisHarness) -> None:
    [claimed] = real.worker().read(1).claimed
    real.command("XACK", real.keys.stream, "workers", claimed.entry.entry_id)


def orphan(real: RedisHarness) -> None:
    """Leave its body without a due time."""
    delay(real)
    real.client.delete(real.keys.delayed)


def never(real: RedisHarness) -> None:
    delay(real)
    [member] = real.command("ZRANGE", real.keys.delayed, 0, -1)
    real.command("ZADD", real.keys.delayed, "+inf", member)


def poison(real: RedisHarness) -> None:
    [entry_id] = real.state().jobs.entries
    real.client.hset(real.keys.crashes, f"1:{entry_id}", "\n".join("1 w i" for _ in range(5)))


def malform(real: RedisHarness) -> None:
    [entry_id] = real.state().jobs.entries
    real.trim(entry_id)
    real.add(job("render_tickets", outbox_id="x"))


def strip(real: RedisHarness) -> None:
    """Trim it in the hands of a worker that vanishes."""
    [claimed] = real.worker().read(1).claimed
    real.trim(claimed.entry.entry_id)
    real.lapse("w")


def delay(real: RedisHarness) -> None:
    worker = real.worker()
    worker.settle(1, [settled(one, RetryLater(3600.0, 2, "x")) for one in worker.read(1).claimed])


@pytest.mark.parametrize("happen", [give_up, acknowledge, orphan, never, poison, malform, strip])
def test_what_is_left_goes_nowhere_by_itself(
    real: RedisHarness, book: OrderBook, command: Run, happen: Callable[[RedisHarness], None]
) -> None:
    order = book.place(line())
    entry_id = publish(real, book)
    happen(real)
    for asked in (str(order.order_id), entry_id):
        stuck = trouble(command("explain", asked, "--json"))
        assert "its tickets are owed" in stuck["where"], asked
        assert f"order reissue {order.order_id} has its tickets made" in stuck["next"]
    assert whats(command("explain", str(order.order_id), "--json"))[-1] == "stuck"


def test_a_parked_row_is_left(real: RedisHarness, book: OrderBook, command: Run) -> None:
    order = book.place(line())
    book.outbox.park(1, "no")
    assert whats(command("explain", str(order.order_id), "--json")) == ["outbox", "stuck"]


def test_another_kind_of_the_same_order_is_no_help_or_only_the_shop_knows(
    real: RedisHarness, book: OrderBook, command: Run
) -> None:
    order = book.place(line())
    real.worker()
    real.trim(publish(real, book))
    real.add(job("refund_order", order_id=str(order.order_id)))
    assert whats(command("explain", str(order.order_id), "--json")) == ["entry", "stuck"]
    real.add(job("thank_you", order_id=str(order.order_id)))
    unsure = trouble(command("explain", str(order.order_id), "--json"))
    assert "of what is under way, thank_you, only the shop knows whether it does that" in unsure["where"]
    real.add(job("render_tickets", order_id=str(order.order_id)))
    assert "stuck" not in whats(command("explain", str(order.order_id), "--json"))


# -- something goes on ------------------------------------------------------------------------------


def hold(real: RedisHarness) -> None:
    real.worker().read(1)


def pool(real: RedisHarness) -> None:
    hold(real)
    real.lapse("w")


def hold_a_trimmed_one(real: RedisHarness) -> None:
    [claimed] = real.worker().read(1).claimed
    real.trim(claimed.entry.entry_id)


@pytest.mark.parametrize("happen", [hold, pool, hold_a_trimmed_one, delay, lambda _real: None])
def test_what_is_under_way_is_not_lost(
    real: RedisHarness, book: OrderBook, command: Run, happen: Callable[[RedisHarness], None]
) -> None:
    order = book.place(line())
    entry_id = publish(real, book)
    happen(real)
    for asked in ([entry_id], [str(order.order_id)], ["1", "--as", "outbox"], [order.positions[0].token]):
        assert not {"lost", "stuck"} & set(whats(command("explain", *asked, "--json"))), asked


def test_a_row_that_waits_beside_a_settled_entry_is_under_way(
    real: RedisHarness, book: OrderBook, command: Run
) -> None:
    order = book.place(line())
    real.worker()
    entry_id = publish(real, book)
    real.trim(entry_id)
    book.reissue(order.order_id)
    assert whats(command("explain", entry_id, "--json")) == ["settled"]


ORDER = OrderFacts(
    order_id=7, status="placed", version=2, issue="due", valid=0, void=0, positions=1, problems=("0 valid tickets",)
)
RULES = Rules(liveness_ttl_s=10.0, max_attempts=5, max_crashes=5)
NOWHERE = Trace(now=100.0)
THERE = attrs.evolve(
    NOWHERE,
    entries=(TracedEntry(stream=Stream.JOBS, entry_id="1-0", fields=job("render_tickets"), place="unread"),),
)


@pytest.mark.parametrize("traces", [(NOWHERE, THERE), (THERE, NOWHERE)])
def test_a_job_that_moves_is_seen_in_one_of_two_looks(traces: tuple[Trace, ...]) -> None:
    assert stuck(ORDER, Surroundings(order=ORDER, traces=(NOWHERE, NOWHERE)), RULES) is not None
    assert stuck(ORDER, Surroundings(order=ORDER, traces=traces), RULES) is None
    assert LOOKS == 2


@pytest.mark.parametrize("now", [
    None,
    attrs.evolve(ORDER, version=3),
    attrs.evolve(ORDER, issue="issued", problems=()),
])  # fmt: skip
def test_what_has_changed_or_is_done_after_the_looks_is_not_lost(now: OrderFacts | None) -> None:
    assert stuck(ORDER, Surroundings(order=now, traces=(NOWHERE, NOWHERE)), RULES) is None


def test_what_was_not_looked_at_is_not_called_lost() -> None:
    cut = attrs.evolve(NOWHERE, is_cut=True)
    trouble = stuck(ORDER, Surroundings(order=ORDER, traces=(cut, cut)), RULES)
    assert trouble is not None
    assert (trouble.is_lost, trouble.where.endswith("as far as was looked")) == (False, True)


@pytest.mark.parametrize("ending,what", [
    (Sleep(until=LATER, waiting_for="sleep 'grace'"), []),
    (Park(reason="changed", error="x"), ["stuck"]),
    (Finish(outcome=CallOutcome(state=CallState.FAILED, error="E: x")), ["stuck"]),
])  # fmt: skip
def test_a_call_goes_on_unless_it_has_ended_or_is_parked(
    real: RedisHarness, book: OrderBook, command: Run, ending: Any, what: list[str]
) -> None:
    order = book.place(line())
    real.worker()
    real.trim(publish(real, book))
    worker = real.worker("w-2")
    calls = calls_of(real, worker)
    calls.start(new_call("outbox-1", flow="fulfil-order", metadata={"order_id": str(order.order_id)}))
    calls.end_pass(begun(calls, take_one(worker), "outbox-1").right, ending)
    for asked in ("outbox-1", str(order.order_id)):
        said = command("explain", asked, "--json")
        assert said.data["order"]["order_id"] == order.order_id
        assert [one for one in whats(said) if one in {"lost", "stuck"}] == what


def test_a_signed_code_is_explained_as_the_token_in_it(real: RedisHarness, book: OrderBook, command: Run) -> None:
    placed = book.place(line())
    code = Signer(private_key=new_key(), key=7)(placed, placed.positions[0])
    plain = command("explain", placed.positions[0].token, "--json")
    assert command("explain", code, "--json").data["order"] == plain.data["order"]
    assert plain.data["order"] is not None
