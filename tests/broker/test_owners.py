"""Who owns an entry: names, beats, lapsed and vanished workers, the pool, and the crashes that are counted."""

import threading
from collections.abc import Callable

import pytest

from stagedoor.broker.bodies import crash_lines
from stagedoor.broker.dead_letters import letter_of
from stagedoor.broker.deliveries import Deliveries, Pulse, ReadReply, Swept, Trimmed
from stagedoor.broker.redis import RedisDeliveries
from stagedoor.core.keys import GROUP, POOL
from stagedoor.core.tenure import Stream
from stagedoor.errors import BrokerError, BrokerUnavailable, ConfigurationError, GroupMissing, NameTaken
from stagedoor.testing import FakeDeliveries
from tests.broker.harness import FakeHarness, Harness, RedisHarness, identity, ids, job, settled


def hold(broker: Harness, worker: Deliveries, count: int = 1, stream: Stream = Stream.JOBS) -> list[str]:
    """Let a worker hold new entries; return their ids."""
    added = [broker.add(job(), stream) for _ in range(count)]
    assert ids(worker.read(count)) == added
    return added


def crashes(broker: Harness) -> list[tuple[str, ...]]:
    return list(broker.state().crashes.values())


def is_blocked(broker: Harness, worker: Deliveries) -> bool:
    """Return whether its blocked read has begun."""
    if isinstance(broker, RedisHarness):
        return any("b" in client["flags"] for client in broker.client.client_list())
    return isinstance(worker, FakeDeliveries) and worker.is_blocked


# -- names -----------------------------------------------------------------------------


def test_a_worker_takes_the_name_it_wants(broker: Harness) -> None:
    worker = broker.worker("w", incarnation="i1")
    assert worker.name == "w"
    assert broker.state().workers == {"w": "i1"}
    assert broker.consumers() == broker.consumers(Stream.CRITICAL) == {"w"}


def test_two_live_workers_of_one_name_get_two_names(broker: Harness) -> None:
    first, second, third = (broker.worker("w") for _ in range(3))
    assert [first.name, second.name, third.name] == ["w", "w.2", "w.3"]
    entry_id = broker.add(job())
    assert ids(second.read(1)) == [entry_id]
    assert broker.state().jobs.pending == {entry_id: ("w.2", 1)}


def test_the_name_that_is_free_again_is_taken_first(broker: Harness) -> None:
    first, _second = broker.worker("w"), broker.worker("w")
    first.retire()
    assert broker.worker("w").name == "w"


def test_joining_again_after_a_lost_reply_takes_the_same_name(broker: Harness) -> None:
    worker = broker.new_worker("w")
    worker.ensure_groups()
    who = identity("i1")
    assert worker.join(who, Pulse(slots=8)) == "w"
    assert worker.join(who, Pulse(slots=8)) == "w"
    assert crashes(broker) == []


def test_a_process_that_is_provably_dead_leaves_its_name_at_once(broker: Harness) -> None:
    dead = broker.worker("w", incarnation="i1")
    held = hold(broker, dead, 2)
    asked: list[dict[str, str]] = []

    def is_dead(record: dict[str, str]) -> bool:
        asked.append(record)
        return True

    fresh = broker.worker("w", incarnation="i2", is_process_dead=is_dead)

    assert fresh.name == "w"
    assert {
        "incarnation": "i1",
        "host": "h",
        "boot_id": "b",
        "pid_namespace": "n",
        "pid": "1",
        "started": "7",
    }.items() <= (asked[0].items())
    assert {"slots": "8", "held": "0", "orphaned": "0", "stopping": "0"}.items() <= asked[0].items()
    assert broker.state().jobs.pending == dict.fromkeys(held, (POOL, 1))
    assert crashes(broker) == [("w i1",), ("w i1",)]
    assert ids(fresh.read(8)) == held


def test_a_process_is_not_buried_when_another_has_taken_its_name_meanwhile(real: RedisHarness) -> None:
    """The proof is of one incarnation: between looking and taking the name changed hands."""
    real.worker("w", incarnation="i1")

    def is_dead(_record: dict[str, str]) -> bool:
        real.lapse("w")
        real.worker("w", incarnation="i2")
        return True

    late = real.new_worker("w", is_process_dead=is_dead)
    assert late.join(identity("i3"), Pulse(slots=8)) == "w.2"


def test_a_lapsed_worker_leaves_its_name(broker: Harness) -> None:
    old = broker.worker("w", incarnation="i1")
    (held,) = hold(broker, old)
    broker.lapse("w")

    fresh = broker.worker("w", incarnation="i2")

    assert fresh.name == "w"
    assert broker.state().jobs.pending == {held: (POOL, 1)}
    assert crashes(broker) == [("w i1",)]
    with pytest.raises(NameTaken):
        old.beat(Pulse(slots=8))


def test_who_has_lost_its_name_to_a_live_process_goes_on_under_the_next_free_one(broker: Harness) -> None:
    old = broker.worker("w", incarnation="i1")
    (held,) = hold(broker, old)
    broker.lapse("w")
    fresh = broker.worker("w", incarnation="i2")

    assert (old.rejoin([]), old.name, fresh.name) == ("w.2", "w.2", "w")

    assert broker.state().workers["w"] == "i2"
    old.beat(Pulse(slots=8))
    assert ids(old.read(8)) == [held]
    assert broker.state().jobs.pending == {held: ("w.2", 2)}


@pytest.mark.parametrize("why", ["lapsed", "dead"])
def test_who_has_lost_its_name_to_a_process_that_is_gone_takes_it_again(broker: Harness, why: str) -> None:
    """As after Redis was restored from a copy that has an earlier process under this name."""
    ours = broker.new_worker("w", is_process_dead=lambda _record: why == "dead")
    ours.ensure_groups()
    ours.join(identity("i2"), Pulse(slots=8))
    (held,) = hold(broker, ours)
    broker.lapse("w")
    broker.worker("w", incarnation="i1")
    if why == "lapsed":
        broker.lapse("w")
    with pytest.raises(NameTaken):
        ours.beat(Pulse(slots=8))

    assert ours.rejoin([]) == "w"

    assert broker.state().workers == {"w": "i2"}
    assert broker.state().jobs.pending == {held: (POOL, 1)}
    assert ids(ours.read(8)) == [held]


def test_what_a_blocked_read_was_handed_behind_the_new_owners_back_goes_to_the_pool(broker: Harness) -> None:
    """A read that blocks has no fence: whoever froze before it may be handed an entry under a name that is taken."""
    old = broker.worker("w", incarnation="i1")
    broker.lapse("w")
    fresh = broker.worker("w", incarnation="i2")
    (kept,) = hold(broker, fresh)
    unseen = broker.add(job())
    handed = old.wait(100).claimed
    assert broker.state().jobs.pending == {kept: ("w", 1), unseen: ("w", 1)}

    old.rejoin(handed)

    assert broker.state().jobs.pending == {kept: ("w", 1), unseen: (POOL, 1)}
    assert ids(fresh.read(8)) == [unseen]


def test_a_read_that_still_blocks_under_the_old_name_gives_back_what_it_is_handed(broker: Harness) -> None:
    old = broker.worker("w", incarnation="i1")
    replies: list[ReadReply] = []
    thread = threading.Thread(target=lambda: replies.append(old.wait(60_000)))
    thread.start()
    while not is_blocked(broker, old):
        thread.join(0.001)
    broker.lapse("w")
    broker.worker("w", incarnation="i2")
    old.rejoin([])
    entry_id = broker.add(job())
    thread.join(60)
    assert ids(replies[0]) == []
    assert broker.state().jobs.pending == {entry_id: (POOL, 1)}


def test_when_the_name_is_taken_nothing_is_pending_under_it_however_much_there_was(broker: Harness) -> None:
    old = broker.worker("w")
    hold(broker, old, 230)
    hold(broker, old, 120, Stream.CRITICAL)
    broker.lapse("w")
    broker.worker("w")
    state = broker.state()
    owners = {owner for stream in Stream for owner, _ in state.of(stream).pending.values()}
    assert owners == {POOL}
    assert len(state.crashes) == 350


def test_joining_without_a_group_says_so(broker: Harness) -> None:
    with pytest.raises(GroupMissing):
        broker.new_worker("w").join(identity("i1"), Pulse(slots=8))


def test_too_many_live_workers_of_one_name_are_refused(broker: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagedoor.broker.redis.MOST_NAMES", 2)
    monkeypatch.setattr("stagedoor.testing.fake_broker.MOST_NAMES", 2)
    broker.worker("w")
    broker.worker("w")
    with pytest.raises(ConfigurationError, match="2 live workers are called 'w'"):
        broker.worker("w")


def test_who_has_not_joined_may_not_write(broker: Harness) -> None:
    worker = broker.new_worker("w")
    worker.ensure_groups()
    with pytest.raises(BrokerError, match="not joined"):
        worker.read(1)


# -- beats -------------------------------------------------------------------------------


def test_a_beat_keeps_a_worker_alive(broker: Harness) -> None:
    worker = broker.worker("w")
    (held,) = hold(broker, worker)
    broker.lapse("w")
    worker.beat(Pulse(slots=8, held=1))
    assert broker.worker("other").sweep() == Swept()
    assert broker.state().jobs.pending == {held: ("w", 1)}


def test_a_beat_writes_a_flushed_record_anew(broker: Harness) -> None:
    worker = broker.worker("w", incarnation="i1")
    broker.flush()
    worker.beat(Pulse(slots=8))
    assert broker.state().workers == {"w": "i1"}


def test_a_beat_from_the_future_is_none(broker: Harness) -> None:
    """Redis' clock may jump back: a beat that is far ahead says no more than one that is far behind."""
    worker = broker.worker("w")
    (held,) = hold(broker, worker)
    if isinstance(broker, FakeHarness):
        broker.fake.workers["w"].beat_ms += 3_600_000
    elif isinstance(broker, RedisHarness):
        broker.client.hincrby(broker.keys.worker("w"), "beat", 3_600_000)
    broker.worker("other").sweep()
    assert broker.state().jobs.pending == {held: (POOL, 1)}


@pytest.mark.redis
@pytest.mark.parametrize("beat", ["", "soon", "NaN"])
def test_a_beat_that_is_no_number_does_not_stop_the_sweep(real: RedisHarness, beat: str) -> None:
    worker = real.worker("w")
    hold(real, worker)
    real.client.hset(real.keys.worker("w"), "beat", beat)
    assert real.worker("other").sweep().workers == (("w", 1, True),)


# -- sweeping -------------------------------------------------------------------------------


def test_a_sweep_moves_what_a_lapsed_worker_holds_to_the_pool(broker: Harness) -> None:
    lapsed, other = broker.worker("lapsed", incarnation="i1"), broker.worker("other")
    first = hold(broker, lapsed, 2)
    second = hold(broker, lapsed, 1, Stream.CRITICAL)
    broker.lapse("lapsed")

    assert other.sweep() == Swept((("lapsed", 3, True),), ())

    state = broker.state()
    assert state.jobs.pending == dict.fromkeys(first, (POOL, 1))
    assert state.critical.pending == dict.fromkeys(second, (POOL, 1))
    assert state.crashes == {
        f"1:{first[0]}": ("lapsed i1",),
        f"1:{first[1]}": ("lapsed i1",),
        f"2:{second[0]}": ("lapsed i1",),
    }


def test_the_very_first_sweep_of_a_process_already_sweeps(broker: Harness) -> None:
    lapsed = broker.worker("lapsed")
    hold(broker, lapsed)
    broker.lapse("lapsed")
    assert broker.worker("other").sweep().workers == (("lapsed", 1, True),)


def test_a_second_sweep_finds_nothing_left(broker: Harness) -> None:
    lapsed, other = broker.worker("lapsed"), broker.worker("other")
    hold(broker, lapsed, 3)
    broker.lapse("lapsed")
    other.sweep()
    before = broker.state()
    assert other.sweep() == Swept()
    assert broker.state() == before


def test_a_sweep_moves_all_of_a_long_list_and_reports_the_worker_once(broker: Harness) -> None:
    lapsed, other = broker.worker("lapsed"), broker.worker("other")
    hold(broker, lapsed, 230)
    broker.lapse("lapsed")
    assert other.sweep().workers == (("lapsed", 230, True),)


def test_a_sweep_never_robs_a_worker_that_beats(broker: Harness) -> None:
    live, other = broker.worker("live"), broker.worker("other")
    held = hold(broker, live, 2)
    broker.age(*held)
    before = broker.state()
    for _ in range(3):
        assert other.sweep() == Swept()
    assert broker.state() == before


def test_a_worker_may_sweep_itself_when_it_has_lapsed(broker: Harness) -> None:
    worker = broker.worker("w")
    (held,) = hold(broker, worker)
    broker.lapse("w")
    assert worker.sweep().workers == (("w", 1, True),)
    assert broker.state().jobs.pending == {held: (POOL, 1)}


def test_a_worker_that_was_stopping_is_no_crash(broker: Harness) -> None:
    stopping, other = broker.worker("stopping"), broker.worker("other")
    (held,) = hold(broker, stopping)
    stopping.beat(Pulse(slots=8, stopping=True))
    broker.lapse("stopping")
    assert other.sweep() == Swept((("stopping", 1, False),), ())
    assert broker.state().jobs.pending == {held: (POOL, 1)}
    assert crashes(broker) == []


def test_joining_over_a_worker_that_was_stopping_is_no_crash(broker: Harness) -> None:
    stopping = broker.worker("w")
    hold(broker, stopping)
    stopping.beat(Pulse(slots=8, stopping=True))
    broker.worker("w", is_process_dead=lambda _: True)
    assert crashes(broker) == []


def test_the_record_of_the_next_process_is_not_stopping(broker: Harness) -> None:
    stopping = broker.worker("w")
    stopping.beat(Pulse(slots=8, stopping=True))
    broker.lapse("w")
    fresh = broker.worker("w", incarnation="i9")
    hold(broker, fresh)
    broker.lapse("w")
    broker.worker("other").sweep()
    assert crashes(broker) == [("w i9",)]


def test_a_worker_without_a_record_has_vanished_and_is_a_crash_of_somebody_unknown(broker: Harness) -> None:
    vanished, other = broker.worker("vanished"), broker.worker("other")
    hold(broker, vanished)
    broker.forget_record("vanished")
    assert other.sweep().workers == (("vanished", 1, True),)
    assert crashes(broker) == [("vanished unknown",)]


def test_an_incarnation_counts_once_however_often_its_entries_are_moved(broker: Harness) -> None:
    frozen, other = broker.worker("frozen", incarnation="i1"), broker.worker("other")
    hold(broker, frozen)
    for _ in range(3):
        broker.lapse("frozen")
        other.sweep()
        frozen.beat(Pulse(slots=8))
        frozen.read(1)
    broker.lapse("frozen")
    broker.worker("frozen")
    assert crashes(broker) == [("frozen i1",)]


def test_a_line_of_a_crash_log_ends_at_a_newline_and_nowhere_else() -> None:
    log = "1 a\u2028b\x85c\x1e\r i1\n2 d\x0c i2\n"
    assert crash_lines(log) == ("1 a\u2028b\x85c\x1e\r i1", "2 d\x0c i2")
    assert letter_of("1-0", ((b"history", log.encode()),)).history == crash_lines(log)
    assert crash_lines("") == ()


def test_each_incarnation_that_vanishes_adds_a_line(broker: Harness) -> None:
    entry_id = broker.add(job())
    for number in range(1, 5):
        victim = broker.worker("w", incarnation=f"i{number}")
        (claimed,) = victim.read(1).claimed
        assert claimed.entry.entry_id == entry_id
        assert len(claimed.crash_log) == number - 1
        broker.lapse("w")
    broker.worker("other").sweep()
    assert crashes(broker) == [("w i1", "w i2", "w i3", "w i4")]


@pytest.mark.parametrize("way", ["release", "stray", "retire"])
def test_what_is_given_back_is_no_crash(broker: Harness, way: str) -> None:
    worker = broker.worker("w")
    broker.add(job())
    claimed = worker.read(1).claimed
    acts: dict[str, Callable[[], object]] = {
        "release": lambda: worker.release(claimed),
        "stray": lambda: worker.stray([]),
        "retire": worker.retire,
    }
    acts[way]()
    broker.lapse("w") if way != "retire" else None
    broker.worker("other").sweep()
    assert crashes(broker) == []


def test_settling_clears_the_crashes_of_an_entry(broker: Harness) -> None:
    lapsed, other = broker.worker("lapsed"), broker.worker("other")
    hold(broker, lapsed, 2)
    broker.lapse("lapsed")
    other.sweep()
    claimed = other.read(2).claimed
    other.settle(1, [settled(claimed[0])])
    assert list(broker.state().crashes) == [f"1:{claimed[1].entry.entry_id}"]


# -- consumers long gone ----------------------------------------------------------------------


@pytest.fixture
def forget_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a consumer count as long gone at once."""
    monkeypatch.setattr("stagedoor.broker.redis.FORGET_CONSUMER_MS", -1)
    monkeypatch.setattr("stagedoor.testing.fake_broker.FORGET_CONSUMER_MS", -1)


@pytest.mark.usefixtures("forget_at_once")
def test_a_consumer_without_record_and_entries_is_deleted(broker: Harness) -> None:
    broker.worker("gone")
    broker.forget_record("gone")
    other = broker.worker("other")
    other.sweep()
    assert broker.consumers() == broker.consumers(Stream.CRITICAL) == {"other"}


def test_a_consumer_that_was_heard_of_within_the_hour_is_kept(broker: Harness) -> None:
    broker.worker("gone")
    broker.forget_record("gone")
    broker.worker("other").sweep()
    assert broker.consumers() == {"gone", "other"}


@pytest.mark.usefixtures("forget_at_once")
def test_a_consumer_with_a_record_is_kept_even_when_it_has_lapsed(broker: Harness) -> None:
    broker.worker("lapsed")
    broker.lapse("lapsed")
    broker.worker("other").sweep()
    assert broker.consumers() == {"lapsed", "other"}


@pytest.mark.usefixtures("forget_at_once")
def test_deleting_a_consumer_never_takes_a_pending_entry_with_it(broker: Harness) -> None:
    gone, other = broker.worker("gone"), broker.worker("other")
    held = hold(broker, gone, 5)
    broker.forget_record("gone")

    other.sweep()

    assert broker.state().jobs.pending == dict.fromkeys(held, (POOL, 1))
    assert POOL in broker.consumers()
    other.sweep()
    assert broker.consumers() == {"other", POOL}
    assert ids(other.read(8)) == held


@pytest.mark.usefixtures("forget_at_once")
def test_what_could_not_be_buried_keeps_its_consumer(broker: Harness) -> None:
    gone, other = broker.worker("gone"), broker.worker("other")
    (held,) = hold(broker, gone)
    broker.forget_record("gone")
    broker.trim(held)
    broker.break_dead()
    for _ in range(2):
        other.sweep()
    assert broker.state().jobs.pending == {held: ("gone", 1)}


# -- reclaiming --------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", Stream)
def test_a_reclaim_moves_what_has_been_idle_too_long(broker: Harness, stream: Stream) -> None:
    forgetful, other = broker.worker("forgetful"), broker.worker("other")
    idle, fresh = hold(broker, forgetful, 2, stream)
    broker.age(idle, stream=stream)

    reclaimed = other.reclaim()

    assert (reclaimed.moved, reclaimed.trimmed) == (1, ())
    state = broker.state()
    assert state.of(stream).pending == {idle: (POOL, 1), fresh: ("forgetful", 1)}
    assert state.crashes == {}


def test_a_reclaim_leaves_the_pool_alone(broker: Harness) -> None:
    worker = broker.worker("w")
    (held,) = hold(broker, worker)
    worker.stray([])
    broker.age(held)
    assert worker.reclaim().moved == 0
    assert broker.state().jobs.pending == {held: (POOL, 1)}


def test_a_reclaim_walks_the_whole_list_past_entries_that_are_not_idle(broker: Harness) -> None:
    busy, other = broker.worker("busy"), broker.worker("other")
    held = hold(broker, busy, 450)
    broker.age(*held[300:])
    assert other.reclaim().moved == 150
    owners = [owner for owner, _ in broker.state().jobs.pending.values()]
    assert owners == ["busy"] * 300 + [POOL] * 150


@pytest.mark.redis
def test_a_reclaim_that_fails_half_way_goes_on_where_it_was(real: RedisHarness) -> None:
    busy = real.worker("busy")
    held = hold(real, busy, 350)
    real.age(*held)
    other = real.new_worker("other")
    pages = _fail_page(other, 2)

    with pytest.raises(BrokerUnavailable):
        other.reclaim()
    assert [owner for owner, _ in real.state().jobs.pending.values()] == [POOL] * 100 + ["busy"] * 250
    assert other.reclaim().moved == 250
    # The second walk began where the first had failed, and ended at the end of the list.
    assert pages[2] == pages[1] != "0-0"
    assert other.reclaim().moved == 0


def _fail_page(worker: object, page: int) -> list[str]:
    """Let one call of the reclaim script fail; return the cursors it is called with."""
    scripts = worker._scripts  # type: ignore[attr-defined]  # a RedisDeliveries
    real_script = scripts["reclaim"]
    cursors: list[str] = []

    def call(client: object, keys: object, args: list[str]) -> object:
        cursors.append(args[2])
        if len(cursors) == page:
            raise BrokerUnavailable("lost")
        return real_script(client, keys, args)

    scripts["reclaim"] = call
    return cursors


def test_a_live_worker_that_renews_is_never_reclaimed_from(broker: Harness) -> None:
    worker, other = broker.worker("w"), broker.worker("other")
    broker.add(job())
    (claimed,) = worker.read(1).claimed
    for _ in range(4):
        broker.age(claimed.entry.entry_id)
        worker.renew([claimed.tenure])
        assert other.reclaim().moved == 0


# -- bodies that are gone ---------------------------------------------------------------------------


def _by_sweep(broker: Harness) -> tuple[Trimmed, ...]:
    broker.lapse("holder")
    return broker.worker("other").sweep().trimmed


def _by_reclaim(broker: Harness) -> tuple[Trimmed, ...]:
    return broker.worker("other").reclaim().trimmed


def _by_join(broker: Harness) -> tuple[Trimmed, ...]:
    broker.lapse("holder")
    broker.worker("holder")
    return ()


def _by_read(broker: Harness) -> tuple[Trimmed, ...]:
    return broker.worker("other").read(8).trimmed


PATHS: dict[str, Callable[[Harness], tuple[Trimmed, ...]]] = {
    "sweep": _by_sweep,
    "reclaim": _by_reclaim,
    "join": _by_join,
    "read": _by_read,
}


@pytest.mark.parametrize("stream", Stream)
@pytest.mark.parametrize("path", PATHS)
def test_an_entry_trimmed_while_pending_is_dead_lettered_exactly_once_by_each_path(
    broker: Harness, path: str, stream: Stream
) -> None:
    holder = broker.worker("holder")
    lost, kept = hold(broker, holder, 2, stream)
    broker.age(lost, kept, stream=stream)
    if path == "read":
        holder.stray([])
    broker.trim(lost, stream=stream)

    reported = PATHS[path](broker)
    last = broker.worker("last")
    for again in (last.sweep, last.reclaim, lambda: last.read(8), lambda: broker.worker("last").read(8)):
        again()

    if path != "join":
        assert reported == (Trimmed(stream, lost),)
    state = broker.state()
    assert [(letter["reason"], letter["entry_id"], letter["stream"]) for letter in state.dead] == [
        (b"trimmed", lost.encode(), b"%d" % stream.value)
    ]
    assert state.dead[0]["consumer"] == (POOL if path == "read" else "holder").encode()
    assert list(state.of(stream).pending) == [kept]
    assert f"{stream.value}:{lost}" not in state.crashes


def test_a_reclaim_does_not_bury_what_a_live_worker_has_just_renewed(broker: Harness) -> None:
    """XAUTOCLAIM would: it drops an entry without a body whatever its idle time, and with it the holder's retry."""
    worker, other = broker.worker("w"), broker.worker("other")
    (held,) = hold(broker, worker)
    broker.trim(held)
    assert other.reclaim().trimmed == ()
    assert broker.state().jobs.pending == {held: ("w", 1)}


@pytest.mark.parametrize("path", ["sweep", "reclaim", "join"])
def test_where_the_dead_letters_are_no_stream_a_bodiless_entry_stays_and_the_others_go_to_the_pool(
    broker: Harness, path: str
) -> None:
    holder = broker.worker("holder")
    lost, *kept = hold(broker, holder, 3)
    broker.age(lost, *kept)
    broker.trim(lost)
    broker.break_dead()
    assert PATHS[path](broker) == ()
    assert broker.state().jobs.pending == {lost: ("holder", 1), **dict.fromkeys(kept, (POOL, 1))}
    broker.heal_dead()
    broker.worker("last").reclaim()
    assert [letter["entry_id"] for letter in broker.state().dead] == [lost.encode()]


# -- something else under the name of a record -----------------------------------------------------


def test_a_worker_whose_record_is_none_is_swept_as_one_that_vanished(real: RedisHarness) -> None:
    """And nobody else's entries wait for it."""
    spoilt = [real.add(job()), real.add(job())]
    real.worker("w-1").read(1)
    real.worker("w-2").read(1)
    real.client.delete(real.keys.worker("w-1"))
    real.client.set(real.keys.worker("w-1"), "not ours")
    real.lapse("w-2")
    other = real.worker("w-3")
    assert {name: moved for name, moved, _ in other.sweep().workers} == {"w-1": 1, "w-2": 1}
    assert sorted(claimed.entry.entry_id for claimed in other.read(2).claimed) == spoilt
    assert real.client.get(real.keys.worker("w-1")) == b"not ours"


def test_a_name_with_something_else_for_its_record_can_be_taken(real: RedisHarness) -> None:
    real.client.lpush(real.keys.worker("w"), "not ours")
    assert real.worker("w").name == "w"
    assert real.client.type(real.keys.worker("w")) == b"hash"


def test_a_beat_makes_a_record_anew_whatever_is_there(real: RedisHarness) -> None:
    worker = real.worker("w")
    real.client.delete(real.keys.worker("w"))
    real.client.set(real.keys.worker("w"), "not ours")
    worker.beat(Pulse(slots=8))
    entry_id = real.add(job())
    assert [claimed.entry.entry_id for claimed in worker.read(1).claimed] == [entry_id]


@pytest.mark.parametrize("separator", ["\n", "\r", "\u2028", "\x85", "\x0b"])
def test_a_name_of_many_lines_is_one_line_of_a_crash_log(real: RedisHarness, separator: str) -> None:
    """Each line is a process that vanished: a foreign consumer's name could make a healthy job poison."""
    entry_id = real.add(job())
    worker = real.worker("w")
    name = separator.join(["x"] * 6)
    real.client.xreadgroup(GROUP, name, {real.keys.stream: ">"}, count=1)
    real.worker("v").sweep()
    worker.sweep()
    [claimed] = worker.read(1).claimed
    assert claimed.entry.entry_id == entry_id
    assert len(claimed.crash_log) == 1


# -- calls that a frozen server serves late ---------------------------------------------------------


class LateClock:
    """What a worker takes for Redis' time when it decides to judge: so many ms ago, as often as it is told."""

    def __init__(self, late_ms: int, *, times: int) -> None:
        self._late_ms = late_ms
        self._times = times
        self.asked = 0

    def put_into(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let every worker ask this one."""

        def now_ms(worker: RedisDeliveries) -> int:
            return self._now_ms(worker)

        monkeypatch.setattr(RedisDeliveries, "_now_ms", now_ms)

    def _now_ms(self, worker: RedisDeliveries) -> int:
        self.asked += 1
        seconds, microseconds = worker._link.quick.time()
        now_ms = seconds * 1000 + microseconds // 1000
        return now_ms - self._late_ms if self.asked <= self._times else now_ms


@pytest.mark.parametrize("late_ms, moved", [(2600, 0), (2000, 1)])
def test_a_sweep_that_is_served_late_robs_nobody(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch, late_ms: int, moved: int
) -> None:
    """It was sent before the server froze; when it is served, everybody's beats are old."""
    hold(real, real.worker("a"))
    other = real.worker("b")
    other.sweep()
    real.lapse("a")
    clock = LateClock(late_ms, times=1)
    clock.put_into(monkeypatch)
    assert [count for _, count, _ in other.sweep().workers] == [1] * moved
    assert len(real.state().of(Stream.JOBS).pending) == 1
    assert len(ids(other.read(1))) == moved


@pytest.mark.parametrize("late_ms, moved", [(15_100, 0), (14_000, 1)])
def test_a_reclaim_that_is_served_late_robs_nobody(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch, late_ms: int, moved: int
) -> None:
    real.age(*hold(real, real.worker("a")))
    other = real.worker("b")
    clock = LateClock(late_ms, times=2)
    clock.put_into(monkeypatch)
    assert other.reclaim().moved == moved


def test_a_name_is_taken_by_whoever_asks_in_time(real: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    real.worker("a")
    real.lapse("a")
    clock = LateClock(2600, times=2)
    clock.put_into(monkeypatch)
    assert real.worker("a").name == "a"
    assert clock.asked == 3, "twice it was too late"
