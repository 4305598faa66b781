"""The sessions install once, bound to the constraints, and again when what they install has changed."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nox", reason="nox comes with the dependency group lint")


@pytest.fixture(scope="module")
def noxfile() -> Iterator[ModuleType]:
    """The noxfile as nox loads it to list the sessions: it finds the interpreter and makes none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STAGEDOOR_PYTHON", sys.executable)
        patch.setattr(sys, "argv", ["nox", "-l"])
        patch.syspath_prepend(str(Path(__file__).parents[2]))
        yield importlib.import_module("noxfile")


class FakeSession:
    """A session that writes down what it is asked to do."""

    def __init__(self, folder: Path, backend: str = "uv") -> None:
        self.virtualenv = SimpleNamespace(location=str(folder / "venv"))
        self.venv_backend = backend
        self.posargs: list[str] = []
        self.installed: list[tuple[str, ...]] = []
        self.ran: list[tuple[str, ...]] = []
        self.is_broken = False
        (folder / "venv").mkdir(exist_ok=True)

    def install(self, *what: str, env: dict[str, str] | None = None) -> None:
        self.installed.append(what)
        if self.is_broken:
            raise RuntimeError("no network")

    def run(self, *command: str, **_: Any) -> None:
        self.ran.append(command)

    def log(self, text: str) -> None:
        """Say nothing."""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    """A session in a checkout that has nothing but what decides about installing."""
    (tmp_path / "renderers").mkdir()
    for name in ("pyproject.toml", "renderers/pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    return FakeSession(tmp_path)


def test_what_is_installed_is_not_installed_again(noxfile: ModuleType, session: FakeSession) -> None:
    noxfile.install_all(session)
    noxfile.install_all(session)
    assert len(session.installed) == 1
    assert session.installed[0][:4] == ("-c", "constraints.txt", "--build-constraint", "constraints.txt")


@pytest.mark.parametrize(
    "changed",
    ["pyproject.toml", "renderers/pyproject.toml", "constraints.txt", "tests/plugins/third/pyproject.toml"],
)
def test_what_has_changed_is_installed_again(noxfile: ModuleType, session: FakeSession, changed: str) -> None:
    noxfile.install_all(session)
    Path(changed).parent.mkdir(parents=True, exist_ok=True)
    Path(changed).write_text("another")
    noxfile.install_all(session)
    assert len(session.installed) == 2


def test_an_installation_that_failed_is_tried_again(noxfile: ModuleType, session: FakeSession) -> None:
    session.is_broken = True
    with pytest.raises(RuntimeError):
        noxfile.install_all(session)
    session.is_broken = False
    noxfile.install_all(session)
    noxfile.install_all(session)
    assert len(session.installed) == 2


def test_the_renderer_packages_of_the_tests_are_installed_like_anybodys(
    noxfile: ModuleType, session: FakeSession
) -> None:
    Path("tests/plugins/third").mkdir(parents=True)
    Path("tests/plugins/third/pyproject.toml").touch()
    noxfile.install_all(session)
    assert "./tests/plugins/third" in session.installed[0]


def test_without_uv_a_pip_is_used_that_knows_which_wheels_will_not_load(
    noxfile: ModuleType, session: FakeSession
) -> None:
    session.venv_backend = "virtualenv"
    noxfile.install_all(session)
    assert session.installed[0] == ("pip>=26",)
    assert "--reinstall-package" not in session.installed[1]


def test_the_callers_settings_do_not_reach_the_tests(noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEDOOR_REDIS_URL", "redis://production.example/0")
    monkeypatch.setenv("STAGEDOOR_TEST_REDIS_SERVER", "/opt/redis/bin/redis-server")
    removed = noxfile.without_settings()
    assert removed["STAGEDOOR_REDIS_URL"] is None
    assert not {"STAGEDOOR_PYTHON", "STAGEDOOR_TEST_REDIS_SERVER"} & set(removed)


def test_words_after_the_dashes_go_to_pytest_and_to_the_demo(noxfile: ModuleType, session: FakeSession) -> None:
    session.posargs = ["--orders", "7"]
    noxfile.demo.func(session)
    assert session.ran == [("python", "-m", "stagedoor", "demo", "--orders", "7")]
    session.posargs = ["-k", "refund"]
    noxfile.tests.func(session)
    assert session.ran[-1] == ("python", "-m", "pytest", "-k", "refund")


@pytest.mark.parametrize("name", ["docs", "bench"])
def test_a_session_without_its_folder_passes_and_says_so(noxfile: ModuleType, session: FakeSession, name: str) -> None:
    getattr(noxfile, name).func(session)
    assert session.ran == []
    assert session.installed == []
