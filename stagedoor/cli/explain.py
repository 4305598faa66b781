"""``explain``: where something is, what has happened to it, and what will happen next."""

import click

from stagedoor.cli.options import SettingsCommand
from stagedoor.settings import Settings

NAMES = ("redis_url", "namespace", "orders_url", "tickets_dir", "liveness_ttl_s", "max_attempts", "max_crashes")


@click.command(
    "explain",
    cls=SettingsCommand,
    setting_names=NAMES,
    help="Say where an entry, an outbox row, an order, a token or a call is, what has happened to it, and what will. "
    "A plain number is an order where there is one with it, else an outbox row.",
)
@click.argument("asked", metavar="ID")
@click.option("--as", "kind", type=click.Choice(["entry", "outbox", "order", "token", "call"]), help="What the ID is.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(settings: Settings, asked: str, kind: str | None, *, as_json: bool) -> int:
    """Explain one thing; exit code 1 when nothing is known of it."""
    from stagedoor.cli import explain_view  # noqa: PLC0415 - not for --help

    return explain_view.explain(settings, asked, kind, as_json=as_json)
