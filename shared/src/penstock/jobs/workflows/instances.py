"""Workflows that run, as a part of the client: ``client.workflows``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from penstock.bus.protocol import Bus, Outgoing, broker_time
from penstock.events.envelope import encode
from penstock.events.job_event import JobEvent
from penstock.events.subjects import Subjects
from penstock.events.workflow import (
    SignalReceived,
    WorkflowCancelling,
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.events.workflow_memo import MAX_SIGNAL_BYTES, MAX_SIGNAL_ID_LENGTH
from penstock.jobs.batches.client import Batches
from penstock.jobs.errors import JobRefused
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import encode_result
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.reading.job_list import DEFAULT_LIMIT
from penstock.jobs.workflows import listing
from penstock.jobs.workflows.fixing import Cancels, Fix, fix
from penstock.jobs.workflows.listing import WorkflowList, WorkflowQuery
from penstock.jobs.workflows.replay import Progress, Replayer, ReplayReport
from penstock.jobs.workflows.signal_sending import SignalSending
from penstock.jobs.workflows.view_reader import Look, ViewReader
from penstock.jobs.workflows.workflow_view import WorkflowView

_AT_ONCE = 100
_MAX_REASON_LENGTH = 1_000
DEFAULT_CLEANUP_SECONDS, MAX_CLEANUP_SECONDS = 300.0, 86_400.0

Cancel = Callable[[str, str], Awaitable[JobView]]


class Workflows:
    """Workflows that were dispatched.

    Args:
        log: the events of jobs.
        look: reads a job.
        cancel: cancels a job.
        batches: of `ctx.map`.
        ring: opens what is sealed.
        cleanup_seconds: as the attribute.

    Attributes:
        cleanup_seconds: how long a cancelled one may clean up.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        log: JobLog,
        look: Look,
        cancel: Cancel,
        batches: Batches,
        ring: KeyRing,
        cleanup_seconds: float = DEFAULT_CLEANUP_SECONDS,
    ) -> None:
        self.cleanup_seconds = cleanup_seconds
        self._bus, self._subjects, self._log = bus, subjects, log
        self._look, self._ring = look, ring
        self._sending = SignalSending(bus, subjects, log, look, ring)
        self._reader = ViewReader(log, look, batches)
        self._cancel, self._cancel_batch = cancel, batches.cancel

    async def get(self, workflow_id: str, *, with_attempts: bool = False) -> WorkflowView:
        """A workflow as it is now: its steps, what it waits for and since when.

        Args:
            workflow_id: of a workflow.
            with_attempts: reads the jobs of ended steps, too, for their attempts and times.

        Raises:
            NotFound: no event of it is stored (any more).
            JobRefused: it is another kind of job.
        """
        return await self._reader.read(workflow_id, with_attempts)

    async def list(
        self,
        *,
        state: State | None = None,
        blocked: bool = False,
        paused: bool = False,
        function: str = "",
        waiting_longer: timedelta | None = None,
        with_parts: bool = True,
        limit: int = DEFAULT_LIMIT,
    ) -> WorkflowList:
        """Workflows that fit all that is given; how the jobs of their steps are is not read.

        Args:
            state: as they are now.
            blocked: only those whose code does not fit what they recorded.
            paused: only those that are paused, the latest first, however long ago that was.
            function: registered name.
            waiting_longer: only suspended ones that last went on so long ago, those first that
                wait longest; found however far back that was. Else those that changed last come
                first, as far back as :meth:`Jobs.list` reads.
            with_parts: also those that are steps of other workflows or graphs, or jobs of batches;
                else ``left_out`` of the list counts these.
            limit: workflows at most.

        Returns:
            The workflows; its ``cut_off`` is set where more may fit.

        Raises:
            BusError
        """
        since = None if waiting_longer is None else broker_time(self._bus) - waiting_longer
        wanted = WorkflowQuery(
            state=state,
            function=function,
            is_blocked=blocked,
            is_paused=paused,
            waiting_since=since,
            with_parts=with_parts,
        )
        if paused:
            return await listing.paused(self._bus, self._subjects, wanted, self._look, limit)
        if since is None:
            return await listing.newest(self._bus, self._subjects, wanted, limit)
        return await listing.longest_waiting(self._bus, self._subjects, wanted, self._look, limit)

    async def signal(
        self, workflow_id: str, name: str, value: Any = None, *, signal_id: str = ""
    ) -> None:
        """Sends a value to a workflow, which may wait for it now or later.

        Args:
            workflow_id: of a workflow that has not ended.
            name: of the signal.
            value: as MessagePack, at most 64,000 bytes.
            signal_id: of signals with the same one, the first counts: for senders that try again.

        Raises:
            NotFound: there is no such workflow.
            JobRefused: it has ended, and how; its inbox is full; or the value cannot be sent.
            MissingKey: the workflow is encrypted, and this client has no key.
            BusError: whether it was stored is unknown.
        """
        secrets = await self._sending.secrets(workflow_id)
        try:
            body = secrets.sealed_signal(name, encode_result(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise JobRefused(f"signal {name!r}: its value cannot be sent: {error}") from error
        limits = (
            (1 <= len(name) <= 64, "a name of 1 to 64 characters"),
            (len(signal_id) <= MAX_SIGNAL_ID_LENGTH, "a signal_id of at most 64 characters"),
            (len(body) <= MAX_SIGNAL_BYTES, f"a value of at most {MAX_SIGNAL_BYTES} bytes"),
        )
        for holds, wanted in limits:
            if not holds:
                raise JobRefused(f"signal {name[:80]!r}: expected {wanted}")
        await self._sending.check_room(workflow_id)
        event = SignalReceived(
            workflow_id=workflow_id,
            source=self._log.source,
            signal=name,
            value=body,
            signal_id=signal_id,
        )
        await self._bus.append(Outgoing(self._subjects.event(event), encode(event)))

    async def replay(
        self,
        functions: Iterable[str] = (),
        *,
        since: datetime | None = None,
        progress: Progress = lambda done, total: None,
    ) -> ReplayReport:
        """What the code that is imported here would do with the workflows that live now.

        Each is run through what it has recorded, and no further: nothing is stored, no job and no
        inline step is run. It needs the right to read the event log and no other.

        Args:
            functions: registered names; none for all.
            since: only those that were dispatched since then.
            progress: is called with how many were looked at, and of how many.

        Raises:
            BusError
        """
        replayer = Replayer(self._bus, self._subjects, self._ring)
        return await replayer.replay(frozenset(functions), since, progress)

    async def fix(
        self,
        workflow_id: str,
        *,
        forget: Sequence[str] = (),
        version: int = 0,
        accept: bool = False,
        reason: str = "",
    ) -> WorkflowView:
        """Changes what a blocked workflow goes on from; it is offered to a worker at once.

        Give one of the three. It is recorded as an event of the workflow, and of two that change it
        at the same time the second sees what the first did.

        Args:
            workflow_id: of a blocked workflow.
            forget: keys of steps whose record counts no more: the code calls them anew, or not at
                all. What was recorded after them stays: where it does not fit any more the workflow
                is blocked again, and names the next. Jobs that still run for them are cancelled.
            version: of the code that is to run it from now on.
            accept: what was recorded counts although the code calls another function under the same
                key, or with other arguments; calls that were not recorded begin anew.
            reason: for people.

        Returns:
            The workflow as it is then.

        Raises:
            NotFound: there is no such workflow.
            JobRefused: it is not blocked, has recorded no such step, or not one change is given.
            BusError: whether it was stored is unknown.
        """
        wanted = Fix(forget=tuple(forget), version=version, accept=accept, reason=reason)
        cancels = Cancels(self._cancel, self._cancel_batch)
        await fix(self._log, self._look, cancels, workflow_id, wanted)
        return await self.get(workflow_id)

    async def pause(self, workflow_id: str, reason: str = "") -> WorkflowView:
        """Pauses a workflow that has not ended: no advance is started until it is resumed.

        An advance that runs, and steps that were dispatched, go on to their end; what they lead to,
        timers and signals are taken note of when it is resumed.

        Args:
            workflow_id: of a workflow; one that is paused already stays as it is.
            reason: for people.

        Returns:
            The workflow as it is then.

        Raises:
            NotFound, BusError
            JobRefused: it has ended, and how; it is another kind of job; or it changes too quickly.
        """

        def paused(record: JobRecord) -> WorkflowPaused | None:
            if record.is_paused:
                return None
            return WorkflowPaused(
                job_id=workflow_id,
                correlation_id=workflow_id,
                source=self._log.source,
                reason=reason[:_MAX_REASON_LENGTH],
                function=record.function,
            )

        return await self._change(workflow_id, "paused", paused)

    async def resume(
        self, workflow_id: str, reason: str = "", *, even_if_not_paused: bool = False
    ) -> WorkflowView:
        """Lets a paused workflow go on: at once, if what it waits for came meanwhile.

        Args:
            workflow_id: of a workflow; one that is not paused stays as it is.
            reason: for people.
            even_if_not_paused: has the orchestrator read one that is stuck again, and make up for
                what it lacks.

        Returns:
            The workflow as it is then.

        Raises:
            NotFound, BusError
            JobRefused: it has ended, and how; it is another kind of job; or it changes too quickly.
        """

        def resumed(record: JobRecord) -> WorkflowResumed | None:
            if not record.is_paused and not even_if_not_paused:
                return None
            is_ahead = record.available_at > broker_time(self._bus)
            return WorkflowResumed(
                job_id=workflow_id,
                correlation_id=workflow_id,
                source=self._log.source,
                queue=record.queue,
                due_at=record.available_at if is_ahead else None,
                function=record.function,
                reason=reason[:_MAX_REASON_LENGTH],
            )

        return await self._change(workflow_id, "resumed", resumed)

    async def _change(
        self,
        workflow_id: str,
        done: str,
        event_for: Callable[[JobRecord], JobEvent | None],
    ) -> WorkflowView:
        async def change(view: WorkflowView) -> WorkflowView | None:
            if view.state.ended:
                raise _HasEnded(f"workflow {workflow_id} cannot be {done}: it is {view.state}")
            if (event := event_for(view.job.record)) is None:
                return view
            record = await self._log.append_if(view.job.record, event)
            if record is None:
                return None
            await self._log.follow_up(record, await self._log.dispatch_trace(workflow_id))
            return await self.get(workflow_id)

        what = f"workflow {workflow_id}"
        return await compare_and_set(lambda: self.get(workflow_id), change, what)

    async def cancel(
        self,
        workflow_id: str,
        reason: str = "cancelled by a client",
        *,
        cleanup_seconds: float | None = None,
    ) -> WorkflowView:
        """Cancels a workflow that has not ended; the orchestrator cancels its steps.

        ``Cancelled`` is raised where its code awaits, and the code may run steps in ``finally`` and
        ``except``; then it is cancelled. Without workers that run it, it is cancelled after the
        time to clean up. One that has done nothing yet, or is blocked, is cancelled at once.

        Args:
            workflow_id: of a workflow; one that is being cancelled already stays as it is.
            reason: for people.
            cleanup_seconds: how long it may clean up; 0 cancels it at once; None: as
                ``workflows.cleanup_seconds`` has it.

        Returns:
            The workflow as it is then: one that ended first keeps its end.

        Raises:
            NotFound, BusError
            JobRefused: it is another kind of job, or changes too quickly.
        """
        seconds = self.cleanup_seconds if cleanup_seconds is None else cleanup_seconds
        if not 0 <= seconds <= MAX_CLEANUP_SECONDS:
            raise JobRefused(
                f"cleanup_seconds is 0 to {MAX_CLEANUP_SECONDS:g} (a day), found {seconds:g}"
            )

        def cancelling(record: JobRecord) -> WorkflowCancelling | None:
            if record.workflow is not None and record.workflow.cancel_by is not None:
                return None
            return WorkflowCancelling(
                job_id=workflow_id,
                correlation_id=workflow_id,
                source=self._log.source,
                reason=reason[:_MAX_REASON_LENGTH],
                until=broker_time(self._bus) + timedelta(seconds=seconds),
                function=record.function,
            )

        view = await self.get(workflow_id)
        if not view.state.ended and seconds and may_clean_up(view.job.record):
            with suppress(_HasEnded):
                return await self._change(workflow_id, "cancelled", cancelling)
            return await self.get(workflow_id)
        await self._cancel(workflow_id, reason)
        return await self.get(workflow_id)


def may_clean_up(record: JobRecord) -> bool:
    """Whether the code of a workflow has begun, and can go on."""
    recorded = record.workflow
    if record.state is State.RUNNING:
        return True
    return recorded is not None and bool(recorded.entries) and not recorded.blocked


class _HasEnded(JobRefused):
    pass
