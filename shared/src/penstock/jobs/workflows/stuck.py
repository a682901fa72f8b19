"""Workflows that should go on and do not: a wake-up, or the dispatch of a step, was lost. Pure.

The orchestrator makes up for both within seconds. What is found here, it has missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from penstock.events.workflow_memo import ScheduledStep
from penstock.jobs.batches.batch_record import BatchRecord, BatchState
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.workflows import graph_states, graph_waits
from penstock.jobs.workflows.coded import memo
from penstock.jobs.workflows.declared.step_state import StepState
from penstock.jobs.workflows.graph_record import GraphRecord

_MOST_NAMED = 5


class Defect(NamedTuple):
    """What is wrong with a workflow.

    Attributes:
        since: when it should have gone on.
        reason: in words.
    """

    since: datetime
    reason: str


class StuckWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that does not go on.

    Attributes:
        kind: ``coded``, or ``declared`` for a graph.
        function: of a coded one; title of a graph.
        since: when it should have gone on.
        reason: what was lost.
        outcome: what became of it, once it was recovered.
    """

    id: str
    kind: Literal["coded", "declared"]
    function: str
    since: datetime
    reason: str
    outcome: str = ""


def coded_defect(
    record: JobRecord,
    jobs: Mapping[int, JobRecord | None],
    batches: Mapping[int, BatchRecord],
    answers: Mapping[int, datetime],
    now: datetime,
) -> Defect | None:
    """Why a suspended workflow should go on; None where it waits as it should.

    Args:
        record: of the workflow.
        jobs: of its open steps, by their numbers; None for one that has no event.
        batches: those of its open steps, by their numbers.
        answers: when the signal was sent that an open wait will be given, by the step's number.
        now: by the broker's clock.
    """
    if record.state is not State.SUSPENDED or record.is_paused:
        return None
    recorded = record.workflow or memo.EMPTY
    if recorded.cancelling:
        return None  # it has a time by which it ends
    steps = {step.n: step for step in memo.open_steps(recorded).values()}
    advanced_at = recorded.entries[-1].now if recorded.entries else record.dispatched_at
    if recorded.cancel_by is not None and recorded.cancel_by <= now:
        return Defect(recorded.cancel_by, "its time to clean up is over, and nothing ended it")
    if recorded.cancel_by is None and recorded.ends_by is not None and recorded.ends_by <= now:
        return Defect(recorded.ends_by, "its timeout is over, and nothing cancelled it")
    if missing := [steps[n] for n, job in jobs.items() if job is None and n in steps]:
        return Defect(advanced_at, f"{_named(missing)} not dispatched")
    if record.wakes_at is not None and record.wakes_at <= now:
        return Defect(record.wakes_at, "its timer was due, and nothing woke it")
    ended = {n: job.state is State.COMPLETED for n, job in jobs.items() if job and job.state.ended}
    ended |= {
        n: batch.state is BatchState.COMPLETED for n, batch in batches.items() if batch.state.ended
    }
    ended |= dict.fromkeys(answers, True)
    if not memo.goes_on(recorded.wait, ended):
        return None
    times = [job.finished_at for n, job in jobs.items() if n in ended and job and job.finished_at]
    times += [batch.ended_at for batch in batches.values() if batch.ended_at]
    since = max([advanced_at, *times, *answers.values()])
    return Defect(since, "what it waits for has come, and nothing woke it")


def graph_defect(graph: GraphRecord, jobs: Mapping[int, JobRecord], now: datetime) -> Defect | None:
    """Why a graph should go on; None where it waits as it should.

    Args:
        graph: as it is now.
        jobs: those that were dispatched, by the positions of their steps.
        now: by the broker's clock.
    """
    if graph.state.ended or graph.is_paused:
        return None
    progress = graph_states.progress(graph, jobs)
    if waiting := graph_waits.due(graph, now):
        times = [until for position in waiting if (until := graph.waits[position])]
        names = [graph.steps[position].name for position in waiting]
        return Defect(min(times), f"the time of {_listed(names)} not noticed")
    ended = [job.finished_at for job in jobs.values() if job.state.ended and job.finished_at]
    elapsed = [until for position in graph.elapsed if (until := graph.waits.get(position))]
    sent = [signal.at for signal in graph.signals.values() if signal.at]
    since = max([graph.started_at, *ended, *elapsed, *sent])
    if progress.ready:
        names = [graph.steps[position].name for position in progress.ready]
        return Defect(since, f"{_listed(names)} not dispatched")
    if progress.end is not None and StepState.RUNNING not in progress.states:
        return Defect(since, "all of its steps have ended, and its end is not recorded")
    return None


def _named(steps: Sequence[ScheduledStep]) -> str:
    return _listed([step.key for step in steps])


def _listed(names: Sequence[str]) -> str:
    """``step charge was``, ``steps charge, pack and 7 more were``."""
    rest = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    shown = ", ".join(names[:_MOST_NAMED]) + rest
    return f"step {shown} was" if len(names) == 1 else f"steps {shown} were"
