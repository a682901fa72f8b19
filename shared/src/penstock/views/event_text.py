"""Any event as one line of text: when, its subject, what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.events.batch import (
    BatchCancelled,
    BatchCarried,
    BatchClosed,
    BatchCompleted,
    BatchCreated,
    BatchFailed,
    BatchProgressed,
    BatchReopened,
    BatchStopping,
    Counts,
)
from penstock.events.dead import DeadLettersDeleted
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.forecasting import ForecastMade
from penstock.events.graph import (
    GraphCancelled,
    GraphCarried,
    GraphCompleted,
    GraphElapsed,
    GraphFailed,
    GraphPaused,
    GraphReopened,
    GraphResumed,
    GraphSignalled,
    GraphStarted,
    GraphStopping,
    GraphTimedOut,
    GraphWaiting,
)
from penstock.events.health import HealthChanged, HistoryBegins
from penstock.events.job import (
    JobCancelled,
    JobCarried,
    JobCommitted,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobFailed,
    JobMoved,
    JobProgressed,
    JobRecovered,
    JobReleased,
    JobRetrying,
    JobRevived,
    JobStarted,
    JobTagged,
)
from penstock.events.orders import (
    HostDrained,
    HostPaused,
    HostResumed,
    PoolHeld,
    PoolReleased,
    hold_bounds,
)
from penstock.events.queue import QueuePaused, QueueResumed
from penstock.events.scaling import (
    BudgetCapReached,
    HostCountAdvised,
    LeaderChanged,
    PolicySpoke,
    PromiseBurning,
    ScalingDecisionMade,
    ScalingIneffective,
    SlaBreached,
    SlaBreachLasts,
    SlaBreachPredicted,
    SlaRecovered,
    WorkersScaled,
)
from penstock.events.worker import (
    HostJoined,
    HostLeft,
    HostLost,
    WorkerCrashLooping,
    WorkerReady,
    WorkerStarted,
    WorkerStopped,
    WorkerStuck,
)
from penstock.events.workflow import (
    InboxCarried,
    MemoCarried,
    SignalReceived,
    StepRecorded,
    StepsScheduled,
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowCancelling,
    WorkflowContinued,
    WorkflowFixed,
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.events.workflow_memo import ScheduledStep
from penstock.views.wording import clock, memory, seconds


def line(event: Event | UnknownEvent) -> str:
    """``12:00:01 pool reports ScalingDecisionMade: 2 → 5 (at most 5 allowed)``."""
    if isinstance(event, UnknownEvent):
        return f"{'':8} {event.type} (of a later version)"
    return f"{clock(event.at)} {named(event)}"


def named(event: Event) -> str:
    """``pool reports ScalingDecisionMade: 2 → 5 (at most 5 allowed)``."""
    text, title = happened(event), f"{event.noun} {event.key} {event.name}"
    return f"{title}: {text}" if text else title


def happened(event: Event) -> str:
    """The event's content as text; empty where its name is all."""
    words = _WORDS.get(type(event))
    return words(event) if words else ""


def because(decision: ScalingDecisionMade) -> str:
    """The reason that settled the number: the last of the chain."""
    return decision.reasons[-1].text if decision.reasons else "no reason was recorded"


def _completed(event: JobCompleted) -> str:
    return f"attempt {event.attempt}, ran {seconds(event.run_seconds)}{_used(event)}"


def _attempt_error(event: JobFailed) -> str:
    text = f"attempt {event.attempt}: {event.error.kind}: {event.error.message}"
    return f"{text} (ran {seconds(event.run_seconds)}{_used(event)})"


def _used(event: JobCompleted | JobFailed) -> str:
    """CPU time and the process's peak of memory, as far as they were measured."""
    cpu = f", CPU {seconds(event.cpu_seconds)}" if event.cpu_seconds else ""
    peak = f", peak {memory(event.peak_memory_bytes)}" if event.peak_memory_bytes else ""
    return cpu + peak


def _started(event: JobStarted) -> str:
    waited = seconds(event.pickup_seconds)
    return f"attempt {event.attempt} by {event.worker} on {event.host}, after {waited}"


def _queue_paused(event: QueuePaused) -> str:
    text = event.reason or "for everyone"
    return f"{text}; until {clock(event.until)}" if event.until else text


def _stopped(event: WorkerStopped) -> str:
    job = f", gave back job {event.job_id}" if event.job_id else ""
    done = "" if event.jobs_done is None else f", ran {event.jobs_done} jobs"
    lived = seconds(event.lived_seconds)
    return f"{event.cause}, exit code {event.exit_code}, lived {lived}{done}{job}"


def _stuck(event: WorkerStuck) -> str:
    done = "" if event.strategy == "off" else f", recovered: {event.strategy}"
    return f"job {event.job_id}, score {event.score:.2f}{done}"


def _predicted(event: SlaBreachPredicted) -> str:
    late = seconds(event.predicted_pickup_seconds)
    return f"a job would start after {late}, promised {seconds(event.sla_seconds)}"


def _breached(event: SlaBreached) -> str:
    oldest = seconds(event.oldest_waiting_seconds)
    return f"the oldest job waits {oldest}, promised {seconds(event.sla_seconds)}"


def _burning(event: PromiseBurning) -> str:
    budget = event.budget
    late, jobs = budget.late + budget.waiting_late, budget.jobs + budget.waiting_late
    promise = f"{budget.quantile * 100:g} % within {seconds(budget.sla_seconds)}"
    return f"{event.pace}: {late} of {jobs} late, promised {promise}"


def _fixed(event: Any) -> str:
    done = [
        *(f"forgets {key}" for key in event.forgotten[:_STEPS_SHOWN]),
        *(["and further steps"] if len(event.forgotten) > _STEPS_SHOWN else []),
        *([f"goes on with version {event.version}"] if event.version else []),
        *(["what was recorded is accepted"] if event.accepts else []),
    ]
    return f"{', '.join(done)}{': ' if event.reason else ''}{event.reason}"


def _held(event: PoolHeld) -> str:
    bounds = hold_bounds(event.at_least, event.at_most)
    return f"{bounds} until {clock(event.until)}{': ' if event.reason else ''}{event.reason}"


def _dispatched(event: JobDispatched) -> str:
    due = f", due {clock(event.due_at)}" if event.due_at else ""
    return f"{event.function} on {event.queue}{due}"


def _first_failure(event: BatchFailed) -> str:
    if not event.failed_jobs or event.error is None:
        return ""
    return f"; first {event.failed_jobs[0]}: {event.error.kind}: {event.error.message[:200]}"


def _moved(event: JobMoved) -> str:
    reason = f": {event.reason}" if event.reason else ""
    return f"from queue {event.from_queue} to {event.queue}{reason}"


def _tagged(event: JobTagged) -> str:
    return ", ".join([*(f"+{tag}" for tag in event.added), *(f"-{tag}" for tag in event.removed)])


def _steps(steps: Sequence[ScheduledStep]) -> str:
    shown = [f"waits for {step.kind} {step.key}" for step in steps[:_STEPS_SHOWN]]
    rest = len(steps) - _STEPS_SHOWN
    return ", ".join([*shown, f"and {rest} more"] if rest > 0 else shown)


def _revived(event: JobRevived) -> str:
    arguments = "with other arguments" if event.changed else ""
    return ", ".join(part for part in (arguments, event.reason) if part)


def _counts(counts: Counts) -> str:
    return (
        f"{counts.completed} completed, {counts.failed} failed, {counts.cancelled} cancelled, "
        f"{counts.pending} pending"
    )


_STEPS_SHOWN = 5

_WORDS: dict[type[Event], Callable[[Any], str]] = {
    JobDispatched: _dispatched,
    JobStarted: _started,
    JobProgressed: lambda event: f"{event.done} of {event.total or '?'}",
    JobCommitted: lambda event: f"{event.output}: {event.location}",
    JobCompleted: _completed,
    JobFailed: _attempt_error,
    JobRetrying: lambda event: (
        f"attempt {event.attempt} at {clock(event.due_at)}"
        + (f": {event.put_off}" if event.put_off else "")
    ),
    QueuePaused: _queue_paused,
    QueueResumed: lambda _: "for everyone",
    JobReleased: lambda event: str(event.reason),
    JobRecovered: lambda event: (
        event.reason + (f"; again at {clock(event.due_at)}" if event.due_at else "")
    ),
    JobCancelled: lambda event: str(event.reason),
    JobDead: lambda event: f"{event.error.kind}: {event.error.message}",
    JobRevived: _revived,
    JobMoved: _moved,
    JobTagged: _tagged,
    JobCarried: lambda event: f"{event.state}; earlier events have left the log",
    WorkflowAdvanced: lambda event: _steps(event.scheduled) or "waits as before",
    StepsScheduled: lambda event: _steps(event.scheduled) or f"{len(event.consumed)} steps ended",
    StepRecorded: lambda event: (
        f"{event.inline.key}: {event.inline.error.message}"
        if event.inline.error
        else str(event.inline.key)
    ),
    WorkflowBlocked: lambda event: str(event.reason),
    WorkflowFixed: _fixed,
    WorkflowCancelling: lambda event: f"{event.reason}; until {clock(event.until)}",
    WorkflowContinued: lambda event: f"generation {event.generation}",
    WorkflowPaused: lambda event: str(event.reason),
    WorkflowResumed: lambda event: str(event.reason),
    SignalReceived: lambda event: str(event.signal),
    MemoCarried: lambda event: f"{len(event.entries)} entries of what it has recorded",
    InboxCarried: lambda event: (
        f"{len(event.signals)} signals, whose earlier events have left the log"
    ),
    DeadLettersDeleted: lambda event: f"{event.count}{': ' if event.reason else ''}{event.reason}",
    BatchCreated: lambda event: str(event.title),
    BatchClosed: lambda _: "no more jobs from outside",
    BatchProgressed: lambda event: _counts(event.counts),
    BatchStopping: lambda event: f"{event.cause}: {event.reason}",
    BatchCompleted: lambda event: _counts(event.counts),
    BatchFailed: lambda event: f"{event.reason} ({_counts(event.counts)}){_first_failure(event)}",
    BatchCancelled: lambda event: f"{event.reason} ({_counts(event.counts)})",
    BatchReopened: lambda event: f"round {event.round}",
    BatchCarried: lambda event: f"{event.state}; earlier events have left the log",
    GraphCarried: lambda event: f"{event.state}; earlier events have left the log",
    GraphStarted: lambda event: " ".join([event.title, f"{len(event.steps)} steps"]).strip(),
    GraphCompleted: lambda _: "all steps have completed",
    GraphWaiting: lambda event: (
        f"{len(event.until)} step{'s' if len(event.until) != 1 else ''} for a time or a signal"
    ),
    GraphSignalled: lambda event: str(event.signal),
    GraphElapsed: lambda event: (
        f"for {len(event.steps)} step{'s' if len(event.steps) != 1 else ''}"
    ),
    GraphTimedOut: lambda event: str(event.reason),
    GraphStopping: lambda event: str(event.reason),
    GraphFailed: lambda event: str(event.reason),
    GraphCancelled: lambda event: str(event.reason),
    GraphReopened: lambda event: f"round {event.round}",
    GraphPaused: lambda event: str(event.reason),
    GraphResumed: lambda event: str(event.reason),
    ForecastMade: lambda event: (
        f"{len(event.mean_per_second)} steps of {seconds(event.step_seconds)} by {event.model}"
        f"{'; not used: ' if event.off else ''}{event.off}"
    ),
    ScalingDecisionMade: lambda event: f"{event.current} → {event.target} ({because(event)})",
    SlaBreachPredicted: _predicted,
    SlaBreached: _breached,
    SlaRecovered: lambda event: f"after {seconds(event.breached_seconds)}",
    SlaBreachLasts: lambda event: (
        f"for {seconds(event.breached_seconds)}, {event.workers} workers {event.text}".rstrip()
    ),
    PromiseBurning: _burning,
    BudgetCapReached: lambda event: (
        f"{event.wanted} wanted, {event.workers} by budget: {event.spent_worker_hours:.1f} "
        f"of {event.worker_hours_per_day:g} worker-hours spent"
    ),
    ScalingIneffective: lambda event: (
        f"{event.workers:g} workers make jobs take {seconds(event.job_seconds)}, "
        f"{event.workers_before:g} did {seconds(event.job_seconds_before)}: the bottleneck is "
        f"elsewhere, held at {event.held_at}"
    ),
    PolicySpoke: lambda event: f"{event.policy}: {event.text}",
    HostCountAdvised: lambda event: event.text,
    WorkersScaled: lambda event: ", ".join(f"{pool} {n}" for pool, n in event.pools.items()),
    LeaderChanged: lambda event: f"epoch {event.epoch}",
    WorkerStarted: lambda event: f"{event.pool} on {event.host}, {event.cause}",
    WorkerReady: lambda event: (
        f"{event.pool} on {event.host}, after {seconds(event.spawn_seconds)}"
    ),
    WorkerStopped: _stopped,
    WorkerStuck: _stuck,
    WorkerCrashLooping: lambda event: (
        f"{event.pool}: {event.failures} failures, next start in {seconds(event.backoff_seconds)}"
    ),
    HistoryBegins: lambda event: f"at message {event.sequence}",
    HealthChanged: lambda event: ", ".join((f"{event.before} → {event.state}", *event.reasons)),
    HostJoined: lambda event: f"{event.cpu_cores:g} cores, {event.memory_bytes >> 20} MiB",
    PoolHeld: _held,
    PoolReleased: lambda _: "scaled by its settings again",
    HostPaused: lambda event: event.reason,
    HostDrained: lambda event: event.reason,
    HostResumed: lambda _: "takes workers again",
    HostLeft: lambda _: "in order, without workers left",
    HostLost: lambda event: f"silent for {seconds(event.silent_seconds)}",
}
