"""A short chaos run with everything in it, with real processes and real renders."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stagedoor.chaos.faults import Fault
from stagedoor.chaos.report import lines_of
from stagedoor.chaos.runner import Options, run_chaos
from tests.demo.test_run import environment, processes_of

pytestmark = [pytest.mark.process, pytest.mark.redis]

QUICK = {
    "liveness_ttl_s": "2",
    "beat_every_s": "0.5",
    "sweep_every_s": "0.5",
    "reclaim_idle_s": "6",
    "renew_every_s": "2",
    "reclaim_every_s": "2",
    "block_ms": "1000",
}
"""Whoever is gone is missed soon, so that a short run has room for many faults."""


def test_whatever_fails_at_once_nothing_is_lost_and_nothing_is_wrong(
    redis_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", environment(redis_program)["PATH"])
    options = Options(
        seconds=20,
        seed=11,
        faults=tuple(Fault),
        folder=tmp_path.resolve(),
        workers=2,
        orders_per_s=3,
        calls_per_s=1,
        pace=4,
        settings=QUICK,
    )
    report = run_chaos(options, lambda _line: None)
    data = report.as_data()
    assert (data["lost"], data["wrong"]) == (0, 0), "\n".join(lines_of(report))
    assert data["orders"] > 0
    assert all(data["faults"].get(fault.value, 0) >= 1 for fault in Fault)
    assert data["tickets_valid"] > 0
    assert data["calls"]["chaos-trial"] == 20
    assert data["calls"]["fulfil-order"] == data["calls"]["rows"] > 0
    assert data["calls"]["done"] + data["calls"]["cancelled"] == 20 + data["calls"]["rows"]
    assert "Nothing lost, nothing wrong." in list(lines_of(report))
    assert processes_of(tmp_path.resolve() / "tickets") == []


def test_json_is_one_object_on_stdout_and_the_code_says_whether_all_is_sound(
    redis_program: str, tmp_path: Path
) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "stagedoor", "chaos", "--minutes", "0.1", "--workers", "1", "--faults", "clock"),
            *("--orders-per-second", "2", "--calls-per-second", "0.5", "--json"),
        ],
        env=environment(redis_program) | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    data = json.loads(run.stdout)
    assert run.stdout.count("\n") == 1
    assert (data["lost"], data["wrong"], data["faults"]["clock"] >= 1) == (0, 0, True)
    assert list(tmp_path.iterdir()) == [], "the folder of a sound run is not kept"


def test_a_fault_that_is_none_is_refused_with_code_2() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "stagedoor", "chaos", "--faults", "fire"],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "the faults are kill, stop, redis-restart, proxy, clock" in run.stderr
