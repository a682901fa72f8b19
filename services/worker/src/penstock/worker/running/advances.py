"""Advances of workflows: what an author's coroutine needs of the broker, from the job's thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.bus.protocol import Bus, BusError, BusUnavailable, WrongSequence, broker_time
from penstock.events.envelope import new_id
from penstock.events.subjects import BadName
from penstock.events.workflow import (
    INBOX_EVENTS,
    StepRecorded,
    StepsScheduled,
)
from penstock.events.workflow_memo import (
    RefusedSignal,
    Resolution,
    WorkflowMemo,
)
from penstock.jobs import derived_ids, lifecycle
from penstock.jobs.client import Client
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.errors import Cancelled, MissingKey, Skip, WorkflowError
from penstock.jobs.event_store import event_log
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import Call
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.payloads import payload
from penstock.jobs.workflows.coded import inbox, memo
from penstock.jobs.workflows.coded.advancing import Arrivals, advance
from penstock.jobs.workflows.coded.commands import RunJob
from penstock.jobs.workflows.coded.inbox import Signal
from penstock.jobs.workflows.coded.nodes import Continued, Diverged, Ended, Leaf, Part, Stopped
from penstock.jobs.workflows.coded.secrets import Secrets
from penstock.jobs.workflows.coded.workflow_type import WorkflowType
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.commits import own_record
from penstock.worker.running.outcome import BeginsAnew, Blocked, Suspended
from penstock.worker.running.step_batches import StepBatches
from penstock.worker.running.suspensions import send_steps
from penstock.worker.running.workflow_reader import WorkflowHistory, WorkflowReader

log = logging.getLogger("penstock.worker")

T = TypeVar("T")
_RETRY_SECONDS = 0.1
_EARLY = timedelta(milliseconds=20)
"""So much may two estimates of the broker's clock differ."""


class Advances:
    """Runs workflows as far as they go. Called in the jobs' threads.

    Args:
        loop: the worker's, which everything that talks to the broker is handed to.
        client: encodes the calls of steps, and makes batches.
        reader: reads what they have recorded.
    """

    def __init__(
        self,
        bus: Bus,
        joblog: JobLog,
        client: Client,
        loop: asyncio.AbstractEventLoop,
        reader: WorkflowReader,
    ) -> None:
        self._bus, self._joblog, self._client, self._loop = bus, joblog, client, loop
        self._reader = reader

    async def read_ahead(self, jobs: Sequence[ClaimedJob]) -> None:
        """Reads what workflows need, before they begin; in the worker's loop.

        What cannot be read now is read when they run.
        """
        with suppress(BusError):
            histories = await self._reader.read_ahead(jobs)
            for job in jobs:
                job.history = histories.get(job.id)

    def run(self, job: ClaimedJob) -> Any:
        """What the workflow returned, else :class:`Suspended` or :class:`Blocked`.

        Raises:
            Skip: it was cancelled, and has cleaned up.
            Cancelled: it was cancelled, or is another worker's now; and what the workflow raises.
        """
        around = WorkerSurroundings(
            self._bus, self._joblog, self._client, self._loop, self._reader, job
        )
        workflow_memo = around.begin()
        kind, version = job.kind, workflow_memo.version
        if isinstance(kind, WorkflowType) and version and kind.serving(version) is not kind:
            return Blocked(kind.why_not(version), around.whole_record())
        try:
            outcome = advance(
                kind.function, job.arguments, job.id, workflow_memo, around, around.secrets
            )
        except MissingKey as error:
            return Blocked(f"{job.payload.function}: {error}", around.whole_record())
        except Diverged as difference:
            return Blocked(f"{job.payload.function}: {difference}", around.whole_record())
        if isinstance(outcome, Ended):
            return outcome.value
        if isinstance(outcome, Stopped):
            raise Skip(outcome.reason)
        if isinstance(outcome, Continued):
            return around.next_generation(outcome.call)
        return Suspended(outcome, workflow_memo.advances + 1, around.record)


class WorkerSurroundings:
    """See :class:`penstock.jobs.workflows.coded.advancing.Surroundings`.

    Attributes:
        record: the job by its events.
        secrets: seals and opens what it records.
    """

    record: JobRecord
    _arrivals: Arrivals

    def __init__(
        self,
        bus: Bus,
        joblog: JobLog,
        client: Client,
        loop: asyncio.AbstractEventLoop,
        reader: WorkflowReader,
        job: ClaimedJob,
    ) -> None:
        self._bus, self._joblog, self._client = bus, joblog, client
        self._loop, self._reader, self._job = loop, reader, job
        self.secrets = Secrets(client.dispatcher.factory.ring, job.payload)
        seals = self.secrets.are_sealed
        self._batches = StepBatches(client.batches, job.id, self._in_loop, seals=seals)

    # --- in the job's thread ----------------------------------------------------------------------
    def now(self) -> datetime:
        return broker_time(self._bus)

    def next_end(self, open_steps: Mapping[str, Leaf]) -> Resolution | None:
        return self._arrivals.next(open_steps, self.now())

    def refused(self, open_steps: Mapping[str, Leaf]) -> tuple[RefusedSignal, ...]:
        return self._arrivals.refused(open_steps)

    def encode(self, n: int, command: RunJob[Any]) -> bytes:
        step_id = derived_ids.step_id(self._job.id, n)
        terms = Terms(
            step=command.name,
            workflow=self._job.payload.function,
            sealed=self.secrets.are_sealed,
        )
        try:
            return self._client.dispatcher.prepare(command.call, step_id, terms=terms).payload
        except BadName as error:
            raise WorkflowError(f"step {command.name!r}: {error}") from error

    def begin(self) -> WorkflowMemo:
        """What was recorded; reads how its open steps have ended so far. Call it first."""
        history: WorkflowHistory | None = self._job.history
        if history is None:
            history = self._in_loop(lambda: self._reader.read(self._job))
        self.record, ends = history
        workflow_memo = self.record.workflow or memo.EMPTY
        ends = [*ends, *self._batches.read_ends(memo.open_steps(workflow_memo).values())]
        read_signals = partial(self._in_loop, lambda: self._signals(workflow_memo))
        cancelling = workflow_memo.cancelling
        self._arrivals = Arrivals(ends, read_signals, self.secrets, cancelling)
        self._await_timer(workflow_memo)
        return workflow_memo

    def _await_timer(self, workflow_memo: WorkflowMemo) -> None:
        """Waits for a timer of the broker's clock that fires within moments.

        The process that stored the message estimated the clock, as this worker does. An advance too
        early by a millisecond would only suspend the workflow again.
        """
        steps = memo.open_steps(workflow_memo).values()
        now = self.now()
        early = min((s.due_at - now for s in steps if s.due_at and s.due_at > now), default=_EARLY)
        if early < _EARLY:
            time.sleep(early.total_seconds())

    def whole_record(self) -> JobRecord:
        """The job by all its events; of those that suspended it only some are read at first."""
        return self._in_loop(lambda: own_record(self._joblog, self._job))

    def record_part(self, part: Part) -> None:
        about: dict[str, Any] = {
            "id": new_id(),
            "job_id": self._job.id,
            "source": self._joblog.source,
            "number": (self.record.workflow or memo.EMPTY).inline_steps + 1,
            "version": self._job.kind.version,
        }
        self._in_loop(lambda: self._append(part.event(about)))
        if part.scheduled and not self.record.is_paused:  # else the orchestrator does later
            sender, steps = self._client.dispatcher.sender, [(self._job, part.scheduled)]
            self._in_loop(lambda: send_steps(sender, steps, self._joblog.source))

    def next_generation(self, call: Call) -> BeginsAnew:
        """What begins the workflow anew. Raises WorkflowError, JobRefused."""
        job = self._job
        if call.job.name != job.payload.function:
            raise WorkflowError(
                f"ctx.continue_as_new: found a call of {call.job.name}, expected one of "
                f"{job.payload.function}"
            )
        anew = replace(job.payload, arguments=msgspec.Raw(call.arguments), handed=None)
        body = payload.encode(self.secrets.sealed_call(anew))
        if len(body) > (most := self._client.dispatcher.factory.max_payload_bytes):
            raise WorkflowError(
                f"ctx.continue_as_new: the encoded call has {len(body)} bytes, "
                f"jobs.max_payload_bytes allows {most}"
            )
        recorded = self.record.workflow or memo.EMPTY
        consumed = memo.consumed_signals(recorded)
        read = consumed.later.union(self._arrivals.consumed_signals)
        unread = self._in_loop(lambda: self._signals(recorded))
        waiting = [signal.sequence for signal in unread if signal.sequence not in read]
        read_to = min(waiting) - 1 if waiting else max([consumed.read_to, *read])
        later = tuple(sorted(sequence for sequence in read if sequence > read_to))
        return BeginsAnew(body, recorded.generation + 1, read_to, later)

    def is_begun(self, batch: Leaf) -> bool:
        return self._batches.is_begun(batch)

    def begin_batch(self, batch: Leaf, calls: Iterator[Call]) -> None:
        self._batches.begin(batch, calls)

    def _in_loop(self, ask: Callable[[], Awaitable[T]]) -> T:
        return asyncio.run_coroutine_threadsafe(self._patiently(ask), self._loop).result()

    # --- in the worker's loop ---------------------------------------------------------------------
    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """However long the broker is away, while the attempt is this worker's."""
        while True:
            if self._job.lost:
                raise Cancelled
            try:
                return await ask()
            except BusUnavailable as error:
                log.warning("workflow %s waits for the broker: %s", self._job.id, error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _signals(self, workflow_memo: WorkflowMemo) -> list[Signal]:
        subjects = self._joblog.subjects
        subject = subjects.events("workflow", self._job.id)
        events = await event_log.read_subject(
            self._bus, subjects.events_stream, subject, INBOX_EVENTS
        )
        return inbox.unread(events, memo.consumed_signals(workflow_memo))

    async def _append(self, event: StepRecorded | StepsScheduled) -> None:
        job = self._job
        while True:
            job.appending = asyncio.ensure_future(
                self._bus.append(self._joblog.outgoing(event, job.sequence, job.trace))
            )
            try:
                job.sequence = await job.appending
            except WrongSequence:
                self.record = await own_record(self._joblog, job)
                if self.record.changed_id == event.id:  # its own, whose answer was lost
                    return
            else:
                self.record = lifecycle.evolve(self.record, event, job.sequence)
                return
