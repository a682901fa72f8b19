"""How long this worker serves: until a limit is reached or, in a burst, until nothing waits."""

from __future__ import annotations

import random
import time

from penstock.config import Profile
from penstock.worker.core.limits import capacity, limits, reached
from penstock.worker.running.memory_peak import resident_bytes
from penstock.worker.state import WorkerState

_EMPTY = "limit: nothing waits, and it is a burst worker"


class Lifetime:
    """Counts what the worker has done, and ends it at the limits of its pool's profile.

    Args:
        burst: it ends when its queues are empty.
    """

    def __init__(self, profile: Profile, burst: bool, state: WorkerState) -> None:
        self.burst = burst
        self._state = state
        self._finished_jobs = 0
        self._limits = limits(profile, random.random())  # noqa: S311 - no secret
        self._began = time.monotonic()

    def capacity(self, wanted: int, unfinished: int) -> int:
        """How many of the ``wanted`` jobs may still be claimed."""
        return capacity(self._limits, wanted, self._finished_jobs, unfinished)

    def finished(self, jobs: int) -> None:
        """So many more jobs have been run."""
        self._finished_jobs += jobs
        self.end_at_limit()

    def end_at_limit(self) -> None:
        """Stops the worker if a limit is reached."""
        memory = resident_bytes() if self._limits.memory_bytes else 0
        age_seconds = time.monotonic() - self._began
        if reason := reached(self._limits, self._finished_jobs, age_seconds, memory):
            self._state.stop(reason)

    def end_when_empty(self) -> None:
        """The queues are empty: the end of a burst worker."""
        if self.burst:
            self._state.stop(_EMPTY)
