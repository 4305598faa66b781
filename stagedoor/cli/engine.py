"""The way to the ticket engine for commands about what it makes: `preview`, `verify`, `renderers new`, `order check`.

Stagedoor works without any renderer, and finds those that are there through
their entry points, like anybody's. These commands are about the built-in ones,
which are a distribution of their own and may not be there, so they import them
inside `needs_engine` and nowhere else.
"""

import contextlib
from collections.abc import Iterator

from stagedoor.cli.plugins import TICKETS
from stagedoor.errors import ConfigurationError

_ENGINE = "stagedoor_renderers"


@contextlib.contextmanager
def needs_engine(command: str) -> Iterator[None]:
    """Let imports of the ticket engine fail with the name of what to install.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != _ENGINE:
            raise  # something else is missing: saying "install the tickets" would send people astray
        raise ConfigurationError(
            f"{command} needs the built-in ticket engine, which is not installed: {TICKETS}"
        ) from None
