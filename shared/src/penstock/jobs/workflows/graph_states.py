"""How the steps of a graph stand, also those that have no job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.jobs.batches.slots import Slot
from penstock.jobs.job_view import missing_result
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads import encryption
from penstock.jobs.workflows.declared.progress import Progress, StepState, Unreadable
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState, plan_of

_SLOTS = {
    State.COMPLETED: Slot.COMPLETED,
    State.DEAD: Slot.FAILED,
    State.CANCELLED: Slot.CANCELLED,
}


def step_states(graph: GraphRecord, jobs: Mapping[int, JobRecord]) -> tuple[StepState, ...]:
    """The state of each step, by position; see :func:`progress`."""
    return progress(graph, jobs).states


def progress(graph: GraphRecord, jobs: Mapping[int, JobRecord]) -> Progress:
    """How far a graph is, as the orchestrator comes to it.

    Args:
        graph: as it is now.
        jobs: those that were dispatched, by the positions of their steps.

    Raises:
        ValueError: its context cannot be read.
    """
    return plan_of(graph).progress(
        {position: _SLOTS.get(record.state, Slot.PENDING) for position, record in jobs.items()},
        {position: _result(record) for position, record in jobs.items()},
        is_cancelled=graph.state in (GraphState.STOPPING, GraphState.CANCELLED),
    )


def _result(record: JobRecord) -> Any:
    if reason := missing_result(record):
        return Unreadable(reason)
    if encryption.is_sealed(record.result):
        return Unreadable("it is encrypted")
    try:
        return msgspec.msgpack.decode(record.result) if record.result else None
    except (ValueError, RecursionError) as error:
        return Unreadable(str(error))
