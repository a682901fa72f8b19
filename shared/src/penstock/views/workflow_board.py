"""Coded workflows as rows: a list, one with its steps, and the steps that its length came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec

from penstock.events.workflow_memo import Status
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import redaction
from penstock.jobs.reading.attempt_times import AttemptTimes
from penstock.jobs.workflows.step_view import StepView
from penstock.jobs.workflows.workflow_view import WorkflowView
from penstock.views.workflow_wait import reasons

BLOCKED, PAUSED = "blocked", "paused"


class WorkflowRow(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow in a list.

    Attributes:
        kind: ``coded``, or ``declared`` for a graph, also one that has no definition.
        function: of a coded one; definition or title of a graph.
        state: of its job or graph; ``paused`` where it does not go on until it is resumed,
            ``blocked`` where it is suspended because its code does not fit.
        waiting_since: when it last went on; None unless it is suspended.
        waits_for: the steps that it waits for, in a few words.
        advances: how often it was suspended.
        paused_at: since when it is paused; None where it is not.
        pause_reason: given by the person who paused it.
    """

    id: str
    kind: Literal["coded", "declared"] = "coded"
    state: str
    function: str
    version: int
    queue: str
    dispatched_at: datetime
    finished_at: datetime | None = None
    waiting_since: datetime | None = None
    waits_for: str = ""
    advances: int = 0
    status: Status = {}
    blocked: str = ""
    paused_at: datetime | None = None
    pause_reason: str = ""
    error: str = ""


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step.

    Attributes:
        state: how it ended; before that how its job is, ``waiting``, or ``not yet``.
        since: when it was scheduled, or began; None where its turn has not come.
        seconds: from then to its end, or until now.
        waited_seconds: of that, how long the last attempt of its job waited for a worker; None
            where that is not known, or it has no job of its own.
        ran_seconds: how long that attempt ran, or runs until now.
        after: key of the step whose end let the workflow schedule this one.
        critical: it lies on the critical path.
        needs: steps of a graph that must have ended before.
        runs: when a step of a graph runs, other than after all that it needs.
        result_bytes: of its stored result, or of the value of its signal; None where it has none,
            or that is not known.
    """

    key: str
    kind: str
    state: str
    since: datetime | None
    seconds: float
    waited_seconds: float | None = None
    ran_seconds: float | None = None
    ended_at: datetime | None = None
    due_at: datetime | None = None
    job_id: str = ""
    attempts: int = 0
    worker: str = ""
    after: str = ""
    error: str = ""
    critical: bool = False
    needs: tuple[str, ...] = ()
    runs: str = ""
    result_bytes: int | None = None


class WorkflowDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow with its steps.

    Attributes:
        critical_path: keys of the steps that its length came from, each after the one before.
        why: sentences: what it waits for, since when, and what lets it go on.
        trace_id: of its dispatch, its advances and its steps; empty if not traced.
    """

    workflow: WorkflowRow
    steps: tuple[StepRow, ...]
    critical_path: tuple[str, ...]
    why: tuple[str, ...]
    arguments: Any
    result: Any
    trace_id: str = ""


def workflow_row(view: WorkflowView) -> WorkflowRow:
    """A workflow as one entry of a list."""
    record = view.job.record
    is_blocked = bool(view.blocked) and view.state is State.SUSPENDED
    return WorkflowRow(
        id=view.id,
        state=PAUSED if view.paused_at else BLOCKED if is_blocked else view.state.value,
        function=record.function,
        version=view.version,
        queue=record.queue,
        dispatched_at=record.dispatched_at,
        finished_at=record.finished_at if view.state.ended else None,
        waiting_since=view.waiting_since,
        waits_for=_in_words(view.waits_for) if view.state is State.SUSPENDED else "",
        advances=view.advances,
        status=_status(view),
        blocked=view.blocked if is_blocked else "",
        paused_at=view.paused_at,
        pause_reason=view.pause_reason,
        error=f"{record.error.kind}: {record.error.message}" if record.error else "",
    )


def _status(view: WorkflowView) -> Status:
    """As the view has it, unless that was decrypted."""
    recorded = view.job.record.workflow
    return redaction.status(recorded) if recorded and recorded.sealed_status else view.status


def workflow_detail(view: WorkflowView, now: datetime) -> WorkflowDetail:
    """A workflow with its steps.

    Args:
        view: read with attempts, else the times and attempts of ended steps are not known.
        now: until which the steps that have not ended are measured.
    """
    path = critical_path(view)
    record = view.job.record
    return WorkflowDetail(
        workflow=workflow_row(view),
        steps=tuple(step_row(step, now, critical=step.key in path) for step in view.steps),
        critical_path=path,
        why=tuple(reasons(view, now)),
        arguments=redaction.arguments(record.payload),
        result=redaction.result(record.result, record.payload),
        trace_id=view.job.trace_id,
    )


def step_row(step: StepView, now: datetime, *, critical: bool = False) -> StepRow:
    """A step as one entry of a list."""
    until = step.ended_at or now
    return StepRow(
        key=step.key,
        kind=step.kind,
        state=step_state(step),
        since=step.since,
        seconds=max(0.0, (until - step.since).total_seconds()),
        waited_seconds=step.times.waited_seconds,
        ran_seconds=ran_seconds(step.times, now),
        ended_at=step.ended_at,
        due_at=step.due_at,
        job_id=step.job_id,
        attempts=step.attempts,
        worker=step.worker,
        after=step.after,
        error=step.error,
        critical=critical,
        result_bytes=step.result_bytes,
    )


def ran_seconds(times: AttemptTimes, now: datetime) -> float | None:
    """How long an attempt ran, or runs until now."""
    if times.running_since is None:
        return times.ran_seconds
    return max(0.0, (now - times.running_since).total_seconds())


def step_state(step: StepView) -> str:
    """How a step ended; before that, how its job is, or that its signal was sent."""
    if step.is_sent:
        return "sent"
    return step.job_state or step.outcome if step.outcome == "waiting" else step.outcome


def critical_path(view: WorkflowView) -> tuple[str, ...]:
    """Keys of the steps that a workflow's length came from.

    The last is the step that it waits for longest, else the one that ended last; before each stands
    the one whose end led to it.
    """
    last = _last(view)
    by_key = {step.key: step for step in view.steps}
    path: list[str] = []
    while last is not None and last.key not in path:
        path.append(last.key)
        last = by_key.get(last.after)
    return tuple(reversed(path))


def _last(view: WorkflowView) -> StepView | None:
    waiting = list(view.waits_for)
    if view.state is State.CANCELLED:  # which interrupted what it waited for
        waiting = [step for step in view.steps if step.ended_at == view.job.record.finished_at]
    if waiting:
        return min(waiting, key=lambda step: step.since)
    ended = [step for step in reversed(view.steps) if step.outcome != "given-up"]
    return max(ended, key=lambda step: step.ended_at or step.since, default=None)


def _in_words(steps: Iterable[StepView]) -> str:
    """``job charge``, ``signal approved, 2 timers``."""
    waiting = list(steps)
    counts = Counter(step.kind for step in waiting)
    names = {step.kind: step.signal or step.key for step in waiting}
    return ", ".join(
        f"{kind} {names[kind]}" if count == 1 else f"{count} {kind}s"
        for kind, count in counts.items()
    )
