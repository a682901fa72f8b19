"""The worker's heartbeat: what it is, what it holds, what it did since the last one."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass, field

import msgspec
import numpy as np
from datasketches import kll_doubles_sketch

from penstock import telemetry
from penstock.bus.protocol import Bus
from penstock.events.subjects import Subjects
from penstock.events.worker import Claim, QueueReport, WorkerReport
from penstock.worker.claiming.claimed_job import ClaimedJob

_PAGE = resource.getpagesize()
_MAX_CLAIMS = 64
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
    """Counts what the worker does and tells it on the worker's own plain subject.

    Args:
        sla_seconds: a job picked up later than this is late.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        *,
        host: str,
        worker: str,
        pool: str,
        sla_seconds: float,
    ) -> None:
        self._bus = bus
        self._subject = subjects.worker_report(host, worker)
        self._host, self._worker, self._pool = host, worker, pool
        self._sla_seconds = sla_seconds
        self._started_at = time.time()
        self._number = 0
        self._tallies: dict[str, _Tally] = {}

    def started(self, jobs: list[ClaimedJob]) -> None:
        for job in jobs:
            tally = self._tally(job.queue)
            tally.started += 1
            tally.late += job.pickup_seconds > self._sla_seconds
            tally.redelivered += job.delivery.deliveries > 1
            tally.pickups.append(job.pickup_seconds)
            if tally.slowest is None or job.pickup_seconds > tally.slowest.pickup_seconds:
                tally.slowest = job

    def finished(self, jobs: list[ClaimedJob]) -> None:
        for job in jobs:
            if job.verdict is not None:  # it did not run: its time says nothing about others'
                continue
            tally = self._tally(job.queue)
            tally.failed += job.error is not None
            tally.services.append(job.run_seconds)

    def _tally(self, queue: str) -> _Tally:
        return self._tallies.setdefault(queue, _Tally())

    async def send(
        self, state: str, held: list[ClaimedJob], *, spark: str, because: str = ""
    ) -> None:
        """Sends a report and starts counting anew."""
        self._number += 1
        now = time.time()
        tallies, self._tallies = self._tallies, {}
        report = WorkerReport(
            worker=self._worker,
            host=self._host,
            pool=self._pool,
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
                    silent_seconds=job.silent_seconds(),
                )
                for job in held[:_MAX_CLAIMS]
            ),
            queues={queue: _queue_report(tally) for queue, tally in tallies.items()},
            spark_session=spark,
            stopping_because=because,
        )
        await self._bus.signal(self._subject, msgspec.json.encode(report))


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


def resident_bytes() -> int:
    """Memory of this process that is in use, pages shared with others included."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - read each second
        return int(file.read().split()[1]) * _PAGE
