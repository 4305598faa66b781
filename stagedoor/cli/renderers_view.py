"""What ``renderers`` shows."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from stagedoor.cli.engine import needs_engine
from stagedoor.cli.output import print_json, safe, show, table
from stagedoor.cli.plugins import TICKETS, load_renderers_of
from stagedoor.rendering.registry import Installed


def print_renderers(modules: Sequence[str], *, as_json: bool) -> None:
    """Print the installed renderers, as a table or as JSON.

    Raises:
        ConfigurationError: one of them cannot be loaded, or breaks the contract.
    """
    found = load_renderers_of(modules).list()
    if as_json:
        print_json({"renderers": [_data(item) for item in found]})
    elif found:
        made = table("name", "version", "type", "package", "found through")
        for item in found:
            package = f"{item.distribution} {item.distribution_version}".rstrip()
            made.add_row(
                safe(item.name, "bold"),
                safe(item.version),
                safe(item.content_type),
                safe(package),
                safe(item.source, "dim"),
            )
        show(made)
    else:
        show(Text(f"no renderer is installed; the built-in ones come with {TICKETS}", style="yellow"))


def begin_renderer(name: str, parent: Path) -> None:
    """Write the package of a new renderer into *parent*, and say what to do with it.

    Raises:
        ConfigurationError: the name is not allowed, its folder is there already or cannot be
            made, or the package that knows how is not installed.
    """
    with needs_engine("renderers new"):
        from stagedoor_renderers.skeleton import new_renderer  # noqa: PLC0415 - listing renderers needs none
    folder = new_renderer(name, parent=parent)
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
