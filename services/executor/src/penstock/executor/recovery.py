"""Telling what became of a job when its worker cannot; by compare-and-set, as the worker does."""

from __future__ import annotations

import logging
from contextlib import suppress

from penstock.bus.protocol import Bus, Expect, Outgoing, WrongSequence
from penstock.config import Settings
from penstock.events.envelope import encode
from penstock.events.job import JobDead, JobError, JobEvent, JobRecovered, JobReleased
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle, queue, story
from penstock.jobs.errors import IllegalTransition
from penstock.jobs.letters import is_revived
from penstock.jobs.lifecycle import JobRecord, State

log = logging.getLogger("penstock.executor")


class Recovery:
    """Takes jobs from workers of this host. All raise BusError when the broker does not answer."""

    def __init__(self, bus: Bus, settings: Settings, source: str) -> None:
        self._bus, self._source = bus, source
        self._subjects = Subjects(settings.prefix)
        self._max_lost_workers = settings.jobs.max_lost_workers

    async def recover(self, job_id: str, worker: str, reason: str, strategy: str) -> bool:
        """Takes a stuck job from its worker; dead, if it was lost with too many before.

        Returns:
            False when the worker does not run it any more.
        """
        record = await self._running(job_id, worker)
        if record is None:
            return False
        if record.lost_workers + 1 < self._max_lost_workers:
            return await self._tell(
                record,
                JobRecovered(
                    job_id=job_id,
                    correlation_id=job_id,
                    source=self._source,
                    reason=reason,
                    strategy=strategy,
                    from_checkpoint=strategy != "restart",
                ),
            )
        lost = record.lost_workers + 1
        error = JobError(kind="poison", message=f"stuck or without a worker {lost} times: {reason}")
        return await self._tell(
            record,
            JobDead(
                job_id=job_id,
                correlation_id=job_id,
                source=self._source,
                queue=record.queue,
                error=error,
            ),
        )

    async def release(self, job_id: str, worker: str, reason: str) -> None:
        """Gives a job back for a worker that we ended; neither an attempt nor a lost worker."""
        if record := await self._running(job_id, worker):
            event = JobReleased(
                job_id=job_id, correlation_id=job_id, source=self._source, reason=reason
            )
            await self._tell(record, event)

    async def wake(self, job_id: str) -> None:
        """Has the worker look at once whether the job is still its own."""
        await self._bus.signal(self._subjects.cancel_notice(job_id))

    async def is_free(self, job_id: str, worker: str) -> bool:
        """Whether no other worker runs it."""
        record = await self._record(job_id)
        return record is not None and (record.state is not State.RUNNING or record.worker == worker)

    async def _running(self, job_id: str, worker: str) -> JobRecord | None:
        """The job, if this worker runs it."""
        record = await self._record(job_id)
        ours = record is not None and record.state is State.RUNNING and record.worker == worker
        return record if ours else None

    async def _record(self, job_id: str) -> JobRecord | None:
        try:
            return lifecycle.fold(await story.read(self._bus, self._subjects, job_id))
        except (ValueError, RecursionError, IllegalTransition) as error:
            log.error("job %s is left alone, its events cannot be read: %s", job_id, error)
            return None

    async def _tell(self, record: JobRecord, event: JobEvent) -> bool:
        expect = Expect(record.sequence, self._subjects.job(record.id))
        message = Outgoing(self._subjects.event(event), encode(event), expect=expect)
        with suppress(WrongSequence):  # it ended, or told its progress: then it is not stuck
            sequence = await self._bus.append(message)
            after = lifecycle.evolve(record, event, sequence)
            if after.state is State.DEAD and not await is_revived(
                self._bus, self._subjects, after.id, after.sequence
            ):
                await self._bus.append(queue.dead(self._subjects, after, {}))
            return True
        return False
