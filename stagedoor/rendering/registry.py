"""Finds the renderers that are installed, and refuses the ones that would fail later.

Whatever is wrong with a plugin is found at start, named with its distribution,
and reported together with everything else that is wrong: an operator should
have to start a worker once, not once per mistake.
"""

import inspect
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from stagedoor.errors import ConfigurationError, RendererNotFound
from stagedoor.rendering.api import ENTRY_POINT_GROUP, Renderer
from stagedoor.rendering.candidates import Candidate, from_entry_points, from_module, load_problems, told

BUILT_IN_PACKAGE = "stagedoor-renderers"
"""What to install when there is nothing to draw with."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_SUFFIX = re.compile(r"\.[a-z0-9]{1,16}")
_CONTENT_TYPE = re.compile(r"[a-z0-9.+-]+/[a-z0-9.+-]+")
_GIL_WARNING = re.compile(r"to load module '([^']+)'")

_NOTE_ORDINARY_BUILD = (
    "this Python has a GIL: eight render threads do the work of one (on 2 cores 0.96 times as many tickets as one "
    "thread, against 1.91 times without it); use python3.14t"
)
_NOTE_GIL_ON = (
    "the GIL is on, though this Python can do without it: PYTHON_GIL, -X gil, or a module that was imported before "
    "any renderer turned it on; eight render threads do the work of one"
)


@attrs.frozen(kw_only=True)
class Installed:
    """A renderer that passed its checks, and where it came from."""

    name: str
    version: str
    distribution: str
    distribution_version: str
    content_type: str
    suffix: str
    source: str
    renderer: Renderer


@attrs.frozen(kw_only=True)
class Registry:
    """The renderers of this process, by name.

    *notes* holds what the operator should read once and may live with, such as
    an interpreter that has a GIL.
    """

    installed: tuple[Installed, ...] = ()
    notes: tuple[str, ...] = ()
    _by_name: Mapping[str, Installed] = attrs.field(init=False, repr=False, eq=False)

    @_by_name.default
    def _index(self) -> Mapping[str, Installed]:
        return {item.name: item for item in self.installed}

    def get(self, name: str) -> Renderer:
        """Return the renderer of this name.

        Raises:
            RendererNotFound: nothing of that name is installed; says what is, and
                what to install.
        """
        found = self._by_name.get(name)
        if found is None:
            raise RendererNotFound(_not_found(name, self.installed))
        return found.renderer

    def list(self) -> tuple[Installed, ...]:
        """Return all renderers with their distributions, in the order of their names."""
        return tuple(sorted(self.installed, key=lambda item: item.name))

    def warm_up(self) -> None:
        """Warm up every renderer, one after the other, in this thread.

        Whatever a library does on first use (filling tables, opening its data
        files) has happened when this returns, and happened once.

        Raises:
            ConfigurationError: a renderer failed to warm up, has no fingerprint, or
                turned the GIL on; every such renderer is named.
        """
        problems = [problem for item in self.list() for problem in warm_up_one(item)]
        if problems:
            raise ConfigurationError(problems)


def load_renderers(modules: Sequence[str] = (), *, allow_none: bool = False) -> Registry:
    """Return the registry of all installed renderers.

    Args:
        modules: names of further modules; each has ``renderers()``, which returns
            renderers, or a tuple ``RENDERERS``.
        allow_none: no renderer at all is fine, for commands that only list them.

    Raises:
        ConfigurationError: a plugin cannot be imported, breaks the contract, has
            the name of another, or turned the GIL on; or there is none.
    """
    candidates = [*from_entry_points(), *(from_module(name) for name in modules)]
    registry = check_candidates(candidates)
    if not registry.installed and not allow_none:
        raise ConfigurationError(_none_installed(modules))
    return registry


def names_in_use(modules: Sequence[str] = ()) -> frozenset[str]:
    """Return the names that a new renderer cannot have: those of entry points, and of renderers of *modules*.

    What cannot be loaded has no name and is left out; loading the renderers says what is wrong with it.
    """
    published = {candidate.expected for candidate in from_entry_points() if candidate.expected is not None}
    found = (_load_one(from_module(name), gil=_gil_is_enabled)[0] for name in modules)
    return frozenset(published | {item.name for items in found for item in items})


def check_candidates(
    candidates: Iterable[Candidate],
    *,
    gil_is_enabled: Callable[[], bool] | None = None,
    free_threaded_build: bool | None = None,
) -> Registry:
    """Load and check *candidates* in order, and return the registry of them.

    Args:
        candidates: what to load.
        gil_is_enabled: tells whether the GIL is on at this moment; the
            interpreter is asked when it is None.
        free_threaded_build: whether this interpreter can do without a GIL; it is
            asked when this is None.

    Raises:
        ConfigurationError: all problems of all candidates.
    """
    gil = gil_is_enabled or _gil_is_enabled
    built_free = (
        bool(sysconfig.get_config_var("Py_GIL_DISABLED")) if free_threaded_build is None else free_threaded_build
    )
    notes = _gil_notes(built_free=built_free, enabled=gil())
    installed: list[Installed] = []
    problems: list[str] = []
    for candidate in candidates:
        found, wrong = _load_one(candidate, gil=gil)
        installed += found
        problems += wrong
    problems += _duplicates(installed)
    if problems:
        raise ConfigurationError(problems)
    return Registry(installed=tuple(installed), notes=notes)


# -- loading one --------------------------------------------------------------


def _load_one(candidate: Candidate, *, gil: Callable[[], bool]) -> tuple[list[Installed], list[str]]:
    """Load one candidate: what it brought, and what is wrong with it."""
    was_enabled = gil()
    # CPython names the extension module that brings the GIL back in a warning,
    # and nowhere else.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            loaded = candidate.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may fail in any way, and that is its own fault
            return [], load_problems(candidate, error)
    if gil() and not was_enabled:
        return [], [_gil_turned_on(candidate.where, caught)]
    installed: list[Installed] = []
    problems: list[str] = []
    for item in loaded:
        wrong = _contract_problems(item, candidate)
        problems += wrong
        if not wrong:
            installed.append(_installed(item, candidate))
    return installed, problems


def _installed(renderer: Renderer, candidate: Candidate) -> Installed:
    return Installed(
        name=renderer.name,
        version=renderer.version,
        distribution=candidate.distribution,
        distribution_version=candidate.distribution_version,
        content_type=renderer.content_type,
        suffix=renderer.suffix,
        source=candidate.source,
        renderer=renderer,
    )


def named(item: Installed) -> str:
    """Return what a renderer is called where something is wrong with it."""
    return f"renderer {item.name} of {item.distribution} {item.distribution_version}".rstrip()


def warm_up_one(item: Installed) -> list[str]:
    """Warm up one renderer in this thread, and return what is wrong with it."""
    where = named(item)
    was_enabled = _gil_is_enabled()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            item.renderer.warm_up()
            fingerprint: object = item.renderer.fingerprint()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as in _load_one
            return told(f"{where} failed to warm up", error)
    if _gil_is_enabled() and not was_enabled:
        return [_gil_turned_on(where, caught)]
    if not isinstance(fingerprint, str) or not fingerprint:
        return [f"{where}: fingerprint() must return a string that is not empty, found {fingerprint!r}"]
    return []


# -- the contract -------------------------------------------------------------


def _contract_problems(item: Any, candidate: Candidate) -> list[str]:
    """Return every way in which *item* is no renderer; the checks that the type system cannot make."""
    problems = [
        f"{candidate.where}: {problem}"
        for problem in (
            _text_problem(item, "name", _NAME, "lower-case letters, digits and dashes, up to 64"),
            _text_problem(item, "version", None, "text that is not empty"),
            _text_problem(item, "content_type", _CONTENT_TYPE, "a media type such as application/pdf"),
            _text_problem(item, "suffix", _SUFFIX, "a dot and up to 16 lower-case letters or digits, such as .pdf"),
            _method_problem(item, "fingerprint", 0),
            _method_problem(item, "warm_up", 0),
            _method_problem(item, "render", 2),
        )
        if problem
    ]
    name = getattr(item, "name", None)
    if not problems and candidate.expected is not None and name != candidate.expected:
        problems.append(
            f"{candidate.where}: the entry point is called {candidate.expected}, the renderer {name}; "
            "give both one name"
        )
    return problems


def _text_problem(item: Any, attribute: str, pattern: re.Pattern[str] | None, allowed: str) -> str | None:
    value = getattr(item, attribute, None)
    if value is None:
        return f"{type(item).__name__} has no attribute {attribute}; it must be {allowed}"
    if isinstance(value, str) and value and (pattern is None or pattern.fullmatch(value)):
        return None
    return f"{type(item).__name__}.{attribute} must be {allowed}, found {value!r}"


def _method_problem(item: Any, attribute: str, arguments: int) -> str | None:
    method = getattr(item, attribute, None)
    if not callable(method):
        return f"{type(item).__name__} has no method {attribute}()"
    try:
        inspect.signature(method).bind(*[None] * arguments)
    except TypeError as error:
        return f"{type(item).__name__}.{attribute}() must take {arguments} arguments: {error}"
    except ValueError:
        return None  # a built-in without a signature: it will be known when it is called
    return None


def _duplicates(installed: Sequence[Installed]) -> list[str]:
    by_name: dict[str, list[Installed]] = {}
    for item in installed:
        by_name.setdefault(item.name, []).append(item)
    return [
        f"renderer {name} is there {len(items)} times: "
        + " and ".join(f"{i.distribution} {i.distribution_version} ({i.source})".replace("  ", " ") for i in items)
        + "; uninstall or rename all but one"
        for name, items in sorted(by_name.items())
        if len(items) > 1
    ]


# -- messages -----------------------------------------------------------------


def _gil_turned_on(where: str, caught: Sequence[warnings.WarningMessage]) -> str:
    modules = [match[1] for item in caught if (match := _GIL_WARNING.search(str(item.message)))]
    culprit = f"module {', '.join(modules)}" if modules else "a module that it imports"
    return (
        f"{where} turned the GIL on: {culprit} is not built for free-threaded Python; "
        "uninstall that module, or the renderer that needs it"
    )


def _gil_notes(*, built_free: bool, enabled: bool) -> tuple[str, ...]:
    if not built_free:
        return (_NOTE_ORDINARY_BUILD,)
    if enabled:
        return (_NOTE_GIL_ON,)
    return ()


def _not_found(name: str, installed: Sequence[Installed]) -> str:
    there = ", ".join(sorted(item.name for item in installed)) or "none"
    return f"no renderer is called {name}; installed: {there}. {_what_to_install()}"


def _none_installed(modules: Sequence[str]) -> str:
    looked = f"entry points of the group {ENTRY_POINT_GROUP}"
    if modules:
        looked += f" and the modules {', '.join(modules)}"
    return f"no renderer is installed (looked for {looked}). {_what_to_install()}"


def _what_to_install() -> str:
    return f"The built-in ones come with: pip install {BUILT_IN_PACKAGE}"


def _gil_is_enabled() -> bool:
    return sys._is_gil_enabled()  # noqa: SLF001 - the documented way to ask, underscore and all
