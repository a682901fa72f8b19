"""Jobs that a worker holds no longer: cancelled, or taken over by another."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from penstock.bus.protocol import Bus, BusError
from penstock.jobs.errors import Cancelled
from penstock.jobs.lifecycle import JobRecord
from penstock.runtime.tasks import Tasks
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.in_flight import InFlightJobs
from penstock.worker.claiming.job_log import JobLog
from penstock.worker.claiming.ownership import still_ours
from penstock.worker.running.ending import Ending
from penstock.worker.spark.lease import SparkLease

log = logging.getLogger("penstock.worker")


class LostJobs:
    """Finds them and ends their work. Their own events decide; all else is only a hint.

    Args:
        grace_seconds: how long a job that asks whether it was cancelled may take to end itself.
        tasks: the worker's.
    """

    def __init__(
        self,
        bus: Bus,
        joblog: JobLog,
        stock: InFlightJobs,
        ending: Ending,
        spark: SparkLease,
        grace_seconds: float,
        tasks: Tasks,
    ) -> None:
        self._bus, self._joblog, self._in_flight = bus, joblog, stock
        self._ending, self._spark, self._tasks = ending, spark, tasks
        self._grace_seconds = grace_seconds

    def hear(self, subject: str, _: bytes) -> None:
        """A notice that a job was cancelled."""
        job = self._in_flight.jobs.get(subject.rpartition(".")[2])
        if job is not None:
            self._tasks.spawn(self._look_at(job))

    async def _look_at(self, job: ClaimedJob) -> None:
        with suppress(BusError):  # the next tick looks again
            await self.confirm(job)

    async def confirm(self, job: ClaimedJob) -> None:
        """Stops a job that was cancelled or taken over. Raises BusError."""
        ours, record = await still_ours(self._bus, self._joblog, job)
        if not ours:
            await self.lose(job, record)

    async def lose(self, job: ClaimedJob, record: JobRecord | None) -> None:
        """The job has ended, or is somebody else's: stop its work; nothing more is recorded."""
        if job.lost or self._in_flight.jobs.get(job.id) is not job:
            return
        job.lost = True
        if not self._in_flight.drop(job):
            log.info("job %s is not ours any more: stopping it", job.id)
            asyncio.get_running_loop().call_later(
                self._grace_seconds, self._ending.end, job, Cancelled, "it was cancelled"
            )
        if record is not None and record.state.ended:
            await self._bus.ack([job.delivery])
        if job.used_spark:
            await asyncio.to_thread(self._spark.interrupt, job.id)
