"""What a workflow waits for, since when, and what lets it go on: in sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime

from penstock.events.job import JobCancelled
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.coded import memo
from penstock.jobs.workflows.step_view import StepView
from penstock.jobs.workflows.workflow_view import WorkflowView
from penstock.views import wording

_MOST_STEPS = 10
"""Steps that are described; of the others only their number is."""


def reasons(view: WorkflowView, now: datetime) -> Iterator[str]:
    """Sentences about a workflow, the most important first.

    Args:
        view: a workflow.
        now: what "since" is measured to.
    """
    if view.paused_at is not None:
        yield from _paused(view, now)
    if view.cancel_by is not None:
        reason = memo.cancel_reason(view.job.record.workflow or memo.EMPTY)
        why = f" ({reason})" if reason else ""
        yield (
            f"It is being cancelled{why}: its code may clean up, and it is cancelled at "
            f"{wording.clock(view.cancel_by)} in any case."
        )
    if view.ends_by is not None:
        ahead = wording.seconds(max(0.0, (view.ends_by - now).total_seconds()))
        yield f"Its timeout is over at {wording.clock(view.ends_by)} (in {ahead})."
    match view.state:
        case State.SUSPENDED if view.blocked:
            yield from _blocked(view, now)
        case State.SUSPENDED:
            yield from _suspended(view, now)
        case State.RUNNING:
            record = view.job.record
            yield (
                f"Its code runs on worker {record.worker} since {wording.clock(record.started_at)}."
            )
        case State.COMPLETED | State.DEAD | State.CANCELLED:
            yield from _ended(view)
        case _:
            yield from _queued(view, now)


def _paused(view: WorkflowView, now: datetime) -> Iterator[str]:
    assert view.paused_at is not None
    age = wording.seconds(max(0.0, (now - view.paused_at).total_seconds()))
    reason = f": {view.pause_reason}" if view.pause_reason else ""
    yield f"It is paused since {wording.clock(view.paused_at)} ({age}){reason}."
    yield f"'penstock workflow resume {view.id}' lets it go on; until then:"


def _ended(view: WorkflowView) -> Iterator[str]:
    record = view.job.record
    reason = _cancel_reason(view)
    if view.state is State.DEAD and record.error:
        reason = f"{wording.error(record.error.kind)}: {record.error.message}"
    yield wording.ended(view.state, record.finished_at, reason)
    if view.has_cleaned_up:
        yield "Its code knows that it was cancelled, and cannot go on: dispatch it anew."
    elif view.state is not State.COMPLETED:
        yield (
            f"'penstock job retry {view.id}' lets it go on from what it recorded; steps that "
            "completed do not run again."
        )


def _cancel_reason(view: WorkflowView) -> str:
    """Why one was cancelled that has ended so; empty for any other."""
    if view.state is not State.CANCELLED:
        return ""
    events = (event for _, event in reversed(view.job.events))
    last = next((event for event in events if isinstance(event, JobCancelled)), None)
    return last.reason if last else ""


def _queued(view: WorkflowView, now: datetime) -> Iterator[str]:
    record = view.job.record
    if view.paused_at is not None:
        yield "Its code runs next when it is resumed."
    elif record.available_at > now:
        yield f"Its next run is due at {wording.clock(record.available_at)}."
    else:
        age = wording.seconds((now - record.available_at).total_seconds())
        yield f"It waits for a worker of queue {record.queue} since {age}."
    if record.error:
        yield f"Its last run failed: {wording.error(record.error.kind)}: {record.error.message}"
    if view.job.handed_on:
        yield f"{view.job.handed_on}."


def _blocked(view: WorkflowView, now: datetime) -> Iterator[str]:
    since = view.blocked_since or now
    age = wording.seconds(max(0.0, (now - since).total_seconds()))
    yield f"It is blocked since {wording.clock(since)} ({age}): {view.blocked}"
    yield (
        "Nothing is lost, and no try is used. It goes on where code fits what it recorded: deploy "
        f"such code, or change what it goes on from: 'penstock workflow fix {view.id} --help'."
    )
    if view.goes_on_at:
        yield f"It is offered to a worker again at {wording.clock(view.goes_on_at)}."


def _suspended(view: WorkflowView, now: datetime) -> Iterator[str]:
    since = view.waiting_since or view.job.dispatched_at
    age = wording.seconds(max(0.0, (now - since).total_seconds()))
    waiting = view.waits_for
    yield f"It waits since {wording.clock(since)} ({age}) for {_condition(view)}."
    for step in waiting[:_MOST_STEPS]:
        yield _step(view, step, now)
    if len(waiting) > _MOST_STEPS:
        yield f"{len(waiting) - _MOST_STEPS} further steps have not ended."
    if view.inbox_full:
        yield (
            f"Its inbox is full: {view.inbox_full:,} signals not consumed. Later ones are not read "
            "until it consumes some."
        )
    if view.unread_signals:
        names = ", ".join(view.unread_signals[:_MOST_STEPS])
        yield f"Signals were sent that no step waits for now: {names}."
    ended = {step.key for step in view.steps if step.outcome != "waiting"}
    if view.paused_at is None and any(ended.issuperset(group) for group in view.wait):
        yield (
            "What it waits for has ended: the orchestrator lets it go on within a second. If it "
            "does not, see 'penstock health'."
        )


def _condition(view: WorkflowView) -> str:
    """``step charge``, ``all of 3 steps``, ``one of: all of 2 steps; step approved``."""
    groups = [
        f"step {group[0]}" if len(group) == 1 else f"all of {len(group)} steps"
        for group in view.wait
        if group
    ]
    if not groups:
        return "the next time that it is offered to a worker"
    return groups[0] if len(groups) == 1 else f"one of: {'; '.join(groups)}"


def _step(view: WorkflowView, step: StepView, now: datetime) -> str:
    if step.kind == "timer":
        return f"Timer {step.key} fires at {wording.clock(step.due_at)}{_ahead(step, now)}."
    if step.kind == "signal":
        until = (
            f"waits until {wording.clock(step.due_at)}{_ahead(step, now)}"
            if step.due_at
            else "waits without end"
        )
        if step.is_sent:
            return f"Signal {step.signal} was sent; {step.key} takes note of it when it goes on."
        return (
            f"Signal {step.signal} {_refused(view, step.signal) or 'was not sent'}, and {step.key} "
            f"{until}: 'penstock workflow signal {view.id} {shlex.quote(step.signal)} VALUE' "
            "sends it."
        )
    if step.kind == "batch":
        return f"Step {step.key} is a batch: see 'penstock batch show {step.batch_id}'."
    if not step.job_state:
        return f"Step {step.key} has no job yet; the orchestrator dispatches what a crash left out."
    if step.kind == "workflow":
        return (
            f"Step {step.key} is a workflow, {step.job_state}: see 'penstock workflow why "
            f"{step.job_id}'."
        )
    attempt = f", attempt {step.attempts}" if step.attempts else ""
    worker = f" on worker {step.worker}" if step.job_state == State.RUNNING and step.worker else ""
    return (
        f"Step {step.key} is {step.job_state}{attempt}{worker}: see 'penstock job show "
        f"{step.job_id}'."
    )


def _refused(view: WorkflowView, signal: str) -> str:
    """Why the last of these signals was passed over; empty where none was."""
    reasons = [refused.reason for refused in view.refused_signals if refused.signal == signal]
    if not reasons:
        return ""
    times = "" if len(reasons) == 1 else f" (the last of {len(reasons):,})"
    return f"was sent with a value that does not fit{times}: {reasons[-1]}"


def _ahead(step: StepView, now: datetime) -> str:
    ahead = (step.due_at - now).total_seconds() if step.due_at else 0.0
    return f" (in {wording.seconds(ahead)})" if ahead > 0 else ""
