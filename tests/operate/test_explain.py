"""``explain``: every place where a job can be, in sentences that say what comes next."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagedoor.broker import tracing
from stagedoor.broker.publishing import OutboxEntry
from stagedoor.broker.tracing import Tracing, Wanted
from stagedoor.cli.output import utc
from stagedoor.core.call import CallState
from stagedoor.core.codec import Fields, pack
from stagedoor.core.outcome import Dead, Reason, RetryLater, UnknownKind
from stagedoor.core.tenure import Stream
from stagedoor.orders import NewTicket, OrderBook
from stagedoor.relay import entry_of
from tests.broker.flow_harness import calls_of, new_call
from tests.broker.harness import RedisHarness, job, settled
from tests.cli.test_order import line
from tests.operate.conftest import Run, Said

pytestmark = pytest.mark.redis


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


def publish(real: RedisHarness, book: OrderBook) -> str:
    """Bring the waiting rows to the stream, as a relay does; returns the last entry's id."""
    rows = book.outbox.pending()
    _, replies = real.publishing().publish(book.outbox.book_id(), [entry_of(row) for row in rows])
    book.outbox.mark_published(
        (row.outbox_id, reply.entry_id, reply.seq) for row, reply in zip(rows, replies, strict=True)
    )
    return replies[-1].entry_id


def one(said: Said) -> dict[str, Any]:
    """Return the only account."""
    [account] = said.data["accounts"]
    return account  # type: ignore[no-any-return]  # JSON


# -- an order's way ---------------------------------------------------------------------------


def test_an_order_from_the_outbox_to_a_worker(real: RedisHarness, book: OrderBook, command: Run) -> None:
    """Waiting, unread, in hand: asked by order, entry and row."""
    order = book.place(line())
    waiting = one(command("explain", str(order.order_id), "--json"))
    assert (waiting["what"], waiting["where"]) == ("outbox", "outbox row 1 waits to be published")
    assert "a relay publishes it within a second" in waiting["next"]

    entry_id = publish(real, book)
    worker = real.worker("w-1")
    unread = one(command("explain", entry_id, "--json"))
    assert unread["where"] == f"entry {entry_id} of the stream waits unread"
    assert unread["next"].startswith("the one live worker takes it as soon as a slot is free")

    worker.read(1)
    held = one(command("explain", "1", "--as", "outbox", "--json"))
    assert held["where"].startswith(f"entry {entry_id} of the stream is in the hands of w-1 (host h, pid 1, last beat ")
    assert "settles it" in held["next"]


def test_a_job_that_is_tried_again(real: RedisHarness, book: OrderBook, command: Run) -> None:
    """Delayed, then in hand again: asked by entry, order, row and token."""
    order = book.place(line())
    entry_id = publish(real, book)
    worker = real.worker("w-1")
    worker.settle(1, [settled(claimed, RetryLater(3600.0, 2, "x")) for claimed in worker.read(1).claimed])
    for asked in ([entry_id], [str(order.order_id)], ["1", "--as", "outbox"], [order.positions[0].token]):
        delayed = one(command("explain", *asked, "--json"))
        assert (delayed["what"], delayed["id"]) == ("delayed", f"1:{entry_id}")
        assert "is delayed for another 60 min, until " in delayed["where"]
        assert any(told.startswith("attempt 2") for told in delayed["history"])

    real.make_due()
    worker.promote()
    [again] = worker.read(1).claimed
    later = one(command("explain", entry_id, "--json"))
    assert later["id"] == again.entry.entry_id, "found under the id that it has now"
    assert f"as entry {entry_id}" in later["history"][0]


def test_an_order_that_has_its_tickets(real: RedisHarness, book: OrderBook, command: Run) -> None:
    """Settled: asked by entry, order, row and token, which tells nothing of the person."""
    order = book.place(line())
    entry_id = publish(real, book)
    worker = real.worker("w-1")
    key = "k" * 32
    path = book.store.path(order.order_id, 1, version=1, key=key, suffix=".pdf")
    book.store.write(path, b"%PDF")
    file = NewTicket(position_id=1, path=path, content_key=key, content_type="application/pdf")
    assert book.commit_tickets(order, [file])
    worker.settle(1, [settled(claimed) for claimed in worker.read(1).claimed])
    for asked in ([entry_id], [str(order.order_id)], ["1", "--as", "outbox"]):
        said = command("explain", *asked, "--json")
        assert one(said)["what"] == "settled"
        assert said.data["order"]["issue"] == "issued"
        assert (said.code, said.data["order"]["valid"]) == (0, 1)
    token = command("explain", order.positions[0].token).out
    assert "the door says: valid" in token
    assert order.positions[0].token not in token
    assert "Ana" not in token


def test_a_dead_letter_says_why_and_what_can_be_done(real: RedisHarness, book: OrderBook, command: Run) -> None:
    order = book.place(line())
    entry_id = publish(real, book)
    worker = real.worker()
    worker.settle(1, [settled(claimed, Dead(Reason.PERMANENT, "no such seat")) for claimed in worker.read(1).claimed])
    [letter] = command("dead", "list", "--json").data["dead"]
    for asked in (entry_id, str(order.order_id), letter["id"]):
        dead, stuck = command("explain", asked, "--json").data["accounts"]
        assert (dead["what"], stuck["what"]) == ("dead", "stuck")
        assert f"dead letter {dead['id']} since " in dead["where"]
        assert "permanent: no such seat" in dead["where"]
        assert f"dead requeue {dead['id']} puts it back" in dead["next"]


def test_a_parked_row_says_that_nothing_will_happen(real: RedisHarness, book: OrderBook, command: Run) -> None:
    order = book.place(line())
    book.outbox.park(1, "kind: bad\nforged")
    said = command("explain", str(order.order_id))
    assert "is parked: kind: bad\\nforged" in said.out
    assert "next: nothing: it can never make an entry" in said.out


# -- whose hands ---------------------------------------------------------------------------------


def test_an_entry_of_a_lapsed_worker_and_one_without_a_record(real: RedisHarness, command: Run) -> None:
    real.add(job())
    [claimed] = real.worker("w-1").read(1).claimed
    real.lapse("w-1")
    lapsed = one(command("explain", claimed.entry.entry_id, "--json"))
    assert "which has lapsed" in lapsed["where"]
    assert lapsed["next"].startswith("nothing until a worker runs")
    real.worker("w-2")
    assert "moves it to the pool within seconds" in one(command("explain", claimed.entry.entry_id, "--json"))["next"]
    real.forget_record("w-1")
    assert "of which there is no record" in one(command("explain", claimed.entry.entry_id, "--json"))["where"]


def test_an_entry_in_the_pool_with_its_crashes(real: RedisHarness, command: Run) -> None:
    entry_id = real.add(job(), Stream.CRITICAL)
    real.worker("w-1", incarnation="first").read(1)
    real.lapse("w-1")
    sweeper = real.worker("w-2")
    sweeper.sweep()
    sweeper.sweep()
    account = one(command("explain", entry_id, "--json"))
    assert f"entry {entry_id} of the critical stream waits in the pool" in account["where"]
    assert any(told.startswith("crashed ") and told.endswith("w-1 first") for told in account["history"])
    assert "takes it before all new ones" in account["next"]


def test_an_entry_that_was_trimmed_in_somebodys_hands(real: RedisHarness, command: Run) -> None:
    entry_id = real.add(job())
    real.worker("w-1").read(1)
    real.trim(entry_id)
    account = one(command("explain", entry_id, "--json"))
    assert "somebody has deleted its fields: only its holder knows them" in account["history"]


def test_an_entry_that_somebody_acknowledged_by_hand(real: RedisHarness, command: Run) -> None:
    entry_id = real.add(job())
    real.worker().read(1)
    real.command("XACK", real.keys.stream, "workers", entry_id)
    assert "was acknowledged, but not by Stagedoor" in one(command("explain", entry_id, "--json"))["where"]


def test_a_delayed_job_that_can_never_come_due(real: RedisHarness, command: Run) -> None:
    entry_id = real.add(job())
    worker = real.worker()
    worker.settle(1, [settled(one_, RetryLater(60, 2, "x")) for one_ in worker.read(1).claimed])
    real.client.zadd(real.keys.delayed, {f"1:{entry_id}": float("inf")})
    assert "doctor --fix makes it due now" in one(command("explain", entry_id, "--json"))["next"]


def delay(real: RedisHarness, fields: Fields) -> str:
    """Add a job that a worker has delayed; returns its member among the delayed."""
    entry_id = real.add(fields)
    worker = real.worker()
    worker.settle(1, [settled(one_, RetryLater(60, 2, "x")) for one_ in worker.read(1).claimed])
    return f"1:{entry_id}"


@pytest.mark.parametrize(
    "score,where,coming",
    [
        ("-inf", "is due", "a worker puts it back into its stream; it is due for so long only when none runs"),
        ("-1e300", "is due", "a worker puts it back into its stream; it is due for so long only when none runs"),
        ("-1", "is due", "a worker puts it back into its stream; it is due for so long only when none runs"),
        ("1e300", "is delayed until a due time that is none", "doctor --fix makes it due now"),
        ("1e18", "is delayed until a due time that is none", "doctor --fix makes it due now"),
        ("4102444800000", "is delayed until a due time that is none", "doctor --fix makes it due now"),
        ("+inf", "is delayed until a due time that is none", "doctor --fix makes it due now"),
        ("1000", "is due since ", "a worker puts it back into its stream; it is due for so long only when none runs"),
        (None, "is a delayed job without a due time", "nobody would ever look at it; doctor --fix makes it due now"),
    ],
)
def test_a_due_time_that_somebody_has_written(
    real: RedisHarness, command: Run, score: str | None, where: str, coming: str
) -> None:
    member = delay(real, job(order_id="4471"))
    if score is None:
        real.client.zrem(real.keys.delayed, member)
    else:
        real.command("ZADD", real.keys.delayed, score, member)
    real.lapse("w")
    for asked in (member, "4471"):
        found = one(command("explain", asked, "--json"))
        assert found["where"].startswith(f"{member} {where}")
        assert coming in found["next"]
        assert len(found["where"]) < 100
    doctor = command("doctor", "--json").data["findings"]
    is_mended = any(finding["about"] == "delayed" and finding["can_be_fixed"] for finding in doctor)
    assert is_mended is ("doctor" in coming), "what is said to help does"


def test_a_number_of_5000_digits_is_cut(real: RedisHarness, command: Run) -> None:
    member = delay(real, job())
    body = [b"1", *(part for pair in job(attempt="9" * 5000) for part in pair)]
    real.client.hset(real.keys.delayed_body, member, pack(body))
    found = one(command("explain", member, "--json"))
    assert max(map(len, [*found["history"], found["next"]])) < 300
    assert "never starts: it becomes a dead letter, malformed, for attempt: expected 1 to 9 digits" in found["next"]


# -- what becomes of what no worker runs -----------------------------------------------------------


@pytest.mark.parametrize("where", ["unread", "held", "pool", "delayed"])
def test_what_is_no_job_is_promised_a_dead_letter_and_no_slot(real: RedisHarness, command: Run, where: str) -> None:
    entry_id = real.add(job(order_id="x"))
    worker = real.worker()
    if where != "unread":
        [claimed] = worker.read(1).claimed
        if where == "pool":
            worker.release([claimed])
        if where == "delayed":
            worker.settle(1, [settled(claimed, RetryLater(60, 2, "x"))])
    found = one(command("explain", entry_id, "--json"))
    assert "it never starts: it becomes a dead letter, malformed, for order_id: expected" in found["next"]


@pytest.mark.parametrize("where", ["pool", "delayed"])
def test_a_kind_that_no_worker_has_known_is_promised_a_slot_only_where_one_does(
    real: RedisHarness, command: Run, where: str
) -> None:
    entry_id = real.add(job("thank_yu"))
    worker = real.worker()
    [claimed] = worker.read(1).claimed
    worker.settle(1, [settled(claimed, UnknownKind(60, 8))])
    if where == "pool":
        real.make_due()
        worker.promote()
        worker.release(worker.read(1).claimed)
    found = one(command("explain", entry_id, "--json"))
    assert "hands it back again, as 8 times before, unless that worker knows its kind" in found["next"]
    assert "is a module missing in plugins?" in found["next"]
    day_later = utc(int(entry_id.partition("-")[0]) / 1000 + 24 * 3600)
    assert f"After {day_later} it becomes a dead letter" in found["next"]
    assert "the next free slot" not in found["next"]


def test_a_kind_that_no_worker_has_known_for_a_day_is_about_to_die(real: RedisHarness, command: Run) -> None:
    entry_id = real.add(job("thank_yu", hops="20000", origin="1000-0"))
    real.worker()
    assert "makes a dead letter of it" in one(command("explain", entry_id, "--json"))["next"]


# -- what is not known -------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [["1-1"], ["77"], ["77", "--as", "outbox"], ["NOSUCHTOKEN"]])
def test_what_nobody_knows_is_exit_code_1(real: RedisHarness, command: Run, asked: list[str], tmp_path: Path) -> None:
    said = command("explain", *asked, "--json")
    assert (said.code, one(said)["what"]) == (1, "nothing")
    assert list(tmp_path.iterdir()) == [], "looking makes no order book"


def test_a_settled_entry_of_a_book_that_does_not_know_it(book: OrderBook, real: RedisHarness, command: Run) -> None:
    assert command("explain", "1-1").code == 1
    assert command("explain", "99", "--as", "order").code == 1
    said = command("explain", "foo", "--json")
    assert (said.code, one(said)["what"]) == (1, "nothing"), "a token that nobody knows"


@pytest.mark.parametrize(
    "asked", [["0"], ["1", "--as", "entry"], ["x" * 100, "--as", "order"], ["9" * 30], [""], ["  "]]
)
def test_what_is_no_id_is_refused(command: Run, asked: list[str]) -> None:
    assert command("explain", *asked).code == 2


def test_a_number_is_an_outbox_row_where_no_order_has_it(real: RedisHarness, book: OrderBook, command: Run) -> None:
    book.place(line(order_id=500))
    assert command("explain", "1", "--json").data["asked"] == {"kind": "outbox", "id": "1"}
    assert command("explain", "500", "--json").data["asked"] == {"kind": "order", "id": "500"}


def test_every_id_that_is_printed_can_be_asked(real: RedisHarness, command: Run) -> None:
    """A delayed job's and a timer's names among the delayed, and a letter that can never be put back."""
    member = delay(real, job())
    assert one(command("explain", member, "--json"))["id"] == member
    assert one(command("explain", member, "--as", "entry", "--json"))["id"] == member
    worker = real.worker("w-2")
    calls_of(real, worker).start(new_call(delay_s=3600.0))
    for account in command("explain", "c", "--json").data["accounts"]:
        again = command("explain", account["id"], "--json")
        assert (again.code, account["id"] in [one_["id"] for one_ in again.data["accounts"]]) == (0, True)
    real.add(((b"no", b"job"),))
    worker.settle(1, [settled(one_, Dead(Reason.MALFORMED, "kind")) for one_ in worker.read(1).claimed])
    [letter] = command("dead", "list", "--json").data["dead"]
    said = one(command("explain", letter["entry_id"], "--json"))
    assert f"the dead letter {letter['id']} since" in said["where"]
    assert said["next"].startswith("nothing; it cannot be put back: ")
    assert one(command("explain", letter["id"], "--json"))["id"] == letter["id"]


@pytest.mark.parametrize("asked", ["outbox-77", "sale-1", "flow:sale-1"])
def test_a_call_that_was_forgotten_is_no_token(real: RedisHarness, command: Run, asked: str) -> None:
    said = command("explain", asked, "--json")
    assert (said.code, said.data["asked"]["kind"]) == (1, "call")
    forgotten = one(said)
    assert "it ended and was kept no longer" in forgotten["where"]
    assert ("explain 77 --as outbox says" in forgotten["next"]) is (asked == "outbox-77")


# -- bounded ------------------------------------------------------------------------------------------


def test_an_order_is_found_behind_many_pages(either: RedisHarness) -> None:
    """Among entries, delayed jobs and letters of others; malformed ones are found by what they name, too."""
    worker = either.worker()
    rows = [OutboxEntry(number, job(outbox_id=str(number), order_id=str(number % 7 + 10))) for number in range(450)]
    either.publishing().publish("b", rows[1:])
    either.add(((b"order_id", b"4471"), (b"order_id", b"x")))
    trace = Tracing(either.link, either.keys).find(Wanted(order_ids=frozenset(("4471",))))
    assert len(trace.entries) == 1
    worker.settle(1, [settled(one, RetryLater(60, 2, "x")) for one in worker.read(449).claimed])
    [last] = worker.read(1).claimed
    worker.settle(2, [settled(last, Dead(Reason.MALFORMED, "x"))])
    trace = Tracing(either.link, either.keys).find(Wanted(order_ids=frozenset(("4471", "10"))))
    assert (len(trace.entries), len(trace.delayed), len(trace.letters)) == (0, 64, 1)
    assert not trace.is_cut


@pytest.mark.parametrize("most,is_cut", [(100_000, False), (300, True)])
def test_the_calls_of_an_order_are_found_among_many_others(
    either: RedisHarness, monkeypatch: pytest.MonkeyPatch, most: int, is_cut: bool
) -> None:
    calls = calls_of(either)
    for number in range(600):
        metadata = {"order_id": str(number % 7 + 10)} if number % 2 else {"mine": "10"}
        calls.start(new_call(f"c-{number}", metadata=metadata))
    either.client.set(either.keys.call_meta("text"), "no hash")
    for strange in (b"\xff no id", b"gone", b"text"):
        either.client.zadd(either.keys.calls, {strange: 0})
    monkeypatch.setattr(tracing, "MOST_CALLS", most)
    trace = Tracing(either.link, either.keys).find(Wanted(order_ids=frozenset(("10",))))
    expected = {f"c-{number}" for number in range(600) if number % 2 and number % 7 == 0}
    found = {call.call_id for call in trace.calls}
    assert (found < expected if is_cut else found == expected, trace.is_cut) == (True, is_cut)
    assert {(call.flow, call.state) for call in trace.calls} == {("f", CallState.WAITING)}
