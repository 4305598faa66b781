"""The pytest plugin: it costs next to nothing until it is asked for, and gives other projects the replays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


def test_the_plugin_loads_neither_trio_nor_redis_nor_sql_nor_a_renderer() -> None:
    """Every pytest run of every project with Stagedoor installed imports it."""
    code = "import sys, stagedoor.testing.plugin; print('\\n'.join(sys.modules))"
    path = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert not loaded & {
        "trio",
        "redis",
        "sqlalchemy",
        "reportlab",
        "rich",
        "click",
        "structlog",
        "stagedoor_renderers",
    }


PROJECT = """
from pathlib import Path

import pytest

def test_a_good_case(stagedoor_replay):
    results = stagedoor_replay(Path("good"), shuffle=1)
    assert [result.seed for result in results] == [None, 1]

def test_a_bad_case(stagedoor_replay):
    stagedoor_replay("bad", shuffle=0)
"""

CONFTEST = '''
import pytest
import stagedoor
from stagedoor.core.handler import by_kind, spec_of
from stagedoor.replay import Parts

@stagedoor.handler("render_tickets")
def do_nothing(job, ctx):
    """Cost nothing: the plugin is under test here, not what it plays."""

@pytest.fixture(scope="session")
def stagedoor_parts():
    return lambda book: Parts(handlers=by_kind([spec_of(do_nothing)]), make_context=lambda job, held: None)
'''

ORDER = {
    "order_id": 7,
    "event": {"name": "Hamlet", "venue": "Globe", "starts_at": "2026-07-01T18:00:00Z", "tz": "Europe/London"},
    "locale": "en-GB",
    "currency": "GBP",
    "buyer": "Zoë",
    "positions": [{"id": 1, "holder": "Zoë", "category": "Yard", "amount_minor": 1000}],
}
ENTRY = {"entry": {"kind": "render_tickets", "order_id": "7", "outbox_id": "1", "request_id": "", "trace": ""}}


def write_fixture(folder: Path, *, status: str) -> None:
    folder.mkdir()
    (folder / "orders.jsonl").write_text(json.dumps(ORDER), "utf-8")
    (folder / "entries.jsonl").write_text(json.dumps(ENTRY), "utf-8")
    expected = {"orders": {"7": {"status": status, "valid": [], "void": 0}}}
    (folder / "expected.json").write_text(json.dumps(expected), "utf-8")


@pytest.mark.redis
@pytest.mark.process
def test_another_project_gets_the_fixture_from_the_installed_plugin(redis_program: str, tmp_path: Path) -> None:
    write_fixture(tmp_path / "good", status="placed")
    write_fixture(tmp_path / "bad", status="refunded")
    (tmp_path / "test_shop.py").write_text(PROJECT, "utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST, "utf-8")
    path = os.pathsep.join([str(Path(redis_program).parent), os.environ.get("PATH", os.defpath)])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", "test_shop.py"],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    assert "bad, as given: order 7: status: expected refunded, found placed" in run.stdout
