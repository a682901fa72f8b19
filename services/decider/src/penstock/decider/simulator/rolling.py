"""A mean rate over the last stretch of time."""

from __future__ import annotations

from collections import deque


class Rolling:
    """Counts of intervals over the last ``window_seconds``."""

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._intervals: deque[tuple[float, float, int]] = deque()
        self._count = 0

    def add(self, start: float, end: float, count: int) -> None:
        """``count`` happened in (start, end]."""
        self._intervals.append((start, end, count))
        self._count += count
        while self._intervals[0][1] <= end - self._window:
            self._count -= self._intervals.popleft()[2]

    def per_second(self) -> float | None:
        """None before anything was observed."""
        if not self._intervals:
            return None
        seconds = self._intervals[-1][1] - self._intervals[0][0]
        return self._count / seconds if seconds > 0 else None
