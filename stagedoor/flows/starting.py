"""What others do with calls: start them and send them signals, from any process."""

import contextlib
import json
import math
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from stagedoor.broker.calls import Calls, NewCall, Started, Told
from stagedoor.core.call import CallState
from stagedoor.core.flow import FlowSpec, flow_of
from stagedoor.core.journal import is_call_id, is_key
from stagedoor.errors import FlowMisused
from stagedoor.flows.attempts import is_seconds
from stagedoor.flows.call import LONGEST_S
from stagedoor.flows.values import Values

__all__ = ["CallView", "Handle", "look_up", "new_call_id", "open_calls", "send_signal", "start"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_LONGEST_LABEL = 128


@attrs.frozen
class Handle:
    """A call that was started, now or before: *is_new* says which."""

    call_id: str
    is_new: bool
    state: CallState


@attrs.frozen
class CallView:
    """A call as it is: *result* once it is done, *error* where it has failed or is parked."""

    call_id: str
    flow: str
    state: CallState
    result: Any = None
    error: str = ""


def new_call_id() -> str:
    """Return an id that no other call has."""
    return secrets.token_hex(16)


@contextlib.contextmanager
def open_calls(redis_url: str, *, namespace: str = "jobs") -> Iterator[Calls]:
    """Open the calls of a namespace, to start some or to tell them something; nothing is connected before that.

    Raises:
        ConfigurationError: the address or the namespace will not do.
    """
    from stagedoor.broker.connection import Link  # noqa: PLC0415 - an engine is given its calls
    from stagedoor.broker.redis_calls import RedisCalls  # noqa: PLC0415 - as above
    from stagedoor.core.keys import Keys  # noqa: PLC0415 - as above

    link = Link(redis_url, namespace=namespace)
    try:
        yield RedisCalls(link, Keys(namespace))
    finally:
        link.close()


def start(
    calls: Calls,
    flow: str | FlowSpec | Callable[..., Any],
    *,
    call_id: str | None = None,
    metadata: Mapping[str, str] | None = None,
    delay_s: float = 0.0,
    request_id: str = "",
    trace: str = "",
) -> Handle:
    """Start a call of a flow, unless there is one of this id, which is then left as it is.

    Args:
        calls: see `open_calls`.
        flow: its name, or its function.
        call_id: 1 to 64 letters, digits, ``.``, ``_`` or ``-``; a random one, if None.
        metadata: texts by name, at most 1,000.
        delay_s: seconds from now, up to ten years.
        request_id: joins the call's log lines to a request.
        trace: joins them to a trace.

    Raises:
        FlowMisused: an argument is not allowed, or the id is a call of another flow.
        FlowLimitExceeded: the metadata is too large.
        BrokerUnavailable: repeat it with the same id.

    **Durability**: the call will run when this returns. Safe to repeat with the same *call_id*.
    """
    wanted = NewCall(
        call_id=new_call_id() if call_id is None else _checked_id(call_id),
        flow=_name_of(flow),
        metadata=_checked_metadata(metadata or {}),
        delay_s=_checked_delay(delay_s),
        request_id=_checked_label("request_id", request_id),
        trace=_checked_label("trace", trace),
    )
    return _started(calls.start(wanted), wanted)


def _started(started: Started, wanted: NewCall) -> Handle:
    if started.flow != wanted.flow:
        raise FlowMisused(
            f"{wanted.call_id!r} is a call of the flow {started.flow!r}, not of {wanted.flow!r}; take another id"
        )
    return Handle(wanted.call_id, started.created, started.state)


def send_signal(calls: Calls, call_id: str, name: str, value: Any = None, *, token: str | None = None) -> Told:
    """Put a signal into a call's mailbox; it counts also if the call waits for it only later.

    Args:
        calls: see `open_calls`.
        call_id: of the call.
        name: what the call waits for.
        value: JSON, at most 256 KiB.
        token: names this sending, 1 to 200 printable characters, the first no dot: sent again with the same one it is
            delivered once. Random, if None.

    Raises:
        FlowMisused: a name or the token is not allowed.
        InvalidValue: the value is no JSON, or too large.
        BrokerUnavailable: repeat it with the same *token*.

    **Durability**: where it answers `Told.TOLD` the signal is in the mailbox, and the call will look at it.
    Safe to repeat with the same *token*.
    """
    if not is_call_id(call_id):
        raise FlowMisused(f"{call_id!r} is no id of a call")
    if not is_key(name):
        raise FlowMisused(f"the signal {name!r}: expected 1 to 200 printable characters, the first no dot")
    if token is not None and not is_key(token):
        # It is kept as long as the call, and counts for nothing of what a call may keep.
        raise FlowMisused(f"the token {token[:40]!r}: expected 1 to 200 printable characters, the first no dot")
    text = Values().keep(value).text
    return calls.signal(call_id, name, text, token=secrets.token_hex(16) if token is None else token)


def look_up(calls: Calls, call_id: str) -> CallView | None:
    """Return a call's state and result, None where there is none, or no longer.

    Raises:
        BrokerUnavailable: ask again.
    """
    journal = calls.show(call_id)
    if journal is None:
        return None
    outcome = journal.outcome if journal.state.has_ended else None
    result = None if outcome is None or outcome.result is None else json.loads(outcome.result)
    error = journal.parked_error if outcome is None else outcome.error
    return CallView(call_id, journal.flow, journal.state, result, error)


def _name_of(flow: str | FlowSpec | Callable[..., Any]) -> str:
    if isinstance(flow, FlowSpec):
        return flow.name
    name = flow if isinstance(flow, str) else getattr(flow_of(flow), "name", None)
    if name is None or _NAME.fullmatch(name) is None:
        raise FlowMisused(f"{flow!r} is neither a flow nor the name of one")
    return name


def _checked_id(call_id: object) -> str:
    if not isinstance(call_id, str) or not is_call_id(call_id):
        raise FlowMisused(f"the call id {call_id!r} is not 1 to 64 letters, digits, '.', '_' or '-'")
    return call_id


def _checked_metadata(metadata: Mapping[Any, Any]) -> dict[str, str]:
    for name, value in metadata.items():
        if not isinstance(name, str) or not is_key(name):
            raise FlowMisused(f"metadata {name!r}: expected 1 to 200 printable characters, the first no dot")
        if not isinstance(value, str):
            raise FlowMisused(f"metadata {name!r}: expected a text, got {value!r}")
    return dict(metadata)


def _checked_delay(delay_s: object) -> float:
    if not is_seconds(delay_s) or not 0 <= (seconds := float(delay_s)) <= LONGEST_S or math.isnan(seconds):  # type: ignore[arg-type]  # it is a number by then
        raise FlowMisused(f"delay_s: expected 0 to {LONGEST_S:.0f} seconds (ten years), got {delay_s!r}")
    return seconds


def _checked_label(name: str, text: object) -> str:
    if not isinstance(text, str) or len(text) > _LONGEST_LABEL or not (text.isprintable()):
        raise FlowMisused(f"{name}: expected up to {_LONGEST_LABEL} printable characters, got {text!r}")
    return text
