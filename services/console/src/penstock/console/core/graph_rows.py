"""One row for each graph, chain and declared workflow, folded by their own transitions. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.console.core.log_entry import LogEntry, micros, micros_or_none
from penstock.events.graph import (
    GraphCancelled,
    GraphCarried,
    GraphCompleted,
    GraphEvent,
    GraphFailed,
    GraphPaused,
    GraphReopened,
    GraphResumed,
    GraphStarted,
    GraphStopping,
)
from penstock.jobs.event_store.event_sourcing import LifeCycle
from penstock.jobs.workflows.graph_record import TRANSITIONS, GraphState


class GraphRow(msgspec.Struct, frozen=True):
    """A graph as lists show it; times are microseconds since 1970.

    Attributes:
        definition: name of the stored definition that it was made from; empty for none.
        steps: how many it has.
    """

    id: str
    state: GraphState
    sequence: int
    title: str
    created_us: int
    ended_us: int | None = None
    definition: str = ""
    version: int = 0
    steps: int = 0
    reason: str = ""
    failed_step: str = ""
    failed_job: str = ""
    is_paused: bool = False


def advance(row: GraphRow | None, entry: LogEntry) -> GraphRow | None:
    """The row after an entry."""
    return _LIFE_CYCLE.advance(row, entry.event, entry.sequence)


def counted(row: GraphRow) -> tuple[str, str]:
    """Graphs are counted by state."""
    return "", row.state.value


def _begin(row: GraphRow | None, event: GraphEvent, sequence: int) -> GraphRow | None:
    match event:
        case GraphStarted():
            return GraphRow(
                id=event.graph_id,
                state=GraphState.RUNNING,
                sequence=sequence,
                title=event.title,
                created_us=micros(event.at),
                definition=event.definition,
                version=event.version,
                steps=len(event.steps),
            )
        case GraphCarried() if row is None and event.state in tuple(GraphState):
            return GraphRow(
                id=event.graph_id,
                state=GraphState(event.state),
                sequence=sequence,
                title=event.title,
                created_us=micros(event.started_at),
                ended_us=micros_or_none(event.ended_at),
                definition=event.definition,
                version=event.version,
                steps=len(event.steps),
                reason=event.reason,
                failed_step=event.failed_step,
                failed_job=event.failed_job,
                is_paused=event.paused_at is not None,
            )
    return None


def _changes(row: GraphRow, event: GraphEvent, _: int) -> dict[str, Any]:
    match event:
        case GraphPaused():
            return {"is_paused": True, "reason": event.reason}
        case GraphResumed():
            return {"is_paused": False, "reason": ""}
        case GraphStopping():
            return {"reason": event.reason, "is_paused": False}
        case GraphCompleted():
            return {"ended_us": micros(event.at)}
        case GraphFailed():
            failed = {"failed_step": event.step, "failed_job": event.job_id}
            return {"ended_us": micros(event.at), "reason": event.reason, **failed}
        case GraphCancelled():
            return {"ended_us": micros(event.at), "reason": event.reason}
        case GraphReopened():
            return {"ended_us": None, "reason": "", "failed_step": "", "failed_job": ""}
    return {}


_LIFE_CYCLE: LifeCycle[GraphState, GraphRow, GraphEvent] = LifeCycle(
    "graph", TRANSITIONS, GraphEvent, (GraphCarried,), _begin, _changes
)
