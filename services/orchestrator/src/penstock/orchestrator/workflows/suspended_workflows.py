"""Wakes suspended workflows when what they wait for has come, and dispatches steps left out.

What this process holds follows the log, and only says where to look: before anything is stored, the
workflow is read again. So a wake-up may come twice or from two orchestrators: the second message
loses at the compare-and-set of the worker that takes it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Any

from penstock import telemetry
from penstock.bus import bounded
from penstock.bus.protocol import (
    Bus,
    BusError,
    BusRefused,
    PayloadTooLarge,
    Stored,
)
from penstock.events.batch import BATCH_EVENTS
from penstock.events.envelope import Codec, UnknownEvent
from penstock.events.job import JOB_EVENTS, JobCarried
from penstock.events.subjects import Subjects
from penstock.events.workflow import (
    InboxCarried,
    SignalReceived,
    StepsScheduled,
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowCancelling,
    WorkflowContinued,
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.events.workflow_memo import StepKind
from penstock.jobs import derived_ids, lifecycle
from penstock.jobs.client import Client
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.workflows.coded import inbox, memo
from penstock.orchestrator.core.suspended import SuspendedWorkflow
from penstock.orchestrator.workflows.step_jobs import StepJobs
from penstock.orchestrator.workflows.wake_ups import WakeUps
from penstock.orchestrator.workflows.workflow_meters import WorkflowMeters
from penstock.runtime.poison_messages import note, skipping_poison
from penstock.runtime.tasks import within
from penstock.telemetry.meters import Meters

log = logging.getLogger("penstock.orchestrator")

_ROUND_SECONDS = 0.25
_LOOK_SECONDS = 1.0
_WAKE_UPS_AFTER = 30
"""Times the patience after which a wake-up that led to no start is taken for lost: where a queue is
long, a second message would only make it longer."""
_AT_ONCE = 100
_OWN_EVENTS = (
    WorkflowAdvanced,
    StepsScheduled,
    WorkflowBlocked,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowCancelling,
    WorkflowContinued,
    JobCarried,
)
_OWN = tuple(event.__name__ for event in _OWN_EVENTS)
_ENDS = {"JobCompleted": True, "JobDead": False, "JobCancelled": False}
_ENDED = {state for state in State if state.ended}
_BATCH_ENDS = {"BatchCompleted": True, "BatchFailed": False, "BatchCancelled": False}
_REQUEUED = ("JobRevived", "BatchReopened")
_INBOX = (SignalReceived.__name__, InboxCarried.__name__)


class SuspendedWorkflows:
    """All that wait.

    Args:
        client: dispatches their steps; its source is that of their events.
        after_seconds: how long the worker that stored an advance may take to dispatch its steps.
        meters: what is counted is counted there; None for nowhere.

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
    ) -> None:
        self._meters = WorkflowMeters(meters or Meters(), bus.now)
        self._bus, self._subjects, self._client = bus, subjects, client
        self._log = JobLog(bus, subjects, client.dispatcher.source)
        self._wake_ups = WakeUps(bus, subjects)
        self._steps = StepJobs(bus, subjects, client, self._log)
        self._after_seconds = after_seconds
        self._woken = asyncio.Event()
        self._touched: set[str] = set()
        self._unknown: set[str] = set()
        self._next_check = self._next_due = 0.0
        self._left_behind: dict[str, dict[int, StepKind]] = {}
        self.position = 0
        self.unfinished: dict[str, SuspendedWorkflow] = {}

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
            self._compare_soon(key)

    def unsettled(self, keys: Iterable[str]) -> list[str]:
        """Those of these for which something came that has not led to their start yet."""
        pending = self._touched | self._unknown
        return [key for key in keys if key in pending or self.unfinished[key].is_unsettled]

    def function(self, key: str) -> str:
        """The function of a workflow, as it is counted."""
        return self._meters.function(key)

    def patterns(self) -> Sequence[str]:
        """What is read: the ends of jobs only while a workflow waits."""
        subjects = self._subjects
        own = [subjects.events("job", "*", name) for name in _OWN]
        if not self.unfinished:
            return own
        ends = [subjects.events("job", "*", name) for name in (*_ENDS, _REQUEUED[0])]
        ends += [subjects.events("batch", "*", name) for name in (*_BATCH_ENDS, _REQUEUED[1])]
        return [*own, *ends, *(subjects.events("workflow", "*", name) for name in _INBOX)]

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
                self._see_signal(key)
            elif name in _OWN:
                self._see_own(key, stored)
                if workflow := self.unfinished.get(key):
                    self._next_due = min(self._next_due, workflow.look_at)
            elif noun == "batch":
                self._see_step(key, name, stored, BATCH_EVENTS)
            else:
                self._see_job(key, name, stored)
        self.position = stored.sequence

    def _see_own(self, key: str, stored: Stored) -> None:
        before = self.unfinished.get(key)
        if before is not None and stored.sequence <= before.sequence:
            return  # an earlier process has seen it
        event = read_event(stored, JOB_EVENTS)
        check_at = stored.at.timestamp() + self._after_seconds
        if isinstance(event, JobCarried):
            self._see_carried(key, event, check_at)
        elif isinstance(event, WorkflowPaused | WorkflowResumed):
            workflow = self.unfinished.setdefault(key, SuspendedWorkflow(0, 0, check_at))
            if isinstance(event, WorkflowPaused):
                workflow.paused(stored.sequence)
                self._meters.paused(key)
            else:
                workflow.resumed(stored.sequence)
                self._meters.resumed(key, stored.at)
            self._compare_soon(key)
        elif isinstance(event, WorkflowContinued):
            self._see_continued(key)
        elif isinstance(event, WorkflowCancelling):
            workflow = self.unfinished.setdefault(key, SuspendedWorkflow(0, 0, check_at))
            workflow.cancelling(stored.sequence, event.until.timestamp())
            self._compare_soon(key)
        elif isinstance(event, WorkflowBlocked):
            self._meters.blocked(key, event)
        elif isinstance(event, StepsScheduled):
            running = SuspendedWorkflow(stored.sequence, 0, check_at)
            workflow = self.unfinished.setdefault(key, running)
            self._leave_behind(key, workflow, event.cancelled)
            workflow.see_part(event)
        elif isinstance(event, WorkflowAdvanced):
            self._meters.advanced(key, event, stored.at)
            workflow = self.unfinished.setdefault(key, SuspendedWorkflow(0, 0, check_at))
            self._leave_behind(key, workflow, event.cancelled)
            is_next = workflow.advance(event, stored.sequence, check_at)
            self._wake_ups.note(key, event, stored)
            if not is_next or workflow.signals or workflow.is_cancelling:
                self._compare_soon(key)  # ends, or signals, may have come before
            elif workflow.is_due:
                self._touch(key)

    def _see_continued(self, key: str) -> None:
        """A further generation begins: the steps of the one before are not waited for any more."""
        workflow = self.unfinished.pop(key, None)
        self._meters.forget(key)
        if workflow is not None and workflow.has_living_jobs:
            self._leave_behind(key, workflow, set(workflow.jobs.values()) - workflow.ended.keys())

    def _leave_behind(self, key: str, workflow: SuspendedWorkflow, numbers: Iterable[int]) -> None:
        """Has steps cancelled at once: the workflow may end before it is looked after."""
        kinds = {n: workflow.kinds[n] for n in numbers if n in workflow.kinds}
        if kinds:
            self._left_behind.setdefault(key, {}).update(kinds)
            self._touch(key)

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
                self._compare_soon(key)
        elif event.state in _ENDED and (step := derived_ids.step(key)):
            self._see_end(*step, completed=event.state == State.COMPLETED)

    def _see_end(self, key: str, n: int, *, completed: bool) -> None:
        if workflow := self.unfinished.get(key):
            workflow.see_end(n, completed=completed)
            if workflow.is_unread:
                self._compare_soon(key)
            elif workflow.is_due:
                self._touch(key)

    def _see_signal(self, key: str) -> None:
        workflow = self.unfinished.get(key)
        if workflow is not None and (workflow.signals or workflow.is_unread):
            self._compare_soon(key)  # it may be one that was sent before

    def _see_job(self, job_id: str, name: str, stored: Stored) -> None:
        """Most ends are those of plain jobs, and passed over unread."""
        if job_id in self.unfinished and name in _ENDS:
            self._see_own_end(job_id, name, stored)
        self._see_step(job_id, name, stored, JOB_EVENTS)

    def _see_step(self, step_id: str, name: str, stored: Stored, codec: Codec) -> None:
        """The end of a job or batch that may be a step, or that it lives again."""
        step = derived_ids.step(step_id)
        workflow = self.unfinished.get(step[0]) if step else None
        if step is None or workflow is None or isinstance(read_event(stored, codec), UnknownEvent):
            return
        if name in _REQUEUED:
            workflow.see_requeue(step[1])
        else:
            self._see_end(*step, completed=(_ENDS | _BATCH_ENDS)[name])
            self._meters.step_ended(*step, stored.at)

    def _see_own_end(self, key: str, name: str, stored: Stored) -> None:
        event = read_event(stored, JOB_EVENTS)
        if isinstance(event, UnknownEvent):
            return
        self._meters.ended(key, event, stored.at)
        workflow = self.unfinished[key]
        may_leave_jobs = workflow.has_living_jobs or workflow.is_unread
        if name != "JobDead" and may_leave_jobs:  # dead, it may be requeued
            workflow.is_over = True
            self._touch(key)
        else:
            del self.unfinished[key]

    def _compare_soon(self, key: str) -> None:
        self._unknown.add(key)
        self._touch(key)

    def _touch(self, key: str) -> None:
        self._touched.add(key)
        self._woken.set()

    # --- acting -----------------------------------------------------------------------------------
    async def act(self) -> None:
        """Wakes those that are due as soon as they are, without end."""
        is_away = False
        while True:
            await within(_ROUND_SECONDS, self._woken.wait())
            self._woken.clear()
            try:
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
        due = self._touched | self._late(now)
        self._touched = set()
        try:
            await self._cancel_left_behind()
            due -= await self._wake_at_once(due, now)
            await bounded.gather(lambda key: self._look_after(key, now), sorted(due), _AT_ONCE)
        except BusError:
            self._touched |= due
            raise

    async def _cancel_left_behind(self) -> None:
        while self._left_behind:
            key, steps = self._left_behind.popitem()
            reason = f"workflow {key} does not wait for it any more"
            try:
                with skipping_poison(f"workflow {key}"):
                    await self._steps.cancel(key, steps, reason)
            except BusError:
                self._left_behind[key] = {**steps, **self._left_behind.get(key, {})}
                raise

    async def _wake_at_once(self, keys: Iterable[str], now: float) -> set[str]:
        """Wakes those of which nothing is in doubt, together; returns their ids."""
        due = {
            key: workflow
            for key in keys
            if (workflow := self.unfinished.get(key)) is not None
            and workflow.is_due
            and key not in self._unknown
            and now < workflow.check_at
        }
        woken = await self._wake_ups.send_known(due)
        for key in woken:
            self._woke(key, due[key], now)
        return set(woken)

    def _late(self, now: float) -> set[str]:
        """Those whose time to be looked at has come; at most once a second, among all."""
        if now < max(self._next_check, self._next_due):
            return set()
        self._next_check = now + min(_LOOK_SECONDS, self._after_seconds / 4)
        self._next_due = min((one.look_at for one in self.unfinished.values()), default=math.inf)
        return {key for key, one in self.unfinished.items() if one.look_at <= now}

    async def _look_after(self, key: str, now: float) -> None:
        """Settles one; what any key may have stored of it must not hold up the others."""
        try:
            with skipping_poison(f"workflow {key}"):
                await self._settle(key, now)
                return
        except (BusRefused, PayloadTooLarge) as error:
            note(f"workflow {key}", error)
        if workflow := self.unfinished.get(key):
            workflow.checked(now, self._after_seconds)

    async def _settle(self, key: str, now: float) -> None:
        workflow = self.unfinished.get(key)
        if workflow is None:
            return
        if workflow.is_over:
            await self._cancel_steps(key, workflow, now)
            return
        if now >= workflow.cancel_by:
            await self._client.cancel(key, "it was cancelled, and its time to clean up is over")
            workflow.cancel_by = math.inf
            return
        if now >= workflow.check_at and not await self._is_in_order(key, workflow):
            self._unknown.add(key)
        if key not in self._unknown:
            if now >= workflow.check_at:
                workflow.checked(now, self._after_seconds)
            if not workflow.is_due:
                return
            if await self._wake_ups.send(key, workflow):
                self._woke(key, workflow, now)
                return
        history, parent = await self._log.traced_history(key)
        record = lifecycle.fold(history)
        if record is None or record.state.ended:
            await self._settle_ended(key, workflow, record, now)
            return
        if record.state is not State.SUSPENDED or record.changed_by != workflow.sequence:
            workflow.checked(now, self._after_seconds)
            return  # it goes on already, or its next advance is on its way through the log
        trace = {"traceparent": parent} if parent else {}
        if key in self._unknown:
            self._unknown.discard(key)
            with telemetry.within(trace):  # of what this dispatches
                await self._compare(key, workflow, record, now)
        if workflow.is_due:
            await self._wake_ups.send_of(record, trace)
            self._woke(key, workflow, now)

    async def _settle_ended(
        self, key: str, workflow: SuspendedWorkflow, record: JobRecord | None, now: float
    ) -> None:
        """One whose end was not seen, or was seen by an earlier process."""
        self._meters.forget(key)
        workflow.is_over = workflow.is_unread
        if workflow.is_over and record is not None and record.state is not State.DEAD:
            await self._cancel_steps(key, workflow, now)
        else:
            self.unfinished.pop(key, None)

    def _woke(self, key: str, workflow: SuspendedWorkflow, now: float) -> None:
        workflow.woken(now + _WAKE_UPS_AFTER * self._after_seconds)
        self._meters.woken(key, now)

    async def _is_in_order(self, key: str, workflow: SuspendedWorkflow) -> bool:
        """Whether what must exist does, as far as single events show it."""
        if workflow.is_unread:
            return False
        if workflow.is_woken:
            subject = self._subjects.events("job", key, "JobStarted")
            started = await self._bus.last(self._subjects.events_stream, subject)
            return started is not None and started.sequence > workflow.sequence
        numbers = set(workflow.unseen)
        if not await self._steps.were_dispatched(key, numbers):
            return False
        workflow.observed(numbers)
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
        ended, missing = await self._steps.read(key, steps)
        if any(step.kind == "signal" for step in steps):
            unread = await self._steps.unread(key, workflow_memo)
            ended |= dict.fromkeys(inbox.answered(steps, unread), True)
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
        record = await self._log.read(key) if workflow.is_unread else None
        if record is not None:
            recorded = record.workflow or memo.EMPTY
            steps = [*memo.open_steps(recorded).values(), *memo.given_up_steps(recorded)]
            workflow.see_all((), steps, {})
        await self._steps.cancel(key, workflow.kinds, reason)
        if workflow.checks or not workflow.kinds:
            self.unfinished.pop(key, None)
        workflow.checked(now, self._after_seconds)
