"""Requeueing jobs that died or were cancelled: the same job, its attempts counted anew.

In this order, so that nothing is lost and nothing runs twice wherever it is interrupted:

1. `JobRevived`, by compare-and-set on the event that ended the job: of two clients, one wins;
2. the dead letter is removed, before the job can run and die again;
3. the message in its queue. The orchestrator completes what was interrupted before this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError, Outgoing, Stored, WrongSequence
from penstock.events.brief import brief, brief_fields
from penstock.events.job import JobRevived
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import lifecycle, registry
from penstock.jobs.dead_letters.letter import Letter, died_at
from penstock.jobs.errors import JobRefused, JobsError, NotFound, PayloadTooLarge
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import is_sealed
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.queues import queue_messages

END_EVENTS = ("JobDead", "JobCancelled")
"""Names of the events after which a job may be requeued."""

Refusal = JobsError | BusError


class EndedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ended.

    Attributes:
        job_id: of the job.
        payload: the encoded call.
        sequence: of the event that ended it; 0 when its events were removed.
        letter: sequence of its dead letter; 0 for none.
        trace: W3C ``traceparent`` to go on with.
        commits: committed output, by name, as its letter has it.
        tags: as its events have them; None for those of its call.
        died_at: POSIX seconds, as its dead letter has it; 0 where that is not known.
    """

    job_id: str
    payload: bytes
    sequence: int
    letter: int = 0
    trace: str = ""
    commits: dict[str, str] = {}
    tags: tuple[str, ...] | None = None
    died_at: float = 0.0

    __repr__ = brief
    __rich_repr__ = brief_fields


def changed(call: Payload, changes: Mapping[str, Any]) -> Payload:
    """The call with some arguments replaced, checked against the job's signature.

    Raises:
        UnknownJob, BadArguments
        JobRefused: they are encrypted.
    """
    if is_sealed(call.arguments):
        raise JobRefused(
            f"the arguments of job {call.id} are encrypted and cannot be replaced; "
            "retry it as it is, or dispatch another"
        )
    job_type = registry.find(call.function)
    before = msgspec.msgpack.decode(call.all_arguments())
    new_call = job_type(**{**before, **changes})
    return replace(call, arguments=msgspec.Raw(new_call.arguments), handed=None)


class Requeuer:
    """Lets jobs that ended run again.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        source: what events name as their origin.
        max_payload_bytes: larger encoded calls are refused.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, source: str, max_payload_bytes: int = 512_000
    ) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._max_payload_bytes = max_payload_bytes
        self._log = JobLog(bus, subjects, source)

    async def requeue(self, job_id: str, changes: Mapping[str, Any] | None = None) -> None:
        """Requeues one dead or cancelled job.

        Args:
            job_id: of the job.
            changes: arguments that are replaced.

        Raises:
            NotFound: no event of the job is stored (any more).
            JobRefused: the job is neither dead nor cancelled; BadArguments: they do not fit it.
            BusError
        """
        record = await self._log.read(check_name("job", job_id))
        if record is None:
            raise NotFound(f"no job of id {job_id!r}; its events may have aged out")
        if record.state not in (State.DEAD, State.CANCELLED):
            raise JobRefused(
                f"job {job_id} is {record.state}; only dead or cancelled jobs are retried"
            )
        letter = await self._stored_letter(record.queue, job_id)
        ended = EndedJob(
            job_id=job_id,
            payload=record.payload,
            sequence=record.sequence,
            letter=letter.sequence if letter else 0,
            trace=(await self._log.dispatch_trace(job_id)).get("traceparent", ""),
            commits=record.commits,
            tags=record.tags,
        )
        [refusal] = await self.requeue_jobs([ended], changes)
        if refusal:
            raise refusal

    async def requeue_letters(
        self, letters: Sequence[Letter], changes: Mapping[str, Any] | None = None, reason: str = ""
    ) -> list[Refusal | None]:
        """Requeues the jobs of these letters; for each None, or why it was not requeued."""
        ended = await asyncio.gather(*map(self._ended_job, letters))
        jobs = [job for job in ended if isinstance(job, EndedJob)]
        answers = iter(await self.requeue_jobs(jobs, changes, reason))
        return [next(answers) if isinstance(job, EndedJob) else job for job in ended]

    async def requeue_jobs(
        self,
        jobs: Sequence[EndedJob],
        changes: Mapping[str, Any] | None = None,
        reason: str = "",
    ) -> list[Refusal | None]:
        """Requeues jobs whose last event is known; for each None, or why it was not requeued.

        Args:
            jobs: the jobs.
            changes: arguments that are replaced.
            reason: for people, stored with the events.
        """
        outcomes: dict[str, Refusal | None] = {}
        events: dict[str, JobRevived] = {}
        for job in jobs:
            try:
                events[job.job_id] = self._event(job, changes or {}, reason)
            except JobsError as refusal:
                outcomes[job.job_id] = refusal
        candidates = [job for job in jobs if job.job_id in events]
        revivals = [self._outgoing(job, events[job.job_id]) for job in candidates]
        revived: list[EndedJob] = []
        messages: list[Outgoing] = []
        for job, answer in zip(candidates, await self._bus.append_many(revivals), strict=True):
            outcomes[job.job_id] = _refusal(job, answer)
            if isinstance(answer, int):
                revived.append(job)
                record = lifecycle.evolve(None, events[job.job_id], answer)
                messages.append(queue_messages.ready(self._subjects, record, _trace(job)))
        await self._remove_letters([(job, events[job.job_id]) for job in revived])
        for job, answer in zip(revived, await self._bus.append_many(messages), strict=True):
            if isinstance(answer, BusError):
                outcomes[job.job_id] = answer
        return [outcomes[job.job_id] for job in jobs]

    async def _ended_job(self, letter: Letter) -> EndedJob | Refusal:
        content = letter.content
        if not content.function:
            return JobRefused(
                f"{letter.job_id} is a message that could not be read, not a job: "
                "it can be shown and deleted, not retried"
            )
        last = await self._bus.last(
            self._subjects.events_stream, self._subjects.job(content.job_id)
        )
        name = last.subject.rpartition(".")[2] if last else ""
        if last and name not in END_EVENTS:  # a later life, unless that event is ignored
            record = await self._log.read(content.job_id)
            if record is None or record.state not in (State.DEAD, State.CANCELLED):
                await self._remove(content.queue, content.job_id, letter.sequence)
                return JobRefused(
                    f"job {content.job_id} is not dead any more: its last event is {name}"
                )
        return EndedJob(
            job_id=content.job_id,
            payload=content.payload,
            sequence=last.sequence if last else 0,
            letter=letter.sequence,
            trace=content.trace,
            commits=content.commits,
        )

    def _event(self, job: EndedJob, changes: Mapping[str, Any], reason: str) -> JobRevived:
        try:
            call = payload.decode(job.payload)
            call = changed(call, changes) if changes else call
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise JobRefused(f"the call of job {job.job_id} cannot be read: {error}") from error
        body = payload.encode(replace(call, dispatched_at=time.time()))
        if len(body) > self._max_payload_bytes:
            raise PayloadTooLarge(
                f"job {job.job_id}: with these arguments the encoded call has {len(body)} bytes, "
                f"jobs.max_payload_bytes allows {self._max_payload_bytes}"
            )
        return JobRevived(
            job_id=job.job_id,
            correlation_id=job.job_id,
            source=self._source,
            queue=call.queue,
            function=call.function,
            payload=body,
            tags=call.tags if job.tags is None else job.tags,
            tries=call.tries,
            changed=bool(changes),
            reason=reason,
            commits={} if changes else job.commits,
        )

    def _outgoing(self, job: EndedJob, event: JobRevived) -> Outgoing:
        return self._log.outgoing(event, job.sequence, _trace(job))

    # --- letters ----------------------------------------------------------------------------------
    async def _remove_letters(self, revived: Sequence[tuple[EndedJob, JobRevived]]) -> None:
        """Looks the letters up now, since one may be stored after the job was read as dead.

        Together, from any replica; that of a death that is not there yet from the leader.
        """
        subjects = [self._subjects.dead(event.queue, event.job_id) for _, event in revived]
        of_deaths = [
            subject for subject, (job, _) in zip(subjects, revived, strict=True) if job.died_at
        ]
        letters = (
            await self._bus.last_of(self._subjects.dead_stream, of_deaths) if of_deaths else {}
        )

        async def last_to_remove(job: EndedJob, event: JobRevived, stored: Stored | None) -> int:
            if stored is None or died_at(stored) < job.died_at:
                stored = await self._stored_letter(event.queue, job.job_id)
            is_older = stored is not None and died_at(stored) <= event.at.timestamp()
            return stored.sequence if stored and is_older else job.letter

        sequences = await asyncio.gather(
            *(
                last_to_remove(job, event, letters.get(subject))
                for subject, (job, event) in zip(subjects, revived, strict=True)
            )
        )
        bounds = {
            subject: sequence + 1  # the letter of a later death has a higher one
            for subject, sequence in zip(subjects, sequences, strict=True)
            if sequence
        }
        await self._bus.remove_each(self._subjects.dead_stream, bounds)

    async def _stored_letter(self, queue: str, job_id: str) -> Stored | None:
        return await self._bus.last(self._subjects.dead_stream, self._subjects.dead(queue, job_id))

    async def _remove(self, queue: str, job_id: str, sequence: int) -> None:
        """Removes this letter only: the letter of a later death has a higher sequence."""
        subject = self._subjects.dead(queue, job_id)
        await self._bus.remove(self._subjects.dead_stream, subject, sequence + 1)


def _refusal(job: EndedJob, answer: int | BusError) -> Refusal | None:
    if isinstance(answer, WrongSequence):
        return JobRefused(f"job {job.job_id} was retried by another client just now")
    return answer if isinstance(answer, BusError) else None


def _trace(job: EndedJob) -> dict[str, str]:
    return {"traceparent": job.trace} if job.trace else telemetry.inject()
