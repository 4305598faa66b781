"""Flows are installed like handlers: by entry point or by module, one for each name."""

import sys
from pathlib import Path

import pytest

from stagedoor.cli.plugins import handler_kinds, load_flows, load_plugins
from stagedoor.errors import ConfigurationError

FLOW = """
import stagedoor

@stagedoor.flow("{name}")
def {function}(call):
    return 5
"""
HANDLER = """
import stagedoor

@stagedoor.handler("{name}")
def work(job, ctx):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(text)
    sys.modules.pop(name, None)
    return name


def test_flows_of_modules_and_of_entry_points_are_loaded(folder: Path) -> None:
    module = write(folder, "flows_of_a_shop", FLOW.format(name="close", function="close"))
    found = load_flows([module])
    assert found["close"].function(None) == 5
    assert "fulfil-order" in found, "the one that is installed with the product"
    assert "close" in handler_kinds([module])
    plugins = load_plugins([module], ticket_renderer="ticket-pdf")
    assert plugins.flows.keys() == found.keys()
    assert "close" not in plugins.handlers


def test_two_flows_or_a_flow_and_a_handler_of_one_name_are_refused(folder: Path) -> None:
    first = write(folder, "first_flow", FLOW.format(name="same", function="one"))
    second = write(folder, "second_flow", FLOW.format(name="same", function="two"))
    handler = write(folder, "a_handler", HANDLER.format(name="same"))
    with pytest.raises(ConfigurationError, match=r"first_flow.one and second_flow.two both take the kind 'same'"):
        load_flows([first, second])
    with pytest.raises(ConfigurationError, match=r"a_handler.work and first_flow.one both take the kind 'same'"):
        load_plugins([first, handler], ticket_renderer="ticket-pdf")
    assert load_flows([first, first])["same"].function(None) == 5
