"""A backlog far beyond what the stream may hold waits in the outbox, and comes through it whole.

Here a small one; ``nox -s onsale`` takes $STAGEDOOR_TEST_BACKLOG_ROWS, 300,000 of them.
"""

import os

import pytest

from stagedoor.broker import Pulse
from stagedoor.broker.deliveries import Answer, Settlement
from stagedoor.broker.redis import DeliverySettings, RedisDeliveries
from stagedoor.core.outcome import Done
from stagedoor.orders.outbox import make_row
from stagedoor.orders.schema import outbox
from tests.broker.harness import identity
from tests.relay.fixtures import Rig

pytestmark = pytest.mark.redis

ROWS = int(os.environ.get("STAGEDOOR_TEST_BACKLOG_ROWS", "3000"))
CAP = ROWS // 3
READ = 500


def add_rows(rig: Rig) -> None:
    """Add the rows of a shop that has sold for a long time while no worker ran."""
    row = make_row("render_tickets", 1, request_id="", trace="", now=1.0)
    with rig.book.outbox._database.write() as connection:
        connection.execute(outbox.insert(), [row] * ROWS)


class Drain:
    """A worker without handlers: claims and settles, and remembers which rows it has seen."""

    def __init__(self, rig: Rig) -> None:
        self.seen: list[int] = []
        self._batch = 0
        self._deliveries = RedisDeliveries(rig.link, rig.keys, settings=DeliverySettings(wanted_name="drain"))
        self._deliveries.ensure_groups()
        self._deliveries.join(identity("i1"), Pulse(slots=8))

    def read_once(self) -> int:
        """Claim and settle a bunch; return how many."""
        self._deliveries.beat(Pulse(slots=8))
        reply = self._deliveries.read(READ)
        assert reply.trimmed == ()
        claimed = reply.claimed
        if claimed:
            self._batch += 1
            done = [Settlement(tenure=one.tenure, fields=one.entry.fields, outcome=Done()) for one in claimed]
            answers = self._deliveries.settle(self._batch, done).answers
            assert answers == (Answer.ACCEPTED,) * len(claimed)
        self.seen.extend(int(one.entry.value(b"outbox_id") or 0) for one in claimed)
        return len(claimed)


async def test_a_backlog_waits_in_the_outbox_and_no_unread_entry_is_trimmed(rig: Rig) -> None:
    add_rows(rig)
    relay = rig.relay(stream_maxlen=CAP)
    while (await relay.relay_once()).added:
        pass
    most = CAP * 95 // 100
    assert rig.client.xlen(rig.keys.stream) == most
    assert rig.book.outbox.backlog().waiting == ROWS - most

    drain, longest = Drain(rig), 0
    while drain.read_once():
        await relay.relay_once()
        longest = max(longest, rig.client.xlen(rig.keys.stream))

    assert longest <= most
    assert sorted(drain.seen) == list(range(1, ROWS + 1)), "each row came through, and came once"
    assert rig.book.outbox.backlog().waiting == 0
