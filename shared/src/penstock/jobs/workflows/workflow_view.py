"""A coded workflow as it is shown: its job, its steps, and what it waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from penstock.events.workflow_memo import (
    MAX_STATUS_LENGTH,
    RefusedSignal,
    Status,
    WorkflowMemo,
)
from penstock.jobs.errors import JobRefused, MissingKey, Undecryptable
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload
from penstock.jobs.workflows.coded import consumed_signals, memo
from penstock.jobs.workflows.coded.secrets import NONE, Secrets
from penstock.jobs.workflows.step_times import with_causes
from penstock.jobs.workflows.step_view import StepView, recorded_steps


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it is now.

    Attributes:
        job: its job, with result and error.
        version: of the code that recorded last, else that it was dispatched with; 0 where that is
            unknown.
        steps: all that was recorded, in that order.
        status: what it shows of itself.
        blocked: why no code goes on with it; empty where some does.
        blocked_since: since when.
        advances: how often it was suspended.
        wait: keys of steps, in groups; a suspended one goes on when all steps of one group ended.
        waiting_since: when a suspended one last went on; None where it is not suspended.
        goes_on_at: when a suspended one goes on in any case; None where it has no such time.
        generation: how often it began anew; steps and advances are those of this generation.
        cancel_by: it is being cancelled, and is in any case then; None where it is not.
        ends_by: when it takes longer than its timeout, and is cancelled; None where it has none,
            has ended, or is being cancelled.
        paused_at: since when no advance is started; None where it is not paused.
        pause_reason: given by the person who paused it.
        refused_signals: that it passed over, since their values were of another type than what it
            waited for; the last 100 with the reason, oldest first.
        unread_signals: names of those that were sent, and that no step waits for; read where it
            waits for another one.
        inbox_full: how many signals are not consumed, where no more are read; 0 where more may be
            sent.
        has_cleaned_up: it is cancelled, and its code was given ``Cancelled``: requeued, it ends
            likewise.
    """

    job: JobView
    version: int
    steps: tuple[StepView, ...]
    status: Status
    blocked: str
    blocked_since: datetime | None = None
    advances: int = 0
    wait: tuple[tuple[str, ...], ...] = ()
    waiting_since: datetime | None = None
    goes_on_at: datetime | None = None
    generation: int = 0
    cancel_by: datetime | None = None
    ends_by: datetime | None = None
    paused_at: datetime | None = None
    pause_reason: str = ""
    refused_signals: tuple[RefusedSignal, ...] = ()
    unread_signals: tuple[str, ...] = ()
    inbox_full: int = 0
    has_cleaned_up: bool = False

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


def workflow_view(job: JobView) -> WorkflowView:
    """A workflow by its own events; how the jobs of its steps are is not looked at.

    Raises:
        JobRefused: it is another kind of job, or ended so long ago that only its end is known.
    """
    record = job.record
    if record.state.ended and not record.function:
        raise JobRefused(
            f"the beginning of job {job.id} has left the event log; 'penstock job show', or "
            "client.job, shows how it ended"
        )
    if not record.is_workflow:
        raise JobRefused(
            f"job {job.id} is no workflow; 'penstock job show', or client.job, shows it"
        )
    recorded = record.workflow or memo.EMPTY
    is_suspended = record.state is State.SUSPENDED
    last = recorded.entries[-1].now if recorded.entries else record.dispatched_at
    keys = {step.n: key for key, step in memo.scheduled_steps(recorded).items()}
    return WorkflowView(
        job=job,
        version=record.code_version,
        steps=tuple(with_causes(recorded_steps(job.id, recorded), recorded)),
        status=_status(job, recorded),
        blocked=recorded.blocked,
        blocked_since=recorded.blocked_since,
        advances=recorded.advances,
        wait=tuple(tuple(_keys(group.steps, keys)) for group in recorded.wait),
        waiting_since=last if is_suspended else None,
        goes_on_at=record.wakes_at if is_suspended else None,
        generation=recorded.generation,
        cancel_by=None if record.state.ended else recorded.cancel_by,
        ends_by=None if record.state.ended or recorded.cancel_by else recorded.ends_by,
        paused_at=record.paused_at if record.is_paused else None,
        pause_reason=record.pause_reason if record.is_paused else "",
        refused_signals=tuple(consumed_signals.refused(recorded)),
        has_cleaned_up=record.state is State.CANCELLED and memo.knows_of_cancel(recorded),
    )


def workflow_secrets(job: JobView) -> Secrets:
    """What seals and opens the values of a workflow; nothing where its call cannot be read."""
    try:
        return Secrets(job.ring, payload.decode(job.record.payload))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return NONE


def _status(job: JobView, recorded: WorkflowMemo) -> Status:
    """What a workflow shows of itself, as far as this process may read it."""
    secrets = workflow_secrets(job).of_generation(recorded.generation)
    if not recorded.sealed_status and not secrets.are_sealed:
        return recorded.status
    if not recorded.sealed_status:
        return {"status": "(not encrypted, and its workflow is)"} if recorded.status else {}
    try:
        return secrets.opened_status(recorded.sealed_status)
    except (MissingKey, Undecryptable, msgspec.MsgspecError) as error:
        return {"status": f"(encrypted: {error})"[:MAX_STATUS_LENGTH]}


def _keys(numbers: Iterable[int], keys: dict[int, str]) -> list[str]:
    return [keys[n] for n in numbers if n in keys]
