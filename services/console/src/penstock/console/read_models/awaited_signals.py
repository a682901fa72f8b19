"""The signals that a workflow waits for now."""

from __future__ import annotations

from penstock.bus.protocol import BusError
from penstock.console.core import tables
from penstock.console.parts import Console
from penstock.jobs.errors import JobsError


async def awaited_signals(console: Console, workflow_id: str) -> tuple[str, ...] | None:
    """Their names, by the workflow's own events; None where these cannot be read."""
    client = console.client
    try:
        if await console.read(lambda rows: rows.row(tables.GRAPHS, workflow_id)):
            graph = await client.graphs.show(workflow_id)
            waits = [step.wait for step in graph.steps if step.wait]
            names = [one.signal for one in waits if one.signal not in graph.signals]
        else:
            view = await client.workflows.get(workflow_id)
            names = [step.signal for step in view.waits_for]
    except (BusError, JobsError):
        return None
    return tuple(dict.fromkeys(name for name in names if name))
