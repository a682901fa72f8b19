"""Recording how jobs ended: completions pipelined, failures with their verdict.

Acknowledged only after the event is stored: an acknowledgement alone proves nothing, and a late one
from a deposed worker would delete somebody else's claim.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from enum import Enum, auto

from penstock.bus.protocol import BusError, BusUnavailable, Expect, Outgoing, WrongSequence
from penstock.events.envelope import utc_now
from penstock.events.job import JobCompleted, JobEvent, JobProgressed
from penstock.jobs.lifecycle import State
from penstock.worker.claims import Claims
from penstock.worker.core.outcome import failed
from penstock.worker.held import Held

log = logging.getLogger("penstock.worker")

_RETRY_SECONDS = 0.5


class Refusal(Enum):
    STORED = auto()
    AGAIN = auto()
    LOST = auto()


class Recorder:
    """Turns finished jobs into events, whatever the broker does meanwhile."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._bus = claims._bus

    async def record(self, jobs: list[Held]) -> None:
        """Records the outcomes of ``jobs`` and acknowledges what was recorded."""
        for job in jobs:
            if job.appending is not None:
                await asyncio.wait([job.appending])
        good = [job for job in jobs if job.error is None and not job.lost]
        bad = [job for job in jobs if job.error is not None and not job.lost]
        await asyncio.gather(self._completed(good), *(self._failed(job) for job in bad))

    async def _completed(self, jobs: list[Held]) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        pending = [(job, self._completion(job, peak)) for job in jobs]
        while pending:
            answers = await self._bus.append_many(
                [
                    self._claims.outgoing(event, job.sequence, job.delivery.headers)
                    for job, event in pending
                ]
            )
            again, stored = [], []
            for (job, event), answer in zip(pending, answers, strict=True):
                if isinstance(answer, int):
                    stored.append(job.delivery)
                    continue
                refusal = await self._after_refusal(job, event, answer)
                if refusal is Refusal.AGAIN:
                    again.append((job, event))
                elif refusal is Refusal.STORED:
                    stored.append(job.delivery)
            await self._bus.ack(stored)
            if again:
                log.warning("%d completions wait for the broker", len(again))
                await asyncio.sleep(_RETRY_SECONDS)
            pending = again

    def _completion(self, job: Held, peak_memory_bytes: int) -> JobCompleted:
        return JobCompleted(
            job_id=job.id,
            correlation_id=job.id,
            source=self._claims.source,
            queue=job.queue,
            attempt=job.attempt,
            run_seconds=job.run_seconds,
            result=job.result,
            cpu_seconds=job.cpu_seconds,
            peak_memory_bytes=peak_memory_bytes,
            spark_session=job.used_spark,
        )

    async def _after_refusal(self, job: Held, event: JobEvent, answer: BusError) -> Refusal:
        """What a refused append means; a look at the job's own events tells."""
        if isinstance(answer, BusUnavailable):
            return Refusal.AGAIN
        if not isinstance(answer, WrongSequence):
            log.error("job %s: its end cannot be recorded: %s", job.id, answer)
            return Refusal.LOST
        try:
            record, ours = await self._claims.look_up(job.id, event.id)
        except BusUnavailable:
            return Refusal.AGAIN
        if ours:
            return Refusal.STORED
        if record is not None and record.state is State.RUNNING and record.token == job.token:
            job.sequence = record.sequence  # our own progress, whose answer was lost
            return Refusal.AGAIN
        log.info("job %s: another worker or a cancel was first; outcome dropped", job.id)
        return Refusal.LOST

    async def _failed(self, job: Held) -> None:
        assert job.error is not None
        events = failed(
            job_id=job.id,
            queue=job.queue,
            attempt=job.attempt,
            tries=job.tries,
            backoff=job.payload.backoff,
            error=job.error,
            run_seconds=job.run_seconds,
            now=utc_now(),
            source=self._claims.source,
        )
        while True:
            try:
                await self._append_verdict(job, events)
                await self._after_failure(job, events)
                return
            except BusError as error:
                refusal = await self._after_refusal(job, events[-1], error)
                if refusal is Refusal.LOST:
                    return
                log.warning("job %s: its failure waits for the broker: %s", job.id, error)
                await asyncio.sleep(_RETRY_SECONDS if refusal is Refusal.AGAIN else 0)

    async def _append_verdict(self, job: Held, events: tuple[JobEvent, ...]) -> None:
        if (await self._claims.look_up(job.id, events[-1].id))[1]:
            return  # stored in an earlier try
        first, *rest = (self._claims.outgoing(e, None, job.delivery.headers) for e in events)
        expect = Expect(job.sequence, self._claims.subjects.job(job.id))
        await self._bus.append_atomic(
            [Outgoing(first.subject, first.body, first.headers, expect), *rest]
        )

    async def _after_failure(self, job: Held, events: tuple[JobEvent, ...]) -> None:
        record, _ = await self._claims.look_up(job.id)
        if record is not None and record.state is not State.RUNNING:
            await self._claims.follow_up(record, job.delivery.headers)
        assert job.error is not None
        log.warning(
            "job %s attempt %d failed (%s): %s",
            job.id, job.attempt, events[-1].name, job.error.message.partition("\n")[0],
        )  # fmt: skip
        await self._bus.ack([job.delivery])

    async def progress(self, job: Held) -> None:
        """Records how far a running job is; a refusal means that it is not ours any more."""
        if job.progress is None or job.progress == job.recorded_progress or job.lost:
            return
        done, total = job.recorded_progress = job.progress
        event = JobProgressed(
            job_id=job.id, correlation_id=job.id, source=self._claims.source, done=done, total=total
        )
        job.appending = asyncio.ensure_future(
            self._bus.append(self._claims.outgoing(event, job.sequence))
        )
        try:
            job.sequence = await job.appending
        except BusUnavailable:
            job.recorded_progress = None
        except WrongSequence:
            job.lost = True
