"""``flow check``: whether code fits the histories of calls, with nothing but the code and the histories."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import stagedoor
from stagedoor.cli.app import run
from stagedoor.core.history_data import data_of
from tests.flows.support import World

NEXT = """
import stagedoor

@stagedoor.flow("close-order")
def close_order(call):
    opened = call.memo("opened", float, 1)
{body}
"""
SAME = """
    with open("/dev/null"):
        call.step("reserve", print, opened)
    call.wait_signal("paid")
    call.step("new", print)
"""
RENAMED = """
    call.step("hold", print, opened)
    call.wait_signal("paid")
"""


@attrs.frozen
class Said:
    """What the command said, and its exit code."""

    code: int
    out: str
    err: str


type Check = Callable[..., Said]


@stagedoor.flow("close-order")
def close_order(call: Any) -> None:
    opened = call.memo("opened", float, 1)
    call.step("reserve", str, opened)
    call.wait_signal("paid")


@pytest.fixture(scope="module")
def history() -> dict[str, Any]:
    """What ``flow show --json`` prints of a call that waits."""
    world = World(close_order)
    world.start("close-order")
    world.run()
    return data_of(world.show())


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Run ``flow check`` with this code, where there is no Redis and no order book."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STAGEDOOR_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("STAGEDOOR_ORDERS_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    monkeypatch.chdir(tmp_path)

    def call(body: str, *words: object) -> Said:
        module = f"code_{abs(hash((body, str(tmp_path))))}"
        (tmp_path / f"{module}.py").write_text(NEXT.format(body=body))
        code = run(["flow", "check", "--plugins", module, *map(str, words)])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Said(code, said.out, said.err)

    return call


def written(path: Path, *histories: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, histories)))
    return path


def test_code_that_fits_fits_and_what_runs_again_is_warned_of_once(
    check: Check, tmp_path: Path, history: dict[str, Any]
) -> None:
    path = written(tmp_path / "waiting.json", history, history | {"id": "c2"})
    said = check(SAME, path)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == f"✓ {path}: call c1 of close-order fits"
    assert ".py:8: `with` around a suspension is left at each one" in lines[1]
    assert lines[2:] == [f"✓ {path}: call c2 of close-order fits", "", "2 histories: all fit"]


def test_code_that_does_not_fit_is_shown_with_both_histories(
    check: Check, tmp_path: Path, history: dict[str, Any]
) -> None:
    said = check(RENAMED, written(tmp_path / "c1.json", history), "--json")
    assert (said.code, said.out.count("\n")) == (1, 1)
    [one] = json.loads(said.out)["histories"]
    [finding] = one["findings"]
    assert (one["id"], one["flow"], one["fits"], finding["level"]) == ("c1", "close-order", False, "misfit")
    assert "expected 2. step 'reserve', got 2. step 'hold'" in finding["text"]
    assert "recorded: 1. memo 'opened', 2. step 'reserve', 3. signal 'paid'; this code made:" in finding["text"]
    assert "1 of 1 no longer fit" in check(RENAMED, tmp_path / "c1.json").out


def test_a_history_of_a_flow_that_is_gone_does_not_fit(check: Check, tmp_path: Path, history: dict[str, Any]) -> None:
    said = check(SAME, written(tmp_path / "c1.json", history | {"flow": "open-order"}))
    assert said.code == 1
    assert "✗ no flow 'open-order' is installed here" in said.out


def test_a_folder_is_its_json_files_in_order(check: Check, tmp_path: Path, history: dict[str, Any]) -> None:
    (tmp_path / "kept" / "deep").mkdir(parents=True)
    written(tmp_path / "kept" / "b.jsonl", history | {"id": "b"})
    written(tmp_path / "kept" / "deep" / "c.json", history | {"id": "c"})
    written(tmp_path / "kept" / "a.json", history | {"id": "a"})
    (tmp_path / "kept" / "README.md").write_text("no history")
    said = check(SAME, tmp_path / "kept", "--json")
    assert [one["id"] for one in json.loads(said.out)["histories"]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "content,said",
    [
        (b"", "no history was found"),
        (b"[]", "a history: expected an object, found []"),
        (b'{"id": "c1", "found": false}', "places: expected a list, found None"),
        (b"{oops", "no JSON as 'flow show --json' prints it"),
        (b"[" * 200_000, "no JSON as 'flow show --json' prints it"),
        (b"\xff", "cannot be read"),
    ],
)
def test_what_is_no_history_is_one_message(check: Check, tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    refused = check(SAME, path)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err.splitlines()[-1]


def test_a_path_that_is_not_there_is_one_message(check: Check) -> None:
    assert "does not exist" in check(SAME, "nowhere.json").err
    assert check(SAME).code == 2
