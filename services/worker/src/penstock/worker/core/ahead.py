"""How many jobs a worker may claim ahead of those it runs. Pure.

For jobs of a few microseconds the round trips to the broker cost more than the jobs, so they are
claimed many at a time; a long job must never hold others behind it while some worker is idle. A
worker of several queues knows each by itself: short jobs of one promise nothing for another.
"""

from __future__ import annotations

MOST = 256
_RISE, _FALL = 0.2, 0.1
_FLOOR_SECONDS = 10e-6
_MOST_QUEUES = 1_000
"""Of which the run time is remembered; the default pool's workers may see any number."""


class Ahead:
    """Expected run time of each queue's jobs, quicker to rise than to fall.

    Args:
        budget_seconds: expected work that may be claimed beyond the running jobs, for each slot.
        slots: how many jobs run at a time.
    """

    def __init__(self, budget_seconds: float, slots: int = 1) -> None:
        self.budget_seconds, self.slots = budget_seconds, slots
        self.expected_seconds: dict[str, float] = {}
        """By queue; without those of which no job has run."""
        self._refused = 0

    def won(self, jobs: int, messages: int) -> None:
        """Of so many messages so many were jobs to run.

        While none is, more and more are asked for: a flood of messages that cannot be run must not
        hold up the jobs behind it for a round trip each.
        """
        self._refused = 0 if jobs else self._refused + messages

    def saw(self, queue: str, run_seconds: float) -> None:
        """A job of this queue took so long."""
        expected = self.expected_seconds.get(queue, run_seconds)
        weight = _RISE if run_seconds > expected else _FALL
        self.expected_seconds[queue] = max(
            expected + weight * (run_seconds - expected), _FLOOR_SECONDS
        )
        if len(self.expected_seconds) > _MOST_QUEUES:
            del self.expected_seconds[next(iter(self.expected_seconds))]

    def free(self, unfinished: int) -> int:
        """Slots that no job waits for."""
        return max(self.slots - unfinished, 0)

    def capacity(self, queue: str, unfinished: int) -> int:
        """How many more of a queue may be claimed with ``unfinished`` jobs claimed, not finished.

        One for each free slot, whatever is known; no others of unknown length.
        """
        free = self.free(unfinished)
        if unfinished == 0 and self._refused:
            return max(min(self._refused, MOST), free)
        if (expected := self.expected_seconds.get(queue)) is None:
            return free
        capacity = int(self.slots * self.budget_seconds / expected) - unfinished
        return max(min(capacity, MOST), free)
