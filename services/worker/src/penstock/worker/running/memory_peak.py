"""How much memory this process used at most while an attempt ran.

Linux keeps the highest resident size of a process, and lets it be reset (proc(5), ``clear_refs``).
Resetting and reading take 4 µs each, a twentieth of a no-op job, so short jobs are spared both.
"""

from __future__ import annotations

import os
import resource

_PAGE = resource.getpagesize()
MEASURED_FROM_SECONDS = 0.01
"""Shorter attempts are not measured: in that time a process can touch some 40 MB of new memory."""
_RESET_EACH_SECONDS = 0.05
_RESET_HIGHEST = b"5"


class MemoryPeak:
    """For one thread that runs one attempt after another."""

    def __init__(self) -> None:
        self._reset_at = float("-inf")
        try:  # where it cannot be reset, no figure is reported: it would be of other attempts
            self._file = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def begin(self, now: float) -> None:
        """An attempt begins. Args: now: monotonic seconds."""
        if self._file >= 0 and now - self._reset_at >= _RESET_EACH_SECONDS:
            self._reset_at = now
            try:
                os.pwrite(self._file, _RESET_HIGHEST, 0)
            except OSError:
                self.close()

    def end(self, begun_at: float, now: float) -> int:
        """The peak of the attempt in bytes; 0 if it was not measured."""
        if self._file < 0 or now - begun_at < MEASURED_FROM_SECONDS:
            return 0
        self._reset_at = float("-inf")  # what this attempt used is not the next one's
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def resident_bytes() -> int:
    """Memory of this process that is in use, pages shared with others included."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - read each second
        return int(file.read().split()[1]) * _PAGE
