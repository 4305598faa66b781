"""What the journal writes about a call, and how much it may: pure, for the real one and the fake alike."""

import math

import attrs

from stagedoor.core.call import (
    MAX_CALL_BYTES,
    MAX_SIGNALS,
    MAX_STEPS,
    MAX_VALUE_BYTES,
    STEP_TRANSITIONS,
    CallOutcome,
    Misfit,
    StepWrite,
)
from stagedoor.core.journal import CALLBACK_KEYS, MAX_KEY
from stagedoor.errors import BrokerError, FlowLimitExceeded

LOOK_MS = 30_000
"""How long a call may be overdue before somebody looks after it; no shorter than a lease lasts by itself."""
IDLE_LOOK_MS = 3_600_000
MOST_LOOKED_AT = 100
MOST_METADATA = 1000
_LONGEST_TEXT = 2000
_LATEST_MS = 253_402_300_799_000
"""The end of the year 9999: the index has room for no more digits."""


@attrs.frozen(kw_only=True)
class CallSettings:
    """What the journal needs to know of the settings."""

    lease_ms: int = 30_000
    keep_ms: int = 604_800_000
    stream_maxlen: int = 100_000
    most_steps: int = MAX_STEPS
    most_value_bytes: int = MAX_VALUE_BYTES
    most_call_bytes: int = MAX_CALL_BYTES
    most_signals: int = MAX_SIGNALS


def to_ms(seconds: float) -> int:
    """Return seconds as ms, rounded up but for what a float adds: nothing is due before its time."""
    return min(_LATEST_MS, max(0, math.ceil(round(min(seconds, _LATEST_MS) * 1000, 3))))


def misfit_text(misfit: Misfit | None) -> str:
    """Return what is kept of a misfit, '' for none."""
    return "" if misfit is None else f"{to_ms(misfit.since)} {misfit.hops}"


def phrase(text: str) -> str:
    """Return a text for people, no longer than is kept of it."""
    return text[:_LONGEST_TEXT]


def checked_write(write: StepWrite) -> StepWrite:
    """Return a change of a step.

    Raises:
        BrokerError: its key would be taken for a field of the engine, or is too long; or the step
            cannot become this from what it was seen to be.
    """
    key, before, after = write.key, write.seen.state if write.seen else None, write.step.state
    if not key or len(key) > MAX_KEY or (key.startswith(".") and key not in CALLBACK_KEYS):
        raise BrokerError(f"{key[:MAX_KEY]!r} is no key of a step")
    if after not in STEP_TRANSITIONS[before]:
        was = "new" if before is None else before.value
        raise BrokerError(f"step {key!r} is {was} and cannot become {after.value}")
    return write


def checked_value(settings: CallSettings, call_id: str, name: str, value: str | None) -> str:
    """Return a value as it is sent, '' for none.

    Raises:
        FlowLimitExceeded: it is too large.
    """
    size = len((value or "").encode("utf-8", "backslashreplace"))
    if size > settings.most_value_bytes:
        raise FlowLimitExceeded(
            f"call {call_id}: {name!r} has {size} bytes; a value may have {settings.most_value_bytes}"
        )
    return value or ""


def checked_outcome(settings: CallSettings, call_id: str, outcome: CallOutcome) -> CallOutcome:
    """Return an outcome.

    Raises:
        BrokerError: it is none.
        FlowLimitExceeded: its result is too large.
    """
    if not outcome.state.has_ended:
        raise BrokerError(f"{outcome.state.value!r} is no end of a call")
    checked_value(settings, call_id, "its result", outcome.result)
    return outcome


def limit_of(settings: CallSettings, call_id: str, word: str) -> FlowLimitExceeded:
    """Return the error of a script that refused to let a call grow: 'steps' or 'bytes'."""
    what = f"{settings.most_steps} steps" if word == "steps" else f"{settings.most_call_bytes} bytes in all"
    return FlowLimitExceeded(f"call {call_id}: a call may have {what}, and this would be more")
