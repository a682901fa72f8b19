"""The worker's heartbeat: what it is, what it holds, what it did since the last one."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec
import numpy as np
from datasketches import kll_doubles_sketch

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError
from penstock.events.subjects import Subjects
from penstock.events.worker import Claim, QueueReport, WorkerReport
from penstock.runtime.workers.assignment import Assignment
from penstock.telemetry import names
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.in_flight import InFlightJobs
from penstock.worker.core.function_tallies import FunctionTallies
from penstock.worker.running.job_metrics import JobMetrics
from penstock.worker.running.memory_peak import resident_bytes
from penstock.worker.running.outcome import FinishedJob
from penstock.worker.running.running_jobs import RunningJobs
from penstock.worker.spark.lease import SparkLease
from penstock.worker.state import WorkerState

_MAX_CLAIMS = 64
"""Claims that a report names; of more those that are held longest."""
SKETCH_K = 200
"""KLL accuracy: rank error about 1.3 %; 1 to 3 kB a sketch."""


@dataclass
class _Tally:
    started: int = 0
    late: int = 0
    failed: int = 0
    redelivered: int = 0
    slowest: ClaimedJob | None = None
    pickups: list[float] = field(default_factory=list)
    services: list[float] = field(default_factory=list)


class Reporter:
    """Counts what the worker does and publishes it on the worker's own plain subject.

    Args:
        sla_seconds: a job picked up later than this is late.
        slots: how many jobs run at a time.
        build: version of the worker's job code.
    """

    def __init__(
        self,
        bus: Bus,
        assignment: Assignment,
        *,
        sla_seconds: float,
        in_flight: InFlightJobs,
        running: RunningJobs,
        slots: int,
        spark: SparkLease,
        state: WorkerState,
        job_metrics: JobMetrics,
        build: str = "",
    ) -> None:
        self._build = build
        self._bus, self._assignment = bus, assignment
        subjects = Subjects(assignment.settings.prefix)
        self._subject = subjects.worker_report(assignment.host, assignment.worker)
        self._in_flight, self._spark, self._state = in_flight, spark, state
        self._running, self._slots = running, slots
        self._job_metrics = job_metrics
        self._sla_seconds = sla_seconds
        self._is_first_job = True
        self._started_at = time.time()
        self._number = 0
        self._tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
        self._functions = FunctionTallies()

    def started(self, jobs: list[ClaimedJob]) -> None:
        if self._is_first_job:
            self._is_first_job = False
            _record_first_job(self._assignment, jobs[0])
        for job in jobs:
            tally = self._tallies[job.queue]
            tally.started += 1
            tally.late += job.pickup_seconds > self._sla_seconds
            tally.redelivered += job.delivery.deliveries > 1
            tally.pickups.append(job.pickup_seconds)
            self._functions.started(job.payload.function)
            if tally.slowest is None or job.pickup_seconds > tally.slowest.pickup_seconds:
                tally.slowest = job

    def finished(self, jobs: Sequence[FinishedJob]) -> None:
        for job, outcome in jobs:
            # What was deferred or skipped did not run: its time is no measurement.
            if outcome.verdict is not None and not outcome.is_advance:
                continue
            tally = self._tallies[job.queue]
            tally.failed += outcome.error is not None
            tally.services.append(outcome.run_seconds)
            self._functions.finished(
                job.payload.function,
                outcome.run_seconds,
                outcome.error is not None,
                outcome.peak_memory_bytes,
            )

    async def send(self) -> None:
        """Publishes a report and starts counting anew."""
        self._number += 1
        state = "busy" if self._in_flight.unfinished else "idle"
        if not self._state.takes_jobs:
            state = "draining"
        now = time.time()
        tallies, self._tallies = self._tallies, defaultdict(_Tally)
        series, series_dropped = self._job_metrics.take()
        report = WorkerReport(
            worker=self._assignment.worker,
            host=self._assignment.host,
            pool=self._assignment.pool,
            pid=os.getpid(),
            state=state,
            number=self._number,
            at=now,
            started_at=self._started_at,
            cpu_seconds=time.process_time(),
            memory_bytes=resident_bytes(),
            claims=tuple(
                Claim(
                    job_id=job.id,
                    ack_subject=job.delivery.ack_subject,
                    running_seconds=now - job.started_at,
                    queue=job.queue,
                    silent_seconds=job.live.silent_seconds(),
                )
                for job in islice(self._in_flight.jobs.values(), _MAX_CLAIMS)
            ),
            held=len(self._in_flight.jobs),
            slots=self._slots,
            slots_used=len(self._running),
            queues={queue: _queue_report(tally) for queue, tally in tallies.items()},
            spark_session=self._spark.session_id,
            stopping_because=self._state.stopping,
            build=self._build,
            functions=self._functions.take(),
            series=series,
            series_dropped=series_dropped,
        )
        try:
            await self._bus.signal(self._subject, msgspec.json.encode(report))
        except BusError:
            self._job_metrics.put_back(series, series_dropped)
            raise


def _record_first_job(assignment: Assignment, job: ClaimedJob) -> None:
    """The last span of a scaling: from its command to the worker's first job."""
    if not telemetry.enabled():
        return
    telemetry.start(
        names.first_job(assignment.pool),
        parent=assignment.headers,
        links=telemetry.links(job.delivery.headers),
        started_at=assignment.commanded_at,
        attributes={
            names.POOL: assignment.pool,
            names.HOST: assignment.host,
            names.WORKER: assignment.worker,
            names.JOB: job.id,
            names.SPAWN_SECONDS: time.time() - assignment.commanded_at,
        },
    ).end()


def _queue_report(tally: _Tally) -> QueueReport:
    services, slowest = np.asarray(tally.services), tally.slowest
    return QueueReport(
        started=tally.started,
        late=tally.late,
        finished=len(tally.services),
        failed=tally.failed,
        redelivered=tally.redelivered,
        pickup_sketch=_sketch(np.asarray(tally.pickups)),
        service_sketch=_sketch(services),
        pickup_sum_seconds=float(sum(tally.pickups)),
        service_sum_seconds=float(services.sum()),
        service_sum_squares=float(np.square(services).sum()),
        slowest_seconds=slowest.pickup_seconds if slowest else 0.0,
        slowest_trace=telemetry.sampled(slowest.delivery.headers) if slowest else "",
    )


def _sketch(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bytes:
    if not len(values):
        return b""
    sketch = kll_doubles_sketch(SKETCH_K)
    sketch.update(values)
    return bytes(sketch.serialize())
