"""Replays: fixtures played against real handlers and a real Redis; start reading at `stage`."""

from stagedoor.replay.compare import Difference
from stagedoor.replay.fixture import Fixture, FixtureError, find_fixtures, load_fixture
from stagedoor.replay.lives import Parts
from stagedoor.replay.stage import PartsFor, ReplayResult, replay_fixture

__all__ = [
    "Difference",
    "Fixture",
    "FixtureError",
    "Parts",
    "PartsFor",
    "ReplayResult",
    "find_fixtures",
    "load_fixture",
    "replay_fixture",
]
