"""When a pool's workers keep ending at once: wait longer each time, and report it.

For workers that cannot start (a module that cannot be imported, no memory) or end without having
taken a job. What a job does to its process is no failed start: the job itself waits longer each
time (`penstock.jobs.running.worker_loss`), so that the pool goes on with the others.
"""

from __future__ import annotations

import msgspec

SETTLED_SECONDS = 10.0
"""A worker that lived this long started well: its end is no failed start."""

LOOP_FAILURES = 3
"""From here on it is a crash loop: reported, and tried with one worker at a time."""

_FIRST_SECONDS, _LONGEST_SECONDS = 0.2, 30.0


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Failed starts of one pool in a row. Times are monotonic seconds."""

    failures: int
    failed_at: float
    backoff_seconds: float
    last_exit_code: int | None

    @property
    def until(self) -> float:
        """No start before this."""
        return self.failed_at + self.backoff_seconds

    @property
    def is_loop(self) -> bool:
        return self.failures >= LOOP_FAILURES


def backoff_seconds(failures: int) -> float:
    """Nothing after the first failure, then 0.2 s, doubling, up to 30 s."""
    return 0.0 if failures < 2 else min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** (failures - 2))


def failed(
    before: Trouble | None, requested_at: float, now: float, exit_code: int | None
) -> Trouble | None:
    """The trouble after a failed start; the old one for a worker of the same round.

    Ten workers that die together are one failure: only a start that was decided since the last
    failure is a new failure.
    """
    if before and requested_at < before.failed_at:
        return before
    failures = 1 + (before.failures if before else 0)
    return Trouble(
        failures=failures,
        failed_at=now,
        backoff_seconds=backoff_seconds(failures),
        last_exit_code=exit_code,
    )
