"""Who this process is, and whether another one is provably gone.

A process is provably gone when it ran on this boot of this machine in this pid
namespace and no process has its pid now, or one that started at another time.
Anything else proves nothing: then its beat decides.
"""

import os
import re
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

from stagedoor.broker import Identity

_NUMBER = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
_START_TIME_FIELD = 19
"""Field 22 of /proc/<pid>/stat, counted after the command in parentheses."""


def current_identity() -> Identity:
    """Return this process' identity, with an incarnation drawn anew."""
    pid = os.getpid()
    return Identity(
        incarnation=secrets.token_hex(8),
        host=socket.gethostname(),
        boot_id=_boot_id(),
        pid_namespace=_pid_namespace(),
        pid=pid,
        started=_start_time(pid) or 0,
    )


def is_provably_gone(record: Mapping[str, str]) -> bool:
    """Return whether the process of this worker record is certainly gone."""
    boot_id, namespace = record.get("boot_id", ""), record.get("pid_namespace", "")
    if not boot_id or not namespace or boot_id != _boot_id() or namespace != _pid_namespace():
        return False
    pid, started = record.get("pid", ""), record.get("started", "")
    if not _NUMBER.fullmatch(pid) or not _NUMBER.fullmatch(started):
        return False
    found = _start_time(int(pid))
    return found != int(started) if found is not None else not _is_there(int(pid))


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _is_there(pid: int) -> bool:
    """Return whether there may be such a process: /proc can hide other users' processes."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; 0 for a dead one, None where it cannot be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in {"Z", "X"}:
        return 0
    return int(fields[_START_TIME_FIELD])
