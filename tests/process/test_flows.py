"""Flows in real processes that are killed, frozen, stopped and replaced: each call ends as if nothing had happened."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagedoor.broker.calls import Calls
from stagedoor.core.call import CallState, Kind, StepState
from stagedoor.core.history_data import data_of
from stagedoor.core.journal import Journal
from stagedoor.flows import open_calls, send_signal, start
from tests.process.programs.flows import KEYS, RESULT
from tests.process.support import QUICK, Theatre, frozen, wait_until
from tests.support.redis_server import StartRedis

pytestmark = [pytest.mark.process, pytest.mark.redis]

KILLS = 8
CALLS = 3
SLEEPERS = int(os.environ.get("STAGEDOOR_TEST_SLEEPERS", "1000"))
MOST_PROMOTED = 100
"""Members that one call of the promoting script moves."""
SOON = {**QUICK, "sweep_every_s": "0.2", "liveness_ttl_s": "1", "beat_every_s": "0.2"}


@pytest.fixture
def calls(theatre: Theatre) -> Iterator[Calls]:
    theatre.flows = ["ten", "hold", "nap"]
    with open_calls(theatre.url, namespace=theatre.keys.namespace) as opened:
        yield opened


def shown(calls: Calls, call_id: str) -> Journal:
    journal = calls.show(call_id)
    assert journal is not None
    return journal


def wait_done(calls: Calls, *call_ids: str) -> None:
    """Wait until these calls have ended, and see that they are done."""
    wait_until(lambda: all(shown(calls, call_id).state.has_ended for call_id in call_ids))
    assert {shown(calls, call_id).state for call_id in call_ids} == {CallState.DONE}


def runs_of(theatre: Theatre, call_id: str, what: str = "run") -> list[dict[str, Any]]:
    return [run for run in theatre.runs(what) if run["call"] == call_id]


def check_ten(theatre: Theatre, journal: Journal, *, kills: int = 0) -> None:
    """Check that a call of `ten` has ended right, and that its journal tells the truth about what was done."""
    assert journal.outcome is not None
    assert json.loads(journal.outcome.result or "") == RESULT
    runs = [(run["key"], run["epoch"], run["attempt"]) for run in runs_of(theatre, journal.call_id)]
    assert max(Counter(runs).values()) == 1, "a step ran twice in one epoch and attempt"
    recorded = {
        (key, step.epoch, step.attempts)
        for key, step in journal.steps.items()
        if step.kind in {Kind.STEP, Kind.MEMO, Kind.ITEM}
    }
    assert {key for key, _, _ in recorded} == KEYS
    assert recorded <= set(runs), "the journal has an attempt that nobody made"
    planned = Counter({**dict.fromkeys(KEYS, 1), "flaky": 3})
    # One thread of a pass runs one step; a gather's three items may run at once in the pass and its helpers.
    assert (Counter(key for key, _, _ in runs) - planned).total() <= 3 * kills


def test_a_worker_that_is_killed_between_any_two_lines_leaves_calls_that_end_right(
    theatre: Theatre, calls: Calls
) -> None:
    rng = random.Random(20261130)
    # Kills may all meet one entry; none of them is its fault, and it must not be taken for poison.
    keeper = theatre.start_keeper("a", **SOON, max_crashes=str(KILLS + 1))
    names = [f"c{number}" for number in range(CALLS)]
    for name in names:
        start(calls, "ten", call_id=name)
        send_signal(calls, name, "paid", "card")
    for number in range(1, KILLS + 1):
        before = len(theatre.runs("run"))
        keeper.ask()
        child = keeper.wait("born", number)["pid"]
        # Wherever it is by then: in a step, before a record, after it, or in the pass' end.
        wait_runs(theatre, calls, names, before + rng.randint(1, 4))
        os.kill(child, signal.SIGKILL)
        keeper.wait("died", number)
    keeper.ask()
    wait_done(calls, *names)
    for name in names:
        check_ten(theatre, shown(calls, name), kills=KILLS)
    assert any(shown(calls, name).epoch > 2 for name in names), "some pass was cut off"


def wait_runs(theatre: Theatre, calls: Calls, names: list[str], count: int) -> None:
    """Wait until steps have run so often, or all has ended."""
    wait_until(lambda: len(theatre.runs("run")) >= count or all(shown(calls, name).state.has_ended for name in names))


def test_a_worker_frozen_in_a_step_until_another_has_finished_changes_nothing(theatre: Theatre, calls: Calls) -> None:
    first = theatre.start("a", **SOON)
    start(calls, "hold", call_id="c")
    theatre.wait_runs("held", 1)
    with frozen(first.pid):
        theatre.start("b", **SOON)
        theatre.wait_runs("held", 2)
        theatre.open()
        wait_done(calls, "c")
        before = shown(calls, "c")
    wait_until(lambda: any(run["worker"] == "a" for run in theatre.runs("let go")))
    assert first.wait("tenure_lost")["at"] in {"pass", "renew"}
    first.send(signal.SIGTERM)
    assert first.wait_exit() == 0
    after = shown(calls, "c")
    assert (after.status, after.meta) == (before.status, before.meta)
    assert [run["worker"] for run in runs_of(theatre, "c")] == ["b"], "the thawed one went no further"


def test_a_worker_frozen_in_a_step_writes_nothing_while_another_runs_that_step(theatre: Theatre, calls: Calls) -> None:
    first = theatre.start("a", **SOON)
    start(calls, "hold", call_id="c")
    theatre.wait_runs("held", 1)
    with frozen(first.pid):
        theatre.start("b", **SOON)
        theatre.wait_runs("held", 2)
    (theatre.folder / "open-a").touch()
    theatre.wait_runs("let go", 1)
    first.send(signal.SIGTERM)
    assert first.wait_exit() == 0
    journal = shown(calls, "c")
    assert journal.state is CallState.RUNNING
    held = journal.step("held")
    assert held is None or (held.state, held.epoch) == (StepState.RUNNING, journal.epoch)
    theatre.open()
    wait_done(calls, "c")
    assert [run["worker"] for run in runs_of(theatre, "c")] == ["b"]


def test_sigterm_in_a_step_lets_the_pass_end_and_a_second_time_hands_the_call_on(
    theatre: Theatre, calls: Calls
) -> None:
    first = theatre.start("a", **SOON)
    start(calls, "hold", call_id="c")
    theatre.wait_runs("held", 1)
    first.send(signal.SIGTERM)
    first.wait("worker_stopping")
    second = theatre.start("b", **SOON)
    assert shown(calls, "c").state is CallState.RUNNING
    # Twice is in a hurry: what runs is given back.
    first.send(signal.SIGTERM)
    first.wait_exit()
    theatre.wait_runs("held", 2)
    second.send(signal.SIGTERM)
    second.wait("worker_stopping")
    theatre.open()
    assert second.wait_exit() == 0
    assert shown(calls, "c").state is CallState.DONE
    assert [run["worker"] for run in runs_of(theatre, "c")] == ["b"]
    assert [(run["worker"], run["attempt"]) for run in theatre.runs("held")] == [("a", 1), ("b", 1)]


def test_a_flow_that_sleeps_keeps_no_worker_and_wakes_in_the_next_one(theatre: Theatre, calls: Calls) -> None:
    first = theatre.start("a", **SOON)
    start(calls, "nap", call_id="c", metadata={"seconds": "1.5"})
    wait_until(lambda: shown(calls, "c").state is CallState.SLEEPING)
    due_at = shown(calls, "c").due_at
    first.send(signal.SIGTERM)
    assert first.wait_exit() == 0
    assert shown(calls, "c").due_at == due_at
    theatre.start("b", **SOON)
    wait_done(calls, "c")
    journal = shown(calls, "c")
    assert journal.ended_at is not None
    assert due_at is not None
    assert journal.ended_at >= due_at
    assert [(run["key"], run["worker"]) for run in runs_of(theatre, "c")] == [("before", "a"), ("after", "b")]


def wait_counted(calls: Calls, wanted: int, *states: CallState) -> None:
    """Wait until so many calls are in these states; gives up only when none has come for long."""
    while (count := sum(calls.counts()[state] for state in states)) < wanted:
        wait_until(lambda count=count: sum(calls.counts()[state] for state in states) != count)  # type: ignore[misc]  # a lambda's default


def test_sleepers_that_are_all_due_at_once_wake_in_batches_and_once_each(theatre: Theatre, calls: Calls) -> None:
    until = str(time.time() + 3 + SLEEPERS / 1000)
    for number in range(SLEEPERS):
        start(calls, "nap", call_id=f"c{number}", metadata={"until": until})
    first = theatre.start("a", **SOON)
    wait_counted(calls, SLEEPERS, CallState.SLEEPING, CallState.DONE)
    first.send(signal.SIGTERM)
    assert first.wait_exit() == 0
    # On a quiet machine nobody is there when they are due.
    wait_until(lambda: time.time() > float(until))
    second = theatre.start("b", **SOON)
    wait_counted(calls, SLEEPERS, CallState.DONE)
    woken = Counter(run["call"] for run in theatre.runs("run") if run["key"] == "after")
    assert (len(woken), max(woken.values())) == (SLEEPERS, 1)
    batches = [event["count"] for worker in (first, second) for event in worker.of("jobs_promoted")]
    assert max(batches, default=0) <= MOST_PROMOTED
    assert {shown(calls, f"c{number}").epoch for number in range(SLEEPERS)} <= {1, 2}, "one pass to sleep, one to wake"


def test_a_redis_that_ends_and_comes_back_under_flows_ends_none_of_them(
    start_redis: StartRedis, tmp_path: Path
) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    theatre = Theatre(server.url, "jobs", tmp_path)
    theatre.flows = ["ten", "hold", "nap"]
    try:
        worker = theatre.start("a", **SOON)
        with open_calls(server.url) as calls:
            start(calls, "hold", call_id="held")
            start(calls, "nap", call_id="asleep", metadata={"seconds": "0.3"})
            start(calls, "ten", call_id="waits")
            theatre.wait_runs("held", 1)
            wait_until(lambda: shown(calls, "waits").state is CallState.WAITING)
            server.kill()
            worker.wait("broker_down")
            # Its step ends while Redis is away: what it did must not be forgotten.
            theatre.open()
            theatre.wait_runs("let go", 1)
            server.start()
            worker.wait("broker_up")
            wait_until(lambda: send_signal_safely(calls))
            wait_done(calls, "held", "asleep", "waits")
            check_ten(theatre, shown(calls, "waits"))
        assert len(theatre.runs("held")) == 1
        assert len(worker.of("worker_started")) == 1
    finally:
        theatre.close()


def send_signal_safely(calls: Calls) -> bool:
    send_signal(calls, "waits", "paid", "card", token="the only one")
    return True


def test_services_in_two_namespaces_never_see_each_others_flows(theatre: Theatre, calls: Calls) -> None:
    other = Theatre(theatre.url, f"{theatre.keys.namespace}-b", theatre.folder)
    other.flows = ["nap"]
    try:
        with open_calls(other.url, namespace=other.keys.namespace) as others:
            for each, seconds in ((calls, "0.01"), (others, "0.02")):
                start(each, "nap", call_id="same", metadata={"seconds": seconds})
            other.start("b")
            wait_done(others, "same")
            assert shown(calls, "same").state is CallState.WAITING
            assert [run["worker"] for run in runs_of(theatre, "same")] == ["b", "b"]
            theatre.start("a")
            wait_done(calls, "same")
            assert [run["worker"] for run in runs_of(theatre, "same")] == ["b", "b", "a", "a"]
            assert others.counts()[CallState.DONE] == calls.counts()[CallState.DONE] == 1
    finally:
        other.close()


def test_a_worker_that_does_not_know_a_flow_hands_its_calls_on(theatre: Theatre, calls: Calls) -> None:
    theatre.flows = ["nap"]
    old = theatre.start("old")
    start(calls, "ten", call_id="new")
    start(calls, "nap", call_id="known", metadata={"seconds": "0.01"})
    send_signal(calls, "new", "paid", "card")
    old.wait("delivery_settled", 2, outcome="unknown", call_id="new")
    wait_done(calls, "known")
    data = data_of(shown(calls, "new"))
    assert (data["state"], data["waiting_for"]) == ("waiting", "a worker that knows its flow")
    theatre.flows = ["nap", "ten"]
    new = theatre.start("new")
    # As in a deploy; beside a new one the old one would go on taking turns, seconds apart.
    old.send(signal.SIGTERM)
    assert old.wait_exit() == 0
    wait_done(calls, "new")
    check_ten(theatre, shown(calls, "new"))
    assert {run["worker"] for run in runs_of(theatre, "new")} == {"new"}
    assert new.of("delivery_settled", outcome="unknown") == []
