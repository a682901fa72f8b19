"""`penstock workflow signal`: sends a value, and says whether the workflow can take it."""

from __future__ import annotations

import asyncio
import contextlib

import click

from penstock.cli.command import Command
from penstock.cli.errors import Failed
from penstock.cli.jobs.call import read_value
from penstock.cli.output import note, write_json, write_line
from penstock.cli.parameters import JOB_ID
from penstock.cli.session import Session
from penstock.cli.workflows import target as workflow_target
from penstock.jobs.client import Client
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.workflow_view import WorkflowView

_PATIENCE_SECONDS, _LOOK_SECONDS = 2.0, 0.1


@click.command(cls=Command, example="penstock workflow signal 0193… approved true --id mail-1")
@click.argument("id", type=JOB_ID)
@click.argument("name")
@click.argument("value", default="null")
@click.option(
    "--id", "signal_id", default="", help="Of signals with the same one, the first counts."
)
@click.pass_obj
def signal(session: Session, /, id: str, name: str, value: str, signal_id: str) -> None:
    """Send a workflow the signal NAME with a VALUE: JSON or text; none is null.

    Where a coded workflow waits for it just now, two seconds at most are waited for whether its
    code takes the value: one of another type is passed over, and the exit code is 1.
    """

    async def request(client: Client) -> tuple[str, str]:
        target = await workflow_target.find(client, id)
        if target.is_graph:
            await client.graphs.signal(target.id, name, read_value(value), signal_id=signal_id)
            return target.id, ""
        before = await client.workflows.get(target.id)
        await client.workflows.signal(target.id, name, read_value(value), signal_id=signal_id)
        if not session.as_json:
            _note_awaited(name, before)
        return target.id, await _refused(client, before, name)

    workflow_id, refused = session.with_client(request)
    if session.as_json:
        write_json({"id": workflow_id, "signal": name, "refused": refused})
    elif not refused:
        write_line(f"signal {name} was sent to workflow {workflow_id}")
    if refused:
        raise Failed(
            f"signal {name} was passed over by workflow {workflow_id}, which goes on waiting for "
            f"it: {refused}"
        )


def _note_awaited(name: str, view: WorkflowView) -> None:
    """A remark where another signal is waited for than the one that was sent."""
    awaited = sorted({step.signal for step in view.waits_for if step.kind == "signal"})
    if awaited and name not in awaited:
        note(f"it waits for {', '.join(awaited)} now; {name} is kept until it is waited for")


async def _refused(client: Client, before: WorkflowView, name: str) -> str:
    """Why a signal that was just sent is passed over; empty where it is not, or that is not known.

    Args:
        client: reads the workflow.
        before: as it was before the signal was sent.
        name: of the signal.
    """
    is_awaited = any(step.signal == name and not step.is_sent for step in before.waits_for)
    goes_on = before.state is State.SUSPENDED and not before.blocked and before.paused_at is None
    if not (is_awaited and goes_on):
        return ""
    earlier = {refused.sequence for refused in before.refused_signals}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                view = await client.workflows.get(before.id)
                reasons = [
                    refused.reason
                    for refused in view.refused_signals
                    if refused.signal == name and refused.sequence not in earlier
                ]
                if reasons:
                    return reasons[-1]
                if view.state.ended or view.advances > before.advances:
                    return ""
                await asyncio.sleep(_LOOK_SECONDS)
    return ""
