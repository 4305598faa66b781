"""What becomes of a step whose function has raised: decided here, written elsewhere."""

import random

import attrs

from stagedoor.core.backoff import full_jitter_s
from stagedoor.core.call import Kind, Step, StepState
from stagedoor.core.flow import is_plain
from stagedoor.core.outcome import asked_s, describe, outage_wait_s
from stagedoor.errors import FlowMisused, Permanent, Retry, Unavailable

__all__ = ["Policy", "Unit", "after_failure", "check_policy"]


@attrs.frozen(kw_only=True)
class Policy:
    """How often a step is run and how long it may take; seconds."""

    attempts: int
    base: float
    cap: float
    timeout: float | None = None


@attrs.frozen(kw_only=True)
class Unit:
    """One thing to be run: a step, a memo, an item of a gather or a callback."""

    key: str
    kind: Kind
    place: int | None
    policy: Policy
    seen: Step | None = None


def after_failure(unit: Unit, error: BaseException, *, now: float, rng: random.Random) -> Step:
    """Return what a step is after its function raised; *now* is Unix seconds by Redis' clock."""
    done_before = unit.seen.attempts if unit.seen is not None else 0
    shown = describe(error)
    if isinstance(error, Unavailable):
        # An outage: no attempt, for as long as it takes; what is waited grows with what was waited.
        since = unit.seen.more.get("away_since", now) if unit.seen is not None else now
        due_at = now + outage_wait_s(now - since, rng)
        return _retry(unit, attempts=done_before, error=shown, due_at=due_at, more={"away_since": since})
    attempts = done_before + 1
    if isinstance(error, Permanent) or attempts >= unit.policy.attempts:
        return Step(
            state=StepState.FAILED, kind=unit.kind, place=unit.place, attempts=attempts, error=shown
        )  # fmt: skip
    wait_s = full_jitter_s(attempts, unit.policy.base, unit.policy.cap, rng)
    if isinstance(error, Retry):
        wait_s = asked_s(error.after, otherwise=wait_s)
    return _retry(unit, attempts=attempts, error=shown, due_at=now + wait_s, more={})


def _retry(unit: Unit, *, attempts: int, error: str, due_at: float, more: dict[str, float]) -> Step:
    return Step(
        state=StepState.RETRY,
        kind=unit.kind,
        place=unit.place,
        attempts=attempts,
        error=error,
        due_at=due_at,
        more=more,
    )


def check_policy(key: str, function: object, policy: Policy) -> Policy:
    """Return the policy of a step if it is one.

    Raises:
        FlowMisused: says what was given and what is allowed.
    """
    if not callable(function):
        raise FlowMisused(f"{key!r}: {function!r} cannot be called")
    if not is_plain(function):
        raise FlowMisused(f"{key!r}: {function!r} is a coroutine or generator function; a step is a plain function")
    if not is_whole(policy.attempts) or policy.attempts < 1:
        raise FlowMisused(f"{key!r}: attempts is {policy.attempts!r}; it must be 1 or more")
    for name in ("base", "cap", "timeout"):
        seconds = getattr(policy, name)
        if seconds is not None and not (is_seconds(seconds) and 0 <= seconds < float("inf")):
            raise FlowMisused(f"{key!r}: {name} is {seconds!r}; it must be 0 or more seconds")
    return policy


def is_seconds(value: object) -> bool:
    """Return whether this is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Return whether this is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)
