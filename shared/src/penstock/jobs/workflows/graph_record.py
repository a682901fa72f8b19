"""The life of a graph: one table of transitions, and the fold that walks it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from penstock.events.batch import Callbacks
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.graph import (
    GraphCancelled,
    GraphCarried,
    GraphCompleted,
    GraphEvent,
    GraphFailed,
    GraphReopened,
    GraphStarted,
    GraphStep,
    GraphStopping,
)
from penstock.jobs.errors import IllegalTransition
from penstock.jobs.sharing import carried_state, shared_fields, values


class GraphState(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (GraphState.RUNNING, GraphState.STOPPING)


class Edge(NamedTuple):
    """``event`` takes a graph from any of ``sources`` to ``target``; ``why`` is for people."""

    sources: tuple[GraphState | None, ...]
    event: type[GraphEvent]
    target: GraphState
    why: str


_R, _S = GraphState.RUNNING, GraphState.STOPPING
_F, _C = GraphState.FAILED, GraphState.CANCELLED
TRANSITIONS: tuple[Edge, ...] = (
    Edge((None,), GraphStarted, GraphState.RUNNING, "accepted"),
    Edge((_R,), GraphStopping, GraphState.STOPPING, "somebody cancelled it"),
    Edge((_R,), GraphCompleted, GraphState.COMPLETED, "its last step has completed"),
    Edge((_R,), GraphFailed, GraphState.FAILED, "a step failed, and no other runs"),
    Edge((_S,), GraphCancelled, GraphState.CANCELLED, "no step runs any more"),
    Edge((_F, _C), GraphReopened, GraphState.RUNNING, "somebody lets it go on where it ended"),
)

_BY_EVENT = {edge.event: edge for edge in TRANSITIONS}


class GraphRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A graph as its own events tell it; what its steps do is told by their jobs.

    Attributes:
        sequence: of its last event. first_sequence: of its start.
        failed_step / failed_job: where it failed, empty otherwise.
        round: how often it was reopened. is_shortened: its first events have left the log.
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


_CARRIED = shared_fields(GraphRecord, GraphCarried)


def carried(
    record: GraphRecord,
    source: str,
    slots: dict[int, int] | None = None,
    again: tuple[int, ...] = (),
    counted_to: int = 0,
) -> GraphCarried:
    """The event that takes the place of all that led to ``record``; see there."""
    return GraphCarried(
        graph_id=record.id,
        correlation_id=record.id,
        source=source,
        state=record.state,
        slots=slots,
        again=again,
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


def evolve(record: GraphRecord | None, event: GraphEvent, sequence: int) -> GraphRecord:
    """The record after ``event``, stored at ``sequence``.

    Raises:
        IllegalTransition: the event may not follow.
    """
    if isinstance(event, GraphCarried):
        if record is None:
            return _restored(event, sequence)
        return msgspec.structs.replace(record, sequence=sequence)
    edge = _BY_EVENT.get(type(event))
    state = record.state if record else None
    if edge is None or state not in edge.sources:
        raise IllegalTransition(
            f"graph {event.graph_id}: {event.name} may not follow state {state or 'nothing'}"
        )
    if record is None:
        assert isinstance(event, GraphStarted)
        return _started(event, sequence)
    moved = msgspec.structs.replace(record, state=edge.target, sequence=sequence)
    if edge.target.ended:
        moved = msgspec.structs.replace(moved, ended_at=event.at)
    match event:
        case GraphStopping() | GraphCancelled():
            moved = msgspec.structs.replace(moved, reason=event.reason)
        case GraphFailed():
            moved = msgspec.structs.replace(
                moved, reason=event.reason, failed_step=event.step, failed_job=event.job_id
            )
        case GraphReopened():
            moved = msgspec.structs.replace(
                moved, ended_at=None, reason="", failed_step="", failed_job="", round=event.round
            )
    return moved


def fold(events: Iterable[tuple[int, Event | UnknownEvent]]) -> GraphRecord | None:
    """The record after all ``(sequence, event)``; None when there are none.

    What cannot be read, or may not follow, moves the sequence and changes nothing else.
    """
    record: GraphRecord | None = None
    for sequence, event in events:
        record = advance(record, event, sequence)
    return record


def advance(
    record: GraphRecord | None, event: Event | UnknownEvent, sequence: int
) -> GraphRecord | None:
    """The record after whatever is stored at ``sequence``; see :func:`fold`."""
    if isinstance(event, GraphEvent):
        with suppress(IllegalTransition):
            return evolve(record, event, sequence)
    return record and msgspec.structs.replace(record, sequence=sequence)


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
    )
