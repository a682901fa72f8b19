"""How the processes of workers are, asked of the kernel: state, use, and OOM kills.

An exit code does not show that the OOM killer struck; the kernel's own count of its kills does.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from penstock.executor.core.stuck import IDLE
from penstock.executor.processes import all_below

IDLE_SHARE = 0.02
"""Of one core. A worker whose job waits uses a third of this: it looks after its claims."""

_OOM_COUNTER = "oom_kill "


class Process(msgspec.Struct, frozen=True):
    """State as psutil names it or :data:`IDLE`; resident bytes."""

    state: str
    memory_bytes: int


class Vitals:
    """Looks at processes; what they used since the last look shows whether they idle."""

    def __init__(self) -> None:
        self._used: dict[int, tuple[float, float]] = {}

    def look(self, pid: int, now: float) -> Process | None:
        """A process now; None when it has ended. At the first look no process idles."""
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                state, memory = process.status(), process.memory_info().rss
            used = _cpu_seconds(pid)
        except psutil.Error:
            return None
        before_at, before = self._used.get(pid, (now, used))
        self._used[pid] = (now, used)
        span = now - before_at
        idle = state == psutil.STATUS_SLEEPING and span > 0 and used - before < IDLE_SHARE * span
        return Process(IDLE if idle else state, memory)

    def forget_others(self, pids: Collection[int]) -> None:
        self._used = {pid: used for pid, used in self._used.items() if pid in pids}


def _cpu_seconds(pid: int) -> float:
    """Of the process and what it has started."""
    total = 0.0
    for part in (pid, *all_below(pid)):
        with suppress(psutil.Error):
            times = psutil.Process(part).cpu_times()
            total += times.user + times.system
    return total


class OomKills:
    """The kernel's count of processes that it ended for lack of memory, of the whole machine.

    Args:
        vmstat: the kernel's table of counters; proc_vmstat(5).
    """

    def __init__(self, vmstat: Path = Path("/proc/vmstat")) -> None:
        self._vmstat = vmstat
        self._count = self._read()

    def rose(self) -> bool:
        """Whether there were more since the last call."""
        before, self._count = self._count, self._read()
        return self._count > before

    def _read(self) -> int:
        try:
            lines = self._vmstat.read_text("ascii").splitlines()
        except OSError:
            return 0
        counts = (
            line.removeprefix(_OOM_COUNTER) for line in lines if line.startswith(_OOM_COUNTER)
        )
        return int(next(counts, "0"))
