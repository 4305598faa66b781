"""Stagedoor turns paid orders into tickets.

What is guaranteed: every order that was placed gets its tickets, and no ticket
stays valid after its refund, whatever dies in between. Entries are delivered at
least once; their effect is exactly once, because handlers act on the order's
current state and every write is fenced.

What is not: entries are not ordered, a handler may run more than once, and a
thread that ignores ``ctx.check()`` is not stopped before its process is.
"""

import sys

# Before anything else is imported, for that is written in words that an older Python cannot read:
# whoever has one is told so, instead of being shown a SyntaxError. Nothing newer may stand in this file.
if sys.version_info < (3, 13):  # noqa: UP036 - an older one gets here from a checkout
    _TOO_OLD = f"stagedoor: this python is {sys.version_info[0]}.{sys.version_info[1]}; it has to be 3.13 or later"
    if sys.argv[:1] == ["-m"]:
        sys.stderr.write(_TOO_OLD + "\n")
        raise SystemExit(2)
    raise ImportError(_TOO_OLD)

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
