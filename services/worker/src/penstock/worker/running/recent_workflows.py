"""Workflows as this worker left them, so that it need not read their history to go on."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from penstock.events.job import JobDispatched
from penstock.events.workflow import WorkflowAdvanced
from penstock.jobs import lifecycle
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.queues import queue_messages
from penstock.worker.claiming.claimed_job import ClaimedJob

_MAX_WORKFLOWS = 1_000
_MAX_BYTES = 16_000_000
_ENTRY_BYTES = 500
"""Roughly those of an entry of a memo, without its values."""


class RecentWorkflows:
    """The last that were suspended here. Used in the jobs' threads and in the worker's loop.

    Nothing of it is believed unless the workflow started at the event that it was left with.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._guard = threading.Lock()
        self._records: OrderedDict[str, tuple[JobRecord, int]] = OrderedDict()
        self._max_bytes, self._bytes = max_bytes, 0

    def keep(self, record: JobRecord) -> None:
        """Notes a workflow as of its suspension."""
        size = _size(record)
        if size > self._max_bytes:
            return
        with self._guard:
            self._drop(record.id)
            self._records[record.id] = record, size
            self._bytes += size
            while self._bytes > self._max_bytes or len(self._records) > _MAX_WORKFLOWS:
                self._drop(next(iter(self._records)))

    def take(self, job: ClaimedJob) -> JobRecord | None:
        """The record of a claimed workflow; None where its history must be read."""
        with self._guard:
            record = self._drop(job.id)
        if job.beginning is None:
            return None
        after, start = job.beginning
        if record is None or record.sequence != after:
            if queue_messages.FIRST not in job.delivery.headers:
                return None
            record = lifecycle.evolve(None, _dispatch(job), after)
        return lifecycle.evolve(record, start, job.token)

    def _drop(self, workflow_id: str) -> JobRecord | None:
        record, size = self._records.pop(workflow_id, (None, 0))
        self._bytes -= size
        return record


def from_advances(job: ClaimedJob, advances: Sequence[WorkflowAdvanced]) -> JobRecord | None:
    """A workflow by the events of its advances alone; None where that is not all of its memo.

    Args:
        advances: the last ones in the log, oldest first; it started after the last.
    """
    if job.beginning is None or not advances:
        return None
    last = advances[-1].number
    numbers = [event.number for event in advances]
    if advances[-1].entries != last or numbers != list(range(1, last + 1)):
        return None
    after, start = job.beginning
    record = lifecycle.evolve(None, _dispatch(job), 1)
    for event in advances:
        # the sequences of all but the last change nothing of it
        record = lifecycle.evolve(lifecycle.evolve(record, start, after - 1), event, after)
    return lifecycle.evolve(record, start, job.token)


def _dispatch(job: ClaimedJob) -> JobDispatched:
    """As far as it is known from its message."""
    call = job.payload
    return JobDispatched(
        job_id=call.id,
        source="",
        queue=call.queue,
        function=call.function,
        payload=job.delivery.body,
        tags=call.tags,
        tries=call.tries,
    )


def _size(record: JobRecord) -> int:
    """Roughly what a record holds, in bytes."""
    size = len(record.payload)
    for entry in record.workflow.entries if record.workflow else ():
        size += _ENTRY_BYTES + (len(entry.inline.value) if entry.inline else 0)
        size += sum(_ENTRY_BYTES + len(one.value) for one in entry.consumed)
        size += sum(_ENTRY_BYTES + len(step.payload) for step in entry.scheduled)
    return size
