"""``demo``: real parts on this machine, and a check of everything that came out."""

import contextlib
import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from stagedoor.errors import ConfigurationError
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
    orders: int, refund_share: float, seed: int, folder: Path | None, *, kill: bool, keep: bool, as_json: bool
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

    is_kept = keep or folder is not None or not as_json
    with _folder(folder, is_kept=is_kept) as place:
        options = Options(
            orders=orders, refund_share=refund_share, kill=kill, seed=seed, slots=Settings().slots, folder=place
        )
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


def check_installed() -> None:
    """Look for what a demo needs before anything is started.

    Raises:
        ConfigurationError: names everything that is missing, and what to install.
    """
    from stagedoor.broker.private_server import find_server  # noqa: PLC0415 - not for --help
    from stagedoor.rendering.api import ENTRY_POINT_GROUP  # noqa: PLC0415 - as above

    problems: list[str] = []
    try:
        find_server()
    except ConfigurationError as error:
        problems += error.problems
    if not importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=Settings().ticket_renderer):
        problems.append(
            "no renderer is installed, so there is nothing to draw tickets with: pip install 'stagedoor[tickets]'"
        )
    if problems:
        raise ConfigurationError(problems)


@contextlib.contextmanager
def _folder(wanted: Path | None, *, is_kept: bool) -> Iterator[Path]:
    """Give an empty folder: the one that was asked for, or a temporary one.

    Raises:
        ConfigurationError: the wanted one is not empty, or cannot be made.
    """
    if wanted is not None:
        try:
            wanted.mkdir(parents=True, exist_ok=True)
            is_empty = not any(wanted.iterdir())
        except OSError as error:
            raise ConfigurationError(f"--folder: {wanted} cannot be used: {error.strerror}") from None
        if not is_empty:
            raise ConfigurationError(f"--folder: {wanted} is not empty; name a new one")
        yield wanted.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="stagedoor-demo-"))
    try:
        yield folder
    except BaseException:
        is_kept = is_kept and any((folder / "logs").glob("*"))
        raise
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
