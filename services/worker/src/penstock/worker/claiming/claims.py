"""Winning jobs, keeping them, giving them back: each step a compare-and-set."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from penstock.bus import bounded
from penstock.bus.protocol import (
    Bus,
    BusError,
    Delivery,
    Outgoing,
    Subscription,
    WrongSequence,
    broker_time,
)
from penstock.config import Profile, Settings
from penstock.events.envelope import whole_micros
from penstock.events.job import JobReleased, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle, registry
from penstock.jobs.errors import UnreadableJob
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads import encryption
from penstock.jobs.payloads.call_digest import call_digest
from penstock.jobs.queues import queue_messages
from penstock.jobs.queues.pauses import QueuePauses, Resumptions
from penstock.jobs.running import worker_loss
from penstock.runtime.workers.claims_file import Claimed
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.expired_jobs import ExpiredJobs
from penstock.worker.claiming.live_builds import LiveBuilds
from penstock.worker.claiming.postponing import NO_EVENT, Postponer
from penstock.worker.claiming.reading import Envelope, Reader, Refused, Rejected
from penstock.worker.claiming.refusing import AT_ONCE, Refusals
from penstock.worker.claiming.unknown_jobs import UnknownJobs
from penstock.worker.core.company import Company, offered_again_seconds
from penstock.worker.core.settle import Action, settle

log = logging.getLogger("penstock.worker")


class Claims:
    """This worker's side of the job protocol.

    Args:
        profile: the pool's, for what a job leaves open.
        host: of the worker, for the events.
        worker: its id.
        claimed: where the executor reads what this worker holds; None for one without.
        slots: how many jobs it runs at a time, for the events.
        builds: versions of the job code in its pool; None where no other worker is known.
        give_way: see :class:`UnknownJobs`.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        profile: Profile,
        host: str,
        worker: str,
        claimed: Claimed | None = None,
        *,
        slots: int = 1,
        builds: LiveBuilds | None = None,
        give_way: Callable[[str], None] | None = None,
    ) -> None:
        self.claimed = claimed or Claimed("", worker)
        self._bus = bus
        self._settings = settings
        self._host, self._worker, self._slots = host, worker, slots
        self.joblog = JobLog(bus, Subjects(settings.prefix), f"worker/{host}.{worker}")
        self.ring = encryption.load(settings.encryption.key_file)
        self.resumptions = Resumptions()
        self._reader = Reader(self.joblog.subjects, self.ring, profile, self.resumptions, bus.now)
        postponer = Postponer(bus, self.joblog, settings.jobs.max_lost_workers)
        self._unknown_jobs = UnknownJobs(
            bus,
            postponer,
            builds or LiveBuilds(bus, self.joblog.subjects, "", registry.build()),
            host=host,
            worker=worker,
            after_seconds=settings.jobs.unknown_after_seconds,
            give_way=give_way,
        )
        missing_key_seconds = settings.encryption.missing_key_seconds
        unknown = self._unknown_jobs
        self._refusals = Refusals(bus, self.joblog, unknown, postponer, missing_key_seconds)
        self._expired_jobs = ExpiredJobs(bus, self.joblog, self._refusals)

    @property
    def rest_seconds(self) -> float:
        """How long this worker is to ask for no jobs, see :class:`UnknownJobs`."""
        return self._unknown_jobs.rest_seconds

    # --- winning ----------------------------------------------------------------------------------
    def hold(self, deliveries: Sequence[Delivery]) -> None:
        """Notes for the executor what this process has been given: it may die at any time."""
        for delivery in deliveries:
            job_id = delivery.headers.get(queue_messages.JOB, "")
            self.claimed.hold(delivery.sequence, job_id, delivery.ack_subject)

    async def win(self, deliveries: Sequence[Delivery], company: Company) -> list[ClaimedJob]:
        """The jobs of these deliveries that this worker is to run; the others are dealt with.

        Args:
            company: the suspects here; those without room beside them are given back, not started.
        """
        self.hold(deliveries)
        won = await self._win(deliveries, company)
        if len(won) < len(deliveries):
            claimed = {job.delivery.sequence for job in won}
            for delivery in deliveries:
                if delivery.sequence not in claimed:
                    self.claimed.settle(delivery.sequence)
        return won

    async def _win(self, deliveries: Sequence[Delivery], company: Company) -> list[ClaimedJob]:
        starts: list[tuple[ClaimedJob, JobStarted]] = []
        expired: list[tuple[Delivery, Envelope]] = []
        refused: list[tuple[Delivery, Refused]] = []
        for delivery in deliveries:
            try:
                envelope = self._reader.envelope(delivery)
                if 0 < envelope.call.expires_at <= self._bus.now():
                    expired.append((delivery, envelope))
                    continue
                job = self._reader.read(delivery, envelope)
            except Refused as reason:
                refused.append((delivery, reason))
                continue
            starts.append((job, self._started(job)))
        if expired:
            unended = await self._not_ended(expired, refused)
            starts.extend((job, self._started(job)) for job in unended)
        if refused:
            await self._refusals.refuse(refused)
        if any(job.most_beside for job, _ in starts):
            starts = [one for one in starts if await self._has_room(one[0], company)]
        answers = await self._bus.append_many([self._start(job, event) for job, event in starts])
        won: list[ClaimedJob] = []
        others: list[tuple[ClaimedJob, JobStarted, BusError]] = []
        for (job, event), answer in zip(starts, answers, strict=True):
            if isinstance(answer, int):
                job.token = job.sequence = answer
                won.append(job)
            else:
                others.append((job, event, answer))
        return [*won, *await self._settle_all(others, company)] if others else won

    async def _has_room(self, job: ClaimedJob, company: Company) -> bool:
        """Whether the job may run here; else it is given back."""
        if company.takes(job.most_beside):
            return True
        delay_seconds = offered_again_seconds(job.pickup_seconds)
        await self._bus.give_back([job.delivery.ack_subject], delay_seconds)
        return False

    async def _settle_all(
        self,
        lost: Sequence[tuple[ClaimedJob, JobStarted, BusError]],
        company: Company,
    ) -> list[ClaimedJob]:
        """Those that are this worker's after all, of those whose first append did not succeed."""
        # they join again, once their events say what room they need
        company.leave(job.most_beside for job, _, _ in lost)
        won: list[ClaimedJob] = []
        refused: list[Delivery] = []
        for job, event, answer in lost:
            trouble: BusError | None = answer
            if isinstance(answer, WrongSequence) and not refused:
                try:
                    trouble = None
                    if await self._settle(job, event, company):
                        won.append(job)
                except BusError as error:
                    trouble = error
                except Exception as error:  # its events or its message are none of a client's
                    await self._refusals.put_aside(job.delivery, error)
            if trouble:
                log.warning("job %s cannot be claimed now: %s", job.id, trouble)
                refused.append(job.delivery)
        await self._refusals.give_back_later(refused)
        return won

    def _started(self, job: ClaimedJob) -> JobStarted:
        return JobStarted(
            job_id=job.id,
            source=self.joblog.source,
            queue=job.queue,
            attempt=job.attempt,
            host=self._host,
            worker=self._worker,
            pickup_seconds=whole_micros(job.pickup_seconds),
            message=job.delivery.sequence,
            max_lost=job.max_lost,
            at_most_once=job.kind.at_most_once,
            function=job.payload.function,
            slots=self._slots,
            call=call_digest(job.delivery.body),
        )

    def _start(self, job: ClaimedJob, event: JobStarted) -> Outgoing:
        return self.joblog.outgoing(event, job.sequence, job.trace_of_events)

    async def _not_ended(
        self,
        expired: Sequence[tuple[Delivery, Envelope]],
        refused: list[tuple[Delivery, Refused]],
    ) -> list[ClaimedJob]:
        """Ends those of the jobs that were never started; returns the others that can be read."""
        ended = await bounded.gather(self._expired_jobs.end, expired, AT_ONCE)
        others: list[ClaimedJob] = []
        for (delivery, envelope), over in zip(expired, ended, strict=True):
            if over:
                continue
            try:
                others.append(self._reader.read(delivery, envelope))
            except Refused as reason:
                refused.append((delivery, reason))
        return others

    # --- what to do when the race was lost, or the message is old ---------------------------------
    async def _settle(self, job: ClaimedJob, event: JobStarted, company: Company) -> bool:
        """True when this worker has the job after all. Raises BusError: no answer."""
        try:
            return await self._decide(job, event, company)
        except UnreadableJob as error:
            await self._refusals.reject(job.delivery, Rejected("malformed", str(error)))
        except WrongSequence:  # another worker was quicker
            await self._bus.give_back([job.delivery.ack_subject])
        return False

    async def _decide(self, job: ClaimedJob, event: JobStarted, company: Company) -> bool:
        record = await self.joblog.read_checked(job.id)
        if record is None:
            if await self._refusals.is_over(job.delivery, job.id, job.sequence):
                await self._bus.ack([job.delivery])
            else:
                await self._refusals.reject(job.delivery, Rejected("malformed", NO_EVENT))
            return False
        if record.changed_id == event.id:  # this worker's own append, whose answer was lost
            job.token, job.sequence = record.token, record.sequence
            company.joins(job.most_beside)
            return True
        now = broker_time(self._bus)
        if record.payload != job.delivery.body and job.sequence >= record.messages_from:
            await self._refusals.replace_foreign(job.delivery, record)
            return False
        action = settle(
            record,
            job.delivery.sequence,
            job.sequence,
            job.attempt,
            now,
            worker_loss.limit(record, self._settings.jobs.max_lost_workers),
        )
        job.attempt = record.next_attempt
        job.pickup_seconds = max((now - record.available_at).total_seconds(), 0.0)
        return await self._act(action, job, record, company)

    async def _act(
        self, action: Action, job: ClaimedJob, record: JobRecord, company: Company
    ) -> bool:
        match action:
            case Action.START | Action.RECOVER:
                if action is Action.RECOVER:
                    record = await self._recover(job, record)
                    if record.is_paused:  # resumed, it is given another message
                        await self._bus.ack([job.delivery])
                        return False
                job.sequence, job.most_beside = record.sequence, worker_loss.most_beside(record)
                job.settled = True
                if not await self._has_room(job, company):
                    return False
                start = self._start(job, self._started(job))
                job.token = job.sequence = await self._bus.append(start)
                return True
            case Action.POISON:
                source, now = self.joblog.source, broker_time(self._bus)
                dead = worker_loss.poisoned(
                    record, _lapsed(record), source=source, now=now, together=record.slots
                )
                await self.joblog.bury(record, dead, job.trace)
            case Action.FOLLOW_UP:
                await self.joblog.follow_up(record, job.trace)
            case Action.DROP:
                pass
        await self._bus.ack([job.delivery])
        return False

    async def _recover(self, job: ClaimedJob, record: JobRecord) -> JobRecord:
        """Records that the claim of the worker before lapsed.

        Not in one atomic batch with the start that follows, of which the broker allows only 50 at a
        time: a job that was recovered and not started has a message that will come again.
        """
        event = worker_loss.recovered(
            record,
            _lapsed(record),
            source=self.joblog.source,
            now=broker_time(self._bus),
            delayed=False,
            together=record.slots,  # how many of them ran is not known here
        )
        message = self.joblog.outgoing(event, record.sequence, job.trace)
        return lifecycle.evolve(record, event, await self._bus.append(message))

    # --- giving back ------------------------------------------------------------------------------
    async def release(self, jobs: Iterable[ClaimedJob], reason: str) -> None:
        """Gives jobs back unfinished; the attempt does not count."""
        held = list(jobs)
        answers = await self._release(held, reason)
        moved = [
            job
            for job, answer in zip(held, answers, strict=True)
            if isinstance(answer, WrongSequence) and await self._still_runs(job)
        ]
        if moved:
            second = await self._release(moved, reason)
            retried = {job.id: answer for job, answer in zip(moved, second, strict=True)}
            answers = [retried.get(job.id, old) for job, old in zip(held, answers, strict=True)]
        # A lost compare-and-set means that another process decides now, perhaps a worker that runs
        # the job from this very message: giving back is not fenced and would take it from there.
        await self._bus.give_back(
            [
                job.delivery.ack_subject
                for job, answer in zip(held, answers, strict=True)
                if not isinstance(answer, WrongSequence)
            ]
        )

    async def _still_runs(self, job: ClaimedJob) -> bool:
        """Whether this attempt runs; its events went on meanwhile: progress, or they were carried.

        Raises:
            BusError
        """
        try:
            record = await self.joblog.read_checked(job.id)
        except UnreadableJob:
            return False
        if record is None or record.state is not State.RUNNING or record.token != job.token:
            return False
        job.sequence = record.sequence
        return True

    async def _release(self, held: Sequence[ClaimedJob], reason: str) -> Sequence[int | BusError]:
        events = [
            JobReleased(
                job_id=job.id, correlation_id=job.id, source=self.joblog.source, reason=reason
            )
            for job in held
        ]
        return await self._bus.append_many(
            [
                self.joblog.outgoing(event, job.sequence)
                for event, job in zip(events, held, strict=True)
            ]
        )

    async def listen_for_resumptions(self) -> Subscription:
        """What jobs wait in a paused queue is not counted. A lost signal costs a statistic."""
        subjects = self.joblog.subjects
        listening = await self._bus.listen(subjects.state("pause", "*"), self.resumptions.on_record)
        with suppress(BusError):
            paused = await QueuePauses(self._bus, subjects, self.joblog.source).all()
            self.resumptions.note(paused.values())
        return listening


def _lapsed(record: JobRecord) -> str:
    return f"worker {record.worker} on {record.host} was lost: its claim lapsed"
