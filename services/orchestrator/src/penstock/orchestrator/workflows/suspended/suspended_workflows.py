"""Follows suspended workflows, and wakes them when what they wait for has come.

What this process holds follows the log, and only says where to look: before anything is stored, the
workflow is read again. So a wake-up may come twice or from two orchestrators: the second message
loses at the compare-and-set of the worker that takes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Any

from penstock.bus.protocol import Bus, BusError, Stored
from penstock.events.batch import BATCH_EVENTS
from penstock.events.envelope import Codec, UnknownEvent
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCarried,
    JobCompleted,
    JobDead,
    JobEvent,
)
from penstock.events.subjects import Subjects
from penstock.events.workflow import (
    INBOX_EVENTS,
    SignalReceived,
    StepsScheduled,
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowCancelling,
    WorkflowContinued,
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.events.workflow_memo import TIMED_OUT
from penstock.jobs import derived_ids
from penstock.jobs.client import Client
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.orchestrator.core.suspended import SuspendedWorkflow
from penstock.orchestrator.workflows.suspended import followed_events
from penstock.orchestrator.workflows.suspended.agenda import Agenda
from penstock.orchestrator.workflows.suspended.blocked_workflows import BlockedWorkflows
from penstock.orchestrator.workflows.suspended.doubted_events import DoubtedEvents, RunEvent
from penstock.orchestrator.workflows.suspended.left_behind import LeftBehind
from penstock.orchestrator.workflows.suspended.remembered_waits import (
    MOST_REMEMBERED_BYTES,
    RememberedWaits,
)
from penstock.orchestrator.workflows.suspended.rounds import Rounds
from penstock.orchestrator.workflows.suspended.settling import Settling
from penstock.orchestrator.workflows.suspended.step_jobs import StepJobs
from penstock.orchestrator.workflows.suspended.wake_ups import WakeUps
from penstock.orchestrator.workflows.suspended.workflow_meters import WorkflowMeters
from penstock.runtime.poison_messages import skipping_poison
from penstock.telemetry.meters import Meters

log = logging.getLogger("penstock.orchestrator")

_ROUND_SECONDS = 0.25
_IDLE_ROUND_SECONDS = 1.0
_DECODED = 6
"""Times the size of a body that its event takes in memory."""
_ENDED = {state for state in State if state.ended}


class SuspendedWorkflows:
    """All that wait.

    Args:
        client: dispatches their steps; its source is that of their events.
        after_seconds: how long the worker that stored an advance may take to dispatch its steps.
        meters: what is counted is counted there; None for nowhere.
        remembered_bytes: what is remembered of all that wait for more than a few steps, roughly.

    Attributes:
        position: sequence up to which the log was read.
        unfinished: those that have not ended, by id.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        client: Client,
        after_seconds: float = 10.0,
        meters: Meters | None = None,
        remembered_bytes: int = MOST_REMEMBERED_BYTES,
    ) -> None:
        self._meters = WorkflowMeters(meters or Meters(), bus.now)
        self._bus, self._subjects = bus, subjects
        job_log = JobLog(bus, subjects, client.dispatcher.source)
        steps = StepJobs(bus, subjects, client, job_log)
        self._wake_ups = WakeUps(bus, subjects, self._meters, after_seconds)
        self._blocked = BlockedWorkflows(bus, subjects, job_log, self._meters)
        self._after_seconds = after_seconds
        self._left_behind = LeftBehind(job_log, steps)
        self._doubts = DoubtedEvents(bus, subjects)
        self.position = 0
        self.unfinished: dict[str, SuspendedWorkflow] = {}
        self._agenda = Agenda(self.unfinished, after_seconds)
        self._remembered = RememberedWaits(
            self.unfinished, remembered_bytes, self._agenda.compare_soon
        )
        settling = Settling(
            bus,
            subjects,
            client,
            job_log,
            steps,
            self._wake_ups,
            self._meters,
            self.unfinished,
            self._agenda,
            self._remembered,
            lambda: self.position,
            after_seconds,
        )
        self._rounds = Rounds(
            self.unfinished,
            self._agenda,
            self._doubts,
            self._believe,
            self._left_behind,
            self._blocked,
            self._wake_ups,
            settling,
        )

    # --- events in --------------------------------------------------------------------------------
    def cursor(self) -> int:
        """Where a process that knows nothing must begin to read."""
        first = min((one.needed_from for one in self.unfinished.values()), default=None)
        return self.position + 1 if first is None else first

    def resume(self, start: int) -> None:
        """Goes on where an earlier process stood."""
        self.position = start - 1

    def restore(self, key: str, workflow: SuspendedWorkflow, function: str) -> None:
        """One that an earlier process followed."""
        self.unfinished[key] = workflow
        self._meters.suspended(key, function)
        if workflow.is_paused:
            self._meters.paused(key)

    def compare(self, keys: Iterable[str]) -> None:
        """Has these read again, before anything comes for them."""
        for key in keys:
            self._agenda.compare_soon(key)

    def unsettled(self, keys: Iterable[str]) -> list[str]:
        """Those of these for which something came that has not led to their start yet."""
        return [key for key in keys if key in self._agenda or self.unfinished[key].is_unsettled]

    def function(self, key: str) -> str:
        """The function of a workflow, as it is counted."""
        return self._meters.function(key)

    def patterns(self) -> Sequence[str]:
        """What is read: the ends of jobs only while a workflow waits."""
        return followed_events.patterns(self._subjects, reads_ends=bool(self.unfinished))

    async def follow(self) -> None:
        """Reads the event log without end."""
        while True:
            reads_ends = bool(self.unfinished)
            following: Any = self._bus.follow(
                self._subjects.events_stream, self.patterns(), self.position + 1
            )
            async with aclosing(following) as messages:
                async for stored in messages:
                    self.see(stored)
                    if bool(self.unfinished) is not reads_ends:
                        break  # the first begins to wait, or the last has ended

    def see(self, stored: Stored) -> None:
        """The next event of the log."""
        if stored.sequence <= self.position:
            return
        _, noun, key, name = stored.subject.rsplit(".", 3)
        with skipping_poison(f"event {stored.sequence}"):
            if noun == "workflow":
                self._see_signal(key, stored)
            elif name in followed_events.OWN:
                self._see_own(key, stored)
                self._remember(key)
            elif noun == "batch":
                self._see_step(key, name, stored, BATCH_EVENTS)
            else:
                self._see_job(key, name, stored)
        self.position = stored.sequence

    def _remember(self, key: str) -> None:
        """Something came for a workflow: its times, and what is known of it, may have changed."""
        if workflow := self.unfinished.get(key):
            self._remembered.note(key, self._bus.now())
            self._agenda.look_at(workflow.look_at)

    def _see_own(self, key: str, stored: Stored) -> None:
        before = self.unfinished.get(key)
        if before is not None and stored.sequence <= before.sequence:
            return  # an earlier process has seen it
        event = read_event(stored, JOB_EVENTS)
        check_at = stored.at.timestamp() + self._after_seconds
        if isinstance(event, RunEvent):
            self._see_run(key, before, event, stored)
        elif isinstance(event, JobCarried):
            self._see_carried(key, event, check_at)
        elif isinstance(event, WorkflowPaused | WorkflowResumed):
            workflow = self.unfinished.setdefault(key, SuspendedWorkflow(0, 0, check_at))
            if isinstance(event, WorkflowPaused):
                workflow.paused(stored.sequence)
                self._meters.paused(key)
            else:
                workflow.resumed(stored.sequence)
                self._meters.resumed(key, stored.at)
            self._agenda.compare_soon(key)
        elif isinstance(event, WorkflowCancelling):
            workflow = self.unfinished.setdefault(key, SuspendedWorkflow(0, 0, check_at))
            workflow.cancelling(stored.sequence, event.until.timestamp())
            self._agenda.compare_soon(key)
        elif isinstance(event, WorkflowBlocked):
            self._blocked.see(key, event)

    def _see_run(
        self, key: str, workflow: SuspendedWorkflow | None, event: RunEvent, stored: Stored
    ) -> None:
        """What may follow only while a workflow runs."""
        if self._doubts.is_expected(workflow, event, stored):
            self._believe(key, event, stored)
            return
        if workflow is None:  # where a restart must begin to read
            check_at = stored.at.timestamp() + self._after_seconds
            workflow = SuspendedWorkflow(stored.sequence - 1, 0, check_at)
            workflow.is_unread = True
            self.unfinished[key] = workflow
        workflow.unread_bytes = max(workflow.unread_bytes, _DECODED * len(stored.body))
        self._doubts.add(event, stored)
        self._agenda.touch(key)

    def _believe(self, key: str, event: RunEvent, stored: Stored) -> None:
        if isinstance(event, WorkflowContinued):
            self._see_continued(key, stored)
        elif isinstance(event, JobCompleted):
            self._see_end_of(key, event, stored)
        elif isinstance(event, StepsScheduled):
            self._see_part(key, event, stored)
        else:
            self._see_advance(key, event, stored)

    def _see_part(self, key: str, event: StepsScheduled, stored: Stored) -> None:
        check_at = stored.at.timestamp() + self._after_seconds
        running = SuspendedWorkflow(stored.sequence - 1, 0, check_at)
        running.is_woken = True
        workflow = self.unfinished.setdefault(key, running)
        self._leave_behind(key, workflow, event.cancelled)
        workflow.see_part(event)
        self._meters.scheduled(key, event, stored.at)

    def _see_advance(self, key: str, event: WorkflowAdvanced, stored: Stored) -> None:
        check_at = stored.at.timestamp() + self._after_seconds
        self._meters.advanced(key, event, stored.at)
        workflow = self.unfinished.setdefault(key, SuspendedWorkflow(0, 0, check_at))
        self._leave_behind(key, workflow, event.cancelled)
        is_next = workflow.advance(event, stored.sequence, check_at)
        self._wake_ups.note(key, event, stored)
        if not is_next or workflow.signals or workflow.is_cancelling:
            self._agenda.compare_soon(key)  # ends, or signals, may have come before
        elif workflow.is_due:
            self._agenda.touch(key)

    def _see_continued(self, key: str, stored: Stored) -> None:
        """A further generation begins: the steps of the one before are not waited for any more."""
        workflow = self.unfinished.pop(key, None)
        self._meters.forget(key)
        if workflow is not None and workflow.is_unread:
            self._left_behind.add_unknown(key, stored.sequence)
            self._agenda.touch(key)
        elif workflow is not None and workflow.has_living_jobs:
            self._leave_behind(key, workflow, set(workflow.jobs.values()) - workflow.ended.keys())

    def _leave_behind(self, key: str, workflow: SuspendedWorkflow, numbers: Iterable[int]) -> None:
        """Has steps cancelled at once: the workflow may end before it is looked after."""
        kinds = workflow.kinds
        abandoned = {n: kinds[n] for n in numbers if n in kinds}
        if abandoned:
            self._left_behind.add(key, abandoned)
            self._agenda.touch(key)

    def _see_carried(self, key: str, event: JobCarried, check_at: float) -> None:
        """The events that it takes the place of may have left the log unseen."""
        if event.workflow and event.state == State.SUSPENDED:
            before, advances = self.unfinished.get(key), event.workflow.advances
            if before is None or before.number < advances:
                self.unfinished[key] = SuspendedWorkflow(event.changed_by, advances, check_at)
                self._meters.suspended(key, event.function)
                if event.paused_at is not None:
                    self.unfinished[key].is_paused = True
                    self._meters.paused(key)
                self._agenda.compare_soon(key)
        elif event.state in _ENDED and (step := derived_ids.step(key)):
            self._see_end(*step, completed=event.state == State.COMPLETED)

    def _see_end(self, key: str, n: int, *, completed: bool) -> None:
        if workflow := self.unfinished.get(key):
            workflow.see_end(n, completed=completed)
            self._remember(key)
            if workflow.is_unread:
                self._agenda.compare_soon(key)
            elif workflow.is_due:
                self._agenda.touch(key)

    def _see_signal(self, key: str, stored: Stored) -> None:
        """One that nothing waits for is left in the inbox; it is read when something does."""
        workflow = self.unfinished.get(key)
        if workflow is None or workflow.is_woken or key in self._agenda.unknown:
            return
        event = read_event(stored, INBOX_EVENTS)
        is_awaited = isinstance(event, SignalReceived) and workflow.awaits(event.signal)
        if is_awaited or workflow.is_unread:
            self._agenda.compare_soon(key)  # it may be one that was sent before

    def _see_job(self, job_id: str, name: str, stored: Stored) -> None:
        """Most ends are those of plain jobs, and passed over unread."""
        if job_id in self.unfinished and name in followed_events.ENDS:
            self._see_own_end(job_id, stored)
        self._see_step(job_id, name, stored, JOB_EVENTS)

    def _see_step(self, step_id: str, name: str, stored: Stored, codec: Codec) -> None:
        """The end of a job or batch that may be a step, or that it lives again."""
        step = derived_ids.step(step_id)
        workflow = self.unfinished.get(step[0]) if step else None
        if step is None or workflow is None or isinstance(read_event(stored, codec), UnknownEvent):
            return
        if name in followed_events.REQUEUED:
            workflow.see_requeue(step[1])
            self._agenda.compare_soon(step[0])  # it may be one that does not count
        else:
            self._see_end(*step, completed=followed_events.STEP_ENDS[name])
            self._meters.step_ended(*step, stored.at)

    def _see_own_end(self, key: str, stored: Stored) -> None:
        workflow = self.unfinished[key]
        if stored.sequence <= workflow.sequence:
            return
        event = read_event(stored, JOB_EVENTS)
        if isinstance(event, JobCompleted):
            self._see_run(key, workflow, event, stored)
        elif isinstance(event, JobDead | JobCancelled):
            self._see_end_of(key, event, stored)

    def _see_end_of(self, key: str, event: JobEvent, stored: Stored) -> None:
        """The workflow's own. One that is dead or cancelled is so in whichever state it was."""
        self._meters.ended(key, event, stored.at)
        self._doubts.forget(key)
        workflow = self.unfinished.get(key)
        if workflow is None:
            return
        may_leave_jobs = workflow.has_living_jobs or workflow.is_unread
        is_dead = isinstance(event, JobDead) and event.error.kind != TIMED_OUT
        if not is_dead and may_leave_jobs:  # dead, it may be requeued
            workflow.is_over = True
            self._agenda.touch(key)
        else:
            del self.unfinished[key]

    # --- acting -----------------------------------------------------------------------------------
    async def act(self) -> None:
        """Wakes those that are due as soon as they are, without end."""
        is_away = False
        while True:
            await self._agenda.wait(_ROUND_SECONDS if self.unfinished else _IDLE_ROUND_SECONDS)
            try:
                with skipping_poison("a round of suspended workflows"):
                    await self.round(self._bus.now())
                is_away = False
            except BusError as error:
                if not is_away:
                    log.warning("workflows wait for the broker: %s", error)
                is_away = True
                await asyncio.sleep(_ROUND_SECONDS)

    async def round(self, now: float) -> None:
        """Looks after those of which something came, and those that were not looked at for long.

        Args:
            now: POSIX seconds by the broker's clock.

        Raises:
            BusError: what is left is looked at later.
        """
        await self._rounds.run(now)
