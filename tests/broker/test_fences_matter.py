"""Each check in the scripts is there for a history that goes wrong without it.

One row takes one check out of a script's text, and tells the shortest history
that is right with the check and wrong without. So a check that nobody needs,
or that no history shows, cannot stay unnoticed here. The rows and histories lie in
`fences/`, one file for the scripts that belong together.
"""

import pytest

from tests.broker.fences import (
    call_ends,
    call_entries,
    call_starts,
    call_steps,
    holding,
    lapsed,
    moving,
    names,
    settling,
)
from tests.broker.fences.removals import Removal, check_goes_wrong
from tests.broker.harness import FakeHarness, RedisHarness
from tests.broker.test_scripts import SCRIPTS

ROOMS = (holding, settling, names, lapsed, moving, call_starts, call_steps, call_ends, call_entries)
REMOVALS: dict[str, Removal] = {what: removal for room in ROOMS for what, removal in room.REMOVALS.items()}


@pytest.fixture(autouse=True)
def _forget_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a consumer without a record count as long gone at once."""
    for module in ("stagedoor.broker.redis", "stagedoor.testing.fake_broker"):
        monkeypatch.setattr(f"{module}.FORGET_CONSUMER_MS", -1)


@pytest.mark.redis
@pytest.mark.parametrize("what", REMOVALS)
def test_with_its_checks_the_history_is_right(real: RedisHarness, what: str) -> None:
    REMOVALS[what].history(real)


@pytest.mark.parametrize("what", [what for what, removal in REMOVALS.items() if removal.is_for_every_broker])
def test_the_fake_tells_the_same_history(what: str) -> None:
    REMOVALS[what].history(FakeHarness())


@pytest.mark.redis
@pytest.mark.parametrize("what", REMOVALS)
def test_without_the_check_the_history_goes_wrong(
    real: RedisHarness, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    check_goes_wrong(real, monkeypatch, REMOVALS[what])


def test_no_row_hides_another() -> None:
    assert len(REMOVALS) == sum(len(room.REMOVALS) for room in ROOMS)


def test_every_script_has_a_removal() -> None:
    assert {removal.script for removal in REMOVALS.values()} == set(SCRIPTS)
