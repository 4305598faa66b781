"""``record``: make a fixture out of a live stream and order book, with personal data replaced."""

from pathlib import Path

import click

from stagedoor.cli.options import SettingsCommand, number_of_id
from stagedoor.settings import Settings

NAMES = ("redis_url", "namespace", "orders_url", "tickets_dir", "plugins")


@click.command(
    "record",
    cls=SettingsCommand,
    setting_names=NAMES,
    help="Write a fixture of orders as they are, and of the entries they had, into the new folder PATH. "
    "Names, categories, seats, places, labels, ids and tokens are replaced by invented ones of the same shape.",
)
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--last", metavar="N", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Entries.")
@click.option("--order", "order_ids", metavar="ID", type=number_of_id, multiple=True, help="These orders instead.")
@click.option("--about", metavar="TEXT", default="", help="One sentence about the case.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(settings: Settings, path: Path, *, last: int, order_ids: tuple[int, ...], about: str, as_json: bool) -> int:
    """Record; exit code 1 when there is nothing to record."""
    from stagedoor.cli import record_made  # noqa: PLC0415 - not for --help

    asked = record_made.Asked(path=path, last=last, order_ids=order_ids, about=about)
    return record_made.run(settings, asked, as_json=as_json)
