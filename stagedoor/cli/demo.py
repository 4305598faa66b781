"""``demo``: real parts on this machine, and a check of everything that came out."""

import json
from pathlib import Path

import click

from stagedoor.cli.rehearsal import check_installed, folder_for
from stagedoor.settings import Settings

MOST_ORDERS = 100_000


@click.command("demo")
@click.option(
    "--orders",
    type=click.IntRange(1, MOST_ORDERS),
    default=300,
    show_default=True,
    metavar="N",
    help="How many orders.",
)
@click.option(
    "--refund-share",
    type=click.FloatRange(0, 1),
    default=0.2,
    show_default=True,
    metavar="F",
    help="Which share of them is refunded, from 0 to 1, before, while or after their tickets are made.",
)
@click.option("--flow", is_flag=True, help="Have the orders fulfilled by the flow fulfil-order, step by step.")
@click.option("--kill", is_flag=True, help="End one worker with SIGKILL while it makes tickets.")
@click.option(
    "--seed", type=int, default=1, show_default=True, metavar="S", help="Of the orders and what happens to them."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Where everything is kept; must be empty. A temporary folder by default.",
)
@click.option("--keep", is_flag=True, help="Keep the temporary folder also with --json.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
def command(
    orders: int,
    refund_share: float,
    seed: int,
    folder: Path | None,
    *,
    flow: bool,
    kill: bool,
    keep: bool,
    as_json: bool,
) -> int:
    """Sell, refund and print tickets with real parts on this machine.

    Starts a private Redis, a SQLite order book, a relay and two workers in a folder of
    their own, sells orders with names and scripts of the world, refunds and changes some of
    them at the worst moments, waits until all is at rest, and checks every order and every
    file. The exit code is 1 when anything is lost or wrong.
    """
    check_installed()
    from rich.console import Console  # noqa: PLC0415 - not for --help

    from stagedoor.cli.app import complain  # noqa: PLC0415 - as above
    from stagedoor.demo.runner import DemoFailed, Options, run_demo  # noqa: PLC0415 - as above
    from stagedoor.demo.show import make_screen, print_report  # noqa: PLC0415 - as above

    with folder_for("demo", folder, is_kept=keep or not as_json) as place:
        options = Options(
            orders=orders, refund_share=refund_share, flow=flow, kill=kill, seed=seed, slots=Settings().slots,
            folder=place.path,
        )  # fmt: skip
        try:
            report, ending = run_demo(options, make_screen(Console(stderr=True, highlight=False)))
        except DemoFailed as error:
            complain(str(error))
            return 1
    if as_json:
        print(json.dumps(report.as_data()))
    else:
        print_report(Console(highlight=False), report, ending)
    return 0 if report.is_sound else 1
