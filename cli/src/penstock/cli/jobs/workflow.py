"""`penstock workflow`: run, list, show, pause and cancel workflows, signal and define them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import click

from penstock.bus import bounded
from penstock.cli.command import Group
from penstock.cli.errors import Failed, Refused
from penstock.cli.jobs import definition, workflow_changes, workflow_target
from penstock.cli.jobs.call import make_call, make_named_workflow, read_value
from penstock.cli.jobs.graph_run import Waiting
from penstock.cli.jobs.workflow_text import COLUMNS, description
from penstock.cli.jobs.workflow_tree import MOST_LINES
from penstock.cli.output import note, terminal_width, write_json, write_line, write_rows
from penstock.cli.parameters import JOB_ID, QUEUE, SECONDS
from penstock.cli.session import Session
from penstock.cli.workflows.check import check
from penstock.cli.workflows.fix import fix
from penstock.cli.workflows.replay import replay
from penstock.config.topology import PRIORITIES
from penstock.events.envelope import utc_now
from penstock.jobs.client import Client
from penstock.jobs.errors import NotFound, UnknownJob
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.views.graph_board import graph_detail, graph_row
from penstock.views.workflow_board import (
    BLOCKED,
    PAUSED,
    WorkflowDetail,
    WorkflowRow,
    workflow_detail,
    workflow_row,
)

WORKFLOW_ID = JOB_ID
CODED_STATES = [*(state.value for state in State), BLOCKED, PAUSED]
STATES = list(dict.fromkeys([*CODED_STATES, *(state.value for state in GraphState)]))
_AT_ONCE = 50


@click.group(cls=Group, example="penstock workflow ls --waiting-longer 1d")
def workflow() -> None:
    """Run, list, show, pause and cancel workflows, send them signals; define declared ones."""


@workflow.command(example="penstock workflow run shop.fulfil --arg order=7 --timeout 10m")
@click.argument("function")
@click.option(
    "--arg", "-a", "arguments", multiple=True, metavar="NAME=VALUE", help="Argument: JSON or text."
)
@click.option("--id", "job_id", type=WORKFLOW_ID, help="An id of your own: it is dispatched once.")
@click.option("--queue", type=QUEUE, help="Queue, instead of the function's own.")
@click.option(
    "--priority", type=click.Choice(PRIORITIES), help="Priority, where the queue has priorities."
)
@click.option("--tag", "tags", multiple=True, help="Tag besides the function's own; repeatable.")
@click.option("--delay", type=SECONDS, help="Start no earlier than after this time, such as 10m.")
@click.option("--unique-for", type=SECONDS, help="Refused if an equal one is younger than this.")
@click.option("--by-name", is_flag=True, help="Without the function's module here; needs --queue.")
@click.option("--no-wait", is_flag=True, help="Return as soon as the broker keeps it.")
@click.option("--timeout", type=SECONDS, help="Wait no longer than this; the workflow goes on.")
@click.pass_obj
def run(
    session: Session,
    /,
    function: str,
    arguments: tuple[str, ...],
    by_name: bool,
    no_wait: bool,
    timeout: float | None,
    **options: Any,
) -> None:
    """Dispatch a workflow and wait for its end; exit code 1 unless it completed.

    FUNCTION is that of a coded workflow, or the name of a stored definition, whose graph is run
    with the arguments as its context.
    """
    try:
        call = (
            make_named_workflow(function, options["queue"], arguments)
            if by_name
            else make_call(session.settings(), function, arguments)
        )
    except UnknownJob as error:
        waiting = Waiting(no_wait, timeout)
        given = {"graph_id": options.pop("job_id"), **options}
        if given.pop("unique_for") is not None:
            raise Refused(
                f"{error} A definition takes no --unique-for: give an --id, which is run once"
            ) from None
        terms = {name: value for name, value in given.items() if value is not None}
        if not definition.run_definition(session, function, arguments, waiting, **terms):
            raise UnknownJob(
                f"{error} Nor is a workflow of that name defined: 'penstock workflow definitions'"
            ) from None
        return
    if call.job.kind != "workflow":
        raise Refused(f"{function} is a job, no workflow; use 'penstock job submit'")
    terms = {name: value for name, value in options.items() if value is not None}

    async def request(client: Client) -> WorkflowDetail:
        workflow_id = await client.dispatch(call, **terms)
        if not no_wait:
            if not session.as_json:
                note(f"workflow {workflow_id}")
            with _in_time(workflow_id, timeout):
                await client.wait(workflow_id, timeout)
        return await _coded(workflow_id, client)

    detail = session.with_client(request)
    if not no_wait:
        _show_end(session, detail)
    elif session.as_json:
        _show(session, detail)
    else:
        write_line(detail.workflow.id)


@workflow.command(example="penstock workflow wait 0193… --timeout 10m")
@click.argument("id", type=WORKFLOW_ID)
@click.option("--timeout", type=SECONDS, help="Wait no longer than this; the workflow goes on.")
@click.pass_obj
def wait(session: Session, id: str, timeout: float | None) -> None:
    """Wait for a workflow's end, then show it; exit code 1 unless it completed."""

    async def request(client: Client) -> WorkflowDetail:
        target = await workflow_target.find(client, id)
        if target.is_graph:
            with _in_time(target.id, timeout):
                await client.graphs.wait(target.id, timeout)
        else:
            await client.workflows.get(target.id)  # refuses what is no workflow
            with _in_time(target.id, timeout):
                await client.wait(target.id, timeout)
        return await _detail(target.id, client)

    _show_end(session, session.with_client(request))


@workflow.command(name="ls", example="penstock workflow ls --waiting-longer 1d")
@click.option(
    "--state",
    type=click.Choice(STATES),
    help="Only workflows in this state.",
)
@click.option("--function", default="", help="Only those of this function, or definition.")
@click.option("--declared", is_flag=True, help="Instances of definitions, instead of coded ones.")
@click.option(
    "--waiting-longer", type=SECONDS, help="Only those that last went on so long ago: 1d."
)
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Most rows to list.",
)
@click.pass_obj
def list_workflows(
    session: Session,
    state: str | None,
    function: str,
    waiting_longer: float | None,
    limit: int,
    declared: bool,
) -> None:
    """List the workflows that changed last, or those that have waited longest.

    Instances of definitions are listed with --declared, those first that were started last.
    """
    if declared:
        if waiting_longer is not None:
            raise Refused("--waiting-longer lists coded workflows; leave out --declared")
        graphs = session.with_client(partial(declared_rows, state, function))
        write_rows(session, graphs[:limit], COLUMNS, "no matching workflows")
        return
    if state is not None and state not in CODED_STATES:
        raise Refused(f"only declared workflows can be {state}: add --declared")
    listed = session.with_client(
        lambda client: client.workflows.list(
            state=State(state) if state and state not in (BLOCKED, PAUSED) else None,
            blocked=state == BLOCKED,
            paused=state == PAUSED,
            function=function,
            waiting_longer=None if waiting_longer is None else timedelta(seconds=waiting_longer),
            limit=limit,
        )
    )
    rows = [workflow_row(view) for view in listed]
    write_rows(session, rows, COLUMNS, "no matching workflows")
    if listed.cut_off:
        note("the event log was not read to its beginning; older workflows may fit, too")


@workflow.command(example="penstock workflow show 0193…")
@click.argument("id", type=WORKFLOW_ID)
@click.option("--all", "all_steps", is_flag=True, help="All steps, however many there are.")
@click.pass_obj
def show(session: Session, id: str, all_steps: bool) -> None:
    """Show a workflow: its steps as a tree, its critical path, and what it waits for.

    Of many steps those are drawn that failed, that have not ended, and that are critical; lines in
    between say how many are left out.
    """
    _show(session, session.with_client(partial(_detail, id)), all_steps=all_steps)


@workflow.command(example="penstock workflow why 0193…")
@click.argument("id", type=WORKFLOW_ID)
@click.pass_obj
def why(session: Session, id: str) -> None:
    """Say what a workflow waits for, since when, and what lets it go on."""
    detail = session.with_client(partial(_detail, id))
    if session.as_json:
        write_json({"id": detail.workflow.id, "state": detail.workflow.state, "why": detail.why})
    else:
        write_line("\n".join(detail.why))


@workflow.command(example="penstock workflow signal 0193… approved true --id mail-1")
@click.argument("id", type=WORKFLOW_ID)
@click.argument("name")
@click.argument("value", default="null")
@click.option(
    "--id", "signal_id", default="", help="Of signals with the same one, the first counts."
)
@click.pass_obj
def signal(session: Session, id: str, name: str, value: str, signal_id: str) -> None:
    """Send a workflow the signal NAME with a VALUE: JSON or text; none is null."""

    async def request(client: Client) -> str:
        target = await workflow_target.find(client, id)
        kind = client.graphs if target.is_graph else client.workflows
        await kind.signal(target.id, name, read_value(value), signal_id=signal_id)
        return target.id

    workflow_id = session.with_client(request)
    if session.as_json:
        write_json({"id": workflow_id, "signal": name})
    else:
        write_line(f"signal {name} was sent to workflow {workflow_id}")


for _command in (*definition.COMMANDS, *workflow_changes.COMMANDS, check, fix, replay):
    workflow.add_command(_command)


@contextmanager
def _in_time(workflow_id: str, timeout: float | None) -> Iterator[None]:
    """Raises Failed where it has not ended after ``timeout`` seconds."""
    try:
        yield
    except TimeoutError:
        raise Failed(
            f"workflow {workflow_id} has not ended after {timeout:g} s; see 'penstock workflow "
            f"why {workflow_id}'"
        ) from None


async def _coded(workflow_id: str, client: Client) -> WorkflowDetail:
    view = await client.workflows.get(workflow_id, with_attempts=True)
    return workflow_detail(view, utc_now())


async def declared_rows(state: str | None, name: str, client: Client) -> list[WorkflowRow]:
    """Instances of definitions, those first that were started last.

    Args:
        state: in which they are; None for any.
        name: of the definition; empty for any.
        client: reads them.
    """

    async def read(graph_id: str) -> GraphRecord | None:
        try:
            return await client.graphs.show(graph_id)
        except NotFound:  # its last event has left the log meanwhile
            return None

    graphs = await bounded.gather(read, await client.graphs.ids(), _AT_ONCE)
    rows = [graph_row(graph) for graph in graphs if graph and graph.definition]
    chosen = [row for row in rows if state in {None, row.state} and name in {"", row.function}]
    return sorted(chosen, key=lambda row: row.dispatched_at, reverse=True)


async def _detail(text: str, client: Client) -> WorkflowDetail:
    """The workflow, coded or declared, whose id is ``text`` or begins with it."""
    target = await workflow_target.find(client, text)
    if not target.is_graph:
        return await _coded(target.id, client)
    graph = await client.graphs.show(target.id)
    jobs = await client.graphs.jobs(graph)
    first = (await client.job(jobs[min(jobs)].id)).trace_id if jobs else ""
    return graph_detail(graph, jobs, utc_now(), first)


def _show_end(session: Session, detail: WorkflowDetail) -> None:
    """Shows one that has ended. Raises Failed unless it completed."""
    _show(session, detail)
    if detail.workflow.state != State.COMPLETED:
        raise Failed(f"workflow {detail.workflow.id} ended {detail.workflow.state}")


def _show(session: Session, detail: WorkflowDetail, *, all_steps: bool = False) -> None:
    if session.as_json:
        write_json(detail)
        return
    width = terminal_width(session)
    most = None if all_steps else MOST_LINES
    write_line("\n".join(description(detail, most, width)))
