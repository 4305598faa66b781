"""``preview``: what a layout looks like before anybody buys a ticket."""

from pathlib import Path

import click


@click.command("preview")
@click.argument("layout", metavar="LAYOUT")
@click.option(
    "--order",
    "order_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What to draw: the first order of the file, as in orders.jsonl. A made-up one by default.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="FOLDER",
    help="Where the files are written; this one by default.",
)
def command(layout: str, *, order_file: Path | None, folder: Path) -> None:
    """Draw a layout as PDF and as PNG, a picture for each page.

    LAYOUT is the name of a built-in layout, or the path of a .toml or .json file. Codes
    of a preview admit nobody. Pictures need the package pypdfium2; without it there is the
    PDF alone.
    """
    from stagedoor.cli import preview_made  # noqa: PLC0415 - fonts and ReportLab take their time, and --help needs none

    preview_made.preview(layout, order_file=order_file, folder=folder)
