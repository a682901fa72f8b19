"""What is looked at before a signal is sent: whether the workflow takes it, and its key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from penstock.bus.protocol import Bus
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCarried,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobRevived,
)
from penstock.events.subjects import Subjects, check_name
from penstock.events.workflow import SignalReceived, WorkflowAdvanced
from penstock.events.workflow_memo import MAX_INBOX_BYTES, MAX_SIGNAL_BYTES
from penstock.jobs.errors import JobRefused
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_view import JobView
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.workflows.coded import consumed_signals, inbox, memo
from penstock.jobs.workflows.coded.consumed_signals import ConsumedSignals
from penstock.jobs.workflows.coded.secrets import Secrets
from penstock.jobs.workflows.workflow_view import workflow_secrets

_OTHER_LIVES = (JobCompleted, JobDead, JobCancelled, JobRevived, JobCarried)
"""Events after which the state of a job is not known by that of its dispatch."""
_SURELY_FIT = MAX_INBOX_BYTES // (2 * MAX_SIGNAL_BYTES)
"""Signals that fit an inbox whatever their size: base64 makes them a third larger."""


class SignalSending:
    """Looks at single events, however long the history of a workflow is; at all where it must.

    Args:
        log: the events of jobs.
        look: reads a job with all of its events.
        ring: seals what is sent to encrypted workflows.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        log: JobLog,
        look: Callable[[str], Awaitable[JobView]],
        ring: KeyRing,
    ) -> None:
        self._bus, self._subjects, self._log = bus, subjects, log
        self._look, self._ring = look, ring

    async def secrets(self, workflow_id: str) -> Secrets:
        """What seals the values of signals to a workflow that has not ended.

        Raises:
            NotFound: there is no such workflow.
            JobRefused: it has ended, and how; or it is another kind of job.
            BusError
        """
        call = await self._call_of_living(check_name("job", workflow_id))
        if call is not None:
            return Secrets(self._ring, call)
        job = await self._look(workflow_id)
        if not job.record.is_workflow:
            raise JobRefused(f"job {workflow_id} is no workflow; client.job shows it")
        if job.state.ended:
            raise JobRefused(f"workflow {workflow_id} takes no signal: it is {job.state}")
        return workflow_secrets(job)

    async def _call_of_living(self, workflow_id: str) -> payload.Payload | None:
        """The call of a workflow whose dispatch is all that need be known; None in any doubt.

        The first dispatch counts: any key that dispatches may store another one later.
        """
        stream, subjects = self._subjects.events_stream, self._subjects
        names = [subjects.events("job", workflow_id, kind.__name__) for kind in _OTHER_LIVES]
        first, others = await asyncio.gather(
            self._bus.next(stream, subjects.events("job", workflow_id, JobDispatched.__name__), 1),
            self._bus.last_of(stream, names),
        )
        event = read_event(first, JOB_EVENTS) if first and not others else None
        if not isinstance(event, JobDispatched) or event.kind != "workflow":
            return None
        try:
            return payload.decode(event.payload)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    async def check_room(self, workflow_id: str) -> None:
        """Raises JobRefused: the inbox of a workflow is full. Raises BusError."""
        subjects = self._subjects
        sent = subjects.events("workflow", workflow_id, SignalReceived.__name__)
        counts = await self._bus.count(subjects.events_stream, sent)
        if counts.get(sent, 0) < _SURELY_FIT:
            return
        # All that was consumed is left out; what is unclear by the last advance is read in full.
        estimate = await self._log.inbox(workflow_id, await self._last_mark(workflow_id))
        if not estimate.is_full:
            return
        record = await self._log.read(workflow_id)
        consumed = consumed_signals.of((record and record.workflow) or memo.EMPTY)
        events, is_full = await self._log.inbox(workflow_id, consumed)
        if is_full:
            number = len(inbox.unread(events, consumed))
            raise JobRefused(
                f"workflow {workflow_id} takes no signal: its inbox is full, {number:,} signals "
                f"are not consumed; 'penstock workflow why {workflow_id}' says what it waits for"
            )

    async def _last_mark(self, workflow_id: str) -> ConsumedSignals:
        subject = self._subjects.events("job", workflow_id, WorkflowAdvanced.__name__)
        last = await self._bus.last(self._subjects.events_stream, subject)
        event = read_event(last, JOB_EVENTS) if last else None
        return ConsumedSignals(event.read_to if isinstance(event, WorkflowAdvanced) else 0)
