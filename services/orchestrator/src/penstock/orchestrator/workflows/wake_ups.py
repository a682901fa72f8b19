"""The queue messages that let suspended workflows go on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from penstock.bus.protocol import Bus, Outgoing
from penstock.events.job import JOB_EVENTS, JobDispatched, JobRevived
from penstock.events.subjects import Subjects, check_name
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_log import trace_of
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.core.suspended import SuspendedWorkflow

_CALLS = (JobDispatched.__name__, JobRevived.__name__)


async def wake_quickly(bus: Bus, subjects: Subjects, key: str, workflow: SuspendedWorkflow) -> bool:
    """Stores the queue message of one whose call is where most are; False where it is not.

    Without reading whether it is suspended still: if not, the message loses as a double does.

    Raises:
        BusError
    """
    stream = subjects.events_stream
    calls = await asyncio.gather(
        *(bus.last(stream, subjects.events("job", key, name)) for name in _CALLS)
    )
    stored = max(filter(None, calls), key=lambda call: call.sequence, default=None)
    event = read_event(stored, JOB_EVENTS) if stored else None
    if stored is None or not isinstance(event, JobDispatched | JobRevived):
        return False
    if event.queue != workflow.queue or workflow.fixes:  # it was moved, or fixed
        return False
    headers = {
        **queue_messages.headers(key, workflow.sequence, 1, trace_of(stored.headers)),
        **queue_messages.recorded_header(workflow.number, workflow.inline_steps),
        **queue_messages.version_header(workflow.version),
    }
    await bus.append(Outgoing(subjects.queue(event.queue), event.payload, headers))
    return True


async def wake(bus: Bus, subjects: Subjects, record: JobRecord, trace: Mapping[str, str]) -> None:
    """Stores the queue message of one that was read.

    Raises:
        BadName: its events name a queue that cannot be one.
        BusError
    """
    check_name("queue", record.queue)
    await bus.append(queue_messages.ready(subjects, record, trace))
