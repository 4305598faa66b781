"""``dead``: look at dead letters, put their jobs back, or drop them for good."""

import re
from collections.abc import Callable
from typing import Any

import click

from stagedoor.cli.options import SettingsCommand
from stagedoor.core.outcome import Reason
from stagedoor.settings import Settings

READING = ("redis_url", "namespace")
MOVING = ("redis_url", "namespace", "stream_maxlen")


class LetterId(click.ParamType[str]):
    """The id of a dead letter, such as 1758200000000-0."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the id, or refuse it."""
        if re.fullmatch(r"[0-9]{1,19}-[0-9]{1,19}", str(value), re.ASCII) is None:
            self.fail(
                f"expected the id of a dead letter, such as 1758200000000-0, found {str(value)[:40]!a}", param, ctx
            )
        return str(value)


LETTER_ID = LetterId()
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
IDS = click.argument("dead_ids", metavar="[ID]...", nargs=-1, type=LETTER_ID)
ALL = click.option("--all", "take_all", is_flag=True, help="All letters that are there now, the oldest first.")
REASON = click.option(
    "--reason", type=click.Choice([reason.value for reason in Reason]), help="Only those with this reason."
)
KIND = click.option("--kind", metavar="KIND", help="Only those of jobs of this kind.")


@click.group("dead", help="Look at dead letters, put their jobs back, or drop them for good.")
def command() -> None:
    """Group what is done to dead letters."""


def _in_group(name: str, names: tuple[str, ...], help_line: str) -> Callable[[Callable[..., Any]], click.Command]:
    return command.command(name, cls=SettingsCommand, setting_names=names, help=help_line)


@_in_group("list", READING, "List dead letters, the newest first.")
@click.option("--limit", metavar="N", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most.")
@click.option("--before", metavar="ID", type=LETTER_ID, help="Go on after this letter of an earlier list.")
@REASON
@KIND
@AS_JSON
def list_letters(
    settings: Settings, *, limit: int, before: str | None, reason: str | None, kind: str | None, as_json: bool
) -> None:
    """List letters."""
    from stagedoor.cli import dead_view  # noqa: PLC0415 - not for --help

    with dead_view.opened(settings) as letters:
        wanted = dead_view.Wanted(reason=reason, kind=kind)
        dead_view.list_letters(letters, wanted, limit=limit, before=before or "", as_json=as_json)


@_in_group("show", READING, "Show all that is kept of a dead letter: its fields as they are, error and crashes.")
@click.argument("dead_id", metavar="ID", type=LETTER_ID)
@AS_JSON
def show(settings: Settings, dead_id: str, *, as_json: bool) -> int:
    """Show a letter; exit code 1 when there is none."""
    from stagedoor.cli import dead_view  # noqa: PLC0415 - not for --help

    with dead_view.opened(settings) as letters:
        return dead_view.show_letter(letters, dead_id, as_json=as_json)


@_in_group(
    "requeue",
    MOVING,
    "Put the jobs of dead letters back into their streams, as first attempts. "
    "Each is put back once, however often this is asked for.",
)
@IDS
@ALL
@REASON
@KIND
@AS_JSON
def requeue(
    settings: Settings,
    dead_ids: tuple[str, ...],
    *,
    take_all: bool,
    reason: str | None,
    kind: str | None,
    as_json: bool,
) -> int:
    """Put jobs back; exit code 1 when one could not be."""
    from stagedoor.cli import dead_view  # noqa: PLC0415 - not for --help

    _check_choice(dead_ids, take_all=take_all, is_filtered=reason is not None or kind is not None)
    with dead_view.opened(settings) as letters:
        wanted = dead_view.Wanted(reason=reason, kind=kind)
        return dead_view.requeue(letters, dead_ids, wanted, as_json=as_json)


@_in_group("drop", READING, "Delete dead letters for good: what they were about will not be done.")
@IDS
@ALL
@REASON
@KIND
@click.option("--yes", is_flag=True, help="Really drop all of them.")
@AS_JSON
def drop(
    settings: Settings,
    dead_ids: tuple[str, ...],
    *,
    take_all: bool,
    reason: str | None,
    kind: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete letters; exit code 1 when one was not there."""
    from stagedoor.cli import dead_view  # noqa: PLC0415 - not for --help

    _check_choice(dead_ids, take_all=take_all, is_filtered=reason is not None or kind is not None)
    if take_all and not yes:
        raise click.UsageError("dropping is for good; say --yes as well")
    with dead_view.opened(settings) as letters:
        wanted = dead_view.Wanted(reason=reason, kind=kind)
        return dead_view.drop(letters, dead_ids, wanted, as_json=as_json)


def _check_choice(dead_ids: tuple[str, ...], *, take_all: bool, is_filtered: bool) -> None:
    if bool(dead_ids) == take_all:
        raise click.UsageError("take either the ids of letters, or --all")
    if is_filtered and not take_all:
        raise click.UsageError("--reason and --kind choose among --all; with ids they say nothing")
