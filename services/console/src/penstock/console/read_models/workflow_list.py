"""Workflows, coded and declared, and batches: lists from the rows, details from the event log."""

from __future__ import annotations

import heapq
from datetime import datetime

import msgspec

from penstock.console.core import tables
from penstock.console.core.batch_rows import BatchRow
from penstock.console.core.graph_rows import GraphRow
from penstock.console.core.job_rows import JobRow
from penstock.console.core.times import instant, instant_or_none
from penstock.console.parts import Console
from penstock.console.read_models.store import Snapshot
from penstock.events.envelope import utc_now
from penstock.jobs.client import Client
from penstock.jobs.errors import NotFound
from penstock.views.graph_board import graph_detail
from penstock.views.workflow_board import WorkflowDetail, workflow_detail


class WorkflowItem(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow in a list.

    Attributes:
        kind: ``coded``, ``declared`` for an instance of a definition, or ``graph``.
        name: function, definition or title.
        steps: how many a declared one has; None for a coded one, whose steps its code decides.
        failed_step: at which a declared one ended.
    """

    id: str
    kind: str
    name: str
    state: str
    created_at: datetime
    ended_at: datetime | None
    steps: int | None = None
    reason: str = ""
    failed_step: str = ""
    is_paused: bool = False


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """A batch; counts are those of its last progress.

    Attributes:
        total: None where its creator did not know how many jobs it would have.
    """

    id: str
    title: str
    state: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    pending: int
    completed: int
    failed: int
    cancelled: int
    total: int | None
    reason: str

    @property
    def jobs(self) -> int:
        """As many as are known."""
        return max(self.total or 0, self.pending + self.completed + self.failed + self.cancelled)


def newest_workflows(rows: Snapshot, state: str, limit: int) -> list[WorkflowItem]:
    """Coded and declared ones together, newest first.

    Args:
        rows: the database.
        state: in which they are; empty for any.
        limit: how many.
    """
    condition, values = ("AND state = ?", (state,)) if state else ("", ())
    newest = f"{condition} ORDER BY %s DESC, id DESC LIMIT ?"
    coded = rows.rows(
        tables.JOBS, f"WHERE kind = 'workflow' {newest % 'dispatched_us'}", (*values, limit)
    )
    graphs = rows.rows(tables.GRAPHS, f"WHERE 1 {newest % 'created_us'}", (*values, limit))
    merged = heapq.merge(
        map(_coded, coded), map(_graph, graphs), key=lambda item: item.created_at, reverse=True
    )
    return list(merged)[:limit]


def newest_batches(rows: Snapshot, state: str, limit: int) -> list[BatchItem]:
    """Batches, newest first; ``state`` is empty for any."""
    condition, values = ("WHERE state = ?", (state,)) if state else ("", ())
    tail = f"{condition} ORDER BY created_us DESC, id DESC LIMIT ?"
    return [batch_item(row) for row in rows.rows(tables.BATCHES, tail, (*values, limit))]


def one_batch(rows: Snapshot, batch_id: str) -> BatchItem | None:
    """A batch; None where there is none, or not any more."""
    row = rows.row(tables.BATCHES, batch_id)
    return batch_item(row) if row else None


async def read_workflow(console: Console, workflow_id: str) -> WorkflowDetail | None:
    """A workflow with its steps, exact, from its own events; None where there is none.

    Raises:
        BusError: the log cannot be read.
    """
    client = Client.over(console.bus, console.settings, "console")
    try:
        if await console.read(lambda rows: rows.row(tables.GRAPHS, workflow_id)):
            graph = await client.graphs.show(workflow_id)
            return graph_detail(graph, await client.graphs.jobs(graph), utc_now())
        row = await console.read(lambda rows: rows.row(tables.JOBS, workflow_id))
        if row is None or row.kind != "workflow":
            return None
        view = await client.workflows.get(workflow_id, with_attempts=True)
    except NotFound:
        return None
    return workflow_detail(view, utc_now())


def _coded(row: JobRow) -> WorkflowItem:
    return WorkflowItem(
        id=row.id,
        kind="coded",
        name=row.function,
        state=row.state.value,
        created_at=instant(row.dispatched_us),
        ended_at=instant_or_none(row.finished_us),
        reason=row.error_message,
        is_paused=row.is_paused,
    )


def _graph(row: GraphRow) -> WorkflowItem:
    return WorkflowItem(
        id=row.id,
        kind="declared" if row.definition else "graph",
        name=row.definition or row.title,
        state=row.state.value,
        created_at=instant(row.created_us),
        ended_at=instant_or_none(row.ended_us),
        steps=row.steps,
        reason=row.reason,
        failed_step=row.failed_step,
        is_paused=row.is_paused,
    )


def batch_item(row: BatchRow) -> BatchItem:
    """A row as it is shown."""
    copied = ("id", "title", "pending", "completed", "failed", "cancelled", "total", "reason")
    return BatchItem(
        state=row.state.value,
        created_at=instant(row.created_us),
        started_at=instant_or_none(row.started_us),
        ended_at=instant_or_none(row.ended_us),
        **{name: getattr(row, name) for name in copied},
    )
