"""Where renderers come from, and what to do about one that cannot be had.

An entry point of another package, or a module that the setting ``plugins`` names. Nothing
is imported before it is loaded, and it may fail in any way: then the fault is the
plugin's, its set-up's or the installation's, and each of them is put right elsewhere.
"""

import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from stagedoor.errors import ConfigurationError
from stagedoor.rendering.api import ENTRY_POINT_GROUP

_LONGEST = 1000
"""Characters of what an exception says; the rest of a longer one is for its own traceback."""

_MOST = 20
"""Problems of one plugin that are told; a layout may have any number."""


@attrs.frozen(kw_only=True)
class Candidate:
    """Something that says it is a renderer, not yet imported.

    *source* is how a person finds it: an entry point or a module. *expected*
    is the name it must answer to, None where any will do. *load* returns the
    renderers and may fail in any way. *way_out* is how to do without it.
    """

    source: str
    distribution: str
    distribution_version: str
    load: Callable[[], Sequence[Any]]
    expected: str | None = None
    way_out: str = "uninstall it"

    @property
    def where(self) -> str:
        """The words for it in a message."""
        return f"{self.distribution} {self.distribution_version} ({self.source})".replace("  ", " ")


def from_entry_points() -> Iterator[Candidate]:
    """Yield what other packages have published."""
    seen: set[tuple[str, str, str]] = set()
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        name = point.dist.name if point.dist else "unknown distribution"
        # A checkout on sys.path beside its own installation is found twice.
        identity = (point.name, point.value, name)
        if identity in seen:
            continue
        seen.add(identity)
        yield Candidate(
            source=f"entry point {point.name} = {point.value}",
            distribution=name,
            distribution_version=point.dist.version if point.dist else "",
            load=lambda point=point: [_made(point.load())],  # type: ignore[misc] # mypy cannot type a default in a lambda
            expected=point.name,
        )


def from_module(name: str) -> Candidate:
    """Return what the module *name* brings, which the setting ``plugins`` names."""
    distribution, version = _distribution_of(name)
    return Candidate(
        source=f"module {name}",
        distribution=distribution,
        distribution_version=version,
        load=lambda: _renderers_of(importlib.import_module(name)),
        way_out="take it out of the setting plugins",
    )


def _distribution_of(module: str) -> tuple[str, str]:
    top = module.partition(".")[0]
    for name in importlib.metadata.packages_distributions().get(top, ()):
        return name, importlib.metadata.version(name)
    return "no distribution", ""


def _renderers_of(module: Any) -> list[Any]:
    made = getattr(module, "renderers", None)
    found = made() if callable(made) else getattr(module, "RENDERERS", None)
    if found is None:
        raise AttributeError(f"module {module.__name__} has neither a function renderers() nor a tuple RENDERERS")
    return [_made(item) for item in found]


def _made(value: Any) -> Any:
    """Return the renderer that an entry point's value makes; an instance stands for itself."""
    is_factory = isinstance(value, type) or not hasattr(value, "render")
    return value() if is_factory and callable(value) else value


# -- what is wrong with one -----------------------------------------------------


def load_problems(candidate: Candidate, error: BaseException) -> list[str]:
    """Say why *candidate* could not be loaded, and what to do about that."""
    what_failed = f"{candidate.where} could not be loaded"
    if isinstance(error, ConfigurationError):
        return told(what_failed, error)
    (said,) = told(what_failed, error)
    return [f"{said}; {advice_on(error)}, or {candidate.way_out}"]


def advice_on(error: BaseException) -> str:
    """Return what somebody can do about a plugin that raised *error*."""
    if isinstance(error, ImportError):
        return "install what it needs"
    if isinstance(error, OSError):
        return "let it find and read the file that it needs"
    return "this is a fault in it: have it mended"


def told(what_failed: str, error: BaseException) -> list[str]:
    """Return *what_failed* with what *error* says, on a line for each of its problems, none of them long."""
    if not isinstance(error, ConfigurationError):
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return [f"{what_failed}: {_cut(words)}"]
    problems = [f"{what_failed}: {_cut(problem)}" for problem in error.problems[:_MOST]]
    more = len(error.problems) - len(problems)
    return [*problems, f"{what_failed}: {more} more problems"] if more else problems


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
