"""What the tests of applications need: stand-ins for the broker that run in memory."""

from stagedoor.testing.fake_broker import FakeDeliveries, FakePublishing
from stagedoor.testing.fake_store import FakeBroker, FakeStream, ManualClock, Pending, WorkerRecord

__all__ = [
    "FakeBroker",
    "FakeDeliveries",
    "FakePublishing",
    "FakeStream",
    "ManualClock",
    "Pending",
    "WorkerRecord",
]
