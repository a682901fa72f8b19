"""Records what became of a job when its worker cannot; by compare-and-set, as the worker does."""

from __future__ import annotations

import logging
from collections.abc import Collection
from enum import Enum, auto

from msgspec.structs import replace

from penstock.bus import bounded
from penstock.bus.protocol import Bus, broker_time
from penstock.bus.pull import delivery
from penstock.config import Settings
from penstock.events.job import JobDead, JobEvent, JobRecovered, JobReleased
from penstock.events.subjects import Subjects
from penstock.jobs.errors import JobRefused
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.running import worker_loss

log = logging.getLogger("penstock.executor")

_AT_ONCE = 20
_TRIES = 5
"""Events of a job that died may still come in while its loss is recorded."""


class Return(Enum):
    """The answer to the message of a job that a dead worker held."""

    AT_ONCE = auto()
    """It goes back to its queue: delivered again before all others."""
    SETTLED = auto()
    """It is acknowledged: a schedule or a dead letter stands in its place."""
    LATER = auto()
    """Nothing: the claim lapses, if no other worker holds it."""


class Recovery:
    """Takes jobs from workers of this host. All raise BusError when the broker does not answer."""

    def __init__(self, bus: Bus, settings: Settings, source: str) -> None:
        self._bus, self._source = bus, source
        self._subjects = Subjects(settings.prefix)
        self._log = JobLog(bus, self._subjects, source)
        self._max_lost_workers = settings.jobs.max_lost_workers

    async def recover(self, job_id: str, worker: str, reason: str, strategy: str) -> bool:
        """Takes a stuck job from its worker; dead, if it was lost with too many before.

        Returns:
            False when the worker does not run it any more.
        """
        record = await self._running(job_id, worker)
        if record is None:
            return False
        event = self._after_loss(record, reason, delayed=False)
        if isinstance(event, JobRecovered):
            event = replace(event, strategy=strategy, from_checkpoint=strategy != "restart")
        return await self._append(record, event) is not None

    async def lost(
        self, job_id: str, worker: str, claim: str, reason: str, *, together: int
    ) -> Return:
        """Records what became of a job that a dead worker held.

        Fenced by compare-and-set on the job's last event, and by the message in hand: only the one
        that the running attempt was started from counts.

        Args:
            claim: ack subject of the message.
            reason: how the worker ended.
            together: how many jobs may be the cause, this one included: it loses a worker, and may
                wait before it goes again, or is dead. 0: this one did not run, and goes back as if
                it had never begun.

        Returns:
            The answer to the message.
        """

        async def settle(record: JobRecord | None) -> Return | None:
            if record is None:
                return Return.LATER
            if record.state is not State.RUNNING:
                return Return.AT_ONCE  # the next worker settles it by the job's events
            if record.worker != worker or record.message not in (0, message_of(claim)):
                return Return.LATER  # another worker runs it by now
            event: JobEvent = (
                self._after_loss(record, reason, delayed=True, together=together)
                if together
                else self._released(job_id, reason)
            )
            after = await self._append(record, event)
            if after is None:
                return None
            if together:
                log.warning("job %s is %s: %s", job_id, after.state, reason)
            return Return.AT_ONCE if after.state is State.WAITING else Return.SETTLED

        try:
            return await compare_and_set(
                lambda: self._log.read(job_id), settle, f"job {job_id}", _TRIES
            )
        except JobRefused:
            return Return.LATER

    async def suspects(self, job_ids: Collection[str]) -> set[str]:
        """Those of the jobs that lost workers before together with others, again and again."""

        async def is_suspect(job_id: str) -> bool:
            record = await self._log.read(job_id)
            return record is not None and worker_loss.most_beside(record) > 0

        ids = list(job_ids)
        answers = await bounded.gather(is_suspect, ids, _AT_ONCE)
        return {job_id for job_id, answer in zip(ids, answers, strict=True) if answer}

    async def ack(self, claim: str) -> None:
        """Removes a message from its queue: what follows from it is stored elsewhere by now."""
        await self._bus.ack([delivery("", claim.encode(), b"", None)])

    def _after_loss(
        self, record: JobRecord, reason: str, *, delayed: bool, together: int = 1
    ) -> JobRecovered | JobDead:
        now = broker_time(self._bus)
        if worker_loss.is_last(record, self._max_lost_workers, together):
            return worker_loss.poisoned(
                record, reason, source=self._source, now=now, together=together
            )
        return worker_loss.recovered(
            record, reason, source=self._source, now=now, delayed=delayed, together=together
        )

    def _released(self, job_id: str, reason: str) -> JobReleased:
        return JobReleased(job_id=job_id, correlation_id=job_id, source=self._source, reason=reason)

    async def wake(self, job_id: str) -> None:
        """Has the worker look at once whether the job is still its own."""
        await self._bus.signal(self._subjects.cancel_notice(job_id))

    async def _running(self, job_id: str, worker: str) -> JobRecord | None:
        """The job, if this worker runs it."""
        record = await self._log.read(job_id)
        if record is None or record.state is not State.RUNNING or record.worker != worker:
            return None
        return record

    async def _append(self, record: JobRecord, event: JobEvent) -> JobRecord | None:
        """Stores an event and what follows from it; None when the job has another one since."""
        after = await self._log.append_if(record, event, trace={})
        if after is not None and after.state in (State.DEAD, State.RETRYING):
            await self._log.follow_up(after, await self._log.dispatch_trace(record.id))
        return after


def message_of(claim: str) -> int:
    """Sequence of the message that an ack subject answers to; 0 where it names none."""
    try:
        return delivery("", claim.encode(), b"", None).sequence
    except (ValueError, IndexError):
        return 0
