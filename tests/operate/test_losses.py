"""Entries that somebody else deletes: noticed, counted, on record once; and nothing of ours ever looks like it."""

import random
from typing import Any

import pytest
import trio
import trio.testing

from stagedoor.broker.inspection import Inspection, RawStream
from stagedoor.broker.losses import Losses, Lost, Noted, unnoted
from stagedoor.broker.publishing import OutboxEntry, Published
from stagedoor.core.outcome import Dead, Outcome, Reason, RetryLater
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerError, BrokerUnavailable
from stagedoor.events import Event, EventStream, UnreadTrimmed
from stagedoor.worker.lookout import Lookout
from tests.broker.harness import RedisHarness, job, settled
from tests.operate.conftest import Run

redis = pytest.mark.redis


def losses(real: RedisHarness) -> Losses:
    return Losses(real.link, real.keys)


def started(real: RedisHarness, count: int, *, read: int = 1) -> list[str]:
    """Some entries, of which a worker has taken the first few."""
    added = [real.add(job(outbox_id=str(number))) for number in range(1, count + 1)]
    real.worker().read(read)
    return added


def trim(real: RedisHarness, to: int, stream: Stream = Stream.JOBS) -> None:
    real.command("XTRIM", real.key(stream), "MAXLEN", "=", to)


# -- noticed ---------------------------------------------------------------------------------


@redis
def test_a_trimmed_stream_makes_one_letter_with_the_count(either: RedisHarness) -> None:
    started(either, 10)
    look = losses(either)
    assert look.note() == ()
    trim(either, 6)
    assert look.note() == (Lost(Stream.JOBS, 3),)
    assert look.note() == losses(either).note() == ()
    [letter] = either.state().dead
    assert (letter["reason"], letter["count"], letter["stream"], letter["entry_id"]) == (b"trimmed", b"3", b"1", b"")
    assert b"3 or more entries were deleted from the stream before anybody had read them" in letter["error"]


@redis
def test_later_losses_are_counted_on_their_own_also_after_reads(real: RedisHarness) -> None:
    started(real, 10)
    look = losses(real)
    trim(real, 6)
    look.note()
    trim(real, 5)
    assert look.note() == (Lost(Stream.JOBS, 1),)
    real.worker("w2").read(2)
    trim(real, 1)
    assert look.note() == (Lost(Stream.JOBS, 2),), "two of the four were in hand, which is another matter"


@redis
def test_unread_entries_that_were_deleted_by_hand_are_noticed(real: RedisHarness) -> None:
    ids = started(real, 5)
    look = losses(real)
    real.trim(ids[3])
    assert look.note() == (Lost(Stream.JOBS, 1),)
    assert look.note() == ()
    real.trim(ids[4])
    assert look.note() == (Lost(Stream.JOBS, 1),)


@redis
def test_the_critical_stream_is_looked_at_too(real: RedisHarness) -> None:
    for _ in range(3):
        real.add(job(), Stream.CRITICAL)
    real.worker().read(1)
    trim(real, 0, Stream.CRITICAL)
    assert losses(real).note() == (Lost(Stream.CRITICAL, 2),)


@redis
def test_who_has_looked_before_another_noted_it_writes_no_second_letter(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(real, 10)
    trim(real, 2)
    slow, fast = losses(real), losses(real)
    seen = slow._look()
    assert fast.note() == (Lost(Stream.JOBS, 7),)
    monkeypatch.setattr(slow, "_look", lambda: seen)
    assert slow.note() == ()
    assert len(real.state().dead) == 1


@redis
def test_status_and_the_dead_letters_show_it(real: RedisHarness, command: Run) -> None:
    started(real, 10)
    trim(real, 6)
    losses(real).note()
    assert command("status", "--json").data["trimmed_unread"] == 3
    assert "lost jobs; find out who trims the stream" in command("status").out
    [letter] = command("dead", "list", "--json").data["dead"]
    assert (letter["reason"], letter["kind"]) == ("trimmed", None)
    refused = command("dead", "requeue", letter["id"])
    assert (refused.code, "issued again" in refused.out) == (1, True)


@redis
def test_a_record_of_the_wrong_type_or_making_harms_nothing(real: RedisHarness) -> None:
    started(real, 10)
    trim(real, 6)
    real.client.hset(real.keys.trimmed, "1", "nonsense\n")
    assert losses(real).note() == (Lost(Stream.JOBS, 3),)
    real.client.delete(real.keys.trimmed)
    real.client.set(real.keys.trimmed, "x")
    with pytest.raises(BrokerError):
        losses(real).note()


# -- and nothing else is --------------------------------------------------------------------------


@redis
@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_workers_and_relays_do_looks_like_a_loss(real: RedisHarness, seed: int) -> None:
    """Settled out of order, retried, released, promoted, swept, re-created groups; and then a real loss is found."""
    rng = random.Random(seed)
    look, workers = losses(real), [real.worker(f"w{number}") for number in range(2)]
    held: list[Any] = []
    batch = row = 0
    for _ in range(120):
        worker = rng.choice(workers)
        match rng.randrange(8):
            case 0 | 1:
                rows = [OutboxEntry(row + n, job(outbox_id=str(row + n))) for n in range(1, 4)]
                row += 3
                real.publishing().publish("b", rows)
            case 2:
                held += [(worker, one) for one in worker.read(rng.randrange(1, 5)).claimed]
            case 3 | 4 if held:
                rng.shuffle(held)
                owner, one = held.pop()
                batch += 1
                outcomes: list[Outcome | None] = [None, None, RetryLater(0, 2, "x"), Dead(Reason.PERMANENT, "x")]
                owner.settle(batch, [settled(one, rng.choice(outcomes))])
            case 5 if held:
                owner, one = held.pop(rng.randrange(len(held)))
                owner.release([one])
            case 6:
                worker.promote()
            case 7 if rng.random() < 0.1:
                real.destroy_group()
                worker.ensure_groups()
        assert look.note() == ()
    assert look.note() == ()


@redis
def test_an_unused_and_a_fresh_namespace_have_lost_nothing(real: RedisHarness) -> None:
    assert losses(real).note() == ()
    real.add(job())
    real.worker()
    assert losses(real).note() == ()
    assert real.client.exists(real.keys.trimmed) == 0


def raw(**changes: Any) -> RawStream:
    values = {"length": 5, "added": 9, "read": 4, "first": (5, 0), "last_delivered": (4, 0)}
    return RawStream(**{**values, **changes})


@pytest.mark.parametrize(
    "seen,known,lost",
    [
        (raw(), Noted(), 0),
        (raw(length=3), Noted(), 2),
        (raw(length=3), Noted(2), 0),
        (raw(length=0, first=None), Noted(2), 3),
        (raw(read=None, length=1), Noted(), 0),
        (raw(last_delivered=(0, 0), read=0), Noted(), 0),
        (raw(first=(2, 0), pending=3, last_deleted=(8, 0)), Noted(), 1),
        (raw(first=(2, 0), pending=3, last_deleted=(8, 0)), Noted(1, (8, 0)), 0),
        (raw(first=(2, 0), pending=3, last_deleted=(3, 0)), Noted(), 0),
        (raw(length=9), Noted(), 0),
    ],
)
def test_what_is_missing_by_the_counters(seen: RawStream, known: Noted, lost: int) -> None:
    noted, found = unnoted(seen, known)
    assert found == lost
    assert unnoted(seen, noted) == (noted, 0), "on record, it is not found again"


def test_losses_that_the_counters_have_forgotten_do_not_hide_the_next() -> None:
    """When Redis counts anew, what is on record counts anew with it."""
    noted, _ = unnoted(raw(length=2), Noted())
    noted, lost = unnoted(raw(), noted)
    assert (noted.missing, lost) == (0, 0)
    assert unnoted(raw(length=4), noted)[1] == 1


# -- the service ------------------------------------------------------------------------------------


async def test_the_lookout_tells_of_each_loss_and_outlasts_outages_in_silence(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_sync(function: Any, *args: Any, **_options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return function(*args)

    monkeypatch.setattr("trio.to_thread.run_sync", run_sync)
    answers: list[Any] = [(), *[BrokerUnavailable("gone")] * 9, BrokerError("WRONGTYPE"), (Lost(Stream.JOBS, 3),)]
    told: list[Event] = []
    over = trio.Event()

    def note() -> tuple[Lost, ...]:
        if not answers:
            over.set()
            return ()
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]  # a list of anything

    async with trio.open_nursery() as nursery:
        await nursery.start(Lookout(note, events=EventStream(told.append), every_s=10, rng=random.Random(1)).run)
        await over.wait()
        nursery.cancel_scope.cancel()
    assert told == [UnreadTrimmed(stream="jobs", count=3)]


# -- back-pressure ----------------------------------------------------------------------------------------


@redis
def test_retries_that_fill_the_stream_past_its_cap_never_have_an_unread_entry_trimmed(real: RedisHarness) -> None:
    """What comes back is owed and has no MAXLEN; then no row is published until there is room again."""
    relay, worker = real.publishing(stream_maxlen=100), real.worker()
    rows = [OutboxEntry(number, job(outbox_id=str(number))) for number in range(1, 501)]
    taken = rows
    for batch in range(1, 4):
        _, replies = relay.publish("b", taken[:200])
        taken = taken[sum(reply.what is Published.ADDED for reply in replies) :]
        worker.settle(batch, [settled(one, RetryLater(0, 2, "x")) for one in worker.read(400).claimed])
    _, replies = relay.publish("b", taken[:200])
    assert sum(reply.what is Published.ADDED for reply in replies) == 95
    while worker.promote().moved:
        pass
    assert real.length() == 95 * 4
    _, replies = relay.publish("b", taken[95:200])
    assert {reply.what for reply in replies} == {Published.FULL}
    assert real.length() == 95 * 4
    assert Inspection(real.link, real.keys).look().trimmed_unread == 0
    assert losses(real).note() == ()
