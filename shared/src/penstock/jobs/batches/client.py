"""Batches: jobs that are counted together, with a limit of failures and callbacks at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import islice

from penstock.bus.protocol import Bus, BusError, BusUnavailable, StreamFull, WrongSequence
from penstock.events.batch import (
    BATCH_EVENTS,
    BatchClosed,
    BatchCreated,
    BatchEvent,
    BatchReopened,
    BatchStopping,
)
from penstock.events.envelope import new_id
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs import derived_ids, event_log
from penstock.jobs.batches import callbacks
from penstock.jobs.batches.batch_record import BatchRecord, BatchState, fold
from penstock.jobs.batches.outcomes import Ended, ended_members
from penstock.jobs.batches.slots import Slots
from penstock.jobs.client import Client
from penstock.jobs.derived_ids import Member
from penstock.jobs.dispatch.awaiting import Awaiting
from penstock.jobs.errors import AlreadyDispatched, JobRefused, NotFound
from penstock.jobs.log import say, until
from penstock.jobs.registry import Call
from penstock.jobs.retry import Backoff

_CHUNK = 500
_LANES = 2
_TRIES = 20
_BACKOFF = Backoff(first_seconds=0.05, max_seconds=0.25)
"""About 3 s in all: a full event log is shortened within that, if it can be."""
_REVIVED_AT_ONCE = 50


class Batches:
    """The verbs of batches; reached as ``client.batches``.

    A batch is *open* while jobs are added. It ends when it was closed and its last job has ended;
    so a job of the batch can always add others, since the batch cannot end before that job.
    """

    def __init__(self, client: Client, bus: Bus, subjects: Subjects) -> None:
        self._client, self._bus, self._subjects = client, bus, subjects

    # --- making -----------------------------------------------------------------------------------
    async def create(
        self,
        calls: Iterable[Call],
        *,
        title: str = "",
        batch_id: str = "",
        allowed_failures: int | str = 0,
        then: Call | Awaiting | None = None,
        catch: Call | Awaiting | None = None,
        finally_: Call | Awaiting | None = None,
        queue: str = "",
        open_seconds: float = 3600.0,
    ) -> str:
        """Dispatches all calls as one batch; returns its id once the broker keeps everything.

        Args:
            batch_id: a caller's own id makes it resumable: the same call again goes on where a
                killed one stopped, each job is dispatched once.
            allowed_failures: more failed jobs than this, a number or a share such as ``"5%"``,
                cancel the rest and fail the batch.
            then / catch / finally_: dispatched once after success, after failure, in any case.
            queue: instead of the functions' own. open_seconds: a batch left open so long without a
                new job is given up: failed, the rest cancelled.

        Raises:
            AlreadyDispatched: a batch of this id exists and is not open.
            StreamFull: the event log has no room. A batch without a ``batch_id`` of the caller's
                is cancelled, the other stays open for another try.
            BusError: not everything was taken; the batch stays open.
            JobRefused: a call was refused, or the batch failed meanwhile; the rest is cancelled.
        """
        is_named = bool(batch_id)
        await self._client.check_room()
        batch_id = await self._begin(
            batch_id, title, allowed_failures, (then, catch, finally_), open_seconds
        )
        try:
            await self.add(batch_id, calls, key=batch_id, queue=queue)
        except StreamFull as error:
            if not is_named:
                await self._give_up(batch_id, error)
            ending = "stays open, for another try" if is_named else "is cancelled"
            raise StreamFull(f"batch {batch_id} {ending}: {error}") from error
        except BusError:
            raise  # another try can go on
        except Exception as error:
            await self._give_up(batch_id, error)
            raise
        await self.close(batch_id)
        return batch_id

    async def _give_up(self, batch_id: str, error: Exception) -> None:
        await self.cancel(batch_id, f"adding its jobs failed: {error!r}"[:500])

    @asynccontextmanager
    async def open(
        self,
        *,
        title: str = "",
        batch_id: str = "",
        allowed_failures: int | str = 0,
        then: Call | Awaiting | None = None,
        catch: Call | Awaiting | None = None,
        finally_: Call | Awaiting | None = None,
        open_seconds: float = 3600.0,
    ) -> AsyncIterator[OpenBatch]:
        """A batch to which jobs are added step by step; closed at the end, cancelled by an error.

        Example::

            async with client.batches.open(title="nightly") as batch:
                async for table in tables:
                    await batch.add([rebuild(table=table)])
        """
        batch_id = await self._begin(
            batch_id, title, allowed_failures, (then, catch, finally_), open_seconds
        )
        try:
            yield OpenBatch(self, batch_id)
        except Exception as error:
            await self._give_up(batch_id, error)
            raise
        await self.close(batch_id)

    async def _begin(
        self,
        batch_id: str,
        title: str,
        allowed_failures: int | str,
        ends: tuple[Call | Awaiting | None, Call | Awaiting | None, Call | Awaiting | None],
        open_seconds: float,
    ) -> str:
        batch_id = derived_ids.check_whole("batch", batch_id) if batch_id else new_id()
        number, percent = allowed(allowed_failures)
        if not 0 < open_seconds <= 1e9:
            raise ValueError(f"open_seconds is more than 0, found {open_seconds:g}")
        event = BatchCreated(
            batch_id=batch_id,
            correlation_id=batch_id,
            source=self._client.source,
            title=title[:200],
            allowed_failures=number,
            allowed_percent=percent,
            callbacks=callbacks.encode(self._client, batch_id, *ends),
            open_seconds=open_seconds,
        )
        is_new = await self._say(event, 0)
        if not is_new and (await self.show(batch_id)).state is not BatchState.OPEN:
            raise AlreadyDispatched(f"a batch of id {batch_id!r} was created before and is closed")
        return batch_id

    # --- adding -----------------------------------------------------------------------------------
    async def add(
        self,
        batch_id: str,
        calls: Iterable[Call],
        *,
        key: str = "",
        queue: str = "",
        start: int = 0,
    ) -> list[str]:
        """Adds jobs to a batch that is open; returns their ids.

        Args:
            key: who adds; the same key and start again name the same jobs, which are dispatched
                once. Without one the jobs are new in any case. start: number of the first.

        Raises:
            JobRefused: the batch takes no jobs any more, or there are a million under this key.
            BusError: not all were taken; the call can be made again with the same key.
        """
        job_id = derived_ids.job_ids(batch_id, derived_ids.lane(key or new_id()), start)
        prepared = (self._client.prepare(call, next(job_id), queue) for call in calls)
        return await self._hand_over(batch_id, prepared, (BatchState.OPEN,))

    async def add_from(self, job_id: str, calls: Iterable[Call], start: int) -> list[str]:
        """Adds jobs to the batch that a running job belongs to, closed or not.

        A job that runs a second time and adds the same again finds its jobs there already.

        Raises:
            JobRefused: the job belongs to no batch, or the batch takes no jobs any more, or the job
                has added a million.
        """
        place = derived_ids.member(job_id)
        if place is None:
            raise JobRefused(f"job {job_id} belongs to no batch")
        names = derived_ids.job_ids(place.batch, derived_ids.lane(job_id), start)
        prepared = (self._client.prepare(call, next(names)) for call in calls)
        return await self._hand_over(place.batch, prepared, (BatchState.OPEN, BatchState.RUNNING))

    async def _hand_over(
        self, batch_id: str, prepared: Iterator[JobDispatched], takes: tuple[BatchState, ...]
    ) -> list[str]:
        chunks: list[list[str]] = []

        async def lane() -> None:
            while events := list(islice(prepared, _CHUNK)):
                chunks.append([event.job_id for event in events])
                record = await self._check(batch_id, takes)
                await self._chunk(_not_over(record, events))

        await asyncio.gather(*(lane() for _ in range(_LANES)))
        return [job_id for chunk in chunks for job_id in chunk]

    async def _check(self, batch_id: str, takes: tuple[BatchState, ...]) -> BatchRecord:
        record = await self.show(batch_id)
        if record.state not in takes:
            raise JobRefused(f"batch {batch_id} is {record.state}: no jobs can be added to it")
        return record

    async def _chunk(self, events: list[JobDispatched]) -> None:
        for attempt in range(1, _TRIES + 1):
            lost: list[JobDispatched] = []
            answers = await self._client.hand_over(events)
            for event, answer in zip(events, answers, strict=True):
                if isinstance(answer, BusUnavailable) and attempt < _TRIES:
                    lost.append(event)
                elif isinstance(answer, BusError) and not isinstance(answer, WrongSequence):
                    raise answer  # a wrong sequence: this job was dispatched before
            if not lost:
                return
            events = lost
            await asyncio.sleep(_BACKOFF.delay_seconds(attempt))

    async def close(self, batch_id: str) -> None:
        """No more jobs from outside; idempotent. Raises JobRefused as :meth:`cancel` does."""
        event = BatchClosed(batch_id=batch_id, correlation_id=batch_id, source=self._client.source)
        await self._change(event, (BatchState.OPEN,), "closed")

    async def _change(
        self, event: BatchEvent, states: tuple[BatchState, ...], verb: str
    ) -> BatchRecord:
        """Appends an event while the batch is in one of these states.

        Returns:
            The batch before it, or as it is in another state.

        Raises:
            JobRefused: others were quicker each time.
        """
        for _ in range(_TRIES):
            record = await self.show(event.batch_id)
            if record.state not in states or await self._say(event, record.sequence):
                return record
        raise JobRefused(f"batch {event.batch_id} changes too quickly to be {verb}; try again")

    # --- asking -----------------------------------------------------------------------------------
    async def show(self, batch_id: str) -> BatchRecord:
        """The batch now; until it ends its counts are up to a second old. Raises NotFound."""
        derived_ids.check_whole("batch", batch_id)
        stream, subject = self._subjects.events_stream, self._subjects.events("batch", batch_id)
        record = fold(await event_log.read_subject(self._bus, stream, subject, BATCH_EVENTS))
        if record is None:
            raise NotFound(f"no batch of id {batch_id!r}; its events may have aged out")
        return record

    async def wait(self, batch_id: str, timeout_seconds: float | None = None) -> BatchRecord:
        """Waits until the batch has ended. Raises TimeoutError, NotFound."""
        derived_ids.check_whole("batch", batch_id)
        subject = self._subjects.events("batch", batch_id)
        return await until(
            self._bus,
            subject,
            lambda: self.show(batch_id),
            lambda r: r.state.ended,
            timeout_seconds,
        )

    async def ended(self, batch_id: str) -> dict[Member, Ended]:
        """How each job of the batch ended that has, recounted from the jobs' own events."""
        record = await self.show(batch_id)
        return await ended_members(self._bus, self._subjects, record)

    async def failed(self, batch_id: str, *, cancelled: bool = False) -> list[str]:
        """Ids of the jobs that are dead; with ``cancelled`` those that were cancelled, too."""
        record = await self.show(batch_id)
        names = ("JobDead", "JobCancelled", "JobRevived")
        found = await ended_members(self._bus, self._subjects, record, names)
        wanted = (Ended.FAILED, Ended.CANCELLED) if cancelled else (Ended.FAILED,)
        return [place.job_id for place, how in found.items() if how in wanted]

    # --- changing ---------------------------------------------------------------------------------
    async def cancel(self, batch_id: str, reason: str = "cancelled by a client") -> BatchRecord:
        """Cancels all jobs of a batch that have not ended; the orchestrator carries it out.

        Raises:
            JobRefused: the batch changed too quickly.
        """
        event = BatchStopping(
            batch_id=batch_id,
            correlation_id=batch_id,
            source=self._client.source,
            cause="client",
            reason=reason,
        )
        await self._change(event, (BatchState.OPEN, BatchState.RUNNING), "cancelled")
        return await self.show(batch_id)

    async def retry_failed(self, batch_id: str, *, cancelled: bool = False) -> list[str]:
        """Runs the failed jobs of an ended batch again, in their places; returns their ids.

        Callable again after a crash in between: it goes on with those that still lie there.

        Args:
            cancelled: those that were cancelled too.

        Raises:
            JobRefused: the batch has not ended, or nothing in it failed.
        """
        record = await self.show(batch_id)
        reopened = record.state is BatchState.OPEN and record.round > 0
        if not record.state.ended and not reopened:
            raise JobRefused(f"batch {batch_id} is {record.state}; wait for its end")
        if record.is_shortened and record.slots is None:
            raise JobRefused(
                f"batch {batch_id} ended before what the event log still holds: which of its jobs "
                "failed is not known any more; let their dead letters go again ('penstock dead')"
            )
        names = await self.failed(batch_id, cancelled=cancelled)
        if not names and not reopened:
            raise JobRefused(f"no job of batch {batch_id} has failed")
        event = BatchReopened(
            batch_id=batch_id,
            correlation_id=batch_id,
            source=self._client.source,
            round=record.round + 1,
        )
        if not reopened and not await self._say(event, record.sequence):
            raise JobRefused(f"batch {batch_id} changed meanwhile; look at it and try again")
        for start in range(0, len(names), _REVIVED_AT_ONCE):
            await self._revive(names[start : start + _REVIVED_AT_ONCE])
        await self.close(batch_id)
        return names

    async def _revive(self, job_ids: list[str]) -> None:
        outcomes = await asyncio.gather(
            *(self._client.retry(job_id) for job_id in job_ids), return_exceptions=True
        )
        for outcome in outcomes:  # one that is refused was retried by somebody else
            if isinstance(outcome, BaseException) and not isinstance(outcome, JobRefused):
                raise outcome

    async def _say(self, event: BatchEvent, sequence: int) -> bool:
        return await say(self._bus, self._subjects, event, sequence)


def _not_over(record: BatchRecord, events: list[JobDispatched]) -> list[JobDispatched]:
    """Without jobs that were added before and have ended, although no event of them is left."""
    if record.slots is None:
        return events
    slots = Slots(record.id, record.slots)
    places = [derived_ids.member(event.job_id) for event in events]
    return [
        event
        for event, place in zip(events, places, strict=True)
        if place is None or not slots.has_ended(place)
    ]


class OpenBatch:
    """A batch while it is open."""

    def __init__(self, batches: Batches, batch_id: str) -> None:
        self.id = batch_id
        self._batches, self._added = batches, 0

    async def add(self, calls: Iterable[Call], *, queue: str = "") -> list[str]:
        """See :meth:`Batches.add`."""
        ids = await self._batches.add(self.id, calls, key=self.id, queue=queue, start=self._added)
        self._added += len(ids)
        return ids


def allowed(failures: int | str) -> tuple[int, float | None]:
    """A number of failures, or a share as ``"5%"``: number and percentage.

    Raises:
        ValueError: says what was found and what is allowed.
    """
    with suppress(ValueError):
        if isinstance(failures, str) and failures.endswith("%"):
            percent = float(failures[:-1])
            if 0 <= percent <= 100:
                return 0, percent
        elif int(failures) >= 0:
            return int(failures), None
    raise ValueError(
        f"allowed failures are a number from 0 on, or a share such as '5%', found {failures!r}"
    )
