"""What is done to a shop is undone at the end, whatever was just about to happen."""

from pathlib import Path
from typing import Any

import pytest

from stagedoor.chaos.faults import Fault, Planned
from stagedoor.chaos.injector import Injector, Stage
from stagedoor.rehearsal.watch import Watch


class FakeCrew:
    """Two workers and a relay; remembers who is frozen and who is gone."""

    def __init__(self) -> None:
        self.up = {"relay", "w1", "w2"}
        self.frozen: set[str] = set()

    @property
    def live_workers(self) -> list[str]:
        return sorted(self.up - {"relay"})

    def is_live(self, name: str) -> bool:
        return name in self.up

    def lost(self) -> dict[str, int]:
        return {}

    def start(self, name: str) -> None:
        assert name not in self.up
        self.up.add(name)

    def freeze(self, name: str) -> None:
        self.frozen.add(name)

    def thaw(self, name: str) -> None:
        self.frozen.discard(name)

    def kill(self, name: str) -> float:
        self.up.discard(name)
        self.frozen.discard(name)
        return 0.0


class FakeRedis:
    """A server that is up or down."""

    def __init__(self) -> None:
        self.is_up = True

    def kill(self) -> None:
        assert self.is_up
        self.is_up = False

    def start_again(self, data: Path | None, *, is_empty: bool) -> None:
        assert not self.is_up
        self.is_up = True

    def copy_data(self, to: Path) -> None:
        assert self.is_up


class FakeScratch:
    def held_by(self, worker: str) -> tuple[str, ...]:
        return ("1-0",)


@pytest.mark.parametrize("seed", range(30))
def test_after_healing_everybody_stands_redis_is_up_and_no_connection_is_spoiled(tmp_path: Path, seed: int) -> None:
    crew, redis = FakeCrew(), FakeRedis()
    proxies: Any = {"w1": type("P", (), {"mode": None, "reset_all": lambda self: None})()}
    watch = Watch({"w1": tmp_path / "1", "w2": tmp_path / "2", "relay": tmp_path / "3"})
    stage = Stage(
        crew=crew,  # type: ignore[arg-type]  # stands in for processes
        redis=redis,  # type: ignore[arg-type]  # stands in for a server
        scratch=FakeScratch(),  # type: ignore[arg-type]  # stands in for a namespace
        watch=watch,
        proxies=proxies,
        clocks={"w1": tmp_path / "clock"},
        folder=tmp_path,
        journal=tmp_path / "journal",
        ttl_s=10.0,
        look=lambda: None,
    )
    for worker in watch.workers.values():
        worker.running["1-0"] = None  # type: ignore[assignment]  # only counted
    injector = Injector(stage, [Planned(0.0, fault) for fault in (*Fault, *Fault)], seed=seed)
    injector.begin()
    injector.tick()
    injector.heal()
    injector.tick()
    assert crew.up == {"relay", "w1", "w2"}
    assert crew.frozen == set()
    assert redis.is_up
    assert all(proxy.mode is None or proxy.mode.spoil.value == "nothing" for proxy in proxies.values())
    assert injector.done["clock"] == 2
