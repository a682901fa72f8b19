"""What may be done to one batch, graph or workflow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.jobs.client import Client

Change = Callable[[Client, str, str], Awaitable[object]]
"""Acts by a client on what an id names, for a reason."""

CHANGES: dict[str, dict[str, tuple[str, Change]]] = {
    "batch": {
        "cancel": (
            "Cancels the jobs of a batch that have not ended.",
            lambda client, key, reason: client.batches.cancel(key, reason or "by the console"),
        ),
        "retry-failed": (
            "Lets the failed jobs of a batch run again.",
            lambda client, key, _: client.batches.retry_failed(key),
        ),
    },
    "graph": {
        "cancel": (
            "Dispatches no further step of a graph and cancels those that run.",
            lambda client, key, reason: client.graphs.cancel(key, reason or "by the console"),
        ),
        "retry-failed": (
            "Lets the failed steps of a graph run again.",
            lambda client, key, _: client.graphs.retry_failed(key),
        ),
        "pause": (
            "Dispatches no further step of a graph until it is resumed.",
            lambda client, key, reason: client.graphs.pause(key, reason),
        ),
        "resume": (
            "Lets a paused graph go on.",
            lambda client, key, reason: client.graphs.resume(key, reason),
        ),
    },
    "workflow": {
        "cancel": (
            "Cancels a workflow, which may clean up.",
            lambda client, key, reason: client.workflows.cancel(key, reason or "by the console"),
        ),
        "pause": (
            "A workflow does not go on until it is resumed.",
            lambda client, key, reason: client.workflows.pause(key, reason),
        ),
        "resume": (
            "Lets a paused workflow go on.",
            lambda client, key, reason: client.workflows.resume(key, reason),
        ),
    },
}
"""What may be done to each, by noun and verb, with its description."""
