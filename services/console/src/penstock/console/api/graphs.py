"""Graphs: chains, graphs of jobs and declared workflows, with their steps."""

from __future__ import annotations

from datetime import datetime

import msgspec
from litestar.params import FromPath, FromQuery

from penstock.console.api.endpoint import (
    DEFAULT_LIMIT,
    Cursor,
    InState,
    Limit,
    Listing,
    Routes,
    read,
    whole,
)
from penstock.console.core import tables
from penstock.console.core.graph_rows import GraphRow
from penstock.console.core.times import instant, instant_or_none
from penstock.console.parts import Console
from penstock.console.read_models import keyset
from penstock.console.read_models.summaries import Shape, shapes
from penstock.console.web.access import ChangesWith
from penstock.events.envelope import utc_now
from penstock.views.graph_board import graph_detail
from penstock.views.workflow_board import StepRow, WorkflowDetail


class GraphItem(msgspec.Struct, frozen=True, kw_only=True):
    """A graph in a list; ``definition`` is empty for one that was made by a program."""

    id: str
    state: str
    title: str
    definition: str
    version: int
    steps: int
    created_at: datetime
    ended_at: datetime | None
    reason: str
    failed_step: str
    failed_job: str
    is_paused: bool


def graph_item(row: GraphRow) -> GraphItem:
    """A row as it is sent."""
    others = ("state", "created_at", "ended_at")
    copied = (name for name in GraphItem.__struct_fields__ if name not in others)
    return GraphItem(
        state=row.state.value,
        created_at=instant(row.created_us),
        ended_at=instant_or_none(row.ended_us),
        **{name: getattr(row, name) for name in copied},
    )


async def graph_answer(console: Console, graph_id: str) -> WorkflowDetail:
    """A graph with its steps, without arguments. Raises NotFound, BusError, BadName."""
    graphs = console.client.graphs
    graph = await graphs.show(graph_id)
    detail = graph_detail(graph, await graphs.jobs(graph), utc_now())
    return msgspec.structs.replace(detail, arguments=None, result=None)


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/graphs", source=ChangesWith.LOG)
    async def graphs(
        in_state: InState = "",
        definition: FromQuery[str] = "",
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = "",
    ) -> Listing[GraphItem]:
        """Graphs, the newest first."""
        matching = {"state": in_state, "definition": definition}
        rows, after = await keyset.page(
            console, tables.GRAPHS, "created_us", matching, limit, cursor
        )
        items = [graph_item(row) for row in rows]
        return Listing(items=items, standing=console.standing, next=after)

    @read("/graphs/shapes", source=ChangesWith.LOG)
    async def graph_shapes() -> Listing[Shape]:
        """Kinds of graphs, and how those of each kind ended."""
        return whole(console, await console.read(shapes))

    @read("/graphs/{graph_id:str}")
    async def graph(graph_id: FromPath[str]) -> WorkflowDetail:
        """One graph: its steps, its critical path, and what it waits for."""
        return await graph_answer(console, graph_id)

    @read("/graphs/{graph_id:str}/nodes")
    async def nodes(graph_id: FromPath[str]) -> Listing[StepRow]:
        """The steps of a graph."""
        return whole(console, list((await graph_answer(console, graph_id)).steps))

    return graphs, graph_shapes, graph, nodes
