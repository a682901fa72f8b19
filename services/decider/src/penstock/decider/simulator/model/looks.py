"""The cadence of looks: each second, at once on a first job, sooner while a backlog grows."""

from __future__ import annotations

import msgspec

from penstock.decider.simulator.model.meter import INTERVAL_SECONDS

TICK, FIRST_JOB, BACKLOG = "tick", "first-job", "backlog"
_LEAST_SECONDS = 0.1
_CLOSE_SECONDS = 0.2
_GROWING_SECONDS = 2.0
_WAKE_SECONDS = 0.005
"""From a first job to the look at its queue."""
_SLACK = 1e-6
_LONGER = 1.5
"""Factor by which the pause between two looks at an idle pool grows, up to the quiet one."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often the pool is measured. A slower pace than in production simulates faster.

    Attributes:
        interval_seconds: between looks.
        quiet_seconds: the same while nothing waits, runs or comes and no worker is beyond the
            least: each look is later than the last, up to this.
    """

    interval_seconds: float = INTERVAL_SECONDS
    quiet_seconds: float = INTERVAL_SECONDS


class Looks:
    """The metrics service's cadence. Times are seconds since the simulation's start.

    Attributes:
        next_at: when the queue is looked at next.
    """

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._pause = self._pace.interval_seconds
        self.next_at = 0.0
        self._published_at = float("-inf")
        self._grew_at = float("-inf")
        self._waiting = self._excess = 0
        self._armed = True
        self._woken = False

    def arrived(self, now: float) -> None:
        """A job came; the first one on an idle queue wakes us."""
        if self._armed:
            self._armed, self._woken = False, True
            self.next_at = min(
                self.next_at, max(now + _WAKE_SECONDS, self._published_at + _LEAST_SECONDS)
            )

    def take(
        self, waiting: int, ready: int, idle_queue: bool, now: float, at_rest: bool = False
    ) -> str | None:
        """A look at the queue: why it is published, None if it is not.

        Args:
            idle_queue: nothing waits, nothing runs, nothing came since the last look.
            at_rest: and no worker is there that might be taken away.
        """
        if waiting > self._waiting and waiting > ready:
            self._grew_at = now
        self._waiting, self._armed = waiting, idle_queue
        self._woken = self._woken and waiting > 0
        self._pause = self._next_pause(idle_queue and at_rest)
        reason = self._reason(waiting, ready, now)
        if reason:
            self._published_at, self._excess, self._woken = now, max(waiting - ready, 0), False
        close = now - self._grew_at <= _GROWING_SECONDS
        due = self._published_at + self._pause
        self.next_at = max(min(due, now + _CLOSE_SECONDS) if close else due, now + _SLACK)
        return reason

    def _next_pause(self, at_rest: bool) -> float:
        if not at_rest:
            return self._pace.interval_seconds
        most = max(self._pace.quiet_seconds, self._pace.interval_seconds)
        return min(self._pause * _LONGER, most)

    def _reason(self, waiting: int, ready: int, now: float) -> str | None:
        since = now - self._published_at
        if since < _LEAST_SECONDS - _SLACK:
            return None
        if self._woken and waiting:
            return FIRST_JOB
        if now - self._grew_at <= _GROWING_SECONDS and waiting - ready > self._excess:
            return BACKLOG
        return TICK if since >= self._pause - _SLACK else None
