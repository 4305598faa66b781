"""What a flow is: a function, its name and its policy; and what it works with, its call.

A flow is a plain function that is run again from the top for each event. What it
has done is remembered under the keys that it gives, so it needs no state of its
own; what it decides by must come from remembered values, from its metadata or
from nothing at all.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, Protocol

import attrs

from stagedoor.errors import ConfigurationError

FlowFunction = Callable[[Any], Any]
_MARK = "__stagedoor_flow__"
_NOT_PLAIN = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@attrs.frozen
class Failure:
    """How a call has ended otherwise than by returning: what ``on_failure`` gets.

    *state* is ``failed``, ``aborted`` or ``cancelled``; *error* is one line.
    """

    state: str
    error: str


@attrs.frozen(kw_only=True)
class FlowSpec:
    """One flow and how to run it.

    Args:
        name: 1 to 64 letters, digits, ``.``, ``_`` or ``-``; entries of this kind are its calls'.
        function: ``def f(call)``; what it returns is the call's result.
        timeout: seconds from the start of a call, sleeps and waits included; None for no limit.
        on_success: ``f(call, result)``, run as a step after the result has been recorded.
        on_failure: ``f(call, failure)``, likewise after a call has failed, or was aborted or cancelled.
    """

    name: str
    function: FlowFunction
    timeout: float | None = None
    on_success: Callable[[Any, Any], Any] | None = None
    on_failure: Callable[[Any, Failure], Any] | None = None


def flow(
    name: str,
    *,
    timeout: float | None = None,
    on_success: Callable[[Any, Any], Any] | None = None,
    on_failure: Callable[[Any, Failure], Any] | None = None,
) -> Callable[[FlowFunction], FlowFunction]:
    """Mark a function as a flow; the function itself stays as it is. Arguments as of `FlowSpec`.

    Raises:
        ConfigurationError: a bad name or timeout, or a function that is a coroutine's or a generator's.
    """

    def mark(function: FlowFunction) -> FlowFunction:
        spec = FlowSpec(
            name=name, function=function, timeout=timeout, on_success=on_success, on_failure=on_failure
        )  # fmt: skip
        _checked(spec)
        try:
            setattr(function, _MARK, spec)
        except AttributeError:
            raise ConfigurationError(
                f"flow: {name!r} is {function!r}, which cannot be marked; write a function that calls it, "
                "or mark functools.partial of it"
            ) from None
        return function

    return mark


def flow_of(function: object) -> FlowSpec | None:
    """Return how `flow` marked this object, or None."""
    spec = getattr(function, _MARK, None)
    return spec if isinstance(spec, FlowSpec) else None


def is_plain(function: object) -> bool:
    """Return whether calling this runs it: not so with coroutine and generator functions."""
    inner = getattr(function, "func", function)  # a functools.partial hides what it calls
    if type(inner) is FunctionType and not inner.__dict__:  # `inspect` looks for marks there; it takes 20 times as long
        return not inner.__code__.co_flags & _NOT_PLAIN
    return not (
        inspect.iscoroutinefunction(inner)
        or inspect.isgeneratorfunction(inner)
        or inspect.isasyncgenfunction(inner)
        or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004 - it asks what kind, not whether
    )


def _checked(spec: FlowSpec) -> None:
    name: object = spec.name  # whatever the decorator was given
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigurationError(f"flow: the name {name!r} is not 1 to 64 letters, digits, '.', '_' or '-'")
    for what, function in (("its function", spec.function), *_callbacks(spec)):
        if not callable(function):
            raise ConfigurationError(f"flow: {what} of {name!r} is {function!r}, which cannot be called")
        if not is_plain(function):
            raise ConfigurationError(
                f"flow: {what} of {name!r} is a coroutine or generator function; a flow is a plain function "
                "that calls, waits and returns"
            )
    timeout: object = spec.timeout
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and 0 < timeout < float("inf")):  # type: ignore[operator]  # a number
        raise ConfigurationError(f"flow: the timeout of {name!r} is {timeout!r}; it must be more than 0 seconds")


def _callbacks(spec: FlowSpec) -> Iterator[tuple[str, Any]]:
    for name in ("on_success", "on_failure"):
        function = getattr(spec, name)
        if function is not None:
            yield name, function


class Operations(Protocol):
    """The durable operations, of a call and of a turn of a sequence alike.

    Each has a key of 1 to 200 printable characters without a leading dot, once in
    a call. In a later pass the same operations must come in the same order with
    the same keys, as far as the call has come; new ones may follow.

    Each may raise `Suspend`, `CallCancelled` or `CallTimeout`, none of which is an
    `Exception`: let them pass.
    """

    def step[T](
        self,
        key: str,
        function: Callable[..., T],
        *args: Any,
        attempts: int | None = None,
        timeout: float | None = None,
        base: float | None = None,
        cap: float | None = None,
    ) -> T:
        """Return what ``function(*args)`` returned, in this pass or in an earlier one.

        Args:
            key: the step's name within the call.
            function: a plain function; its result is kept as JSON, built from and back to the type
                of its return annotation, if it has one.
            args: its arguments.
            attempts: how often it is run at most; None takes the worker's setting.
            timeout: seconds for one attempt: then ``call.ctx.check()`` raises `JobTimeout`, and a step that
                does not heed it is given up a grace later.
            base: seconds of the first backoff; None takes the worker's setting.
            cap: seconds of the longest backoff; None takes the worker's setting.

        Raises:
            StepFailed: the attempts are used up, or it raised `Permanent`; the flow may catch it.

        **Durability**: the value is kept in the same write as the step's state. A crash before that write
        runs the step again, so its effect must bear being repeated.
        """
        ...

    def memo[T](self, key: str, function: Callable[..., T], *args: Any) -> T:
        """Return what ``function(*args)`` returned the first time: a step with one attempt."""
        ...

    def sleep(self, key: str, seconds: float) -> None:
        """Return after so many seconds, 0 to ten years, by Redis' clock; no thread waits meanwhile.

        **Durability**: the time is kept when it is first asked for. It may pass while no worker runs.
        """
        ...

    def wait_signal(self, name: str, *, timeout: float | None = None, key: str | None = None) -> Any:
        """Return the value of the oldest signal of this name that no other wait has had.

        Args:
            name: the signal's; one that was sent before the wait counts.
            timeout: seconds from the first time that this is called; None waits as long as the call lasts.
            key: of this operation; the name, if None. Needed to wait for one name twice.

        Raises:
            SignalTimeout: none has come in time.
        """
        ...

    def gather[I, T](
        self,
        key: str,
        items: Sequence[I],
        function: Callable[[I], T],
        *,
        limit: int = 8,
        attempts: int | None = None,
        timeout: float | None = None,
        base: float | None = None,
        cap: float | None = None,
    ) -> list[T]:
        """Return ``[function(item) for item in items]``, each item a step of its own called ``<key>/<index>``.

        Args:
            key: the operation's name within the call.
            items: values that make JSON; in later passes the same ones.
            function: as of `step`.
            limit: how many run at once at most; as many as slots are free beside this one.
            attempts: as of `step`, for each item.
            timeout: as of `step`, for each attempt.
            base: as of `step`.
            cap: as of `step`.

        Raises:
            StepFailed: items have used up their attempts; lists all. No new items are begun after the first.
        """
        ...

    def sequence(self, key: str, *, limit: int = 1000) -> "Iterator[Turn]":
        """Yield turns 0, 1, 2 …, at most *limit*: a loop whose operations have keys ``<key>/<turn>/…``.

        Leave it with ``break``; its ``else`` runs when the limit is reached.
        """
        ...


class Turn(Operations, Protocol):
    """One turn of a sequence."""

    @property
    def number(self) -> int:
        """Counts from 0."""
        ...


class Call(Operations, Protocol):
    """One run of a flow: what its function gets."""

    @property
    def id(self) -> str:
        """The call's id, which is also the key under which it was started only once."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the call was started with; read-only."""
        ...

    @property
    def ctx(self) -> Any:
        """The handler context of this pass: use it inside steps, for what it gives is not remembered."""
        ...
