"""Handlers that do what handlers should not; a plugin of the tests."""

import os
import time
from pathlib import Path
from typing import Any

from stagedoor import Permanent, Retry, handler

EVIL = "ok\n2026-01-01 00:00:00 INFO forged\r\x1b[2J\u2028forged\x85forged\x00"


class Unprintable(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError(EVIL)

    __repr__ = __str__


def fail() -> None:
    """Raise what cannot be shown."""
    raise Unprintable


class Shouting:
    """Is returned by a handler, and hard to show."""

    def __repr__(self) -> str:
        raise ValueError(EVIL)


@handler("fine")
def fine(job: Any, ctx: Any) -> None:
    """Do what is right."""
    ctx.log.info("said", text=EVIL)


@handler("shouts", attempts=1)
def shouts(job: Any, ctx: Any) -> None:
    """Fail with a text that would forge lines."""
    raise ValueError(EVIL * 1000)


@handler("unprintable", attempts=1)
def unprintable(job: Any, ctx: Any) -> None:
    """Fail with what cannot be shown."""
    raise Unprintable


@handler("hopeless")
def hopeless(job: Any, ctx: Any) -> None:
    """Give up with a text that would forge lines."""
    raise Permanent(EVIL)


@handler("again", base=0.01)
def again(job: Any, ctx: Any) -> None:
    """Succeed the second time."""
    if job.attempt == 1:
        raise Retry(after=0)


@handler("returns")
def returns(job: Any, ctx: Any) -> Shouting:
    """Return something."""
    return Shouting()


@handler("logs")
def logs(job: Any, ctx: Any) -> None:
    """Log what cannot be shown, and then fail."""
    ctx.log.warning(EVIL, thing=Shouting(), error=Unprintable())
    try:
        fail()
    except Unprintable:
        ctx.log.exception("it failed", text=EVIL)


@handler("waits")
def waits(job: Any, ctx: Any) -> None:
    """Take a slot until the gate is open."""
    while not Path(os.environ["EVIL_GATE"]).exists():
        time.sleep(0.01)
