"""What several histories begin with."""

from collections.abc import Callable

from stagedoor.broker.deliveries import Deliveries
from stagedoor.core.entry import Claimed
from stagedoor.core.outcome import Dead, Reason, RetryLater
from stagedoor.errors import BrokerError, NameTaken
from tests.broker.harness import Harness, RedisHarness, job

LATER = RetryLater(0, 2, "x")
WHY = "if why then return {why} end"
CONSUMER = "and seen[1][2] == consumer "
COUNT = " and seen[1][4] == deliveries"
DEAD = Dead(Reason.PERMANENT, "x")


def one(worker: Deliveries, broker: Harness) -> Claimed:
    """Let a worker hold a new entry."""
    broker.add(job())
    (claimed,) = worker.read(1).claimed
    return claimed


def refused(act: Callable[[], object]) -> bool:
    """Whether the broker says that the name has another owner."""
    try:
        act()
    except NameTaken:
        return True
    return False


def fails(act: Callable[[], object]) -> bool:
    """Whether the whole call comes to nothing, and all that it was about with it."""
    try:
        act()
    except BrokerError as error:
        if "compiling" in str(error):
            raise  # a script that does not run at all proves nothing
        return True
    return False


def spoil(real: RedisHarness, key: str) -> None:
    """Make a key one of the wrong type."""
    real.client.delete(key)
    real.client.set(key, "something else")


def same_tenure_twice(broker: Harness) -> tuple[Deliveries, Deliveries, Claimed]:
    """Return an old and a new process of one name; the new one holds what the old one remembers, count and all."""
    old = broker.worker("w")
    claimed = one(old, broker)
    broker.lapse("w")
    new = broker.worker("w")
    broker.destroy_group()
    new.ensure_groups()
    assert [again.tenure for again in new.read(1).claimed] == [claimed.tenure]
    return old, new, claimed


def stale_and_fresh(broker: Harness) -> tuple[Deliveries, Claimed, Claimed]:
    worker = broker.worker("w")
    stale = one(worker, broker)
    worker.release([stale])
    (fresh,) = worker.read(1).claimed
    return worker, stale, fresh
