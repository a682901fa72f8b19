"""Workflows that an event names as blocked: counted once their own histories show it."""

from __future__ import annotations

from datetime import datetime

from penstock.bus import bounded
from penstock.bus.protocol import Bus
from penstock.events.subjects import Subjects
from penstock.events.workflow import WorkflowBlocked
from penstock.jobs.event_store.dispatched import dispatched
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.orchestrator.workflows.suspended.workflow_meters import WorkflowMeters
from penstock.runtime.poison_messages import skipping_poison

_MOST_UNREAD = 10_000
"""Further ones are counted when they are next blocked: within minutes, while they are."""
_READ_AT_ONCE = 500
_AT_ONCE = 50


class BlockedWorkflows:
    """Reads those that an event names as blocked: there may be no such workflow.

    Args:
        job_log: reads them.
        meters: where they are counted.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, job_log: JobLog, meters: WorkflowMeters
    ) -> None:
        self._bus, self._subjects, self._log, self._meters = bus, subjects, job_log, meters
        self._due: dict[str, datetime] = {}

    def see(self, key: str, event: WorkflowBlocked) -> None:
        """An event says that a workflow is blocked."""
        if key in self._due or len(self._due) < _MOST_UNREAD:
            self._due[key] = event.due_at

    async def read(self) -> None:
        """Reads some of them. Raises BusError: they are read later."""
        some = list(self._due)[:_READ_AT_ONCE]
        job_ids = await dispatched(self._bus, self._subjects, some)
        await bounded.gather(self._count, job_ids, _AT_ONCE)
        for key in some:
            self._due.pop(key, None)

    async def _count(self, key: str) -> None:
        with skipping_poison(f"workflow {key}"):
            record = await self._log.read(key)
            is_suspended = record is not None and record.state is State.SUSPENDED
            if record and is_suspended and record.workflow and record.workflow.blocked:
                self._meters.blocked(key, record.function, record.wakes_at or self._due[key])
