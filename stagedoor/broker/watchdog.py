"""A watchdog: ends what we have started when we are gone, whatever has ended us.

After SIGKILL nobody runs our `finally`. A small shell holds the reading end of a
pipe; we hold the only writing end, and the system closes that with us. Then the
shell ends the processes that it was told of, and removes a folder.

It may name processes by their ids, though ids are given out again: an id is free
only when the parent has fetched its exit code, or is gone. Parents here fetch it
and say `forget` in the same breath, and when they are gone the shell acts at once.
"""

import contextlib
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

_SCRIPT = """
pids=
while read -r verb pid; do
    case $verb in
        watch) pids="$pids $pid" ;;
        forget)
            others=
            for one in $pids; do [ "$one" = "$pid" ] || others="$others $one"; done
            pids=$others ;;
        leave) exit 0 ;;
    esac
done
[ -z "$pids" ] || kill -KILL $pids
[ -z "$1" ] || rm -rf -- "$1"
"""
LEAVE_LIMIT_S = 5.0


class Watchdog:
    """One shell that waits; also a context manager. May be used by one thread at a time.

    Args:
        folder: removed when we are gone; None for none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own script; the folder is a word of its own
            ["/bin/sh", "-c", _SCRIPT, "stagedoor-watchdog", "" if folder is None else str(folder)],
            stdin=subprocess.PIPE,
            # It outlives us, and must not hold open what somebody reads to its end.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is for us.
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.leave()

    @property
    def pid(self) -> int:
        """The shell's process id."""
        return self._process.pid

    def watch(self, pid: int) -> None:
        """Have a child process of ours ended with SIGKILL when we are gone."""
        self._say(f"watch {pid}")

    def forget(self, pid: int) -> None:
        """Let go of a process that has ended; its id may be another's soon."""
        self._say(f"forget {pid}")

    def leave(self) -> None:
        """End the watchdog; what it watched and has not forgotten goes on. No harm when that has happened."""
        self._say("leave")
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(LEAVE_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, line: str) -> None:
        """Tell the shell; that somebody has ended it harms nobody as long as we live."""
        pipe = self._process.stdin
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(OSError):
                pipe.write(line.encode() + b"\n")
                pipe.flush()
