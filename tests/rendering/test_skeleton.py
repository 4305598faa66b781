"""A renderer of one's own: the skeleton is a package whose test passes as it stands."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import ConfigurationError, InvalidRequest
from stagedoor.rendering.pool import RenderPool
from stagedoor_renderers.skeleton import new_renderer
from tests.rendering.orders import named
from tests.rendering.test_pool import registry


def test_the_skeleton_conforms_as_it_stands(tmp_path: Path) -> None:
    folder = new_renderer("house-ticket", parent=tmp_path)
    quick = ["-k", "not another_process and not eight_threads"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *quick, folder.name],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout


def test_the_skeleton_has_an_entry_point_of_its_name(tmp_path: Path) -> None:
    folder = new_renderer("house-ticket", parent=tmp_path)
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["stagedoor.renderers"] == {"house-ticket": "house_ticket:HouseTicket"}


@pytest.mark.parametrize(
    "name",
    ["House", "house ticket", "1st", "a--b", "../x", "", "x" * 65, "house_ticket", "house\n", "häuser", "a-", "-a"],
)
def test_a_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be called .* lower-case letters, digits and single dashes"):
        new_renderer(name, parent=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name, why",
    [
        ("class", "class is a word of Python"),
        ("none", "None is a word of Python"),
        ("json", "json is a module of Python's standard library"),
        ("test", "test is a module of Python's standard library"),
        ("stagedoor", "a module stagedoor can be imported here already"),
        ("stagedoor-renderers", "a module stagedoor_renderers can be imported here already"),
        ("reportlab", "a module reportlab can be imported here already"),
        ("pillow", "a package of that name is installed here"),
        ("ticket-png", "there is a renderer of that name"),
        ("stalls-ticket", "there is a renderer of that name"),
        ("tests", "what the package is made of has that name already"),
        ("sheet", "what the package is made of has that name already"),
        ("render-request", "what the package is made of has that name already"),
        ("subject", "what the package is made of has that name already"),
    ],
)
def test_a_name_that_something_else_has_is_refused_with_the_reason(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"a renderer cannot be called '{name}': {why}"):
        new_renderer(name, parent=tmp_path, taken={"stalls-ticket"})
    assert not list(tmp_path.iterdir())


def test_a_mere_folder_takes_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stalls").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert new_renderer("stalls", parent=tmp_path / "stalls").is_dir()


@pytest.fixture
def skeleton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The renderer of a new package."""
    monkeypatch.syspath_prepend(new_renderer("house-ticket", parent=tmp_path))
    yield importlib.import_module("house_ticket").HouseTicket()
    del sys.modules["house_ticket"]


def test_the_skeleton_names_the_fields_that_it_could_not_draw_and_does_not_quote_them(skeleton: Any) -> None:
    request = named("Zoë 🎉 Šimková")
    assert skeleton.notes(request) == ("position.holder: 1 replaced by a mark, for no font here draws them",)
    assert skeleton.notes(named("Zoë Šimková")) == ()


def test_the_setting_refuses_what_the_skeleton_could_not_draw(skeleton: Any) -> None:
    pool = RenderPool(registry(skeleton), refuse_incomplete=True)
    assert pool.render("house-ticket", named("Zoë")).content.startswith(b"%PDF-")
    with pytest.raises(InvalidRequest, match=r"position\.holder: 1 replaced"):
        pool.render("house-ticket", named("Zoë 🎉"))


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    new_renderer("house-ticket", parent=tmp_path)
    with pytest.raises(ConfigurationError, match="is there already"):
        new_renderer("house-ticket", parent=tmp_path)
