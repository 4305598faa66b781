"""What the tests of applications need: stand-ins for the broker that run in memory, and the pytest plugin.

Names are imported when they are first used: pytest loads the plugin beside
them in every run of every project, and that must not cost what the fakes cost.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stagedoor.testing.fake_broker import FakeDeliveries, FakePublishing
    from stagedoor.testing.fake_calls import FakeCalls
    from stagedoor.testing.fake_store import FakeBroker, FakeStream, ManualClock, Pending, WorkerRecord

__all__ = [
    "FakeBroker",
    "FakeCalls",
    "FakeDeliveries",
    "FakePublishing",
    "FakeStream",
    "ManualClock",
    "Pending",
    "WorkerRecord",
]

_FROM = {"FakeDeliveries": "fake_broker", "FakePublishing": "fake_broker", "FakeCalls": "fake_calls"}


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_FROM.get(name, 'fake_store')}"), name)
