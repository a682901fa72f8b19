"""Ends workflows whose time is over: that of the whole, or that to clean up."""

from __future__ import annotations

import logging
from datetime import timedelta

from penstock.bus.protocol import Bus, WrongSequence, broker_time
from penstock.events.job import JobError
from penstock.events.workflow import WorkflowCancelling
from penstock.events.workflow_memo import TIMED_OUT
from penstock.jobs.client import Client
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.workflows.instances import may_clean_up

log = logging.getLogger("penstock.orchestrator")


class Deadlines:
    """Of all workflows.

    Args:
        client: cancels jobs, and knows how long workflows may clean up.
        job_log: reads and appends events.
    """

    def __init__(self, bus: Bus, client: Client, job_log: JobLog) -> None:
        self._bus, self._client, self._log = bus, client, job_log

    async def end_whole(self, key: str) -> bool:
        """Has a workflow clean up that takes longer than the whole of it may; dead if it cannot.

        Returns:
            Whether nothing is left to be done; False where it changed meanwhile.

        Raises:
            BusError
        """
        record = await self._log.read(key)
        if record is None or record.state.ended:
            return True
        recorded = record.workflow
        if recorded is None or recorded.ends_by is None or recorded.cancel_by is not None:
            return True  # it began anew in another life, or is being cancelled already
        reason = f"it has not ended by {recorded.ends_by:%Y-%m-%d %H:%M:%S} UTC, its timeout"
        log.warning("workflow %s (%s): %s", key, record.function, reason)
        cleanup = timedelta(seconds=self._client.workflows.cleanup_seconds)
        if not cleanup or not may_clean_up(record):
            return await self._bury(record, reason)
        event = WorkflowCancelling(
            job_id=key,
            correlation_id=key,
            source=self._log.source,
            reason=reason,
            until=broker_time(self._bus) + cleanup,
            function=record.function,
            timed_out=True,
        )
        cancelling = await self._log.append_if(record, event)
        if cancelling is None:
            return False
        await self._log.follow_up(cancelling, await self._log.dispatch_trace(key))
        return True

    async def end_cleanup(self, key: str) -> bool:
        """Ends a workflow whose time to clean up is over. Returns and raises as the other."""
        record = await self._log.read(key)
        if record is None or record.state.ended:
            return True
        if record.workflow is not None and record.workflow.timed_out:
            reason = "it took longer than its timeout, and its time to clean up is over"
            return await self._bury(record, reason)
        await self._client.cancel(key, "it was cancelled, and its time to clean up is over")
        return True

    async def _bury(self, record: JobRecord, reason: str) -> bool:
        trace = await self._log.dispatch_trace(record.id)
        try:
            await self._log.bury(record, JobError(kind=TIMED_OUT, message=reason), trace)
        except WrongSequence:
            return False
        return True
