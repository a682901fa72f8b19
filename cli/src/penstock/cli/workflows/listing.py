"""`penstock workflow ls`: coded workflows, or instances of definitions."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter

import click

from penstock.bus import bounded
from penstock.bus.protocol import Bus
from penstock.cli.command import Command
from penstock.cli.errors import Refused
from penstock.cli.output import note, write_rows
from penstock.cli.parameters import MOST_ROWS, SECONDS
from penstock.cli.session import Session
from penstock.cli.workflows.text import COLUMNS
from penstock.config import Settings
from penstock.events.envelope import utc_now
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client
from penstock.jobs.errors import NotFound
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.jobs.workflows.listing import WorkflowList
from penstock.views.graph_board import graph_detail, graph_row
from penstock.views.workflow_board import BLOCKED, PAUSED, WorkflowRow, workflow_row

CODED_STATES = [*(state.value for state in State), BLOCKED, PAUSED]
STATES = list(dict.fromkeys([*CODED_STATES, *(state.value for state in GraphState)]))
_AT_ONCE = 50


@click.command(
    cls=Command,
    name="ls",
    example="penstock workflow ls --waiting-longer 1d\npenstock workflow ls --declared",
)
@click.option(
    "--state",
    type=click.Choice(STATES),
    help="Only workflows in this state.",
)
@click.option("--function", default="", help="Only those of this function, or definition.")
@click.option("--declared", is_flag=True, help="Instances of definitions, instead of coded ones.")
@click.option("--all", "all_", is_flag=True, help="Also those that belong to another workflow.")
@click.option(
    "--waiting-longer", type=SECONDS, help="Only those that last went on so long ago: 1d."
)
@MOST_ROWS
@click.pass_obj
def list_workflows(
    session: Session,
    state: str | None,
    function: str,
    waiting_longer: float | None,
    limit: int,
    declared: bool,
    all_: bool,
) -> None:
    """List the workflows that changed last, or those that have waited longest.

    Those that are steps of another workflow, or members of a batch, are left out, unless --all,
    --state or --function is given. Instances of definitions are listed with --declared, those first
    that were started last; with --waiting-longer those first of which no step has begun or ended
    for longest.
    """
    if declared:
        read = partial(declared_rows, state, function, waiting_longer, limit=limit)
        write_rows(session, session.with_client(read), COLUMNS, "no matching workflows")
        return
    if state is not None and state not in CODED_STATES:
        raise Refused(f"only declared workflows can be {state}: add --declared")

    async def request(bus: Bus, settings: Settings) -> tuple[WorkflowList, bool]:
        client, subjects = Client.over(bus, settings, "cli"), Subjects(settings.prefix)
        listed = await client.workflows.list(
            state=State(state) if state and state not in (BLOCKED, PAUSED) else None,
            blocked=state == BLOCKED,
            paused=state == PAUSED,
            function=function,
            waiting_longer=None if waiting_longer is None else timedelta(seconds=waiting_longer),
            with_parts=all_ or bool(state or function),
            limit=limit,
        )
        graph = await bus.last(subjects.events_stream, subjects.events("graph"))
        return listed, graph is not None

    listed, has_graphs = session.run(request)
    rows = [workflow_row(view) for view in listed]
    write_rows(session, rows, COLUMNS, "no matching workflows")
    if not session.as_json:
        _note_others(listed, has_graphs)
    if listed.cut_off:
        note("the event log was not read to its beginning; older workflows may fit, too")


def _note_others(listed: WorkflowList, has_graphs: bool) -> None:
    """Remarks on what the list does not hold."""
    if count := listed.left_out:
        some = "1 more belongs" if count == 1 else f"{count:,} more belong"
        note(f"{some} to other workflows, as steps, or to batches: --all lists all")
    if has_graphs:
        note("instances of definitions: 'penstock workflow ls --declared'")


async def declared_rows(
    state: str | None,
    name: str,
    waiting_longer: float | None,
    client: Client,
    *,
    limit: int | None = None,
) -> list[WorkflowRow]:
    """Instances of definitions, those first that were started last, or that wait longest.

    Args:
        state: in which they are; None for any.
        name: of the definition; empty for any.
        waiting_longer: seconds; only those that have not ended, and of which no step has begun or
            ended in this time. None for all.
        client: reads them.
        limit: rows at most; None for all.

    Returns:
        The rows; of those that have not ended with what they wait for, and since when.
    """

    async def read(graph_id: str) -> GraphRecord | None:
        try:
            return await client.graphs.show(graph_id)
        except NotFound:  # its last event has left the log meanwhile
            return None

    graphs = await bounded.gather(read, await client.graphs.ids(), _AT_ONCE)
    chosen = [
        graph
        for graph in graphs
        if graph and graph.definition
        if state in {None, graph_row(graph).state} and name in {"", graph.definition}
    ]
    now = utc_now()

    async def row(graph: GraphRecord) -> WorkflowRow:
        if graph.state.ended:
            return graph_row(graph)
        return graph_detail(graph, await client.graphs.jobs(graph), now).workflow

    if waiting_longer is None:
        newest = sorted(chosen, key=attrgetter("started_at"), reverse=True)[:limit]
        return list(await bounded.gather(row, newest, _AT_ONCE))
    since = now - timedelta(seconds=waiting_longer)
    old = [graph for graph in chosen if not graph.state.ended and graph.started_at < since]
    rows = await bounded.gather(row, old, _AT_ONCE)
    waiting = [one for one in rows if _waits_since(one, now) < since]
    return sorted(waiting, key=partial(_waits_since, now=now))[:limit]


def _waits_since(row: WorkflowRow, now: datetime) -> datetime:
    return row.waiting_since or now
