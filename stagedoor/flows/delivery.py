"""What an engine needs of whoever holds the entry: no queue, no trio, no shop."""

from collections.abc import Callable
from typing import Any, Protocol

import attrs

from stagedoor.core.tenure import Tenure

__all__ = ["Delivery", "FlowJob", "Lend"]

Lend = Callable[[Callable[[], None], int], None]
"""Run a function in so many further handler threads at most, those of slots that are free at this instant.

Never waits. They may begin after it has returned, or never; the function must bear both.
"""


class FlowJob(Protocol):
    """The entry of a call, parsed."""

    @property
    def kind(self) -> str:
        """The flow's name."""
        ...

    @property
    def call_id(self) -> str | None:
        """Which call it continues; None for an outbox row, which starts one."""
        ...

    @property
    def order_id(self) -> int | None:
        """The order of an outbox row."""
        ...

    @property
    def outbox_id(self) -> int | None:
        """The outbox row."""
        ...

    @property
    def request_id(self) -> str:
        """Joins the log lines to the request."""
        ...

    @property
    def trace(self) -> str:
        """Joins the log lines to the trace."""
        ...

    @property
    def entry_id(self) -> str:
        """The entry's id in its stream."""
        ...


def _lend_none(_work: Callable[[], None], _most: int) -> None:
    """Have no slot to lend."""


def _limit_nothing(_seconds: float | None) -> None:
    """Watch nobody's time."""


def _is_not_stopping() -> bool:
    return False


@attrs.frozen(kw_only=True)
class Delivery:
    """One entry in a worker's hands.

    Args:
        tenure: by what right it is held now; it changes when the entry is handed to this process anew.
        is_ours: False once somebody else is known to have the entry.
        check: raises LeaseLost when the entry may be somebody else's.
        make_ctx: makes the handler context; its argument is the check that this context has to ask.
        limit: what this thread runs now has so many seconds before its slot may be given up; None for no limit.
        lend: see `Lend`.
        is_stopping: whether the worker has been asked to stop; then the call goes on elsewhere from its next
            operation, instead of being torn from a step when the grace is over.
    """

    tenure: Callable[[], Tenure]
    is_ours: Callable[[], bool]
    check: Callable[[], None]
    make_ctx: Callable[[Callable[[], None]], Any]
    limit: Callable[[float | None], None] = _limit_nothing
    lend: Lend = _lend_none
    is_stopping: Callable[[], bool] = _is_not_stopping
