"""``doctor``: check everything that can be wrong, say what it means, and put right what can be."""

import click

from stagedoor.cli.options import SettingsCommand
from stagedoor.settings import Settings

NAMES = (
    "redis_url",
    "namespace",
    "orders_url",
    "tickets_dir",
    "plugins",
    "ticket_renderer",
    "liveness_ttl_s",
    "reclaim_idle_s",
    "stream_maxlen",
    "dead_maxlen",
)


@click.command(
    "doctor",
    cls=SettingsCommand,
    setting_names=NAMES,
    help="Check Redis, the order book, the tickets folder and the plugins. Exit code 1 when something is wrong.",
)
@click.option("--fix", "is_fixing", is_flag=True, help="Put right what can be put right without losing anything.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(settings: Settings, *, is_fixing: bool, as_json: bool) -> int:
    """Examine, and mend where that was asked for."""
    from stagedoor.cli.plugins import recorded_gil_warnings  # noqa: PLC0415 - not for --help

    # Around the import of redis: CPython names whoever turns the GIL on once, when it happens.
    with recorded_gil_warnings() as gil_culprits:
        from stagedoor.cli import doctor_view  # noqa: PLC0415 - as above

    return doctor_view.run(settings, gil_culprits=gil_culprits, is_fixing=is_fixing, as_json=as_json)
