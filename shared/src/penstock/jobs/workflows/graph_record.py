"""The life of a graph: its states, its table of transitions, and its record. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from penstock.events.batch import Callbacks
from penstock.events.brief import brief, brief_fields
from penstock.events.graph import (
    GraphCancelled,
    GraphCarried,
    GraphCompleted,
    GraphElapsed,
    GraphEvent,
    GraphFailed,
    GraphPaused,
    GraphReopened,
    GraphResumed,
    GraphSignalled,
    GraphStarted,
    GraphStep,
    GraphStopping,
    GraphTimedOut,
    GraphWaiting,
    OnFailure,
    Signal,
)
from penstock.jobs.event_store.event_sourcing import (
    Edge,
    LifeCycle,
    carried_state,
    shared_fields,
    values,
)
from penstock.jobs.workflows import graph_waits
from penstock.jobs.workflows.declared.outcomes import Unreadable, read
from penstock.jobs.workflows.declared.progress import Plan


class GraphState(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (GraphState.RUNNING, GraphState.STOPPING)


_R, _S = GraphState.RUNNING, GraphState.STOPPING
_F, _C = GraphState.FAILED, GraphState.CANCELLED
TRANSITIONS: tuple[Edge[GraphState, GraphEvent], ...] = (
    Edge((None,), GraphStarted, GraphState.RUNNING, "accepted"),
    Edge((_R,), GraphWaiting, None, "the turn of steps has come that wait"),
    Edge((_R, _S), GraphSignalled, None, "someone sent a value"),
    Edge((_R,), GraphElapsed, None, "the time of steps that wait has come"),
    Edge((_R,), GraphTimedOut, GraphState.STOPPING, "it took longer than it may"),
    Edge((_R,), GraphStopping, GraphState.STOPPING, "a client cancelled it"),
    Edge((_R,), GraphCompleted, GraphState.COMPLETED, "its last step has completed"),
    Edge((_R, _S), GraphFailed, GraphState.FAILED, "a step failed or its time was up; none runs"),
    Edge((_S,), GraphCancelled, GraphState.CANCELLED, "no step runs any more"),
    Edge((_R,), GraphPaused, None, "a client paused it: no further step begins"),
    Edge((_R,), GraphResumed, None, "a client resumed it"),
    Edge((_F, _C), GraphReopened, GraphState.RUNNING, "a client resumed it where it ended"),
)


class GraphRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A graph as its own events add up; the state of a step is that of its job.

    Attributes:
        state: where it is in its life.
        sequence: of its last event.
        first_sequence: of its start.
        failed_step: the step at which it failed; empty otherwise.
        failed_job: the job of that step.
        round: how often it was reopened.
        is_shortened: its first events have left the log.
        on_failure, context, definition, version, digest: as in its start.
        waits: until when steps wait that began to, by their positions; None for ever.
        elapsed: those whose time has come.
        signals: the first of each name.
        timeout_seconds: how long it may take; 0 for no bound.
        deadline: when it will have taken that long.
        timed_out: it has.
        paused_at: since when it is paused; None where it is not.
        pause_reason: given by the person who paused it.
    """

    id: str
    state: GraphState
    sequence: int
    first_sequence: int
    steps: tuple[GraphStep, ...]
    title: str
    callbacks: Callbacks
    started_at: datetime
    ended_at: datetime | None = None
    reason: str = ""
    failed_step: str = ""
    failed_job: str = ""
    round: int = 0
    is_shortened: bool = False
    on_failure: OnFailure = "stop"
    context: bytes = b""
    definition: str = ""
    version: int = 0
    digest: str = ""
    waits: dict[int, datetime | None] = {}
    elapsed: tuple[int, ...] = ()
    signals: dict[str, Signal] = {}
    timeout_seconds: float = 0.0
    deadline: datetime | None = None
    timed_out: bool = False
    paused_at: datetime | None = None
    pause_reason: str = ""

    __repr__ = brief
    __rich_repr__ = brief_fields

    @property
    def is_paused(self) -> bool:
        """Whether no further step is to begin; one that is being cancelled is not paused."""
        return self.paused_at is not None and self.state is GraphState.RUNNING


_CARRIED = shared_fields(GraphRecord, GraphCarried)


def carried(
    record: GraphRecord,
    source: str,
    slots: dict[int, int] | None = None,
    requeued: tuple[int, ...] = (),
    counted_to: int = 0,
) -> GraphCarried:
    """The event that takes the place of all that led to ``record``; see there."""
    return GraphCarried(
        graph_id=record.id,
        correlation_id=record.id,
        source=source,
        state=record.state,
        slots=slots,
        again=requeued,
        counted_to=counted_to,
        **values(record, _CARRIED),
    )


def _restored(event: GraphCarried, sequence: int) -> GraphRecord:
    """Raises IllegalTransition: its state is of a later version."""
    state = carried_state(GraphState, event.state, f"graph {event.graph_id}")
    return GraphRecord(
        id=event.graph_id,
        state=state,
        sequence=sequence,
        is_shortened=True,
        **values(event, _CARRIED),
    )


def _begin(record: GraphRecord | None, event: GraphEvent, sequence: int) -> GraphRecord | None:
    match event:
        case GraphCarried() if record is None:
            return _restored(event, sequence)
        case GraphStarted():
            return _started(event, sequence)
    return None


def _started(event: GraphStarted, sequence: int) -> GraphRecord:
    return GraphRecord(
        id=event.graph_id,
        state=GraphState.RUNNING,
        sequence=sequence,
        first_sequence=sequence,
        steps=event.steps,
        title=event.title,
        callbacks=event.callbacks,
        started_at=event.at,
        on_failure=event.on_failure,
        context=event.context,
        definition=event.definition,
        version=event.version,
        digest=event.digest,
        timeout_seconds=event.timeout_seconds,
        deadline=_deadline(event.at, event.timeout_seconds),
    )


def _deadline(since: datetime, timeout_seconds: float) -> datetime | None:
    return since + timedelta(seconds=timeout_seconds) if timeout_seconds else None


def plan_of(record: GraphRecord) -> Plan:
    """What its steps wait for; one whose context cannot be read fails, with the reason."""
    context = read(record.context) if record.context else {}
    if isinstance(context, dict):
        return Plan(record.steps, record.on_failure, context)
    reason = context.reason if isinstance(context, Unreadable) else "it is no object"
    refusal = f"its context cannot be read: {reason}"
    return Plan(record.steps, record.on_failure, refusal=refusal)


_NOT_PAUSED: dict[str, Any] = {"paused_at": None, "pause_reason": ""}


def _changes(record: GraphRecord, event: GraphEvent, sequence: int) -> dict[str, Any]:
    match event:
        case GraphWaiting():
            return {"waits": graph_waits.with_begun(record, event.until)}
        case GraphSignalled():
            signal = Signal(value=event.value, signal_id=event.signal_id, at=event.at)
            return {"signals": graph_waits.with_signal(record, event.signal, signal)}
        case GraphElapsed():
            waiting = (position for position in event.steps if position in record.waits)
            return {"elapsed": tuple(sorted({*record.elapsed, *waiting}))}
        case GraphTimedOut():
            return {"reason": event.reason, "timed_out": True}
        case GraphStopping():
            return {"reason": event.reason}
        case GraphCompleted():
            return {"ended_at": event.at}
        case GraphCancelled():
            return {"ended_at": event.at, "reason": event.reason}
        case GraphFailed():
            return {
                "ended_at": event.at,
                "reason": event.reason,
                "failed_step": event.step,
                "failed_job": event.job_id,
            }
        case GraphReopened():
            return {
                "ended_at": None,
                "round": event.round,
                "timed_out": False,
                "reason": "",
                "failed_step": "",
                "failed_job": "",
                "deadline": _deadline(event.at, record.timeout_seconds),
                **graph_waits.begun_anew(record),
                **_NOT_PAUSED,
            }
        case GraphPaused():
            return {"paused_at": event.at, "pause_reason": event.reason}
        case GraphResumed():
            return {"deadline": _prolonged(record, event.at), **_NOT_PAUSED}
    return {}


def _prolonged(record: GraphRecord, now: datetime) -> datetime | None:
    """The deadline after a pause, which does not count."""
    if record.deadline is None or record.paused_at is None:
        return record.deadline
    return record.deadline + max(now - record.paused_at, timedelta(0))


_LIFE_CYCLE = LifeCycle("graph", TRANSITIONS, GraphEvent, (GraphCarried,), _begin, _changes)
evolve, fold = _LIFE_CYCLE.evolve, _LIFE_CYCLE.fold
ignored_events = _LIFE_CYCLE.ignored_events
