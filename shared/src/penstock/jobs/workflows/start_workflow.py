"""A job that starts an instance of a stored definition: for schedules, batches and callbacks."""

from __future__ import annotations

from typing import Any

from penstock.jobs.registry import job
from penstock.jobs.running.context import Context


@job(queue="workflows", name="penstock.start_workflow", tries=5)
def start_workflow(context: Context, workflow: str, values: dict[str, Any] | None = None) -> str:
    """Starts an instance of the newest version; returns the id of its graph.

    Args:
        context: of the job.
        workflow: name of a stored definition.
        values: of its context.

    Example::

        nightly = start_workflow(workflow="orders", values={"day": "yesterday"})
        await client.schedules.add("nightly", nightly, "30 2 * * *")
    """
    return context.start_workflow(workflow, values)
