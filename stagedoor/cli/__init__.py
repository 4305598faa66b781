"""The command line: one file per command, imported when it is first used.

`main` is what ``python -m stagedoor`` and the script ``stagedoor`` call. The
table of commands is in `stagedoor.cli.app`, and what turns exceptions into lines
and exit codes in `stagedoor.cli.failures`.
"""

from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code.

    Args:
        arguments: the words after the program's name; the process' own by default.
    """
    from stagedoor.cli.app import run  # noqa: PLC0415 - so that whoever wants only the name does not pay for click

    raise SystemExit(run(arguments))
