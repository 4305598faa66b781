"""Metrics and probes: bounded labels, answers that hold up nobody, and health that means progress."""

import http.client
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from stagedoor.broker.inspection import Inspection, Overview, StreamView, Waiting
from stagedoor.errors import BrokerUnavailable, ConfigurationError
from stagedoor.events import (
    BrokerDown,
    DeliverySettled,
    DeliveryStarted,
    EntriesReclaimed,
    EntriesReturned,
    EntryTrimmed,
    JobsPromoted,
    TenureLost,
    UnreadTrimmed,
    Warned,
    WorkerSwept,
)
from stagedoor.worker.health import Probes, serving
from stagedoor.worker.metrics import Metrics, Remembered
from stagedoor.worker.vitals import Condition, Vitals, problems
from tests.broker.harness import RedisHarness, job

FULL = Overview(
    stream=StreamView(length=9, unread=4, pending=5, pool=2, oldest_age_s=8.5, oldest_pending_age_s=7.5),
    critical=StreamView(length=1, unread=1, oldest_age_s=1.0),
    delayed=3,
    dead=6,
    workers=(),
)
WELL = Condition(
    slots=8, held=0, running=0, ready=0, orphaned=0, free_for_s=60.0, read_age_s=1.0, quiet_for_s=60.0,
    still_for_s=60.0, lag_s=0.01, overdue_s=0.0, is_reading=True, is_stopping=False,
)  # fmt: skip


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def vitals(clock: Clock) -> Vitals:
    return Vitals(clock)


def metrics(vitals: Vitals, look: Callable[[], Overview] = lambda: FULL) -> Metrics:
    return Metrics(kinds=["print"], renderers=["ticket-pdf"], vitals=vitals, look=look, clock=Clock())


def values(made: Metrics) -> dict[str, float]:
    """Return every sample by name and labels, but for buckets and times of birth."""
    found = {}
    for family in made.registry.collect():
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def settled(outcome: str = "done", kind: str | None = "print", **fields: Any) -> DeliverySettled:
    return DeliverySettled(outcome=outcome, kind=kind, entry_id="1-1", deliveries=1, **fields)


# -- counters -----------------------------------------------------------------------------


def test_every_event_that_somebody_alarms_on_is_counted(vitals: Vitals) -> None:
    made = metrics(vitals)
    for event in (
        settled(run_s=0.5, queue_age_s=2.0),
        settled("retry", run_s=0.1),
        settled("dead", reason="permanent"),
        settled("unknown", "elsewhere"),
        TenureLost(kind="print", entry_id="1-1", deliveries=1, at="settle"),
        WorkerSwept(worker="w", entries=3, crashed=True),
        EntriesReclaimed(count=4),
        EntriesReturned(why="surplus", count=5),
        EntryTrimmed(stream="jobs", entry_id="1-1"),
        UnreadTrimmed(stream="jobs", count=6),
        JobsPromoted(count=7, broken=0),
        BrokerDown(call="read", error="gone"),
        Warned(message="of no number"),
    ):
        made.take(event)
    made.rendered("ticket-pdf", 0.01)
    found = values(made)
    assert found["stagedoor_outcomes_total{kind=print,outcome=done}"] == 1
    assert found["stagedoor_outcomes_total{kind=print,outcome=retry}"] == 1
    assert found["stagedoor_outcomes_total{kind=print,outcome=dead}"] == 1
    assert found["stagedoor_outcomes_total{kind=other,outcome=unknown}"] == 1
    assert found["stagedoor_dead_letters_total{reason=permanent}"] == 1
    assert found["stagedoor_fenced_total{at=settle}"] == 1
    assert found["stagedoor_swept_total"] == 1
    assert found["stagedoor_swept_entries_total"] == 3
    assert found["stagedoor_reclaimed_total"] == 4
    assert found["stagedoor_returned_total{why=surplus}"] == 5
    assert found["stagedoor_trimmed_total{stream=jobs}"] == 7
    assert found["stagedoor_promoted_total"] == 7
    assert found["stagedoor_redis_outages_total"] == 1
    assert found["stagedoor_run_seconds_count{kind=print}"] == 2
    assert found["stagedoor_settled_age_seconds_sum{kind=print}"] == 2.0
    assert found["stagedoor_render_seconds_count{renderer=ticket-pdf}"] == 1


def test_labels_are_bounded_whatever_is_in_the_stream(vitals: Vitals) -> None:
    made = metrics(vitals)
    before = len(values(made))
    for number in range(1000):
        made.take(settled("dead", f"kind-{number}\n", reason="malformed"))
        made.take(settled("dead", None, reason="malformed"))
        made.take(TenureLost(kind=f"k{number}", entry_id="1-1", deliveries=1, at=f"place-{number}"))
        made.rendered(f"renderer-{number}", 0.1)
    found = values(made)
    assert len(found) - before < 10
    assert found["stagedoor_outcomes_total{kind=other,outcome=dead}"] == 2000
    assert found["stagedoor_fenced_total{at=other}"] == 1000


def test_a_rate_has_a_value_to_rise_from(vitals: Vitals) -> None:
    found = values(metrics(vitals))
    assert found["stagedoor_fenced_total{at=settle}"] == found["stagedoor_trimmed_total{stream=jobs}"] == 0
    assert found["stagedoor_outcomes_total{kind=print,outcome=done}"] == 0


def test_clocks_that_differ_make_no_negative_age(vitals: Vitals) -> None:
    made = metrics(vitals)
    made.take(settled(queue_age_s=-3.0))
    assert values(made)["stagedoor_settled_age_seconds_sum{kind=print}"] == 0


# -- gauges ---------------------------------------------------------------------------------


def test_the_queue_is_shown_as_redis_says(vitals: Vitals) -> None:
    found = values(metrics(vitals))
    expected = {
        "queue_age_seconds{stream=jobs}": 8.5,
        "oldest_pending_seconds{stream=jobs}": 7.5,
        "unread{stream=jobs}": 4,
        "pending{stream=jobs}": 5,
        "pool{stream=jobs}": 2,
        "unread{stream=critical}": 1,
        "delayed": 3,
        "dead": 6,
        "redis_up": 1,
    }
    assert {name: found[f"stagedoor_{name}"] for name in expected} == expected


def test_without_an_answer_there_are_no_old_figures(vitals: Vitals) -> None:
    def fail() -> Overview:
        raise BrokerUnavailable("gone")

    found = values(metrics(vitals, fail))
    assert found["stagedoor_redis_up"] == 0
    assert "stagedoor_dead" not in found
    assert found["stagedoor_slots"] == 0


def test_redis_is_asked_once_in_five_seconds_however_many_scrape(clock: Clock) -> None:
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        return len(asked)

    remembered = Remembered(ask, 5.0, clock)
    threads = [threading.Thread(target=remembered) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.now += 4.9
    assert (remembered(), len(asked)) == (1, 1)
    clock.now += 0.1
    assert (remembered(), len(asked)) == (2, 2)


@pytest.mark.redis
def test_one_look_is_one_round_trip_of_ten_commands(real: RedisHarness) -> None:
    real.worker().read(1)
    inspection = Inspection(real.link, real.keys)
    inspection.look_at_queues()
    before = real.client.info("stats")["total_commands_processed"]
    inspection.look_at_queues()
    after = real.client.info("stats")["total_commands_processed"]
    assert after - before <= 10 + 2 + 1, "ten, MULTI and EXEC, and the INFO of this test"


def test_passes_are_counted_with_bounded_labels(vitals: Vitals) -> None:
    made = metrics(vitals)
    made.passed("print", "sleeping", 0.2, {"done": 3, "retry": 1})
    made.passed("nobody knows it", "somehow", 0.1, {"odd": 1})
    sample = made.registry.get_sample_value
    assert sample("stagedoor_passes_total", {"flow": "print", "ended": "sleeping"}) == 1
    assert sample("stagedoor_passes_total", {"flow": "other", "ended": "other"}) == 1
    assert sample("stagedoor_pass_seconds_sum", {"flow": "print"}) == 0.2
    counted = {word: sample("stagedoor_step_attempts_total", {"outcome": word}) for word in ("done", "failed", "other")}
    assert counted == {"done": 3, "failed": 0, "other": 1}


def test_the_guide_names_every_metric_and_no_other(vitals: Vitals) -> None:
    """A short form in the guide, ``_pool`` beside ``stagedoor_unread``, stands for the whole name."""
    guide = (Path(__file__).parents[2] / "docs" / "operating.md").read_text("utf-8")
    table = guide[guide.index("| metric |") : guide.index("## Dead letters")]
    first_cells = " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    named = {f"stagedoor{name}" for name in re.findall(r"(?:stagedoor|`)(_[a-z_]+)", first_cells)}
    families = {family.name for family in metrics(vitals).registry.collect()}
    made = {family for family in families if not family.startswith("stagedoor_process_")}
    shown = {name.removesuffix("_total") for name in named}
    assert shown <= made
    assert made - shown <= {"stagedoor_swept_entries", "stagedoor_trimmed_unread"}


# -- health: the decision -----------------------------------------------------------------------


def of(condition: Condition = WELL, **changes: Any) -> list[str]:
    options: dict[str, Any] = {"block_s": 5.0, "waiting": 0, "waiting_s": 0.0}
    options |= {name: changes.pop(name) for name in list(changes) if name in options}
    return problems(attrs.evolve(condition, **changes), **options)


def test_an_idle_worker_is_well() -> None:
    assert of() == []


@pytest.mark.parametrize(
    "changes,said",
    [
        ({"read_age_s": 10.1}, "no read has been answered for 10.1 s"),
        ({"waiting": 3, "waiting_s": 9.0}, "3 entries wait, the first for 9.0 s"),
        ({"ready": 2}, "2 claimed jobs have not started"),
        ({"ready": 2, "still_for_s": 1.0}, "2 claimed jobs have not started"),
        ({"overdue_s": 11.0}, "the event loop has stood still for 11.0 s"),
        ({"is_reading": False}, "does not read yet"),
    ],
)
def test_a_worker_without_progress_is_not_well_and_the_reason_is_given(changes: dict[str, Any], said: str) -> None:
    [reason] = of(**changes)
    assert said in reason


@pytest.mark.parametrize(
    "changes",
    [
        {"read_age_s": 9.9},
        {"waiting": 3, "waiting_s": 4.0},
        {"waiting": 3, "waiting_s": 600.0, "still_for_s": 1.0},
        {"waiting": 3, "waiting_s": 600.0, "free_for_s": 1.0},
        {"ready": 2, "free_for_s": 0.0},
        {"lag_s": 60.0},
        {"is_stopping": True, "read_age_s": 100.0, "is_reading": False},
        {"quiet_for_s": 86_400.0},
    ],
)
def test_progress_elsewhere_a_moments_pause_and_a_drain_are_no_trouble(changes: dict[str, Any]) -> None:
    assert of(**changes) == []


# -- health: the diary ------------------------------------------------------------------------------


@attrs.define
class Parts:
    """Stands for reader and executor."""

    last_round_trip_at: float = 1000.0
    running: int = 0
    ready: int = 0
    orphaned: int = 0
    free: int = 8

    def room(self) -> int:
        return self.free


async def diary(vitals: Vitals, clock: Clock, seconds: float) -> None:
    """Let the diary be written for so long, by both clocks."""
    async with trio.open_nursery() as nursery:
        await nursery.start(vitals.run)
        for _ in range(int(seconds / 0.25)):
            clock.now += 0.25
            await trio.sleep(0.25)
        nursery.cancel_scope.cancel()


async def test_slots_that_were_taken_till_now_excuse_an_old_read(
    vitals: Vitals, clock: Clock, autojump_clock: trio.testing.MockClock
) -> None:
    parts = Parts(running=8, free=0)
    vitals.watch(parts, executor=parts, held=lambda: 8, slots=8)
    await diary(vitals, clock, 60)
    assert vitals.condition.read_age_s < 1
    assert vitals.condition.free_for_s < 1
    parts.running, parts.free = 0, 8
    await diary(vitals, clock, 20)
    assert vitals.condition.read_age_s > 15
    parts.last_round_trip_at = clock.now
    assert vitals.condition.read_age_s == 0


async def test_read_ahead_is_no_free_slot(vitals: Vitals, clock: Clock, autojump_clock: trio.testing.MockClock) -> None:
    parts = Parts(running=7, orphaned=1, free=400, ready=100)
    vitals.watch(parts, executor=parts, held=lambda: 108, slots=8)
    await diary(vitals, clock, 60)
    assert problems(vitals.condition, block_s=100, waiting=9, waiting_s=60) == []


def test_a_loop_that_stands_still_shows_without_its_help(vitals: Vitals, clock: Clock) -> None:
    async def stand_still() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(vitals.run)
            clock.now += 42.0
            assert vitals.condition.lag_s > 41.0
            assert vitals.condition.overdue_s > 41.0
            assert probes(vitals).answer("/livez")[0] == 503
            nursery.cancel_scope.cancel()

    trio.run(stand_still)


def test_a_start_ends_the_quiet(vitals: Vitals, clock: Clock) -> None:
    clock.now += 30
    assert vitals.condition.quiet_for_s == 30
    vitals.take(DeliveryStarted(kind="print", entry_id="1-1", order_id=1, attempt=1, deliveries=1))
    assert vitals.condition.quiet_for_s == 0 == vitals.condition.still_for_s


def test_what_no_handler_gets_is_progress_and_no_start(vitals: Vitals, clock: Clock) -> None:
    """A flood of unknown kinds, or of malformed entries, is worked through; a handler's end alone starts nothing."""
    clock.now += 30
    for outcome, run_s in (("done", 0.5), ("retry", 0.5)):
        vitals.take(DeliverySettled(outcome=outcome, kind="k", entry_id="1-1", deliveries=1, run_s=run_s))
    assert (vitals.condition.quiet_for_s, vitals.condition.still_for_s) == (30, 30)
    for outcome in ("unknown", "dead"):
        clock.now += 5
        vitals.take(DeliverySettled(outcome=outcome, kind="k", entry_id="1-1", deliveries=1))
        assert vitals.condition.still_for_s == 0
    assert vitals.condition.quiet_for_s == 40


# -- what waits on Redis ------------------------------------------------------------------------------


@pytest.mark.redis
def test_what_waits_is_what_nobody_has_in_hand(either: RedisHarness) -> None:
    inspection = Inspection(either.link, either.keys)
    assert inspection.look_for_waiting() == Waiting(count=0, for_s=0.0)
    worker = either.worker("w")
    for entry_id in ("1000-1", "2000-1", "3000-1"):
        either.command("XADD", either.keys.stream, entry_id, *(part for pair in job() for part in pair))
    found = inspection.look_for_waiting()
    assert (found.count, found.for_s > 1e6) == (3, True)
    claimed = worker.read(3).claimed
    assert inspection.look_for_waiting() == Waiting(count=0, for_s=0.0)
    worker.release(claimed[1:2])
    found = inspection.look_for_waiting()
    assert (found.count, found.for_s < 60) == (1, True), "in the pool since now, however old the entry is"
    either.add(job())
    found = inspection.look_for_waiting()
    assert (found.count, found.for_s < 60) == (2, True), "the first unread one is new, the pending ones are old"


# -- the server -----------------------------------------------------------------------------------------


@pytest.fixture
def get() -> Callable[..., tuple[int, str]]:
    """Serve *answer* and ask for a path."""

    def ask(answer: Any, path: str, method: str = "GET") -> tuple[int, str]:
        with serving(0, answer) as port:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read().decode()
            connection.close()
            return response.status, body

    return ask


def probes(vitals: Vitals, waiting: Waiting | None = None, made: Metrics | None = None) -> Probes:
    made = made or metrics(vitals)
    return Probes(made.registry, vitals=vitals, waiting=lambda: waiting, block_s=5.0)


def test_the_three_paths(vitals: Vitals, get: Callable[..., tuple[int, str]]) -> None:
    answer = probes(vitals).answer
    status, body = get(answer, "/metrics")
    assert status == 200
    assert re.search(r'^stagedoor_unread\{stream="jobs"\} 4.0$', body, re.MULTILINE)
    assert get(answer, "/livez") == (200, "ok\n")
    status, body = get(answer, "/healthz?verbose")
    assert (status, body) == (503, "the worker does not read yet, 0 s after its start\n")
    assert get(answer, "/")[0] == get(answer, "/metrics/../../etc/passwd")[0] == 404
    assert get(answer, "/healthz", "HEAD") == (503, "")
    assert get(answer, "/healthz", "POST")[0] == 501


async def test_health_is_bad_when_work_waits_and_none_starts(
    vitals: Vitals, clock: Clock, autojump_clock: trio.testing.MockClock
) -> None:
    parts = Parts()
    vitals.watch(parts, executor=parts, held=lambda: 0, slots=8)
    async with trio.open_nursery() as nursery:
        await nursery.start(vitals.run)
        clock.now += 6
        parts.last_round_trip_at = clock.now
        await trio.sleep(0.3)
        assert probes(vitals, Waiting(count=4, for_s=9.0)).answer("/healthz")[0] == 503
        assert probes(vitals, None).answer("/healthz")[0] == 200, "Redis away is the reader's to find out"
        vitals.take(DeliverySettled(outcome="unknown", kind="k", entry_id="1-1", deliveries=1, hops=1))
        assert probes(vitals, Waiting(count=4, for_s=9.0)).answer("/healthz")[0] == 200, "it gets through them"
        asked: list[str] = []
        well = Probes(metrics(vitals).registry, vitals=vitals, waiting=lambda: asked.append("x"), block_s=5.0)
        assert (well.answer("/healthz")[0], asked) == (200, []), "and Redis is not asked for that"
        nursery.cancel_scope.cancel()


def test_it_listens_on_this_machine_only_and_says_when_the_port_is_taken() -> None:
    with (
        serving(0, lambda _path: (200, "", b"")) as port,
        pytest.raises(ConfigurationError, match=r"metrics_port: cannot listen on 127\.0\.0\.1:\d+"),
        serving(port, lambda _path: (200, "", b"")),
    ):
        pass  # pragma: no cover
    with pytest.raises(ConfigurationError), serving(70_000, lambda _path: (200, "", b"")):
        pass  # pragma: no cover
