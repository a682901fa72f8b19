"""Advances of workflows: what an author's coroutine needs of the broker, from the job's thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.bus.protocol import (
    Bus,
    BusError,
    BusUnavailable,
    Delivery,
    WrongSequence,
    broker_time,
)
from penstock.events.envelope import new_id
from penstock.events.subjects import BadName
from penstock.events.workflow import (
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
from penstock.jobs.event_store.event_log import History
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import Call
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.payload import UNLIMITED
from penstock.jobs.workflows.coded import consumed_signals, inbox, memo
from penstock.jobs.workflows.coded.commands import RunJob
from penstock.jobs.workflows.coded.consumed_signals import ConsumedSignals
from penstock.jobs.workflows.coded.inbox import Mark, Signal
from penstock.jobs.workflows.coded.running.advancing import Arrivals, advance
from penstock.jobs.workflows.coded.running.nodes import (
    Continued,
    Diverged,
    Ended,
    Leaf,
    Part,
    Stopped,
    Suspension,
)
from penstock.jobs.workflows.coded.secrets import Secrets
from penstock.jobs.workflows.coded.workflow_type import WorkflowType
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.commits import own_record
from penstock.worker.running.outcome import BeginsAnew, Blocked, Suspended, WorkflowTimedOut
from penstock.worker.workflows.step_batches import StepBatches
from penstock.worker.workflows.suspensions import send_steps
from penstock.worker.workflows.thread_appends import ThreadAppends
from penstock.worker.workflows.workflow_reader import (
    NOT_READ,
    EarlyReading,
    WorkflowHistory,
    WorkflowReader,
)

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
        self._appends = ThreadAppends(bus, loop)

    async def read_early(self, deliveries: Sequence[Delivery]) -> EarlyReading:
        """Reads what is cheaper to read before workflows are claimed; in the worker's loop."""
        try:
            return await self._reader.read_early(deliveries)
        except BusError:
            return NOT_READ

    async def read_ahead(self, jobs: Sequence[ClaimedJob], early: EarlyReading = NOT_READ) -> None:
        """Reads what workflows need, before they begin; in the worker's loop.

        What cannot be read now is read when they run.

        Args:
            early: what was read before they were claimed.
        """
        with suppress(BusError):
            histories = await self._reader.read_ahead(jobs, early)
            for job in jobs:
                job.history = histories.get(job.id)

    def run(self, job: ClaimedJob) -> Any:
        """What the workflow returned, else :class:`Suspended` or :class:`Blocked`.

        Raises:
            Skip, WorkflowTimedOut: it was cancelled, or took too long, and has cleaned up.
            Cancelled: it was cancelled, or is another worker's now; and what the workflow raises.
        """
        around = WorkerSurroundings(
            self._bus,
            self._joblog,
            self._client,
            self._loop,
            self._reader,
            self._appends,
            job,
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
            raise (WorkflowTimedOut if outcome.is_timed_out else Skip)(outcome.reason)
        if isinstance(outcome, Continued):
            return around.next_generation(outcome.call)
        marked = around.with_mark(outcome)
        return Suspended(marked, workflow_memo.advances + 1, around.record)


class WorkerSurroundings:
    """See :class:`penstock.jobs.workflows.coded.running.advancing.Surroundings`.

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
        appends: ThreadAppends,
        job: ClaimedJob,
    ) -> None:
        self._bus, self._joblog, self._client = bus, joblog, client
        self._appends = appends
        self._loop, self._reader, self._job = loop, reader, job
        self.secrets = Secrets(client.dispatcher.factory.ring, job.payload)
        self._inbox: History = ()
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
        options, is_workflow = command.options, bool(command.call.job.kind)
        terms = Terms(
            step=command.name,
            workflow=self._job.payload.function,
            sealed=self.secrets.are_sealed,
            priority=options.priority,
            tags=options.tags,
            tries=options.tries,
            timeout_seconds=UNLIMITED if is_workflow else options.timeout_seconds,
            workflow_timeout_seconds=options.timeout_seconds if is_workflow else UNLIMITED,
            backoff=options.backoff,
        )
        try:
            dispatcher = self._client.dispatcher
            return dispatcher.prepare(command.call, step_id, options.queue, terms).payload
        except (BadName, ValueError) as error:
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
        cancelling = memo.cancellation(workflow_memo)
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
        if self._job.sequence != self.record.sequence:  # another event lies in between
            self.record = self.whole_record()
        about: dict[str, Any] = {
            "id": new_id(),
            "job_id": self._job.id,
            "source": self._joblog.source,
            "number": (self.record.workflow or memo.EMPTY).inline_steps + 1,
            "version": self._job.kind.version,
        }
        self._append_event(part.event(about, self._job.payload.function))
        if part.scheduled and not self.record.is_paused:  # else the orchestrator does later
            sender, steps = self._client.dispatcher.sender, [(self._job, part.scheduled)]
            self._in_loop(lambda: send_steps(sender, steps, self._joblog.source))

    def _append_event(self, event: StepRecorded | StepsScheduled) -> None:
        job = self._job
        if job.lost:
            raise Cancelled
        message = self._joblog.outgoing(event, job.sequence, job.trace)
        answer = self._appends.append(job, message)
        if isinstance(answer, int):
            self.record = lifecycle.evolve(self.record, event, answer)
        else:
            self._in_loop(lambda: self._append(event))

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
        self._in_loop(lambda: self._signals(recorded))
        consumed, mark = self._used_up(())
        later = tuple(sorted(one for one in consumed.later if one > mark.read_to))
        return BeginsAnew(body, recorded.generation + 1, mark, later)

    def with_mark(self, suspension: Suspension) -> Suspension:
        """The same, with how far its inbox was used up, if it was read."""
        _, mark = self._used_up([signal.sequence for signal in suspension.refused])
        return replace(suspension, read_to=mark.read_to, read_ids=mark.ids)

    def _used_up(self, refused: Collection[int]) -> tuple[ConsumedSignals, Mark]:
        recorded = consumed_signals.of(self.record.workflow or memo.EMPTY)
        consumed = recorded.and_also(self._arrivals.consumed_signals, refused)
        return consumed, inbox.mark(self._inbox, consumed)

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
        consumed = consumed_signals.of(workflow_memo)
        self._inbox = (await self._joblog.inbox(self._job.id, consumed)).events
        return inbox.unread(self._inbox, consumed)

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
