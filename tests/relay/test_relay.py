"""The relay: one entry for each row, whatever is repeated, refused, or ends in the middle."""

import sqlite3
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from stagedoor.broker.connection import Link
from stagedoor.core.entry import Entry
from stagedoor.core.job import parse_job
from stagedoor.core.keys import Keys
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerUnavailable, MalformedEntry
from stagedoor.events import PublishedLost, RowParked, RowsPublished, StreamFull
from stagedoor.orders import OrderBook, OrderBookUnavailable, OutboxRow
from stagedoor.relay import BATCH, Relay, Relayed, entry_of
from tests.relay.fixtures import Breakable, CutOff, Rig
from tests.support.orders import NACHTMUSIK
from tests.support.redis_server import StartRedis

pytestmark = pytest.mark.redis


async def drained(relay: Relay) -> list[Relayed]:
    """Do passes until one finds nothing."""
    passes = [await relay.relay_once()]
    while passes[-1].taken:
        passes.append(await relay.relay_once())
    return passes


# -- the ordinary way -----------------------------------------------------------


async def test_each_row_becomes_one_entry_with_its_fields_and_is_marked_with_id_and_count(rig: Rig) -> None:
    order = rig.book.place(NACHTMUSIK, request_id="r-1", trace="t-1")

    done = await rig.relay().relay_once()

    assert done == Relayed(taken=1, added=1)
    assert rig.entries() == [
        {
            "kind": "render_tickets",
            "order_id": str(order.order_id),
            "outbox_id": "1",
            "request_id": "r-1",
            "trace": "t-1",
        }
    ]
    [(entry_id, _fields)] = rig.client.xrange(rig.keys.stream)
    assert rig.rows() == {1: (entry_id.decode(), 1)}
    assert rig.told == [RowsPublished(added=1, duplicates=0)]


async def test_rows_are_taken_in_batches_and_in_order(rig: Rig) -> None:
    rig.place(BATCH * 2 + 5)
    passes = await drained(rig.relay())
    assert [done.taken for done in passes] == [BATCH, BATCH, 5, 0]
    assert [done.is_more_likely for done in passes] == [True, True, False, False]
    assert rig.outbox_ids() == list(range(1, BATCH * 2 + 6))


async def test_what_the_relay_writes_a_worker_parses(rig: Rig) -> None:
    rig.place(1)
    await rig.relay().relay_once()
    [(entry_id, fields)] = rig.client.xrange(rig.keys.stream)
    job = parse_job(Entry(Stream.JOBS, entry_id.decode(), tuple(fields.items())))
    assert (job.kind, job.outbox_id, job.attempt) == ("render_tickets", 1, 1)


async def test_a_row_that_becomes_visible_late_is_not_passed_over(rig: Rig) -> None:
    """Its id was handed out before those of rows that are published already, as on a database with many writers."""
    rig.place(3)
    with rig.book.outbox._database.write() as connection:
        connection.exec_driver_sql("UPDATE outbox SET parked_at = 1 WHERE id = 1")
    await drained(rig.relay())
    assert rig.book.outbox.unpark(1)
    await drained(rig.relay())
    assert rig.outbox_ids() == [2, 3, 1]


async def test_while_idle_redis_is_asked_once_a_second_and_not_more(
    rig: Rig, mock_clock: trio.testing.MockClock
) -> None:
    publishing = Breakable(rig.publishing())
    relay = rig.relay(publishing=publishing)
    for _ in range(25):
        await relay.relay_once()
        mock_clock.jump(0.125)
    assert publishing.calls == ["confirmed_seq"] * 4


async def test_rows_that_were_published_a_week_ago_are_removed_and_no_others(rig: Rig) -> None:
    rig.place(3)
    await drained(rig.relay())
    with rig.book.outbox._database.write() as connection:
        connection.exec_driver_sql("UPDATE outbox SET published_at = published_at - 8 * 86400 WHERE id = 1")
        connection.exec_driver_sql("UPDATE outbox SET published_at = published_at - 6 * 86400 WHERE id = 2")
    outbox = Breakable(rig.book.outbox)
    pruned = trio.Event()
    outbox.after["prune"] = lambda: trio.from_thread.run_sync(pruned.set)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.relay(outbox=outbox).run)
        with trio.fail_after(20):
            await pruned.wait()
        nursery.cancel_scope.cancel()
    assert rig.rows().keys() == {2, 3}


# -- what can never be published ------------------------------------------------------


async def test_a_row_that_can_never_make_an_entry_is_parked_and_the_rest_flows_on(rig: Rig) -> None:
    rig.place(3)
    with rig.book.outbox._database.write() as connection:
        connection.exec_driver_sql("UPDATE outbox SET kind = 'two words' WHERE id = 1")
        connection.exec_driver_sql("UPDATE outbox SET request_id = 'a' || char(10) || 'b' WHERE id = 3")

    await drained(rig.relay())

    assert rig.outbox_ids() == [2]
    parked = {row.row.outbox_id: row.error for row in rig.book.outbox.parked()}
    assert parked.keys() == {1, 3}
    assert "kind: expected 1 to 64 letters" in parked[1]
    assert r"request_id: expected up to 128 printable characters, got 'a\nb'" in parked[3]
    assert [event.outbox_id for event in rig.told if isinstance(event, RowParked)] == [1, 3]


@pytest.mark.parametrize(
    "field,value",
    [
        ("kind", ""),
        ("kind", "x" * 65),
        ("kind", "k\u00e4se"),
        ("order_id", 0),
        ("order_id", -1),
        ("order_id", 2**63),
        ("request_id", "x" * 129),
        ("request_id", "a\x1b[31m"),
        ("trace", "\ud800"),
        ("trace", "a\u2028b"),
    ],
)
def test_what_no_worker_would_parse_makes_no_entry(field: str, value: str | int) -> None:
    values = {"outbox_id": 1, "kind": "k", "order_id": 1, "request_id": "", "trace": ""} | {field: value}
    with pytest.raises(MalformedEntry, match=field):
        entry_of(OutboxRow(**values))  # type: ignore[arg-type]  # rows are not checked by their class


# -- a full stream --------------------------------------------------------------------


async def test_rows_wait_while_the_stream_is_full_and_go_on_when_there_is_room(rig: Rig) -> None:
    rig.place(110)
    relay = rig.relay(stream_maxlen=100)

    first, second = await relay.relay_once(), await relay.relay_once()

    assert (first.added, first.refused) == (95, 15)
    assert (second.added, second.refused) == (0, 15)
    assert [event for event in rig.told if isinstance(event, StreamFull)] == [StreamFull(waiting=15)]
    assert rig.book.outbox.backlog().waiting == 15
    rig.client.xtrim(rig.keys.stream, maxlen=0, approximate=False)
    assert (await relay.relay_once()).added == 15
    assert rig.names().count("stream_full") == 1
    assert rig.names()[-1] == "stream_has_room"


# -- breaking off in the middle ---------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["pending", "highest_seq", "publish", "mark_published"])
async def test_a_relay_that_dies_anywhere_loses_no_row_and_doubles_none(rig: Rig, when: str, method: str) -> None:
    rig.place(5)
    outbox, publishing = Breakable(rig.book.outbox), Breakable(rig.publishing())
    place = publishing if method == "publish" else outbox

    def die() -> None:
        raise CutOff

    getattr(place, when)[method] = die
    with pytest.raises(CutOff):
        await rig.relay(outbox=outbox, publishing=publishing).relay_once()

    await drained(rig.relay())

    assert rig.outbox_ids() == [1, 2, 3, 4, 5]
    assert rig.rows().keys() == {1, 2, 3, 4, 5}
    assert rig.book.outbox.backlog().waiting == 0


async def test_a_lost_reply_doubles_nothing(rig: Rig) -> None:
    rig.place(3)
    publishing = Breakable(rig.publishing())

    def lose_reply_once() -> None:
        publishing.after.clear()
        raise BrokerUnavailable("the reply was lost")

    publishing.after["publish"] = lose_reply_once
    done = await rig.relay(publishing=publishing).relay_once()
    assert (done.added, done.duplicates) == (0, 3)
    assert rig.outbox_ids() == [1, 2, 3]
    assert rig.rows() == {1: (None, 3), 2: (None, 3), 3: (None, 3)}


async def test_two_relays_at_once_publish_each_row_once(rig: Rig) -> None:
    rig.place(300)
    one, other = rig.relay(), rig.relay()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(drained, one)
        nursery.start_soon(drained, other)
    assert sorted(rig.outbox_ids()) == list(range(1, 301))
    assert len(rig.rows()) == 300


async def test_a_settled_entry_is_not_published_again(rig: Rig) -> None:
    """The bit outlives the entry: a relay that died before the mark does not repeat what was done meanwhile."""
    rig.place(1)
    outbox = Breakable(rig.book.outbox)

    def die() -> None:
        raise CutOff

    outbox.before["mark_published"] = die
    with pytest.raises(CutOff):
        await rig.relay(outbox=outbox).relay_once()
    rig.client.xtrim(rig.keys.stream, maxlen=0, approximate=False)

    await drained(rig.relay())

    assert rig.outbox_ids() == []
    assert rig.rows() == {1: (None, 1)}


# -- Redis that loses what it confirmed ---------------------------------------------------


def lose_after(rig: Rig, count: int) -> None:
    """Make Redis forget all rows past the first *count*, entries, bits and count, as a restart does."""
    book_id = rig.book.outbox.book_id()
    found = rig.client.xrange(rig.keys.stream)
    for entry_id, fields in found:
        outbox_id = int(fields[b"outbox_id"])
        if outbox_id > count:
            rig.client.xdel(rig.keys.stream, entry_id)
            rig.client.setbit(rig.keys.published_rows(book_id, outbox_id), outbox_id % 8192, 0)
    rig.client.hset(rig.keys.published(book_id), "seq", str(count))


async def test_rows_that_redis_has_lost_are_offered_again_before_anything_is_added(rig: Rig) -> None:
    rig.place(6)
    relay = rig.relay()
    await relay.relay_once()
    lose_after(rig, 2)
    rig.place(1)

    await relay.relay_once()
    assert rig.outbox_ids() == [1, 2]
    await drained(relay)

    assert rig.outbox_ids() == [1, 2, 3, 4, 5, 6, 7]
    assert [event for event in rig.told if isinstance(event, PublishedLost)] == [
        PublishedLost(confirmed=2, recorded=6, offered_again=4)
    ]


async def test_an_idle_relay_notices_a_loss(rig: Rig) -> None:
    rig.place(6)
    await rig.relay().relay_once()
    lose_after(rig, 0)
    relay = rig.relay()
    assert (await relay.relay_once()).taken == 0
    assert rig.names()[-1] == "published_lost"
    await drained(relay)
    assert rig.outbox_ids() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["publish", "offer_again", "mark_published"])
async def test_a_relay_that_dies_while_a_loss_is_made_good_hides_nothing(rig: Rig, when: str, method: str) -> None:
    rig.place(6)
    await rig.relay().relay_once()
    lose_after(rig, 2)
    rig.place(5)
    outbox, publishing = Breakable(rig.book.outbox), Breakable(rig.publishing())

    def die() -> None:
        raise CutOff

    getattr(publishing if method == "publish" else outbox, when)[method] = die
    with pytest.raises(CutOff):
        await drained(rig.relay(outbox=outbox, publishing=publishing))

    await drained(rig.relay())

    assert sorted(rig.outbox_ids()) == list(range(1, 12))
    assert rig.book.outbox.backlog().waiting == 0


async def test_a_loss_that_another_relay_made_good_meanwhile_doubles_nothing(rig: Rig) -> None:
    """Both relays see the loss; the slower one offers again what the faster one has published already."""
    rig.place(6)
    await rig.relay().relay_once()
    lose_after(rig, 2)
    outbox = Breakable(rig.book.outbox)
    slow = rig.relay(outbox=outbox)
    fast = rig.relay()

    def let_the_other_finish() -> None:
        outbox.before.clear()
        trio.from_thread.run(drained, fast)

    outbox.before["offer_again"] = let_the_other_finish
    await slow.check_once()
    await drained(slow)

    assert sorted(rig.outbox_ids()) == [1, 2, 3, 4, 5, 6]
    assert rig.book.outbox.backlog().waiting == 0


async def test_marks_of_other_relays_are_not_taken_for_a_loss(rig: Rig) -> None:
    """The book is asked before Redis: a relay that publishes and marks in between raises only Redis' count."""
    rig.place(2)
    await rig.relay().relay_once()
    rig.place(2)
    outbox, publishing = Breakable(rig.book.outbox), Breakable(rig.publishing())
    other = rig.relay()

    def other_publishes() -> None:
        outbox.after.clear()
        publishing.after.clear()
        trio.from_thread.run(drained, other)

    outbox.after["highest_seq"] = publishing.after["confirmed_seq"] = other_publishes
    assert not await rig.relay(outbox=outbox, publishing=publishing).check_once()
    assert len(rig.rows()) == 4


# -- weather --------------------------------------------------------------------------------


async def test_redis_away_and_back_loses_nothing(book: OrderBook, start_redis: StartRedis, namespace: str) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    link = Link(server.url, block_ms=0)
    rig = Rig(book=book, link=link, keys=Keys(namespace))
    rig.place(3)
    server.kill()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.relay().run)
        with trio.fail_after(30):
            await rig.heard["broker_down"].wait()
            await trio.to_thread.run_sync(server.start)
            await rig.heard["broker_up"].wait()
            await rig.heard["rows_published"].wait()
        nursery.cancel_scope.cancel()
    assert rig.outbox_ids() == [1, 2, 3]
    link.close()


async def test_a_redis_that_restarts_empty_is_given_everything_of_the_last_two_days_again(
    book: OrderBook, start_redis: StartRedis, namespace: str
) -> None:
    server = start_redis()
    link = Link(server.url, block_ms=0)
    rig = Rig(book=book, link=link, keys=Keys(namespace))
    rig.place(4)
    relay = rig.relay()
    await relay.relay_once()
    server.kill()
    server.start()
    assert await relay.check_once()
    await drained(relay)
    assert rig.outbox_ids() == [1, 2, 3, 4]
    link.close()


async def test_the_database_away_is_weather_too(rig: Rig) -> None:
    rig.place(2)
    outbox = Breakable(rig.book.outbox)
    failures = iter([OrderBookUnavailable("database is locked")] * 3)

    def fail_at_first() -> None:
        for failure in failures:
            raise failure

    outbox.before["pending"] = fail_at_first
    with trio.fail_after(20):
        done = await rig.relay(outbox=outbox).relay_once()
    assert done.added == 2


async def test_a_locked_database_does_not_keep_the_relay_from_stopping(rig: Rig, tmp_path: Path) -> None:
    """SQLite waits up to 30 s for its lock; the thread that waits is left behind."""
    rig.place(1)
    holder = sqlite3.connect(tmp_path / "book.db", isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    outbox = Breakable(rig.book.outbox)
    waits, has_ended = trio.Event(), threading.Event()
    outbox.before["mark_published"] = lambda: trio.from_thread.run_sync(waits.set)
    outbox.after["mark_published"] = has_ended.set
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.relay(outbox=outbox).run)
        with trio.fail_after(20):
            await waits.wait()
        nursery.cancel_scope.cancel()
    assert not has_ended.is_set()
    holder.execute("ROLLBACK")
    holder.close()
    assert await trio.to_thread.run_sync(has_ended.wait, 30)
    assert rig.rows().keys() == {1}
