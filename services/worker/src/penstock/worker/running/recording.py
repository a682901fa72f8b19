"""Recording how jobs ended: completions pipelined, failures with their verdict.

Acknowledged only after the event is stored: an acknowledgement alone proves nothing, and a late one
from a deposed worker would delete the claim of another.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from msgspec.structs import replace

from penstock.bus.protocol import (
    Bus,
    BusError,
    BusRefused,
    BusUnavailable,
    Expect,
    PayloadTooLarge,
    StreamFull,
    TooManyBatches,
    WrongSequence,
    broker_time,
)
from penstock.events.envelope import whole_micros
from penstock.events.job import (
    JobCompleted,
    JobDead,
    JobError,
    JobEvent,
    JobRetrying,
)
from penstock.jobs import lifecycle
from penstock.jobs.errors import UnreadableJob
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads.encryption import about_result, holds_sealed
from penstock.jobs.running import expiring_results
from penstock.jobs.running.checkpoints import Checkpoints
from penstock.jobs.running.worker_loss import interrupted_once
from penstock.telemetry.job_lines import ERROR_TYPE, IS_RETRIED, TRACEBACK
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.claims import Claims
from penstock.worker.core.outcome import FINAL, ended_by_itself, failed, too_large
from penstock.worker.running.outcome import BeginsAnew, Blocked, FinishedJob, Outcome
from penstock.worker.running.progress import record_progress
from penstock.worker.workflows.suspensions import RefusedAdvance, Suspensions

log = logging.getLogger("penstock.worker")

_RETRY_SECONDS = 0.1


class Refusal(Enum):
    STORED = auto()
    AGAIN = auto()
    LOST = auto()


class Recorder:
    """Turns finished jobs into events, whatever the broker does meanwhile."""

    def __init__(
        self,
        bus: Bus,
        claims: Claims,
        max_result_bytes: int,
        suspensions: Suspensions | None = None,
    ) -> None:
        self._suspensions = suspensions
        self._bus, self._claims, self._joblog = bus, claims, claims.joblog
        self._checkpoints = Checkpoints(bus, self._joblog.subjects, max_result_bytes)
        self._max_result_bytes = max_result_bytes

    async def record(self, finished: Sequence[FinishedJob]) -> None:
        """Records how jobs ended and acknowledges what was recorded."""
        for job, _ in finished:
            if job.appending is not None:
                await asyncio.wait([job.appending])
        completed: list[FinishedJob] = []
        suspended: list[FinishedJob] = []
        others: list[Coroutine[Any, Any, None]] = []
        for job, outcome in finished:
            if job.lost:  # perhaps while another's last event was on its way
                continue
            fit = self._sealed_and_bounded(job, outcome)
            if fit.is_advance:
                suspended.append(FinishedJob(job, fit))
            elif not fit.is_success:
                others.append(self._other(job, fit))
            elif fit.result and job.kind.result_expires_seconds:
                others.append(self._completed_apart(FinishedJob(job, fit)))
            else:
                completed.append(FinishedJob(job, fit))
        if suspended and self._suspensions:
            others.append(self._suspended(suspended, self._suspensions))
        await asyncio.gather(self._completed(completed), *others)

    def _sealed_and_bounded(self, job: ClaimedJob, outcome: Outcome) -> Outcome:
        """The outcome as it may be stored: sealed like its arguments, and not too large."""
        result = outcome.result
        if result and not job.kind.store_result and not outcome.ignored_error:
            return replace(outcome, result=b"", no_result=True)
        if result and holds_sealed(job.payload):
            about = about_result(job.id, job.payload.function, job.queue)
            result = self._claims.ring.seal(result, about)
        if len(result) > self._max_result_bytes:
            error = too_large(len(result), self._max_result_bytes)
            return replace(outcome, error=error, outlook=FINAL)
        return outcome if result is outcome.result else replace(outcome, result=result)

    async def _other(self, job: ClaimedJob, outcome: Outcome) -> None:
        if isinstance(outcome.verdict, BeginsAnew) and self._suspensions:
            continued = self._suspensions.begins_anew(job, outcome.verdict)
            await self._record_patiently(job, (continued,), "begins anew")
        elif isinstance(outcome.verdict, Blocked) and self._suspensions:
            event = self._suspensions.blocked(job, outcome.verdict)
            await self._record_patiently(job, (event,), "blocked")
        elif outcome.verdict is not None:
            ended = ended_by_itself(
                job_id=job.id,
                function=job.payload.function,
                attempt=job.attempt,
                verdict=outcome.verdict,
                now=broker_time(self._bus),
                source=self._joblog.source,
            )
            await self._record_patiently(job, (ended,), str(outcome.verdict))
        elif job.yielded and job.kind.at_most_once and job.live.begun_at is not None:
            await self._interrupted_once(job)
        elif job.yielded:
            await self._yielded(job)
        else:
            await self._failed(job, outcome)

    async def _suspended(self, finished: Sequence[FinishedJob], suspensions: Suspensions) -> None:
        refused = await suspensions.store(finished)
        await asyncio.gather(*(self._store_later(one, suspensions) for one in refused))

    async def _store_later(self, refused: RefusedAdvance, suspensions: Suspensions) -> None:
        advance, refusal = refused
        if isinstance(refusal, PayloadTooLarge):
            error = JobError(kind="advance-too-large", message=f"too many steps at once: {refusal}")
            outcome = replace(advance.outcome, verdict=None, error=error, outlook=FINAL)
            await self._failed(advance.job, outcome)
        elif await self._record_patiently(advance.job, (advance.event,), "suspended"):
            await suspensions.dispatch_steps_unless_paused(advance)

    async def _yielded(self, job: ClaimedJob) -> None:
        """Interrupted by the platform. If this cannot be stored now, the next owner stores it."""
        with suppress(BusError):
            await self._claims.release([job], job.yielded)

    async def _interrupted_once(self, job: ClaimedJob) -> None:
        """Of a job that runs at most once: it is dead instead of given back."""
        event = JobDead(
            job_id=job.id,
            correlation_id=job.id,
            source=self._joblog.source,
            queue=job.queue,
            error=interrupted_once(f"its worker gave it back unfinished ({job.yielded})"),
            function=job.payload.function,
            attempt=job.attempt,
        )
        await self._record_patiently(job, (event,), event.error.message)

    async def _completed_apart(self, finished: FinishedJob) -> None:
        """Of a job whose result expires: the result first, which nothing shows before the event."""
        await self._completed([FinishedJob(finished.job, await self._stored_apart(finished))])

    async def _stored_apart(self, finished: FinishedJob) -> Outcome:
        """Stores a result that expires beside the event log, whose events stay as long as it does.

        Returns:
            The outcome without it; with it, where the broker refuses it: it is not lost then.
        """
        job, outcome = finished
        seconds = job.kind.result_expires_seconds
        message = expiring_results.outgoing(
            self._joblog.subjects, job.id, job.token, outcome.result, seconds
        )
        while True:
            try:
                await self._bus.append(message)
            except (StreamFull, BusRefused, PayloadTooLarge) as error:
                log.warning("job %s: its result does not expire: %s", job.id, error)
                return outcome
            except BusError:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                until = broker_time(self._bus) + timedelta(seconds=seconds)
                return replace(outcome, result=b"", result_until=until)

    async def _completed(self, finished: Sequence[FinishedJob]) -> None:
        pending = [(job, self._completion(job, outcome)) for job, outcome in finished]
        while pending:
            answers = await self._append_all(pending)
            unsent, stored = [], []
            for (job, event), answer in zip(pending, answers, strict=True):
                if isinstance(answer, int):
                    stored.append(job.delivery)
                    if job.live.checkpointed:
                        await self._forget_checkpoint(job)
                    continue
                refusal = await self._after_refusal(job, event, answer)
                if refusal is Refusal.AGAIN:
                    unsent.append((job, event))
                elif refusal is Refusal.STORED:
                    stored.append(job.delivery)
                    if job.live.checkpointed:
                        await self._forget_checkpoint(job)
            await self._bus.ack(stored)
            # No retry helper: an end is recorded however long the broker is away, and each try
            # leaves out the jobs that were stored or lost meanwhile.
            if unsent:
                log.warning("%d completions wait for the broker", len(unsent))
                await asyncio.sleep(_RETRY_SECONDS)
            pending = unsent

    async def _forget_checkpoint(self, job: ClaimedJob) -> None:
        with suppress(BusError):  # it ages out
            await self._checkpoints.remove(job.id)

    async def _append_all(
        self, pending: list[tuple[ClaimedJob, JobCompleted]]
    ) -> Sequence[int | BusError]:
        messages = [
            self._joblog.outgoing(event, job.sequence, job.trace_of_events)
            for job, event in pending
        ]
        try:
            return await self._bus.append_many(messages)
        except BusUnavailable as error:
            return [error] * len(messages)

    def _completion(self, job: ClaimedJob, outcome: Outcome) -> JobCompleted:
        return JobCompleted(
            job_id=job.id,
            source=self._joblog.source,
            queue=job.queue,
            attempt=job.attempt,
            run_seconds=whole_micros(outcome.run_seconds),
            result=outcome.result,
            cpu_seconds=whole_micros(outcome.cpu_seconds),
            peak_memory_bytes=outcome.peak_memory_bytes,
            spark_session=job.live.spark_session,
            spark_cost=outcome.spark_cost,
            forgiven=outcome.ignored_error,
            function=job.payload.function,
            no_result=outcome.no_result,
            result_until=outcome.result_until,
        )

    async def _after_refusal(
        self, job: ClaimedJob, event: JobCompleted, answer: BusError
    ) -> Refusal:
        """What a refused append means, by the job's own events."""
        if isinstance(answer, BusUnavailable):
            return Refusal.AGAIN
        if not isinstance(answer, WrongSequence):
            log.error("job %s: its end cannot be recorded: %s", job.id, answer)
            return Refusal.LOST
        try:
            record = await self._joblog.read_checked(job.id)
        except UnreadableJob as error:
            log.error("job %s: its end cannot be recorded: %s", job.id, error)
            return Refusal.LOST
        except BusError:
            return Refusal.AGAIN
        if record is not None and record.changed_id == event.id:
            return Refusal.STORED
        if record is not None and _runs(record, job):
            job.sequence = record.sequence  # own progress, whose answer was lost
            return Refusal.AGAIN
        log.info("job %s: another worker or a cancel was first; outcome dropped", job.id)
        return Refusal.LOST

    async def _failed(self, job: ClaimedJob, outcome: Outcome) -> None:
        assert outcome.error is not None
        events = failed(
            job_id=job.id,
            function=job.payload.function,
            queue=job.queue,
            attempt=job.attempt,
            tries=job.tries,
            backoff=job.backoff,
            error=outcome.error,
            run_seconds=outcome.run_seconds,
            peak_memory_bytes=outcome.peak_memory_bytes,
            cpu_seconds=outcome.cpu_seconds,
            now=broker_time(self._bus),
            source=self._joblog.source,
            outlook=outcome.outlook,
        )
        first_line = outcome.error.message.partition("\n")[0]
        if await self._record_patiently(job, events, first_line):
            name = events[-1].name
            log.warning(
                "job %s attempt %d failed (%s): %s: %s",
                job.id,
                job.attempt,
                name,
                outcome.error.kind,
                first_line,
                extra=_about(job, outcome.error)
                | {IS_RETRIED: isinstance(events[-1], JobRetrying)},
            )

    async def _record_patiently(
        self, job: ClaimedJob, events: tuple[JobEvent, ...], what: str
    ) -> bool:
        """Records what is no success, as soon as the broker takes it; False when it never will."""
        while True:
            try:
                stored = await self._verdict(job, events)
                if stored:
                    await self._bus.ack([job.delivery])
                return stored
            except (BusUnavailable, WrongSequence) as error:
                log.warning("job %s: its end waits for the broker (%s): %s", job.id, what, error)
                await asyncio.sleep(_RETRY_SECONDS * random.uniform(0.5, 2))  # noqa: S311
            except (BusError, UnreadableJob) as error:
                log.error("job %s: its end cannot be recorded (%s): %s", job.id, what, error)
                return False

    async def _verdict(self, job: ClaimedJob, events: tuple[JobEvent, ...]) -> bool:
        """Stores the events and what follows from them; False when another writer was first."""
        record = await self._joblog.read_checked(job.id)
        is_stored = record is not None and record.changed_id == events[-1].id
        if record is None or not (is_stored or _runs(record, job)):
            log.info("job %s: another worker or a cancel was first; failure dropped", job.id)
            return False
        if not is_stored:
            record = await self._append(job, record, events)
        await self._joblog.follow_up(record, job.trace)
        return True

    async def _append(
        self, job: ClaimedJob, record: JobRecord, events: tuple[JobEvent, ...]
    ) -> JobRecord:
        """Stores the events in one atomic batch; where the broker takes none, one after another."""
        if not job.recorded_apart:
            try:
                return await self._append_atomic(job, record, events)
            except TooManyBatches as error:
                log.info("job %s: its end is recorded event by event: %s", job.id, error)
                job.recorded_apart = True
        elif record.changed_id == events[0].id:
            events = events[1:]  # the first was stored before, and its answer or the rest was lost
        for event in events:
            message = self._joblog.outgoing(event, record.sequence, job.trace)
            record = lifecycle.evolve(record, event, await self._bus.append(message))
        return record

    async def _append_atomic(
        self, job: ClaimedJob, record: JobRecord, events: tuple[JobEvent, ...]
    ) -> JobRecord:
        first, *rest = (self._joblog.outgoing(e, None, job.trace) for e in events)
        expect = Expect(record.sequence, self._joblog.subjects.job(job.id))
        last = await self._bus.append_atomic([replace(first, expect=expect), *rest])
        for sequence, event in enumerate(events, last - len(events) + 1):
            record = lifecycle.evolve(record, event, sequence)
        return record

    async def progress(self, job: ClaimedJob) -> None:
        """Records how far a running job is."""
        await record_progress(self._bus, self._joblog, job)


def _runs(record: JobRecord, job: ClaimedJob) -> bool:
    """Whether the attempt that runs is this one."""
    return record.state is State.RUNNING and record.token == job.token


def _about(job: ClaimedJob, error: JobError) -> dict[str, Any]:
    """What the line about a failure carries: its job, the error's type, and where it was raised."""
    about = job.live.output.extra() if job.live.output else {}
    return {**about, ERROR_TYPE: error.kind, TRACEBACK: error.traceback}
