"""Graphs, and so declared workflows, as they are shown: in the same rows as coded ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from penstock.events.condition import Condition
from penstock.events.graph import Rule, Wait
from penstock.jobs.derived_ids import step_id
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads import redaction
from penstock.jobs.workflows.declared import text
from penstock.jobs.workflows.declared.planning import renamed
from penstock.jobs.workflows.declared.step_state import ENDED, StepState
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.jobs.workflows.graph_states import step_states
from penstock.views import wording
from penstock.views.workflow_board import PAUSED, StepRow, WorkflowDetail, WorkflowRow

_MOST_STEPS = 10
"""Steps that are described; of the others only their number is."""


def graph_row(graph: GraphRecord) -> WorkflowRow:
    """A graph as one entry of a list of workflows."""
    return WorkflowRow(
        id=graph.id,
        kind="declared",
        state=PAUSED if graph.is_paused else graph.state.value,
        function=graph.definition or graph.title,
        version=graph.version,
        queue="",
        dispatched_at=graph.started_at,
        finished_at=graph.ended_at,
        paused_at=graph.paused_at if graph.is_paused else None,
        pause_reason=graph.pause_reason if graph.is_paused else "",
        error=graph.reason,
    )


def graph_detail(
    graph: GraphRecord, jobs: Mapping[int, JobRecord], now: datetime, trace_id: str = ""
) -> WorkflowDetail:
    """A graph with its steps.

    Args:
        graph: as it is now.
        jobs: those that were dispatched, by the positions of their steps.
        now: until which the steps that have not ended are measured.
        trace_id: empty if it is not traced.

    Raises:
        ValueError: its context cannot be read.
    """
    states = step_states(graph, jobs)
    rows: list[StepRow] = []
    for position, state in enumerate(states):
        rows.append(_row(graph, position, state, jobs.get(position), rows, now))
    path = _critical_path(rows)
    rows = [replace(row, critical=row.key in path) for row in rows]
    waiting = [row.key for row in rows if _goes_on(row)]
    shown = replace(
        graph_row(graph),
        waits_for=_few(waiting) if not graph.state.ended else "",
        waiting_since=None if graph.state.ended else graph.started_at,
    )
    return WorkflowDetail(
        workflow=shown,
        steps=tuple(rows),
        critical_path=path,
        why=tuple(_reasons(graph, rows, now)),
        arguments=redaction.shared(graph.context, [step.payload for step in graph.steps]) or {},
        result=None,
        trace_id=trace_id,
    )


# --- steps ----------------------------------------------------------------------------------------
def _row(
    graph: GraphRecord,
    position: int,
    state: StepState,
    job: JobRecord | None,
    before: Sequence[StepRow],
    now: datetime,
) -> StepRow:
    step = graph.steps[position]
    own = step.needs if step.compensates is None else (step.compensates,)
    needs = [before[need] for need in own]
    begins = max([graph.started_at, *(need.ended_at for need in needs if need.ended_at)])
    since, ended_at = _times(graph, position, state, job, begins)
    has_begun = since is not None
    until = ended_at or now
    return StepRow(
        key=step.name,
        kind=_kind(graph, position),
        state=job.state.value if job else _state(state, step.wait),
        since=since,
        seconds=max(0.0, (until - since).total_seconds()) if since else 0.0,
        ended_at=ended_at,
        due_at=graph.waits.get(position) if step.wait else _due_at(job),
        job_id="" if step.join or step.wait else step_id(graph.id, position),
        attempts=job.attempt if job else 0,
        worker=job.worker if job else "",
        after=_last(needs) if has_begun else "",
        error=f"{job.error.kind}: {job.error.message}" if job and job.error else "",
        needs=tuple(need.key for need in needs),
        runs=_runs(graph, position),
    )


def _times(
    graph: GraphRecord,
    position: int,
    state: StepState,
    job: JobRecord | None,
    begins: datetime,
) -> tuple[datetime | None, datetime | None]:
    """When a step began and ended; one without a job as soon as what it needs has ended."""
    if job is not None:
        return job.dispatched_at, job.finished_at if job.state.ended else None
    if state is StepState.COMPLETED:
        wait = graph.steps[position].wait
        until = graph.waits.get(position) if wait and position in graph.elapsed else None
        return begins, max(begins, until) if until else begins
    return (begins if position in graph.waits else None), None


def _kind(graph: GraphRecord, position: int) -> str:
    step = graph.steps[position]
    if step.wait is not None:
        return "signal" if step.wait.signal else "timer"
    return "join" if step.join else "job"


def _state(state: StepState, wait: Wait | None) -> str:
    if state is StepState.RUNNING:
        return "waiting" if wait else "dispatched"
    return "not yet" if state in (StepState.WAITING, StepState.READY) else state.value


def _due_at(job: JobRecord | None) -> datetime | None:
    is_ahead = job is not None and job.state in (State.SCHEDULED, State.RETRYING)
    return job.available_at if job and is_ahead else None


def _last(needs: Sequence[StepRow]) -> str:
    """The one that ended last: its end let the step begin."""
    ended = [need for need in needs if need.ended_at is not None]
    return max(ended, key=lambda need: need.ended_at or datetime.min).key if ended else ""


def _runs(graph: GraphRecord, position: int) -> str:
    """When a step runs, other than after all that it needs."""
    step = graph.steps[position]
    names = [one.name for one in graph.steps]
    return ", ".join(
        filter(
            None,
            (
                f"undoes {names[step.compensates]}" if step.compensates is not None else "",
                "" if step.rule == Rule.NONE_FAILED else f"after {step.rule}",
                f"when {named(step.when, names)}" if step.when else "",
                f"signal {step.wait.signal}" if step.wait and step.wait.signal else "",
            ),
        )
    )


def named(condition: Condition, names: Sequence[str]) -> str:
    """A condition as text, with the names of steps in place of their positions."""
    return text.written(renamed(condition, lambda position: names[int(position)]))


def _goes_on(row: StepRow) -> bool:
    """Whether a step has begun and not ended."""
    return row.since is not None and row.ended_at is None


def _critical_path(rows: Sequence[StepRow]) -> tuple[str, ...]:
    """Names of the steps that the length of a graph came from; see `workflow_board`."""
    begun = [row for row in rows if row.since is not None]
    going_on = [row for row in begun if row.ended_at is None]
    row = min(going_on, key=_since, default=None) or max(begun, key=_end, default=None)
    by_key = {one.key: one for one in rows}
    path: list[str] = []
    while row is not None:
        path.append(row.key)
        row = by_key.get(row.after)
    return tuple(reversed(path))


def _since(row: StepRow) -> datetime:
    assert row.since is not None
    return row.since


def _end(row: StepRow) -> datetime:
    return row.ended_at or _since(row)


# --- sentences ------------------------------------------------------------------------------------
def _reasons(graph: GraphRecord, rows: Sequence[StepRow], now: datetime) -> Iterator[str]:
    if graph.is_paused and graph.paused_at is not None:
        age = wording.seconds(max(0.0, (now - graph.paused_at).total_seconds()))
        reason = f": {graph.pause_reason}" if graph.pause_reason else ""
        yield f"It is paused since {wording.clock(graph.paused_at)} ({age}){reason}."
        yield f"'penstock workflow resume {graph.id}' lets it go on; until then:"
    if graph.state.ended:
        yield f"It is {graph.state} since {wording.clock(graph.ended_at)}; it waits for nothing."
        if graph.reason:
            yield f"{graph.reason}."
        if graph.state in (GraphState.FAILED, GraphState.CANCELLED):
            yield f"'penstock graph retry-failed {graph.id}' continues it where it ended."
        return
    going_on = [row for row in rows if _goes_on(row)]
    for row in going_on[:_MOST_STEPS]:
        yield _sentence(graph.id, row, now)
    if len(going_on) > _MOST_STEPS:
        yield f"{len(going_on) - _MOST_STEPS:,} further steps have not ended."
    by_key = {row.key: row for row in rows}
    held = [row for row in rows if row.state == "not yet" and _is_next(row, by_key)]
    for row in held[:_MOST_STEPS]:
        open_needs = [need for need in row.needs if not _has_ended(by_key[need])]
        if open_needs:
            yield f"Step {row.key} waits for {_few(open_needs)}."
        else:
            yield f"Step {row.key} is due; the orchestrator dispatches it within a second."
    if graph.deadline is not None:
        yield f"It may take until {wording.clock(graph.deadline)}."


def _is_next(row: StepRow, by_key: Mapping[str, StepRow]) -> bool:
    """Whether nothing but steps that have begun stands before it."""
    is_undoing = row.runs.startswith("undoes ")
    return not is_undoing and all(by_key[need].state != "not yet" for need in row.needs)


def _has_ended(row: StepRow) -> bool:
    ends = {state.value for state in ENDED} | {State.DEAD.value}
    return row.ended_at is not None or row.state in ends


def _sentence(graph_id: str, row: StepRow, now: datetime) -> str:
    age = wording.seconds(row.seconds)
    until = f", until {wording.clock(row.due_at)}" if row.due_at else ""
    if row.kind == "timer":
        return f"Step {row.key} waits since {age}{until}."
    if row.kind == "signal":
        name = row.runs.rpartition("signal ")[2]
        return (
            f"Step {row.key} waits since {age} for signal {name}{until or ', without end'}: "
            f"'penstock workflow signal {graph_id} {name} VALUE' sends it."
        )
    attempt = f", attempt {row.attempts}" if row.attempts else ""
    worker = f" on worker {row.worker}" if row.state == State.RUNNING and row.worker else ""
    return (
        f"Step {row.key} is {row.state}{attempt}{worker} since {age}{until}: see 'penstock job "
        f"show {row.job_id}'."
    )


def _few(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MOST_STEPS:,} more" if len(names) > _MOST_STEPS else ""
    return ", ".join(names[:_MOST_STEPS]) + rest
