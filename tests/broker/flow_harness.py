"""What tests of the flow journal need beside the harness of the deliveries, over the fake and a real Redis alike."""

from collections.abc import Mapping
from typing import Any, cast

import attrs

from stagedoor.broker.call_texts import CallSettings
from stagedoor.broker.calls import Begun, Calls, NewCall, Pass
from stagedoor.broker.deliveries import Deliveries
from stagedoor.broker.redis import RedisDeliveries
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.core.call import CallState, Kind, Step, StepState, StepWrite
from stagedoor.core.entry import Claimed
from stagedoor.testing import FakeDeliveries
from stagedoor.testing.fake_calls import FakeCalls
from tests.broker.harness import FakeHarness, Harness, RedisHarness

STATES = list(CallState)


@attrs.frozen
class CallPicture:
    """One call as it is kept; *counted_as* is the state that the index says, *lease* its text."""

    status: Mapping[str, str]
    meta: Mapping[str, str]
    lease: str | None
    counted_as: CallState | None
    expires: bool


def calls_of(broker: Harness, worker: Deliveries | None = None, **settings: Any) -> Calls:
    """Return the journal of a namespace, for this worker's passes or for nobody's."""
    made = CallSettings(**settings)
    if isinstance(broker, FakeHarness):
        return FakeCalls(broker.fake, settings=made, owner=cast("FakeDeliveries | None", worker))
    real = cast("RedisHarness", broker)
    return RedisCalls(real.link, real.keys, settings=made, owner=cast("RedisDeliveries | None", worker))


def picture(broker: Harness, call_id: str = "c") -> CallPicture | None:
    """Return one call as it is kept, None where nothing is."""
    if isinstance(broker, FakeHarness):
        store = broker.fake.calls
        found = store.find(call_id)
        kept = store.index.get(call_id)
        if found is None:
            return None
        counted = kept[1] if kept else None
        return CallPicture(
            dict(found.status), dict(found.meta), store.lease(found), counted, found.expires_ms is not None
        )
    real = cast("RedisHarness", broker)
    status, meta = (
        _text(real.client.hgetall(key)) for key in (real.keys.call_status(call_id), real.keys.call_meta(call_id))
    )
    if not status and not meta:
        return None
    lease = cast("bytes | None", real.client.get(real.keys.call_lease(call_id)))
    score = real.client.zscore(real.keys.calls, call_id)
    ttls = [
        real.client.pttl(key)
        for key in (real.keys.call_status(call_id), real.keys.call_meta(call_id))
        if real.client.exists(key)
    ]
    assert len({ttl > 0 for ttl in ttls}) == 1, "both hashes expire, or neither"
    return CallPicture(status, meta, lease.decode() if lease else None, _state_in(score), ttls[0] > 0)


def _text(raw: Any) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in raw.items()}


def _state_in(score: float | None) -> CallState | None:
    return None if score is None else STATES[round((score % 1) * 16) - 1]


def timers(broker: Harness) -> dict[str, bytes]:
    """Return the bodies of the calls' timers by their members."""
    return {member: body for member, body in broker.state().delayed.items() if member.startswith("flow:")}


# -- making time pass ------------------------------------------------------------------


def end_lease(broker: Harness, call_id: str = "c") -> None:
    """Let the lease of a call run out."""
    if isinstance(broker, FakeHarness):
        broker.fake.calls.calls[call_id].lease = None
    else:
        real = cast("RedisHarness", broker)
        real.client.delete(real.keys.call_lease(call_id))


def make_look_due(broker: Harness, *call_ids: str) -> None:
    """Make calls due for a look."""
    for call_id in call_ids or ("c",):
        if isinstance(broker, FakeHarness):
            broker.fake.calls.index[call_id] = (0, broker.fake.calls.index[call_id][1])
        else:
            real = cast("RedisHarness", broker)
            score = cast("float", real.client.zscore(real.keys.calls, call_id))
            real.client.zadd(real.keys.calls, {call_id: score % 1})


def set_field(broker: Harness, field: str, value: str | None, call_id: str = "c") -> None:
    """Write or delete a field of the status by hand."""
    if isinstance(broker, FakeHarness):
        status = broker.fake.calls.calls[call_id].status
        if value is None:
            status.pop(field, None)
        else:
            status[field] = value
        return
    real = cast("RedisHarness", broker)
    key = real.keys.call_status(call_id)
    if value is None:
        real.client.hdel(key, field)
    else:
        real.client.hset(key, field, value)


def lose_timer(broker: Harness, call_id: str = "c") -> None:
    """Delete a timer by hand, body and all."""
    if isinstance(broker, FakeHarness):
        broker.fake.calls.drop_timer(call_id)
    else:
        real = cast("RedisHarness", broker)
        real.client.zrem(real.keys.delayed, f"flow:{call_id}")
        real.client.hdel(real.keys.delayed_body, f"flow:{call_id}")


def expire(broker: Harness, call_id: str = "c") -> None:
    """Let both hashes of a call expire."""
    if isinstance(broker, FakeHarness):
        broker.fake.calls.calls[call_id].expires_ms = 0
    else:
        real = cast("RedisHarness", broker)
        real.client.delete(real.keys.call_status(call_id), real.keys.call_meta(call_id))


# -- words ---------------------------------------------------------------------------------


def new_call(call_id: str = "c", **changes: Any) -> NewCall:
    """Return a call to be started."""
    return NewCall(call_id=call_id, **{"flow": "f", "request_id": "r-1", "trace": "t-1", **changes})


def done(key: str, place: int | None = 1, *, value: str | None = "1", seen: Step | None = None) -> StepWrite:
    """Return the write that makes a step done."""
    step = Step(state=StepState.DONE, kind=Kind.STEP, place=place, attempts=1)
    return StepWrite(key=key, step=step, seen=seen, value=value)


def is_now(key: str, state: StepState, *, seen: Step | None = None, **changes: Any) -> StepWrite:
    """Return the write that puts a step into a state."""
    step = Step(state=state, **{"kind": Kind.STEP, "place": 1, **changes})
    return StepWrite(key=key, step=step, seen=seen)


def take_one(worker: Deliveries) -> Claimed:
    """Claim the one entry there is."""
    (claimed,) = worker.read(1).claimed
    return claimed


def begun(calls: Calls, claimed: Claimed, call_id: str = "c") -> Begun:
    """Begin a pass that must begin."""
    answer = calls.begin_pass(claimed.tenure, call_id)
    assert isinstance(answer, Begun), answer
    return answer


def started(broker: Harness, **settings: Any) -> tuple[Deliveries, Calls, Claimed, Pass]:
    """Start a call and begin its first pass."""
    worker = broker.worker()
    calls = calls_of(broker, worker, **settings)
    calls.start(new_call(metadata={"order": "7"}))
    claimed = take_one(worker)
    return worker, calls, claimed, begun(calls, claimed).right
