"""What becomes of a delivery.

Rule 1: everything that decides what is written about an entry is in this file.
Rule 2: this file writes nothing and knows no Redis; the broker turns an outcome
into one atomic call and refuses it when the tenure has lapsed.

Theory
------
A delivery lives ``claimed → parsed → started → settled``. It leaves each state
by one event, and the events that end it each lead to one outcome:

* The entry may not make a job. It will not parse better next time: `Dead`.
* Its kind may be unknown here. During a rolling deploy that is normal, so it
  goes back with a growing delay, is never a failure, and is dead only a day
  after it was first queued: `UnknownKind`, then `Dead`.
* It may have taken processes along. Before it starts for the fifth time after a
  crash it is moved aside: `Dead` with reason ``poison``.
* The handler may return (`Done`), ask for a retry or raise (`RetryLater`, until
  the attempts are used up: `Dead`), or say that it is hopeless (`Dead`). What it
  needs may be away (`Unavailable`): that is an outage, counts as no attempt, and
  is retried for as long as it takes.
* The worker may stop first (`Release`), or a flow's pass may have settled the
  entry itself (`Settled`).

Cancellation is not an event of this table: it never settles anything.
"""

import enum
import random
from collections.abc import Mapping
from typing import ClassVar

import attrs

from stagedoor.core.backoff import exponential_s, full_jitter_s
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.job import Job
from stagedoor.errors import JobTimeout, MalformedEntry, Permanent, Retry, Unavailable

UNKNOWN_KIND_BASE_S = 0.1
UNKNOWN_KIND_CAP_S = 5.0
UNKNOWN_KIND_PATIENCE_S = 24 * 3600.0
"""A deploy that takes longer than a day is not a rolling deploy: somebody should look."""

_MOST_HOPS = 999_999_999
"""What the field can say; with one hop every 5 s somebody else wrote it long before."""

OUTAGE_BASE_S = 1.0
OUTAGE_CAP_S = 30.0
"""Every waiting job looks this often at the least: 12,000 of them are 400 to 800 looks a second."""

_ERROR_LIMIT = 2000
"""Characters of an error that are kept; a traceback belongs in the log, not on Redis."""


class State(enum.Enum):
    """Where one delivery is in its life."""

    CLAIMED = "claimed"
    PARSED = "parsed"
    STARTED = "started"
    SETTLED = "settled"


class Happening(enum.Enum):
    """What can happen to a delivery."""

    PARSES = "parses"
    DOES_NOT_PARSE = "does not parse"
    KIND_UNKNOWN = "kind unknown"
    TOO_MANY_CRASHES = "too many crashes"
    STARTS = "starts"
    RETURNS = "returns"
    RAISES = "raises"
    GIVES_UP = "gives up"
    SETTLES_ITSELF = "settles itself"
    WORKER_STOPS = "worker stops"


class Reason(enum.Enum):
    """Why an entry was moved to the dead letters."""

    MALFORMED = "malformed"
    PERMANENT = "permanent"
    ATTEMPTS = "attempts"
    POISON = "poison"
    UNKNOWN_KIND = "unknown_kind"
    TRIMMED = "trimmed"


@attrs.frozen
class Done:
    """The work is done: acknowledge and delete."""

    word: ClassVar[str] = "done"


@attrs.frozen
class RetryLater:
    """Run it again *after_s* seconds from now as this *attempt*."""

    word: ClassVar[str] = "retry"

    after_s: float
    attempt: int
    error: str


@attrs.frozen
class Dead:
    """Move it to the dead letters."""

    word: ClassVar[str] = "dead"

    reason: Reason
    error: str


@attrs.frozen
class UnknownKind:
    """Hand it back for a worker that knows its kind, *after_s* seconds from now."""

    word: ClassVar[str] = "unknown"

    after_s: float
    hops: int


@attrs.frozen
class Release:
    """Give it back unfinished, claimable at once; no crash and no attempt."""

    word: ClassVar[str] = "released"


@attrs.frozen
class Settled:
    """Write nothing: the flow's pass has acknowledged the entry itself.

    *ended* is the state in which it has left the call, None where there was no pass; *error* is why
    the call has ended so, or stands still.
    """

    word: ClassVar[str] = "settled"

    ended: str | None = None
    error: str | None = None


Outcome = Done | RetryLater | Dead | UnknownKind | Release | Settled
"""Each has a *word*, under which logs and metrics know it."""

TRANSITIONS: Mapping[State, Mapping[Happening, tuple[State, tuple[type, ...]]]] = {
    State.CLAIMED: {
        Happening.PARSES: (State.PARSED, ()),
        Happening.DOES_NOT_PARSE: (State.SETTLED, (Dead,)),
        Happening.WORKER_STOPS: (State.SETTLED, (Release,)),
    },
    State.PARSED: {
        Happening.STARTS: (State.STARTED, ()),
        Happening.KIND_UNKNOWN: (State.SETTLED, (UnknownKind, Dead)),
        Happening.TOO_MANY_CRASHES: (State.SETTLED, (Dead,)),
        Happening.WORKER_STOPS: (State.SETTLED, (Release,)),
    },
    State.STARTED: {
        Happening.RETURNS: (State.SETTLED, (Done,)),
        Happening.RAISES: (State.SETTLED, (RetryLater, Dead)),
        Happening.GIVES_UP: (State.SETTLED, (Dead,)),
        Happening.SETTLES_ITSELF: (State.SETTLED, (Settled,)),
        Happening.WORKER_STOPS: (State.SETTLED, (Release,)),
    },
    State.SETTLED: {},
}


@attrs.frozen(kw_only=True)
class Limits:
    """The worker's defaults, for kinds that do not say otherwise; seconds."""

    max_attempts: int
    max_crashes: int
    backoff_base_s: float
    backoff_cap_s: float


def of_malformed(error: MalformedEntry) -> Dead:
    """Return what becomes of an entry that makes no job."""
    return Dead(Reason.MALFORMED, str(error))


def of_unknown_kind(job: Job, *, now: float) -> UnknownKind | Dead:
    """Return what becomes of a job whose kind this worker does not know; *now* is Unix seconds."""
    if now - job.queued_at > UNKNOWN_KIND_PATIENCE_S:
        return Dead(Reason.UNKNOWN_KIND, f"no worker has known the kind {job.kind!r} for a day")
    hops = min(job.hops + 1, _MOST_HOPS)
    return UnknownKind(exponential_s(hops, UNKNOWN_KIND_BASE_S, UNKNOWN_KIND_CAP_S), hops)


def of_crashes(crashes: int, limits: Limits) -> Dead | None:
    """Return `Dead` when this entry has taken too many processes along, else None: it may start."""
    if crashes < limits.max_crashes:
        return None
    return Dead(Reason.POISON, f"{crashes} processes vanished while they held this entry")


def of_exception(
    error: BaseException, job: Job, spec: HandlerSpec, *, limits: Limits, rng: random.Random, now: float
) -> RetryLater | Dead:
    """Return what becomes of a job whose handler raised; *now* is Unix seconds.

    Never raises itself, whatever the exception is or does when shown.
    """
    shown = describe(error)
    if isinstance(error, Unavailable):
        return RetryLater(outage_wait_s(now - job.queued_at, rng), job.attempt, shown)
    attempts = spec.attempts or limits.max_attempts
    if isinstance(error, Permanent) or (spec.give_up_on and isinstance(error, spec.give_up_on)):
        return Dead(Reason.PERMANENT, shown)
    if spec.retry_on and not isinstance(error, (Retry, JobTimeout, *spec.retry_on)):
        return Dead(Reason.PERMANENT, shown)
    if job.attempt >= attempts:
        return Dead(Reason.ATTEMPTS, f"{shown} (attempt {job.attempt} of {attempts})")
    base_s = limits.backoff_base_s if spec.base is None else spec.base
    cap_s = limits.backoff_cap_s if spec.cap is None else spec.cap
    after_s = full_jitter_s(job.attempt, base_s, cap_s, rng)
    if isinstance(error, Retry):
        after_s = asked_s(error.after, otherwise=after_s)
    return RetryLater(after_s, job.attempt + 1, shown)


def outage_wait_s(waited_s: float, rng: random.Random) -> float:
    """Return the seconds to wait in an outage: about as long as the job has waited already, within bounds.

    So the waits double without a counter, and a job that counts no attempts needs none.
    """
    longest = min(max(waited_s, OUTAGE_BASE_S), OUTAGE_CAP_S)
    return rng.uniform(longest / 2, longest)


def asked_s(after: object, *, otherwise: float) -> float:
    """Return the seconds that a handler asked for; what is no number of seconds from now on is not heeded."""
    try:
        seconds = float(after)  # type: ignore[arg-type]  # a handler may have put anything there
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return min(seconds, _LONGEST_WAIT_S) if seconds >= 0 else otherwise


_LONGEST_WAIT_S = 366 * 24 * 3600.0
"""A year: nothing that a shop sells is retried later than that, and it keeps due times finite."""


def describe(error: BaseException) -> str:
    """Return the exception as one printable line; works also for exceptions whose own text raises."""
    name = type(error).__qualname__
    try:
        line = " ".join(str(error)[: 2 * _ERROR_LIMIT].split())
    except BaseException as second:  # noqa: BLE001 - a handler's exception may do anything when shown, exit too
        line = f"(its text could not be shown: {type(second).__qualname__})"
    shown = (f"{name}: {line}" if line else name)[:_ERROR_LIMIT]
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)[:_ERROR_LIMIT]
