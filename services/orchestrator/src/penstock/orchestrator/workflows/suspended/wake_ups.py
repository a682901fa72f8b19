"""The queue messages that suspended workflows go on by."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import NamedTuple

from penstock.bus.protocol import Bus, BusError, Outgoing, Stored
from penstock.events.job import JOB_EVENTS, JobDispatched, JobRevived
from penstock.events.subjects import BadName, Subjects, check_name
from penstock.events.workflow import WorkflowAdvanced
from penstock.jobs.event_store import unbroken
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_log import trace_of
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.queues import queue_messages
from penstock.orchestrator.core.suspended import SuspendedWorkflow
from penstock.orchestrator.workflows.suspended.workflow_meters import WorkflowMeters

_MOST_CALLS, _MOST_CALLS_BYTES = 20_000, 8_000_000
"""Of calls that are kept. In a queue that workflows share with their steps, all that were
dispatched together are suspended before the first of their steps has ended."""
_LOST_AFTER = 30
"""Times the patience after which a wake-up that led to no start is taken for lost: where a queue is
long, a second message would only make it longer."""


class _Call(NamedTuple):
    sequence: int
    payload: bytes
    trace: dict[str, str]


class WakeUps:
    """Stores them. Whether a workflow is suspended still is not read before: if it is not, its
    message loses as a double does.

    The calls of the workflows that were suspended last are kept, since most wait for milliseconds.

    Args:
        meters: what is counted is counted there.
        patience_seconds: how long a worker may take to dispatch the steps of an advance.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, meters: WorkflowMeters, patience_seconds: float
    ) -> None:
        self._bus, self._subjects, self._meters = bus, subjects, meters
        self._lost_after_seconds = _LOST_AFTER * patience_seconds
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._calls_bytes = 0

    def note(self, key: str, event: WorkflowAdvanced, stored: Stored) -> None:
        """Keeps the call of a workflow, where the event of its suspension holds it."""
        self._take(key)
        if not event.payload:
            return
        with suppress(BadName):  # reported where that workflow is looked after by itself
            check_name("queue", event.queue)
            self._calls[key] = _Call(stored.sequence, event.payload, trace_of(stored.headers))
            self._calls_bytes += len(event.payload)
        while len(self._calls) > _MOST_CALLS or self._calls_bytes > _MOST_CALLS_BYTES:
            self._calls_bytes -= len(self._calls.popitem(last=False)[1].payload)

    def _take(self, key: str) -> _Call | None:
        if call := self._calls.pop(key, None):
            self._calls_bytes -= len(call.payload)
        return call

    async def wake_known(self, due: Mapping[str, SuspendedWorkflow], now: float) -> set[str]:
        """Stores the messages of those whose calls are kept, together; returns their ids.

        Raises:
            BusError: nothing is known to be stored.
        """
        return await self._wake(due, now, self._send_known(due))

    async def wake(self, key: str, workflow: SuspendedWorkflow, now: float) -> bool:
        """Stores the message of one whose call is where most are; False where it is not."""
        return bool(await self._wake({key: workflow}, now, self._send(key, workflow)))

    async def wake_read(
        self,
        workflow: SuspendedWorkflow,
        record: JobRecord,
        trace: Mapping[str, str],
        now: float,
    ) -> None:
        """Stores the message of one that was read."""
        await self._wake({record.id: workflow}, now, self._send_of(record, trace))

    async def _wake(
        self, due: Mapping[str, SuspendedWorkflow], now: float, sending: Awaitable[list[str]]
    ) -> set[str]:
        """Notes which of these workflows have their messages, and returns their ids.

        They count as woken before: a worker may be quicker than the broker's answer.
        """
        sequences = {key: workflow.sequence for key, workflow in due.items()}
        for workflow in due.values():
            workflow.is_woken = True
        woken: set[str] = set()
        try:
            woken.update(await sending)
        finally:
            for key, workflow in due.items():
                if workflow.sequence != sequences[key]:
                    continue  # it has gone on already
                if key in woken:
                    workflow.woken(now + self._lost_after_seconds)
                    self._meters.woken(key, now)
                else:
                    workflow.is_woken = False
        return woken

    async def _send_known(self, due: Mapping[str, SuspendedWorkflow]) -> list[str]:
        keys: list[str] = []
        messages: list[Outgoing] = []
        for key, workflow in due.items():
            call = self._take(key)
            if call and call.sequence == workflow.sequence and not workflow.fixes:
                keys.append(key)
                messages.append(self._message(key, workflow, call.payload, call.trace))
        answers = await self._bus.append_many(messages) if messages else []
        return [
            key
            for key, answer in zip(keys, answers, strict=True)
            if not isinstance(answer, BusError)
        ]

    async def _send(self, key: str, workflow: SuspendedWorkflow) -> list[str]:
        stream, subjects = self._subjects.events_stream, self._subjects
        names = (JobDispatched.__name__, JobRevived.__name__)
        calls = await asyncio.gather(
            *(self._bus.last(stream, subjects.events("job", key, name)) for name in names)
        )
        stored = max(filter(None, calls), key=lambda call: call.sequence, default=None)
        event = read_event(stored, JOB_EVENTS) if stored else None
        if stored is None or not isinstance(event, JobDispatched):
            return []
        if not unbroken.is_first(stored, subjects.job(key)):  # it may be one that does not count
            return []
        if event.queue != workflow.queue or workflow.fixes:  # it was moved, or fixed
            return []
        trace = trace_of(stored.headers)
        await self._bus.append(self._message(key, workflow, event.payload, trace))
        return [key]

    async def _send_of(self, record: JobRecord, trace: Mapping[str, str]) -> list[str]:
        check_name("queue", record.queue)
        await self._bus.append(queue_messages.ready(self._subjects, record, trace))
        return [record.id]

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
