"""Which process wrote something, so that another one on its machine can see whether it lives."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import msgspec

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_START_TIME_FIELD = 19  # field 22 of proc(5), counted from behind the command's closing bracket


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One process.

    Attributes:
        pid_space: boot of its machine and namespace of process ids: its id means something there
            only; empty where that is not known.
        start_ticks: start time of the process: a later one with the same id has another.
    """

    pid: int
    pid_space: str = ""
    start_ticks: int = 0

    @property
    def has_died(self) -> bool:
        """True only where this process can see that the other one is gone."""
        if not self.pid_space or self.pid_space != _pid_space():
            return False
        return start_ticks(self.pid) != self.start_ticks


def own() -> ProcessIdentity:
    """The identity of this process."""
    pid = os.getpid()
    return ProcessIdentity(pid=pid, pid_space=_pid_space(), start_ticks=start_ticks(pid) or 0)


@cache
def _pid_space() -> str:
    try:
        return f"{_BOOT_ID.read_text('ascii').strip()} {_PID_NAMESPACE.readlink()}"
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[_START_TIME_FIELD])
