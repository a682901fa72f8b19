"""How long this worker serves: until a limit is reached or, in a burst, until nothing waits."""

from __future__ import annotations

import random
import time

from penstock.config import Profile
from penstock.worker.core.limits import limits, reached, room
from penstock.worker.reports import resident_bytes

EMPTY = "limit: nothing waits, and it is a burst worker"


class Lifetime:
    """Attributes: burst: it ends when its queues are empty. done: jobs finished so far."""

    def __init__(self, profile: Profile, burst: bool) -> None:
        self.burst = burst
        self.done = 0
        self._limits = limits(profile, random.random())  # noqa: S311 - no secret
        self._began = time.monotonic()

    def room(self, wanted: int, unfinished: int) -> int:
        """How many of the ``wanted`` jobs may still be claimed."""
        return room(self._limits, wanted, self.done, unfinished)

    def over(self) -> str:
        """Why it is time to end; empty when it is not."""
        memory = resident_bytes() if self._limits.memory_bytes else 0
        return reached(self._limits, self.done, time.monotonic() - self._began, memory)
