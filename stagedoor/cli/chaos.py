"""``chaos``: the shop of the demo, while processes, Redis, the network and clocks fail; and a check of everything."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stagedoor.cli.rehearsal import check_installed, folder_for

if TYPE_CHECKING:
    from stagedoor.chaos.faults import Fault
    from stagedoor.chaos.report import Report

ALL = "kill,stop,redis-restart,proxy,clock"
DAY_MINUTES = 24 * 60


def _faults(_ctx: click.Context, _param: click.Parameter, text: str) -> "tuple[Fault, ...]":
    from stagedoor.chaos.faults import parse_faults  # noqa: PLC0415 - not for --help

    try:
        return parse_faults(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("chaos")
@click.option(
    "--minutes",
    type=click.FloatRange(0.1, DAY_MINUTES),
    default=1.0,
    show_default=True,
    metavar="M",
    help="How long things fail; coming to rest and the check take their time after that.",
)
@click.option("--seed", type=int, default=1, show_default=True, metavar="S", help="Of the orders and of the faults.")
@click.option("--faults", default=ALL, show_default=True, callback=_faults, help="What fails, separated by commas.")
@click.option(
    "--workers", type=click.IntRange(1, 32), default=3, show_default=True, metavar="N", help="How many workers."
)
@click.option(
    "--orders-per-second",
    type=click.FloatRange(0.1, 1000),
    default=6.0,
    show_default=True,
    metavar="F",
    help="How many orders are sold a second, in bursts.",
)
@click.option(
    "--calls-per-second",
    type=click.FloatRange(0, 100),
    default=1.0,
    show_default=True,
    metavar="F",
    help="How many calls of a flow with steps, sleeps and signals are started a second.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Where everything is kept; must be empty. A temporary folder by default, removed when all is sound.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
def command(  # noqa: PLR0917 - click hands them over by name
    minutes: float,
    seed: int,
    faults: "tuple[Fault, ...]",
    workers: int,
    orders_per_second: float,
    calls_per_second: float,
    folder: Path | None,
    *,
    as_json: bool,
) -> int:
    """Let things fail at random moments, and see whether anything is lost or wrong.

    Starts a private Redis, an order book, a relay and workers in a folder of their own, sells,
    changes and refunds orders, half of them by a flow, starts calls of a flow that waits for
    signals, and meanwhile kills and freezes workers, restarts Redis with its
    data, with old data and empty, spoils connections and moves clocks. Then everything is set
    right, comes to rest, and every order, file and call is checked. The exit code is 1 when
    anything is lost or wrong.
    """
    check_installed()
    from stagedoor.chaos.runner import ChaosFailed, Options, run_chaos  # noqa: PLC0415 - not for --help
    from stagedoor.cli.app import complain  # noqa: PLC0415 - as above

    with folder_for("chaos", folder) as place:
        options: Any = Options(
            seconds=minutes * 60, seed=seed, faults=faults, folder=place.path, workers=workers,
            orders_per_s=orders_per_second, calls_per_s=calls_per_second,
        )  # fmt: skip
        try:
            report = run_chaos(options, lambda line: print(line, file=sys.stderr, flush=True))
        except ChaosFailed as error:
            complain(str(error))
            return 1
        place.is_kept = place.is_kept or not report.is_sound
    _show(report, as_json=as_json)
    if place.is_kept:
        complain(f"everything is kept in {place.path}")
    return 0 if report.is_sound else 1


def _show(report: "Report", *, as_json: bool) -> None:
    from rich.text import Text  # noqa: PLC0415 - not for --help

    from stagedoor.chaos.report import LABEL, rows_of  # noqa: PLC0415 - as above
    from stagedoor.cli.output import hanging, safe, show  # noqa: PLC0415 - as above

    if as_json:
        print(json.dumps(report.as_data()))
        return
    show(safe(report.verdict), Text(), *(hanging(safe(text), LABEL, first=label) for label, text in rows_of(report)))
