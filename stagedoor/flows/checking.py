"""Does code fit a history? Asked offline, before the code is deployed: no Redis, no orders, no step is run."""

import ast
import inspect
import random
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast

import attrs

from stagedoor.broker.calls import Calls, Pass
from stagedoor.core.call import Wait
from stagedoor.core.flow import FlowSpec
from stagedoor.core.history_data import journal_of
from stagedoor.core.journal import Journal
from stagedoor.core.outcome import describe
from stagedoor.core.tenure import Stream, Tenure
from stagedoor.errors import CallCancelled, FlowChanged, FlowMisused
from stagedoor.flows.attempts import Policy
from stagedoor.flows.call import FlowCall
from stagedoor.flows.delivery import Delivery
from stagedoor.flows.live import LivePass
from stagedoor.flows.run import Changed, Kit, Run, Suspended
from stagedoor.flows.values import Values

__all__ = ["Finding", "check_history", "check_source"]

_DURABLE = frozenset(("step", "memo", "sleep", "wait_signal", "gather"))


@attrs.frozen
class Finding:
    """What is wrong: a *misfit* would park the call, a *warning* may surprise; *where* is a file and line, if known."""

    level: str
    text: str
    where: str = ""


def check_history(flow: FlowSpec, history: Journal | Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return how a flow's function does not fit the history of a call.

    The function is run from the top, with the values that are remembered, up to the first
    operation that is not; no step, memo or item is run.

    Args:
        flow: the flow as it is now.
        history: a call's journal, or the object that ``flow show --json`` prints of it.

    Raises:
        InvalidHistory: it is no history.
    """
    journal = history if isinstance(history, Journal) else journal_of(history)
    if journal.flow != flow.name:
        text = f"a call of the flow {journal.flow!r}, and this is {flow.name!r}"
        return (Finding("misfit", text),)
    run = _OfflineRun(journal)
    error: BaseException | None = None
    try:
        flow.function(FlowCall(run))
    except BaseException as raised:  # noqa: BLE001 - whatever the function does is what is asked for
        error = raised
    run.close()
    return tuple(_findings(run, error, has_ended=journal.state.has_ended))


def _findings(run: "_OfflineRun", error: BaseException | None, *, has_ended: bool) -> Iterator[Finding]:
    if run.asked_ctx:
        yield Finding(
            "warning", f"call.ctx.{run.asked_ctx} is used outside a step: what it gives is not remembered"
        )  # fmt: skip
    if isinstance(run.stop, Changed):
        yield Finding("misfit", str(run.stop.error))
        return
    if isinstance(run.stop, Suspended):
        return
    try:
        run.history.check_end()
    except FlowChanged as changed:
        yield Finding("misfit", str(changed))
        return
    if error is not None and not has_ended and not run.asked_ctx:
        yield Finding("warning", f"the call would fail after operation {run.history.reached}: {describe(error)}")


class _OfflineRun(Run):
    """A run that ends at the first operation that is not remembered."""

    def __init__(self, journal: Journal) -> None:
        self.asked_ctx = ""
        kit = Kit(
            calls=cast("Calls", None),
            values=Values(),
            defaults=Policy(attempts=1, base=0, cap=0),
            clock=lambda: 0.0,
            rng=random.Random(0),
            pause=_never,
        )
        delivery = Delivery(
            tenure=lambda: Tenure(Stream.JOBS, "0-0", 0),
            is_ours=lambda: True,
            check=lambda: None,
            make_ctx=lambda _check: _NoCtx(self),
        )
        live = LivePass(Pass(journal.call_id, 0, 0), kit.clock, now=0.0)
        super().__init__(kit, live=live, delivery=delivery, journal=journal, timeout_s=None)

    def interrupt(self) -> None:
        """End the run: what comes now would be done for the first time."""
        self._reach()

    def interruption(self) -> type[CallCancelled]:
        """Return something, so that no item of a gather is begun."""
        return CallCancelled

    def _reach(self) -> NoReturn:
        self.suspend_with(Wait(waiting_for=""), what="the first operation that is not remembered")


class _NoCtx:
    """Stands in for the handler context, which only steps may use."""

    def __init__(self, run: _OfflineRun) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        self._run.asked_ctx = self._run.asked_ctx or name
        raise FlowMisused(f"call.ctx.{name} outside a step")


def _never(_seconds: float) -> None:
    raise AssertionError("nothing waits offline")


# -- the source ---------------------------------------------------------------------------


def check_source(flow: FlowSpec) -> tuple[Finding, ...]:
    """Return warnings of what runs again at each suspension, or would swallow one; nothing without the source."""
    function = inspect.unwrap(flow.function)
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return ()
    body = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), None)
    if body is None or not body.args.args:
        return ()
    names = _names_of_calls(body)
    file = inspect.getsourcefile(function) or "?"
    found = sorted(_surprises(body, names))
    return tuple(Finding("warning", text, f"{file}:{first + line - 1}") for line, text in found)


def _names_of_calls(body: ast.FunctionDef) -> frozenset[str]:
    """Return the names by which a function knows its call and the turns of its sequences."""
    names = {body.args.args[0].arg}
    for node in ast.walk(body):
        if (
            isinstance(node, ast.For)
            and isinstance(node.target, ast.Name)
            and _is_call_of(node.iter, names, {"sequence"})
        ):
            names.add(node.target.id)
    return frozenset(names)


def _is_call_of(node: ast.AST, names: "frozenset[str] | set[str]", methods: "frozenset[str] | set[str]") -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in names
    )


def _surprises(body: ast.FunctionDef, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    def is_within(nodes: list[ast.stmt]) -> bool:
        return any(_is_call_of(inner, names, _DURABLE) for node in nodes for inner in ast.walk(node))

    for node in ast.walk(body):
        if isinstance(node, ast.Try | ast.TryStar):
            if node.finalbody and is_within([*node.body, *node.orelse, *_handler_bodies(node)]):
                yield node.finalbody[0].lineno, "`finally` around a suspension runs at each one, not only at the end"
            for handler in node.handlers:
                if is_within(node.body) and _catches_all(handler) and not _raises(handler):
                    yield handler.lineno, "this `except` would swallow a suspension: catch Exception at most"
        elif isinstance(node, ast.With) and is_within(node.body):
            yield node.lineno, "`with` around a suspension is left at each one, and entered again in the next pass"


def _handler_bodies(node: ast.Try | ast.TryStar) -> list[ast.stmt]:
    return [statement for handler in node.handlers for statement in handler.body]


def _catches_all(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in _ALL) for kind in kinds)


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))


_ALL = frozenset(("BaseException", "Suspend"))
