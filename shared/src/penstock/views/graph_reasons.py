"""What a graph waits for, since when, and what lets it go on: in sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.declared.step_state import ENDED
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.views import wording
from penstock.views.workflow_board import StepRow

UNDOES = "undoes "
"""Before the name of the step that another one compensates."""
_MOST_STEPS = 10
"""Steps that are described; of the others only their number is."""


def goes_on(row: StepRow) -> bool:
    """Whether a step has begun and not ended."""
    return row.since is not None and row.ended_at is None


def reasons(graph: GraphRecord, rows: Sequence[StepRow], now: datetime) -> Iterator[str]:
    """Sentences about a graph, the most important first.

    Args:
        graph: as it is now.
        rows: its steps.
        now: what "since" is measured to.
    """
    if graph.is_paused and graph.paused_at is not None:
        age = wording.seconds(max(0.0, (now - graph.paused_at).total_seconds()))
        reason = f": {graph.pause_reason}" if graph.pause_reason else ""
        yield f"It is paused since {wording.clock(graph.paused_at)} ({age}){reason}."
        yield f"'penstock workflow resume {graph.id}' lets it go on; until then:"
    if graph.state.ended:
        yield wording.ended(graph.state, graph.ended_at, graph.reason)
        if graph.state in (GraphState.FAILED, GraphState.CANCELLED):
            yield _way_on(graph, rows)
        return
    going_on = [row for row in rows if goes_on(row)]
    for row in going_on[:_MOST_STEPS]:
        yield _sentence(graph.id, row, now)
    if len(going_on) > _MOST_STEPS:
        yield f"{len(going_on) - _MOST_STEPS:,} further steps have not ended."
    by_key = {row.key: row for row in rows}
    held = [row for row in rows if row.state == "not yet" and _is_next(row, by_key)]
    for row in held[:_MOST_STEPS]:
        open_needs = [need for need in row.needs if not _has_ended(by_key[need])]
        if open_needs:
            yield f"Step {row.key} waits for {few(open_needs)}."
        else:
            yield f"Step {row.key} is due; the orchestrator dispatches it within a second."
    if graph.deadline is not None:
        yield f"It may take until {wording.clock(graph.deadline)}."


def _way_on(graph: GraphRecord, rows: Iterable[StepRow]) -> str:
    """What to do with one that failed or was cancelled."""
    if graph.is_shortened:
        cause = "The results of its steps have left the event log"
    elif any(row.runs.startswith(UNDOES) and row.since is not None for row in rows):
        cause = "Steps that had completed were undone"
    else:
        return f"'penstock graph retry-failed {graph.id}' continues it where it ended."
    return f"{cause}: it cannot be continued, start it anew."


def _is_next(row: StepRow, by_key: Mapping[str, StepRow]) -> bool:
    """Whether nothing but steps that have begun stands before it."""
    is_undoing = row.runs.startswith(UNDOES)
    return not is_undoing and all(by_key[need].state != "not yet" for need in row.needs)


def _has_ended(row: StepRow) -> bool:
    ends = {state.value for state in ENDED} | {State.DEAD.value}
    return row.ended_at is not None or row.state in ends


def _sentence(graph_id: str, row: StepRow, now: datetime) -> str:
    age = wording.seconds(row.seconds)
    until = f", until {wording.clock(row.due_at)}" if row.due_at else ""
    if row.kind == "timer":
        return f"Timer {row.key} fires at {wording.clock(row.due_at)}; it began {age} ago."
    if row.kind == "signal":
        name = row.runs.rpartition("signal ")[2]
        return (
            f"Step {row.key} has waited {age} for signal {name}{until or ', without end'}: "
            f"'penstock workflow signal {graph_id} {shlex.quote(name)} VALUE' sends it."
        )
    attempt = f", attempt {row.attempts}" if row.attempts else ""
    worker = f" on worker {row.worker}" if row.state == State.RUNNING and row.worker else ""
    return (
        f"Step {row.key} is {row.state}{attempt}{worker} for {age}{until}: see 'penstock job "
        f"show {row.job_id}'."
    )


def few(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    rest = f" and {len(names) - _MOST_STEPS:,} more" if len(names) > _MOST_STEPS else ""
    return ", ".join(names[:_MOST_STEPS]) + rest
