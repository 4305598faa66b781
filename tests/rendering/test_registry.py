"""Finding renderers: what is wrong with a plugin is known at start, by name, all at once."""

import importlib.metadata
import subprocess
import sys
import sysconfig
import tempfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import ConfigurationError, RendererNotFound
from stagedoor.rendering import registry as module
from stagedoor.rendering.api import Check, RenderRequest
from stagedoor.rendering.candidates import Candidate
from stagedoor.rendering.registry import check_candidates, load_renderers, names_in_use


class Plain:
    """A renderer that keeps the contract."""

    content_type = "text/plain"
    suffix = ".txt"
    version = "1"

    def __init__(self, name: str = "plain") -> None:
        self.name = name
        self.warmed = 0

    def fingerprint(self) -> str:
        return "f"

    def warm_up(self) -> None:
        self.warmed += 1

    def render(self, request: RenderRequest, check: Check) -> bytes:
        return b"ticket"


def candidate(
    *found: Any, expected: str | None = None, distribution: str = "some-plugin", load: Any = None
) -> Candidate:
    return Candidate(
        source="entry point plain = some_plugin:Plain",
        distribution=distribution,
        distribution_version="1.2",
        load=load or (lambda: list(found)),
        expected=expected,
    )


def problems_of(call: Callable[[], Any]) -> Sequence[str]:
    with pytest.raises(ConfigurationError) as caught:
        call()
    return caught.value.problems


def check(*candidates: Candidate, gil: Sequence[bool] = ()) -> module.Registry:
    answers = iter(gil)
    return check_candidates(candidates, gil_is_enabled=lambda: next(answers, False), free_threaded_build=True)


def test_a_renderer_is_found_by_its_name_and_listed_with_its_distribution() -> None:
    plain = Plain()
    found = check(candidate(plain, expected="plain"))
    assert found.get("plain") is plain
    (item,) = found.list()
    assert (item.name, item.version, item.distribution, item.distribution_version) == (
        "plain",
        "1",
        "some-plugin",
        "1.2",
    )
    assert (item.content_type, item.suffix) == ("text/plain", ".txt")


def test_an_unknown_name_says_what_is_installed_and_what_to_install() -> None:
    with pytest.raises(RendererNotFound, match=r"ticket-pdf; installed: plain\..*pip install stagedoor-renderers"):
        check(candidate(Plain())).get("ticket-pdf")


def test_an_import_that_fails_names_the_distribution_and_the_reason() -> None:
    def load() -> list[Any]:
        raise ModuleNotFoundError("No module named 'weasyprint'")

    (problem,) = problems_of(lambda: check(candidate(load=load)))
    assert "some-plugin 1.2 (entry point plain = some_plugin:Plain) could not be loaded" in problem
    assert "ModuleNotFoundError: No module named 'weasyprint'" in problem


@pytest.mark.parametrize(
    "error, said",
    [
        (ModuleNotFoundError("No module named 'x'"), "; install what it needs, or uninstall it"),
        (FileNotFoundError(2, "No such file", "shop.pem"), "; let it find and read the file that it needs, or un"),
        (SyntaxError("invalid syntax"), "SyntaxError: invalid syntax; this is a fault in it: have it mended, or unin"),
    ],
)
def test_what_to_do_about_a_plugin_that_cannot_be_loaded_fits_the_reason(error: Exception, said: str) -> None:
    def load() -> list[Any]:
        raise error

    (problem,) = problems_of(lambda: check(candidate(load=load)))
    assert said in problem


def test_a_set_up_that_is_wrong_is_told_in_the_plugins_own_words() -> None:
    """Such as a key that is not where it should be: nothing is to be installed, and nothing to be uninstalled."""

    def load() -> list[Any]:
        raise ConfigurationError(["shop.pem cannot be read", "door.pem cannot be read"])

    where = "some-plugin 1.2 (entry point plain = some_plugin:Plain) could not be loaded"
    problems = problems_of(lambda: check(candidate(load=load)))
    assert problems == (f"{where}: shop.pem cannot be read", f"{where}: door.pem cannot be read")


def test_what_a_plugin_says_is_told_within_bounds() -> None:
    def load() -> list[Any]:
        raise ConfigurationError([f"{number} " + "x" * 100_000 for number in range(10_000)])

    problems = problems_of(lambda: check(candidate(load=load)))
    assert len(problems) == 21
    assert problems[-1].endswith("9980 more problems")
    assert sum(map(len, problems)) < 30_000


def test_a_module_that_cannot_be_loaded_is_taken_out_of_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def renderers() -> list[Any]:
        raise FileNotFoundError(2, "No such file", "shop.pem")

    (problem,) = problems_of(lambda: load_renderers([plugin_module(monkeypatch, renderers=renderers)]))
    assert problem.endswith("let it find and read the file that it needs, or take it out of the setting plugins")


def test_a_plugin_that_exits_while_it_is_imported_does_not_end_the_worker() -> None:
    def load() -> list[Any]:
        sys.exit(3)

    (problem,) = problems_of(lambda: check(candidate(load=load)))
    assert "SystemExit: 3" in problem


def test_two_plugins_with_one_name_are_both_named() -> None:
    (problem,) = problems_of(
        lambda: check(candidate(Plain(), distribution="first"), candidate(Plain(), distribution="second"))
    )
    assert "renderer plain is there 2 times: first 1.2" in problem
    assert "and second 1.2" in problem


def test_a_plugin_that_turned_the_gil_on_is_named() -> None:
    (problem,) = problems_of(lambda: check(candidate(Plain()), gil=[False, False, True]))
    assert problem.startswith("some-plugin 1.2")
    assert "turned the GIL on" in problem


def test_the_module_that_turned_the_gil_on_is_named_from_the_interpreters_warning() -> None:
    def load() -> list[Any]:
        import warnings

        warnings.warn(
            "The global interpreter lock (GIL) has been enabled to load module 'uharfbuzz._harfbuzz', which has not "
            "declared that it can run safely without the GIL.",
            RuntimeWarning,
            stacklevel=1,
        )
        return [Plain()]

    (problem,) = problems_of(lambda: check(candidate(load=load), gil=[False, False, True]))
    assert "module uharfbuzz._harfbuzz is not built for free-threaded Python" in problem


def test_an_ordinary_interpreter_is_a_note_not_an_error() -> None:
    found = check_candidates([candidate(Plain())], gil_is_enabled=lambda: True, free_threaded_build=False)
    assert len(found.notes) == 1
    assert "python3.14t" in found.notes[0]


def test_a_gil_that_was_on_before_is_a_note_not_blamed_on_a_plugin() -> None:
    found = check_candidates([candidate(Plain())], gil_is_enabled=lambda: True, free_threaded_build=True)
    assert "PYTHON_GIL" in found.notes[0]


@pytest.mark.parametrize(
    "attribute, value, said",
    [
        ("name", "Plain Text", "Plain.name must be lower-case letters"),
        ("name", "", "Plain.name must be"),
        ("version", 1, "Plain.version must be text that is not empty, found 1"),
        ("content_type", "pdf", "Plain.content_type must be a media type"),
        ("suffix", "txt", "Plain.suffix must be a dot"),
        ("render", lambda request: b"", "Plain.render() must take 2 arguments"),
        ("warm_up", None, "Plain has no method warm_up()"),
        ("fingerprint", "f", "Plain has no method fingerprint()"),
    ],
)
def test_a_breach_of_the_contract_names_the_attribute_and_what_was_found(attribute: str, value: Any, said: str) -> None:
    broken = Plain()
    setattr(broken, attribute, value)
    problems = problems_of(lambda: check(candidate(broken)))
    assert any(said in problem and problem.startswith("some-plugin 1.2") for problem in problems), problems


def test_an_entry_point_must_have_the_name_of_its_renderer() -> None:
    (problem,) = problems_of(lambda: check(candidate(Plain("other"), expected="plain")))
    assert "the entry point is called plain, the renderer other" in problem


def test_all_problems_are_told_at_once() -> None:
    broken = Plain()
    broken.suffix = "txt"
    broken.version = ""

    def load() -> list[Any]:
        raise OSError("disk")

    assert len(problems_of(lambda: check(candidate(broken), candidate(load=load)))) == 3


def test_no_renderer_at_all_says_where_it_looked_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    (problem,) = problems_of(load_renderers)
    assert "no renderer is installed" in problem
    assert "stagedoor.renderers" in problem
    assert "pip install stagedoor-renderers" in problem
    assert load_renderers(allow_none=True).list() == ()


def plugin_module(monkeypatch: pytest.MonkeyPatch, **content: Any) -> str:
    made = types.ModuleType("a_plugin_module")
    vars(made).update(content)
    monkeypatch.setitem(sys.modules, "a_plugin_module", made)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    return "a_plugin_module"


def test_a_module_may_bring_renderers_by_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    name = plugin_module(monkeypatch, renderers=lambda: [Plain(), Plain("second")])
    assert [item.name for item in load_renderers([name]).list()] == ["plain", "second"]


def test_a_module_may_bring_renderers_by_a_tuple_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    name = plugin_module(monkeypatch, RENDERERS=(Plain,))
    assert [item.name for item in load_renderers([name]).list()] == ["plain"]


def test_a_module_without_renderers_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    name = plugin_module(monkeypatch)
    (problem,) = problems_of(lambda: load_renderers([name]))
    assert "neither a function renderers() nor a tuple RENDERERS" in problem


def test_a_module_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin_module(monkeypatch)
    (problem,) = problems_of(lambda: load_renderers(["no_such_module"]))
    assert "module no_such_module" in problem


def test_a_distribution_that_is_found_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value, dist = "plain", "some_plugin:Plain", None

        def load(self) -> Any:
            return Plain

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: (Point(), Point()))
    assert len(load_renderers().list()) == 1


def test_warming_up_reaches_every_renderer_once() -> None:
    first, second = Plain(), Plain("second")
    check(candidate(first, second)).warm_up()
    assert (first.warmed, second.warmed) == (1, 1)


def test_renderers_that_fail_to_warm_up_are_all_named() -> None:
    def fail() -> None:
        raise FileNotFoundError("font file lato/Lato-Regular.ttf cannot be read")

    first, second = Plain(), Plain("second")
    first.warm_up = second.warm_up = fail  # type: ignore[method-assign] # both fail
    problems = problems_of(check(candidate(first, second)).warm_up)
    assert len(problems) == 2
    assert "renderer plain of some-plugin 1.2 failed to warm up" in problems[0]
    assert "lato/Lato-Regular.ttf" in problems[0]


def test_all_that_is_wrong_with_a_set_up_is_told_when_it_fails_to_warm_up() -> None:
    def fail() -> None:
        raise ConfigurationError(["layout stalls.toml, box 2: no such colour", "layout stalls.toml, box 4: too small"])

    plain = Plain()
    plain.warm_up = fail  # type: ignore[method-assign] # it fails
    where = "renderer plain of some-plugin 1.2 failed to warm up"
    assert problems_of(check(candidate(plain)).warm_up) == (
        f"{where}: layout stalls.toml, box 2: no such colour",
        f"{where}: layout stalls.toml, box 4: too small",
    )


def test_names_are_in_use_that_are_published_or_that_a_module_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value, dist = "published", "not_there:Plain", None

    name = plugin_module(monkeypatch, RENDERERS=(Plain,))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: (Point(),))
    assert names_in_use([name, "not_there"]) == {"published", "plain"}


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has a GIL")
def test_the_built_in_renderers_keep_the_gil_off() -> None:
    """In a process of its own: here another test may have imported anything."""
    code = """
import sys
from stagedoor.rendering.registry import load_renderers
registry = load_renderers(["plugin_under_test"])
registry.warm_up()
print(sys._is_gil_enabled(), len(registry.list()))
"""
    module = """
from stagedoor_renderers.receipt_pdf import ReceiptPdf
from stagedoor_renderers.ticket_pass import TicketPass
from stagedoor_renderers.ticket_pdf import TicketPdf
from stagedoor_renderers.ticket_text import TicketHtml, TicketText
import importlib.metadata
importlib.metadata.entry_points = lambda group: ()
RENDERERS = (TicketPdf, ReceiptPdf, TicketText, TicketHtml, TicketPass)
"""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plugin_under_test.py").write_text(module, encoding="utf-8")
        preloaded = f"import plugin_under_test\n{code}"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", preloaded],
            env={"PYTHONPATH": ":".join([folder, *sys.path])},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.strip() == "False 5", done.stderr


def test_an_empty_fingerprint_is_refused() -> None:
    plain = Plain()
    plain.fingerprint = lambda: ""  # type: ignore[method-assign] # the breach
    (problem,) = problems_of(check(candidate(plain)).warm_up)
    assert "fingerprint() must return a string that is not empty" in problem
