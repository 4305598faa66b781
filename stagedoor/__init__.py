"""Stagedoor turns paid orders into tickets.

What is guaranteed: every order that was placed gets its tickets, and no ticket
stays valid after its refund, whatever dies in between. Entries are delivered at
least once; their effect is exactly once, because handlers act on the order's
current state and every write is fenced.

What is not: entries are not ordered, a handler may run more than once, and a
thread that ignores ``ctx.check()`` is not stopped before its process is.
"""

from stagedoor.core.handler import handler
from stagedoor.core.job import Job
from stagedoor.errors import JobTimeout, LeaseLost, Permanent, Retry, StagedoorError, Unavailable

__version__ = "0.1.0"

__all__ = [
    "Job",
    "JobTimeout",
    "LeaseLost",
    "Permanent",
    "Retry",
    "StagedoorError",
    "Unavailable",
    "__version__",
    "handler",
]
