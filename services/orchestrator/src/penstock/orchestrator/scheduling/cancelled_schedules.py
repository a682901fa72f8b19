"""Removes the schedules of cancelled jobs, which clients may not: a purge cannot be bound to a job.

A schedule that stays fires at its time, and the worker drops the job: this only saves the storage.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable

from penstock.bus.protocol import Bus, BusError
from penstock.events.subjects import Subjects
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.core.unresolved import Step

log = logging.getLogger("penstock.orchestrator")

MOST_KEPT = 100_000
_ROUND_SECONDS = 0.2


class CancelledSchedules:
    """Remembers cancelled jobs and removes their schedules.

    Args:
        pause: waits so many seconds; False when it is time to end.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, pause: Callable[[float], Awaitable[bool]]
    ) -> None:
        self._bus, self._subjects, self._pause = bus, subjects, pause
        self._cancelled: deque[Step] = deque(maxlen=MOST_KEPT)

    def see(self, step: Step) -> None:
        """A step of a job."""
        if step.event == "JobCancelled":
            self._cancelled.append(step)

    async def run(self) -> None:
        """Until it is time to end."""
        while await self._pause(_ROUND_SECONDS):
            try:
                while self._cancelled:
                    await self._remove(self._cancelled[0])
                    self._cancelled.popleft()
            except BusError as error:
                log.debug("schedules of cancelled jobs: %s", error)

    async def _remove(self, step: Step) -> None:
        stream, pattern = self._subjects.jobs_stream, self._subjects.schedule("*", step.job_id)
        kept = await self._bus.last(stream, pattern)
        if kept is None:
            return
        made_for = kept.headers.get(queue_messages.SEQUENCE, "")
        if made_for.isdigit() and int(made_for) > step.sequence:
            return  # of the job's next life
        await self._bus.remove(stream, kept.subject, kept.sequence + 1)
