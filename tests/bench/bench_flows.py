"""Flows: steps per second, round trips of a pass, how late a sleep ends, what replaying costs, who comes first."""

import functools
import itertools
import time
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

import redis
import trio

import stagedoor
from stagedoor.broker.calls import NewCall
from stagedoor.broker.deliveries import Pulse
from stagedoor.broker.redis_calls import RedisCalls
from stagedoor.cli.flow_wiring import FlowParts, call_settings, flow_parts
from stagedoor.core.call import CallState
from stagedoor.core.flow import FlowSpec, flow_of
from tests.bench.figures import Figure, percentile
from tests.bench.rig import Countdown, Rig, private_redis
from tests.broker.harness import identity
from tests.flows.support import handle, make_worker
from tests.support.redis_server import RedisServer

CALLS, STEPS = 500, 10
MANY = 1_000
"""Steps of a long call."""
SLEEPERS = 100
WAITING, STARTED = 1_000, 100


def measure(runs: int) -> list[Figure]:
    """Return the figures; those of single passes are taken without a worker around them."""
    with private_redis() as server:
        bare, rates = zip(
            *[(_bare_trips_per_second(server), _steps_per_second(server)) for _ in range(runs)], strict=True
        )
        trips = [_round_trips(server) for _ in range(runs)]
        late = [percentile(_lateness(server), 0.99) * 1000 for _ in range(runs)]
        linear = [_passes_s(server, 1, MANY) / _passes_s(server, 10, MANY // 10) for _ in range(runs)]
        replays = [_replay(server) for _ in range(runs)]
        last = [_place_of_the_last_started(server) for _ in range(runs)]
    reads, per_step = zip(*replays, strict=True)
    return [
        Figure(name=f"no-op steps, {STEPS} a call, one worker", values=rates, unit="steps/s"),
        Figure(name="no-op steps / bare round trips", values=[a / b for a, b in zip(rates, bare, strict=True)]),
        Figure(name="round trips of a pass of N steps, beyond N", values=trips, unit="", at_most=3),
        Figure(name="end of sleep(1), p99 late", values=late, unit="ms", at_most=50),
        Figure(name=f"{MANY} steps in one pass / 10 × {MANY // 10}", values=linear, at_most=1.2),
        Figure(name=f"replay of {MANY} steps, CPU for each", values=per_step, unit="µs", at_most=10),
        Figure(name="replay, round trips of the whole pass", values=reads, unit="", at_most=3),
        Figure(
            name=f"place of the last of {STARTED} started calls before {WAITING} new ones",
            values=last,
            unit="",
            at_most=STARTED * 1.5,
        ),
    ]


# -- flows -----------------------------------------------------------------------------------


def no_op() -> None:
    """Do nothing."""


def steps(name: str, count: int) -> FlowSpec:
    """Return a flow of so many steps that do nothing, and then a wait."""

    @stagedoor.flow(name)
    def flow(call: stagedoor.Call) -> None:
        for number in range(count):
            call.step(f"s{number}", no_op)
        call.wait_signal("go")
        call.wait_signal("end")

    return _spec(flow)


def _spec(function: Callable[[Any], Any]) -> FlowSpec:
    spec = flow_of(function)
    assert spec is not None, "it is marked"
    return spec


# -- whole workers ---------------------------------------------------------------------------


class FlowRig(Rig):
    """A namespace, and a worker that runs flows."""

    def __init__(self, server: RedisServer, *specs: FlowSpec) -> None:
        super().__init__(server)
        settings = call_settings(self.settings)
        self.calls = RedisCalls(self.link, self.keys, settings=settings, owner=self.deliveries)
        self._specs = {spec.name: spec for spec in specs}

    def start(self, flow: str, count: int, prefix: str = "c") -> None:
        """Start calls."""
        for number in range(count):
            self.calls.start(NewCall(call_id=f"{prefix}{number}", flow=flow))

    def parts(self, on_pass: Callable[..., None] = lambda *_: None) -> FlowParts:
        """Return what the worker is given."""
        return flow_parts(
            self._specs, self.calls, settings=self.settings, make_context=lambda _job, _held: None, on_pass=on_pass
        )

    def run(self, countdown: Countdown) -> None:
        """Run a worker until so many passes have ended."""
        parts = self.parts(lambda *_: countdown.hit())
        trio.run(functools.partial(self.work, parts.handlers, countdown.wait, parts.make_context))


def _bare_trips_per_second(server: RedisServer) -> float:
    """Return how many writes of a hash field one thread of redis-py makes, one after another."""
    client = redis.Redis.from_url(server.url)
    began_at = perf_counter()
    for number in range(CALLS * STEPS):
        client.hset("bare", f"s{number % STEPS}", "done 1 {}")
    seconds = perf_counter() - began_at
    client.close()
    return CALLS * STEPS / seconds


def _steps_per_second(server: RedisServer) -> float:
    @stagedoor.flow("ten")
    def ten(call: stagedoor.Call) -> None:
        countdown.begin()
        for number in range(STEPS):
            call.step(f"s{number}", no_op)

    countdown = Countdown(CALLS)
    rig = FlowRig(server, _spec(ten))
    rig.start("ten", CALLS)
    rig.run(countdown)
    return CALLS * STEPS / countdown.seconds


def _lateness(server: RedisServer) -> list[float]:
    """Return by how many seconds each of some sleeps ended late, on a worker that has nothing else to do."""
    late: list[float] = []

    @stagedoor.flow("sleeper")
    def sleeper(call: stagedoor.Call) -> None:
        began_at = call.memo("began_at", time.time)
        call.sleep("sleep", 1)
        late.append(time.time() - began_at - 1)

    countdown = Countdown(2 * SLEEPERS)
    rig = FlowRig(server, _spec(sleeper))
    parts = rig.parts(lambda *_: countdown.hit())

    async def start_in_turn() -> None:
        for number in range(SLEEPERS):
            call = NewCall(call_id=f"c{number}", flow="sleeper")
            await trio.to_thread.run_sync(rig.calls.start, call)
            await trio.sleep(0.02)
        await countdown.wait()

    trio.run(functools.partial(rig.work, parts.handlers, start_in_turn, parts.make_context))
    return late


def _place_of_the_last_started(server: RedisServer) -> float:
    """Let calls that wait for a signal and new ones be ready at once; return when the last of the former has ended."""
    ended: list[str] = []

    @stagedoor.flow("old")
    def old(call: stagedoor.Call) -> None:
        call.wait_signal("go")
        call.step("end", ended.append, "old")

    @stagedoor.flow("new")
    def new(call: stagedoor.Call) -> None:
        call.step("end", ended.append, "new")

    rig = FlowRig(server, _spec(old), _spec(new))
    rig.start("old", STARTED, "old-")
    rig.run(Countdown(STARTED))
    rig.start("new", WAITING, "new-")
    for number in range(STARTED):
        rig.calls.signal(f"old-{number}", "go", "null", token=str(number))
    again = FlowRig(server, _spec(old), _spec(new))
    again.keys = rig.keys
    _move(again, rig)
    again.run(Countdown(STARTED + WAITING))
    return len(ended) - ended[::-1].index("old")


def _move(rig: FlowRig, to: FlowRig) -> None:
    """Let a second worker work in the namespace of a first one."""
    rig.deliveries, rig.calls = to.deliveries, to.calls


# -- single passes -----------------------------------------------------------------------------


class Passes:
    """An engine over a real Redis, whose passes are run one by one in this thread."""

    def __init__(self, server: RedisServer, spec: FlowSpec) -> None:
        self._rig = FlowRig(server)
        self._spec = spec
        deliveries = self._rig.deliveries
        deliveries.ensure_groups()
        deliveries.join(identity("bench"), Pulse(slots=1))
        self._worker = make_worker("bench", deliveries, self._rig.calls, clock=time.monotonic, pause=time.sleep)
        self._ids = itertools.count()

    def start(self) -> str:
        """Start a call; return its id."""
        call_id = f"c{next(self._ids)}"
        self._rig.calls.start(NewCall(call_id=call_id, flow=self._spec.name))
        return call_id

    def signal(self, call_id: str) -> None:
        """Send what it waits for first."""
        self._rig.calls.signal(call_id, "go", "null", token="t")

    def run_one(self) -> tuple[float, float, int]:
        """Run the pass that is ready; return its seconds, those of this thread's CPU, and its calls of scripts."""
        [claimed] = self._rig.deliveries.read(1).claimed
        scripts = self._scripts()
        began_at, cpu_at = perf_counter(), time.thread_time()
        handle(self._worker, claimed, specs={self._spec.name: self._spec}, now=time.time())
        cpu_s, seconds = time.thread_time() - cpu_at, perf_counter() - began_at
        return seconds, cpu_s, self._scripts() - scripts

    def _scripts(self) -> int:
        info: Any = self._rig.link.patient.info("commandstats")
        return sum(int(of["calls"]) for name, of in info.items() if name == "cmdstat_evalsha")

    def check(self, call_id: str, state: CallState) -> None:
        """Make sure of what was measured."""
        journal = self._rig.calls.show(call_id)
        assert journal is not None
        assert journal.state is state


def _round_trips(server: RedisServer) -> float:
    passes = Passes(server, steps("f", MANY // 10))
    call_id = passes.start()
    *_, scripts = passes.run_one()
    passes.check(call_id, CallState.WAITING)
    return scripts - MANY // 10


def _passes_s(server: RedisServer, calls: int, count: int) -> float:
    """Return the seconds of so many first passes of so many steps."""
    passes = Passes(server, steps("f", count))
    total = 0.0
    for _ in range(calls):
        passes.start()
        total += passes.run_one()[0]
    return total


def _replay(server: RedisServer) -> tuple[float, float]:
    """Return the calls of scripts of a pass that only replays, and its µs of CPU for each step, an empty one's off."""
    seconds = {}
    most = 0
    for count in (0, MANY):
        passes = Passes(server, steps("f", count))
        times = list(_second_passes(passes, 5))
        seconds[count] = min(cpu_s for _, cpu_s, _ in times)
        most = max(scripts for *_, scripts in times)
    return most, (seconds[MANY] - seconds[0]) / MANY * 1e6


def _second_passes(passes: Passes, count: int) -> Iterable[tuple[float, float, int]]:
    for _ in range(count):
        call_id = passes.start()
        passes.run_one()
        passes.signal(call_id)
        yield passes.run_one()
