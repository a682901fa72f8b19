"""Cancelling and moving many jobs, each by a compare-and-set of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusRefused, PayloadTooLarge
from penstock.events.job import JobCancelled
from penstock.events.subjects import Subjects, check_name
from penstock.jobs.bulk.moving import moved
from penstock.jobs.bulk.scan import PAGE, JobMessage, pages, requeued, without_message
from penstock.jobs.dispatch.job_factory import JobFactory
from penstock.jobs.errors import JobRefused, UnreadableJob
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_filter import EVERY_JOB, JobFilter
from penstock.jobs.job_log import JobLog, trace_of
from penstock.jobs.lifecycle import JobRecord, State

_AT_ONCE = 32
_MOST_GROUPS = 1_000
_REASON_LIMIT = 1_000
_WAITING = (State.WAITING, State.SCHEDULED, State.RETRYING)
_RUNS = "it runs"
_OTHER = "by its events it does not match"


class Effect(StrEnum):
    """What an operation did to a job."""

    DONE = "done"
    LEFT = "left"
    """Nothing: it runs, or it cannot be moved."""
    VOID = "void"
    """The message was of a job that has ended or moved before; only the message was removed."""


class BulkOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one job; ``text`` says why it was left."""

    id: str
    effect: Effect
    text: str = ""

    @property
    def is_running(self) -> bool:
        """Whether the job ran; its message is then its worker's."""
        return self.text == _RUNS


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs match.

    Attributes:
        jobs: all of them; some may end before they are acted on.
        groups: the same by queue and function, at most a thousand of them.
    """

    jobs: int
    groups: dict[tuple[str, str], int]


class Bulk:
    """Operations on many jobs; reached as ``client.bulk``.

    Each reads the messages of the jobs that have not ended, a page at a time, so that a million
    jobs take no more memory than a hundred; jobs that were moved or requeued in the last two
    minutes are found without a message, too. Each job is changed by an event of its own, by
    compare-and-set. So an operation that is interrupted is continued by calling it again, and jobs
    that start, end or are changed by others meanwhile are not acted on by mistake. A message only
    names a job: what the job is, and whether it matches, is read from its events, since everybody
    who may dispatch can write any message.

    The key of an operator is needed: an application's may not read queues.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        factory: knows the lanes of queues, and keys.
    """

    def __init__(self, bus: Bus, subjects: Subjects, factory: JobFactory) -> None:
        self._bus, self._subjects, self._factory = bus, subjects, factory
        self._log = JobLog(bus, subjects, factory.source)

    async def count(self, matching: JobFilter) -> Matching:
        """How many jobs match now, running ones included; for a dry run."""
        groups: Counter[tuple[str, str]] = Counter()
        jobs = 0
        async for page in self._selected(matching, limit=0):
            jobs += len(page)
            for message in page:
                group = (message.call.queue, message.call.function)
                if group in groups or len(groups) < _MOST_GROUPS:
                    groups[group] += 1
        return Matching(jobs=jobs, groups=dict(groups))

    async def purge(
        self, queue: str, *, reason: str = "its queue was purged", limit: int = 0
    ) -> AsyncIterator[list[BulkOutcome]]:
        """Cancels all jobs that wait, are delayed or will be retried on a queue, in all its lanes.

        Running ones go on. Arguments and outcomes are those of :meth:`cancel`.
        """
        queues = tuple(self._factory.priority_queues(check_name("queue", queue)))
        async for page in self.cancel(JobFilter(queues=queues), reason=reason, limit=limit):
            yield page

    async def cancel(
        self,
        matching: JobFilter,
        *,
        reason: str = "cancelled by a client",
        running: bool = False,
        limit: int = 0,
    ) -> AsyncIterator[list[BulkOutcome]]:
        """Cancels all jobs that match; outcomes a page at a time.

        Args:
            matching: which jobs.
            reason: stored with each job's event.
            running: also those that run: their workers are notified.
            limit: acts on so many jobs at most; 0 for all.

        Raises:
            JobRefused: the filter names nothing.
            BusError: between two pages; what was yielded is done.
        """
        if matching == EVERY_JOB:
            raise JobRefused("name which jobs: an empty filter would cancel all of them")
        async for page in self._selected(matching, limit):

            async def cancel(message: JobMessage) -> BulkOutcome:
                return await self._cancel(message, matching, reason[:_REASON_LIMIT], running)

            yield await bounded.gather(cancel, page, _AT_ONCE)

    async def move(
        self,
        source: str,
        target: str,
        matching: JobFilter = EVERY_JOB,
        *,
        reason: str = "",
        limit: int = 0,
    ) -> AsyncIterator[list[BulkOutcome]]:
        """Moves the jobs that wait on a queue, lane by lane; a delayed one keeps its time.

        Running jobs are left: one that is retried later waits on its queue again.

        Args:
            source: the queue; with its lanes.
            target: where they wait then.
            matching: which of its jobs.
            reason: stored with each job's event.
            limit: acts on so many jobs at most; 0 for all.

        Raises:
            JobRefused: both are the same queue.
            BusError: between two pages; what was yielded is done.
        """
        lanes = self._lanes(check_name("queue", source), check_name("queue", target))
        only = msgspec.structs.replace(matching, queues=tuple(lanes))
        async for page in self._selected(only, limit):

            async def move(message: JobMessage) -> BulkOutcome:
                return await self._move(message, only, lanes, reason[:_REASON_LIMIT])

            yield await bounded.gather(move, page, _AT_ONCE)

    def _lanes(self, source: str, target: str) -> dict[str, str]:
        """The queue that the jobs of each lane are moved to."""
        if source == target:
            raise JobRefused(f"the jobs wait on queue {source!r} already; name another one")
        sources = self._factory.priority_queues(source)
        targets = self._factory.priority_queues(target)
        if len(targets) != len(sources):
            targets = [target] * len(sources)
        return dict(zip(sources, targets, strict=True))

    async def _selected(self, matching: JobFilter, limit: int) -> AsyncIterator[list[JobMessage]]:
        left = limit
        async for page in self._pages(matching):
            fitting = await self._fitting(page, matching)
            if limit:
                fitting = fitting[:left]
                left -= len(fitting)
            if fitting:
                yield fitting
            if limit and left <= 0:
                return

    async def _pages(self, matching: JobFilter) -> AsyncIterator[list[JobMessage]]:
        """Messages, and then what stands for those that are missing."""
        missing = await requeued(self._bus, self._subjects)
        async for page in pages(self._bus, self._subjects, matching.queues):
            missing.difference_update(message.job_id for message in page)
            yield page

        async def look(job_id: str) -> JobMessage | None:
            try:
                record = await self._log.read_checked(job_id)
                is_waiting = record is not None and record.state in _WAITING
                return without_message(record) if record and is_waiting else None
            except (UnreadableJob, ValueError):
                return None

        ids = sorted(missing)
        for start in range(0, len(ids), PAGE):
            messages = await bounded.gather(look, ids[start : start + PAGE], _AT_ONCE)
            yield [message for message in messages if message is not None]

    async def _fitting(self, page: Sequence[JobMessage], matching: JobFilter) -> list[JobMessage]:
        fitting = [message for message in page if matching.fits_call(message.call)]
        if not matching.needs_events:
            return fitting
        records = await bounded.gather(
            self._log.read_checked, [message.job_id for message in fitting], _AT_ONCE
        )
        return [
            message
            for message, record in zip(fitting, records, strict=True)
            if record is not None and matching.fits(record)
        ]

    # --- cancelling -------------------------------------------------------------------------------
    async def _cancel(
        self, message: JobMessage, matching: JobFilter, reason: str, running: bool
    ) -> BulkOutcome:
        async def change(record: JobRecord) -> BulkOutcome | None:
            is_running = record.state is State.RUNNING
            if not matching.fits(record):
                return _left(message, _OTHER)
            if is_running and not running:
                return _left(message, _RUNS)
            if not await self._log.append_if(record, self._cancelled(record, reason)):
                return None
            if is_running:
                await self._bus.signal(self._subjects.cancel_notice(record.id))
            text = _RUNS if is_running else ""
            return BulkOutcome(id=record.id, effect=Effect.DONE, text=text)

        outcome = await self._change(message, change)
        await self._remove(message, outcome)
        return outcome

    def _cancelled(self, record: JobRecord, reason: str) -> JobCancelled:
        return JobCancelled(
            job_id=record.id,
            correlation_id=record.id,
            source=self._log.source,
            reason=reason,
            function=record.function,
        )

    # --- moving -----------------------------------------------------------------------------------
    async def _move(
        self, message: JobMessage, matching: JobFilter, lanes: Mapping[str, str], reason: str
    ) -> BulkOutcome:
        async def change(record: JobRecord) -> BulkOutcome | None:
            if not matching.fits(record):
                return _left(message, _OTHER)
            if record.state is State.RUNNING:
                return _left(message, _RUNS)
            try:
                event = moved(
                    record, lanes[record.queue], reason, self._log.source, self._factory.ring
                )
                after = await self._log.append_if(record, event)
            except (JobRefused, PayloadTooLarge) as error:
                return _left(message, str(error))
            if after is None:
                return None
            headers = message.stored.headers if message.stored else {}
            await self._log.follow_up(after, trace_of(headers))
            return BulkOutcome(id=record.id, effect=Effect.DONE)

        outcome = await self._change(message, change)
        await self._remove(message, outcome)
        return outcome

    # --- one job ----------------------------------------------------------------------------------
    async def _change(
        self,
        message: JobMessage,
        change: Callable[[JobRecord], Awaitable[BulkOutcome | None]],
    ) -> BulkOutcome:
        """Reads a job and changes it, unless its message is left over from what is over."""

        async def read() -> JobRecord | None:
            return await self._log.read_checked(message.job_id)

        async def act(record: JobRecord | None) -> BulkOutcome | None:
            if record is None:
                if await self._log.is_over(message.job_id, message.made_from):
                    return BulkOutcome(id=message.job_id, effect=Effect.VOID)
                return _left(message, "no event of this job exists")
            if record.state.ended or message.made_from < record.messages_from:
                return BulkOutcome(id=message.job_id, effect=Effect.VOID)
            return await change(record)

        try:
            return await compare_and_set(read, act, f"job {message.job_id}")
        except (JobRefused, UnreadableJob) as error:
            return _left(message, str(error))

    async def _remove(self, message: JobMessage, outcome: BulkOutcome) -> None:
        """Removes the message of a job that does not wait there any more.

        Where that is refused, the worker or the schedule that comes to it drops it.
        """
        if message.stored is None or outcome.effect is Effect.LEFT or outcome.is_running:
            return
        with suppress(BusRefused):
            await self._bus.remove_message(self._subjects.jobs_stream, message.stored.sequence)


def _left(message: JobMessage, text: str) -> BulkOutcome:
    return BulkOutcome(id=message.job_id, effect=Effect.LEFT, text=text)
