"""Stagedoor turns paid orders into tickets.

What is guaranteed: every order that was placed gets its tickets, and no ticket
stays valid after its refund, whatever dies in between. Entries are delivered at
least once; their effect is exactly once, because handlers act on the order's
current state and every write is fenced.

What is not: entries are not ordered, a handler may run more than once, and a
thread that ignores ``ctx.check()`` is not stopped before its process is.
"""

from stagedoor.core.flow import Call, Failure, flow
from stagedoor.core.handler import handler
from stagedoor.core.job import Job
from stagedoor.errors import (
    Abort,
    CallCancelled,
    CallTimeout,
    FlowChanged,
    FlowError,
    FlowMisused,
    InvalidValue,
    JobTimeout,
    LeaseLost,
    Permanent,
    Retry,
    SignalTimeout,
    StagedoorError,
    StepFailed,
    Suspend,
    SuspendSwallowed,
    Unavailable,
)

__version__ = "0.1.0"

__all__ = [
    "Abort",
    "Call",
    "CallCancelled",
    "CallTimeout",
    "Failure",
    "FlowChanged",
    "FlowError",
    "FlowMisused",
    "InvalidValue",
    "Job",
    "JobTimeout",
    "LeaseLost",
    "Permanent",
    "Retry",
    "SignalTimeout",
    "StagedoorError",
    "StepFailed",
    "Suspend",
    "SuspendSwallowed",
    "Unavailable",
    "__version__",
    "flow",
    "handler",
]
