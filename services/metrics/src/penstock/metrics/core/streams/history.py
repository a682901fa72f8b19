"""Figures over the last looks: samples by time, and how long tasks take."""

from __future__ import annotations

from collections import deque
from statistics import median

_MOST_SAMPLES = 900
_LOOKS, _LEAST_LOOKS = 15, 3


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
        before = [value for time, value in self._samples if time <= start][-1:]
        within = [value for time, value in self._samples if start < time <= end]
        return before + within or [value for _, value in self._samples][:1]

    def after(self, at: float) -> float | None:
        """The first sample at this time or later; None where the samples do not lie around it."""
        if not self._samples or self._samples[0][0] > at:
            return None
        return next((value for time, value in self._samples if time >= at), None)


class TaskLength:
    """How long tasks take, by the looks of late at which some had ended.

    A median over looks: the first task of a new executor takes as long as its code takes to load,
    up to a hundred times as long as those after it.
    """

    def __init__(self) -> None:
        self._means: deque[float] = deque(maxlen=_LOOKS)
        self._before = (0, 0.0)

    def add(self, finished: int, run_seconds: float) -> None:
        """Counts of an application: tasks that ended, and the seconds they took in all."""
        count, seconds = finished - self._before[0], run_seconds - self._before[1]
        self._before = finished, run_seconds
        if count > 0 and seconds >= 0:
            self._means.append(seconds / count)

    @property
    def seconds(self) -> float:
        """0 before there were enough looks."""
        return median(self._means) if len(self._means) >= _LEAST_LOOKS else 0.0
