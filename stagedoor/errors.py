"""Every exception of Stagedoor, by whose fault it is.

Yours: `ConfigurationError`, `InvalidOrder`, `OrderStateError`. The world's:
`BrokerUnavailable`. A plugin's: `RendererError`. A producer's: `MalformedEntry`.
`Retry`, `Permanent` and `Abort` are no faults: a handler or a flow raises them to say what should
happen next. This module imports nothing of ours.
"""

from collections.abc import Sequence


class StagedoorError(Exception):
    """The base of every exception that Stagedoor raises."""


# -- what a handler says ------------------------------------------------------


class Retry(StagedoorError):
    """Run this job again later; counts as an attempt.

    Args:
        after: seconds to wait, at least 0; None takes the kind's backoff.
    """

    def __init__(self, reason: str = "the handler asked for a retry", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Permanent(StagedoorError):
    """This job can never succeed: dead-letter it now, with the reason."""


class Unavailable(StagedoorError):
    """Something that the job needs cannot serve just now: an outage, and not the job's failure.

    The job runs again later, for as long as it takes, and that counts as no
    attempt. Raise it, or a subclass, for whatever you know to come back.
    """


# -- the operator's -----------------------------------------------------------


class ConfigurationError(StagedoorError):
    """Something about the set-up is wrong; the command ends with exit code 2.

    Each problem names the thing, what was found, and what to do.
    """

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


# -- the broker's -------------------------------------------------------------


class BrokerError(StagedoorError):
    """Redis answered, but not what the contract needs."""


class BrokerUnavailable(BrokerError, Unavailable):
    """Redis cannot serve this call now (down, loading, read-only, full, slow).

    Nothing is known of whether the call took effect. Every call of the broker's
    ports may be repeated as it stands; do so after a pause.
    """


class GroupMissing(BrokerError):
    """The consumer group is gone (flush, failover, destroyed): create it and go on."""


class NameTaken(BrokerError):
    """Another process runs under this worker's name; this one owns nothing any more."""


class LeaseLost(StagedoorError):
    """This delivery's tenure has lapsed: somebody else owns the entry, stop working on it."""


class JobTimeout(StagedoorError):
    """The kind's timeout has passed: stop working on it; the attempt counts as failed."""


class FlowLimitExceeded(StagedoorError):
    """A flow call would keep more than it may: steps, bytes of one value, or bytes in all; nothing was written."""


# -- the producer's -----------------------------------------------------------


class MalformedEntry(StagedoorError):
    """The fields of an entry do not make a job; it will not parse better next time."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


# -- the flows' ---------------------------------------------------------------


class FlowError(StagedoorError):
    """The base of what goes wrong in a flow and is an ordinary exception: the flow may catch it."""


class Abort(FlowError):
    """End this call now as aborted: raise it in a flow or in one of its steps, with the reason."""


class StepFailed(FlowError):
    """A step has used up its attempts; raised at its place on this and on every later pass.

    Args:
        key: the step's key; that of the gather for one.
        attempts: how often it was run.
        error: the last error as one line; of a gather's items, all of them.
        failures: of a gather, one for each item that failed.
    """

    def __init__(self, key: str, attempts: int, error: str, failures: "Sequence[StepFailed]" = ()) -> None:
        super().__init__(f"step {key!r} failed after {attempts} attempt{'' if attempts == 1 else 's'}: {error}")
        self.key = key
        self.attempts = attempts
        self.error = error
        self.failures = tuple(failures)


class SignalTimeout(FlowError):
    """No signal of this name has come in time; raised at its place on this and on every later pass."""

    def __init__(self, signal: str, timeout_s: float) -> None:
        super().__init__(f"no signal {signal!r} within {timeout_s:g} s")
        self.signal = signal
        self.timeout_s = timeout_s


class InvalidValue(FlowError, Permanent):
    """A value cannot be kept: it is no JSON, is too large, or would not come back equal."""


class FlowMisused(FlowError, Permanent):
    """A durable operation was called in a way or at a moment that is not allowed; the message says which."""


class FlowChanged(FlowError):
    """The function does not fit what is recorded of the call; shows both histories.

    Nothing has been lost: run code that fits, then resume the call.
    """


class InvalidHistory(FlowError):
    """This is no history of a call as ``flow show --json`` prints it; the message says where."""


class SuspendSwallowed(FlowError):
    """A flow caught `Suspend` and went on; the call is parked until its code lets it pass."""


class Suspend(BaseException):
    """Ends one pass of a flow; the call goes on later. Let it pass: never catch `BaseException` around ``call.…``."""


class CallCancelled(BaseException):
    """Somebody has cancelled this call: clean up and let it pass."""


class CallTimeout(BaseException):
    """The call has taken longer than its flow's timeout: clean up and let it pass."""


# -- the shop's ---------------------------------------------------------------


class OrderError(StagedoorError):
    """The base of what the order book refuses."""


class InvalidOrder(OrderError):
    """The order's data cannot be placed; the message names the field."""


class OrderNotFound(OrderError):
    """There is no order with this id."""


class OrderStateError(OrderError):
    """The order's state does not allow this change (refunded already, unknown position)."""


# -- the renderers' -----------------------------------------------------------


class RendererError(StagedoorError):
    """The base of what goes wrong with a renderer."""


class RendererNotFound(RendererError):
    """No installed renderer has this name; the message says which package to install."""


class RendererBroken(RendererError):
    """A renderer raised, or returned something that is not what it promised.

    The message never quotes order data: renderer exceptions may carry names.
    """


class InvalidRequest(RendererError):
    """The order asks for something that cannot be drawn; permanent, names the field."""
