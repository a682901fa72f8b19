"""Whether a process that says nothing about itself seems to work, by the processor time it uses."""

from __future__ import annotations

BUSY_SHARE = 0.02
"""Of one core. A consumer that waits uses less: it looks after its connection."""
_REMEMBERED_SECONDS = 3.0
"""It counts as busy for so long after it last used its processor: many messages wait for others."""


class Activity:
    """What one process and its children used between two looks.

    A message that only waits uses nothing: that a process seems idle decides which one is asked to
    end first, never whether it may finish what it handles.
    """

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._busy_at: float | None = None

    def see(self, cpu_seconds: float, now: float) -> None:
        """Takes in one look.

        Args:
            cpu_seconds: used since the process began.
            now: monotonic seconds.
        """
        if self._last:
            before, at = self._last
            if cpu_seconds - before > BUSY_SHARE * (now - at):
                self._busy_at = now
        self._last = cpu_seconds, now

    def is_busy(self, now: float) -> bool:
        """Whether it used its processor lately."""
        return self._busy_at is not None and now - self._busy_at <= _REMEMBERED_SECONDS
