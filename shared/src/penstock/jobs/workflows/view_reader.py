"""Reads a coded workflow with all that is known of its steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from penstock.bus import bounded
from penstock.jobs.batches.client import Batches
from penstock.jobs.errors import NotFound
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.coded import consumed_signals, inbox, memo
from penstock.jobs.workflows.coded.consumed_signals import NONE_CONSUMED
from penstock.jobs.workflows.coded.inbox import Signal
from penstock.jobs.workflows.step_times import with_causes, with_exact_ends, with_last_ends
from penstock.jobs.workflows.step_view import StepView, with_sent
from penstock.jobs.workflows.workflow_view import WorkflowView, workflow_view

_AT_ONCE = 100

Look = Callable[[str], Awaitable[JobView]]


class ViewReader:
    """Reads workflows as they are now.

    Args:
        log: the events of jobs.
        look: reads a job.
        batches: reads those of `ctx.map`.
    """

    def __init__(self, log: JobLog, look: Look, batches: Batches) -> None:
        self._log, self._look, self._batches = log, look, batches

    async def read(self, workflow_id: str, with_attempts: bool = False) -> WorkflowView:
        """See :meth:`Workflows.get`."""
        view = workflow_view(await self._look(workflow_id))
        record = view.job.record
        recorded = record.workflow or memo.EMPTY
        until = record.sequence if view.state.ended else 0
        read = partial(self._as_it_is, with_attempts, until)
        steps = await bounded.gather(read, view.steps, _AT_ONCE)
        unread, sent_at, is_full = await self._signals(view, with_attempts)
        if view.state.ended:
            unread_at = [
                (one.name, sent_at.get(one.sequence, record.dispatched_at)) for one in unread
            ]
            finished_at = record.finished_at or record.dispatched_at
            has_completed = view.state is State.COMPLETED
            steps = with_last_ends(
                steps, recorded, finished_at, unread_at, has_completed=has_completed
            )
        else:
            steps = list(with_sent(steps, (signal.name for signal in unread)))
        steps = with_causes(list(with_exact_ends(steps, recorded, sent_at)), recorded)
        awaited = {step.signal for step in view.waits_for}
        names = dict.fromkeys(signal.name for signal in unread)
        is_waiting = not view.state.ended
        return replace(
            view,
            steps=tuple(steps),
            unread_signals=tuple(name for name in names if is_waiting and name not in awaited),
            inbox_full=len(unread) if is_waiting and is_full else 0,
        )

    async def _signals(
        self, view: WorkflowView, with_attempts: bool
    ) -> tuple[list[Signal], dict[int, datetime], bool]:
        """Signals that no wait has consumed, and when each was sent; whether there may be more.

        Read where the workflow waits for one, or has waited for one.
        """
        of_interest = view.steps if with_attempts else view.waits_for
        if not any(step.kind == "signal" for step in of_interest):
            return [], {}, False
        consumed = consumed_signals.of(view.job.record.workflow or memo.EMPTY)
        events, is_full = await self._log.inbox(view.id, consumed)
        sent_at = inbox.sent_at(events)
        if with_attempts:
            from_its_start = await self._log.inbox(view.id, NONE_CONSUMED)
            sent_at |= inbox.sent_at(from_its_start.events)
        return inbox.unread(events, consumed), sent_at, is_full

    async def _as_it_is(self, with_attempts: bool, until: int, step: StepView) -> StepView:
        """A step with what its job or batch knows: it may have ended, and not been noted yet."""
        if not with_attempts and step.outcome != "waiting":
            return step
        if step.job_id:
            return step.as_read(await self._log.read(step.job_id), until)
        if step.batch_id:
            try:
                return step.as_counted(await self._batches.show(step.batch_id))
            except NotFound:
                return step
        return step
