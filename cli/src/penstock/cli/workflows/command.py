"""`penstock workflow`: run, list, show, pause and cancel workflows, signal and define them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import click

from penstock.cli.command import Group
from penstock.cli.errors import Failed, Refused
from penstock.cli.jobs.call import make_call, make_named_workflow
from penstock.cli.output import (
    note,
    terminal_width,
    write_json,
    write_line,
    write_lines,
)
from penstock.cli.parameters import JOB_ID, QUEUE, SECONDS
from penstock.cli.session import Session
from penstock.cli.workflows import changes as workflow_changes
from penstock.cli.workflows import definition
from penstock.cli.workflows import target as workflow_target
from penstock.cli.workflows.check import check
from penstock.cli.workflows.fix import fix
from penstock.cli.workflows.listing import list_workflows
from penstock.cli.workflows.replay import replay
from penstock.cli.workflows.signal import signal
from penstock.cli.workflows.text import description
from penstock.cli.workflows.tree import MOST_LINES
from penstock.config.topology import PRIORITIES
from penstock.events.envelope import utc_now
from penstock.jobs.client import Client
from penstock.jobs.errors import AlreadyDispatched, UnknownJob
from penstock.jobs.lifecycle import State
from penstock.views.graph_board import graph_detail
from penstock.views.workflow_board import (
    WorkflowDetail,
    workflow_detail,
)

WORKFLOW_ID = JOB_ID


@click.group(cls=Group, example="penstock workflow ls --waiting-longer 1d")
def workflow() -> None:
    """Run, list, show, pause and cancel workflows, send them signals; define declared ones."""


@workflow.command(example="penstock workflow run shop.fulfil --arg order=7 --timeout 10m")
@click.argument("function")
@click.option(
    "--arg", "-a", "arguments", multiple=True, metavar="NAME=VALUE", help="Argument: JSON or text."
)
@click.option("--id", "job_id", type=WORKFLOW_ID, help="An id of your own; refused if it exists.")
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
        start = definition.starting(function, arguments, options)
        _run(session, start, str(error), no_wait=no_wait, timeout=timeout)
        return
    if call.job.kind != "workflow":
        raise Refused(f"{function} is a job, no workflow; use 'penstock job submit'")
    terms = {name: value for name, value in options.items() if value is not None}

    start = partial(Client.dispatch, call=call, **terms)
    _run(session, start, no_wait=no_wait, timeout=timeout)


def _run(
    session: Session,
    start: Callable[[Client], Awaitable[str | None]],
    unknown: str = "",
    *,
    no_wait: bool,
    timeout: float | None,
) -> None:
    """Starts a workflow, waits for its end and shows it.

    Args:
        session: of the command.
        start: starts it and returns its id; None where there is none of this name.
        unknown: why there is none.
        no_wait: returns as soon as the broker keeps it.
        timeout: seconds; None: for ever.

    Raises:
        UnknownJob: there is none.
        Failed: it did not complete, or not in time.
    """

    async def request(client: Client) -> WorkflowDetail:
        try:
            workflow_id = await start(client)
        except AlreadyDispatched as error:
            raise Failed(
                f"{error}; 'penstock workflow wait {error.job_id}' waits for it and shows it"
            ) from None
        if workflow_id is None:
            raise UnknownJob(
                f"{unknown} Nor is a workflow of that name defined: 'penstock workflow definitions'"
            )
        if no_wait:
            return await _detail(workflow_id, client)
        if not session.as_json:
            note(f"workflow {workflow_id}")
        await _ended(workflow_id, timeout, client)
        return await _detail(workflow_id, client)

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
        await _ended(id, timeout, client)
        return await _detail(id, client)

    _show_end(session, session.with_client(request))


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
@click.argument("ids", type=WORKFLOW_ID, nargs=-1, required=True, metavar="ID…")
@click.pass_obj
def why(session: Session, /, ids: tuple[str, ...]) -> None:
    """Say what workflows wait for, since when, and what lets them go on."""

    async def read(client: Client) -> list[WorkflowDetail]:
        return [await _detail(text, client) for text in ids]

    details = session.with_client(read)
    if session.as_json:
        reasons = [
            {"id": one.workflow.id, "state": one.workflow.state, "why": one.why} for one in details
        ]
        write_json(reasons[0] if len(reasons) == 1 else reasons)
    elif len(details) == 1:
        write_lines(details[0].why)
    else:
        for one in details:
            write_lines([f"workflow {one.workflow.id}", *(f"  {text}" for text in one.why)])


for _command in (
    *definition.COMMANDS,
    *workflow_changes.COMMANDS,
    check,
    fix,
    list_workflows,
    replay,
    signal,
):
    workflow.add_command(_command)


async def _ended(text: str, timeout: float | None, client: Client) -> None:
    """Waits for the end of the workflow whose id is ``text`` or begins with it.

    Raises:
        Failed: it has not ended after ``timeout`` seconds.
    """
    target = await workflow_target.find(client, text)
    try:
        if target.is_graph:
            await client.graphs.wait(target.id, timeout)
        else:
            await client.workflows.get(target.id)  # refuses what is no workflow
            await client.wait(target.id, timeout)
    except TimeoutError:
        raise Failed(
            f"workflow {target.id} has not ended after {timeout:g} s; see 'penstock workflow "
            f"why {target.id}'"
        ) from None


async def _coded(workflow_id: str, client: Client) -> WorkflowDetail:
    view = await client.workflows.get(workflow_id, with_attempts=True)
    return workflow_detail(view, utc_now())


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
    write_lines(description(detail, most, width))
