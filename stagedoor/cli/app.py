"""The table of commands, and how one of them is run.

Nothing of a command is imported before it is used: ``--help`` stays fast, and a
command that cannot be imported does not take the others with it.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import attrs
import click

from stagedoor import __version__
from stagedoor.cli.failures import INTERRUPTED, explain
from stagedoor.cli.process import ServiceProcess, with_command

PROGRAM = "python -m stagedoor"


@attrs.frozen
class Entry:
    """One command: where it is, and its line in the help."""

    module: str
    help: str


COMMANDS: dict[str, Entry] = {
    "worker": Entry("stagedoor.cli.worker", "Run a worker; this is what happens when no command is named."),
    "relay": Entry("stagedoor.cli.relay", "Bring outbox rows to the stream; any number may run."),
    "order": Entry("stagedoor.cli.order", "Place, refund, change, show and check orders."),
    "status": Entry("stagedoor.cli.status", "Show what is where: streams, workers, outbox."),
    "dead": Entry("stagedoor.cli.dead", "Look at dead letters, put their jobs back, or drop them."),
    "explain": Entry("stagedoor.cli.explain", "Say where an entry, row, order, token or call is, and what comes next."),
    "flow": Entry("stagedoor.cli.flow", "Start calls of flows, look at them, signal, cancel and resume them."),
    "doctor": Entry("stagedoor.cli.doctor", "Check everything that can be wrong; --fix puts right what can be."),
    "record": Entry("stagedoor.cli.record", "Make a fixture of live orders and entries, with invented people."),
    "renderers": Entry("stagedoor.cli.renderers", "List the renderers that are installed, or begin one of your own."),
    "preview": Entry("stagedoor.cli.preview", "Draw a layout as PDF and PNG, before anybody buys a ticket."),
    "verify": Entry("stagedoor.cli.verify", "Check a signed token with a public key, without any connection."),
    "replay": Entry("stagedoor.cli.replay", "Run fixtures against real handlers and a real Redis."),
    "demo": Entry("stagedoor.cli.demo", "Sell, refund and print tickets with real parts on this machine."),
    "chaos": Entry(
        "stagedoor.cli.chaos", "Let processes, Redis, network and clocks fail, and see that nothing is lost."
    ),
}


class Commands(click.Group):
    """The group of all commands; imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import a command and return it."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        try:
            command = importlib.import_module(entry.module).command
        except ModuleNotFoundError as error:
            if error.name != entry.module:
                raise
            raise click.ClickException(f"the command {cmd_name} is not in this installation") from None
        assert isinstance(command, click.Command), f"{entry.module}.command is a click command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for; one that is not there is refused with those of similar names."""
        asked = args[0]
        if not asked.startswith("-") and self.get_command(ctx, asked) is None:
            import difflib  # noqa: PLC0415 - only for a mistake

            close = " or ".join(map(repr, difflib.get_close_matches(asked, COMMANDS, n=2)))
            ctx.fail(f"No such command {asked!r}." + (f" Did you mean {close}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the table without importing what is in it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every setting has an environment variable STAGEDOOR_… and a flag; "
    "'COMMAND --help' lists those that the command reads.",
)
@click.version_option(__version__, message="stagedoor %(version)s")
def root() -> None:
    """Turn paid orders into tickets: an outbox, one Redis stream, and workers that print PDF."""


def run(arguments: Sequence[str] | None = None, process: ServiceProcess | None = None) -> int:
    """Run one command and return the exit code; everything that can be explained is, on stderr.

    Args:
        arguments: the words after the program's name; the process' own by default.
        process: owns the signals while a service runs; without one they keep their action.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    words = with_command(given)
    is_default = words != given
    _make_streams_forgiving()
    try:
        result: Any = root.main(args=words, prog_name=PROGRAM, standalone_mode=False, obj=process)
        _flush()
    except BrokenPipeError:
        return _quiet_after_broken_pipe()
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        named = [word for word in words[1:] if word in COMMANDS]
        if is_default and named and isinstance(error, click.UsageError):
            complain(f"flags come after the command: {PROGRAM} {named[0]} …")
        return error.exit_code
    except BaseException as error:  # noqa: BLE001 - what cannot be explained is raised again
        return _explained(error)
    return result if isinstance(result, int) else 0


def _explained(error: BaseException) -> int:
    found = explain(error)
    if found is None:
        raise error
    lines, code = found
    for line in lines:
        complain(line)
    return code


def complain(line: str) -> None:
    """Write one line about what is wrong to stderr; somebody who closed it does not want it."""
    if sys.stderr is None:
        return
    try:
        print(f"stagedoor: {line}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def _make_streams_forgiving() -> None:
    """Write what the terminal's encoding has not as an escape, instead of failing in the middle of a table."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _quiet_after_broken_pipe() -> int:
    """The reader of our output has gone (``… | head``): say nothing, also not at the end of the interpreter."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return 1
