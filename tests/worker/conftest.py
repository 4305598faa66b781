"""What the worker's tests share: a broker in memory, a record of events, and threads that take no time."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from stagedoor.testing import FakeBroker
from tests.support.recorder import Recorder


@pytest.fixture
def broker() -> FakeBroker:
    """A broker in memory that keeps the system's time."""
    return FakeBroker()


@pytest.fixture
def recorder() -> Recorder:
    """Every event of the test."""
    return Recorder()


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run what goes to threads in the trio thread, so that virtual time does not pass meanwhile."""

    async def run_sync(function: Callable[..., Any], *args: Any, **_options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return function(*args)

    monkeypatch.setattr("trio.to_thread.run_sync", run_sync)
