"""`penstock workflow fix`: changes what a blocked workflow goes on from."""

from __future__ import annotations

import click

from penstock.cli.command import Command
from penstock.cli.output import write_json, write_line
from penstock.cli.parameters import JOB_ID
from penstock.cli.session import Session
from penstock.jobs.client import Client
from penstock.jobs.workflows.workflow_view import WorkflowView
from penstock.views.workflow_board import workflow_row


@click.command(
    cls=Command,
    example="penstock workflow fix 0193… --forget gather/reserve#2\n"
    "penstock workflow fix 0193… --version 2\n"
    "penstock workflow fix 0193… --accept --reason 'the same receipt'",
)
@click.argument("id", type=JOB_ID)
@click.option(
    "--forget",
    multiple=True,
    metavar="KEY",
    help="The record of this step counts no more; repeatable.",
)
@click.option("--version", type=click.IntRange(1), help="It goes on with code of this version.")
@click.option("--accept", is_flag=True, help="What it recorded counts for what the code calls now.")
@click.option("--reason", default="", help="Recorded with the event.")
@click.pass_obj
def fix(
    session: Session,
    id: str,
    forget: tuple[str, ...],
    version: int | None,
    accept: bool,
    reason: str,
) -> None:
    """Change what a blocked workflow goes on from; it is offered to a worker at once.

    Give one of the three. --forget: the code calls the step anew, or not at all; what was recorded
    after it stays, and is named next where it does not fit. --accept: results count although the
    code calls another function, or other arguments, under their keys. 'penstock workflow why' names
    both sides, 'penstock workflow show' the keys.
    """
    if [bool(forget), version is not None, accept].count(True) != 1:
        context = click.get_current_context()
        raise click.UsageError("give one of --forget, --version and --accept", context)

    async def request(client: Client) -> WorkflowView:
        workflow_id = await client.jobs.find_id(id)
        return await client.workflows.fix(
            workflow_id, forget=forget, version=version or 0, accept=accept, reason=reason
        )

    view = session.with_client(request)
    if session.as_json:
        write_json(workflow_row(view))
    else:
        write_line(
            f"workflow {view.id} is offered to a worker; 'penstock workflow why {view.id}' shows "
            "whether it goes on"
        )
