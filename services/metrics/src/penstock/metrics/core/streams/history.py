"""A figure over the last minutes, sampled now and then: its mean, and by how much it grew."""

from __future__ import annotations

from collections import deque

_MOST_SAMPLES = 900


class History:
    """Samples in the order of time; the oldest go first. Times are seconds of one steady clock."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_MOST_SAMPLES)

    def add(self, at: float, value: float) -> None:
        if not self._samples or at > self._samples[-1][0]:
            self._samples.append((at, value))

    def clear(self) -> None:
        self._samples.clear()

    @property
    def last(self) -> float | None:
        return self._samples[-1][1] if self._samples else None

    def values(self, start: float, end: float) -> list[float]:
        """The samples within, and the last one before them; the first of all if none was."""
        before = [value for at, value in self._samples if at <= start][-1:]
        within = [value for at, value in self._samples if start < at <= end]
        return before + within or [value for _, value in self._samples][:1]

    def growth(self, start: float, end: float) -> float | None:
        """By how much a counter grew; None where it was not sampled around both times.

        A sample is taken for the time until the next one: tasks are counted when they end, and the
        last ones of a batch end with it.
        """
        if not self._samples or start < self._samples[0][0] or end > self._samples[-1][0]:
            return None
        first = [value for at, value in self._samples if at <= start][-1]
        last = next(value for at, value in self._samples if at >= end)
        return max(last - first, 0.0)
