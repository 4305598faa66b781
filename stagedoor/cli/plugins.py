"""Plugins: the handlers and renderers of this process, loaded once and before anything is claimed.

Everything that is wrong with them is found here and reported together: a module
that cannot be imported, two handlers for one kind, two renderers with one name,
none at all, and a package that has turned the GIL back on.
"""

import importlib
import importlib.metadata
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast

import attrs

from stagedoor.cli.text import printable
from stagedoor.core.flow import FlowSpec, flow_of
from stagedoor.core.handler import HandlerSpec, by_kind, spec_of
from stagedoor.errors import ConfigurationError, RendererNotFound
from stagedoor.rendering.candidates import advice_on, told
from stagedoor.rendering.registry import Registry, load_renderers

HANDLER_GROUP = "stagedoor.handlers"
TICKETS = "pip install 'stagedoor[tickets]'"

_LONGEST = 1000
"""Characters of what a plugin says that is wrong with it."""

_GIL_WARNING = re.compile(r"to load module '([^']+)'")
_GIL_LOSS = "eight render threads do the work of one"


@attrs.frozen(kw_only=True)
class Plugins:
    """What this process can do; *notes* are for the operator to read once."""

    handlers: Mapping[str, HandlerSpec]
    registry: Registry
    flows: Mapping[str, FlowSpec] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()


@attrs.frozen
class _Source:
    """Something that may hold handlers, not yet imported."""

    where: str
    load: Callable[[], Any]


def load_plugins(modules: Sequence[str], *, ticket_renderer: str, gil_culprits: Sequence[str] = ()) -> Plugins:
    """Load handlers and renderers from entry points and from *modules*, and warm the renderers up.

    Args:
        modules: the setting ``plugins``.
        ticket_renderer: must be among the renderers when tickets are rendered here.
        gil_culprits: modules imported before that have turned the GIL on.

    Raises:
        ConfigurationError: everything that is wrong, each plugin named.
    """
    problems: list[str] = []
    with recorded_gil_warnings() as culprits:
        specs, flows = _load_functions(modules, problems)
        # A flow takes the entries of its name, so it is looked at as a handler as well.
        everything = _collected(lambda: by_kind([*specs, *map(_as_handler, flows)]), problems) or {}
        handlers = {kind: spec for kind, spec in everything.items() if kind not in {flow.name for flow in flows}}
        registry = _collected(lambda: _load_renderers(modules), problems) or Registry()
    if not any("turned the GIL on" in problem for problem in problems):
        problems += _gil_problems([*gil_culprits, *culprits])
    if not problems:
        problems += _missing(handlers, registry, ticket_renderer)
    if not problems:
        # It takes its time, and looks at the GIL itself.
        _collected(registry.warm_up, problems)
    if problems:
        raise ConfigurationError(list(dict.fromkeys(problems)))
    return Plugins(
        handlers=handlers, registry=registry, flows={flow.name: flow for flow in flows}, notes=gil_notes()
    )  # fmt: skip


def handler_kinds(modules: Sequence[str]) -> frozenset[str]:
    """Return the kinds that are handled here, flows among them; renderers are not looked at.

    Raises:
        ConfigurationError: a plugin cannot be imported.
    """
    problems: list[str] = []
    specs, flows = _load_functions(modules, problems)
    if problems:
        raise ConfigurationError(problems)
    return frozenset({spec.kind for spec in specs} | {flow.name for flow in flows})


def load_flows(modules: Sequence[str]) -> Mapping[str, FlowSpec]:
    """Return the flows that are installed here, by name; renderers are not looked at.

    Raises:
        ConfigurationError: a plugin cannot be imported, or two flows have one name.
    """
    problems: list[str] = []
    _specs, flows = _load_functions(modules, problems)
    _collected(lambda: by_kind(map(_as_handler, flows)), problems)
    if problems:
        raise ConfigurationError(problems)
    return {flow.name: flow for flow in flows}


def _as_handler(flow: FlowSpec) -> HandlerSpec:
    """Return a flow as the handler of its name, to find two that share one; it is never run so."""
    return HandlerSpec(kind=flow.name, function=cast("Any", flow.function))


def _collected[T](function: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return function()
    except ConfigurationError as error:
        problems += error.problems
        return None


def _missing(handlers: Mapping[str, HandlerSpec], registry: Registry, ticket_renderer: str) -> Iterator[str]:
    if not handlers:
        yield (
            f"no handlers are installed (looked for entry points of the group {HANDLER_GROUP}): "
            "Stagedoor's own come with its installation; from a checkout: pip install ."
        )
    if "render_tickets" not in handlers:
        return
    if not registry.installed:
        yield f"no renderer is installed, so there is nothing to draw tickets with; {TICKETS}"
        return
    try:
        registry.get(ticket_renderer)
    except RendererNotFound:
        there = ", ".join(item.name for item in registry.list())
        yield (
            f"ticket_renderer: no renderer is called {ticket_renderer!r}; installed: {there}. For ticket-pdf: {TICKETS}"
        )


# -- handlers -------------------------------------------------------------------


def _load_functions(modules: Sequence[str], problems: list[str]) -> tuple[list[HandlerSpec], list[FlowSpec]]:
    """Return the handlers and the flows of all plugins."""
    sources = [*_entry_points(), *(_Source(f"plugins: the module {name}", _importer(name)) for name in modules)]
    specs: list[HandlerSpec] = []
    flows: list[FlowSpec] = []
    for source in sources:
        loaded = _imported(source, problems)
        found, found_flows = _found_in(loaded, spec_of), _found_in(loaded, flow_of)
        if loaded is not None and not found and not found_flows and not _has_renderers(loaded):
            problems.append(
                f'{source.where} has no handler and no renderer; mark its functions with @stagedoor.handler("kind") '
                'or @stagedoor.flow("name"), or give it RENDERERS'
            )
        specs += found
        flows += found_flows
    return specs, flows


def _entry_points() -> Iterator[_Source]:
    seen: set[tuple[str, str]] = set()
    for point in importlib.metadata.entry_points(group=HANDLER_GROUP):
        # A checkout on sys.path beside its own installation is found twice.
        if (point.name, point.value) in seen:
            continue
        seen.add((point.name, point.value))
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown package"
        yield _Source(f"{package} (entry point {point.name} = {point.value})", point.load)


def _importer(name: str) -> Callable[[], Any]:
    return lambda: importlib.import_module(name)


def _imported(source: _Source, problems: list[str]) -> Any:
    try:
        return source.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may fail in any way, and that is its own fault
        advice = "" if isinstance(error, ConfigurationError) else f"; {advice_on(error)}, or take it out"
        problems += [
            printable(said, _LONGEST) + advice for said in told(f"{source.where} could not be imported", error)
        ]
        return None


def _found_in[T](loaded: Any, mark_of: Callable[[object], T | None]) -> list[T]:
    """Return the marks of what an object is or a module holds, each once."""
    candidates = list(vars(loaded).values()) if isinstance(loaded, ModuleType) else [loaded]
    marks = {id(mark): mark for candidate in candidates if (mark := mark_of(candidate)) is not None}
    return list(marks.values())


# -- renderers --------------------------------------------------------------------


def _load_renderers(modules: Sequence[str]) -> Registry:
    # What could not be imported has been reported, and what has no renderers has handlers.
    with_renderers = [name for name in modules if _has_renderers(sys.modules.get(name))]
    return load_renderers(with_renderers, allow_none=True)


def load_renderers_of(modules: Sequence[str]) -> Registry:
    """Return all installed renderers, those of *modules* among them, for commands that run no handlers.

    Raises:
        ConfigurationError: a module or a renderer cannot be loaded, or breaks the contract.
    """
    problems: list[str] = []
    for name in modules:
        _imported(_Source(f"plugins: the module {name}", _importer(name)), problems)
    registry = _collected(lambda: _load_renderers(modules), problems)
    if registry is None or problems:
        raise ConfigurationError(problems)
    return registry


def _has_renderers(module: Any) -> bool:
    return isinstance(module, ModuleType) and (hasattr(module, "renderers") or hasattr(module, "RENDERERS"))


# -- the GIL --------------------------------------------------------------------------


@contextmanager
def recorded_gil_warnings() -> Iterator[list[str]]:
    """Collect the names of modules that turn the GIL on; other warnings are shown as ever.

    CPython names such a module in a warning, at the moment of its import, and nowhere else.
    """
    culprits: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield culprits
    for item in caught:
        match = _GIL_WARNING.search(str(item.message))
        if match:
            culprits.append(match[1])
        else:
            warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)


def is_gil_turned_on() -> bool:
    """Return whether a module has turned the GIL on: it could be off, and nobody has asked for it."""
    return _can_do_without() and not _is_asked_for() and _is_gil_enabled()


def _gil_problems(modules: Sequence[str]) -> Iterator[str]:
    if not is_gil_turned_on():
        return
    names = sorted(set(modules)) or [name for name in _KNOWN if name in sys.modules]
    culprit = " and ".join(f"{_package_of(name)} (module {name})" for name in names) or "a module"
    yield (
        f"the GIL is on: {culprit} is not built for free-threaded Python and turned it on when it was imported; "
        f"uninstall it, or {_GIL_LOSS}"
    )


_KNOWN = ("hiredis", "uharfbuzz", "lxml.etree", "pymupdf")
"""Known to turn it on; named when they were imported before anybody listened."""


def _package_of(module: str) -> str:
    top = module.partition(".")[0]
    for name in importlib.metadata.packages_distributions().get(top, ()):
        return f"the package {name} {importlib.metadata.version(name)}"
    return f"the package of {top}"


def gil_notes() -> tuple[str, ...]:
    """Return what an operator should know about this interpreter, once."""
    if not _is_gil_enabled():
        return ()
    if not _can_do_without():
        return (f"this Python has a GIL: {_GIL_LOSS}; use the free-threaded python3.14t",)
    return (f"the GIL is on because PYTHON_GIL or -X gil asks for it: {_GIL_LOSS}",)


def _can_do_without() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _is_asked_for() -> bool:
    """Return whether PYTHON_GIL=1 or -X gil=1 asks for it."""
    return getattr(sys.flags, "gil", None) == 1


def _is_gil_enabled() -> bool:
    return getattr(sys, "_is_gil_enabled", lambda: True)()
