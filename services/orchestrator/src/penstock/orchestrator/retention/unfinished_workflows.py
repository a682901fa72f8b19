"""Coded workflows that may go on, and so need what would leave the log with their steps."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.bus import bounded
from penstock.bus.protocol import Bus
from penstock.events.subjects import Subjects
from penstock.jobs import derived_ids
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.orchestrator.retention.window import Living, Window

_READ_AT_ONCE = 50
_COMPLETED = ".JobCompleted"


def may_go_on(record: JobRecord) -> bool:
    """Whether a job is a workflow that lives, or lives again when it is requeued."""
    return record.is_workflow and record.state is not State.COMPLETED


class UnfinishedWorkflows:
    """Looks them up in the log, which knows each that has not ended, however far others have read.

    Attributes:
        owners: those of which the last window holds steps.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self._log = JobLog(bus, subjects)
        self.owners: frozenset[str] = frozenset()

    async def look_up(self, window: Window, ahead: Window) -> None:
        """Finds the owners of the steps in a window. Raises BusError."""
        names = {step[0] for job_id in window.members if (step := derived_ids.step(job_id))}
        unclear = [name for name in sorted(names) if not _is_graph_or_over(name, window, ahead)]
        records = await bounded.gather(self._log.read, unclear, _READ_AT_ONCE)
        self.owners = frozenset(record.id for record in records if record and may_go_on(record))

    def awaits(self, job_id: str) -> bool:
        """Whether a job of the last window is a step of one of them."""
        step = derived_ids.step(job_id)
        return step is not None and step[0] in self.owners

    async def without_forgotten(self, jobs: Iterable[Living]) -> list[Living]:
        """Those but for dead workflows whose dead letter is gone. Raises BusError."""
        kept = await bounded.gather(self._or_none, list(jobs), _READ_AT_ONCE)
        return [one for one in kept if one is not None]

    async def _or_none(self, one: Living) -> Living | None:
        if not one.needs_letter:
            return one
        subject = self._subjects.dead(one.record.queue, one.record.id)
        letter = await self._bus.last(self._subjects.dead_stream, subject)
        return one if letter is not None else None


def _is_graph_or_over(name: str, window: Window, ahead: Window) -> bool:
    """What needs no look-up: most workflows end soon after their steps."""
    if ("graph", name) in window.workflows or ("graph", name) in ahead.workflows:
        return True
    events = [*window.jobs.get(name, ()), *ahead.jobs.get(name, ())]
    return bool(events) and events[-1].subject.endswith(_COMPLETED)
