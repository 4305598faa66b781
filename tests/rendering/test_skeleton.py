"""A renderer of one's own: the skeleton is a package whose test passes as it stands."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stagedoor.errors import ConfigurationError
from stagedoor_renderers.skeleton import new_renderer


def test_the_skeleton_conforms_as_it_stands(tmp_path: Path) -> None:
    folder = new_renderer("house-ticket", parent=tmp_path)
    quick = ["-k", "not another_process and not eight_threads"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *quick],
        cwd=folder,
        env={"PYTHONPATH": ":".join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout


def test_the_skeleton_has_an_entry_point_of_its_name(tmp_path: Path) -> None:
    folder = new_renderer("house-ticket", parent=tmp_path)
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["stagedoor.renderers"] == {"house-ticket": "house_ticket:HouseTicket"}


@pytest.mark.parametrize("name", ["House", "house ticket", "1st", "a--b", "../x", "", "x" * 65, "house_ticket"])
def test_a_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be called"):
        new_renderer(name, parent=tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    new_renderer("house-ticket", parent=tmp_path)
    with pytest.raises(ConfigurationError, match="is there already"):
        new_renderer("house-ticket", parent=tmp_path)
