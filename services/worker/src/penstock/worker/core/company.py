"""Which jobs may run beside each other in one worker. Pure.

A job that lost a worker together with others, a suspect, runs in smaller company next
(:mod:`penstock.jobs.running.worker_loss`). Whether this worker has the room is decided before the
job is claimed: without room it goes back to its queue at once, not started, and another worker may
take it. A worker that gave one back makes room: it takes no other jobs beyond that company.
"""

from __future__ import annotations

from collections.abc import Iterable

ROOM_SECONDS = 30.0
"""A worker makes room for so long without success; then it takes a suspect beside jobs that are
none."""
LOOK_SECONDS = 1.0
"""While it makes room, a worker looks so often whether the suspect is still in the queue."""
_ANY = 1 << 30


class Company:
    """The jobs in one worker, those counted that it is about to claim.

    Args:
        size: how many there are.
        limits: how many the suspects among them allow, themselves included.
        is_patient: suspects wait for room; else only other suspects keep one from being taken.

    Attributes:
        refused: how many each job allows for which there was no room; 0 for any number.
        took_suspect: there was room for one that allows few others.
    """

    def __init__(self, size: int, limits: Iterable[int], *, is_patient: bool = True) -> None:
        self._size, self._limits, self._is_patient = size, list(limits), is_patient
        self.refused: list[int] = []
        self.took_suspect = False

    @property
    def headroom(self) -> int:
        """How many more the suspects allow that are there."""
        return max(min(self._limits, default=_ANY) - self._size, 0)

    def takes(self, most_beside: int) -> bool:
        """Takes a job in if there is room for it.

        Args:
            most_beside: how many jobs it allows, itself included; 0 for any number.
        """
        beside = self._size if self._is_patient else len(self._limits)
        if not self.headroom or 0 < most_beside <= beside:
            self.refused.append(most_beside)
            return False
        self.joins(most_beside)
        return True

    def joins(self, most_beside: int) -> None:
        """A job is there, whether there was room for it or not."""
        self._size += 1
        if most_beside:
            self._limits.append(most_beside)
            self.took_suspect = True

    def leave(self, limits: Iterable[int]) -> None:
        """Jobs that were taken in, by how many each allows, are not there after all."""
        for most_beside in limits:
            self._size -= 1
            if most_beside:
                self._limits.remove(most_beside)


class Room:
    """What a worker leaves free for suspects that it gave back. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._most_beside = 0
        self._since = self._look_at = 0.0

    def is_patient(self, now: float) -> bool:
        """Whether suspects wait for room."""
        return not self._most_beside or now - self._since < ROOM_SECONDS

    def clear(self) -> None:
        """No suspect is in the queue any more."""
        self._most_beside = 0

    def update(self, company: Company, now: float) -> bool:
        """What became of the jobs that were in hand; True when room is to be made."""
        most_beside = max(company.refused, default=0)
        if company.took_suspect or not self._most_beside:
            self._since = now
        self._most_beside, self._look_at = most_beside, now + LOOK_SECONDS
        return most_beside > 0

    def capacity(self, capacity: int, unfinished: int, now: float) -> int:
        """How many of ``capacity`` jobs may be claimed with ``unfinished`` in the worker."""
        if not self._most_beside:
            return capacity
        if unfinished < self._most_beside:
            return min(capacity, self._most_beside - unfinished)
        return min(capacity, 1) if now >= self._look_at else 0
