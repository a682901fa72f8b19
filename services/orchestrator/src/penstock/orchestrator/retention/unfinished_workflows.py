"""Coded workflows that may go on, and so need what would leave the log with their steps."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.bus import bounded
from penstock.bus.protocol import Bus
from penstock.events.subjects import Subjects
from penstock.jobs import derived_ids
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.workflows.coded import memo
from penstock.orchestrator.retention.window import Living, Window

_READ_AT_ONCE = 50
_COMPLETED = ".JobCompleted"


def may_go_on(record: JobRecord) -> bool:
    """Whether a job is a workflow that lives, or lives again when it is requeued."""
    return record.is_workflow and record.state is not State.COMPLETED


def awaited_steps(record: JobRecord | None) -> frozenset[int]:
    """Numbers of the steps of which a workflow may still ask how they ended."""
    if record is None or not may_go_on(record):
        return frozenset()
    return frozenset(step.n for step in memo.open_steps(record.workflow or memo.EMPTY).values())


class UnfinishedWorkflows:
    """Looks them up in the log, which knows each, however far others have read."""

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self._log = JobLog(bus, subjects)
        self._awaited: dict[str, frozenset[int]] = {}

    async def look_up(self, window: Window, ahead: Window) -> None:
        """Finds what the owners of the steps in a window wait for. Raises BusError."""
        names = {step[0] for job_id in window.members if (step := derived_ids.step(job_id))}
        unclear = [name for name in sorted(names) if not _is_graph_or_over(name, window, ahead)]
        records = await bounded.gather(self._log.read, unclear, _READ_AT_ONCE)
        pairs = zip(unclear, map(awaited_steps, records), strict=True)
        self._awaited = {name: steps for name, steps in pairs if steps}

    def awaits(self, job_id: str) -> bool:
        """Whether a job of the last window is a step that one of them waits for."""
        step = derived_ids.step(job_id)
        return step is not None and step[1] in self._awaited.get(step[0], ())

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
