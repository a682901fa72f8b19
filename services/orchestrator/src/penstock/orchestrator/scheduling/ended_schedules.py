"""Removes the schedules of jobs that ended, which clients may not: no purge is bound to a job.

A cancelled job may have one, and a workflow that ended before its timer. A schedule that stays
fires at its time, and the worker drops the job: this saves the storage, and keeps counts of delayed
jobs right.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable

from penstock.bus.protocol import Bus, BusError
from penstock.events.subjects import Subjects
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.core.unresolved import Step

log = logging.getLogger("penstock.orchestrator")

MOST_KEPT = 100_000
_ROUND_SECONDS = 1.0
_SUSPENDED = frozenset({"WorkflowAdvanced", "WorkflowBlocked", "WorkflowResumed"})
_ENDS = frozenset({"JobCompleted", "JobDead"})


class EndedSchedules:
    """Remembers jobs that ended and removes their schedules.

    Args:
        pause: waits so many seconds; False when it is time to end.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, pause: Callable[[float], Awaitable[bool]]
    ) -> None:
        self._bus, self._subjects, self._pause = bus, subjects, pause
        self._ended: deque[Step] = deque(maxlen=MOST_KEPT)
        self._with_timer: OrderedDict[str, None] = OrderedDict()

    def see(self, step: Step) -> None:
        """A step of a job."""
        if step.event in _SUSPENDED and step.due_at is not None:
            self._with_timer[step.job_id] = None
            if len(self._with_timer) > MOST_KEPT:
                self._with_timer.popitem(last=False)
        elif step.event == "JobCancelled":
            self._with_timer.pop(step.job_id, None)
            self._ended.append(step)
        elif step.event in _ENDS and step.job_id in self._with_timer:
            del self._with_timer[step.job_id]
            self._ended.append(step)

    async def run(self) -> None:
        """Until it is time to end."""
        while await self._pause(_ROUND_SECONDS):
            try:
                while self._ended:
                    await self._remove(self._ended[0])
                    self._ended.popleft()
            except BusError as error:
                log.debug("schedules of jobs that ended: %s", error)

    async def _remove(self, step: Step) -> None:
        stream, pattern = self._subjects.jobs_stream, self._subjects.schedule("*", step.job_id)
        kept = await self._bus.last(stream, pattern)
        if kept is None:
            return
        made_for = kept.headers.get(queue_messages.SEQUENCE, "")
        if made_for.isdigit() and int(made_for) > step.sequence:
            return  # of the job's next life
        await self._bus.remove(stream, kept.subject, kept.sequence + 1)
