"""Start Stagedoor in a process whose wall clock can be moved from outside.

    python -m stagedoor.chaos.skewed CLOCK worker --name …

The file CLOCK holds one double, the seconds by which ``time.time()`` is off;
whoever writes another one makes the clock jump. Only the wall clock moves, as
with a wrong NTP server: the monotonic clock never jumps on a real machine.
"""

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

_OFFSET = struct.Struct("=d")


def write_offset(clock: Path, seconds: float) -> None:
    """Make a process' wall clock be off by so many seconds from now on; makes the file where there is none."""
    data = _OFFSET.pack(seconds)
    if not clock.exists():
        clock.write_bytes(data)
        return
    with clock.open("r+b") as file:
        file.write(data)


def skew_clock(clock: Path) -> None:
    """Let ``time.time`` of this process follow the file, for everybody who imports it from now on."""
    with clock.open("rb") as file:
        offset = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)
    real, real_ns = time.time, time.time_ns

    def skewed() -> float:
        return real() + float(_OFFSET.unpack_from(offset)[0])

    def skewed_ns() -> int:
        return real_ns() + int(_OFFSET.unpack_from(offset)[0] * 1e9)

    time.time, time.time_ns = skewed, skewed_ns


def main() -> None:
    """Move the clock, then be Stagedoor."""
    clock, *words = sys.argv[1:]
    skew_clock(Path(clock))
    sys.argv = ["stagedoor", *words]
    runpy.run_module("stagedoor", run_name="__main__")


if __name__ == "__main__":
    main()
