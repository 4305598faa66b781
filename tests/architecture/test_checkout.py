"""What the files of the checkout may and may not say."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]

SESSIONS = ["demo", "tests", "redis", "lint", "types", "arch", "cover", "docs", "build", "bench", "onsale"]
DEFAULT_SESSIONS = ["tests", "lint", "types", "arch", "docs"]

REGISTRY_HOSTS = re.compile(rb"pypi[.]org|pythonhosted[.]org|npmjs[.](?:org|com)|(?:deb|security|ftp)[.]debian[.]org")


def files() -> list[Path]:
    """Return the files that belong to the repository, or in an unpacked sdist all that is no cache."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=False)
    if listed.returncode == 0:
        names = [CHECKOUT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
        return [path for path in names if path.is_file()]
    caches = {".nox", ".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "dist"}
    return [path for path in CHECKOUT.rglob("*") if path.is_file() and not caches.intersection(path.parts)]


def nox(*arguments: str) -> str:
    """Ask nox about the checkout, on the interpreter that runs this."""
    pytest.importorskip("nox", reason="nox comes with the dependency group lint")
    command = [sys.executable, "-m", "nox", "-f", str(CHECKOUT / "noxfile.py"), *arguments]
    environ = os.environ | {"STAGEDOOR_PYTHON": sys.executable, "NOX_SCRIPT_MODE": "none"}
    return subprocess.run(command, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=True).stdout


def test_no_file_names_a_package_registry() -> None:
    """A checkout has to work with whatever index and mirror its machine is set up for."""
    named = [path for path in files() if REGISTRY_HOSTS.search(path.read_bytes())]
    assert named == []


def test_there_is_no_lock_file_that_would_name_one() -> None:
    assert not [path for path in files() if path.name in {"uv.lock", "poetry.lock", "pdm.lock"}]


def test_the_sessions_are_those_of_the_guides_each_with_a_line_that_says_what_it_does() -> None:
    listed = re.findall(r"^[*-] (\w+) -> \S.*$", nox("-l"), flags=re.MULTILINE)
    assert listed == SESSIONS


def test_the_sessions_name_their_interpreter_by_its_path() -> None:
    """By its name alone an interpreter that is not on PATH would be skipped without an error."""
    text = (CHECKOUT / "noxfile.py").read_text("utf-8")
    assert text.count("@nox.session(python=PYTHON") == text.count("@nox.session") == len(SESSIONS)


def test_the_sessions_that_run_by_themselves_are_the_checks() -> None:
    marked = re.findall(r"^\* (\w+)", nox("-l"), flags=re.MULTILINE)
    assert marked == DEFAULT_SESSIONS


def test_every_declared_dependency_is_held_by_the_constraints() -> None:
    lines = (CHECKOUT / "constraints.txt").read_text("utf-8").splitlines()
    held = {
        name.strip().lower().replace("_", "-") for name, equals, _ in (line.partition("==") for line in lines) if equals
    }
    wanted = set()
    for path in ("pyproject.toml", "renderers/pyproject.toml"):
        project = tomllib.loads((CHECKOUT / path).read_text("utf-8"))
        groups = [
            project["project"]["dependencies"],
            *project["project"].get("optional-dependencies", {}).values(),
            *project.get("dependency-groups", {}).values(),
            project["build-system"]["requires"],
        ]
        names = {
            re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")
            for group in groups
            for requirement in group
        }
        wanted |= names
    assert wanted - held == {"stagedoor", "stagedoor-renderers"}


def test_no_dependency_turns_the_gil_back_on() -> None:
    culprits = re.compile(r"\b(hiredis|uharfbuzz|lxml|pymupdf)\b", flags=re.IGNORECASE)
    constraints = (CHECKOUT / "constraints.txt").read_text("utf-8")
    assert culprits.findall(constraints) == []


def test_both_distributions_have_one_version_and_pin_each_other() -> None:
    main = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    renderers = tomllib.loads((CHECKOUT / "renderers/pyproject.toml").read_text("utf-8"))["project"]
    assert main["version"] == renderers["version"]
    assert main["optional-dependencies"]["tickets"] == [f"stagedoor-renderers=={main['version']}"]
    assert f"stagedoor=={main['version']}" in renderers["dependencies"]


def test_every_ignored_rule_has_its_reason() -> None:
    text = (CHECKOUT / "pyproject.toml").read_text("utf-8")
    block = text[text.index("[tool.ruff.lint]") : text.index("[tool.ruff.lint.pydocstyle]")]
    rules = [line for line in block.splitlines() if re.match(r'\s+"[A-Z]+\d*",', line)]
    assert rules
    assert [line for line in rules if not re.search(r",\s+# \S+", line)] == []


@pytest.mark.parametrize("name", ["LICENSE", "renderers/LICENSE"])
def test_each_distribution_brings_the_licence(name: str) -> None:
    assert "Stagedoor contributors" in (CHECKOUT / name).read_text("utf-8")
