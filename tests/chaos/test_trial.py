"""The calls of a chaos run: what is done to them, and whether a call that went wrong would be found."""

import json
from pathlib import Path
from typing import Any

import pytest

from stagedoor.chaos import trial as module
from stagedoor.chaos.caller import Caller, make_acts
from stagedoor.chaos.trial import TRIAL, Effects, result_of, trial
from stagedoor.core.call import CallState
from stagedoor.core.journal import Journal
from stagedoor.errors import BrokerUnavailable
from tests.flows.support import World

SECONDS = 20.0


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_STEP_S", 0.0)


class Run:
    """Some calls that went well, and the file of their steps."""

    def __init__(self, folder: Path, *, seed: int = 1, per_s: float = 0.5) -> None:
        self.world = World(trial)
        self.file = folder / "effects"
        acts = make_acts(seed, seconds=SECONDS, per_s=per_s)
        self.caller = Caller(self.world.outside, acts, effects=self.file)

    def play(self) -> None:
        worker = self.world.worker()
        for second in range(40):
            self.caller.work(float(second))
            self.world.run(worker, within_s=1.0)
        while not self.caller.is_over:
            self.caller.work(float("inf"))
        self.world.run(worker)

    def judge(self, journal: Journal, *, is_exempt: bool = False) -> str | None:
        is_cancelled = journal.call_id in self.caller.cancelled
        return Effects.read(self.file).judge(journal, is_exempt=is_exempt, may_be_cancelled=is_cancelled)

    def add(self, call_id: str, key: str, run: str) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps({"call": call_id, "key": key, "run": run}) + "\n")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path)
    made.play()
    return made


def shown(run: Run, state: CallState = CallState.DONE) -> Journal:
    """Return a call that has ended so."""
    found = (run.world.show(f"trial-{number}") for number in range(1, run.caller.started + 1))
    return next(journal for journal in found if journal.state is state)


def test_calls_that_went_well_are_found_right(tmp_path: Path) -> None:
    for seed in range(3):
        run = Run(tmp_path, seed=seed)
        run.file.unlink(missing_ok=True)
        run.play()
        journals = [run.world.show(f"trial-{number}") for number in range(1, 11)]
        assert run.caller.started == 10
        assert run.caller.problems == []
        assert [run.judge(journal) for journal in journals] == [None] * 10
        assert {journal.state for journal in journals} <= {CallState.DONE, CallState.CANCELLED}


def test_going_through_the_plan_again_delivers_nothing_twice(run: Run) -> None:
    before = {number: run.world.show(f"trial-{number}").status for number in range(1, 11)}
    run.caller.begin_again()
    run.play()
    assert {number: run.world.show(f"trial-{number}").status for number in range(1, 11)} == before
    assert len(run.caller.exempt) == 10


def test_a_plan_depends_on_the_seed_alone_and_has_signals_at_all_moments() -> None:
    acts = make_acts(7, seconds=100, per_s=2)
    assert acts == make_acts(7, seconds=100, per_s=2)
    assert acts != make_acts(8, seconds=100, per_s=2)
    assert sum(act.what == "start" for act in acts) == 200
    assert sum(act.what == "paid" for act in acts) == 400
    assert {act.what for act in acts} == {"start", "paid", "hurry", "cancel"}


def test_what_was_not_answered_is_done_at_the_next_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)

    def away(*_: object, **__: object) -> Any:
        raise BrokerUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(run.world.outside, "start", away)
        run.caller.work(float("inf"))
    assert not run.caller.is_over
    run.play()
    assert shown(run).state is CallState.DONE


def test_after_closing_only_what_was_started_is_told_of_more(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.caller.work(SECONDS / 2)
    started = run.caller.started
    assert 0 < started < 10
    run.caller.close()
    run.play()
    assert run.caller.started == started
    assert run.caller.is_over


# -- whatever goes wrong is found ----------------------------------------------------------


def test_a_run_more_than_passes_were_cut_off_is_found(run: Run) -> None:
    journal = shown(run)
    for number in range(journal.epoch - 1):
        run.add(journal.call_id, "close", f"cut{number}")
    assert run.judge(journal) is None
    run.add(journal.call_id, "close", "one more")
    assert str(run.judge(journal)).startswith("'close' ran")
    assert run.judge(journal, is_exempt=True) is None


def test_a_value_of_no_run_is_found(run: Run) -> None:
    journal = shown(run)
    lines = run.file.read_text().splitlines()
    wanted = json.loads(journal.value("parts/3") or "")["run"]
    run.file.write_text("".join(f"{line}\n" for line in lines if wanted not in line))
    assert run.judge(journal) == "'parts/3' keeps the value of a run that was not"


def test_a_success_that_was_not_told_is_found(run: Run) -> None:
    journal = shown(run)
    lines = run.file.read_text().splitlines()
    told = [line for line in lines if f'"{journal.call_id}"' in line and "on_success" in line]
    assert len(told) == 1
    run.file.write_text("".join(f"{line}\n" for line in lines if line not in told))
    assert "success was told 0 times" in str(run.judge(journal))


def test_another_result_and_another_end_are_found(run: Run) -> None:
    journal = shown(run)
    assert json.loads(journal.outcome.result or "") == result_of(int(journal.metadata["number"]))  # type: ignore[union-attr]  # it is done
    status = dict(journal.status)
    other = Journal(journal.call_id, status, {**journal.meta, "m:number": "77"})
    assert "instead of" in str(run.judge(other))
    status |= {".state": "failed", ".outcome": "failed", ".error": "ValueError: no"}
    assert run.judge(Journal(journal.call_id, status, journal.meta)) == "it is failed: ValueError: no"


def test_an_end_that_nobody_has_asked_for_is_found(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.world.start(TRIAL, "trial-1", metadata={"number": "1", "effects": str(run.file)})
    run.world.outside.cancel("trial-1")
    run.world.run()
    journal = run.world.show("trial-1")
    assert journal.state is CallState.CANCELLED
    assert str(run.judge(journal)).startswith("it is cancelled: CallCancelled")
