"""Whether the kernel's OOM killer struck: by its counter, as exit codes do not show it."""

from __future__ import annotations

from pathlib import Path

_COUNTER = "oom_kill "


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
        counts = (line.removeprefix(_COUNTER) for line in lines if line.startswith(_COUNTER))
        return int(next(counts, "0"))
