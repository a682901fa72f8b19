"""The queue messages that suspended workflows go on by."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from penstock.bus.protocol import Bus, BusError, Outgoing, Stored
from penstock.events.job import JOB_EVENTS, JobDispatched, JobRevived
from penstock.events.subjects import BadName, Subjects, check_name
from penstock.events.workflow import WorkflowAdvanced
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_log import trace_of
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.core.suspended import SuspendedWorkflow

_MOST_CALLS = 5_000


class _Call(NamedTuple):
    sequence: int
    payload: bytes
    trace: dict[str, str]


class WakeUps:
    """Stores them. Whether a workflow is suspended still is not read before: if it is not, its
    message loses as a double does.

    The calls of the workflows that were suspended last are kept, since most wait for milliseconds.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self._calls: OrderedDict[str, _Call] = OrderedDict()

    def note(self, key: str, event: WorkflowAdvanced, stored: Stored) -> None:
        """Keeps the call of a workflow, where the event of its suspension holds it."""
        self._calls.pop(key, None)
        if not event.payload:
            return
        with suppress(BadName):  # reported where that workflow is looked after by itself
            check_name("queue", event.queue)
            self._calls[key] = _Call(stored.sequence, event.payload, trace_of(stored.headers))
        if len(self._calls) > _MOST_CALLS:
            self._calls.popitem(last=False)

    async def send_known(self, due: Mapping[str, SuspendedWorkflow]) -> list[str]:
        """Stores the messages of those whose calls are kept, together; returns their ids.

        Raises:
            BusError: nothing is known to be stored.
        """
        keys: list[str] = []
        messages: list[Outgoing] = []
        for key, workflow in due.items():
            call = self._calls.pop(key, None)
            if call and call.sequence == workflow.sequence and not workflow.fixes:
                keys.append(key)
                messages.append(self._message(key, workflow, call.payload, call.trace))
        answers = await self._bus.append_many(messages) if messages else []
        return [
            key
            for key, answer in zip(keys, answers, strict=True)
            if not isinstance(answer, BusError)
        ]

    async def send(self, key: str, workflow: SuspendedWorkflow) -> bool:
        """Stores the message of one whose call is where most are; False where it is not."""
        stream, subjects = self._subjects.events_stream, self._subjects
        names = (JobDispatched.__name__, JobRevived.__name__)
        calls = await asyncio.gather(
            *(self._bus.last(stream, subjects.events("job", key, name)) for name in names)
        )
        stored = max(filter(None, calls), key=lambda call: call.sequence, default=None)
        event = read_event(stored, JOB_EVENTS) if stored else None
        if stored is None or not isinstance(event, JobDispatched | JobRevived):
            return False
        if event.queue != workflow.queue or workflow.fixes:  # it was moved, or fixed
            return False
        trace = trace_of(stored.headers)
        await self._bus.append(self._message(key, workflow, event.payload, trace))
        return True

    async def send_of(self, record: JobRecord, trace: Mapping[str, str]) -> None:
        """Stores the message of one that was read."""
        check_name("queue", record.queue)
        await self._bus.append(queue_messages.ready(self._subjects, record, trace))

    def _message(
        self, key: str, workflow: SuspendedWorkflow, payload: bytes, trace: Mapping[str, str]
    ) -> Outgoing:
        headers = {
            **queue_messages.headers(key, workflow.sequence, 1, trace),
            **queue_messages.recorded_header(workflow.number, workflow.inline_steps),
            **queue_messages.version_header(workflow.version),
            **queue_messages.ended_header(workflow.ended),
        }
        return Outgoing(self._subjects.queue(workflow.queue), payload, headers)
