"""Jobs that a worker holds no longer: cancelled, or taken over by another."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from penstock.bus.protocol import Bus, BusError
from penstock.jobs.errors import Cancelled, UnreadableJob
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.runtime.tasks import Tasks
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.in_flight import InFlightJobs
from penstock.worker.running.ending import Ending
from penstock.worker.spark.lease import SparkLease

log = logging.getLogger("penstock.worker")


class LostJobs:
    """Finds lost jobs and ends their work: the jobs' own events decide, notices are only hints.

    Args:
        grace_seconds: how long a job that asks whether it was cancelled may take to end itself.
        tasks: the worker's.
    """

    def __init__(
        self,
        bus: Bus,
        joblog: JobLog,
        in_flight: InFlightJobs,
        ending: Ending,
        spark: SparkLease,
        grace_seconds: float,
        tasks: Tasks,
    ) -> None:
        self._bus, self._joblog, self._in_flight = bus, joblog, in_flight
        self._ending, self._spark, self._tasks = ending, spark, tasks
        self._grace_seconds = grace_seconds

    def on_notice(self, subject: str, _: bytes) -> None:
        """A notice that a job was cancelled."""
        job = self._in_flight.jobs.get(subject.rpartition(".")[2])
        if job is not None:
            self._tasks.spawn(self._look_at(job))

    async def _look_at(self, job: ClaimedJob) -> None:
        with suppress(BusError):  # the next tick looks again
            await self.confirm(job)

    async def confirm(self, job: ClaimedJob) -> None:
        """Stops a job that was cancelled or taken over. Raises BusError."""
        still_owned, record = await self._ownership(job)
        if not still_owned:
            await self.lose(job, record)

    async def lose(self, job: ClaimedJob, record: JobRecord | None) -> None:
        """Another worker or a cancel was first: stops the work; nothing more is recorded."""
        if job.lost or self._in_flight.jobs.get(job.id) is not job:
            return
        job.lost = True
        if not self._in_flight.drop(job):
            log.info("job %s was cancelled or is another worker's now: stopping it", job.id)
            asyncio.get_running_loop().call_later(
                self._grace_seconds, self._ending.end, job, Cancelled, "it was cancelled"
            )
        if record is not None and record.state.ended:
            await self._bus.ack([job.delivery])
        if job.live.spark_session:
            await asyncio.to_thread(self._spark.interrupt, job.id)

    async def _ownership(self, job: ClaimedJob) -> tuple[bool, JobRecord | None]:
        """Whether this attempt still runs; when it does not, with the record that shows it.

        Raises:
            BusError: the broker does not answer.
        """
        subjects = self._joblog.subjects
        last = await self._bus.last(subjects.events_stream, subjects.job(job.id))
        if last is not None and last.sequence == job.sequence:
            return True, None
        try:
            record = await self._joblog.read_checked(job.id)
        except UnreadableJob as error:
            log.error("%s", error)
            return True, None
        if record is None or record.token != job.token or record.state is not State.RUNNING:
            return False, record
        job.sequence = max(job.sequence, record.sequence)  # own progress, whose answer was lost
        return True, record
