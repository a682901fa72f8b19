"""A process and all below it, as the kernel sees them: processor time, memory, whether stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.executor.host.resources import proportional_bytes
from penstock.executor.processes import below

_TICKS = os.sysconf("SC_CLK_TCK")
_STATE, _UTIME, _STIME, _CUTIME, _CSTIME = 0, 11, 12, 13, 14
"""Fields of proc(5) ``stat``, counted from behind the command's closing bracket."""
_STOPPED = ("T", "t")


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen at one look.

    Attributes:
        pids: of the process first, then of what it started.
        cpu_seconds: used by all of them and by those that have ended.
        is_stopped: the process itself was stopped by a signal.
    """

    pids: tuple[int, ...]
    cpu_seconds: float
    is_stopped: bool

    def memory_bytes(self) -> int:
        """Each process's share of memory; costs about a millisecond a process."""
        return sum(map(proportional_bytes, self.pids))


def look(pid: int) -> Tree | None:
    """One look; None when the process has ended."""
    first = _stat(pid)
    if first is None:
        return None
    pids = tuple(_all(pid))
    stats = [stat for other in pids[1:] if (stat := _stat(other))]
    ticks = sum(
        int(stat[field]) for stat in (first, *stats) for field in (_UTIME, _STIME, _CUTIME, _CSTIME)
    )
    return Tree(pids=pids, cpu_seconds=ticks / _TICKS, is_stopped=first[_STATE] in _STOPPED)


def _all(pid: int) -> Iterator[int]:
    yield pid
    for child in below(pid):
        yield from _all(child)


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
