"""``replay``: play fixtures against real handlers and a real Redis, in given and in shuffled order."""

import contextlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stagedoor.cli.options import SettingsCommand
from stagedoor.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from stagedoor.replay import Fixture, PartsFor, ReplayResult

SETTINGS = ("plugins", "ticket_renderer")
MOST_SEEDS = 1000


@click.command("replay", cls=SettingsCommand, setting_names=SETTINGS)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH…")
@click.option(
    "--shuffle-seeds",
    "seeds",
    type=click.IntRange(0, MOST_SEEDS),
    default=3,
    show_default=True,
    metavar="N",
    help="In how many other orders each fixture is played, besides the given one.",
)
@click.option(
    "--redis-url", metavar="URL", help="A Redis to use, in a namespace of its own; by default one is started."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array and nothing else.")
def command(paths: tuple[Path, ...], seeds: int, redis_url: str | None, settings: Settings, *, as_json: bool) -> int:
    """Play fixtures against real handlers and a real Redis.

    A fixture is a folder with orders.jsonl, entries.jsonl and expected.json; a folder of
    fixtures stands for all in it. The steps are taken as they stand, and then in other orders
    that may happen as well. The exit code is 1 when something ended otherwise than expected.
    """
    from rich.console import Console  # noqa: PLC0415 - not for --help

    from stagedoor.replay import find_fixtures, load_fixture  # noqa: PLC0415 - as above

    fixtures = [load_fixture(folder) for folder in find_fixtures(paths)]
    with private_redis(redis_url) as url:
        results = play(fixtures, parts_for(settings.plugins, settings.ticket_renderer), redis_url=url, seeds=seeds)
        if as_json:
            played = list(results)
            print(json.dumps([as_data(result) for result in played], indent=1))
        else:
            played = shown_while_playing(Console(highlight=False), results, total=len(fixtures) * (seeds + 1))
    return 0 if all(result.is_as_expected for result in played) else 1


# -- playing ------------------------------------------------------------------


@contextlib.contextmanager
def private_redis(url: str | None) -> Iterator[str]:
    """Give the address of a Redis: *url*, or a private one for as long as the block runs."""
    from stagedoor.broker.connection import check_url  # noqa: PLC0415 - not for --help
    from stagedoor.broker.private_server import PrivateRedis  # noqa: PLC0415 - as above

    if url is not None:
        check_url(url)
        yield url
        return
    with (
        tempfile.TemporaryDirectory(prefix="stagedoor-replay-") as folder,
        PrivateRedis(Path(folder) / "redis.log") as server,
    ):
        yield server.url


def parts_for(modules: Sequence[str], ticket_renderer: str) -> "PartsFor":
    """Load the installed handlers and renderers, and return what makes a replay's parts of them.

    Raises:
        ConfigurationError: everything that is wrong with the plugins.
    """
    import structlog  # noqa: PLC0415 - not for --help
    import trio  # noqa: PLC0415 - as above

    from stagedoor.cli.context import Shop  # noqa: PLC0415 - as above
    from stagedoor.cli.plugins import load_plugins  # noqa: PLC0415 - as above
    from stagedoor.orders import OrderBook  # noqa: PLC0415 - as above
    from stagedoor.rendering.pool import RenderPool  # noqa: PLC0415 - as above
    from stagedoor.replay import Parts  # noqa: PLC0415 - as above

    plugins = load_plugins(modules, ticket_renderer=ticket_renderer)
    pool = RenderPool(plugins.registry)
    silent = structlog.wrap_logger(None, processors=[_drop])

    def parts(book: OrderBook) -> Parts:
        shop = Shop(
            orders=book, pool=pool, ticket_renderer=ticket_renderer, log=silent, threads=trio.CapacityLimiter(8)
        )
        return Parts(handlers=plugins.handlers, make_context=shop.make_context)

    return parts


def _drop(_logger: Any, _method: str, _event: Any) -> Any:
    import structlog  # noqa: PLC0415 - not for --help

    raise structlog.DropEvent


def play(fixtures: Iterable["Fixture"], parts: "PartsFor", *, redis_url: str, seeds: int) -> Iterator["ReplayResult"]:
    """Play each fixture in the given order and in as many others, and yield what became of each."""
    from stagedoor.replay import replay_fixture  # noqa: PLC0415 - not for --help

    for fixture in fixtures:
        for seed in (None, *range(1, seeds + 1)):
            yield replay_fixture(fixture, parts, redis_url=redis_url, seed=seed)


# -- showing ------------------------------------------------------------------


def as_data(result: "ReplayResult") -> dict[str, Any]:
    """Return a result as JSON has it."""
    return {
        "fixture": result.fixture.name,
        "seed": result.seed,
        "ok": result.is_as_expected,
        "differences": [
            {"what": each.what, "expected": each.expected, "found": each.found} for each in result.differences
        ],
        "crashes": result.crashes,
        "seconds": round(result.seconds, 3),
    }


def shown_while_playing(console: "Console", results: Iterable["ReplayResult"], *, total: int) -> "list[ReplayResult]":
    """Show what is being played, then a table of everything and each difference; return the results."""
    played: list[ReplayResult] = []
    with _progress(console, total) as advance:
        for result in results:
            played.append(result)
            advance(result.fixture.name)
    console.print(table_of(played))
    for result in played:
        if not result.is_as_expected:
            console.print(f"\n[bold red]{result.fixture.name}[/], {result.order}")
            for difference in result.differences:
                console.print(f"  {difference.what}")
                console.print(f"    expected  [green]{_plain(difference.expected)}[/]")
                console.print(f"    found     [red]{_plain(difference.found)}[/]")
    console.print(f"\n{_summary(played)}")
    return played


def _plain(text: str) -> str:
    from rich.markup import escape  # noqa: PLC0415 - not for --help

    from stagedoor.cli.text import printable  # noqa: PLC0415 - as above

    return escape(printable(text))


@contextlib.contextmanager
def _progress(console: "Console", total: int) -> Iterator[Callable[[str], None]]:
    """Give a function that is told of each fixture played; silent where nobody watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415 - not for --help

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=32), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading handlers and renderers", total=total)
        yield lambda name: progress.update(task, advance=1, description=name)


def table_of(results: Sequence["ReplayResult"]) -> "Table":
    """Return one row per fixture: how it went in the given order and in the others."""
    from rich.table import Table  # noqa: PLC0415 - not for --help

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("fixture", "as given", "shuffled", "crashes", "time"):
        table.add_column(name, justify="right" if name in {"crashes", "time"} else "left")
    for name, group in itertools.groupby(results, key=lambda result: result.fixture.name):
        of_one = list(group)
        given = [result for result in of_one if result.seed is None]
        others = [result for result in of_one if result.seed is not None]
        table.add_row(
            name,
            _marks(given),
            _marks(others),
            str(sum(result.crashes for result in of_one) or ""),
            f"{sum(result.seconds for result in of_one):.1f} s",
        )
    return table


def _marks(results: Sequence["ReplayResult"]) -> str:
    return " ".join("[green]✓[/]" if result.is_as_expected else "[bold red]✗[/]" for result in results)


def _summary(results: Sequence["ReplayResult"]) -> str:
    bad = sum(not result.is_as_expected for result in results)
    if bad:
        return f"[bold red]{bad} of {len(results)} replays ended otherwise than expected.[/]"
    return f"All {len(results)} replays ended as expected."
