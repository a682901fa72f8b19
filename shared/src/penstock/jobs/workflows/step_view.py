"""The steps of a coded workflow as they are shown, read from what it recorded. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise

import msgspec

from penstock.events.job import JobError
from penstock.events.workflow_memo import (
    CANCEL_KEY,
    MemoEntry,
    Resolution,
    ScheduledStep,
    WorkflowMemo,
)
from penstock.jobs import derived_ids
from penstock.jobs.batches.batch_record import BatchRecord
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.reading.attempt_times import AttemptTimes, attempt_times

_OUTCOMES = {State.COMPLETED: "completed", State.DEAD: "failed", State.CANCELLED: "cancelled"}


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a workflow.

    Attributes:
        key: path of scopes, name and occurrence.
        kind: ``job``, ``batch``, ``timer``, ``signal`` or ``inline``.
        outcome: ``waiting``, or how it ended; ``given-up`` where the workflow went on without it,
            or ended before it.
        job_id: of a job; empty for anything else.
        batch_id: of a batch.
        since: when it was scheduled, or began.
        due_at: when a timer fires, or the wait for a signal ends.
        ended_at: when its job ended, else when the workflow took note of its end; None before.
        after: key of the step whose end let the workflow schedule this one; empty for the first.
        signal: name of the signal that is waited for.
        is_sent: that signal was sent, and the workflow has not taken note of it.
        job_state: of a job that was read; empty where it was not, or has no event (any more).
        attempts: of a job that was read.
        worker: that runs the job, or ran it last.
        times: of the last attempt of a job that was read.
        error: why it failed; empty where it did not.
        result_bytes: of its stored result, or of the value of its signal; None where it has none.
    """

    key: str
    kind: str
    outcome: str
    since: datetime
    job_id: str = ""
    batch_id: str = ""
    due_at: datetime | None = None
    ended_at: datetime | None = None
    after: str = ""
    signal: str = ""
    is_sent: bool = False
    job_state: str = ""
    attempts: int = 0
    worker: str = ""
    times: AttemptTimes = AttemptTimes()
    error: str = ""
    result_bytes: int | None = None

    def as_read(self, job: JobRecord | None, until: int = 0) -> StepView:
        """The same with what is known of its job now.

        Args:
            job: None where no event of it is stored (any more).
            until: sequence of the end of the workflow, which gave up what ended later; 0 for one
                that has not ended.
        """
        if job is None:
            return self
        outcome, ended_at = self.outcome, self.ended_at
        if job.state.ended:
            ended_at = job.finished_at or ended_at
            if outcome == "waiting":
                is_late = 0 < until < job.sequence
                outcome = "given-up" if is_late else _OUTCOMES[job.state]
        return msgspec.structs.replace(
            self,
            outcome=outcome,
            ended_at=ended_at,
            job_state=job.state.value,
            attempts=job.attempt,
            worker=job.worker,
            times=attempt_times(job),
            error=_text(job.error) or self.error,
            result_bytes=len(job.result) or self.result_bytes,
        )

    def as_counted(self, batch: BatchRecord) -> StepView:
        """The same with what is known of its batch now."""
        if not batch.state.ended:
            return self
        outcome = batch.state.value if self.outcome == "waiting" else self.outcome
        return msgspec.structs.replace(
            self, outcome=outcome, ended_at=batch.ended_at or self.ended_at
        )


def with_sent(steps: Iterable[StepView], unread: Iterable[str]) -> Iterator[StepView]:
    """The steps, of which those are marked whose signals were sent.

    Args:
        steps: in the order of their recording.
        unread: names of signals that no wait has consumed, each as often as it was sent.
    """
    left = Counter(unread)
    for step in steps:
        is_sent = step.kind == "signal" and step.outcome == "waiting" and left[step.signal] > 0
        left[step.signal] -= is_sent
        yield msgspec.structs.replace(step, is_sent=is_sent) if is_sent else step


def recorded_steps(workflow_id: str, memo: WorkflowMemo) -> list[StepView]:
    """All steps of a workflow in the order of their recording, without what their jobs know.

    What led to each is left to :func:`penstock.jobs.workflows.step_times.with_causes`.
    """
    ends = {end.key: (end, entry.now) for entry in memo.entries for end in entry.consumed}
    given_up = {n: entry.now for entry in memo.entries for n in entry.cancelled}
    scheduled_keys = {step.key for entry in memo.entries for step in entry.scheduled}
    scheduled_keys.add(CANCEL_KEY)  # no step
    steps: list[StepView] = []
    for entry, later in pairwise([*memo.entries, None]):
        assert entry is not None
        steps.extend(
            _at_once(end, entry.now) for end in entry.consumed if end.key not in scheduled_keys
        )
        if entry.inline is not None:
            steps.append(_inline(entry, later.now if later else entry.now))
        for scheduled in entry.scheduled:
            step = _scheduled(workflow_id, scheduled, entry.now, ends.get(scheduled.key))
            if step.outcome == "waiting" and scheduled.n in given_up:
                step = msgspec.structs.replace(
                    step, outcome="given-up", ended_at=given_up[scheduled.n]
                )
            steps.append(step)
    return steps


def _at_once(end: Resolution, now: datetime) -> StepView:
    """One whose end was there when it was first waited for: it was never scheduled."""
    kind = "timer" if end.outcome == "fired" else "signal"
    return StepView(
        key=end.key,
        kind=kind,
        outcome=end.outcome,
        since=now,
        ended_at=now,
        result_bytes=len(end.value) or None,
    )


def _inline(entry: MemoEntry, ended_at: datetime) -> StepView:
    result = entry.inline
    assert result is not None
    return StepView(
        key=result.key,
        kind="inline",
        outcome="failed" if result.error else "completed",
        since=entry.now,
        ended_at=ended_at,
        error=_text(result.error),
        result_bytes=len(result.value) or None,
    )


def _scheduled(
    workflow_id: str,
    step: ScheduledStep,
    since: datetime,
    end: tuple[Resolution, datetime] | None,
) -> StepView:
    resolution, ended_at = end or (None, None)
    step_id = derived_ids.step_id(workflow_id, step.n)
    return StepView(
        key=step.key,
        kind=step.kind,
        outcome=resolution.outcome if resolution else "waiting",
        since=since,
        job_id=step_id if step.is_job else "",
        batch_id=step_id if step.kind == "batch" else "",
        due_at=step.due_at,
        ended_at=ended_at,
        signal=step.digest if step.kind == "signal" else "",
        error=_text(resolution.error) if resolution else "",
        result_bytes=(len(resolution.value) or None) if resolution else None,
    )


def _text(error: JobError | None) -> str:
    return f"{error.kind}: {error.message}" if error else ""
