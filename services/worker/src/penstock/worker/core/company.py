"""Which suspects may run beside each other in one worker. Pure.

A suspect is a job that lost workers twice or more in a row together with others
(:mod:`penstock.jobs.running.worker_loss`): few other suspects may run beside it, and any number of
other jobs. Whether there is room is decided before the job is claimed: without room it goes back to
its queue, not started, and is offered a little later to this worker and all others.
"""

from __future__ import annotations

from collections.abc import Iterable

_FIRST_SECONDS, _MOST_SECONDS = 0.25, 5.0
_PART_OF_WAITED = 0.1
_ANY = 1 << 30


class Company:
    """The suspects in one worker, those counted that it is about to claim.

    Args:
        limits: how many suspects each of them allows, itself included.
        runs_one: the worker runs one job at a time: there is room for any.

    Attributes:
        refused: how many jobs there was no room for.
    """

    def __init__(self, limits: Iterable[int] = (), *, runs_one: bool = False) -> None:
        self._limits, self._runs_one = list(limits), runs_one
        self.refused = 0

    def takes(self, most_beside: int) -> bool:
        """Takes a job in if there is room for it.

        Args:
            most_beside: how many suspects it allows, itself included; 0: it is none.
        """
        if most_beside and len(self._limits) >= self._most(most_beside):
            self.refused += 1
            return False
        self.joins(most_beside)
        return True

    def _most(self, most_beside: int) -> int:
        return _ANY if self._runs_one else min([most_beside, *self._limits])

    def joins(self, most_beside: int) -> None:
        """A job is there, whether there was room for it or not."""
        if most_beside:
            self._limits.append(most_beside)

    def leave(self, limits: Iterable[int]) -> None:
        """Jobs that were taken in, by how many each allows, are not there after all."""
        for most_beside in limits:
            if most_beside:
                self._limits.remove(most_beside)


def offered_again_seconds(waited_seconds: float) -> float:
    """How long a suspect without room is not offered: it would keep other jobs from being taken.

    Args:
        waited_seconds: since it could start.
    """
    return min(max(waited_seconds * _PART_OF_WAITED, _FIRST_SECONDS), _MOST_SECONDS)
