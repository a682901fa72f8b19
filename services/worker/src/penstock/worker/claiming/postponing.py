"""Messages that this worker cannot run, stored again, at once or for later; no try is used up."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from penstock.bus.protocol import Bus, Delivery, Headers, broker_time
from penstock.jobs import lifecycle
from penstock.jobs.job_log import JobLog, trace_of
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.queues import queue_messages
from penstock.jobs.running import worker_loss
from penstock.worker.claiming.reading import Locked, Rejected, Unknown
from penstock.worker.core.settle import Action, settle

NO_EVENT = "no event of this job exists"


def may_be_started_from(delivery: Delivery, is_first: bool) -> bool:
    """Whether an attempt may have come from the message, so that a copy of it is not started.

    Args:
        is_first: no worker refused it before. A copy that was never delivered is none that an
            attempt came from.
    """
    return is_first or delivery.deliveries > 1


class Postponer:
    """Stores messages again, as schedules of the broker where they are for later.

    Args:
        bus: a connection.
        joblog: of this worker.
        max_lost_workers: ``jobs.max_lost_workers``.
    """

    def __init__(self, bus: Bus, joblog: JobLog, max_lost_workers: int) -> None:
        self._bus, self._joblog = bus, joblog
        self._max_lost_workers = max_lost_workers

    async def read(self, job_id: str) -> JobRecord | None:
        """The job now. Raises BusError, UnreadableJob."""
        return await self._joblog.read_checked(job_id)

    async def postpone(
        self,
        delivery: Delivery,
        reason: Unknown | Locked,
        due: datetime | None,
        headers: Headers,
        is_first: bool,
    ) -> Rejected | None:
        """The job goes again when it is due, if it is still to go; the message is done with then.

        Args:
            due: None for at once, behind all that wait.
            headers: of the copy, beside the message's own.
            is_first: no worker refused the message before.

        Returns:
            Why the message is no job's; else None.

        Raises:
            BusError, UnreadableJob
        """
        if may_be_started_from(delivery, is_first):
            return await self._settle(delivery, reason, due, headers)
        await self._store(delivery, reason, due, headers)
        return None

    async def _settle(
        self, delivery: Delivery, reason: Unknown | Locked, due: datetime | None, headers: Headers
    ) -> Rejected | None:
        """Looks at the job's events before a message leaves that an attempt may have come from."""
        record = await self._joblog.read_checked(reason.job_id)
        if record is None:
            return Rejected("malformed", NO_EVENT, reason.job_id, reason.made_from)
        if record.payload != delivery.body:  # it is not the job's: there is a true one
            await self._joblog.follow_up(record, {})
            return None
        now = broker_time(self._bus)
        limit = worker_loss.limit(record, self._max_lost_workers)
        action = settle(record, delivery.sequence, reason.made_from, reason.attempt, now, limit)
        trace = trace_of(delivery.headers)
        match action:
            case Action.START:
                # An attempt may have come from the message in hand, whose copies are not started
                # from then; one that is made from the job's last event is.
                current = queue_messages.headers_of(record, {})
                if record.message:  # it could start since it was given back, not since it was sent
                    available_at = record.available_at.timestamp()
                    headers = {**headers, queue_messages.AVAILABLE: f"{available_at:.3f}"}
                await self._store(delivery, reason, due, {**headers, **current})
            case Action.RECOVER:
                await self._recover(record, due, trace, headers)
            case Action.POISON:
                dead = worker_loss.poisoned(
                    record,
                    _lapsed(record),
                    source=self._joblog.source,
                    now=now,
                    together=record.slots,
                )
                await self._joblog.bury(record, dead, trace)
            case Action.FOLLOW_UP:
                await self._joblog.follow_up(record, trace)
            case Action.DROP:
                pass
        return None

    async def _store(
        self, delivery: Delivery, reason: Unknown | Locked, due: datetime | None, headers: Headers
    ) -> None:
        subjects = self._joblog.subjects
        await self._bus.append(
            queue_messages.postponed(subjects, delivery, reason.job_id, due, headers)
        )

    async def _recover(
        self, record: JobRecord, due: datetime | None, trace: Mapping[str, str], headers: Headers
    ) -> None:
        """Records that the worker before was lost; the job goes again when it is due.

        Not in one atomic batch with the schedule: a job that lacks it has a message that will come
        again.
        """
        now = broker_time(self._bus)
        event = worker_loss.recovered(
            record,
            _lapsed(record),
            source=self._joblog.source,
            now=now,
            delayed=True,
            together=record.slots,  # how many of them ran is not known here
        )
        due = due or now
        event = replace(event, due_at=max(due, event.due_at or due))
        message = self._joblog.outgoing(event, record.sequence, trace)
        record = lifecycle.evolve(record, event, await self._bus.append(message))
        if record.is_paused:
            return
        schedule = queue_messages.scheduled(self._joblog.subjects, record, trace)
        await self._bus.append(replace(schedule, headers={**schedule.headers, **headers}))


def _lapsed(record: JobRecord) -> str:
    return f"worker {record.worker} on {record.host} was lost: its claim lapsed"
