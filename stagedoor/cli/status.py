"""``status``: what is where, at one moment."""

import click

from stagedoor.cli.options import STATUS, SettingsCommand
from stagedoor.settings import Settings


@click.command(
    "status",
    cls=SettingsCommand,
    setting_names=STATUS,
    help="Show what is where: streams, pool, delayed and dead jobs, workers, and the outbox.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object and nothing else: what is on Redis, without the outbox.",
)
def command(settings: Settings, *, as_json: bool) -> None:
    """Look once; exit code 1 when Redis cannot be asked."""
    from stagedoor.cli import status_view  # noqa: PLC0415 - not for --help

    overview = status_view.look(settings)
    if as_json:
        status_view.print_data(overview)
    else:
        status_view.print_screen(overview, settings)
