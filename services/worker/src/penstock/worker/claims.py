"""Winning jobs, keeping them, giving them back: each step a compare-and-set."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec

from penstock.bus.protocol import (
    Bus,
    BusError,
    Delivery,
    Expect,
    Outgoing,
    PayloadTooLarge,
    Subscription,
    WrongSequence,
)
from penstock.config import Profile, Settings
from penstock.events.envelope import encode, utc_now
from penstock.events.job import (
    JobCancelled,
    JobDead,
    JobError,
    JobEvent,
    JobRecovered,
    JobReleased,
    JobStarted,
)
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import lifecycle, payload, registry, sealing, story
from penstock.jobs import queue as queues
from penstock.jobs.errors import (
    BadArguments,
    IllegalTransition,
    MissingKey,
    Undecryptable,
    UnknownJob,
)
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.pausing import Pausing, Resumptions
from penstock.worker.core.settle import Action, settle
from penstock.worker.held import Held

log = logging.getLogger("penstock.worker")

_LATER_SECONDS = 0.2
_LOCKED_SECONDS = 15.0
"""A job without its key is tried again after this."""
_MAX_SEQUENCE = 2**63
_MAX_TRACE_LENGTH = 100
_KEPT_BYTES = 400_000
"""Of an unreadable message that is too large for its dead letter, where it stands in base64."""


class Rejected(Exception):
    """A queue message that cannot be run, with the kind of error to record."""

    def __init__(self, kind: str, message: str, job_id: str = "", made_from: int = 0) -> None:
        super().__init__(message)
        self.error = JobError(kind=kind, message=message[:4000])
        self.job_id, self.made_from = job_id, made_from


class Locked(Exception):
    """A job that this worker has no key for: another may have it, or this one later."""


class Unreadable(Exception):
    """A job's events cannot be read, or cannot have come in this order."""


class Claims:
    """This worker's side of the job protocol.

    Args:
        profile: the pool's, for what a job leaves open.
        host / worker: who claims, for the events.
    """

    def __init__(
        self, bus: Bus, settings: Settings, profile: Profile, host: str, worker: str
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._profile = profile
        self._host, self._worker = host, worker
        self.source = f"worker/{host}.{worker}"
        self.subjects = Subjects(settings.prefix)
        self.ring = sealing.load(settings.encryption.key_file)
        self.resumptions = Resumptions()

    # --- winning ----------------------------------------------------------------------------------
    async def win(self, deliveries: Sequence[Delivery]) -> list[Held]:
        """The jobs that are ours to run, of these deliveries; the others are dealt with."""
        asked: list[tuple[Held, JobStarted]] = []
        for delivery in deliveries:
            try:
                job, event = self._prepare(delivery)
            except Locked as reason:
                await self._postpone(delivery, reason)
                continue
            except Rejected as reason:
                await self._reject(delivery, reason)
                continue
            if job.payload.expires_at and await self._expired(job):
                continue
            asked.append((job, event))
        answers = await self._bus.append_many([self._start(job, event) for job, event in asked])
        won: list[Held] = []
        others: list[tuple[Held, JobStarted, BusError]] = []
        for (job, event), answer in zip(asked, answers, strict=True):
            if isinstance(answer, int):
                job.token = job.sequence = answer
                won.append(job)
            else:
                others.append((job, event, answer))
        return [*won, *await self._settle_all(others)] if others else won

    async def _settle_all(self, lost: Sequence[tuple[Held, JobStarted, BusError]]) -> list[Held]:
        """Those that are ours after all, of those whose first append did not succeed."""
        won: list[Held] = []
        refused: list[Delivery] = []
        for job, event, answer in lost:
            trouble: BusError | None = answer
            if isinstance(answer, WrongSequence) and not refused:
                try:
                    trouble = None
                    if await self._settle(job, event):
                        won.append(job)
                except BusError as error:
                    trouble = error
            if trouble:
                log.warning("job %s cannot be claimed now: %s", job.id, trouble)
                refused.append(job.delivery)
        await self._give_back_later(refused)
        return won

    def _prepare(self, delivery: Delivery) -> tuple[Held, JobStarted]:
        headers = delivery.headers
        job_id = headers.get(queues.JOB, "")
        try:
            sequence = int(headers.get(queues.SEQUENCE, ""))
            attempt = int(headers.get(queues.ATTEMPT, "1"))
            check_name("job", job_id)
            call = payload.decode(delivery.body)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise Rejected("malformed", f"not a job message: {error}") from error
        if call.id != job_id:
            raise Rejected("malformed", f"header names job {job_id}, body names {call.id[:80]}")
        if delivery.subject != self.subjects.queue(call.queue):
            raise Rejected("malformed", f"came on {delivery.subject}, names {call.queue[:80]!r}")
        if not (0 < sequence < _MAX_SEQUENCE and attempt > 0):
            raise Rejected("malformed", "its sequence or attempt is out of range")
        try:
            kind = registry.find(call.function)
            arguments = kind.decode(sealing.arguments(call, self.ring))
        except UnknownJob as error:
            raise Rejected("unknown-job", str(error), job_id, sequence) from error
        except (BadArguments, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise Rejected("bad-arguments", str(error), job_id, sequence) from error
        except Undecryptable as error:
            raise Rejected("undecryptable", str(error), job_id, sequence) from error
        except MissingKey as error:
            raise Locked(str(error)) from error
        now = time.time()
        available = max(delivery.stored_at, self.resumptions.at.get(call.queue, 0.0))
        job = Held(
            delivery=delivery,
            payload=call,
            kind=kind,
            arguments=arguments,
            attempt=attempt,
            token=0,
            sequence=sequence,
            pickup_seconds=max(now - available, 0.0),
            timeout_seconds=call.timeout_seconds or self._profile.timeout_seconds,
            tries=call.tries or self._profile.tries,
            started_at=now,
        )
        return job, self._started(job)

    def _started(self, job: Held) -> JobStarted:
        return JobStarted(
            job_id=job.id,
            correlation_id=job.id,
            source=self.source,
            queue=job.queue,
            attempt=job.attempt,
            host=self._host,
            worker=self._worker,
            pickup_seconds=job.pickup_seconds,
            message=job.delivery.sequence,
        )

    def _start(self, job: Held, event: JobStarted) -> Outgoing:
        return self.outgoing(event, job.sequence, job.delivery.headers)

    def outgoing(
        self, event: JobEvent, expected: int | None, headers: Mapping[str, str] | None = None
    ) -> Outgoing:
        """An event of a job, to be stored only if its last event is ``expected``."""
        trace = _trace(headers) if headers else {}
        expect = None if expected is None else Expect(expected, self.subjects.job(event.job_id))
        return Outgoing(self.subjects.event(event), encode(event), trace, expect)

    async def _expired(self, job: Held) -> bool:
        """Ends a job that was not started in time; True when there is nothing to start."""
        if time.time() < job.payload.expires_at:
            return False
        try:
            record = (await self.look_up(job.id))[0]
            if record is None or record.started_at or record.life > 1 or record.state.ended:
                return False  # the usual way knows what to do
            late = time.time() - job.payload.expires_at
            event = JobCancelled(
                job_id=job.id,
                correlation_id=job.id,
                source=self.source,
                reason=f"it expired {late:.1f} s before it could be started",
                cause="expired",
            )
            await self._bus.append(self.outgoing(event, record.sequence, job.delivery.headers))
        except (BusError, Unreadable) as error:
            log.warning("job %s is left for later: %s", job.id, error)
            await self._give_back_later([job.delivery])
            return True
        await self._bus.ack([job.delivery])
        return True

    # --- what to do when the race was lost, or the message is old ---------------------------------
    async def _settle(self, job: Held, event: JobStarted) -> bool:
        """True when the job is ours after all. Raises BusError when the broker does not say."""
        try:
            return await self._decide(job, event)
        except Unreadable as error:
            await self._reject(job.delivery, Rejected("malformed", str(error)))
        except WrongSequence:  # somebody else was quicker
            await self._bus.give_back([job.delivery.ack_subject])
        return False

    async def _decide(self, job: Held, event: JobStarted) -> bool:
        record, ours = await self.look_up(job.id, event.id)
        if record is None:
            await self._reject(job.delivery, Rejected("malformed", "no event of this job exists"))
            return False
        if ours:  # our own append, whose answer was lost
            job.token = job.sequence = record.sequence
            return True
        now = utc_now()
        action = settle(
            record,
            job.delivery.sequence,
            job.sequence,
            job.attempt,
            now,
            self._settings.jobs.max_lost_workers,
        )
        job.attempt = record.next_attempt
        job.pickup_seconds = max((now - record.available_at).total_seconds(), 0.0)
        return await self._act(action, job, record)

    async def _act(self, action: Action, job: Held, record: JobRecord) -> bool:
        match action:
            case Action.START | Action.RECOVER:
                messages = [self.outgoing(self._started(job), None, job.delivery.headers)]
                if action is Action.RECOVER:
                    recovered = JobRecovered(
                        job_id=job.id,
                        correlation_id=job.id,
                        source=self.source,
                        reason=f"worker {record.worker} on {record.host} was lost",
                    )
                    messages.insert(0, self.outgoing(recovered, None))
                first = msgspec.structs.replace(
                    messages[0], expect=Expect(record.sequence, self.subjects.job(job.id))
                )
                job.sequence = await self._bus.append_atomic([first, *messages[1:]])
                job.token = job.sequence
                return True
            case Action.POISON:
                lost = record.lost_workers + 1
                error = JobError(kind="poison", message=f"lost its worker {lost} times in a row")
                await self.bury(record, error, job.delivery.headers)
            case Action.FOLLOW_UP:
                await self.follow_up(record, job.delivery.headers)
            case Action.DROP:
                pass
        await self._bus.ack([job.delivery])
        return False

    async def look_up(self, job_id: str, event_id: str = "") -> tuple[JobRecord | None, bool]:
        """The job now, and whether the event of that id is its last one.

        Raises:
            Unreadable, BusError
        """
        try:
            events = await story.read(self._bus, self.subjects, job_id)
            record = lifecycle.fold(events)
            if record is not None:
                check_name("queue", record.queue)
        except (ValueError, RecursionError, IllegalTransition) as error:
            raise Unreadable(f"the events of job {job_id} cannot be read: {error}") from error
        last = events[-1][1] if events else None
        return record, isinstance(last, JobEvent) and last.id == event_id

    async def bury(self, record: JobRecord, error: JobError, headers: Mapping[str, str]) -> None:
        """Dead, with its dead letter. Raises BusError."""
        event = JobDead(
            job_id=record.id,
            correlation_id=record.id,
            source=self.source,
            queue=record.queue,
            error=error,
        )
        sequence = await self._bus.append(self.outgoing(event, record.sequence, headers))
        await self.follow_up(lifecycle.evolve(record, event, sequence), headers)
        log.warning("job %s is dead: %s: %s", record.id, error.kind, error.message)

    async def follow_up(self, record: JobRecord, headers: Mapping[str, str]) -> None:
        """Makes what must exist outside the log for a job in this state. Raises BusError."""
        message = queues.follow_up(self.subjects, record, utc_now(), _trace(headers))
        if message is not None:
            await self._bus.append(message)

    async def _reject(self, delivery: Delivery, reason: Rejected) -> None:
        """A message that cannot run becomes a dead letter with the reason; nothing is lost."""
        try:
            await self._reject_job(delivery, reason)
        except BusError as error:
            log.warning("message %d of its queue is left for later: %s", delivery.sequence, error)
            await self._give_back_later([delivery])
            return
        await self._bus.ack([delivery])

    async def _reject_job(self, delivery: Delivery, reason: Rejected) -> None:
        try:
            record = (await self.look_up(reason.job_id))[0] if reason.job_id else None
        except Unreadable:
            record = None
        if record is None:
            await self._dead_letter(delivery, reason)
        elif reason.made_from < record.life_from:
            log.info("job %s: a message of an earlier life is dropped", record.id)
        elif record.state is State.DEAD:  # its dead letter may not have been written
            await self.follow_up(record, delivery.headers)
        elif record.state is State.RUNNING and record.message != delivery.sequence:
            log.info("job %s runs from another message; this one is dropped", record.id)
        elif not record.state.ended:
            await self.bury(record, reason.error, delivery.headers)

    async def _dead_letter(self, delivery: Delivery, reason: Rejected) -> None:
        queue = delivery.subject.rpartition(".")[2]
        name = f"message-{delivery.sequence}"
        letter = queues.DeadLetter(
            job_id=name,
            queue=queue,
            function="",
            payload=delivery.body,
            error=reason.error,
            attempts=0,
            at=time.time(),
        )
        log.warning("queue %s, message %d: %s", queue, delivery.sequence, reason)
        subject = self.subjects.dead(queue, name)
        try:
            await self._bus.append(Outgoing(subject, msgspec.json.encode(letter)))
        except PayloadTooLarge:
            kept = f" (of its {len(delivery.body)} bytes the first {_KEPT_BYTES} are kept)"
            error = msgspec.structs.replace(letter.error, message=letter.error.message + kept)
            cut = msgspec.structs.replace(letter, payload=letter.payload[:_KEPT_BYTES], error=error)
            await self._bus.append(Outgoing(subject, msgspec.json.encode(cut)))

    # --- keeping and giving back ------------------------------------------------------------------
    async def release(self, jobs: Iterable[Held], reason: str) -> None:
        """Gives jobs back unfinished; the attempt does not count."""
        held = list(jobs)
        events = [
            JobReleased(job_id=job.id, correlation_id=job.id, source=self.source, reason=reason)
            for job in held
        ]
        answers = await self._bus.append_many(
            [self.outgoing(event, job.sequence) for event, job in zip(events, held, strict=True)]
        )
        # One that lost means that somebody else decides now, perhaps a worker that runs the job
        # from this very message: giving back is not fenced and would take it from there.
        await self._bus.give_back(
            [
                job.delivery.ack_subject
                for job, answer in zip(held, answers, strict=True)
                if not isinstance(answer, WrongSequence)
            ]
        )

    async def _postpone(self, delivery: Delivery, reason: Locked) -> None:
        """Back into the queue in a while, whoever takes it then; no attempt is used up."""
        log.error("message %d waits: %s", delivery.sequence, reason)
        later = datetime.now(UTC) + timedelta(seconds=_LOCKED_SECONDS)
        job_id = delivery.headers.get(queues.JOB, "")
        try:
            await self._bus.append(queues.again(self.subjects, delivery, job_id, later))
        except BusError as error:
            log.warning("message %d is left for later: %s", delivery.sequence, error)
            await self._give_back_later([delivery])
            return
        await self._bus.ack([delivery])

    async def _give_back_later(self, deliveries: Sequence[Delivery]) -> None:
        """Not at once: what the broker refused now would go round and round."""
        if deliveries:
            await asyncio.sleep(_LATER_SECONDS)
            await self._bus.give_back([delivery.ack_subject for delivery in deliveries])


def _trace(headers: Mapping[str, str]) -> dict[str, str]:
    """What joins an event to its story; nothing that could break out of a header."""
    found = headers.get("traceparent", "")
    fits = found and len(found) <= _MAX_TRACE_LENGTH and found.isprintable()
    return {"traceparent": found} if fits else {}


async def hear_resumptions(bus: Bus, claims: Claims) -> Subscription:
    """What jobs wait in a paused queue is not counted. A signal that is lost costs a statistic."""
    heard = await bus.listen(claims.subjects.state("pause", "*"), claims.resumptions.hear)
    with suppress(BusError):
        claims.resumptions.note((await Pausing(bus, claims.subjects, claims.source).all()).values())
    return heard
