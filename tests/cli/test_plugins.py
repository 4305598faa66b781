"""Handlers and renderers are found, and what is wrong with them is said at once, by name."""

import importlib.metadata
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from stagedoor.cli import plugins
from stagedoor.cli.app import run
from stagedoor.cli.plugins import gil_notes, is_gil_turned_on, load_plugins, recorded_gil_warnings
from stagedoor.errors import ConfigurationError

type Install = Callable[..., None]
type WriteModule = Callable[[str, str], str]

HANDLER = """
    import stagedoor
    @stagedoor.handler("{kind}", attempts=3)
    def work(job, ctx): ...
"""
RENDERER = """
    class Drawer:
        name, version, content_type, suffix = "{name}", "1", "text/plain", ".txt"
        def fingerprint(self): return "f"
        def warm_up(self): pass
        def render(self, request, check): return b"x"
    RENDERERS = (Drawer,)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteModule:
    """Write a module that can be imported, and forget it afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return write


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put other entry points in the place of those that are installed."""

    def install(*, handlers: Sequence[str] = (), renderers: Sequence[str] = ()) -> None:
        groups = {"stagedoor.handlers": handlers, "stagedoor.renderers": renderers}

        def entry_points(*, group: str) -> list[EntryPoint]:
            return [EntryPoint(value.rpartition(":")[2], value, group) for value in groups[group]]

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)

    return install


def problems_of(modules: Sequence[str] = (), **options: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load_plugins(modules, ticket_renderer=options.pop("ticket_renderer", "ticket-pdf"), **options)
    return list(caught.value.problems)


def test_the_shops_own_handlers_and_renderers_are_found_through_their_entry_points() -> None:
    found = load_plugins((), ticket_renderer="ticket-pdf")
    assert {"render_tickets", "refund_order"} <= found.handlers.keys()
    assert "ticket-pdf" in [item.name for item in found.registry.list()]


def test_a_module_of_the_setting_brings_handlers_and_renderers(installed: Install, module: WriteModule) -> None:
    installed()
    both = module("brings_both", textwrap.dedent(HANDLER.format(kind="k")) + textwrap.dedent(RENDERER.format(name="n")))
    found = load_plugins((both,), ticket_renderer="ticket-pdf")
    assert {kind: spec.attempts for kind, spec in found.handlers.items()} == {"k": 3}
    assert [item.name for item in found.registry.list()] == ["n"]


def test_a_worker_without_the_tickets_handler_needs_no_renderer(installed: Install, module: WriteModule) -> None:
    installed()
    assert load_plugins((module("only_k", HANDLER.format(kind="k")),), ticket_renderer="x").handlers.keys() == {"k"}


def test_without_any_handler_the_installation_is_not_whole(installed: Install) -> None:
    installed()
    [problem] = problems_of()
    assert "no handlers are installed" in problem
    assert "pip install ." in problem


def test_without_a_renderer_the_package_to_install_is_named(installed: Install) -> None:
    installed(handlers=["stagedoor.handlers.render_tickets:render_tickets"])
    [problem] = problems_of()
    assert problem == (
        "no renderer is installed, so there is nothing to draw tickets with; pip install 'stagedoor[tickets]'"
    )


def test_a_ticket_renderer_that_is_not_installed_is_named_with_those_that_are() -> None:
    [problem] = problems_of(ticket_renderer="ticket-pfd")
    assert "ticket_renderer: no renderer is called 'ticket-pfd'; installed: " in problem
    assert "ticket-pdf" in problem


def test_all_that_is_wrong_with_plugins_is_said_at_once(installed: Install, module: WriteModule) -> None:
    installed(handlers=["not_there:work"], renderers=["not_there_either:Drawer"])
    names = [
        module("raises_at_import", "raise RuntimeError('no\\nluck')"),
        module("exits_at_import", "raise SystemExit(3)"),
        module("holds_nothing", "x = 1"),
        module("first_of_two", HANDLER.format(kind="k")),
        module("second_of_two", HANDLER.format(kind="k")),
        module("draws", RENDERER.format(name="same")),
        module("draws_too", RENDERER.format(name="same")),
    ]
    said = "\n".join(problems_of([*names, "is_missing"]))
    for part in (
        "unknown package (entry point work = not_there:work) could not be imported: ModuleNotFoundError",
        r"the module raises_at_import could not be imported: RuntimeError: no\nluck",
        "the module exits_at_import could not be imported: SystemExit: 3",
        "the module holds_nothing has no handler and no renderer",
        "first_of_two.work and second_of_two.work both take the kind 'k'",
        "the module is_missing could not be imported: ModuleNotFoundError: No module named 'is_missing'",
        "(entry point Drawer = not_there_either:Drawer) could not be loaded",
        "renderer same is there 2 times",
    ):
        assert part in said, f"{part}\nis not in\n{said}"


def test_what_to_do_about_a_module_that_cannot_be_imported_fits_the_reason(
    installed: Install, module: WriteModule
) -> None:
    installed()
    wrong = "from stagedoor.errors import ConfigurationError\nraise ConfigurationError(['shop.pem is not there'])"
    names = [
        module("lacks_a_package", "import not_there"),
        module("lacks_a_file", "open('/not/there')"),
        module("has_a_fault", "1 / 0"),
        module("has_a_key_missing", wrong),
    ]
    said = {line.split()[3]: line for line in problems_of(names) if "could not be imported" in line}
    assert said["lacks_a_package"].endswith("; install what it needs, or take it out")
    assert said["lacks_a_file"].endswith("; let it find and read the file that it needs, or take it out")
    assert said["has_a_fault"].endswith("; this is a fault in it: have it mended, or take it out")
    assert said["has_a_key_missing"].endswith("could not be imported: shop.pem is not there")


def test_a_function_that_two_modules_show_is_one_handler(installed: Install, module: WriteModule) -> None:
    installed()
    module("defines_it", HANDLER.format(kind="k"))
    found = load_plugins(("defines_it", module("imports_it", "from defines_it import work")), ticket_renderer="x")
    assert found.handlers.keys() == {"k"}


# -- the GIL ------------------------------------------------------------------------


@pytest.fixture
def gil(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Say whether the GIL is on, on a build that can do without it."""
    monkeypatch.setattr(plugins, "_can_do_without", lambda: True)
    monkeypatch.setattr(plugins, "_is_asked_for", lambda: False)

    def say(is_on: bool) -> None:
        monkeypatch.setattr(plugins, "_is_gil_enabled", lambda: is_on)

    say(False)
    return say


WARNING = (
    "The global interpreter lock (GIL) has been enabled to load module 'redis.speedups', "
    "which has not declared that it can run safely without the GIL."
)


def test_a_plugin_that_turns_the_gil_on_is_named(
    installed: Install, module: WriteModule, gil: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed()
    name = module(
        "turns_it_on",
        f"import warnings; warnings.warn({WARNING!r}, RuntimeWarning)\n" + textwrap.dedent(HANDLER.format(kind="k")),
    )
    gil(True)
    [problem] = problems_of((name,))
    assert "the GIL is on: the package redis " in problem
    assert "(module redis.speedups) is not built for free-threaded Python" in problem


def test_a_module_that_turned_the_gil_on_before_plugins_were_loaded_is_named(
    installed: Install, module: WriteModule, gil: Callable[[bool], None]
) -> None:
    installed()
    gil(True)
    [problem] = problems_of((module("harmless", HANDLER.format(kind="k")),), gil_culprits=["redis.speedups"])
    assert "module redis.speedups" in problem


def test_other_warnings_are_shown_as_ever() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with recorded_gil_warnings() as culprits:
            warnings.warn("of another kind", UserWarning, stacklevel=1)
            warnings.warn(WARNING, RuntimeWarning, stacklevel=1)
    assert [str(item.message) for item in caught] == ["of another kind"]
    assert culprits == ["redis.speedups"]


def test_an_ordinary_build_is_told_once_what_it_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_can_do_without", lambda: False)
    monkeypatch.setattr(plugins, "_is_gil_enabled", lambda: True)
    [note] = gil_notes()
    assert "eight render threads do the work of one" in note
    assert "python3.14t" in note
    assert not is_gil_turned_on()


def test_a_gil_that_was_asked_for_is_no_fault(gil: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch) -> None:
    gil(True)
    assert is_gil_turned_on()
    monkeypatch.setattr(plugins, "_is_asked_for", lambda: True)
    assert not is_gil_turned_on()
    assert "PYTHON_GIL" in gil_notes()[0]


# -- the command ---------------------------------------------------------------------


def test_renderers_are_listed_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["renderers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "version", "type", "package", "found", "through"]
    assert any(line.startswith("ticket-pdf") and "application/pdf" in line for line in lines)
    assert run(["renderers", "--json"]) == 0
    assert '"name": "ticket-pdf"' in capsys.readouterr().out


def test_no_renderer_at_all_is_an_answer_and_says_what_to_install(
    installed: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    installed()
    assert run(["renderers"]) == 0
    assert "pip install 'stagedoor[tickets]'" in capsys.readouterr().out
    assert run(["renderers", "--json"]) == 0
    assert capsys.readouterr().out == '{"renderers": []}\n'


def test_a_renderer_that_cannot_be_loaded_is_named(installed: Install, capsys: pytest.CaptureFixture[str]) -> None:
    installed(renderers=["not_there:Drawer"])
    assert run(["renderers"]) == 2
    assert "entry point Drawer = not_there:Drawer" in capsys.readouterr().err
