"""The table of commands, how one is found, and what becomes of exceptions."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from stagedoor import __version__
from stagedoor.cli import app
from stagedoor.cli.app import COMMANDS, Entry, root, run
from stagedoor.cli.failures import explain, leaves
from stagedoor.errors import (
    BrokerError,
    BrokerUnavailable,
    ConfigurationError,
    InvalidOrder,
    OrderNotFound,
    OrderStateError,
    RendererBroken,
)

type Captured = pytest.CaptureFixture[str]

PACKAGE = Path(app.__file__).parents[1]


def raising(error: BaseException) -> click.Command:
    """Return a command that raises."""

    @click.command("raising")
    def command() -> None:
        raise error

    return command


@pytest.fixture
def run_raising(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command that raises, and return its exit code."""

    def run_it(error: BaseException) -> int:
        monkeypatch.setattr(app.Commands, "get_command", lambda *_: raising(error))
        return run(["raising"])

    return run_it


# -- the table ------------------------------------------------------------------


def test_the_help_lists_every_command_with_its_line(capsys: Captured) -> None:
    assert run(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, entry in COMMANDS.items():
        assert f"{name} {entry.help}" in shown


def test_the_help_imports_no_command_and_nothing_heavy() -> None:
    heavy = "'rich', 'trio', 'redis', 'sqlalchemy', 'reportlab', 'structlog', 'stagedoor.cli.worker'"
    script = (
        "import sys\nfrom stagedoor.cli.app import run\nassert run(['--help']) == 0\n"
        f"print([name for name in [{heavy}] if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_own_help_needs_no_redis_and_no_database(name: str) -> None:
    script = (
        "import sys\nfrom stagedoor.cli.app import run\n"
        f"assert run([{name!r}, '--help']) == 0\n"
        "print([name for name in ['trio', 'redis', 'sqlalchemy', 'reportlab'] if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "Usage: python -m stagedoor" in done.stdout


def test_the_version_is_shown(capsys: Captured) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"stagedoor {__version__}\n"


@pytest.mark.parametrize("words", [[], ["--relay"], ["--slots", "4"]])
def test_without_a_command_a_worker_runs(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def main(*, args: list[str], **_: Any) -> None:
        seen.append(args)

    monkeypatch.setattr(root, "main", main)
    assert run(words) == 0
    assert seen == [["worker", *words]]


def test_a_command_that_cannot_be_imported_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setitem(COMMANDS, "demo", Entry("stagedoor.cli.not_there", "Is missing."))
    assert run(["demo"]) == 1
    assert "the command demo is not in this installation" in capsys.readouterr().err
    assert run(["renderers", "--help"]) == 0
    assert run(["--help"]) == 0


def test_an_unknown_command_is_a_mistake_of_the_caller(capsys: Captured) -> None:
    assert run(["statsu"]) == 2
    assert "No such command 'statsu'. Did you mean 'status'?" in capsys.readouterr().err
    assert run(["zzz"]) == 2
    said = capsys.readouterr().err
    assert "No such command 'zzz'." in said
    assert "Did you mean" not in said


# -- an older Python -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_what_an_older_python_reads_first_has_nothing_that_it_cannot_read(name: str) -> None:
    ast.parse((PACKAGE / name).read_text("utf-8"), feature_version=(3, 9))


@pytest.mark.parametrize("words,kind", [(["-m"], SystemExit), (["shop.py"], ImportError)])
def test_an_older_python_is_told_so_before_anything_is_imported(
    words: list[str], kind: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    code = compile((PACKAGE / "__init__.py").read_text("utf-8"), "__init__.py", "exec")
    monkeypatch.setattr(sys, "version_info", (3, 11, 7, "final", 0))
    monkeypatch.setattr(sys, "argv", words)
    names: dict[str, Any] = {}
    with pytest.raises(kind) as raised:
        exec(code, names)
    assert "this python is 3.11; it has to be 3.13 or later" in f"{capsys.readouterr().err}{raised.value}"
    assert "flow" not in names


def test_a_flag_before_its_command_is_pointed_out(capsys: Captured) -> None:
    assert run(["--namespace", "x", "status"]) == 2
    assert "flags come after the command: python -m stagedoor status …" in capsys.readouterr().err


# -- exceptions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "error,code",
    [
        (ConfigurationError(["one", "two"]), 2),
        (OrderNotFound("one"), 1),
        (OrderStateError("one"), 1),
        (InvalidOrder("one"), 1),
        (BrokerUnavailable("one"), 1),
        (BrokerError("one"), 1),
        (RendererBroken("one"), 1),
    ],
)
def test_what_can_be_explained_is_lines_and_an_exit_code_and_no_traceback(
    error: Exception, code: int, run_raising: Any, capsys: Captured
) -> None:
    assert run_raising(error) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(getattr(error, "problems", ("one",)))
    assert all(line.startswith("stagedoor: ") for line in lines)
    assert lines[0].endswith("one")


def test_exceptions_inside_groups_are_found(run_raising: Any, capsys: Captured) -> None:
    group = BaseExceptionGroup(
        "nursery", [ExceptionGroup("inner", [ConfigurationError("a"), ConfigurationError("b")]), OrderNotFound("c")]
    )
    assert run_raising(group) == 2
    assert capsys.readouterr().err.splitlines() == ["stagedoor: a", "stagedoor: b", "stagedoor: c"]


def test_a_fault_of_our_own_keeps_its_traceback(run_raising: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        run_raising(ZeroDivisionError())
    with pytest.raises(BaseExceptionGroup):
        run_raising(ExceptionGroup("nursery", [ConfigurationError("a"), ZeroDivisionError()]))


def test_being_interrupted_says_nothing(run_raising: Any, capsys: Captured) -> None:
    assert run_raising(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err.strip() == ""


def test_a_message_cannot_forge_a_second_line() -> None:
    assert explain(ConfigurationError("a\nstagedoor: all is well")) == ([r"a\nstagedoor: all is well"], 2)


def test_leaves_of_nested_groups_come_in_order() -> None:
    one, two, three = ValueError("1"), ValueError("2"), ValueError("3")
    assert list(leaves(ExceptionGroup("", [one, ExceptionGroup("", [two]), three]))) == [one, two, three]


def test_a_reader_that_has_gone_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m stagedoor worker --help | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("Usage:")


def test_a_terminal_with_few_characters_gets_escapes_instead_of_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stagedoor", "--help"],
        env=os.environ | {"PYTHONIOENCODING": "latin-1:strict"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"STAGEDOOR_\u2026" in done.stdout
