"""Cancels, requeues, moves and tags jobs by their ids, each only if it is as expected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusError, PayloadTooLarge
from penstock.events.job import JobCancelled
from penstock.events.subjects import Subjects
from penstock.jobs.bulk.client import BulkOutcome, Effect
from penstock.jobs.bulk.moving import moved
from penstock.jobs.dead_letters.requeue import EndedJob, Requeuer
from penstock.jobs.errors import JobsError
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.reading import proven_jobs
from penstock.jobs.tagging import Tags, tagged

_AT_ONCE, _PART = 64, 125
_GONE = "its events have left the log"
Check = Callable[[JobRecord], str]
"""Why a job is left as it is; empty where it is to be acted on."""


class NamedJobs:
    """Acts on jobs by id; each by a compare-and-set on the events that its check has seen.

    Those that are cancelled or requeued are read together first (see `proven_jobs`); what cannot be
    done by that is read whole, one by one, and judged by it.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        source: what events name as their origin.
        max_payload_bytes: larger encoded calls are refused.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str, max_payload_bytes: int) -> None:
        self._bus, self._subjects = bus, subjects
        self._log = JobLog(bus, subjects, source)
        self._requeuer = Requeuer(bus, subjects, source, max_payload_bytes)

    async def cancel(self, job_ids: Sequence[str], check: Check, reason: str) -> list[BulkOutcome]:
        """Cancels jobs; the workers of running ones are notified.

        Raises:
            BusError: some may have been cancelled.
        """

        proven = await proven_jobs.read(self._bus, self._subjects, job_ids)

        async def cancel(job_id: str) -> BulkOutcome:
            return await self._cancel(job_id, check, reason, proven.get(job_id))

        return await bounded.gather(cancel, job_ids, _AT_ONCE)

    async def requeue(self, job_ids: Sequence[str], check: Check, reason: str) -> list[BulkOutcome]:
        """Lets dead and cancelled jobs run again.

        A few parts at a time, so that the broker works on one while another is built here.

        Raises:
            BusError: some may have been requeued.
        """
        starts = range(0, len(job_ids), _PART)
        parts = [job_ids[start : start + _PART] for start in starts]
        requeued = await asyncio.gather(
            *(self._requeue_part(part, check, reason) for part in parts), return_exceptions=True
        )
        outcomes: list[BulkOutcome] = []
        for answer in requeued:  # all have ended, so that none acts beside the next try
            if isinstance(answer, BaseException):
                raise answer
            outcomes += answer
        return outcomes

    async def _requeue_part(
        self, job_ids: Sequence[str], check: Check, reason: str
    ) -> list[BulkOutcome]:
        proven = await proven_jobs.read(self._bus, self._subjects, job_ids)
        first = await self._requeue(proven, check, reason)
        outcomes = {one.id: one for one in first if one.effect is Effect.DONE}
        rest = [job_id for job_id in job_ids if job_id not in outcomes]
        records = await bounded.gather(self._log.read, rest, _AT_ONCE)
        second = await self._requeue(dict(zip(rest, records, strict=True)), check, reason)
        outcomes |= {one.id: one for one in second}
        return [outcomes[job_id] for job_id in job_ids]

    async def _requeue(
        self, records: Mapping[str, JobRecord | None], check: Check, reason: str
    ) -> list[BulkOutcome]:
        outcomes: list[BulkOutcome] = []
        ended: list[EndedJob] = []
        for job_id, record in records.items():
            if record is None:
                outcomes.append(_left(job_id, _GONE))
            elif why := check(record) or _not_ended(record):
                outcomes.append(_left(job_id, why))
            else:
                ended.append(_ended(record))
        refusals = await self._requeuer.requeue_jobs(ended, reason=reason)
        for job, refusal in zip(ended, refusals, strict=True):
            if isinstance(refusal, BusError):
                raise refusal
            done = BulkOutcome(id=job.job_id, effect=Effect.DONE)
            outcomes.append(_left(job.job_id, str(refusal)) if refusal else done)
        return outcomes

    async def tag(
        self, job_ids: Sequence[str], check: Check, added: Tags, removed: Tags
    ) -> list[BulkOutcome]:
        """Changes the tags of jobs in any state; those that have them so are done.

        Raises:
            BusError: some may have been changed.
        """

        async def tag(job_id: str) -> BulkOutcome:
            async def change(record: JobRecord) -> BulkOutcome | None:
                event = tagged(record, self._log.source, added, removed)
                if event is not None and not await self._log.append_if(record, event):
                    return None
                return BulkOutcome(id=job_id, effect=Effect.DONE)

            return await self._change(job_id, check, change)

        return await bounded.gather(tag, job_ids, _AT_ONCE)

    async def move(
        self,
        job_ids: Sequence[str],
        check: Check,
        queue_of: Callable[[JobRecord], str],
        reason: str,
        ring: KeyRing,
    ) -> list[BulkOutcome]:
        """Moves jobs that do not run to another queue; a delayed one keeps its time.

        Their messages on the queue before stay until a worker comes to them, and drops them.

        Args:
            job_ids: of the jobs.
            check: why one is left as it is.
            queue_of: where a job waits then.
            reason: stored with the event of each.
            ring: opens and seals what is encrypted.

        Raises:
            BusError: some may have been moved.
        """

        async def move(job_id: str) -> BulkOutcome:
            async def change(record: JobRecord) -> BulkOutcome | None:
                if why := _not_queued(record):
                    return _left(job_id, why)
                if record.queue == (queue := queue_of(record)):
                    return BulkOutcome(id=job_id, effect=Effect.DONE)
                event = moved(record, queue, reason, self._log.source, ring)
                after = await self._log.append_if(record, event)
                if after is None:
                    return None
                await self._log.follow_up(after, await self._log.dispatch_trace(job_id))
                return BulkOutcome(id=job_id, effect=Effect.DONE)

            return await self._change(job_id, check, change)

        return await bounded.gather(move, job_ids, _AT_ONCE)

    async def _cancel(
        self, job_id: str, check: Check, reason: str, proven: JobRecord | None
    ) -> BulkOutcome:
        async def change(record: JobRecord) -> BulkOutcome | None:
            if why := _has_ended(record):
                return _left(job_id, why)
            event = JobCancelled(
                job_id=job_id,
                correlation_id=job_id,
                source=self._log.source,
                reason=reason,
                function=record.function,
            )
            if not await self._log.append_if(record, event):
                return None
            if record.state is State.RUNNING:
                await self._bus.signal(self._subjects.cancel_notice(job_id))
            return BulkOutcome(id=job_id, effect=Effect.DONE)

        if proven and not (check(proven) or _has_ended(proven)):
            with suppress(PayloadTooLarge):
                if outcome := await change(proven):
                    return outcome
        return await self._change(job_id, check, change)

    async def _change(
        self,
        job_id: str,
        check: Check,
        change: Callable[[JobRecord], Awaitable[BulkOutcome | None]],
    ) -> BulkOutcome:
        async def checked(record: JobRecord | None) -> BulkOutcome | None:
            if record is None:
                return _left(job_id, _GONE)
            if why := check(record):
                return _left(job_id, why)
            return await change(record)

        try:
            return await compare_and_set(lambda: self._log.read(job_id), checked, f"job {job_id}")
        except (JobsError, PayloadTooLarge) as error:
            return _left(job_id, str(error))


def _ended(record: JobRecord) -> EndedJob:
    """Its letter is looked up when it has been requeued."""
    is_dead = record.state is State.DEAD
    return EndedJob(
        job_id=record.id,
        payload=record.payload,
        sequence=record.sequence,
        commits=record.commits,
        tags=record.tags,
        died_at=record.finished_at.timestamp() if is_dead and record.finished_at else 0.0,
    )


def _not_ended(record: JobRecord) -> str:
    is_ended = record.state in (State.DEAD, State.CANCELLED)
    return "" if is_ended else f"it is {record.state}; only dead or cancelled jobs are retried"


def _not_queued(record: JobRecord) -> str:
    is_queued = record.state in (State.SCHEDULED, State.WAITING, State.RETRYING)
    return "" if is_queued else f"it is {record.state}; only jobs that wait are moved"


def _has_ended(record: JobRecord) -> str:
    return f"it is {record.state} already" if record.state.ended else ""


def _left(job_id: str, text: str) -> BulkOutcome:
    return BulkOutcome(id=job_id, effect=Effect.LEFT, text=text)
