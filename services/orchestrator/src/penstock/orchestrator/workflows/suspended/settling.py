"""Settles suspended workflows: reads one where something is in doubt, and makes up for what a crash
left out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import nullcontext

from penstock import telemetry
from penstock.bus.protocol import Bus, BusRefused, PayloadTooLarge
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle
from penstock.jobs.client import Client
from penstock.jobs.event_store.dispatched import dispatched
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.workflows.coded import memo
from penstock.orchestrator.core.suspended import SuspendedWorkflow
from penstock.orchestrator.workflows.suspended.agenda import Agenda
from penstock.orchestrator.workflows.suspended.deadlines import Deadlines
from penstock.orchestrator.workflows.suspended.inbox_pace import InboxPace
from penstock.orchestrator.workflows.suspended.left_behind import has_timed_out, is_over
from penstock.orchestrator.workflows.suspended.remembered_waits import RememberedWaits
from penstock.orchestrator.workflows.suspended.step_jobs import StepJobs
from penstock.orchestrator.workflows.suspended.wake_ups import WakeUps
from penstock.orchestrator.workflows.suspended.workflow_meters import WorkflowMeters
from penstock.runtime.poison_messages import note, skipping_poison

_LARGE_BYTES, _LARGE_AT_ONCE = 300_000, 4
"""So much is remembered of a workflow with a thousand steps. It takes several times of it to read
one, and any key that stores events may have many of them read at one moment."""


class Settling:
    """Of all that wait, one at a time.

    Args:
        client: cancels those whose time is over.
        log: reads them.
        steps: reads and cancels their steps.
        unfinished: those that have not ended, by id; the ended are removed.
        agenda: of the rounds.
        remembered: bounds what is remembered of what they wait for.
        read_to: gives the sequence up to which the log was read.
        after_seconds: how long the worker that stored an advance may take to dispatch its steps.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        client: Client,
        log: JobLog,
        steps: StepJobs,
        wake_ups: WakeUps,
        meters: WorkflowMeters,
        unfinished: dict[str, SuspendedWorkflow],
        agenda: Agenda,
        remembered: RememberedWaits,
        read_to: Callable[[], int],
        after_seconds: float,
    ) -> None:
        self._bus, self._subjects, self._log, self._steps = bus, subjects, log, steps
        self._wake_ups, self._meters = wake_ups, meters
        self._unfinished, self._agenda, self._remembered = unfinished, agenda, remembered
        self._read_to, self._after_seconds = read_to, after_seconds
        self._deadlines = Deadlines(bus, client, log)
        self._inbox_pace = InboxPace()
        self._large_readings = asyncio.Semaphore(_LARGE_AT_ONCE)

    async def look_after(self, key: str, now: float) -> None:
        """Settles one; what any key may have stored of it must not hold up the others.

        Args:
            key: id of the workflow.
            now: POSIX seconds by the broker's clock.

        Raises:
            BusError
        """
        workflow = self._unfinished.get(key)
        is_large = workflow is not None and max(workflow.size, workflow.unread_bytes) > _LARGE_BYTES
        try:
            with skipping_poison(f"workflow {key}"):
                async with self._large_readings if is_large else nullcontext():
                    await self._settle(key, now)
                return
        except (BusRefused, PayloadTooLarge) as error:
            note(f"workflow {key}", error)
        if workflow := self._unfinished.get(key):
            workflow.checked(now, self._after_seconds)

    async def _settle(self, key: str, now: float) -> None:
        workflow = self._unfinished.get(key)
        if workflow is None:
            return
        if workflow.is_over:
            await self._cancel_steps(key, workflow, now)
            return
        if now >= min(workflow.cancel_by, workflow.ends_by):
            await self._end_in_time(key, workflow, now)
            return
        if now >= workflow.check_at and not await self._is_in_order(key, workflow):
            self._agenda.unknown.add(key)
        is_compared = key in self._agenda.unknown and self._may_compare(key, now)
        if not is_compared and await self._needs_no_reading(key, workflow, now):
            return
        sequence = workflow.sequence
        history, parent = await self._log.traced_history(key)
        record = lifecycle.fold(history)
        if record is None or record.state.ended:
            await self._settle_ended(key, workflow, record, now)
            return
        if workflow.sequence != sequence:  # it has changed while it was read
            self._agenda.touch(key)
            return
        if not _is_read(record, workflow, self._read_to()):
            workflow.checked(now, self._after_seconds)
            return
        workflow.read(record)
        if not self._meters.function(key):
            self._meters.suspended(key, record.function)
        trace = {"traceparent": parent} if parent else {}
        if is_compared:
            self._agenda.unknown.discard(key)
            with telemetry.within(trace):  # of what this dispatches
                await self._compare(key, workflow, record, now)
        if workflow.is_due and workflow.sequence == record.changed_by:
            await self._wake_ups.wake_read(workflow, record, trace, now)
        self._remembered.note(key, now)

    async def _needs_no_reading(self, key: str, workflow: SuspendedWorkflow, now: float) -> bool:
        """Whether nothing was to be done for a workflow, or it was woken by what is known of it."""
        if now >= workflow.check_at and key not in self._agenda.unknown:
            workflow.checked(now, self._after_seconds)
        if not workflow.is_due:
            return True
        return await self._wake_ups.wake(key, workflow, now)

    def _may_compare(self, key: str, now: float) -> bool:
        """Whether what is known of a workflow is compared with the log now, or in a later round."""
        is_allowed = self._inbox_pace.allows(key, now)
        if not is_allowed:
            self._agenda.put_off(key)
        return is_allowed

    async def _end_in_time(self, key: str, workflow: SuspendedWorkflow, now: float) -> None:
        """One whose time is over; what changed meanwhile is tried again at the next look."""
        if now >= workflow.cancel_by:
            if await self._deadlines.end_cleanup(key):
                workflow.cancel_by = math.inf
        elif await self._deadlines.end_whole(key):
            workflow.ends_by = math.inf

    async def _settle_ended(
        self, key: str, workflow: SuspendedWorkflow, record: JobRecord | None, now: float
    ) -> None:
        """One whose end was not seen, or was seen by an earlier process."""
        self._meters.forget(key)
        workflow.is_over = workflow.is_unread or workflow.has_living_jobs
        is_dead = record is None or (record.state is State.DEAD and not has_timed_out(record))
        if workflow.is_over and not is_dead:
            await self._cancel_steps(key, workflow, now)
        else:
            self._unfinished.pop(key, None)

    async def _is_in_order(self, key: str, workflow: SuspendedWorkflow) -> bool:
        """Whether what must exist does, as far as single events show it."""
        if workflow.is_unread:
            return False
        if workflow.is_woken:
            subject = self._subjects.events("job", key, "JobStarted")
            started = await self._bus.last(self._subjects.events_stream, subject)
            return started is not None and started.sequence > workflow.sequence
        if not workflow.checks and not await dispatched(self._bus, self._subjects, [key]):
            return False
        if not workflow.checks and workflow.awaits_batches:
            return False
        unseen = dict(workflow.unseen)
        if not await self._steps.were_dispatched(key, unseen, workflow.sequence):
            return False
        workflow.observed(unseen)
        return True

    async def _compare(
        self, key: str, workflow: SuspendedWorkflow, record: JobRecord, now: float
    ) -> None:
        """Takes what is so from the log, and makes up for what a crash left out."""
        workflow_memo = record.workflow or memo.EMPTY
        steps = memo.open_steps(workflow_memo).values()
        workflow.is_cancelling = bool(workflow_memo.cancelling)
        if workflow_memo.cancel_by is not None:
            workflow.cancel_by = workflow_memo.cancel_by.timestamp()
        elif workflow_memo.ends_by is not None:
            workflow.ends_by = workflow_memo.ends_by.timestamp()
        workflow.begin_comparing()
        ended, missing = await self._steps.read(key, steps)
        if any(step.kind == "signal" for step in steps):
            answered, events = await self._steps.answered(key, steps, workflow_memo)
            self._inbox_pace.was_read(key, events, now)
            ended |= dict.fromkeys(answered, True)
        if workflow.sequence != record.changed_by:  # it has changed while they were read
            self._agenda.compare_soon(key)
            return
        workflow.see_all(workflow_memo.wait, steps, ended)
        if now >= workflow.check_at:
            workflow.is_woken = False  # its message may be lost
            if missing and not workflow.is_paused:
                await self._steps.dispatch(key, missing)
            workflow.checked(now, self._after_seconds)
        given_up = memo.given_up_steps(workflow_memo)
        if given_up:
            reason = f"workflow {key} does not wait for it any more"
            await self._steps.cancel(key, {step.n: step.kind for step in given_up}, reason)

    async def _cancel_steps(self, key: str, workflow: SuspendedWorkflow, now: float) -> None:
        """At once, and once more later: its worker may be just about to dispatch some."""
        reason = f"workflow {key} was cancelled"
        record = await self._log.read(key)
        if not is_over(record):
            workflow.is_over = False
            self._agenda.compare_soon(key)  # its end was one that does not count
            return
        if record is not None and workflow.is_unread:
            recorded = record.workflow or memo.EMPTY
            steps = [*memo.open_steps(recorded).values(), *memo.given_up_steps(recorded)]
            workflow.see_all((), steps, {})
        await self._steps.cancel(key, workflow.kinds, reason)
        if workflow.checks or not workflow.kinds:
            self._unfinished.pop(key, None)
        workflow.checked(now, self._after_seconds)


def _is_read(record: JobRecord, workflow: SuspendedWorkflow, read_to: int) -> bool:
    """Whether a workflow is to be followed as it was read.

    Not if it goes on already, if an event of it is on its way through the log, or if it is
    blocked and thus offered again by its timer.
    """
    if record.state is not State.SUSPENDED or record.changed_by > read_to:
        return False
    is_blocked = record.workflow is not None and bool(record.workflow.blocked)
    return not is_blocked or record.changed_by == workflow.sequence
