"""Batches: jobs that are counted together, with a limit of failures and callbacks at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sized
from contextlib import asynccontextmanager, suppress
from functools import partial

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusError, StreamFull
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
from penstock.jobs import derived_ids
from penstock.jobs.batches.allowed_failures import parse_allowed_failures
from penstock.jobs.batches.batch_record import MAX_TITLE_LENGTH, BatchRecord, BatchState, fold
from penstock.jobs.batches.callbacks import encode_callbacks
from penstock.jobs.batches.member_ends import MemberEnd, ended_members
from penstock.jobs.batches.open_batch import OpenBatch
from penstock.jobs.batches.sending import send_members
from penstock.jobs.derived_ids import Member
from penstock.jobs.dispatch import workflow_spans
from penstock.jobs.dispatch.awaiting import Awaiting
from penstock.jobs.dispatch.dispatcher import Dispatcher
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.errors import AlreadyDispatched, BatchTakesNoJobs, JobRefused, NotFound
from penstock.jobs.event_store import event_log
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_type import Call

_REQUEUED_AT_ONCE = 50


class Batches:
    """Creates, extends, reads and cancels batches; reached as ``client.batches``.

    A batch is *open* while jobs are added. It ends when it was closed and its last job has ended;
    so a job of the batch can always add others, since the batch cannot end before that job.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        dispatcher: encodes and sends the jobs.
        requeue: requeues a dead or cancelled job, by id.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        dispatcher: Dispatcher,
        requeue: Callable[[str], Awaitable[None]],
    ) -> None:
        self._bus, self._subjects = bus, subjects
        self._dispatcher, self._requeue = dispatcher, requeue

    # --- creating ---------------------------------------------------------------------------------
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
        """Dispatches all calls as one batch; returns its id once the broker holds all of it.

        Args:
            calls: one job each.
            title: for people.
            batch_id: a caller's own id makes it resumable: the same call again goes on where a
                killed one stopped, each job is dispatched once.
            allowed_failures: more failed jobs than this, a number or a share such as ``"5%"``,
                cancel the rest and fail the batch.
            then: dispatched once after success.
            catch: dispatched once after failure.
            finally_: dispatched once in any case.
            queue: instead of the functions' own.
            open_seconds: a batch left open so long without a new job fails, its jobs cancelled.

        Raises:
            AlreadyDispatched: a batch of this id exists and is not open.
            StreamFull: the event log is full. A batch without a ``batch_id`` of the caller's is
                cancelled, the other stays open for another try.
            BusError: not every job was stored; the batch stays open.
            JobRefused: a call was refused, or the batch failed meanwhile; the rest is cancelled.
        """
        is_named, batch_id = bool(batch_id), _own_id(batch_id)
        await self._dispatcher.sender.check_headroom()
        callbacks = then, catch, finally_
        with workflow_spans.dispatching("batch", batch_id, title):
            total = len(calls) if isinstance(calls, Sized) else None
            await self._begin(batch_id, title, allowed_failures, callbacks, open_seconds, total)
            await self._fill(batch_id, calls, queue, is_named)
        return batch_id

    async def begin_step(
        self, batch_id: str, *, title: str, allowed_failures: int | str, total: int | None
    ) -> bool:
        """Begins a batch that is a step of a workflow, or finds it.

        Args: as of :meth:`create`.

        Returns:
            Whether it is open: jobs are to be added, those too that were added before.
        """
        no_callbacks = None, None, None
        await self._dispatcher.sender.check_headroom()
        try:
            await self._begin(batch_id, title, allowed_failures, no_callbacks, 3600.0, total)
        except AlreadyDispatched:
            return False
        return True

    async def _fill(self, batch_id: str, calls: Iterable[Call], queue: str, is_named: bool) -> None:
        """Adds the jobs of a new batch and closes it, or gives it up."""
        try:
            await self.add(batch_id, calls, key=batch_id, queue=queue)
        except StreamFull as error:
            if not is_named:
                await self._give_up(batch_id, error)
            ending = "stays open, for another try" if is_named else "is cancelled"
            raise StreamFull(f"batch {batch_id} {ending}: {error}") from error
        except (BusError, BatchTakesNoJobs):
            raise  # another try can go on, or one has closed it
        except Exception as error:
            await self._give_up(batch_id, error)
            raise
        await self.close(batch_id)

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

        Args: as of :meth:`create`.

        Example::

            async with client.batches.open(title="nightly") as batch:
                async for table in tables:
                    await batch.add([rebuild(table=table)])
        """
        batch_id, callbacks = _own_id(batch_id), (then, catch, finally_)
        with workflow_spans.dispatching("batch", batch_id, title):
            await self._begin(batch_id, title, allowed_failures, callbacks, open_seconds)
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
        callbacks: tuple[Call | Awaiting | None, Call | Awaiting | None, Call | Awaiting | None],
        open_seconds: float,
        total: int | None = None,
    ) -> None:
        number, percent = parse_allowed_failures(allowed_failures)
        if not 0 < open_seconds <= 1e9:
            raise ValueError(f"open_seconds is more than 0, found {open_seconds:g}")
        event = BatchCreated(
            batch_id=batch_id,
            correlation_id=batch_id,
            source=self._dispatcher.source,
            title=title[:MAX_TITLE_LENGTH],
            allowed_failures=number,
            allowed_percent=percent,
            callbacks=encode_callbacks(self._dispatcher, batch_id, *callbacks),
            open_seconds=open_seconds,
            total=total,
        )
        is_new = await self._append_if(event, 0)
        if not is_new and (await self.show(batch_id)).state is not BatchState.OPEN:
            raise AlreadyDispatched(
                f"a batch of id {batch_id!r} was created before and is closed", batch_id
            )

    # --- adding -----------------------------------------------------------------------------------
    async def add(
        self,
        batch_id: str,
        calls: Iterable[Call],
        *,
        key: str = "",
        queue: str = "",
        start: int = 0,
        sealed: bool = False,
    ) -> list[str]:
        """Adds jobs to a batch that is open; returns their ids.

        Args:
            batch_id: of the batch.
            calls: one job each.
            key: of the producer; the same key and start again name the same jobs, which are
                dispatched once. Without one the jobs are new in any case.
            queue: instead of the functions' own.
            start: number of the first.
            sealed: encrypts their arguments, also those of jobs that do not ask for it.

        Raises:
            JobRefused: the batch takes no jobs any more, or there are a million under this key.
            BusError: not every job was stored; call again with the same key.
        """
        job_ids = derived_ids.job_ids(batch_id, derived_ids.producer_key(key or new_id()), start)
        prepare = partial(self._dispatcher.prepare, queue=queue, terms=Terms(sealed=sealed))
        events = (prepare(call, next(job_ids)) for call in calls)
        return await self._send(batch_id, events, (BatchState.OPEN,))

    async def add_from(self, job_id: str, calls: Iterable[Call], start: int) -> list[str]:
        """Adds jobs to the batch that a running job belongs to, closed or not.

        A job that runs a second time and adds the same again finds its jobs there already.

        Args:
            job_id: of the running job.
            calls: one job each.
            start: how many it has added before.

        Raises:
            JobRefused: the job belongs to no batch, or the batch takes no jobs any more, or the job
                has added a million.
        """
        member = derived_ids.member(job_id)
        if member is None:
            raise JobRefused(f"job {job_id} belongs to no batch")
        batch_id, key = member.batch, derived_ids.producer_key(job_id)
        job_ids = derived_ids.job_ids(batch_id, key, start)
        events = (self._dispatcher.prepare(call, next(job_ids)) for call in calls)
        return await self._send(batch_id, events, (BatchState.OPEN, BatchState.RUNNING))

    async def _send(
        self, batch_id: str, events: Iterator[JobDispatched], states: tuple[BatchState, ...]
    ) -> list[str]:
        """Sends jobs while the batch is in one of these states."""

        async def check() -> BatchRecord:
            record = await self.show(batch_id)
            if record.state not in states:
                raise BatchTakesNoJobs(
                    f"batch {batch_id} is {record.state}: no jobs can be added to it"
                )
            return record

        return await send_members(self._dispatcher.sender, events, check)

    async def close(self, batch_id: str) -> None:
        """No more jobs from outside; idempotent. Raises JobRefused as :meth:`cancel` does."""
        source = self._dispatcher.source
        event = BatchClosed(batch_id=batch_id, correlation_id=batch_id, source=source)
        await self._change(event, (BatchState.OPEN,))

    # --- reading ----------------------------------------------------------------------------------
    async def show(self, batch_id: str) -> BatchRecord:
        """The batch now; until it ends its counts are up to a second old. Raises NotFound."""
        derived_ids.check_batch_id(batch_id)
        stream, subject = self._subjects.events_stream, self._subjects.events("batch", batch_id)
        record = fold(await event_log.read_subject(self._bus, stream, subject, BATCH_EVENTS))
        if record is None:
            raise NotFound(f"no batch of id {batch_id!r}; its events may have aged out")
        return record

    async def wait(self, batch_id: str, timeout_seconds: float | None = None) -> BatchRecord:
        """Waits until the batch has ended. Raises TimeoutError, NotFound."""
        derived_ids.check_batch_id(batch_id)
        return await event_log.wait_until(
            self._bus,
            self._subjects.events("batch", batch_id),
            lambda: self.show(batch_id),
            lambda record: record.state.ended,
            timeout_seconds,
        )

    async def ended(self, batch_id: str) -> dict[Member, MemberEnd]:
        """How each job of the batch ended that has, recounted from the jobs' own events."""
        record = await self.show(batch_id)
        return await ended_members(self._bus, self._subjects, record)

    async def failed(self, batch_id: str, *, cancelled: bool = False) -> list[str]:
        """Ids of the jobs that are dead; with ``cancelled`` those that were cancelled, too."""
        record = await self.show(batch_id)
        names = ("JobDead", "JobCancelled", "JobRevived")
        ends = await ended_members(self._bus, self._subjects, record, names)
        counted = (MemberEnd.FAILED, MemberEnd.CANCELLED) if cancelled else (MemberEnd.FAILED,)
        return [member.job_id for member, end in ends.items() if end in counted]

    # --- changing ---------------------------------------------------------------------------------
    async def cancel(self, batch_id: str, reason: str = "cancelled by a client") -> BatchRecord:
        """Cancels all jobs of a batch that have not ended; the orchestrator carries it out.

        Raises:
            JobRefused: the batch changed too quickly.
        """
        event = BatchStopping(
            batch_id=batch_id,
            correlation_id=batch_id,
            source=self._dispatcher.source,
            cause="client",
            reason=reason,
        )
        await self._change(event, (BatchState.OPEN, BatchState.RUNNING))
        return await self.show(batch_id)

    async def retry_failed(self, batch_id: str, *, cancelled: bool = False) -> list[str]:
        """Runs the failed jobs of an ended batch again, under their ids; returns these.

        Callable again after a crash: it goes on with the jobs that were not requeued yet.

        Args:
            batch_id: of the batch.
            cancelled: those that were cancelled too.

        Raises:
            JobRefused: the batch has not ended, or nothing in it failed.
        """
        record = await self.show(batch_id)
        is_reopened = record.state is BatchState.OPEN and record.round > 0
        if not record.state.ended and not is_reopened:
            raise JobRefused(f"batch {batch_id} is {record.state}; wait for its end")
        if record.is_shortened and record.slots is None:
            raise JobRefused(
                f"batch {batch_id} ended before what the event log still holds: which of its jobs "
                "failed is not known any more; let their dead letters go again ('penstock dead')"
            )
        job_ids = await self.failed(batch_id, cancelled=cancelled)
        if not job_ids and not is_reopened:
            raise JobRefused(f"no job of batch {batch_id} has failed")
        event = BatchReopened(
            batch_id=batch_id,
            correlation_id=batch_id,
            source=self._dispatcher.source,
            round=record.round + 1,
        )
        if not is_reopened and not await self._append_if(event, record.sequence):
            raise JobRefused(f"batch {batch_id} changed meanwhile; look at it and try again")
        await bounded.gather(self._requeue_if_ended, job_ids, _REQUEUED_AT_ONCE)
        await self.close(batch_id)
        return job_ids

    async def _requeue_if_ended(self, job_id: str) -> None:
        with suppress(JobRefused):  # another client requeued it
            await self._requeue(job_id)

    async def _change(self, event: BatchEvent, states: tuple[BatchState, ...]) -> None:
        """Appends an event while the batch is in one of these states.

        Raises:
            JobRefused: other writers were first each time.
        """

        async def change(record: BatchRecord) -> bool | None:
            if record.state not in states:
                return True
            return await self._append_if(event, record.sequence) or None

        batch_id = event.batch_id
        await compare_and_set(lambda: self.show(batch_id), change, f"batch {batch_id}")

    async def _append_if(self, event: BatchEvent, sequence: int) -> bool:
        stored = await event_log.append_if(self._bus, self._subjects, event, sequence)
        return stored is not None


def _own_id(batch_id: str) -> str:
    return derived_ids.check_owner_id("batch", batch_id) if batch_id else new_id()
