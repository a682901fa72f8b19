"""Graphs, and so declared workflows, as they are shown: in the same rows as coded ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter

from msgspec.structs import replace

from penstock.events.condition import Condition
from penstock.events.graph import Rule, Wait
from penstock.jobs.derived_ids import step_id
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.payloads import redaction
from penstock.jobs.reading.attempt_times import AttemptTimes, attempt_times
from penstock.jobs.workflows.declared import text
from penstock.jobs.workflows.declared.planning import renamed
from penstock.jobs.workflows.declared.step_state import StepState
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.jobs.workflows.graph_states import step_states
from penstock.views.graph_reasons import UNDOES, few, goes_on, reasons
from penstock.views.workflow_board import (
    PAUSED,
    StepRow,
    WorkflowDetail,
    WorkflowRow,
    ran_seconds,
)


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
    """
    states = step_states(graph, jobs)
    rows: list[StepRow] = []
    turns = _Turns(graph, jobs)
    for position, (key, state) in enumerate(zip(_keys(graph), states, strict=True)):
        rows.append(_row(graph, position, key, state, jobs.get(position), rows, turns, now))
    rows = _with_causes_of_undoing(graph, rows)
    path = _critical_path(graph, rows)
    rows = [replace(row, critical=row.key in path) for row in rows]
    waiting = [row.key for row in rows if goes_on(row)]
    shown = replace(
        graph_row(graph),
        waits_for=few(waiting) if not graph.state.ended else "",
        waiting_since=None if graph.state.ended else _went_on_at(graph, rows),
    )
    return WorkflowDetail(
        workflow=shown,
        steps=tuple(rows),
        critical_path=path,
        why=tuple(reasons(graph, rows, now)),
        arguments=redaction.shared(graph.context, [step.payload for step in graph.steps]) or {},
        result=None,
        trace_id=trace_id,
    )


def _went_on_at(graph: GraphRecord, rows: Iterable[StepRow]) -> datetime:
    """When a step began or ended last."""
    times = (time for row in rows for time in (row.since, row.ended_at) if time is not None)
    return max(times, default=graph.started_at)


def _keys(graph: GraphRecord) -> Iterator[str]:
    """The names of the steps, each once: those of a forged graph need not differ, or may be empty.

    A step that came after one of its own name would be drawn without end.
    """
    keys: set[str] = set()
    for position, step in enumerate(graph.steps):
        key = step.name
        while not key or key in keys:
            key += f"#{position}"
        keys.add(key)
        yield key


# --- steps ----------------------------------------------------------------------------------------
class _Turns:
    """When the turn of each step came, and the step whose end let it come.

    A step is judged once all that it needs have ended. One that is then skipped or blocked has no
    times of its own: it is over at that moment, with the end of what came last before it.

    Attributes:
        given_up_at: when what still waited was given up; None while it goes on.
    """

    def __init__(self, graph: GraphRecord, jobs: Mapping[int, JobRecord]) -> None:
        self._begin = graph.started_at
        self._over: list[tuple[datetime, str]] = []
        self.given_up_at = min(
            (
                jobs[position].dispatched_at
                for position, step in enumerate(graph.steps)
                if step.compensates is not None and position in jobs
            ),
            default=graph.ended_at,
        )

    def turn(self, needs: Iterable[int]) -> tuple[datetime, str]:
        """When the last of these steps was over, and the key of the one that ended then."""
        ends = (self._over[need] for need in needs)
        return max(ends, key=itemgetter(0), default=(self._begin, ""))

    def add(self, row: StepRow, turn: tuple[datetime, str]) -> None:
        """The next step, in the order of positions."""
        at, cause = turn if row.ended_at is None else (row.ended_at, row.key)
        self._over.append((max(self._begin, at), cause))


def _row(
    graph: GraphRecord,
    position: int,
    key: str,
    state: StepState,
    job: JobRecord | None,
    before: Sequence[StepRow],
    turns: _Turns,
    now: datetime,
) -> StepRow:
    step = graph.steps[position]
    own = step.needs if step.compensates is None else (step.compensates,)
    needs = [before[need] for need in own]
    turn = begins, cause = turns.turn(own)
    since, ended_at = _times(graph, position, state, job, begins, turns.given_up_at)
    is_undoing = step.compensates is not None
    has_ended = graph.state.ended or (turns.given_up_at is not None and not is_undoing)
    until = ended_at or now
    times = attempt_times(job) if job else AttemptTimes()
    row = StepRow(
        key=key,
        kind=_kind(graph, position),
        state=job.state.value if job else _state(state, position in graph.waits, has_ended),
        since=since,
        seconds=max(0.0, (until - since).total_seconds()) if since else 0.0,
        waited_seconds=times.waited_seconds,
        ran_seconds=ran_seconds(times, now),
        ended_at=ended_at,
        due_at=graph.waits.get(position) if step.wait else _due_at(job),
        job_id="" if step.join or step.wait else step_id(graph.id, position),
        attempts=job.attempt if job else 0,
        worker=job.worker if job else "",
        after=cause if since is not None else "",
        error=f"{job.error.kind}: {job.error.message}" if job and job.error else "",
        needs=tuple(need.key for need in needs),
        runs=_runs(graph, position),
    )
    turns.add(row, turn)
    return row


def _times(
    graph: GraphRecord,
    position: int,
    state: StepState,
    job: JobRecord | None,
    begins: datetime,
    given_up_at: datetime | None,
) -> tuple[datetime | None, datetime | None]:
    """When a step began and ended; one without a job as soon as what it needs is over."""
    if job is not None:
        return job.dispatched_at, job.finished_at if job.state.ended else None
    wait = graph.steps[position].wait
    if wait is not None and state in (StepState.COMPLETED, StepState.FAILED):
        return begins, max(begins, _waited_until(graph, position, wait) or begins)
    if state is StepState.COMPLETED:
        return begins, begins
    return (begins, given_up_at) if position in graph.waits else (None, None)


def _waited_until(graph: GraphRecord, position: int, wait: Wait) -> datetime | None:
    """When a signal was sent, or the time of a step had come."""
    if position in graph.elapsed:
        return graph.waits.get(position)
    signal = graph.signals.get(wait.signal)
    return signal.at if signal is not None else None


def _kind(graph: GraphRecord, position: int) -> str:
    step = graph.steps[position]
    if step.wait is not None:
        return "signal" if step.wait.signal else "timer"
    return "join" if step.join else "job"


def _state(state: StepState, has_begun: bool, has_ended: bool) -> str:
    """Of a step without a job.

    Args:
        has_begun: it waits, or has waited, for a time or a signal.
        has_ended: so has the graph, without it.
    """
    if state not in (StepState.WAITING, StepState.READY, StepState.RUNNING):
        return state.value
    if has_ended:
        return "given-up" if has_begun else "not run"
    if state is StepState.RUNNING:
        return "waiting" if has_begun else "dispatched"
    return "not yet"


def _due_at(job: JobRecord | None) -> datetime | None:
    is_ahead = job is not None and job.state in (State.SCHEDULED, State.RETRYING)
    return job.available_at if job and is_ahead else None


def _with_causes_of_undoing(graph: GraphRecord, rows: Sequence[StepRow]) -> list[StepRow]:
    """The steps, of which those that undo follow each other, newest first.

    The first of them began when nothing else ran any more: after what had ended last, whatever it
    undoes.
    """
    undoing = {
        step.compensates: rows[position].key
        for position, step in enumerate(graph.steps)
        if step.compensates is not None and rows[position].since is not None
    }
    others = [row for row, step in zip(rows, graph.steps, strict=True) if step.compensates is None]
    begun = min(
        (row.since for row in rows if row.key in undoing.values() and row.since), default=None
    )
    ended = (
        row
        for row in _of_length(graph, others)
        if row.ended_at and begun and (row.job_id or row.ended_at <= begun)  # its timer may go on
    )
    last = max(ended, key=_end, default=None)
    after: dict[str, str] = {}
    cause = last.key if last is not None else ""
    for _, key in sorted(undoing.items(), reverse=True):
        after[key], cause = cause, key
    return [replace(row, after=after.get(row.key, row.after)) for row in rows]


def _runs(graph: GraphRecord, position: int) -> str:
    """When a step runs, other than after all that it needs."""
    step = graph.steps[position]
    names = [one.name for one in graph.steps]
    return ", ".join(
        filter(
            None,
            (
                f"{UNDOES}{names[step.compensates]}" if step.compensates is not None else "",
                "" if step.rule == Rule.NONE_FAILED else f"after {step.rule}",
                f"when {named(step.when, names)}" if step.when else "",
                f"signal {step.wait.signal}" if step.wait and step.wait.signal else "",
            ),
        )
    )


def named(condition: Condition, names: Sequence[str]) -> str:
    """A condition as text, with the names of steps in place of their positions."""
    return text.written(renamed(condition, lambda position: names[int(position)]))


def _of_length(graph: GraphRecord, rows: Iterable[StepRow]) -> Iterator[StepRow]:
    """The steps that began, without those whose end did not matter.

    What was given up since another step failed did not keep the graph; what it waited for until it
    was stopped did.
    """
    stopped = (GraphState.STOPPING, GraphState.CANCELLED)
    was_stopped = graph.timed_out or graph.state in stopped
    for row in rows:
        if row.since is not None and (was_stopped or row.state != "given-up"):
            yield row


def _critical_path(graph: GraphRecord, rows: Sequence[StepRow]) -> tuple[str, ...]:
    """Names of the steps that the length of a graph came from; see `workflow_board`."""
    begun = list(_of_length(graph, rows))
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
