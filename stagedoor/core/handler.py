"""What a handler is: a function, the kind of job it takes, and the kind's policy."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from stagedoor.errors import ConfigurationError

HandlerFunction = Callable[[Any, Any], Any]
_MARK = "__stagedoor_handler__"
_KIND = re.compile(r"[A-Za-z0-9._-]{1,64}")


@attrs.frozen(kw_only=True)
class HandlerSpec:
    """One kind of job and how to run it.

    Args:
        kind: 1 to 64 letters, digits, ``.``, ``_`` or ``-``.
        function: ``def f(job, ctx)``, run in a thread, or ``async def``, run as a trio task.
        attempts: how often it is run before it is dead-lettered; None takes the worker's setting.
        timeout: seconds for one attempt; None for no limit.
        base: seconds of the first backoff; None takes the worker's setting.
        cap: seconds of the longest backoff; None takes the worker's setting.
        retry_on: only these exceptions are retried (`Retry` always is); empty means all.
        give_up_on: these exceptions are dead-lettered at once.
    """

    kind: str
    function: HandlerFunction
    attempts: int | None = None
    timeout: float | None = None
    base: float | None = None
    cap: float | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    give_up_on: tuple[type[BaseException], ...] = ()

    is_async: bool = attrs.field(init=False)
    """Whether it runs as a trio task instead of in a thread."""

    @is_async.default
    def _is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)


def handler(kind: str, **policy: Any) -> Callable[[HandlerFunction], HandlerFunction]:
    """Mark a function as the handler of a kind; the function itself stays as it is.

    Args:
        kind: the entries' ``kind``.
        policy: `HandlerSpec`'s ``attempts timeout base cap retry_on give_up_on``.

    Raises:
        ConfigurationError: a bad kind or policy, or a generator function.
    """

    def mark(function: HandlerFunction) -> HandlerFunction:
        setattr(function, _MARK, _checked(HandlerSpec(kind=kind, function=function, **_normal(policy))))
        return function

    return mark


def spec_of(function: object) -> HandlerSpec | None:
    """Return how `handler` marked this object, or None."""
    spec = getattr(function, _MARK, None)
    return spec if isinstance(spec, HandlerSpec) else None


def by_kind(specs: Iterable[HandlerSpec]) -> Mapping[str, HandlerSpec]:
    """Return the handlers by kind.

    Raises:
        ConfigurationError: two handlers for one kind.
    """
    found: dict[str, HandlerSpec] = {}
    for spec in specs:
        other = found.setdefault(spec.kind, spec)
        if other.function is not spec.function:
            raise ConfigurationError(
                f"handlers: {_where(other)} and {_where(spec)} both take the kind {spec.kind!r}; "
                "uninstall one of them or rename its kind"
            )
    return found


def _where(spec: HandlerSpec) -> str:
    return f"{spec.function.__module__}.{getattr(spec.function, '__qualname__', spec.function)}"


def _normal(policy: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(policy) - {"attempts", "timeout", "base", "cap", "retry_on", "give_up_on"})
    if unknown:
        raise ConfigurationError(f"handler: unknown policy {', '.join(unknown)}")
    for name in ("retry_on", "give_up_on"):
        value = policy.get(name, ())
        policy[name] = tuple(value) if isinstance(value, tuple | list | set | frozenset) else (value,)
    return policy


def _checked(spec: HandlerSpec) -> HandlerSpec:
    kind: object = spec.kind  # whatever the decorator was given
    if not isinstance(kind, str) or _KIND.fullmatch(kind) is None:
        raise ConfigurationError(f"handler: the kind {spec.kind!r} is not 1 to 64 letters, digits, '.', '_' or '-'")
    if inspect.isgeneratorfunction(spec.function) or inspect.isasyncgenfunction(spec.function):
        raise ConfigurationError(f"handler: {_where(spec)} is a generator function; it must return instead of yield")
    attempts: object = spec.attempts
    if attempts is not None and not (isinstance(attempts, int) and attempts >= 1):
        raise ConfigurationError(f"handler: attempts of {spec.kind!r} is {attempts!r}; it must be 1 or more")
    for name in ("timeout", "base", "cap"):
        seconds = getattr(spec, name)
        if seconds is not None and not (isinstance(seconds, int | float) and 0 <= seconds < float("inf")):
            raise ConfigurationError(f"handler: {name} of {spec.kind!r} is {seconds!r}; it must be 0 or more seconds")
    for name in ("retry_on", "give_up_on"):
        for error in getattr(spec, name):
            if not (isinstance(error, type) and issubclass(error, BaseException)):
                raise ConfigurationError(f"handler: {name} of {spec.kind!r} has {error!r}, which is no exception class")
    return spec
