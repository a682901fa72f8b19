"""Workflows that run, as a part of the client: ``client.workflows``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, Outgoing
from penstock.events.envelope import encode
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects
from penstock.events.workflow import (
    MAX_SIGNAL_BYTES,
    SignalReceived,
    Status,
)
from penstock.jobs import derived_ids
from penstock.jobs.errors import JobRefused
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import encode_result
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.coded import memo

_AT_ONCE = 100
_OUTCOMES = {State.COMPLETED: "completed", State.DEAD: "failed", State.CANCELLED: "cancelled"}

Look = Callable[[str], Awaitable[JobView]]
Cancel = Callable[[str, str], Awaitable[JobView]]


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a workflow.

    Attributes:
        key: path of scopes, name and occurrence.
        kind: ``job``, ``timer``, ``signal`` or ``inline``.
        outcome: ``waiting``, or how it ended; ``given-up`` where the workflow went on without it,
            ``unrecorded`` where it ended with the workflow.
        job_id: of a job; empty for anything else.
        since: when it was scheduled, or recorded.
        due_at: when a timer fires, or the wait for a signal ends.
    """

    key: str
    kind: str
    outcome: str
    since: datetime
    job_id: str = ""
    due_at: datetime | None = None


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it is now.

    Attributes:
        job: its job, with result and error.
        version: as its author declared it when it was dispatched; 0 where that is unknown.
        steps: all that was recorded, in that order.
        status: what it shows of itself.
        blocked: why its code cannot go on; empty where it can.
    """

    job: JobView
    version: int
    steps: tuple[StepView, ...]
    status: Status
    blocked: str

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def state(self) -> State:
        return self.job.state

    @property
    def waits_for(self) -> tuple[StepView, ...]:
        """The steps that have not ended."""
        return tuple(step for step in self.steps if step.outcome == "waiting")


class Workflows:
    """Workflows that were dispatched.

    Args:
        log: the events of jobs.
        look: reads a job.
        cancel: cancels a job.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, log: JobLog, look: Look, cancel: Cancel
    ) -> None:
        self._bus, self._subjects, self._log = bus, subjects, log
        self._look, self._cancel = look, cancel

    async def get(self, workflow_id: str) -> WorkflowView:
        """A workflow as it is now: its steps, what it waits for and since when.

        Raises:
            NotFound: no event of it is stored (any more).
            JobRefused: it is another kind of job.
        """
        job = await self._look(workflow_id)
        first = next((event for _, event in job.events if isinstance(event, JobDispatched)), None)
        workflow_memo = job.record.workflow
        if workflow_memo is None and not (first and first.kind == "workflow"):
            raise JobRefused(f"job {workflow_id} is no workflow; client.job shows it")
        workflow_memo = workflow_memo or memo.EMPTY
        return WorkflowView(
            job=job,
            version=first.version if first else 0,
            steps=tuple(await bounded.gather(self._as_it_is(job.state), _steps(job), _AT_ONCE)),
            status=workflow_memo.status,
            blocked=workflow_memo.blocked,
        )

    def _as_it_is(self, state: State) -> Callable[[StepView], Awaitable[StepView]]:
        """A step that the workflow has not taken note of: its job may have ended since."""

        async def read(step: StepView) -> StepView:
            if step.outcome != "waiting":
                return step
            record = await self._log.read(step.job_id) if step.job_id else None
            if record is not None and record.state.ended:
                return msgspec.structs.replace(step, outcome=_OUTCOMES[record.state])
            return msgspec.structs.replace(step, outcome="unrecorded") if state.ended else step

        return read

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
            JobRefused: it has ended, and how; or the value cannot be sent.
            BusError: whether it was stored is unknown.
        """
        view = await self.get(workflow_id)
        if view.state.ended:
            raise JobRefused(f"workflow {workflow_id} takes no signal: it is {view.state}")
        try:
            body = encode_result(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise JobRefused(f"signal {name!r}: its value cannot be sent: {error}") from error
        limits = (
            (1 <= len(name) <= 64, "a name of 1 to 64 characters"),
            (len(signal_id) <= 64, "a signal_id of at most 64 characters"),
            (len(body) <= MAX_SIGNAL_BYTES, f"a value of at most {MAX_SIGNAL_BYTES} bytes"),
        )
        for holds, wanted in limits:
            if not holds:
                raise JobRefused(f"signal {name[:80]!r}: expected {wanted}")
        event = SignalReceived(
            workflow_id=workflow_id,
            source=self._log.source,
            signal=name,
            value=body,
            signal_id=signal_id,
        )
        await self._bus.append(Outgoing(self._subjects.event(event), encode(event)))

    async def cancel(self, workflow_id: str, reason: str = "cancelled by a client") -> WorkflowView:
        """Cancels a workflow that has not ended; the orchestrator cancels its steps.

        Returns:
            The workflow as it is then: one that ended first keeps its end.

        Raises:
            NotFound, BusError
            JobRefused: it is another kind of job, or changes too quickly.
        """
        await self.get(workflow_id)
        await self._cancel(workflow_id, reason)
        return await self.get(workflow_id)


def _steps(job: JobView) -> list[StepView]:
    workflow_memo = job.record.workflow or memo.EMPTY
    outcomes = {one.key: one.outcome for entry in workflow_memo.entries for one in entry.consumed}
    given_up = {n for entry in workflow_memo.entries for n in entry.cancelled}
    scheduled = memo.scheduled_steps(workflow_memo)
    steps = []
    for entry in workflow_memo.entries:
        for end in entry.consumed:
            if end.key not in scheduled:  # it had come before it was waited for
                kind = "timer" if end.outcome == "fired" else "signal"
                steps.append(StepView(key=end.key, kind=kind, outcome=end.outcome, since=entry.now))
        if entry.inline is not None:
            outcome = "failed" if entry.inline.error else "completed"
            key = entry.inline.key
            steps.append(StepView(key=key, kind="inline", outcome=outcome, since=entry.now))
        for step in entry.scheduled:
            left = "given-up" if step.n in given_up else "waiting"
            steps.append(
                StepView(
                    key=step.key,
                    kind=step.kind,
                    outcome=outcomes.get(step.key, left),
                    since=entry.now,
                    job_id=derived_ids.step_id(job.id, step.n) if step.kind == "job" else "",
                    due_at=step.due_at,
                )
            )
    return steps
