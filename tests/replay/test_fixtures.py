"""Every fixture of the product ends as it says, in the given order and in others."""

from pathlib import Path

import pytest

from stagedoor.replay import Fixture, find_fixtures, load_fixture
from stagedoor.testing.plugin import Replay

pytestmark = pytest.mark.redis

FIXTURES = Path(__file__).parents[2] / "fixtures"

CASES = {
    "placement-then-refund",
    "refund-first",
    "change-while-rendering",
    "duplicate-delivery",
    "malformed-order-id",
    "entry-trimmed-while-pending",
    "worker-died-before-ack",
    "unknown-kind",
    "poison",
}


def fixtures() -> list[Fixture]:
    return [load_fixture(folder) for folder in find_fixtures([FIXTURES])]


def test_there_is_a_fixture_for_each_case() -> None:
    assert {fixture.name for fixture in fixtures()} >= CASES


def test_every_fixture_says_what_it_is_about() -> None:
    assert not [fixture.name for fixture in fixtures() if not fixture.expected.about]


@pytest.mark.parametrize("folder", find_fixtures([FIXTURES]), ids=lambda folder: folder.name)
def test_a_fixture_ends_as_expected_in_any_order(folder: Path, stagedoor_replay: Replay) -> None:
    stagedoor_replay(folder, shuffle=2)


@pytest.mark.parametrize("name,crashes", [("worker-died-before-ack", 4), ("poison", 10), ("refund-first", 0)])
def test_workers_really_die_where_a_fixture_says_so(name: str, crashes: int, stagedoor_replay: Replay) -> None:
    (result,) = stagedoor_replay(FIXTURES / name, shuffle=0)
    assert result.crashes == crashes
