"""When a pool is measured and published: each interval, and at once when it matters."""

from __future__ import annotations

import msgspec

TICK, FIRST_JOB, BACKLOG = "tick", "first-job", "backlog"
_GROWING_SECONDS = 2.0
"""A backlog that grew within this time is watched closely."""
_EARLY_SECONDS = 0.005


class Cadence(msgspec.Struct, frozen=True, kw_only=True):
    """How often pools are measured.

    Attributes:
        interval_seconds: between snapshots of a quiet pool.
        least_seconds: between any two snapshots of a pool.
        close_seconds: between looks while a backlog grows.
    """

    interval_seconds: float
    least_seconds: float
    close_seconds: float = 0.2


class PublishedState:
    """What was last published of a pool, and what has happened since.

    Attributes:
        woken: a first job came and is not in a snapshot yet.
    """

    __slots__ = ("at", "excess", "grew_at", "waiting", "woken")

    def __init__(self) -> None:
        self.at = -1e18
        self.excess = 0
        self.waiting = 0
        self.grew_at = -1e18
        self.woken = False

    def observe(self, waiting: int, ready: int, came: bool, now: float) -> None:
        """The pool was looked at.

        Args:
            came: jobs arrived since the last look, also those already picked up.
        """
        # Its first job was picked up at once: a snapshot would only say that nothing waits.
        if came and not waiting:
            self.woken = False
        if waiting > self.waiting and waiting > ready:
            self.grew_at = now
        self.waiting = waiting

    def is_close(self, now: float) -> bool:
        """The pool is worth a closer look than its interval."""
        return now - self.grew_at <= _GROWING_SECONDS

    def reason(self, cadence: Cadence, ready: int, now: float) -> str | None:
        """Why the pool is to be published now; None when it is not."""
        since = now - self.at
        if since < cadence.least_seconds - _EARLY_SECONDS:
            return None
        if self.woken and self.waiting:
            return FIRST_JOB
        if self.is_close(now) and self.waiting - ready > self.excess:
            return BACKLOG
        return TICK if since >= cadence.interval_seconds - _EARLY_SECONDS else None

    def update(self, ready: int, now: float) -> None:
        """A snapshot was published: the interval starts anew, whatever its reason."""
        self.at, self.excess, self.woken = now, max(self.waiting - ready, 0), False
