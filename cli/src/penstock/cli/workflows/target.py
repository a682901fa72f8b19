"""Which workflow a command means: a coded one, or a declared one, whose instance is a graph."""

from __future__ import annotations

import difflib
from typing import NamedTuple

from penstock.jobs.client import Client
from penstock.jobs.errors import AmbiguousId, NotFound
from penstock.jobs.reading.id_prefix import SHORTEST

_MOST_NAMED, _MOST_NEAR, _MOST_READ = 10, 3, 1_000


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
        pass
    else:
        return await _graph(client, text, graph_id)
    try:
        return Target(await client.jobs.find_id(text))
    except NotFound:
        raise NotFound(await _near(client, text)) from None


async def _graph(client: Client, text: str, graph_id: str) -> Target:
    """Raises AmbiguousId: ids of jobs that are not its own begin with the text, too."""
    others = set[str]() if graph_id == text else await _jobs(client, text)
    if strangers := {job_id for job_id in others if not _is_part(job_id, graph_id)}:
        raise AmbiguousId(text, sorted({graph_id, *strangers}), _MOST_NAMED, noun="workflow")
    return Target(graph_id, is_graph=True)


async def _near(client: Client, text: str) -> str:
    """That there is none, with the ids that are most like it."""
    coded = [view.id for view in await client.workflows.list(limit=_MOST_READ)]
    near = difflib.get_close_matches(text, [*coded, *await client.graphs.ids()], _MOST_NEAR, 0.75)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"give at least {SHORTEST} characters; 'penstock workflow ls' lists those of which "
        "the log still has events"
    )
    return f"no workflow has the id {text!r}, or one that begins so: {hint}"


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
