"""``relay``: bring outbox rows to the stream, in a process of its own."""

import functools

import click

from stagedoor.cli.options import LOG_LEVEL, RELAY, SettingsCommand
from stagedoor.cli.process import ServiceProcess
from stagedoor.settings import Settings


@click.command("relay", cls=SettingsCommand, setting_names=RELAY, help="Bring outbox rows to the stream.")
@click.option(
    "--move-book",
    "is_moving",
    is_flag=True,
    help="Publish in this namespace from now on, although the order book was published in another, or the"
    " namespace served another book.",
)
@LOG_LEVEL
@click.pass_obj
def command(process: ServiceProcess | None, settings: Settings, log_level: str, *, is_moving: bool) -> None:
    """Run a relay until SIGTERM or SIGINT, which end it at once; any number may run."""
    import trio  # noqa: PLC0415 - not for --help

    from stagedoor.cli import wiring  # noqa: PLC0415 - as above
    from stagedoor.events import EventStream  # noqa: PLC0415 - as above

    process = process or ServiceProcess()
    logs = wiring.make_logs(settings, level=log_level)
    events = EventStream()
    logs.listen(events)
    try:
        opened = wiring.open_outbox(settings.orders_url, settings.namespace, is_moving=is_moving)
        with wiring.open_link(settings) as link, opened as outbox:
            serve = functools.partial(
                wiring.serve_relay, outbox, link, process, settings=settings, events=events, is_moving=is_moving
            )
            trio.run(serve)
    finally:
        logs.flush()
