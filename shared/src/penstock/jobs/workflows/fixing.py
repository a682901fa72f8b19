"""Changing what a blocked workflow goes on from: recorded as an event, and offered at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from penstock.events.workflow import WorkflowFixed
from penstock.events.workflow_memo import ScheduledStep
from penstock.jobs import derived_ids
from penstock.jobs.errors import JobRefused, NotFound
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.workflows import near_names
from penstock.jobs.workflows.coded import memo
from penstock.jobs.workflows.coded.workflow_type import MAX_VERSION

_MAX_REASON_LENGTH = 500
MOST_KEYS = 1_000

Look = Callable[[str], Awaitable[JobView]]
CancelBatch = Callable[[str, str], Awaitable[Any]]


class Cancels(NamedTuple):
    """What cancels, by id and for a reason.

    Attributes:
        job: a job.
        batch: a batch.
    """

    job: Callable[[str, str], Awaitable[JobView]]
    batch: CancelBatch


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """One change; exactly one of the three is given.

    Attributes:
        forget: keys of steps whose record counts no more.
        version: of the code that is to run it from now on.
        accept: what was recorded counts although functions or arguments differ.
        reason: for people.
    """

    forget: tuple[str, ...] = ()
    version: int = 0
    accept: bool = False
    reason: str = ""

    def check(self) -> None:
        """Raises JobRefused: it is none."""
        if [bool(self.forget), bool(self.version), self.accept].count(True) != 1:
            raise JobRefused("a fix is one of: forget=[...], version=..., accept=True")
        if not 0 <= self.version <= MAX_VERSION:
            raise JobRefused(f"a version is 1 to {MAX_VERSION:,}, found {self.version}")
        if len(self.forget) > MOST_KEYS:
            raise JobRefused(f"at most {MOST_KEYS:,} steps are forgotten at once")


async def fix(log: JobLog, look: Look, cancels: Cancels, workflow_id: str, wanted: Fix) -> None:
    """Stores the change if the workflow is blocked, and what follows from it.

    A process that is killed in between leaves the queue message to the orchestrator. A job of a
    forgotten step that was not cancelled then runs to its end, and nothing waits for it.

    Args:
        log: the events of jobs.
        look: reads a job.
        cancels: cancels the jobs of steps.
        workflow_id: of the workflow.
        wanted: the change.

    Raises:
        NotFound, BusError
        JobRefused: it is not blocked, or has no such step.
    """
    wanted.check()

    async def change(view: JobView) -> list[ScheduledStep] | None:
        record = view.record
        forgotten = _living_jobs(record, wanted.forget)
        event = WorkflowFixed(
            job_id=workflow_id,
            correlation_id=workflow_id,
            source=log.source,
            queue=record.queue,
            function=record.function,
            reason=wanted.reason[:_MAX_REASON_LENGTH],
            forgotten=wanted.forget,
            version=wanted.version,
            accepts=wanted.accept,
        )
        after = await log.append_if(record, event)
        if after is None:
            return None
        await log.follow_up(after, await log.dispatch_trace(workflow_id))
        return forgotten

    steps = await compare_and_set(lambda: look(workflow_id), change, f"workflow {workflow_id}")
    for step in steps:
        cancel = cancels.batch if step.kind == "batch" else cancels.job
        with suppress(NotFound):  # a crash may have left its job out
            step_id = derived_ids.step_id(workflow_id, step.n)
            await cancel(step_id, f"workflow {workflow_id} does not wait for it any more")


def _living_jobs(record: JobRecord, keys: Sequence[str]) -> list[ScheduledStep]:
    """Steps among ``keys`` whose jobs are still waited for.

    Raises:
        JobRefused: the workflow cannot be fixed so.
    """
    if not record.is_workflow:
        raise JobRefused(f"job {record.id} is no workflow")
    recorded = record.workflow or memo.EMPTY
    if record.state is not State.SUSPENDED or not recorded.blocked:
        raise JobRefused(
            f"workflow {record.id} is not blocked but {record.state}; only what a blocked one goes "
            "on from can be changed"
        )
    _check_keys(record.id, keys, memo.recorded_keys(recorded))
    waiting = memo.open_steps(recorded)
    waited = [waiting[key] for key in keys if key in waiting]
    return [step for step in waited if step.is_job or step.kind == "batch"]


def _check_keys(workflow_id: str, keys: Iterable[str], recorded: set[str]) -> None:
    for key in keys:
        if key not in recorded:
            hint = near_names.hint(key, recorded) or "; 'penstock workflow show' lists them"
            raise JobRefused(f"workflow {workflow_id} has recorded no step {key[:80]!r}{hint}")
