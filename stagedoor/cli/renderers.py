"""``renderers``: what is installed to draw with, and the beginning of one's own."""

from pathlib import Path

import click

from stagedoor.cli.options import SettingsCommand
from stagedoor.settings import Settings


class _Listing(SettingsCommand, click.Group):
    """A group that lists renderers when no command of it is named."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write options, settings and the group's commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(
    "renderers",
    cls=_Listing,
    setting_names=("plugins",),
    invoke_without_command=True,
    help="List the renderers that are installed, or begin one of your own.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def command(ctx: click.Context, settings: Settings, *, as_json: bool) -> int:
    """List them, each warmed up; exit code 1 when one does not come ready, 2 when one cannot be loaded."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = settings
        return 0
    from stagedoor.cli import renderers_view  # noqa: PLC0415 - not for --help

    return renderers_view.print_renderers(settings.plugins, as_json=as_json)


@command.command("new")
@click.argument("name", metavar="NAME")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    metavar="FOLDER",
    help="Where the package's folder is made; here by default.",
)
@click.pass_obj
def new(settings: Settings, name: str, *, folder: Path) -> None:
    """Write an installable package for a renderer called NAME, with a test that passes."""
    from stagedoor.cli import renderers_view  # noqa: PLC0415 - not for --help

    renderers_view.begin_renderer(name, folder, settings.plugins)
