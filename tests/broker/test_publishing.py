"""The relay's side: each row at most once, counted, and only while there is room."""

import pytest

from stagedoor.broker.deliveries import Answer
from stagedoor.broker.publishing import OutboxEntry, Published, PublishReply
from stagedoor.core.keys import ROWS_PER_BITMAP
from stagedoor.core.outcome import Dead, Done, Outcome, Reason, RetryLater
from stagedoor.errors import BrokerUnavailable
from tests.broker.harness import Harness, RedisHarness, accepted, ids, job, settled
from tests.support.redis_server import StartRedis


def row(outbox_id: int) -> OutboxEntry:
    return OutboxEntry(outbox_id, job(outbox_id=str(outbox_id)))


def whats(replies: tuple[PublishReply, ...]) -> list[str]:
    return [reply.what.value for reply in replies]


def test_rows_are_added_in_order_and_counted(broker: Harness) -> None:
    worker = broker.worker()
    relay = broker.publishing()

    before, replies = relay.publish("book", [row(5), row(3), row(9)])

    assert before == 0
    assert [(reply.what, reply.seq) for reply in replies] == [
        (Published.ADDED, 1),
        (Published.ADDED, 2),
        (Published.ADDED, 3),
    ]
    assert [reply.entry_id for reply in replies] == ids(worker.read(8))
    assert relay.confirmed_seq("book") == 3
    state = broker.state()
    assert list(state.jobs.entries.values()) == [row(5).fields, row(3).fields, row(9).fields]
    assert broker.length() == len(state.jobs.pending)


def test_nothing_to_publish_changes_nothing(broker: Harness) -> None:
    broker.worker()
    assert broker.publishing().publish("book", []) == (0, ())


def test_a_repeated_row_is_a_duplicate_also_after_it_was_settled(broker: Harness) -> None:
    worker = broker.worker()
    relay = broker.publishing()
    relay.publish("book", [row(1)])
    again = relay.publish("book", [row(1), row(2), row(2)])
    claimed = worker.read(8).claimed
    assert again == (
        1,
        (
            PublishReply(Published.DUPLICATE, "", 1),
            PublishReply(Published.ADDED, claimed[1].entry.entry_id, 2),
            PublishReply(Published.DUPLICATE, "", 2),
        ),
    )
    worker.settle(1, [settled(one) for one in claimed])
    assert whats(relay.publish("book", [row(1), row(2)])[1]) == ["dup", "dup"]
    assert broker.length() == 0


def test_two_books_do_not_share_their_rows(broker: Harness) -> None:
    broker.worker()
    relay = broker.publishing()
    assert whats(relay.publish("a", [row(1)])[1]) == ["added"]
    assert whats(relay.publish("b", [row(1)])[1]) == ["added"]
    assert (relay.confirmed_seq("a"), relay.confirmed_seq("b"), relay.confirmed_seq("c")) == (1, 1, 0)


@pytest.mark.parametrize("start", [0, ROWS_PER_BITMAP - 2, 3 * ROWS_PER_BITMAP - 1, 2**63 - 6])
def test_rows_on_both_sides_of_a_bitmaps_border_are_told_apart(broker: Harness, start: int) -> None:
    broker.worker()
    relay = broker.publishing()
    rows = [row(number) for number in range(start, start + 5)]
    assert whats(relay.publish("book", rows)[1]) == ["added"] * 5
    assert whats(relay.publish("book", list(reversed(rows)))[1]) == ["dup"] * 5
    assert relay.confirmed_seq("book") == broker.length() == 5


def test_rows_of_many_bitmaps_in_one_call_are_told_apart(broker: Harness) -> None:
    broker.worker()
    relay = broker.publishing()
    rows = [row(number * ROWS_PER_BITMAP + 7) for number in range(20)]
    assert whats(relay.publish("book", rows + rows)[1]) == ["added"] * 20 + ["dup"] * 20
    assert broker.length() == 20


def test_a_full_stream_refuses_rows_until_there_is_room(broker: Harness) -> None:
    worker = broker.worker()
    relay = broker.publishing(stream_maxlen=20)
    rows = [row(number) for number in range(1, 23)]

    before, replies = relay.publish("book", rows)

    assert (before, whats(replies)) == (0, ["added"] * 19 + ["full"] * 3)
    assert [reply.seq for reply in replies[-4:]] == [19] * 4
    assert broker.length() == relay.confirmed_seq("book") == 19
    assert whats(relay.publish("book", [row(1), row(20)])[1]) == ["dup", "full"]
    claimed = worker.read(2).claimed
    worker.settle(1, [settled(one) for one in claimed])
    assert whats(relay.publish("book", rows[-3:])[1]) == ["added", "added", "full"]


def test_pending_entries_count_as_room_taken(broker: Harness) -> None:
    worker = broker.worker()
    relay = broker.publishing(stream_maxlen=4)
    relay.publish("book", [row(number) for number in range(1, 4)])
    worker.read(3)
    assert whats(relay.publish("book", [row(9)])[1]) == ["full"]


def test_after_redis_lost_everything_its_count_says_so_and_the_rows_can_be_offered_again(broker: Harness) -> None:
    worker = broker.worker()
    relay = broker.publishing()
    relay.publish("book", [row(1), row(2), row(3)])
    broker.flush()

    before, replies = relay.publish("book", [row(4)])

    assert (before, whats(replies), replies[0].seq) == (0, ["added"], 1)
    assert relay.confirmed_seq("book") == 1
    assert whats(relay.publish("book", [row(1), row(2), row(3)])[1]) == ["added"] * 3
    worker.ensure_groups()
    assert len(worker.read(8).claimed) == 4


def test_nothing_is_added_over_a_loss_that_the_order_book_knows_of(broker: Harness) -> None:
    broker.worker()
    relay = broker.publishing()
    relay.publish("book", [row(1), row(2), row(3)])
    broker.flush()
    relay.publish("book", [row(1)])

    assert relay.publish("book", [row(4)], at_least=3) == (1, ())
    assert (relay.confirmed_seq("book"), broker.length()) == (1, 1)
    assert whats(relay.publish("book", [row(4)], at_least=1)[1]) == ["added"]


def test_publishing_needs_no_group_and_no_worker(broker: Harness) -> None:
    relay = broker.publishing()
    assert whats(relay.publish("book", [row(1)])[1]) == ["added"]
    worker = broker.worker()
    assert len(worker.read(8).claimed) == 1


@pytest.mark.redis
def test_the_bits_live_for_two_days_and_the_count_for_good(real: RedisHarness) -> None:
    relay = real.publishing()
    relay.publish("book", [row(1)])
    bits = real.keys.published_rows("book", 1)
    assert 47 * 3600_000 < real.command("PTTL", bits) <= 48 * 3600_000
    assert real.command("PTTL", real.keys.published("book")) == -1
    real.client.pexpire(bits, 1000)
    relay.publish("book", [row(1)])
    assert real.command("PTTL", bits) <= 1000, "a duplicate adds nothing and keeps nothing alive"


@pytest.mark.redis
def test_the_stream_is_never_trimmed_below_its_cap(real: RedisHarness) -> None:
    real.worker()
    relay = real.publishing(stream_maxlen=1000)
    for start in range(1, 1200, 100):
        relay.publish("book", [row(number) for number in range(start, start + 100)])
    assert real.length() == relay.confirmed_seq("book") == 950


@pytest.mark.redis
def test_at_maxmemory_new_work_waits_and_work_in_hand_drains(start_redis: StartRedis, namespace: str) -> None:
    server = start_redis()
    harness = RedisHarness(server.url, namespace)
    relay = harness.publishing()
    worker = harness.worker("w")
    relay.publish("book", [row(number) for number in range(1, 9)])
    claimed = worker.read(4).claimed
    server.cli("CONFIG", "SET", "maxmemory", 1)

    with pytest.raises(BrokerUnavailable, match=r"OutOfMemory|OOM"):
        relay.publish("book", [row(9)])

    outcomes: list[Outcome] = [Done(), RetryLater(0, 2, "x"), Dead(Reason.PERMANENT, "x"), Done()]
    answers = worker.settle(1, [settled(one, outcome) for one, outcome in zip(claimed, outcomes, strict=True)])
    assert answers.answers == accepted(4)
    assert worker.promote().moved == 1
    assert len(worker.read(8).claimed) == 5
    assert worker.stray([]) == 5
    worker.sweep()
    worker.reclaim()
    assert harness.worker("late").name == "late"
    worker.retire()
    server.cli("CONFIG", "SET", "maxmemory", 0)
    assert whats(relay.publish("book", [row(9)])[1]) == ["added"]
    assert Answer.FAILED not in answers.answers
    harness.close()
