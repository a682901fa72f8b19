"""Recording that a workflow waits: the event by compare-and-set, then what follows from it.

What a crash leaves out between the two, the orchestrator makes up for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError, PayloadTooLarge, WrongSequence, broker_time
from penstock.events.envelope import whole_micros
from penstock.events.workflow import ScheduledStep, WorkflowAdvanced, WorkflowBlocked
from penstock.jobs import lifecycle
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.job_log import JobLog
from penstock.jobs.workflows.coded.step_jobs import step_events
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.outcome import Outcome, Suspended

log = logging.getLogger("penstock.worker")

BLOCKED_SECONDS = 60.0
"""A blocked workflow is offered again after it: other workers may have other code by then."""


class Suspensions:
    """Stores them, and dispatches the steps that they schedule."""

    def __init__(self, bus: Bus, joblog: JobLog, sender: Sender) -> None:
        self._bus, self._joblog, self._sender = bus, joblog, sender

    def event(self, job: ClaimedJob, outcome: Outcome) -> WorkflowAdvanced | WorkflowBlocked:
        """What is recorded of an advance that did not end its workflow."""
        about: dict[str, Any] = {
            "job_id": job.id,
            "source": self._joblog.source,
            "queue": job.queue,
            "function": job.payload.function,
        }
        if isinstance(outcome.verdict, Suspended):
            return WorkflowAdvanced(
                number=outcome.verdict.number,
                run_seconds=whole_micros(outcome.run_seconds),
                inline_steps=outcome.verdict.inline_steps,
                **msgspec.structs.asdict(outcome.verdict.suspension),
                **about,
            )
        reason = str(outcome.verdict)[:4_000]
        log.error("workflow %s is blocked: %s", job.id, reason)
        due_at = broker_time(self._bus) + timedelta(seconds=BLOCKED_SECONDS)
        return WorkflowBlocked(reason=reason, due_at=due_at, **about)

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
        await send_steps(self._sender, job, event.scheduled, self._joblog.source)


async def send_steps(
    sender: Sender, job: ClaimedJob, steps: Iterable[ScheduledStep], source: str
) -> None:
    """Dispatches the jobs of recorded steps, as far as the broker takes them now."""
    events = step_events(job.id, steps, source)
    with telemetry.within(job.trace):
        answers = await sender.send_many(events, into_reserve=True)
    for answer in answers:
        if isinstance(answer, BusError) and not isinstance(answer, WrongSequence):
            log.warning("workflow %s: a step waits for the reconciler: %s", job.id, answer)
            return
