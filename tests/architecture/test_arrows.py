"""The imports run one way: each contract holds, and each would notice what it forbids."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter comes with the dependency group lint")

CHECKOUT = Path(__file__).parents[2]

SEEDED = "breaks_the_rule"
"""The name of the module that is put into a copy of each package."""

FORBIDDEN = [
    # contract's name, package that gets the module, what the module imports
    ("Arrows run one way", "stagedoor.broker", "stagedoor.worker"),
    ("Arrows run one way", "stagedoor.broker", "stagedoor.orders"),
    ("Arrows run one way", "stagedoor.settings", "stagedoor.core"),
    ("Arrows run one way", "stagedoor.handlers", "stagedoor.cli"),
    ("Arrows run one way", "stagedoor.worker", "stagedoor.demo"),
    ("Arrows run one way", "stagedoor.replay", "stagedoor.cli"),
    ("Arrows run one way", "stagedoor.handlers", "stagedoor.worker"),
    ("Arrows run one way", "stagedoor.flows", "stagedoor.worker"),
    ("Arrows run one way", "stagedoor.handlers", "stagedoor.flows"),
    ("The queue half knows no ticket", "stagedoor.worker", "stagedoor.orders"),
    ("The queue half knows no ticket", "stagedoor.worker", "stagedoor.rendering"),
    ("The queue half knows no ticket", "stagedoor.core", "stagedoor.order"),
    ("The shop half knows no stream", "stagedoor.handlers", "stagedoor.broker"),
    ("The shop half knows no stream", "stagedoor.orders", "stagedoor.broker"),
    ("The renderers use the plugin API, like anybody's renderer", "stagedoor_renderers", "stagedoor.order"),
    ("The renderers use the plugin API, like anybody's renderer", "stagedoor_renderers", "stagedoor.rendering.pool"),
    ("Redis is spoken to in one place", "stagedoor.worker", "redis"),
    ("Redis is spoken to in one place", "stagedoor.cli", "redis"),
    ("Redis is spoken to in one place", "stagedoor.flows", "redis"),
    ("SQL is spoken in one place", "stagedoor.handlers", "sqlalchemy"),
    ("Only the renderers know ReportLab", "stagedoor.rendering", "reportlab"),
    ("Core, broker, orders, flows and renderers are synchronous", "stagedoor.core", "trio"),
    ("Core, broker, orders, flows and renderers are synchronous", "stagedoor.broker", "trio"),
    ("Core, broker, orders, flows and renderers are synchronous", "stagedoor.orders", "trio"),
    ("Core, broker, orders, flows and renderers are synchronous", "stagedoor.flows", "trio"),
    ("Core, broker, orders, flows and renderers are synchronous", "stagedoor_renderers", "trio"),
    ("Nothing in the product leans on its test kit", "stagedoor.cli", "stagedoor.testing"),
]


def copy_of_the_product(folder: Path) -> Path:
    """Copy all that import-linter looks at."""
    ignored = shutil.ignore_patterns("__pycache__", "fonts")
    shutil.copy(CHECKOUT / "pyproject.toml", folder)
    shutil.copytree(CHECKOUT / "stagedoor", folder / "stagedoor", ignore=ignored)
    shutil.copytree(
        CHECKOUT / "renderers" / "stagedoor_renderers", folder / "renderers" / "stagedoor_renderers", ignore=ignored
    )
    return folder


def lint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run lint-imports on the copy in *folder*."""
    run = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    environ = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{folder / 'renderers'}", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-c", run, "--no-logo", "--no-cache", *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def seed(folder: Path, package: str, imported: list[str]) -> None:
    """Put a module with forbidden imports into *package*; a module gets them at its own end."""
    root = folder / "renderers" if package.startswith("stagedoor_renderers") else folder
    place = root.joinpath(*package.split("."))
    text = "".join(f"import {name}\n" for name in imported)
    if place.is_dir():
        (place / f"{SEEDED}.py").write_text(text)
    else:
        with place.with_suffix(".py").open("a") as file:
            file.write(text)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What import-linter says of each contract when everything forbidden was done at once."""
    folder = copy_of_the_product(tmp_path_factory.mktemp("broken"))
    for package in {package for _, package, _ in FORBIDDEN}:
        seed(folder, package, [imported for _, there, imported in FORBIDDEN if there == package])
    done = lint(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    _, _, report = done.stdout.partition("Broken contracts")
    names = sorted({name for name, _, _ in FORBIDDEN}, key=lambda name: report.find(f"\n{name}\n"))
    sections = {}
    for name in reversed(names):
        report, _, sections[name] = report.partition(f"\n{name}\n")
    return sections


def test_every_arrow_of_the_product_runs_the_right_way(tmp_path: Path) -> None:
    done = lint(copy_of_the_product(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("contract,package,imported", FORBIDDEN)
def test_a_forbidden_import_is_noticed(broken: dict[str, str], contract: str, package: str, imported: str) -> None:
    is_module = not any(root.joinpath(*package.split(".")).is_dir() for root in (CHECKOUT, CHECKOUT / "renderers"))
    importer = package if is_module else f"{package}.{SEEDED}"
    assert f"{importer} -> {imported} " in " ".join(broken[contract].split())


def test_every_contract_is_put_to_the_test() -> None:
    names = re.findall(r"^(.+) (?:KEPT|BROKEN)\b", lint(CHECKOUT).stdout, flags=re.MULTILINE)
    assert set(names) == {contract for contract, _, _ in FORBIDDEN}


def test_a_module_without_a_place_is_noticed(tmp_path: Path) -> None:
    folder = copy_of_the_product(tmp_path)
    (folder / "stagedoor" / "of_no_room.py").touch()
    done = lint(folder, "--contract", "layers")
    assert done.returncode == 1
    assert "stagedoor.of_no_room" in done.stdout + done.stderr
