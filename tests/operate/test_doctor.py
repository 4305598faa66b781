"""``doctor``: names what is wrong, says what it means, and puts right what can be without losing anything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from stagedoor.broker.checkup import Checkup
from stagedoor.broker.inspection import UNKNOWN_HOPS
from stagedoor.cli import doctor_view
from stagedoor.cli.findings import Cure, of_overview, of_server
from stagedoor.cli.findings_book import of_invariant, of_leftovers, under_way
from stagedoor.cli.plugins import Plugins
from stagedoor.core.codec import pack
from stagedoor.core.keys import GROUP
from stagedoor.core.outcome import Dead, Reason, RetryLater, UnknownKind
from stagedoor.errors import ConfigurationError
from stagedoor.orders import Finding as OrderFinding
from stagedoor.orders import InvariantReport, Leftover, NewTicket, OrderBook
from stagedoor.rendering.registry import Registry
from stagedoor.settings import Settings
from tests.broker.harness import RedisHarness, job, settled
from tests.cli.test_order import line
from tests.cli.test_status import QUIET, WAITING, WORKER
from tests.operate.conftest import Run, Said

pytestmark = pytest.mark.redis
look_at_plugins = doctor_view._plugins


@pytest.fixture
def book(tmp_path: Path) -> Iterator[OrderBook]:
    with OrderBook.open(f"sqlite:///{tmp_path}/stagedoor.db", tickets_dir=tmp_path / "tickets") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warming up renderers is tested elsewhere, and takes its time."""
    monkeypatch.setattr("stagedoor.cli.doctor_view._plugins", lambda *_: [])


def issue(book: OrderBook, order: Any) -> str:
    """Commit a ticket for the only position; returns its path."""
    path = book.store.path(order.order_id, 1, version=order.version, key="k" * 32, suffix=".pdf")
    book.store.write(path, b"%PDF")
    ticket = NewTicket(position_id=1, path=path, content_key="k" * 32, content_type="application/pdf")
    assert book.commit_tickets(order, [ticket])
    return path


def publish_all(book: OrderBook) -> None:
    book.outbox.mark_published((row.outbox_id, f"{row.outbox_id}-0", row.outbox_id) for row in book.outbox.pending())


def wrong(said: Said, which: str = "findings") -> list[tuple[str, str]]:
    return [(one["about"], one["seen"]) for one in said.data[which] if one["level"] == "wrong"]


# -- nothing is wrong ------------------------------------------------------------------------


def test_an_unused_namespace_is_well_and_looking_makes_nothing(
    real: RedisHarness, command: Run, tmp_path: Path
) -> None:
    said = command("doctor")
    assert said.code == 0
    assert said.out.rstrip().endswith("nothing is wrong")
    assert list(tmp_path.iterdir()) == []
    assert real.client.keys(f"{real.keys.namespace}*") == []


def test_a_book_at_rest_is_well(real: RedisHarness, book: OrderBook, command: Run) -> None:
    issue(book, book.place(line()))
    publish_all(book)
    real.worker("w")
    said = command("doctor", "--json")
    assert (said.code, wrong(said)) == (0, [])
    assert {one["about"] for one in said.data["findings"]} >= {"server", "keys", "workers", "outbox", "orders"}


# -- Redis ------------------------------------------------------------------------------------


def test_keys_of_the_wrong_type_are_renamed_and_their_content_kept(real: RedisHarness, command: Run) -> None:
    real.client.set(real.keys.delayed, "precious")
    real.client.set(real.keys.stream, "also")
    said = command("doctor", "--json")
    assert said.code == 1
    assert [about for about, _ in wrong(said)] == ["keys", "keys"]
    fixed = command("doctor", "--fix", "--json")
    assert (fixed.code, wrong(fixed, "left")) == (0, [])
    assert real.client.exists(real.keys.delayed, real.keys.stream) == 0
    [kept] = real.client.keys(f"{real.keys.delayed}:misplaced:*")
    assert real.client.get(kept) == b"precious"


def test_what_is_in_order_by_now_is_not_set_aside(real: RedisHarness) -> None:
    """Between looking and mending somebody may have put the key right, and work into it."""
    real.client.set(real.keys.stream, "not ours")
    checkup = Checkup(real.link, real.keys)
    [(key, (_, must_be))] = checkup.examine().wrong_types.items()
    real.client.delete(key)
    entry_id = real.add(job())
    assert checkup.set_aside(key, must_be) is None
    assert real.client.xlen(real.keys.stream) == 1
    assert [claimed.entry.entry_id for claimed in real.worker().read(1).claimed] == [entry_id]
    real.client.delete(key)
    assert checkup.set_aside(key, must_be) is None, "and what is gone is no trouble either"


def test_records_and_the_keys_of_publishing_are_looked_at_too(
    real: RedisHarness, book: OrderBook, command: Run
) -> None:
    """A relay that cannot publish waits, and says that the doctor names the key: so it must."""
    book.place(line())
    real.worker("w")
    real.add(job())
    real.client.xreadgroup(GROUP, "gone", {real.keys.stream: ">"}, count=1)
    rows = book.outbox.waiting_ids()
    assert rows is not None
    spoilt = [
        real.keys.worker("gone"),
        real.keys.published(book.outbox.book_id()),
        real.keys.published_rows(book.outbox.book_id(), rows[0]),
    ]
    for key in spoilt:
        real.client.lpush(key, "not ours")
    seen = [said for about, said in wrong(command("doctor", "--json")) if about == "keys"]
    assert all(any(said.startswith(f"{key} is a list") for said in seen) for key in spoilt)
    command("doctor", "--fix")
    assert not real.client.exists(*spoilt)
    assert len(real.client.keys(f"{real.keys.namespace}*:misplaced:*")) == len(spoilt)
    publish_all(book)


def test_a_missing_group_is_made_from_the_first_entry_on(real: RedisHarness, command: Run) -> None:
    entry_id = real.add(job())
    assert ("group", "1 entry of jobs has no consumer group") in wrong(command("doctor", "--json"))
    command("doctor", "--fix")
    assert [claimed.entry.entry_id for claimed in real.worker().read(1).claimed] == [entry_id]


def test_entries_of_a_worker_that_has_gone_go_to_the_pool_once_nobody_touches_them(
    real: RedisHarness, command: Run
) -> None:
    entry_id = real.add(job())
    real.worker("w-1").read(1)
    real.lapse("w-1")
    [(_, seen)] = [one for one in wrong(command("doctor", "--json")) if one[0] == "owners"]
    assert "1 entry of jobs is pending under w-1, which has not beaten for" in seen
    fixed = command("doctor", "--fix", "--json")
    assert "0 entries are in the pool" in fixed.data["fixed"], "it was touched within the last minute"
    real.age(entry_id)
    fixed = command("doctor", "--fix", "--json")
    assert "1 entry is in the pool" in fixed.data["fixed"]
    assert [about for about, _ in wrong(fixed, "left")] == ["workers"]


def test_delayed_jobs_that_would_never_be_due_run_after_all(either: RedisHarness, command: Run) -> None:
    """A score that is no time, a body without a member, and a member without a body: run, run, buried."""
    worker = either.worker()
    for number in (1, 2, 3):
        either.add(job(outbox_id=str(number)))
    claimed = worker.read(3).claimed
    worker.settle(1, [settled(one, RetryLater(3600, 2, "x")) for one in claimed])
    first, second, third = (f"1:{one.entry.entry_id}" for one in claimed)
    either.client.zadd(either.keys.delayed, {first: float("inf")})
    either.client.zrem(either.keys.delayed, second)
    either.client.hdel(either.keys.delayed_body, third)
    found = [seen for about, seen in wrong(command("doctor", "--json")) if about == "delayed"]
    assert [member in seen for member, seen in zip((first, third, second), found, strict=True)] == [True] * 3
    fixed = command("doctor", "--fix", "--json")
    assert (fixed.code, wrong(fixed, "left")) == (0, [])
    worker.promote()
    state = either.state()
    assert len(state.jobs.entries) == 2
    assert [letter["reason"] for letter in state.dead] == [b"malformed"]
    assert state.delayed == {}
    assert Checkup(either.link, either.keys).mend([first, second, third]) == 0


def test_mending_leaves_alone_what_is_in_order(real: RedisHarness) -> None:
    in_an_hour_ms = (real.client.time()[0] + 3600) * 1000.0
    real.client.hset(real.keys.delayed_body, "1:1-1", pack([b"1", b"kind", b"k"]))
    real.client.zadd(real.keys.delayed, {"1:1-1": in_an_hour_ms, "1:2-2": 1.0})
    assert Checkup(real.link, real.keys).mend(["1:1-1", "1:2-2", "1:3-3"]) == 0
    assert real.client.zrange(real.keys.delayed, 0, -1, withscores=True) == [
        (b"1:2-2", 1.0),
        (b"1:1-1", in_an_hour_ms),
    ]


def test_corrupt_members_and_scores_of_every_kind_are_looked_at(real: RedisHarness, command: Run) -> None:
    real.client.zadd(
        real.keys.delayed, {b"\xff\xfe": float("inf"), b"": float("-inf"), b"a\nb\x1b[2J": -1.0, b"x" * 5000: 9e17}
    )
    said = command("doctor")
    assert said.code == 1
    assert "\x1b" not in said.out
    assert command("doctor", "--fix").code == 0
    worker = real.worker()
    worker.promote()
    assert (real.client.zcard(real.keys.delayed), len(real.state().dead)) == (0, 4)


def test_a_redis_that_is_away_is_a_finding_and_the_rest_is_looked_at(book: OrderBook, command: Run) -> None:
    said = command("doctor", "--json", "--redis-url", "redis://user:secret@127.0.0.1:1/0")
    assert said.code == 1
    assert "secret" not in said.out
    assert [about for about, _ in wrong(said)] == ["server"]
    assert any(one["about"] == "orders" for one in said.data["findings"])


def test_the_server_and_the_flow_of_work() -> None:
    settings = Settings()
    assert [one.level for one in of_server([], ["evicts"])] == ["wrong"]
    assert [one.level for one in of_overview(QUIET, settings)] == ["note"]
    busy = attrs.evolve(QUIET, stream=WAITING)
    assert [one.level for one in of_overview(busy, settings)] == ["wrong"]
    stuck = attrs.evolve(QUIET, workers=(attrs.evolve(WORKER, orphaned=2),))
    assert [one.level for one in of_overview(stuck, settings)] == ["good", "wrong"]
    lost = attrs.evolve(QUIET, workers=(WORKER,), dead=3, stream=attrs.evolve(WAITING, trimmed_unread=3, length=95_000))
    assert [one.level for one in of_overview(lost, settings)] == ["good", "wrong", "note", "note"]


# -- the interpreter and its plugins ---------------------------------------------------------------


def test_a_plugin_that_cannot_be_imported_is_named() -> None:
    [found] = look_at_plugins(Settings(plugins=("no_such_module",)), [])
    assert (found.level, "no_such_module" in found.seen) == ("wrong", True)


def test_the_gil_and_what_turned_it_on_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_options: Any) -> Plugins:
        raise ConfigurationError("the GIL is on: hiredis turned it on")

    monkeypatch.setattr(doctor_view, "load_plugins", refuse)
    assert [found.level for found in look_at_plugins(Settings(), ["hiredis"])] == ["wrong"]
    with_gil = Plugins(handlers={}, registry=Registry(), notes=("this Python has a GIL",))
    monkeypatch.setattr(doctor_view, "load_plugins", lambda *_args, **_options: with_gil)
    assert [found.level for found in look_at_plugins(Settings(), [])] == ["note", "good"]


# -- the order book ---------------------------------------------------------------------------------


def test_a_parked_row_is_named_with_its_error(real: RedisHarness, book: OrderBook, command: Run) -> None:
    book.place(line())
    book.outbox.park(1, "bad\nforged")
    found = [seen for about, seen in wrong(command("doctor", "--json")) if about == "outbox"]
    assert found == ["1 row is parked: 1 (bad\\nforged)"]


def test_a_lost_ticket_is_made_again(real: RedisHarness, book: OrderBook, command: Run) -> None:
    order = book.place(line())
    path = issue(book, order)
    publish_all(book)
    book.store.file(path).unlink()
    assert {about for about, _ in wrong(command("doctor", "--json"))} == {"orders"}
    fixed = command("doctor", "--fix", "--json")
    assert fixed.data["fixed"] == ["1 order is to be issued again"]
    assert (fixed.code, book.get(order.order_id).version, len(book.outbox.pending())) == (0, 2, 1)


def test_a_valid_ticket_of_a_refunded_order_is_voided(real: RedisHarness, book: OrderBook, command: Run) -> None:
    order = book.place(line())
    issue(book, order)
    book.refund(order.order_id)
    publish_all(book)
    said = command("doctor", "--json")
    assert ("orders", "1 refunded order has valid tickets") in wrong(said)
    assert command("doctor", "--fix").code == 0
    assert [ticket.state for ticket in book.tickets(order.order_id)] == ["void"]


def test_while_work_is_under_way_nothing_is_called_lost(real: RedisHarness, book: OrderBook, command: Run) -> None:
    book.place(line())
    assert command("doctor").code == 0
    publish_all(book)
    real.worker("w")
    real.add(job())
    said = command("doctor", "--fix", "--json")
    assert "1 order is not done yet" in [one["seen"] for one in said.data["findings"]]
    assert (said.data["fixed"], book.get(1).version) == ([], 1)


def test_a_job_that_no_worker_knows_is_no_work_that_an_order_waits_for(
    real: RedisHarness, book: OrderBook, command: Run
) -> None:
    """It waits for up to a day; an order whose own job is a dead letter is not "not done yet" for as long."""
    book.place(line())
    publish_all(book)
    worker = real.worker("w")
    real.add(job(outbox_id="1"))
    real.add(job(kind="thank_yuo", outbox_id="2"))
    died, unknown = worker.read(2).claimed
    worker.settle(1, [settled(died, Dead(Reason.PERMANENT, "no")), settled(unknown, UnknownKind(60.0, UNKNOWN_HOPS))])
    said = command("doctor", "--fix", "--json")
    [orders] = [one for one in said.data["findings"] if one["about"] == "orders"]
    assert orders["seen"].startswith("not as they must be: order 1: 0 valid tickets")
    assert (said.code, orders["level"], orders["can_be_fixed"]) == (1, "wrong", False)
    assert (said.data["fixed"], book.get(1).version) == ([], 1), "the job may yet be what makes the tickets"


def test_a_retry_beside_a_job_that_no_worker_knows_is_work(real: RedisHarness) -> None:
    unknown = attrs.evolve(QUIET, delayed=2, unknown_kinds={"thank_yuo": 2})
    assert [under_way(one) for one in (QUIET, unknown)] == ["nothing", "unknown"]
    busy = [attrs.evolve(unknown, delayed=3), attrs.evolve(unknown, stream=WAITING), None]
    assert {under_way(one) for one in busy} == {"work"}


def test_only_what_fix_can_do_is_said_to_be_its_to_do(real: RedisHarness, command: Run) -> None:
    real.client.xadd(real.keys.dead, {"reason": "permanent"})
    real.add(job())
    lines = [line.strip() for line in command("doctor").out.splitlines()]
    assert "by hand: dead requeue, or dead drop" in lines
    assert "--fix: make the group" in lines
    assert not any("nothing:" in line or line.endswith("fix: nothing") for line in lines)


def test_each_order_is_issued_again_once() -> None:
    def finding(problem: str) -> OrderFinding:
        return OrderFinding(order_id=1, position_id=1, problem=problem)

    report = InvariantReport(
        lost=(finding("0 valid tickets"),), wrong=(finding("the file x is not readable"),), stray=("a",),
        orders=1, refunded=0, positions=1, tickets_valid=1, tickets_void=0,
    )  # fmt: skip
    found = list(of_invariant(report, under="nothing"))
    assert {one.cure for one in found} == {Cure(verb="reissue", items=("1",))}


def test_files_that_no_ticket_needs_are_counted_and_removed_once_they_are_old(
    real: RedisHarness, book: OrderBook, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = book.place(line())
    valid = issue(book, order)
    publish_all(book)
    stray = book.store.path(order.order_id, 1, version=1, key="other", suffix=".pdf")
    book.store.write(stray, b"x" * 250_000)
    said = command("doctor", "--fix", "--json")
    [seen] = [one["seen"] for one in said.data["findings"] if "valid ticket, " in one["seen"]]
    assert seen == "1 file (0.2 MB) belongs to no valid ticket, 0 files (0.0 MB) of them for an hour or longer"
    assert said.data["fixed"] == []
    monkeypatch.setattr("stagedoor.orders.sweep.KEEP_S", 0.0)
    assert "1 file (0.2 MB) of them for an hour or longer" in command("doctor").out
    assert book.store.is_present(stray)
    said = command("doctor", "--fix", "--json")
    assert (said.code, said.data["fixed"]) == (0, ["1 file (0.2 MB) that no ticket needs is removed"])
    assert not any("valid ticket, " in one["seen"] for one in said.data["left"])
    assert list(book.store.files()) == [valid]


def test_more_files_than_are_removed_at_a_time_say_so() -> None:
    left = [Leftover(path=str(number), size=1, age_s=3600.0) for number in range(10_001)]
    [found] = of_leftovers(left)
    assert found.cure is not None
    assert len(found.cure.items) == 10_000
    assert found.fix.endswith(", 10,000 of them at a time")
    assert list(of_leftovers([])) == []


@pytest.mark.parametrize("content,level", [(b"", "note"), (b"no database at all" * 100, "wrong")])
def test_a_file_that_is_no_order_book(
    real: RedisHarness, command: Run, tmp_path: Path, content: bytes, level: str
) -> None:
    """An empty one is none yet; one that cannot be read is a finding, not a traceback."""
    (tmp_path / "stagedoor.db").write_bytes(content)
    said = command("doctor", "--json")
    assert [one["level"] for one in said.data["findings"] if one["about"] == "order book"] == [level]
    assert not (tmp_path / "tickets").exists()


def test_a_tickets_folder_that_cannot_be_written_to(real: RedisHarness, book: OrderBook, command: Run) -> None:
    said = command("doctor", "--json", "--tickets-dir", "/dev/null/tickets")
    assert said.code == 1
    assert [about for about, _ in wrong(said)] == ["order book"]
