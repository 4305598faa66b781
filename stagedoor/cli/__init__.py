"""The command line: one file per command, imported when it is first used.

`main` is what ``python -m stagedoor`` and the script ``stagedoor`` call. The
table of commands is in `stagedoor.cli.app`, and what turns exceptions into lines
and exit codes in `stagedoor.cli.failures`.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

from stagedoor.cli import process

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code.

    Args:
        arguments: the words after the program's name; the process' own by default.
    """
    words = process.with_command(sys.argv[1:] if arguments is None else arguments)
    if words[0] in process.SERVICES:
        process.run_service(lambda owner: _run(arguments, owner))
    raise SystemExit(_run(arguments, None))


def _run(arguments: Sequence[str] | None, owner: process.ServiceProcess | None) -> int:
    from stagedoor.cli.app import run  # noqa: PLC0415 - a service listens before this takes its time

    return run(arguments, owner)
