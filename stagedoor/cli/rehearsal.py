"""What the commands that bring real parts up on this machine need first: those parts, and a folder."""

import contextlib
import importlib.metadata
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs

from stagedoor.errors import ConfigurationError
from stagedoor.settings import Settings


def check_installed() -> None:
    """Look for what a rehearsal needs before anything is started.

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


@attrs.define
class Place:
    """The folder of a rehearsal, and whether it is left there at the end."""

    path: Path
    is_kept: bool


@contextlib.contextmanager
def folder_for(what: str, wanted: Path | None, *, is_kept: bool = False) -> Iterator[Place]:
    """Give an empty folder: the one that was asked for, which is always kept, or a temporary one.

    Args:
        what: the command, for the temporary folder's name.
        wanted: the folder that was asked for.
        is_kept: whether the temporary one is kept; may be changed on the way. After an error
            it is kept only if it has logs.

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
        yield Place(wanted.resolve(), is_kept=True)
        return
    place = Place(Path(tempfile.mkdtemp(prefix=f"stagedoor-{what}-")), is_kept)
    try:
        yield place
    except BaseException:
        place.is_kept = place.is_kept and any((place.path / "logs").glob("*"))
        raise
    finally:
        if not place.is_kept:
            shutil.rmtree(place.path, ignore_errors=True)
