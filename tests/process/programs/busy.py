"""A plugin for the real command line: handlers that keep a worker busy, and trouble while it starts or leaves.

The environment variable TROUBLE says which trouble; everything is noted in the process' own log or folder.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

import stagedoor

TROUBLE = os.environ.get("TROUBLE", "")
MANY = 50


@stagedoor.handler("quick")
def quick(job: Any, ctx: Any) -> None:
    """Be done at once."""


@stagedoor.handler("gated")
def gated(job: Any, ctx: Any) -> None:
    """Run until the gate is open."""
    ctx.log.info("it_began")
    while not Path("open").exists():
        time.sleep(0.005)


@stagedoor.handler("stuck")
def stuck(job: Any, ctx: Any) -> None:
    """Never return."""
    ctx.log.info("it_began")
    threading.Event().wait()


@stagedoor.handler("spin")
def spin(job: Any, ctx: Any) -> None:
    """Never return, and use a whole core for it."""
    ctx.log.info("it_began")
    while True:
        pass


@stagedoor.handler("block")
async def block(job: Any, ctx: Any) -> None:
    """Hold up the event loop for ever, as no async handler may."""
    ctx.log.info("it_began")
    _wait_for_itself()


@stagedoor.handler("fork")
def fork(job: Any, ctx: Any) -> None:
    """Fork a child and start a program, and end both as anybody would: with SIGTERM."""
    child = os.fork()
    if child == 0:
        time.sleep(3600)
        os._exit(9)
    os.kill(child, signal.SIGTERM)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as program:
        program.terminate()
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), program.wait()]
    ctx.log.info("they_ended", codes=codes)


def _wait_for_itself() -> None:
    """Never return, and never run Python again, also not for a signal: as a library that has a dead lock."""
    lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(128)
    lock(mutex)
    lock(mutex)


def _take_over(*numbers: signal.Signals) -> None:
    """Have handlers of our own for these signals, as a library that does so when it is imported."""
    for number in numbers:
        signal.signal(number, lambda heard, _frame: Path(f"heard-{heard}").touch())


def _make_trouble() -> None:
    from stagedoor.cli.logs import Logs

    flush, patched = Logs.flush, cast("Any", Logs)

    def storm(logs: Logs) -> None:
        for _ in range(MANY):
            os.kill(os.getpid(), signal.SIGTERM)
        flush(logs)

    def hang(logs: Logs) -> None:
        flush(logs)
        threading.Event().wait()

    match TROUBLE:
        case "slow import":
            Path("importing").touch()
            _wait_for_itself()
        case "takes signals over":
            _take_over(signal.SIGUSR1, signal.SIGRTMIN, signal.SIGTERM)
        case "takes the terminal's signal over":
            _take_over(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)
        case "storm while it leaves":
            patched.flush = storm
        case "hangs while it leaves":
            patched.flush = hang


_make_trouble()
