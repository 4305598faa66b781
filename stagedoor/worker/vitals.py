"""Vitals: how the worker is, for threads that are asked from outside.

Whoever is asked must not trouble the trio thread, and must have an answer when
that hangs. So the trio thread writes down four times a second how it is, and others
read it; that it has not written for long says the most.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

import attrs
import trio

from stagedoor.events import DeliverySettled, DeliveryStarted, Event

TICK_S = 0.25
LAG_TICKS = 40
"""The loop's lag is the longest of the last ten seconds: a scrape must not miss it."""


class _Reader(Protocol):
    last_round_trip_at: float


class _Executor(Protocol):
    @property
    def running(self) -> int: ...

    @property
    def ready(self) -> int: ...

    @property
    def orphaned(self) -> int: ...

    def room(self) -> int: ...


@attrs.frozen(kw_only=True)
class Condition:
    """How the worker is at one moment; lengths of time in seconds.

    *free_for_s* is how long slots have been free without a break, 0 while all are
    taken; *read_age_s* how long ago the reader last had an answer, or had no room to
    ask; *quiet_for_s* how long ago a handler last started, *still_for_s* how long ago that was or a delivery
    was settled that no handler gets: a malformed one, or one of a kind that is unknown here. *lag_s* is the
    longest lag of the last ten seconds, *overdue_s* how late the loop is just now.
    """

    slots: int
    held: int
    running: int
    ready: int
    orphaned: int
    free_for_s: float
    read_age_s: float
    quiet_for_s: float
    still_for_s: float
    lag_s: float
    overdue_s: float
    is_reading: bool
    is_stopping: bool


class Vitals:
    """The trio thread's diary; written by it alone, read by any thread.

    Args:
        clock: monotonic seconds, readable in any thread.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._born_at = clock()
        self._reader: _Reader | None = None
        self._executor: _Executor | None = None
        self._held: Callable[[], int] = lambda: 0
        self._slots = 0
        self._started_at = self._born_at
        self._settled_at = self._born_at
        self._full_at = self._born_at
        self._due_at = float("inf")
        self._lags: deque[float] = deque(maxlen=LAG_TICKS)
        self._is_stopping = False

    def watch(self, reader: _Reader, *, executor: _Executor, held: Callable[[], int], slots: int) -> None:
        """Say what there is to watch; before `run`."""
        self._reader, self._executor, self._held, self._slots = reader, executor, held, slots

    def take(self, event: Event) -> None:
        """Note that a handler has started, or that none was needed; subscribe it to the events."""
        if isinstance(event, DeliveryStarted):
            self._started_at = self._clock()
        elif isinstance(event, DeliverySettled) and event.run_s is None:
            self._settled_at = self._clock()

    def stopping(self) -> None:
        """Note that nothing more is claimed from now on, and rightly so."""
        self._is_stopping = True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write the diary until cancelled.

        **Cancellation**: safe anywhere.
        """
        self._full_at = self._clock()
        task_status.started()
        while True:
            self._due_at = self._clock() + TICK_S
            await trio.sleep(TICK_S)
            now = self._clock()
            self._lags.append(max(0.0, now - self._due_at))
            if not self._is_free():
                self._full_at = now

    def _is_free(self) -> bool:
        """Whether a slot is free and may be filled; read-ahead alone is no free slot."""
        executor = self._executor
        return executor is None or (executor.running + executor.orphaned < self._slots and executor.room() > 0)

    @property
    def condition(self) -> Condition:
        """How the worker is now; may be read in any thread."""
        now = self._clock()
        executor, reader = self._executor, self._reader
        is_reading = executor is not None and reader is not None and self._due_at != float("inf")
        read_at = max(reader.last_round_trip_at, self._full_at) if reader is not None else self._born_at
        overdue_s = max(0.0, now - self._due_at)
        return Condition(
            slots=self._slots,
            held=self._held(),
            running=executor.running if executor is not None else 0,
            ready=executor.ready if executor is not None else 0,
            orphaned=executor.orphaned if executor is not None else 0,
            free_for_s=max(0.0, now - self._full_at),
            read_age_s=max(0.0, now - read_at),
            quiet_for_s=max(0.0, now - self._started_at),
            still_for_s=max(0.0, now - max(self._started_at, self._settled_at)),
            lag_s=max([*self._lags, overdue_s]),
            overdue_s=overdue_s,
            is_reading=is_reading,
            is_stopping=self._is_stopping,
        )


def problems(condition: Condition, *, block_s: float, waiting: int, waiting_s: float) -> list[str]:
    """Return why this worker makes no progress, one sentence each; nothing when it does.

    Args:
        condition: of the worker.
        block_s: how long an idle read blocks.
        waiting: entries that any worker could take.
        waiting_s: for how long the first of them has waited.
    """
    found = []
    if condition.overdue_s > HUNG_S:
        found.append(f"the event loop has stood still for {condition.overdue_s:.1f} s")
    if condition.is_stopping:
        return found
    if not condition.is_reading:
        return [*found, f"the worker does not read yet, {condition.quiet_for_s:.0f} s after its start"]
    if condition.read_age_s > block_s + READ_MARGIN_S:
        found.append(f"slots are free, but no read has been answered for {condition.read_age_s:.1f} s")
    # A flood of jobs that no handler gets is worked through, and what is behind it comes in its turn.
    still_s = min(condition.free_for_s, condition.still_for_s)
    if waiting and min(waiting_s, still_s) > START_S:
        found.append(
            f"slots are free and {waiting} entries wait, the first for {waiting_s:.1f} s, "
            f"but nothing has been started or settled for {condition.still_for_s:.1f} s"
        )
    idle_s = min(condition.free_for_s, condition.quiet_for_s)
    if condition.ready and idle_s > START_S:
        found.append(f"slots are free, but {condition.ready} claimed jobs have not started for {idle_s:.1f} s")
    return found


HUNG_S = 10.0
"""Nothing of ours keeps the loop for a tenth of a second; a frozen machine may."""
READ_MARGIN_S = 5.0
"""Past the end of a blocked read: the socket's own timeout ends it after two, a busy machine may take as long."""
START_S = 5.0
"""Work is started within milliseconds where slots are free; after this long something is wrong."""
