"""Recording that a workflow waits: the event by compare-and-set, then what follows from it.

What a crash leaves out between the two, the orchestrator makes up for.
"""

from __future__ import annotations

import logging

import msgspec

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError, PayloadTooLarge, WrongSequence, broker_time
from penstock.events.envelope import whole_micros
from penstock.events.workflow import WorkflowAdvanced, WorkflowBlocked
from penstock.jobs import lifecycle
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.job_log import JobLog
from penstock.jobs.workflows.coded.blocking import blocked
from penstock.jobs.workflows.coded.step_jobs import step_events
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.outcome import Blocked, Outcome, Suspended

log = logging.getLogger("penstock.worker")


class Suspensions:
    """Stores them, and dispatches the steps that they schedule."""

    def __init__(self, bus: Bus, joblog: JobLog, sender: Sender) -> None:
        self._bus, self._joblog, self._sender = bus, joblog, sender

    def event(self, job: ClaimedJob, outcome: Outcome) -> WorkflowAdvanced | WorkflowBlocked:
        """What is recorded of an advance that did not end its workflow."""
        verdict = outcome.verdict
        if isinstance(verdict, Suspended):
            workflow = verdict.record.workflow
            return WorkflowAdvanced(
                job_id=job.id,
                source=self._joblog.source,
                queue=job.queue,
                function=job.payload.function,
                number=verdict.number,
                run_seconds=whole_micros(outcome.run_seconds),
                inline_steps=verdict.inline_steps,
                version=job.kind.version,
                fixes=workflow.fixes if workflow else 0,
                **msgspec.structs.asdict(verdict.suspension),
            )
        assert isinstance(verdict, Blocked)
        log.error("workflow %s is blocked: %s", job.id, verdict)
        source, now = self._joblog.source, broker_time(self._bus)
        return blocked(verdict.record, str(verdict), source=source, now=now)

    async def store_at_once(
        self, job: ClaimedJob, event: WorkflowAdvanced | WorkflowBlocked, outcome: Outcome
    ) -> bool:
        """Stores what nothing stands against, without reading; False if something does."""
        if not isinstance(outcome.verdict, Suspended):
            return False
        try:
            message = self._joblog.outgoing(event, job.sequence, job.trace)
            sequence = await self._bus.append(message)
        except PayloadTooLarge:
            raise
        except BusError:
            return False
        record = lifecycle.evolve(outcome.verdict.record, event, sequence)
        await self.dispatch_steps(job, event)
        try:
            await self._joblog.follow_up(record, job.trace)
        except BusError as error:
            log.warning("workflow %s: its timer waits for the reconciler: %s", job.id, error)
        return True

    async def dispatch_steps(
        self, job: ClaimedJob, event: WorkflowAdvanced | WorkflowBlocked
    ) -> None:
        """Dispatches the jobs that an advance scheduled; a job that exists is left as it is."""
        if not isinstance(event, WorkflowAdvanced) or not event.scheduled:
            return
        events = step_events(job.id, event.scheduled, self._joblog.source)
        with telemetry.within(job.trace):
            answers = await self._sender.send_many(events, into_reserve=True)
        for answer in answers:
            if isinstance(answer, BusError) and not isinstance(answer, WrongSequence):
                log.warning("workflow %s: a step waits for the reconciler: %s", job.id, answer)
                return
