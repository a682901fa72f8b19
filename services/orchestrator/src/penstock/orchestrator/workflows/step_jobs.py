"""Jobs and batches of workflows' steps: reads them, cancels them, dispatches what was left out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusError, WrongSequence
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects
from penstock.events.workflow import INBOX_EVENTS
from penstock.events.workflow_memo import (
    ScheduledStep,
    StepKind,
    WorkflowMemo,
)
from penstock.jobs import derived_ids
from penstock.jobs.batches.batch_record import BatchState
from penstock.jobs.client import Client
from penstock.jobs.errors import NotFound
from penstock.jobs.event_store import event_log
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.coded import inbox, memo, step_ends
from penstock.jobs.workflows.coded.inbox import Signal
from penstock.jobs.workflows.coded.step_jobs import step_events
from penstock.orchestrator.workflows.instruction_executor import InstructionExecutor

log = logging.getLogger("penstock.orchestrator")

_AT_ONCE = 100


class StepJobs:
    """Of all workflows.

    Args:
        client: dispatches jobs; its source is that of their events.
        job_log: reads jobs.
    """

    def __init__(self, bus: Bus, subjects: Subjects, client: Client, job_log: JobLog) -> None:
        self._bus, self._subjects, self._client, self._log = bus, subjects, client, job_log
        self._cancelling = InstructionExecutor(bus, subjects, client)

    # --- reading ----------------------------------------------------------------------------------
    async def read(
        self, key: str, steps: Iterable[ScheduledStep]
    ) -> tuple[dict[int, bool], list[ScheduledStep]]:
        """How the steps of a workflow stand in the log. Raises BusError.

        Args:
            key: id of the workflow.
            steps: those that are open.

        Returns:
            Number of each step that has ended, and whether it completed; and the steps whose jobs
            never were dispatched.
        """
        jobs = [step for step in steps if step.is_job or step.kind == "batch"]
        ids = {step.n: derived_ids.step_id(key, step.n) for step in jobs if step.is_job}
        states = await step_ends.of_jobs(self._bus, self._subjects, list(ids.values()))
        ended = {n: True for n, job_id in ids.items() if job_id in states.completed}
        missing: list[ScheduledStep] = []

        async def read_step(step: ScheduledStep) -> None:
            step_id = derived_ids.step_id(key, step.n)
            if step.kind == "batch":
                state = await self._batch_state(step_id)
                if state is not None and state.ended:
                    ended[step.n] = state is BatchState.COMPLETED
                return
            job = await self._log.read(step_id)
            if job is None:  # what is awaited stays in the log as long as this waits for it
                missing.append(step)
            elif job.state.ended:
                ended[step.n] = job.state is State.COMPLETED

        is_known = states.completed.keys() | states.living
        others = [step for step in jobs if ids.get(step.n) not in is_known]
        await bounded.gather(read_step, others, _AT_ONCE)
        return ended, missing

    async def were_dispatched(self, key: str, numbers: Iterable[int]) -> bool:
        """Whether all of these steps of a workflow have jobs. Raises BusError."""
        ids = [derived_ids.step_id(key, n) for n in numbers]
        if not ids:
            return True
        names = {self._subjects.events("job", one, JobDispatched.__name__): one for one in ids}
        dispatched = await self._bus.last_of(self._subjects.events_stream, list(names))
        others = [job_id for subject, job_id in names.items() if subject not in dispatched]
        return all(await bounded.gather(self._log.exists, others, _AT_ONCE))

    async def _batch_state(self, batch_id: str) -> BatchState | None:
        try:
            return (await self._client.batches.show(batch_id)).state
        except NotFound:
            return None

    async def unread(self, key: str, workflow_memo: WorkflowMemo) -> list[Signal]:
        """The signals that a workflow has not taken note of. Raises BusError."""
        subject = self._subjects.events("workflow", key)
        events = await event_log.read_subject(
            self._bus, self._subjects.events_stream, subject, INBOX_EVENTS
        )
        return inbox.unread(events, memo.consumed_signals(workflow_memo))

    # --- acting -----------------------------------------------------------------------------------
    async def dispatch(self, key: str, missing: Sequence[ScheduledStep]) -> None:
        """Dispatches what the worker left out that stored the advance. Raises BusError."""
        dispatcher = self._client.dispatcher
        events = step_events(key, missing, dispatcher.source)
        log.warning("workflow %s: dispatches %d steps left out by a crash", key, len(events))
        for answer in await dispatcher.sender.send_many(events, into_reserve=True):
            if isinstance(answer, BusError) and not isinstance(answer, WrongSequence):
                raise answer

    async def cancel(self, key: str, kinds: Mapping[int, StepKind], reason: str) -> None:
        """Cancels steps, as far as they have not ended. Raises BusError.

        Args:
            key: id of the workflow.
            kinds: the steps by number. Of a batch all jobs are cancelled; a workflow may clean up.
            reason: for their events.
        """
        jobs = tuple(derived_ids.step_id(key, n) for n, kind in kinds.items() if kind == "job")
        await self._cancelling.cancel(jobs, reason)
        for n, kind in kinds.items():
            step_id = derived_ids.step_id(key, n)
            with suppress(NotFound):
                if kind == "batch":
                    await self._client.batches.cancel(step_id, reason)
                elif kind == "workflow":
                    await self._client.workflows.cancel(step_id, reason)
