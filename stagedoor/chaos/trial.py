"""A flow that uses all that flows can do, for chaos runs; and how to tell afterwards whether its calls went right.

Each run of a step leaves a line in a file that all workers share, with an id of
its own, and returns that id. What the journal keeps of a step must then be one of
its runs; and there may be no more runs than were recorded, and one for each pass
that was cut off.
"""

import functools
import json
import os
import random
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from stagedoor.core.call import CallState, Kind, StepState
from stagedoor.core.flow import Call, flow
from stagedoor.core.journal import Journal
from stagedoor.errors import SignalTimeout

TRIAL = "chaos-trial"
PARTS = 5
AT_ONCE = 3
TURNS = 3
LONGEST_STEP_S = 0.12
LONGEST_SLEEP_S = 1.5
HASTE_S = 0.3
FLAKY_SHARE = 0.4
FLAKY_ATTEMPTS = 30
"""All of them fail once in 10^12 calls."""


@flow(TRIAL, on_success=lambda call, _result: _run(call, "on_success", None) and None)
def trial(call: Call) -> dict[str, Any]:
    """Do ten kinds of things, some of them several times; what comes out depends on the metadata alone."""
    number = int(call.metadata["number"])
    run = functools.partial(_run, call)
    opened = call.memo("opened", run, "opened", number)
    call.sleep("grace", call.memo("how long", lambda: random.uniform(0, LONGEST_SLEEP_S)))
    parts = call.gather("parts", range(PARTS), lambda part: run(f"parts/{part}", part * number), limit=AT_ONCE)
    paid = call.wait_signal("paid")
    flaky = call.step("flaky", _sometimes, run, attempts=FLAKY_ATTEMPTS, base=0.01, cap=0.1)
    total = 0
    for turn in call.sequence("turns", limit=TURNS):
        total += turn.step("add", run, f"turns/{turn.number}/add", turn.number)["value"]
        turn.sleep("pause", 0.05)
    try:
        hurried = call.wait_signal("hurry", timeout=HASTE_S)
    except SignalTimeout:
        hurried = None
    # A second one of the same name, that was sent once: each is delivered to one wait.
    call.wait_signal("paid", key="paid again")
    call.step("close", run, "close", None)
    return {
        "opened": opened["value"],
        "parts": [part["value"] for part in parts],
        "paid": paid,
        "flaky": flaky["value"],
        "total": total,
        "hurried": hurried in (None, "hurry"),
    }


def result_of(number: int) -> dict[str, Any]:
    """Return what the call of this number must return."""
    return {
        "opened": number,
        "parts": [part * number for part in range(PARTS)],
        "paid": number,
        "flaky": "at last",
        "total": sum(range(TURNS)),
        "hurried": True,
    }


def _run(call: Call, key: str, value: Any) -> dict[str, Any]:
    """Leave a line, take a moment, and return the value with the id of this run."""
    run = secrets.token_hex(8)
    line = json.dumps({"call": call.id, "key": key, "run": run}) + "\n"
    file = os.open(call.metadata["effects"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
    time.sleep(random.uniform(0, LONGEST_STEP_S))
    return {"value": value, "run": run}


def _sometimes(run: Callable[[str, Any], dict[str, Any]]) -> dict[str, Any]:
    done = run("flaky", "at last")
    if random.random() < FLAKY_SHARE:
        raise ValueError("not this time")
    return done


# -- afterwards ---------------------------------------------------------------------


@attrs.frozen
class Effects:
    """All runs of steps, by call and key."""

    runs: Mapping[tuple[str, str], Collection[str]]

    @classmethod
    def read(cls, file: Path) -> "Effects":
        """Read the file that the workers have written; half a line is that of a worker that was killed."""
        runs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for line in file.read_bytes().decode().split("\n") if file.exists() else []:
            try:
                told = json.loads(line)
            except ValueError:
                continue
            runs[told["call"], told["key"]].append(told["run"])
        return cls(dict(runs))

    def judge(self, journal: Journal, *, is_exempt: bool, may_be_cancelled: bool) -> str | None:
        """Say what is wrong with a call that has ended.

        Args:
            journal: of the call.
            is_exempt: whether Redis has forgotten something of it, so that steps ran again.
            may_be_cancelled: whether somebody has asked for its end.
        """
        problem = _wrong_end(journal, may_be_cancelled=may_be_cancelled)
        if problem is not None or is_exempt:
            return problem
        return next(self._wrong_runs(journal), None)

    def _wrong_runs(self, journal: Journal) -> Iterator[str]:
        for key, step in journal.steps.items():
            if step.kind not in {Kind.STEP, Kind.MEMO, Kind.ITEM} or key == "how long":
                continue
            runs = Counter(self.runs.get((journal.call_id, key), ()))
            most = step.attempts + journal.epoch - 1
            if runs.total() > most:
                yield f"{key!r} ran {runs.total()} times, recorded are {step.attempts} in {journal.epoch} passes"
            if step.state is StepState.DONE and runs[json.loads(journal.value(key) or "{}").get("run")] != 1:
                yield f"{key!r} keeps the value of a run that was not"
        told = len(self.runs.get((journal.call_id, "on_success"), ()))
        is_done = journal.state is CallState.DONE
        if not int(is_done) <= told <= is_done * journal.epoch:
            yield f"its success was told {told} times in {journal.epoch} passes"


def _wrong_end(journal: Journal, *, may_be_cancelled: bool) -> str | None:
    if journal.state is CallState.CANCELLED and may_be_cancelled:
        return None
    outcome = journal.outcome
    if journal.state is not CallState.DONE or outcome is None:
        return f"it is {journal.state.value}: {outcome.error if outcome is not None else 'without an outcome'}"
    result = json.loads(outcome.result or "null")
    wanted = result_of(int(journal.metadata["number"]))
    return None if result == wanted else f"its result is {result} instead of {wanted}"
