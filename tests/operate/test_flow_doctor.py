"""What ``doctor`` and ``status`` say of flows' calls, and what ``--fix`` does about them."""

from typing import Any

import pytest

from stagedoor.core.call import Park, Sleep, Wait
from stagedoor.core.tenure import Stream
from tests.broker.flow_harness import calls_of, lose_timer, make_look_due, new_call, started, timers
from tests.broker.harness import RedisHarness
from tests.operate.conftest import Run, Said

pytestmark = pytest.mark.redis
NINE_YEARS_S = 9 * 365 * 86_400


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warming up renderers is tested elsewhere, and takes its time."""
    monkeypatch.setattr("stagedoor.cli.doctor_view._plugins", lambda *_: [])


def about_flows(said: Said, which: str = "findings") -> list[Any]:
    return [one for one in said.data[which] if one["about"] in {"flows", "delayed"}]


def test_a_call_that_sleeps_for_years_or_waits_for_somebody_is_in_order(real: RedisHarness, command: Run) -> None:
    calls = calls_of(real)
    calls.start(new_call("later", delay_s=NINE_YEARS_S))
    _, own, _, right = started(real)
    own.end_pass(right, Wait(waiting_for="the signal 'paid'"))
    assert about_flows(command("doctor", "--json")) == []
    command("doctor", "--fix", "--json")
    assert list(timers(real)) == ["flow:later"]
    assert real.length() == 0


def test_a_sleeping_call_without_its_timer_is_woken(real: RedisHarness, command: Run) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, Sleep(until=4e9, waiting_for="sleep 'grace'"))
    lose_timer(real)
    said = command("doctor", "--fix", "--json")
    [found] = about_flows(said)
    assert (found["level"], found["can_be_fixed"]) == ("wrong", True)
    assert found["seen"] == "1 sleeping call has no timer: c"
    assert (said.data["fixed"], about_flows(said, "left")) == (["1 call is woken"], [])
    assert real.length(Stream.CRITICAL) == 1


def test_calls_that_nobody_looks_after_are_looked_after(real: RedisHarness, command: Run) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, Sleep(until=1.0, waiting_for="sleep 'grace'"))
    lose_timer(real)
    make_look_due(real)
    said = command("doctor", "--fix", "--json")
    assert [one["seen"] for one in about_flows(said)] == ["1 call should have been looked after minutes ago"]
    assert said.data["fixed"] == ["1 call was looked after"]
    assert about_flows(said, "left") == []
    assert real.length(Stream.CRITICAL) == 1


def test_a_parked_call_is_an_alarm_everywhere(real: RedisHarness, command: Run) -> None:
    _, calls, _, right = started(real)
    calls.end_pass(right, Park(reason="changed", error="expected 1. step 'a'"))
    said = command("doctor", "--fix", "--json")
    [found] = about_flows(said)
    assert (said.code, found["level"], found["can_be_fixed"]) == (1, "wrong", False)
    assert found["seen"] == "1 call is parked: c of f (changed: expected 1. step 'a')"
    assert command("status", "--json").data["flows"] == {
        "waiting": 0, "running": 0, "sleeping": 0, "failed": 0, "parked": 1,
    }  # fmt: skip
    out = command("status").out
    assert "flows  1 parked\n" in out
    assert "! 1 call is parked: it waits for somebody: flow list --state parked" in out


def test_the_keys_of_calls_are_examined_like_the_others(real: RedisHarness, command: Run) -> None:
    real.client.set(real.keys.calls, "mine")
    said = command("doctor", "--fix", "--json")
    assert [one["seen"] for one in said.data["findings"] if one["level"] == "wrong"] == [
        f"{real.keys.calls} is a string and must be a zset"
    ]
    assert not real.client.exists(real.keys.calls)


def test_a_call_whose_key_is_of_another_type_hides_no_others(real: RedisHarness, command: Run) -> None:
    calls = calls_of(real)
    calls.start(new_call("spoilt"))
    real.client.delete(real.keys.call_status("spoilt"))
    real.client.set(real.keys.call_status("spoilt"), "x")
    _, own, _, right = started(real)
    own.end_pass(right, Park(reason="flow_changed", error="x"))
    assert any("parked" in one["seen"] for one in about_flows(command("doctor", "--json")))
