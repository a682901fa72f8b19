"""Jobs and batches of workflows' steps: reads them, cancels them, dispatches what was left out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusError, WrongSequence
from penstock.events.job import JOB_EVENTS, JobDispatched
from penstock.events.subjects import Subjects
from penstock.events.workflow_memo import (
    ScheduledStep,
    StepKind,
    WorkflowMemo,
)
from penstock.jobs import derived_ids
from penstock.jobs.batches.batch_record import BatchRecord, BatchState
from penstock.jobs.client import Client
from penstock.jobs.errors import NotFound
from penstock.jobs.event_store import unbroken
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.workflows.coded import consumed_signals, inbox, step_ends
from penstock.jobs.workflows.coded.step_jobs import fits, is_another, is_another_batch, step_events
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
        for step in jobs:
            one = states.completed.get(ids.get(step.n, "")) or states.living.get(
                ids.get(step.n, "")
            )
            if one is not None and _is_another(key, one, step):
                ended[step.n] = False
        missing: list[ScheduledStep] = []

        async def read_step(step: ScheduledStep) -> None:
            step_id = derived_ids.step_id(key, step.n)
            if step.kind == "batch":
                batch = await self._batch(step_id)
                if batch is not None and is_another_batch(batch, step):
                    ended[step.n] = False
                elif batch is not None and batch.state.ended:
                    ended[step.n] = batch.state is BatchState.COMPLETED
                return
            job = await self._log.read(step_id)
            if job is None:  # what is awaited stays in the log as long as this waits for it
                missing.append(step)
            elif _is_another(key, job, step):
                ended[step.n] = False
            elif job.state.ended:
                ended[step.n] = job.state is State.COMPLETED

        is_known = states.completed.keys() | states.living.keys()
        others = [step for step in jobs if ids.get(step.n) not in is_known]
        await bounded.gather(read_step, others, _AT_ONCE)
        return ended, missing

    async def were_dispatched(self, key: str, digests: Mapping[int, str], after: int) -> bool:
        """Whether all of these steps of a workflow have jobs, and the ids are no others'.

        Args:
            key: id of the workflow.
            digests: of the steps, by number.
            after: sequence of the event that scheduled them; a job of before may have ended unseen.

        Raises:
            BusError
        """
        if not digests:
            return True
        ids = {derived_ids.step_id(key, n): digest for n, digest in digests.items()}
        names = {self._subjects.events("job", one, JobDispatched.__name__): one for one in ids}
        dispatched = await self._bus.last_of(self._subjects.events_stream, list(names))
        for subject, stored in dispatched.items():
            event = read_event(stored, JOB_EVENTS)
            job_id = names[subject]
            if not isinstance(event, JobDispatched) or stored.sequence < after:
                return False
            is_first = unbroken.is_first(stored, self._subjects.job(job_id))
            if not (is_first and fits(event.payload, ids[job_id])):
                return False
        others = [job_id for subject, job_id in names.items() if subject not in dispatched]
        return all(await bounded.gather(self._log.exists, others, _AT_ONCE))

    async def _batch(self, batch_id: str) -> BatchRecord | None:
        try:
            return await self._client.batches.show(batch_id)
        except NotFound:
            return None

    async def answered(
        self, key: str, steps: Iterable[ScheduledStep], workflow_memo: WorkflowMemo
    ) -> tuple[set[int], int]:
        """Which waits for signals can be given one.

        Args:
            key: id of the workflow.
            steps: those that are open.
            workflow_memo: what it has recorded.

        Returns:
            Numbers of the steps; and how many events of its inbox were read for that.

        Raises:
            BusError
        """
        consumed = consumed_signals.of(workflow_memo)
        events = (await self._log.inbox(key, consumed)).events
        return set(inbox.answered(steps, inbox.unread(events, consumed))), len(events)

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


def _is_another(key: str, job: JobRecord, step: ScheduledStep) -> bool:
    is_other = is_another(job, step)
    if is_other:
        log.warning("workflow %s: the id of step %s is taken by another job", key, step.key)
    return is_other
