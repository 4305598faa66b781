"""Every exception of Stagedoor, by whose fault it is.

Yours: `ConfigurationError`, `InvalidOrder`, `OrderStateError`. The world's:
`BrokerUnavailable`. A plugin's: `RendererError`. A producer's: `MalformedEntry`.
`Retry` and `Permanent` are no faults: a handler raises them to say what should
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
