"""How calls outlast an outage, and what is said about it."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from stagedoor.errors import BrokerError, BrokerUnavailable, GroupMissing, NameTaken
from stagedoor.events import BrokerDown, BrokerUp, EventStream, GroupRecreated
from stagedoor.weather import LONGEST_PAUSE_S, Outages, Weather
from tests.support.recorder import Recorder

pytestmark = pytest.mark.usefixtures("inline")


class Server:
    """What is called: it may be away, and counts."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.calls: list[float] = []
        self.groups = 0
        self.has_group = True

    def serve(self) -> str:
        self.calls.append(trio.current_time())
        if self.error is not None:
            raise self.error
        if not self.has_group:
            raise GroupMissing("NOGROUP")
        return "served"

    def ensure_groups(self) -> bool:
        self.groups += 1
        created, self.has_group = not self.has_group, True
        return created


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def weather(server: Server, recorder: Recorder) -> Weather:
    return Weather(
        events=EventStream(recorder),
        rng=random.Random(1),
        ensure_groups=lambda: server.ensure_groups(),  # noqa: PLW0108 - tests replace it
        unavailable=BrokerError,
    )


async def call(weather: Weather, server: Server, name: str = "read", **options: Any) -> str:
    return await weather.call(name, server.serve, limiter=trio.CapacityLimiter(1), **options)


async def serve_after(server: Server, seconds: float) -> None:
    await trio.sleep(seconds)
    server.error = None


async def test_a_call_that_fails_is_repeated_until_it_goes_through(
    autojump_clock: MockClock, weather: Weather, server: Server, recorder: Recorder
) -> None:
    server.error = BrokerUnavailable("away")
    failures: list[None] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_after, server, 60)
        assert await call(weather, server, on_failure=lambda: failures.append(None)) == "served"
    assert len(failures) == len(server.calls) - 1
    assert trio.current_time() <= 60 + LONGEST_PAUSE_S
    assert not weather.outages.is_bad


async def test_an_outage_of_a_minute_costs_few_calls_and_none_is_more_than_two_seconds_late(
    autojump_clock: MockClock, weather: Weather, server: Server
) -> None:
    server.error = BrokerUnavailable("away")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_after, server, 60)
        await call(weather, server)
    pauses = [later - earlier for earlier, later in zip(server.calls, server.calls[1:], strict=False)]
    assert len(server.calls) < 70
    assert max(pauses) <= LONGEST_PAUSE_S


async def test_who_must_be_back_sooner_pauses_for_less(
    autojump_clock: MockClock, recorder: Recorder, server: Server
) -> None:
    """A worker is judged by others a time to live after they are back themselves."""
    hasty = Weather(
        events=EventStream(recorder), rng=random.Random(1), unavailable=BrokerUnavailable, longest_pause_s=0.3
    )
    server.error = BrokerUnavailable("away")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_after, server, 60)
        await call(hasty, server)
    assert max(later - earlier for earlier, later in zip(server.calls, server.calls[1:], strict=False)) <= 0.3


async def test_an_outage_has_one_line_when_it_begins_and_one_when_it_ends_whoever_is_hit(
    autojump_clock: MockClock, weather: Weather, server: Server, recorder: Recorder
) -> None:
    server.error = BrokerUnavailable("away")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_after, server, 30)
        for name in ("read", "settle", "beat", "promote"):
            nursery.start_soon(call, weather, server, name)
    assert [type(event) for event in recorder.events] == [BrokerDown, BrokerUp]
    up = recorder.of(BrokerUp)[0]
    assert 29 <= up.down_s <= 30 + LONGEST_PAUSE_S


async def test_it_is_up_again_only_when_all_calls_go_through(
    autojump_clock: MockClock, weather: Weather, server: Server, recorder: Recorder
) -> None:
    other = Server()
    server.error = other.error = BrokerUnavailable("away")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_after, server, 10)
        nursery.start_soon(serve_after, other, 20)
        nursery.start_soon(call, weather, server, "read")
        nursery.start_soon(call, weather, other, "settle")
        await trio.sleep(15)
        assert weather.outages.is_bad
    assert len(recorder.of(BrokerDown)) == len(recorder.of(BrokerUp)) == 1


async def test_a_failure_of_less_than_a_second_is_worth_no_line(
    autojump_clock: MockClock, weather: Weather, server: Server, recorder: Recorder
) -> None:
    server.error = BrokerUnavailable("away")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_after, server, 0.4)
        await call(weather, server)
    assert recorder.events == []


@pytest.mark.parametrize("count", [1, 5])
async def test_a_missing_group_is_made_anew_at_once_with_one_line_whoever_finds_it(
    autojump_clock: MockClock, weather: Weather, server: Server, recorder: Recorder, count: int
) -> None:
    server.has_group = False
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(call, weather, server, str(number))
    assert [type(event) for event in recorder.events] == [GroupRecreated]
    assert trio.current_time() == 0


async def test_two_halves_of_the_group_made_by_two_services_are_one_incident(
    autojump_clock: MockClock, weather: Weather, server: Server, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating takes a call for each stream: whoever comes between must not report the other half."""
    halves, paces = [False, False], iter([0.01, 0.001])

    async def run_sync(function: Callable[..., Any], *args: Any, **_options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if function is not weather._ensure_groups:
            return function(*args)
        created, pace_s = False, next(paces, 0.001)
        for half in (0, 1):
            created, halves[half] = created or not halves[half], True
            await trio.sleep(pace_s)
        server.has_group = True
        return created

    monkeypatch.setattr("trio.to_thread.run_sync", run_sync)
    server.has_group = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, weather, server, "read")
        await trio.sleep(0.0005)
        nursery.start_soon(call, weather, server, "settle")
    assert len(recorder.of(GroupRecreated)) == 1


async def test_a_group_that_is_gone_again_each_time_is_no_hot_loop(
    autojump_clock: MockClock, weather: Weather, server: Server, recorder: Recorder
) -> None:
    server.error = GroupMissing("NOGROUP")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_after, server, 60)
        await call(weather, server)
    assert len(server.calls) < 70
    assert len(recorder.of(BrokerDown)) == len(recorder.of(BrokerUp)) == 1


async def test_a_key_of_the_wrong_type_is_weather_too(
    autojump_clock: MockClock, weather: Weather, server: Server, recorder: Recorder
) -> None:
    server.error = BrokerError("WRONGTYPE Operation against a key holding the wrong kind of value")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_after, server, 5)
        await call(weather, server)
    assert "WRONGTYPE" in recorder.of(BrokerDown)[0].error


async def test_a_name_that_somebody_else_has_is_no_weather(weather: Weather, server: Server) -> None:
    server.error = NameTaken("another process runs as 'w'")
    with pytest.raises(NameTaken):
        await call(weather, server)
    assert len(server.calls) == 1


async def test_a_name_that_several_services_have_lost_at_once_is_regained_once(
    autojump_clock: MockClock, server: Server, recorder: Recorder
) -> None:
    regained: list[None] = []

    def regain() -> None:
        regained.append(None)
        if len(regained) == 1:
            raise BrokerUnavailable("away")
        server.error = None

    weather = Weather(events=EventStream(recorder), rng=random.Random(1), regain=regain, unavailable=BrokerError)
    server.error = NameTaken("another process runs as 'w'")
    async with trio.open_nursery() as nursery:
        for name in ("beat", "read", "settle", "renew"):
            nursery.start_soon(call, weather, server, name)
    # Once in vain; then once for all of them.
    assert len(regained) == 2
    assert recorder.events == []


async def test_an_outage_that_several_notice_is_told_once(
    autojump_clock: MockClock, server: Server, recorder: Recorder
) -> None:
    events = EventStream(recorder)
    outages = Outages(events)
    server.error = BrokerUnavailable("away")
    async with trio.open_nursery() as nursery:
        for name in ("read", "publish"):
            weather = Weather(events=events, rng=random.Random(1), outages=outages)
            nursery.start_soon(call, weather, server, name)
        nursery.start_soon(serve_after, server, 5)
    assert [type(event) for event in recorder.events] == [BrokerDown, BrokerUp]


async def test_an_outage_is_over_also_when_a_call_that_noticed_it_was_cancelled(
    autojump_clock: MockClock, weather: Weather, server: Server, recorder: Recorder
) -> None:
    server.error = BrokerUnavailable("away")
    with trio.move_on_after(5):
        await call(weather, server, "publish")
    server.error = None
    await call(weather, server, "settle")
    assert [type(event) for event in recorder.events] == [BrokerDown, BrokerUp]


async def test_a_cancelled_call_is_not_repeated(autojump_clock: MockClock, weather: Weather, server: Server) -> None:
    server.error = BrokerUnavailable("away")
    with trio.move_on_after(5):
        await call(weather, server)
    count = len(server.calls)
    await trio.sleep(60)
    assert len(server.calls) == count
