"""The recorded histories of all living workflows, run through the code that is imported here."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import datetime

import msgspec

from penstock.bus import bounded, lookback
from penstock.bus.protocol import Bus, broker_time
from penstock.events.job import JOB_EVENTS, JobCarried
from penstock.events.subjects import Subjects
from penstock.events.workflow import (
    StepRecorded,
    WorkflowAdvanced,
    WorkflowBlocked,
)
from penstock.events.workflow_memo import Resolution
from penstock.jobs import derived_ids
from penstock.jobs.event_store.dispatched import dispatched
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.reading.last_event import proves_an_end
from penstock.jobs.workflows.coded import memo, step_ends
from penstock.jobs.workflows.coded.running.replaying import Replayed, replayed

_RECORDING = (WorkflowAdvanced, StepRecorded, WorkflowBlocked, JobCarried)
_AT_ONCE = 50

Progress = Callable[[int, int], None]
"""Is called with how many were looked at, and of how many."""


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the code that is imported here would do with living workflows.

    Attributes:
        workflows: each that was looked at, those first that it does not fit.
    """

    workflows: tuple[Replayed, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many there are of each outcome."""
        return dict(Counter(one.outcome for one in self.workflows))

    @property
    def unfit(self) -> tuple[Replayed, ...]:
        """Those that would be blocked, would fail, or cannot be read."""
        return tuple(one for one in self.workflows if not one.stands)


class Replayer:
    """Reads the event log alone, and stores nothing.

    Args:
        ring: opens what is sealed.
    """

    def __init__(self, bus: Bus, subjects: Subjects, ring: KeyRing) -> None:
        self._bus, self._subjects, self._ring = bus, subjects, ring
        self._log = JobLog(bus, subjects)

    async def replay(
        self, functions: Collection[str], since: datetime | None, progress: Progress
    ) -> ReplayReport:
        """Those workflows that have recorded something and have not ended.

        Args:
            functions: registered names; none for all.
            since: only those that were dispatched since then; None for all.
            progress: is called with how far it is.

        Raises:
            BusError
        """
        recording = sorted({workflow_id async for workflow_id in self._recording()})
        ids = await dispatched(self._bus, self._subjects, recording)
        judged: list[Replayed] = []
        for start in range(0, len(ids), _AT_ONCE):
            progress(start, len(ids))
            some = ids[start : start + _AT_ONCE]
            records = [
                record
                for record in await bounded.gather(self._living, some, _AT_ONCE)
                if record is not None
                and (not functions or record.function in functions)
                and (since is None or record.dispatched_at >= since)
            ]
            ends = await self._unread_ends(records)
            now = broker_time(self._bus)
            judged += [replayed(one, self._ring, now, ends[one.id]) for one in records]
        progress(len(ids), len(ids))
        judged.sort(key=lambda one: (one.stands, one.function, one.dispatched_at))
        return ReplayReport(workflows=tuple(judged))

    async def _recording(self) -> AsyncIterator[str]:
        """Ids of workflows that have recorded something, ended ones among them."""
        for kind in _RECORDING:
            subject = self._subjects.events("job", "*", kind.__name__)
            for stored in await lookback.latest(self._bus, self._subjects.events_stream, subject):
                if kind is JobCarried:
                    event = read_event(stored, JOB_EVENTS)
                    if not isinstance(event, JobCarried) or event.workflow is None:
                        continue
                yield stored.subject.split(".")[-2]

    async def _unread_ends(self, records: Sequence[JobRecord]) -> dict[str, list[Resolution]]:
        """Of completed steps that these workflows have not taken note of, by workflow."""
        steps = {
            derived_ids.step_id(record.id, step.n): (record.id, step.key)
            for record in records
            for step in memo.open_steps(record.workflow or memo.EMPTY).values()
            if step.is_job
        }
        ends: dict[str, list[Resolution]] = {record.id: [] for record in records}
        states = await step_ends.of_jobs(self._bus, self._subjects, list(steps))
        others = [one for one in steps if one not in states.completed and one not in states.living]
        read = await bounded.gather(self._log.read, others, _AT_ONCE)
        for job in (*states.completed.values(), *filter(None, read)):
            # A result with a time to live of its own may be gone before the workflow goes on.
            if job.state is State.COMPLETED and job.result_until is None:
                workflow_id, key = steps[job.id]
                end = Resolution(key=key, outcome="completed", value=job.result)
                ends[workflow_id].append(end)
        return ends

    async def _living(self, workflow_id: str) -> JobRecord | None:
        subject = self._subjects.job(workflow_id)
        last = await self._bus.last(self._subjects.events_stream, subject)
        if last is None or await proves_an_end(self._bus, self._subjects, last):
            return None
        record = await self._log.read(workflow_id)
        is_living = record is not None and record.is_workflow and not record.state.ended
        return record if is_living else None
