"""Delayed jobs: they come back when they are due, to their stream, byte for byte, and never twice."""

import threading

import pytest

from stagedoor.broker.deliveries import Promoted
from stagedoor.core.codec import Fields, pack
from stagedoor.core.entry import MAX_FIELDS
from stagedoor.core.job import parse_job
from stagedoor.core.outcome import RetryLater, UnknownKind
from stagedoor.core.tenure import Stream
from tests.broker.harness import Harness, RedisHarness, accepted, ids, job, settled


def retried(broker: Harness, fields: Fields, stream: Stream = Stream.JOBS) -> tuple[str, Fields]:
    """Send an entry through a retry; return the id it was first added under and its fields afterwards."""
    worker = broker.worker("w")
    entry_id = broker.add(fields, stream)
    (claimed,) = worker.read(1).claimed
    assert worker.settle(1, [settled(claimed, RetryLater(60, 2, "x"))]).answers == accepted(1)
    broker.make_due()
    assert worker.promote().moved == 1
    (again,) = worker.read(1).claimed
    assert again.entry.stream is stream
    worker.retire()
    return entry_id, again.entry.fields


@pytest.mark.parametrize("stream", Stream)
def test_a_due_job_goes_back_to_the_stream_it_came_from(broker: Harness, stream: Stream) -> None:
    origin, fields = retried(broker, job(), stream)
    assert dict(fields) == dict(job(attempt="2", origin=origin))
    assert broker.length(next(other for other in Stream if other is not stream)) == 0


def test_a_job_that_is_not_due_stays(broker: Harness) -> None:
    worker = broker.worker("w")
    broker.add(job())
    worker.settle(1, [settled(worker.read(1).claimed[0], RetryLater(3600, 2, "x"))])
    promoted = worker.promote()
    assert (promoted.moved, promoted.pool, promoted.broken) == (0, 0, 0)
    assert promoted.next_due_s is not None
    assert 3500 < promoted.next_due_s <= 3600
    assert broker.length() == 0


def test_a_job_due_at_once_is_promoted_at_once(broker: Harness) -> None:
    worker = broker.worker("w")
    broker.add(job())
    assert worker.settle(1, [settled(worker.read(1).claimed[0], RetryLater(0, 2, "x"))]).next_due_s == 0
    assert worker.promote() == Promoted(moved=1)
    assert worker.promote() == Promoted()


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(((b"note", bytes(range(256))),), id="every byte"),
        pytest.param(((b"\x00", b"\x00\x00"), (b"", b"")), id="NUL and empty"),
        pytest.param(((b"\xff\xfe", b"\xc3\x28"),), id="not UTF-8"),
        pytest.param(((b"n", b"5:hello,3:x,"), (b"1:a,", b"%s %d")), id="looks packed"),
        pytest.param(((b"same", b"1"), (b"same", b"2")), id="a name twice"),
        pytest.param(((b"json", b"[]{}9007199254740993 1e400"),), id="what Lua would change"),
        pytest.param(((b"long", b"x" * 60_000),), id="long"),
        pytest.param(tuple((b"f%d" % n, b"v%d" % n) for n in range(MAX_FIELDS - 5)), id="64 fields"),
    ],
)
def test_a_retry_keeps_every_byte_of_fields_that_nobody_knows(broker: Harness, extra: Fields) -> None:
    origin, fields = retried(broker, job() + extra)
    assert fields[: 5 + len(extra)] == job() + extra
    assert dict(fields[5 + len(extra) :]) == {b"attempt": b"2", b"origin": origin.encode()}


def test_an_entry_of_the_most_fields_still_parses_after_all_that_a_retry_adds(broker: Harness) -> None:
    worker = broker.worker("w", incarnation="i1")
    broker.add(job() + tuple((b"f%d" % n, b"") for n in range(MAX_FIELDS - 5)))
    worker.read(1)
    broker.lapse("w")
    other = broker.worker("other")
    other.sweep()
    other.settle(1, [settled(other.read(1).claimed[0], UnknownKind(0, 1))])
    other.promote()
    other.settle(2, [settled(other.read(1).claimed[0], RetryLater(0, 2, "x"))])
    other.promote()
    (claimed,) = other.read(1).claimed
    parsed = parse_job(claimed.entry)
    assert (parsed.attempt, parsed.hops, parsed.crashes, len(claimed.entry.fields)) == (2, 0, 1, MAX_FIELDS + 4)


def test_a_job_keeps_its_first_id_through_many_retries(broker: Harness) -> None:
    worker = broker.worker("w")
    origin = broker.add(job())
    for attempt in range(2, 6):
        worker.settle(attempt, [settled(worker.read(1).claimed[0], RetryLater(0, attempt, "x"))])
        worker.promote()
    (claimed,) = worker.read(1).claimed
    assert dict(claimed.entry.fields) == dict(job(attempt="5", origin=origin))
    assert len(claimed.entry.fields) == 7


def test_crashes_are_carried_through_a_retry_and_add_up(broker: Harness) -> None:
    broker.add(job())
    for number in range(1, 4):
        victim = broker.worker("w", incarnation=f"i{number}")
        victim.read(1)
        broker.lapse("w")
        other = broker.worker("other")
        other.sweep()
        (claimed,) = other.read(1).claimed
        assert len(claimed.crash_log) == 1
        assert parse_job(claimed.entry).crashes == number - 1
        other.settle(1, [settled(claimed, RetryLater(0, 2, "x"))])
        assert broker.state().crashes == {}
        other.promote()
        other.retire()
    (claimed,) = broker.worker("last").read(1).claimed
    assert (parse_job(claimed.entry).crashes, claimed.crash_log) == (3, ())


def test_a_job_without_crashes_gets_no_such_field(broker: Harness) -> None:
    _, fields = retried(broker, job())
    assert b"crashes" not in dict(fields)


def test_identical_jobs_are_delayed_each_by_itself(broker: Harness) -> None:
    worker = broker.worker("w")
    for _ in range(4):
        broker.add(job())
    worker.settle(1, [settled(one, RetryLater(60, 2, "x")) for one in worker.read(4).claimed])
    broker.make_due()
    assert worker.promote().moved == 4


def test_one_call_moves_at_most_a_hundred_and_says_that_more_are_due(broker: Harness) -> None:
    worker = broker.worker("w")
    for number in range(250):
        broker.add(job(outbox_id=str(number + 1)))
    worker.settle(1, [settled(one, RetryLater(60, 2, "x")) for one in worker.read(250).claimed])
    broker.make_due()
    assert [worker.promote() for _ in range(4)] == [
        Promoted(moved=100, next_due_s=0),
        Promoted(moved=100, next_due_s=0),
        Promoted(moved=50),
        Promoted(),
    ]


def test_jobs_are_promoted_in_the_order_in_which_they_are_due(broker: Harness) -> None:
    worker = broker.worker("w")
    for number in range(3):
        broker.add(job(outbox_id=str(number + 1)))
    first, second, third = worker.read(3).claimed
    for batch, one in enumerate((third, first, second)):
        broker.make_due() if batch == 0 else None
        worker.settle(batch, [settled(one, RetryLater(batch * 0.001, 2, "x"))])
    broker.make_due()
    worker.promote()
    assert len(ids(worker.read(3))) == 3


@pytest.mark.redis
def test_many_promoters_at_once_promote_each_job_once(real: RedisHarness) -> None:
    worker = real.worker("w")
    for number in range(200):
        real.add(job(outbox_id=str(number + 1)))
    worker.settle(1, [settled(one, RetryLater(60, 2, "x")) for one in worker.read(200).claimed])
    real.make_due()
    barrier = threading.Barrier(4)
    moved: list[int] = []

    def run(number: int) -> None:
        promoter = real.new_worker(f"p{number}")
        barrier.wait()
        moved.extend(promoter.promote().moved for _ in range(3))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(moved) == real.length() == 200
    assert len({dict(fields)[b"outbox_id"] for fields in real.state().jobs.entries.values()}) == 200


@pytest.mark.redis
def test_ten_thousand_jobs_due_in_the_same_second_are_promoted_once_each_by_eight_in_bounded_calls(
    real: RedisHarness,
) -> None:
    body = pack([b"1", *(part for pair in job() for part in pair)])
    members = [f"1:{number}-0" for number in range(1, 10_001)]
    real.client.hset(real.keys.delayed_body, mapping=dict.fromkeys(members, body))
    real.client.zadd(real.keys.delayed, dict.fromkeys(members, 1))
    real.worker("w")
    barrier = threading.Barrier(8)
    moved: list[int] = []

    def run(number: int) -> None:
        promoter = real.new_worker(f"p{number}")
        barrier.wait()
        while (promoted := promoter.promote()).next_due_s is not None:
            moved.append(promoted.moved)
        moved.append(promoted.moved)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(moved) == real.length() == 10_000
    assert max(moved) == 100
    assert real.client.exists(real.keys.delayed, real.keys.delayed_body) == 0


def test_the_size_of_the_pool_is_told_over_both_streams(broker: Harness) -> None:
    worker = broker.worker("w")
    for stream in (*Stream, Stream.JOBS):
        broker.add(job(), stream)
    worker.release(worker.read(2).claimed)
    assert worker.promote().pool == 2
    assert len(worker.read(3).claimed) == 3
    assert worker.promote().pool == 0
    worker.stray([])
    assert worker.promote().pool == 3


BROKEN: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "text": b"hello",
    "no stream": pack([b"7", b"kind", b"x"]),
    "stream is no number": pack([b"x", b"kind", b"x"]),
    "the dead letters as a stream": pack([b"5", b"kind", b"x"]),
    "no fields": pack([b"1"]),
    "a name without a value": pack([b"1", b"kind"]),
    "cut short": pack([b"1", b"kind", b"print"])[:-3],
    "length in hex": b"0x1:1,4:kind,1:x,",
    "length with a sign": b"+1:1,4:kind,1:x,",
    # A negative length once led the unpacker back to where it began, for ever.
    "length that leads back": b"1:1,-4:",
    "length of 400 digits": b"9" * 400 + b":1,",
    "thousands of fields": pack([b"1", *[b"x"] * 20_000]),
    "not UTF-8": b"\xff\xfe",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_delayed_body_that_cannot_be_used_becomes_a_dead_letter_and_stops_no_other(
    broker: Harness, what: str
) -> None:
    worker = broker.worker("w")
    broker.put_delayed("broken", BROKEN[what])
    broker.put_delayed("sound", pack([b"1", b"kind", b"x"]))

    assert worker.promote() == Promoted(moved=1, broken=1)

    assert broker.state().dead == (
        {
            "reason": b"malformed",
            "error": b"the delayed body is missing or cannot be unpacked",
            "stream": b"",
            "entry_id": b"broken",
            "consumer": b"",
            "fields": (BROKEN[what] or b"")[: 64 * 1024],
        },
    )
    assert broker.state().delayed == {}
    assert [claimed.entry.fields for claimed in worker.read(8).claimed] == [((b"kind", b"x"),)]


def test_where_the_dead_letters_are_no_stream_a_broken_body_waits_out_of_the_way(broker: Harness) -> None:
    worker = broker.worker("w")
    broker.break_dead()
    broker.put_delayed("broken", b"hello")
    broker.put_delayed("sound", pack([b"1", b"kind", b"x"]))

    promoted = worker.promote()

    assert (promoted.moved, promoted.broken) == (1, 0)
    assert promoted.next_due_s is not None
    assert 50 < promoted.next_due_s <= 60
    assert broker.state().delayed == {"broken": b"hello"}
    broker.heal_dead()
    broker.make_due()
    assert worker.promote() == Promoted(broken=1)
