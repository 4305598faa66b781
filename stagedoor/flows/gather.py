"""gather: many steps at once, by the pass' own thread and by such slots as are free.

The thread that runs the pass takes items itself, so it needs nobody's help to
finish, and a worker full of gathers cannot stand still. Helpers join only
through slots that are free at that instant. Each item is a step of its own.
"""

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from stagedoor.core.call import MAX_STEPS, Kind, Step, StepState, StepWrite
from stagedoor.errors import FlowMisused, StepFailed
from stagedoor.flows.attempts import Policy, Unit, check_policy, is_whole
from stagedoor.flows.run import Changed, Lost, Run

__all__ = ["gather"]

_LOOK_S = 0.2
"""How often a thread that waits for its helpers looks whether its pass is still alive."""


def gather(
    run: Run, key: str, items: Sequence[Any], function: Callable[[Any], Any], *, limit: int, policy: Policy
) -> list[Any]:
    """Return what the function returns for each item, in their order; see `Operations.gather`."""
    listed = list(items)
    seen = run.enter(key, Kind.GATHER)
    check_policy(key, function, policy)
    if not is_whole(limit) or limit < 1:
        raise FlowMisused(f"{key!r}: limit is {limit!r}; it must be 1 or more")
    if len(listed) >= MAX_STEPS:
        # At the last of them the call would be full, when all others have been done.
        raise FlowMisused(f"{key!r}: {len(listed):,} items; a call may have {MAX_STEPS:,} steps, and each is one")
    step = _opened(run, key, seen, listed)
    keys = [f"{key}/{index}" for index in range(len(listed))]
    run.claim_items(keys)
    if step.state is StepState.DONE:
        return [run.remembered(item_key, function) for item_key in keys]
    units = [
        Unit(key=item_key, kind=Kind.ITEM, place=None, policy=policy, seen=run.journal.step(item_key))
        for item_key in keys
    ]
    crowd = _Crowd(run, function=function, items=listed, units=units)
    if step.state is StepState.FAILED:
        raise crowd.failure(key, step)
    crowd.work(limit)
    return _closed(run, key, step, crowd)


def _opened(run: Run, key: str, seen: Step | None, items: list[Any]) -> Step:
    """Return the gather's own record, made now if this is the first time.

    Raises:
        Suspend: the list is not the one that is recorded.
    """
    shape = {"length": len(items), "digest": run.kit.values.digest_of(items)}
    if seen is None:
        run.interrupt()
        state = StepState.RUNNING if items else StepState.DONE
        opened = Step(state=state, kind=Kind.GATHER, place=run.history.reached, more=shape)
        return run.record(StepWrite(key=key, step=opened, seen=None))
    recorded = dict(seen.more)
    if recorded.get("length") != shape["length"]:
        what = f"gather {key!r} had {recorded.get('length')} items when it began, and has {len(items)} now"
        run.stop_with(Changed(run.history.differs(what)))
    if recorded.get("digest") != shape["digest"]:
        what = f"gather {key!r} has other items now than when it began"
        run.stop_with(Changed(run.history.differs(what)))
    return seen


def _closed(run: Run, key: str, step: Step, crowd: "_Crowd") -> list[Any]:
    """Record how the gather ended, and return its values.

    Raises:
        StepFailed: items have failed for good.
        Suspend: some are tried again later.
    """
    if crowd.failed:
        failure = crowd.failure(key, step)
        ended = attrs.evolve(step, state=StepState.FAILED, attempts=failure.attempts, error=failure.error, epoch=0)
        run.record(StepWrite(key=key, step=ended, seen=step))
        raise failure
    if crowd.is_unfinished:
        run.interrupt()
    if crowd.left:
        due_at = min(unit.seen.due_at or 0.0 for unit in crowd.left if unit.seen is not None)
        run.suspend_until(due_at, waiting_for=f"the next attempt of items of gather {key!r}")
    run.record(StepWrite(key=key, step=attrs.evolve(step, state=StepState.DONE, epoch=0), seen=step))
    return [crowd.values[index] for index in range(len(crowd.units))]


class _Crowd:
    """The threads that work on one gather in one pass."""

    def __init__(self, run: Run, *, function: Callable[[Any], Any], items: list[Any], units: list[Unit]) -> None:
        self.units = units
        self.values: dict[int, Any] = {}
        self.failed: dict[int, Step] = {}
        self._run = run
        self._function = function
        self._items = items
        self._todo: list[int] = []
        self._later: set[int] = set()
        self._busy = 0
        self._helpers = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        for index, unit in enumerate(units):
            self._sort_in(index, unit)
        self._todo.reverse()

    def _sort_in(self, index: int, unit: Unit) -> None:
        seen = unit.seen
        if seen is not None and seen.state is StepState.FAILED:
            self.failed[index] = seen
        elif seen is not None and seen.state is StepState.DONE:
            self.values[index] = self._run.remembered(unit.key, self._function)
        elif seen is not None and seen.state is StepState.RETRY and (seen.due_at or 0.0) > self._run.now():
            self._later.add(index)
        else:
            self._todo.append(index)

    @property
    def is_unfinished(self) -> bool:
        """Whether items have neither a value nor failed for good."""
        return bool(self._todo or self._later)

    @property
    def left(self) -> list[Unit]:
        """The items that have to be tried again later."""
        return [self.units[index] for index in sorted(self._later)]

    def failure(self, key: str, step: Step) -> StepFailed:
        """Return the error of the whole: what failed, item by item."""
        failures = [
            StepFailed(self.units[index].key, failed.attempts, failed.error)
            for index, failed in sorted(self.failed.items())
        ]
        attempts = max((failure.attempts for failure in failures), default=step.attempts)
        text = "; ".join(f"item {index}: {failed.error}" for index, failed in sorted(self.failed.items()))
        return StepFailed(key, attempts, text[:_LONGEST_ERROR] or step.error, failures)

    def work(self, limit: int) -> None:
        """Work on all items, with at most *limit* threads; return when nothing of it runs any more.

        Raises:
            BaseException: what ended an item otherwise than by its failure (`Abort`, `Suspend`).
        """
        context = contextvars.copy_context()
        while True:
            # At each turn anew: a slot that was taken when it began may be free by now.
            wanted = min(limit - 1 - self._helpers, len(self._todo) - 1)
            if wanted > 0:
                self._run.delivery.lend(lambda: context.copy().run(self._help, limit), wanted)
            index = self._take()
            if index is None:
                break
            self._do(index)
        with self._changed:
            while self._busy and not self._run.live.is_lost:
                self._changed.wait(_LOOK_S)
        if self._error is not None:
            raise self._error
        if self._busy:
            self._run.stop_with(Lost())

    def _help(self, limit: int) -> None:
        """Take items in a thread that was lent, until there are none."""
        with self._changed:
            if self._helpers >= limit - 1:
                return
            self._helpers += 1
        try:
            while (index := self._take()) is not None:
                self._do(index)
        finally:
            with self._changed:
                self._helpers -= 1
                self._changed.notify_all()

    def _take(self) -> int | None:
        """Return the next item to work on; None when there is none, or none shall be begun."""
        run = self._run
        with self._changed:
            is_over = self.failed or self._error is not None or run.live.is_lost or run.is_closed
            if is_over or not self._todo or run.interruption() is not None or run.delivery.is_stopping():
                return None
            self._busy += 1
            return self._todo.pop()

    def _do(self, index: int) -> None:
        """Work on one item until it is done, has failed, or is due later; never raises."""
        try:
            self._attempt(index)
        except BaseException as error:  # noqa: BLE001 - raised again where the flow can see it
            with self._changed:
                self._error = self._error or error
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _attempt(self, index: int) -> None:
        run = self._run
        while True:
            unit = self.units[index]
            step, kept = run.attempt(unit, self._function, (self._items[index],))
            value = None if kept is None else kept.text
            recorded = run.record(StepWrite(key=unit.key, step=step, seen=unit.seen, value=value))
            with self._changed:
                self.units[index] = attrs.evolve(unit, seen=recorded)
                if kept is not None:
                    self.values[index] = kept.value
                elif step.state is StepState.FAILED:
                    self.failed[index] = recorded
                elif (step.due_at or 0.0) > run.now():
                    self._later.add(index)
                else:
                    continue
            return


_LONGEST_ERROR = 2000
"""Characters; every item's own error is kept with its step."""
