"""``renderers``: what is installed to draw with."""

import click

from stagedoor.cli.options import SettingsCommand
from stagedoor.settings import Settings


@click.command(
    "renderers", cls=SettingsCommand, setting_names=("plugins",), help="List the renderers that are installed."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(settings: Settings, *, as_json: bool) -> None:
    """List them; exit code 2 when one cannot be loaded."""
    from stagedoor.cli import renderers_view  # noqa: PLC0415 - not for --help

    renderers_view.print_renderers(settings.plugins, as_json=as_json)
