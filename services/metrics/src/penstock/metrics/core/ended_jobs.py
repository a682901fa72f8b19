"""How many attempts ended lately, and how many of them failed, by queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.events.snapshot import MOST_ENDED_QUEUES, EndedRate

_STEP_SECONDS = 1.0
_LEAST_SECONDS = 10.0
"""A few jobs of the first second are no rate of hundreds a minute."""


class EndedJobs:
    """Attempts that ended within the last ``window_seconds``.

    Args:
        window_seconds: until as much time has passed since the first report, rates are over that
            time, and over ten seconds at least.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._steps: dict[str, deque[tuple[float, int, int]]] = {}
        self._began_at: float | None = None

    def reported(self, now: float) -> None:
        """A worker reported, whatever it did: before that no rate is known."""
        if self._began_at is None:
            self._began_at = now

    def add(self, queue: str, finished: int, failed: int, now: float) -> None:
        """So many attempts ended, of which so many failed."""
        if finished <= 0:
            return
        failed = min(max(failed, 0), finished)
        steps = self._steps.setdefault(queue, deque())
        if steps and now - steps[-1][0] < _STEP_SECONDS:
            at, finished_before, failed_before = steps.pop()
            steps.append((at, finished_before + finished, failed_before + failed))
        else:
            steps.append((now, finished, failed))

    def total(self, now: float) -> EndedRate | None:
        """Of all queues together; None before the first report."""
        if self._began_at is None:
            return None
        self._forget(now)
        return self._rate(self._steps.values(), now)

    def by_queue(self, now: float) -> dict[str, EndedRate]:
        """Of the queues on which anything ended, at most `MOST_ENDED_QUEUES`."""
        self._forget(now)
        busiest = sorted(self._steps, key=lambda queue: (-_finished(self._steps[queue]), queue))
        return {
            queue: self._rate([self._steps[queue]], now) for queue in busiest[:MOST_ENDED_QUEUES]
        }

    def _rate(self, queues: Iterable[Iterable[tuple[float, int, int]]], now: float) -> EndedRate:
        began_at = now if self._began_at is None else self._began_at
        seconds = min(max(now - began_at, _LEAST_SECONDS), self._window_seconds)
        steps = [step for queue in queues for step in queue]
        return EndedRate(
            finished_per_minute=sum(finished for _, finished, _ in steps) * 60 / seconds,
            failed_per_minute=sum(failed for _, _, failed in steps) * 60 / seconds,
        )

    def _forget(self, now: float) -> None:
        for queue, steps in tuple(self._steps.items()):
            while steps and now - steps[0][0] > self._window_seconds:
                steps.popleft()
            if not steps:
                del self._steps[queue]


def _finished(steps: Iterable[tuple[float, int, int]]) -> int:
    return sum(finished for _, finished, _ in steps)
