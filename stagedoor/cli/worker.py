"""``worker``: claim entries, run handlers, settle; what ``python -m stagedoor`` does."""

import click

from stagedoor.cli.options import LOG_LEVEL, SettingsCommand
from stagedoor.cli.process import ServiceProcess
from stagedoor.settings import Settings


@click.command("worker", cls=SettingsCommand, help="Run a worker: claim entries, run handlers, settle.")
@click.option("--relay", "with_relay", is_flag=True, help="Also bring outbox rows to the stream.")
@LOG_LEVEL
@click.pass_obj
def command(process: ServiceProcess | None, settings: Settings, log_level: str, *, with_relay: bool) -> int:
    """Run a worker until SIGTERM or SIGINT; drain first, exit at once at the second.

    The process ends with the worker's exit code: 0 after a stop that was asked for, 1 when its
    deadline came before everything was given back, 70 when half its slots hold threads that do not end.
    """
    import trio  # noqa: PLC0415 - not for --help

    from stagedoor.cli.plugins import recorded_gil_warnings  # noqa: PLC0415 - as above

    # Around the import of redis: CPython names whoever turns the GIL on once, when it happens.
    with recorded_gil_warnings() as gil_culprits:
        from stagedoor.cli import wiring  # noqa: PLC0415 - as above
    process = process or ServiceProcess()
    logs = wiring.make_logs(settings, level=log_level)
    try:
        with wiring.equipped(settings, logs, with_relay=with_relay, gil_culprits=gil_culprits) as equipment:
            return trio.run(lambda: wiring.serve_worker(equipment, process, with_relay=with_relay))
    finally:
        logs.flush()
