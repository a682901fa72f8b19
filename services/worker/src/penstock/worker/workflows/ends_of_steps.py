"""How the jobs of workflows' steps ended, as their workflows take note of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus
from penstock.events.job import JobError
from penstock.events.workflow_memo import Resolution, ScheduledStep, WorkflowMemo
from penstock.jobs import derived_ids
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_view import missing_result
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.workflows.coded import memo, step_ends, step_jobs

_READS_AT_ONCE = 100


class EndsOfSteps:
    """Reads them, of many workflows together."""

    def __init__(self, bus: Bus, joblog: JobLog) -> None:
        self._bus, self._joblog = bus, joblog

    async def read(
        self, memos: Mapping[str, WorkflowMemo], completed: Mapping[str, JobRecord]
    ) -> dict[str, list[Resolution]]:
        """Ends of the open steps that are jobs, in their order, by id of the workflow.

        Args:
            memos: by id of the workflow.
            completed: jobs that are known to have completed, by id.

        Raises:
            BusError
        """
        steps = [
            (workflow_id, step)
            for workflow_id, workflow_memo in memos.items()
            for step in memo.open_steps(workflow_memo).values()
            if step.is_job
        ]
        ends: dict[str, list[tuple[int, Resolution]]] = {workflow_id: [] for workflow_id in memos}
        if steps:
            for (workflow_id, _), end in zip(
                steps, await self._ends_of(steps, completed), strict=True
            ):
                if end is not None:
                    ends[workflow_id].append(end)
        return {
            workflow_id: [resolution for _, resolution in sorted(ended, key=lambda end: end[0])]
            for workflow_id, ended in ends.items()
        }

    async def _ends_of(
        self, steps: Sequence[tuple[str, ScheduledStep]], completed: Mapping[str, JobRecord]
    ) -> list[tuple[int, Resolution] | None]:
        """How the job of each ended, and where in the log; None while it lives."""
        ids = [derived_ids.step_id(workflow_id, step.n) for workflow_id, step in steps]
        states = await step_ends.of_jobs(self._bus, self._joblog.subjects, ids, completed)

        async def end_of(index: int) -> tuple[int, Resolution] | None:
            _, step = steps[index]
            record = states.completed.get(ids[index]) or states.living.get(ids[index])
            if record is not None and step_jobs.is_another(record, step):
                return record.life_from, step_jobs.taken(record, step)
            if ids[index] in states.living:
                return None
            if record is None or record.result_until is not None:
                return await self._other_end(ids[index], step)
            return record.changed_by, Resolution(
                key=step.key, outcome="completed", value=record.result
            )

        return await bounded.gather(end_of, range(len(steps)), _READS_AT_ONCE)

    async def _other_end(self, job_id: str, step: ScheduledStep) -> tuple[int, Resolution] | None:
        record = await self._joblog.read(job_id)
        if record is not None and step_jobs.is_another(record, step):
            return record.life_from, step_jobs.taken(record, step)
        if record is None or not record.state.ended:
            return None
        if record.state is State.COMPLETED:
            record = await self._joblog.with_result(record)
            if record.result_until is not None and not record.result:
                error = JobError(kind="result-expired", message=missing_result(record))
                return record.changed_by, Resolution(key=step.key, outcome="failed", error=error)
            return record.changed_by, Resolution(
                key=step.key, outcome="completed", value=record.result
            )
        error = record.error or JobError(kind="cancelled", message=f"job {job_id} was cancelled")
        return record.changed_by, Resolution(
            key=step.key,
            outcome="failed" if record.state is State.DEAD else "cancelled",
            error=msgspec.structs.replace(error, traceback=""),
        )
