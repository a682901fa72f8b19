"""How the steps of a graph stand, also those that have no job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.jobs.batches.slots import Slot
from penstock.jobs.job_view import missing_result
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads import encryption
from penstock.jobs.workflows import graph_waits
from penstock.jobs.workflows.declared.outcomes import Unreadable, read
from penstock.jobs.workflows.declared.progress import Progress
from penstock.jobs.workflows.declared.step_graph import positions_of
from penstock.jobs.workflows.declared.step_state import StepState
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
    """
    is_cancelled = graph.timed_out or graph.state in (GraphState.STOPPING, GraphState.CANCELLED)
    slots = {at: _SLOTS.get(record.state, Slot.PENDING) for at, record in jobs.items()}
    slots |= graph_waits.slots(graph)
    plan = plan_of(graph)
    of_jobs = {at: jobs[at] for at in positions_of(plan.graph.looked_into) if at in jobs}
    return plan.progress(slots, results(graph, of_jobs), is_cancelled=is_cancelled)


def results(graph: GraphRecord, jobs: Mapping[int, JobRecord]) -> dict[int, Any]:
    """The results of steps that have completed, or why they are not available; see above."""
    of_jobs = {position: _result(record) for position, record in jobs.items()}
    return of_jobs | {at: read(value) for at, value in graph_waits.values(graph).items()}


def _result(record: JobRecord) -> Any:
    if reason := missing_result(record):
        return Unreadable(reason)
    if encryption.is_sealed(record.result):
        return Unreadable("it is encrypted")
    return read(record.result)
