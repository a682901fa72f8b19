"""When the pool is measured: each second, at once on a first job, sooner while a backlog grows."""

from __future__ import annotations

from penstock.decider.simulator.meter import INTERVAL_SECONDS

TICK, FIRST_JOB, BACKLOG = "tick", "first-job", "backlog"
_LEAST_SECONDS = 0.1
_CLOSE_SECONDS = 0.2
_GROWING_SECONDS = 2.0
_WAKE_SECONDS = 0.005
"""From a first job to the look at its queue."""
_SLACK = 1e-6


class Looks:
    """The metrics service's cadence. Times are seconds since the simulation's start.

    Attributes:
        next_at: when the queue is looked at next.
    """

    def __init__(self) -> None:
        self.next_at = 0.0
        self._told_at = float("-inf")
        self._grew_at = float("-inf")
        self._waiting = self._excess = 0
        self._armed = True
        self._woken = False

    def arrived(self, now: float) -> None:
        """A job came; the first one on an idle queue wakes us."""
        if self._armed:
            self._armed, self._woken = False, True
            self.next_at = min(
                self.next_at, max(now + _WAKE_SECONDS, self._told_at + _LEAST_SECONDS)
            )

    def take(self, waiting: int, ready: int, idle_queue: bool, now: float) -> str | None:
        """A look at the queue: why it is told of, None if it is not.

        Args:
            idle_queue: nothing waits, nothing runs, nothing came since the last look.
        """
        if waiting > self._waiting and waiting > ready:
            self._grew_at = now
        self._waiting, self._armed = waiting, idle_queue
        self._woken = self._woken and waiting > 0
        reason = self._reason(waiting, ready, now)
        if reason:
            self._told_at, self._excess, self._woken = now, max(waiting - ready, 0), False
        close = now - self._grew_at <= _GROWING_SECONDS
        due = self._told_at + INTERVAL_SECONDS
        self.next_at = max(min(due, now + _CLOSE_SECONDS) if close else due, now + _SLACK)
        return reason

    def _reason(self, waiting: int, ready: int, now: float) -> str | None:
        since = now - self._told_at
        if since < _LEAST_SECONDS - _SLACK:
            return None
        if self._woken and waiting:
            return FIRST_JOB
        if now - self._grew_at <= _GROWING_SECONDS and waiting - ready > self._excess:
            return BACKLOG
        return TICK if since >= INTERVAL_SECONDS - _SLACK else None
