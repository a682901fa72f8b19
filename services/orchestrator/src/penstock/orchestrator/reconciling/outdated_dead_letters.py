"""Removes dead letters that were stored after their job was requeued.

A worker stores the event of a death, then the dead letter. A client that requeues the job between
the two finds no letter to remove, and the letter comes later. The worker looks before it stores it,
and the client after it has recorded the requeue; what slips through both, or is stored by a worker
that was frozen or killed in between, is found here.
"""

from __future__ import annotations

from itertools import islice

from penstock.bus.protocol import Bus
from penstock.events.job import JobRevived
from penstock.events.subjects import Subjects
from penstock.jobs.dead_letters.letter import died_at
from penstock.orchestrator.core.unresolved import Step

_MOST = 100_000
_AT_ONCE = 200
_REVIVED = JobRevived.__name__


class OutdatedDeadLetters:
    """Looks once for the dead letter of each requeued job, some seconds after the requeue.

    Args:
        after_seconds: how long the dead letter may take.
    """

    def __init__(self, bus: Bus, subjects: Subjects, after_seconds: float) -> None:
        self._bus, self._subjects, self._after_seconds = bus, subjects, after_seconds
        self._requeues: dict[str, Step] = {}

    def see(self, step: Step) -> None:
        """The next event of the log."""
        if step.event == _REVIVED and len(self._requeues) < _MOST:
            self._requeues[step.job_id] = step

    async def round(self, now: float) -> None:
        """Removes what is due.

        Args:
            now: POSIX seconds.

        Raises:
            BusError: what is left is looked at later.
        """
        due = (s for s in self._requeues.values() if s.at + self._after_seconds <= now)
        for step in list(islice(due, _AT_ONCE)):
            await self._remove(step)
            if self._requeues.get(step.job_id) is step:  # not requeued once more meanwhile
                del self._requeues[step.job_id]

    async def _remove(self, step: Step) -> None:
        stream = self._subjects.dead_stream
        subject = self._subjects.dead(step.queue or "*", step.job_id)
        letter = await self._bus.last(stream, subject)
        if letter and died_at(letter) < step.at:
            await self._bus.remove(stream, letter.subject, letter.sequence + 1)
