"""What ``renderers`` shows."""

import itertools
import shlex
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from stagedoor.cli.app import complain
from stagedoor.cli.engine import needs_engine
from stagedoor.cli.failures import FAILED
from stagedoor.cli.output import print_json, safe, show, table
from stagedoor.cli.plugins import TICKETS, load_renderers_of
from stagedoor.cli.text import printable
from stagedoor.rendering.candidates import told
from stagedoor.rendering.registry import Installed, named, names_in_use, warm_up_one

_PATIENCE_S = 60.0
"""A warm-up takes a few seconds where fonts are loaded; the worker would wait for ever."""

_LONGEST = 2000
"""Characters of one line about what is wrong."""


def print_renderers(modules: Sequence[str], *, as_json: bool) -> int:
    """Warm the installed renderers up, print them, as a table or as JSON, and what is wrong with them.

    Returns:
        0, or 1 when one of them does not come ready: no worker would start with it.

    Raises:
        ConfigurationError: one of them cannot be loaded, or breaks the contract.
    """
    found = load_renderers_of(modules).list()
    wrong = {item.name: _not_ready(item) for item in found}
    if as_json:
        print_json({"renderers": [{**_data(item), "problems": wrong[item.name]} for item in found]})
    elif found:
        show(_table(found, wrong))
    else:
        show(Text(f"no renderer is installed; the built-in ones come with {TICKETS}", style="yellow"))
    for problem in itertools.chain.from_iterable(wrong.values()):
        complain(printable(problem, _LONGEST))
    return FAILED if any(wrong.values()) else 0


def _table(found: Sequence[Installed], wrong: Mapping[str, Sequence[str]]) -> Table:
    made = table("name", "version", "type", "package", "found through")
    for item in found:
        package = f"{item.distribution} {item.distribution_version}".rstrip()
        made.add_row(
            safe(item.name, "bold red" if wrong[item.name] else "bold"),
            safe(item.version),
            safe(item.content_type),
            safe(package),
            safe(item.source, "dim"),
        )
    return made


def _not_ready(item: Installed) -> list[str]:
    """Warm up one renderer, and return what is wrong with it; one that does not come to an end is left behind."""
    ending: list[list[str]] = []
    # The only thread that does anything: this one waits. Nothing can end it, but the command can go on.
    thread = threading.Thread(target=_warm_up, args=(item, ending), daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    return ending[0] if ending else [f"renderer {item.name} is still warming up after {_PATIENCE_S:g} s; given up"]


def _warm_up(item: Installed, ending: list[list[str]]) -> None:
    """Warm up one renderer, and leave what is wrong with it, however it comes to an end."""
    try:
        ending.append(warm_up_one(item))
    except BaseException as error:  # noqa: BLE001 - Ctrl-C comes in the main thread: this is the renderer's own
        ending.append(told(f"{named(item)} failed to warm up", error))


def begin_renderer(name: str, parent: Path, modules: Sequence[str]) -> None:
    """Write the package of a new renderer into *parent*, and say what to do with it.

    Raises:
        ConfigurationError: the name is not allowed or taken, its folder is there already or cannot
            be made, or the package that knows how is not installed.
    """
    with needs_engine("renderers new"):
        from stagedoor_renderers.skeleton import new_renderer  # noqa: PLC0415 - listing renderers needs none
    folder = new_renderer(name, parent=parent, taken=names_in_use(modules))
    show(
        safe(f"{folder} is a package with a renderer that draws, and a test that passes. Next:"),
        safe(f"  pip install -e {shlex.quote(f'{folder}[test]')}"),
        safe(f"  python -m pytest {shlex.quote(str(folder))}"),
        safe("  python -m stagedoor renderers"),
    )


def _data(item: Installed) -> dict[str, Any]:
    return {
        "name": item.name,
        "version": item.version,
        "content_type": item.content_type,
        "suffix": item.suffix,
        "package": item.distribution,
        "package_version": item.distribution_version,
        "source": item.source,
    }
