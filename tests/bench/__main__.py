"""Measure what the product promises, as ratios within one run: ``python -m tests.bench [NAME…]``.

Each measurement compares two things that are run in turn, several times, and
gives the median of the ratios: machines are shared and noisy, ratios within one
run are not. Nothing here is asserted; a figure below its target is marked.
"""

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

import tests.bench
from tests.bench.figures import Figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen measurements, show their figures, and return 0 whatever they are."""
    known = sorted(
        m.name.removeprefix("bench_") for m in pkgutil.iter_modules(tests.bench.__path__) if _is_bench(m.name)
    )
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*known, []], metavar="NAME", help=", ".join(known))
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs of each pair (default 5)")
    chosen = parser.parse_args(arguments)
    console = Console(stderr=not sys.stdout.isatty(), highlight=False)
    for name in chosen.names or known:
        console.print(f"measuring [bold]{name}[/] …")
        figures: list[Figure] = importlib.import_module(f"tests.bench.bench_{name}").measure(chosen.runs)
        _show(name, figures)
    return 0


def _is_bench(name: str) -> bool:
    return name.startswith("bench_")


def _show(name: str, figures: Sequence[Figure]) -> None:
    table = Table(title=name, title_justify="left", box=None, padding=(0, 2))
    for column in ("figure", "median", "range", "target", ""):
        table.add_column(column, justify="left" if column in {"figure", ""} else "right")
    for figure in figures:
        table.add_row(figure.name, figure.shown, figure.spread, figure.target_shown, figure.verdict)
    Console(highlight=False).print(table)


if __name__ == "__main__":
    raise SystemExit(main())
