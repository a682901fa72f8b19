"""`penstock graph`: chains and graphs of jobs."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

from penstock.cli.command import Group
from penstock.cli.errors import Failed
from penstock.cli.jobs.newest import list_command
from penstock.cli.output import Column, write_json, write_line, write_rows
from penstock.cli.parameters import Name
from penstock.cli.session import Session
from penstock.cli.workflows import graph_run
from penstock.events.graph import Rule, Wait
from penstock.jobs.client import Client
from penstock.jobs.derived_ids import step_id
from penstock.jobs.workflows.declared.step_state import StepState
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.jobs.workflows.graph_states import step_states
from penstock.views import wording
from penstock.views.graph_board import named

GRAPH_ID = Name("graph", "id")
_WITHOUT_JOB = {
    StepState.SKIPPED: "skipped",
    StepState.BLOCKED: "blocked",
    StepState.COMPLETED: "completed",
    StepState.FAILED: "failed",
    StepState.RUNNING: "waits",
}


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a graph.

    Attributes:
        state: of its job; empty before that is dispatched. Without a job ``skipped``, ``blocked``
            (a step before it failed), ``waits``, ``completed`` or ``failed``.
        when: the condition that it runs by; empty for none.
        waits_for: what a step without a job waits for, once its turn has come; empty for a job.
    """

    name: str
    job_id: str
    state: str
    after: tuple[str, ...]
    rule: str = Rule.NONE_FAILED
    when: str = ""
    waits_for: str = ""


class GraphRow(msgspec.Struct, frozen=True, kw_only=True):
    """One graph; ``steps`` is None in a list."""

    id: str
    state: str
    title: str
    step_count: int
    started_at: datetime
    ended_at: datetime | None
    reason: str = ""
    reopened: int = 0
    steps: tuple[StepRow, ...] | None = None


def row(record: GraphRecord, steps: tuple[StepRow, ...] | None = None) -> GraphRow:
    return GraphRow(
        id=record.id,
        state=record.state,
        title=record.title,
        step_count=len(record.steps),
        started_at=record.started_at,
        ended_at=record.ended_at,
        reason=record.reason,
        reopened=record.round,
        steps=steps,
    )


COLUMNS = (
    Column("id", lambda row: row.id),
    Column("state", lambda row: row.state),
    Column("title", lambda row: row.title, rank=2, sentence=True),
    Column("steps", lambda row: str(row.step_count), number=True),
    Column("started", lambda row: wording.clock(row.started_at)),
    Column("note", lambda row: row.reason, rank=3, sentence=True),
)


def _runs(row: StepRow) -> str:
    """When a step runs, other than after all others."""
    rule = "" if row.rule == Rule.NONE_FAILED else f"after {row.rule}"
    return ", ".join(filter(None, [rule, row.when and f"when {row.when}", row.waits_for]))


STEP_COLUMNS = (
    Column("step", lambda row: row.name),
    Column("state", lambda row: row.state or "not yet"),
    Column("job", lambda row: row.job_id),
    Column("after", lambda row: ", ".join(row.after), rank=2, sentence=True),
    Column("runs", _runs, rank=3, sentence=True),
)


@click.group(cls=Group, example="penstock graph show nightly")
def graph() -> None:
    """Run, list, show and cancel chains and graphs of jobs, and continue failed ones."""


graph.add_command(
    list_command(
        "graph",
        GraphState,
        help="List the graphs that were started last.",
        example="penstock graph ls --state failed",
        show=lambda client, graph_id: client.graphs.show(graph_id),
        moment=lambda record: record.started_at,
        row=row,
        columns=COLUMNS,
        nothing="no graphs",
    )
)


@graph.command(example="penstock graph show nightly")
@click.argument("id", type=GRAPH_ID)
@click.pass_obj
def show(session: Session, id: str) -> None:
    """Show one graph and the state of each step."""

    async def read(client: Client) -> GraphRow:
        record = await client.graphs.show(id)
        return row(record, await _steps(client, record))

    shown = session.with_client(read)
    if session.as_json:
        write_json(shown)
        return
    write_line(f"graph      {shown.id}" + (f" ({shown.title})" if shown.title else ""))
    write_line(f"state      {shown.state}" + (f": {shown.reason}" if shown.reason else ""))
    write_line(f"started    {wording.clock(shown.started_at)}")
    if shown.ended_at:
        write_line(f"ended      {wording.clock(shown.ended_at)}")
    write_rows(session, list(shown.steps or ()), STEP_COLUMNS, "it has no steps")


async def _steps(client: Client, record: GraphRecord) -> tuple[StepRow, ...]:
    names = [step.name for step in record.steps]
    ids = [step_id(record.id, position) for position in range(len(names))]
    jobs = await client.graphs.jobs(record)
    states = step_states(record, jobs)
    return tuple(
        StepRow(
            name=step.name,
            job_id="" if step.join or step.wait else ids[position],
            state=jobs[position].state if position in jobs else _WITHOUT_JOB.get(state, ""),
            after=tuple(names[need] for need in step.needs),
            rule=step.rule,
            when=named(step.when, names) if step.when else "",
            waits_for=_awaited(step.wait, record.waits.get(position)) if step.wait else "",
        )
        for position, (step, state) in enumerate(zip(record.steps, states, strict=True))
    )


def _awaited(wait: Wait, until: datetime | None) -> str:
    what = f"signal {wait.signal}" if wait.signal else f"{wait.seconds:g} s"
    return what + (f", until {wording.clock(until)}" if until else "")


@graph.command(example="penstock graph cancel nightly --reason 'wrong day'")
@click.argument("id", type=GRAPH_ID)
@click.option(
    "--reason",
    default="cancelled by an operator",
    show_default=True,
    help="Recorded with the event.",
)
@click.pass_obj
def cancel(session: Session, id: str, reason: str) -> None:
    """Start no further step, and cancel those that run."""
    record = session.with_client(lambda client: client.graphs.cancel(id, reason))
    if session.as_json:
        write_json(row(record))
    if record.state in (GraphState.COMPLETED, GraphState.FAILED):
        raise Failed(f"graph {id} had already ended: it is {record.state}")
    if not session.as_json:
        write_line(f"graph {id} is being cancelled; see 'penstock graph show {id}'")


@graph.command(name="retry-failed", example="penstock graph retry-failed nightly")
@click.argument("id", type=GRAPH_ID)
@click.pass_obj
def retry_failed(session: Session, id: str) -> None:
    """Continue a failed or cancelled graph where it ended."""
    record = session.with_client(lambda client: client.graphs.retry_failed(id))
    if session.as_json:
        write_json(row(record))
    else:
        write_line(f"graph {id} continues; see 'penstock graph show {id}'")


for _command in graph_run.COMMANDS:
    graph.add_command(_command)
