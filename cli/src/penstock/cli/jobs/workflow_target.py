"""Which workflow a command means: a coded one, or a declared one, whose instance is a graph."""

from __future__ import annotations

from typing import NamedTuple

from penstock.jobs.client import Client
from penstock.jobs.errors import AmbiguousId, NotFound

_MOST_NAMED = 10


class Target(NamedTuple):
    """A workflow.

    Attributes:
        id: of the job of a coded one; of the graph of a declared one.
    """

    id: str
    is_graph: bool = False


async def find(client: Client, text: str) -> Target:
    """The one workflow whose id is ``text`` or begins with it.

    Raises:
        NotFound, AmbiguousId, BusError
    """
    try:
        graph_id = await client.graphs.find_id(text)
    except NotFound:
        return Target(await client.jobs.find_id(text))
    others = set[str]() if graph_id == text else await _jobs(client, text)
    if strangers := {job_id for job_id in others if not _is_part(job_id, graph_id)}:
        raise AmbiguousId(text, sorted({graph_id, *strangers}), _MOST_NAMED, noun="workflow")
    return Target(graph_id, is_graph=True)


async def _jobs(client: Client, text: str) -> set[str]:
    try:
        return {await client.jobs.find_id(text)}
    except NotFound:
        return set()
    except AmbiguousId as error:
        return set(error.ids)


def _is_part(job_id: str, graph_id: str) -> bool:
    """Whether a job is a step or a callback of the graph."""
    return job_id.startswith(f"{graph_id}_")
