"""Flows in a worker: their engine over this worker's deliveries, as handlers of their names."""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from stagedoor.broker.call_texts import CallSettings
from stagedoor.broker.calls import Calls
from stagedoor.core.flow import FlowSpec
from stagedoor.core.handler import HandlerSpec
from stagedoor.core.job import Job
from stagedoor.flows.attempts import Policy
from stagedoor.flows.delivery import Delivery
from stagedoor.flows.engine import Engine, OnPass
from stagedoor.flows.keeper import KEEP_EVERY_S, LOOK_EVERY_S, Keeper
from stagedoor.settings import Settings
from stagedoor.worker import Chore, HeldDelivery
from stagedoor.worker.attempt import MakeContext

__all__ = ["FlowParts", "call_settings", "flow_parts"]


@attrs.frozen(kw_only=True)
class FlowParts:
    """What a worker is given so that it runs flows, which it knows nothing of."""

    handlers: Mapping[str, HandlerSpec]
    make_context: MakeContext
    chores: tuple[Chore, ...]


@attrs.frozen
class _Asked:
    """Stands in for the delivery in a handler context of a flow: its check is the step's."""

    check: Callable[[], None]
    is_async: bool = False


def call_settings(settings: Settings) -> CallSettings:
    """Return the journal's part of all settings."""
    return CallSettings(
        lease_ms=round(settings.flow_lease_s * 1000),
        keep_ms=round(settings.flow_keep_s * 1000),
        stream_maxlen=settings.stream_maxlen,
    )


def flow_parts(
    flows: Mapping[str, FlowSpec],
    calls: Calls,
    *,
    settings: Settings,
    make_context: Callable[[Job, Any], Any],
    on_pass: OnPass = lambda *_: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> FlowParts:
    """Return the parts of a worker that run these flows.

    Args:
        flows: by name.
        calls: the journal, of this worker's deliveries.
        settings: all of them.
        make_context: as for other handlers; its second argument is asked for `check` and `is_async` alone.
        on_pass: told of each pass.
        is_stopping: whether the worker has been asked to stop; asked in handler threads.
    """
    rng = random.Random()
    keeper = Keeper(
        calls, clock=time.monotonic, renew_every_s=settings.flow_lease_s / 3, grace_s=settings.grace_s, rng=rng
    )
    defaults = Policy(attempts=settings.max_attempts, base=settings.backoff_base_s, cap=settings.backoff_cap_s)
    engine = Engine(calls, keeper=keeper, defaults=defaults, rng=rng, on_pass=on_pass)

    def make(job: Job, held: HeldDelivery) -> Any:
        if job.kind not in flows:
            return make_context(job, held)
        return _delivery(held, lambda check: make_context(job, _Asked(check)), is_stopping)

    return FlowParts(
        handlers={name: HandlerSpec(kind=name, function=_handler_of(engine, spec)) for name, spec in flows.items()},
        make_context=make,
        chores=(
            Chore(name="flow_keep", every_s=KEEP_EVERY_S, once=keeper.keep_once),
            Chore(name="flow_look", every_s=LOOK_EVERY_S, once=keeper.look_once),
        ),
    )


def _delivery(
    held: HeldDelivery, make_ctx: Callable[[Callable[[], None]], Any], is_stopping: Callable[[], bool]
) -> Delivery:
    return Delivery(
        tenure=lambda: held.tenure,
        is_ours=lambda: not held.lost,
        check=held.check_tenure,
        make_ctx=make_ctx,
        limit=held.limit,
        lend=held.lend,
        is_stopping=is_stopping,
    )


def _handler_of(engine: Engine, spec: FlowSpec) -> Callable[[Any, Any], Any]:
    def run(job: Job, delivery: Delivery) -> Any:
        return engine.run_entry(spec, job, delivery)

    return run
