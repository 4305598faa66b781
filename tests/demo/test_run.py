"""Whole demos, with real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import attrs
import pytest

from stagedoor.cli.app import run as run_command
from stagedoor.demo.report import Ending, Report
from stagedoor.demo.runner import DemoFailed, Options, run_demo
from stagedoor.demo.show import View
from tests.demo.test_show import CHECKED, ENDING, KEYS, REPORT

QUICK = {"liveness_ttl_s": "1", "beat_every_s": "0.2", "sweep_every_s": "0.2"}
"""A killed worker is missed soon, so that the test is short."""


class Recorder:
    """A screen that keeps what it is shown."""

    def __init__(self) -> None:
        self.views: list[View] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def show(self, view: View) -> None:
        self.views.append(view)


def environment(redis_program: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(redis_program).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": path}


def processes_of(folder: Path) -> list[int]:
    """Return the processes that were started for a demo in this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environ = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if f"STAGEDOOR_TICKETS_DIR={folder}".encode() in environ:
            found.append(int(entry.name))
    return found


@pytest.mark.process
@pytest.mark.redis
@pytest.mark.parametrize("flow,orders", [(False, 40), (True, 20)])
def test_a_demo_with_a_kill_loses_nothing_and_the_other_worker_takes_over(
    redis_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flow: bool, orders: int
) -> None:
    monkeypatch.setenv("PATH", environment(redis_program)["PATH"])
    screen = Recorder()
    options = Options(
        orders=orders,
        refund_share=0.3,
        flow=flow,
        kill=True,
        seed=5,
        slots=4,
        folder=tmp_path.resolve(),
        settings=QUICK,
    )
    report, ending = run_demo(options, screen)
    data = report.as_data()
    assert (data["lost"], data["wrong"], report.checked.problems) == (0, 0, ())
    assert (data["orders"], data["refunded"]) == (orders, orders * 3 // 10)
    assert data["tickets_valid"] == data["pdf_files"] > 0
    assert data["tickets_void"] > 0
    assert data["recovery_s"] is not None
    assert ending.killed_held >= 1
    assert data["duplicate_runs"] >= 1, "what the killed worker ran has run again"
    assert ending.example is not None
    assert ending.example.read_bytes().startswith(b"%PDF-")
    assert {view.phase for view in screen.views} >= {"Opening the house", "On sale", "Checking every ticket"}
    assert processes_of(tmp_path.resolve()) == []
    assert (report.calls is not None) is flow
    if report.calls is not None:
        assert (report.calls.parked, report.calls.problems) == (0, ())
        assert orders <= report.calls.done < report.calls.steps


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Have no demo run; return what is asked of one."""
    found: list[Options] = []

    def run(options: Options, screen: object) -> tuple[Report, Ending]:
        found.append(options)
        (options.folder / "tickets").mkdir()
        return REPORT, ENDING

    monkeypatch.setattr("stagedoor.demo.runner.run_demo", run)
    monkeypatch.setattr("stagedoor.cli.demo.check_installed", lambda: None)
    return found


def test_json_is_one_object_on_stdout_and_nothing_else(
    asked: list[Options], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["demo", "--orders", "6", "--refund-share", "0.5", "--seed", "2", "--json"]) == 0
    out, _err = capsys.readouterr()
    assert list(json.loads(out)) == KEYS
    assert out.count("\n") == 1
    (options,) = asked
    assert (options.orders, options.refund_share, options.seed, options.kill) == (6, 0.5, 2, False)
    assert not options.flow
    assert not options.folder.exists(), "the folder of a demo for programs is not kept"


def test_the_folder_of_a_demo_for_people_is_kept(asked: list[Options], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["demo", "--kill", "--flow"]) == 0
    assert "Nothing lost, nothing wrong." in capsys.readouterr().out
    (options,) = asked
    assert (options.orders, options.refund_share, options.kill, options.flow) == (300, 0.2, True, True)
    assert options.folder.is_dir()
    shutil.rmtree(options.folder)


def test_a_folder_that_was_named_is_used_and_kept(asked: list[Options], tmp_path: Path) -> None:
    assert run_command(["demo", "--folder", str(tmp_path / "new" / "one"), "--json"]) == 0
    assert asked[0].folder == (tmp_path / "new" / "one").resolve()
    assert asked[0].folder.is_dir()


@pytest.mark.parametrize("count", ["lost", "wrong"])
def test_what_is_lost_or_wrong_makes_the_exit_code_1(monkeypatch: pytest.MonkeyPatch, count: str) -> None:
    checked = attrs.evolve(CHECKED, lost=int(count == "lost"), wrong=int(count == "wrong"))
    bad = attrs.evolve(REPORT, checked=checked)
    monkeypatch.setattr("stagedoor.demo.runner.run_demo", lambda options, screen: (bad, ENDING))
    monkeypatch.setattr("stagedoor.cli.demo.check_installed", lambda: None)
    assert run_command(["demo", "--json"]) == 1


def test_a_process_that_has_ended_by_itself_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: Options, screen: object) -> tuple[Report, Ending]:
        raise DemoFailed("worker-1 has ended with exit code 70: out of slots")

    monkeypatch.setattr("stagedoor.demo.runner.run_demo", run)
    monkeypatch.setattr("stagedoor.cli.demo.check_installed", lambda: None)
    assert run_command(["demo", "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "stagedoor: worker-1 has ended with exit code 70: out of slots\n"


@pytest.mark.process
@pytest.mark.redis
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_no_process_behind(
    redis_program: str, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path.resolve() / "demo"
    process = subprocess.Popen(
        [sys.executable, "-m", "stagedoor", "demo", "--folder", str(folder)],
        env=environment(redis_program),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while len(processes_of(folder / "tickets")) < 3:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        said, _ = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert processes_of(folder / "tickets") == []


def test_a_machine_without_a_redis_server_is_told_what_to_install(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "stagedoor", "demo"],
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "there is no redis-server and no valkey-server on PATH; install one" in run.stderr
    assert "Traceback" not in run.stderr


def test_an_installation_without_renderers_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    from stagedoor.cli.rehearsal import check_installed
    from stagedoor.errors import ConfigurationError

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    monkeypatch.setattr("stagedoor.broker.private_server.find_server", lambda: "/usr/bin/redis-server")
    with pytest.raises(ConfigurationError, match=r"pip install 'stagedoor\[tickets\]'"):
        check_installed()


@pytest.mark.parametrize("words", [("--orders", "0"), ("--refund-share", "1.5"), ("--folder", ".")])
def test_words_that_make_no_sense_are_refused_with_code_2(tmp_path: Path, words: tuple[str, str]) -> None:
    (tmp_path / "something").touch()
    run = subprocess.run(
        [sys.executable, "-m", "stagedoor", "demo", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 2, run.stderr
    assert words[0] in run.stderr
