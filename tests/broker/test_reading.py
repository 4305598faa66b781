"""What `read`, `wait` and `stray` hand out, in which order, and what is on the broker afterwards."""

import threading

import attrs
import pytest

from stagedoor.broker.deliveries import ReadReply, Trimmed
from stagedoor.core.entry import Claimed, Entry
from stagedoor.core.keys import POOL
from stagedoor.core.tenure import Stream, Tenure
from stagedoor.errors import BrokerUnavailable, GroupMissing, NameTaken
from tests.broker.harness import Harness, RedisHarness, State, StreamState, accepted, ids, job, settled


def test_a_read_of_nothing_returns_nothing(broker: Harness) -> None:
    assert broker.worker().read(8) == ReadReply((), ())


def test_a_read_hands_out_the_entry_as_it_was_added_and_makes_it_pending(broker: Harness) -> None:
    worker = broker.worker("w", incarnation="i1")
    entry_id = broker.add(job())

    reply = worker.read(8)

    assert reply == ReadReply((Claimed(Entry(Stream.JOBS, entry_id, job()), Tenure(Stream.JOBS, entry_id, 1), ()),), ())
    assert broker.state() == State(
        jobs=StreamState(entries={entry_id: job()}, pending={entry_id: ("w", 1)}), workers={"w": "i1"}
    )


def test_entries_added_before_the_first_worker_are_owed(broker: Harness) -> None:
    added = [broker.add(job()) for _ in range(5)]
    assert ids(broker.worker().read(8)) == added


def test_the_pool_comes_first_then_critical_entries_then_jobs(broker: Harness) -> None:
    leaver = broker.worker("leaver")
    pooled_job, pooled_critical = broker.add(job()), broker.add(job(), Stream.CRITICAL)
    leaver.release(leaver.read(8).claimed)
    new_job, new_critical = broker.add(job()), broker.add(job(), Stream.CRITICAL)

    reply = broker.worker("w").read(8)

    assert [(c.entry.stream, c.entry.entry_id, c.tenure.deliveries) for c in reply.claimed] == [
        (Stream.CRITICAL, pooled_critical, 2),
        (Stream.JOBS, pooled_job, 2),
        (Stream.CRITICAL, new_critical, 1),
        (Stream.JOBS, new_job, 1),
    ]


def test_the_pool_is_taken_in_the_order_of_the_entries(broker: Harness) -> None:
    leaver = broker.worker("leaver")
    added = [broker.add(job()) for _ in range(4)]
    for claimed in reversed(leaver.read(8).claimed):
        leaver.release([claimed])
    assert ids(broker.worker("w").read(8)) == added


@pytest.mark.parametrize("limit", range(1, 8))
def test_the_limit_is_over_pool_critical_and_jobs_together(broker: Harness, limit: int) -> None:
    leaver = broker.worker("leaver")
    for stream in (*Stream, *Stream):
        broker.add(job(), stream)
    leaver.release(leaver.read(2).claimed)
    worker = broker.worker("w")

    assert len(worker.read(limit).claimed) == min(limit, 4)

    state = broker.state()
    owners = [owner for stream in Stream for owner, _ in state.of(stream).pending.values()]
    assert owners.count("w") == min(limit, 4)


def test_critical_entries_leave_room_for_jobs_that_wait(broker: Harness) -> None:
    worker = broker.worker()
    for _ in range(8):
        broker.add(job(), Stream.CRITICAL)
    waiting = [broker.add(job()) for _ in range(3)]

    reply = worker.read(8, for_jobs=1)

    assert [c.entry.stream for c in reply.claimed] == [Stream.CRITICAL] * 7 + [Stream.JOBS]
    assert reply.claimed[-1].entry.entry_id == waiting[0]


def test_room_for_jobs_goes_to_critical_entries_when_no_job_waits(broker: Harness) -> None:
    worker = broker.worker()
    added = [broker.add(job(), Stream.CRITICAL) for _ in range(9)]
    assert ids(worker.read(8, for_jobs=1)) == added[:8]


def test_with_one_free_slot_kept_for_jobs_a_job_is_taken_before_a_critical_entry(broker: Harness) -> None:
    worker = broker.worker()
    broker.add(job(), Stream.CRITICAL)
    waiting = broker.add(job())
    assert ids(worker.read(1, for_jobs=1)) == [waiting]


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_what_is_to_be_left_in_the_pool_stays_there_and_hides_nothing_behind_it(broker: Harness, limit: int) -> None:
    worker = broker.worker("w")
    streams = [Stream.CRITICAL] * 3 + [Stream.JOBS] * 3
    pooled = [(stream, broker.add(job(), stream)) for stream in streams]
    worker.release(worker.read(8).claimed)
    new = (Stream.JOBS, broker.add(job()))
    left = [pooled[0], *pooled[3:5]]

    reply = worker.read(limit, leave=left)

    assert [claimed.tenure.entry for claimed in reply.claimed] == [*pooled[1:3], pooled[5], new][:limit]
    state = broker.state()
    assert [state.of(stream).pending[entry_id] for stream, entry_id in left] == [(POOL, 1)] * 3


def test_an_entry_is_handed_out_to_one_worker_only(broker: Harness) -> None:
    one, two = broker.worker("one"), broker.worker("two")
    added = {broker.add(job()) for _ in range(6)}
    first, second = ids(one.read(3)), ids(two.read(8))
    assert sorted([*first, *second]) == sorted(added)


def test_a_pooled_entry_comes_with_the_log_of_the_crashes_on_it(broker: Harness) -> None:
    crashed = broker.worker("crashed", incarnation="i1")
    broker.add(job())
    crashed.read(1)
    broker.lapse("crashed")
    worker = broker.worker("w")
    worker.sweep()

    (claimed,) = worker.read(1).claimed

    assert [line.partition(" ")[2] for line in claimed.crash_log] == ["crashed i1"]
    assert claimed.crash_log[0].partition(" ")[0].isdigit()


def test_a_pooled_entry_without_a_body_is_dead_lettered_once_and_disturbs_no_other(broker: Harness) -> None:
    leaver = broker.worker("leaver")
    lost, kept = broker.add(job()), broker.add(job())
    leaver.release(leaver.read(2).claimed)
    broker.trim(lost)
    worker = broker.worker("w")

    reply = worker.read(8)

    assert ids(reply) == [kept]
    assert reply.trimmed == (Trimmed(Stream.JOBS, lost),)
    assert worker.read(8) == ReadReply(())
    state = broker.state()
    assert state.jobs.pending == {kept: ("w", 2)}
    assert state.dead == (
        {
            "reason": b"trimmed",
            "error": b"the entry was deleted from the stream while it was pending",
            "stream": b"1",
            "entry_id": lost.encode(),
            "consumer": POOL.encode(),
            "fields": b"",
        },
    )


def test_where_the_dead_letters_are_no_stream_a_bodiless_pooled_entry_stays_and_the_others_are_read(
    broker: Harness,
) -> None:
    leaver = broker.worker("leaver")
    lost, kept = broker.add(job()), broker.add(job())
    leaver.release(leaver.read(2).claimed)
    broker.trim(lost)
    broker.break_dead()
    worker = broker.worker("w")

    reply = worker.read(8)

    assert (ids(reply), reply.trimmed) == ([kept], ())
    assert broker.state().jobs.pending == {lost: (POOL, 1), kept: ("w", 2)}
    broker.heal_dead()
    assert worker.read(8).trimmed == (Trimmed(Stream.JOBS, lost),)


def test_a_process_whose_name_was_taken_reads_nothing(broker: Harness) -> None:
    stale = broker.worker("w")
    broker.lapse("w")
    broker.worker("w")
    entry_id = broker.add(job())

    with pytest.raises(NameTaken, match="'w'"):
        stale.read(1)

    assert broker.state().jobs.unread == (entry_id,)


def test_a_read_writes_a_lost_record_anew(broker: Harness) -> None:
    worker = broker.worker("w", incarnation="i1")
    entry_id = broker.add(job())
    broker.forget_record("w")

    assert ids(worker.read(1)) == [entry_id]
    assert broker.state().workers == {"w": "i1"}


def test_reading_without_a_group_says_so(broker: Harness) -> None:
    worker = broker.worker()
    broker.destroy_group()
    broker.add(job())
    with pytest.raises(GroupMissing):
        worker.read(1)


# -- waiting ---------------------------------------------------------------------------


def test_a_wait_for_nothing_ends_after_its_time(broker: Harness) -> None:
    assert broker.worker().wait(20) == ReadReply((), ())


@pytest.mark.parametrize("stream", Stream)
def test_a_wait_returns_the_entry_that_is_there(broker: Harness, stream: Stream) -> None:
    worker = broker.worker("w")
    entry_id = broker.add(job(), stream)
    assert worker.wait(5000) == ReadReply(
        (Claimed(Entry(stream, entry_id, job()), Tenure(stream, entry_id, 1), ()),), ()
    )
    assert broker.state().of(stream).pending == {entry_id: ("w", 1)}


@pytest.mark.parametrize("stream", Stream)
def test_a_wait_returns_one_entry_of_many(broker: Harness, stream: Stream) -> None:
    worker = broker.worker("w")
    added = [broker.add(job(), stream) for _ in range(3)]
    assert ids(worker.wait(5000)) == added[:1]
    assert list(broker.state().of(stream).unread) == added[1:]


def test_a_blocked_wait_ends_when_an_entry_is_added(broker: Harness) -> None:
    worker = broker.worker("w")
    replies: list[ReadReply] = []
    thread = threading.Thread(target=lambda: replies.append(worker.wait(5000)))
    thread.start()
    entry_id = broker.add(job())
    thread.join(5)
    assert [ids(reply) for reply in replies] == [[entry_id]]


def test_a_wait_does_not_take_from_the_pool(broker: Harness) -> None:
    leaver, worker = broker.worker("leaver"), broker.worker("w")
    entry_id = broker.add(job())
    leaver.release(leaver.read(1).claimed)
    assert worker.wait(5) == ReadReply(())
    assert ids(worker.read(1)) == [entry_id]


def test_unblock_without_a_blocked_wait_does_nothing_to_the_next_one(broker: Harness) -> None:
    worker = broker.worker()
    worker.unblock()
    entry_id = broker.add(job())
    worker.unblock()
    assert ids(worker.wait(5000)) == [entry_id]


def test_unblock_repeated_until_it_has_returned_ends_a_wait(broker: Harness) -> None:
    worker = broker.worker()
    replies: list[ReadReply] = []
    thread = threading.Thread(target=lambda: replies.append(worker.wait(4000)))
    thread.start()
    while thread.is_alive():
        worker.unblock()
        thread.join(0.002)
    assert replies == [ReadReply(())]


@pytest.mark.parametrize("stream", Stream)
def test_waiting_without_a_group_says_so(broker: Harness, stream: Stream) -> None:
    worker = broker.worker()
    broker.destroy_group(stream)
    with pytest.raises(GroupMissing):
        worker.wait(1000)


def _blocked(worker: object, replies: list[object]) -> threading.Thread:
    def run() -> None:
        try:
            replies.append(worker.wait(4000))  # type: ignore[attr-defined]  # any Deliveries
        except (GroupMissing, BrokerUnavailable) as error:
            replies.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.redis
@pytest.mark.parametrize("what", ["destroy", "flush"])
def test_a_blocked_wait_learns_that_the_group_has_gone(real: RedisHarness, what: str) -> None:
    worker = real.worker("w")
    replies: list[object] = []
    thread = _blocked(worker, replies)
    while "cmd=xreadgroup" not in str(real.command("CLIENT", "LIST")):
        thread.join(0.002)
    if what == "destroy":
        real.destroy_group()
    else:
        real.flush()
    thread.join(5)
    assert replies == [GroupMissing]


# -- strays ----------------------------------------------------------------------------


@pytest.mark.parametrize("stream", Stream)
def test_entries_of_a_read_whose_reply_was_lost_go_to_the_pool(broker: Harness, stream: Stream) -> None:
    worker = broker.worker("w")
    held = broker.add(job(), stream)
    (claimed,) = worker.read(1).claimed
    lost = broker.add(job(), stream)
    worker.read(1)

    assert worker.stray([claimed.tenure]) == 1

    assert broker.state().of(stream).pending == {held: ("w", 1), lost: (POOL, 1)}
    assert ids(broker.worker("other").read(8)) == [lost]


def test_what_was_claimed_anew_with_the_lost_reply_strays_though_we_hold_its_earlier_tenure(broker: Harness) -> None:
    """A freeze put it into the pool and it was handed to us again: what we hold of it has lapsed."""
    worker = broker.worker("w")
    entry_id = broker.add(job())
    (claimed,) = worker.read(1).claimed
    worker.release([claimed])
    worker.read(1)
    assert worker.stray([claimed.tenure]) == 1
    assert broker.state().jobs.pending == {entry_id: (POOL, 2)}


def test_an_entry_of_a_lost_wait_is_found_too(broker: Harness) -> None:
    worker = broker.worker("w")
    entry_id = broker.add(job())
    worker.wait(100)
    assert worker.stray([]) == 1
    assert broker.state().jobs.pending == {entry_id: (POOL, 1)}


def test_with_nothing_lost_nothing_strays(broker: Harness) -> None:
    worker = broker.worker("w")
    for _ in range(3):
        broker.add(job())
    claimed = worker.read(8).claimed
    assert worker.stray([one.tenure for one in claimed]) == 0
    assert worker.settle(1, [settled(one) for one in claimed]).answers == accepted(3)


def test_a_stray_hunt_walks_a_long_list_to_its_end(broker: Harness) -> None:
    worker = broker.worker("w")
    for number in range(250):
        broker.add(job(outbox_id=str(number + 1)))
    held = [one.tenure for one in worker.read(250).claimed][::2]
    assert worker.stray(held) == 125
    owners = [owner for owner, _ in broker.state().jobs.pending.values()]
    assert owners == ["w", POOL] * 125


def test_a_stray_hunt_leaves_the_entries_of_others(broker: Harness) -> None:
    other, worker = broker.worker("other"), broker.worker("w")
    entry_id = broker.add(job())
    other.read(1)
    assert worker.stray([]) == 0
    assert broker.state().jobs.pending == {entry_id: ("other", 1)}


def test_strays_are_no_crashes(broker: Harness) -> None:
    worker = broker.worker("w")
    broker.add(job())
    worker.read(1)
    worker.stray([])
    assert broker.state().crashes == {}
    assert worker.read(1).claimed[0].crash_log == ()


def test_an_entry_read_again_after_the_group_was_lost_keeps_its_tenure_for_the_same_process(broker: Harness) -> None:
    """The holder reads what it holds once more; consumer and count are the same, so it may settle it once."""
    worker = broker.worker("w")
    broker.add(job())
    (before,) = worker.read(1).claimed
    broker.destroy_group()
    assert worker.ensure_groups() is True
    (after,) = worker.read(1).claimed
    assert attrs.astuple(after.tenure) == attrs.astuple(before.tenure)
    assert worker.settle(1, [settled(before), settled(after)]).answers[0] in accepted(1)
    assert broker.length() == 0
