"""What the workflows of a list wait for, and since when: as ``penstock workflow ls`` says it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import BusError
from penstock.console.parts import Console
from penstock.console.read_models.workflow_list import WorkflowItem
from penstock.events.envelope import utc_now
from penstock.events.workflow_memo import Status
from penstock.jobs.errors import JobsError
from penstock.jobs.lifecycle import State
from penstock.views.graph_board import graph_detail
from penstock.views.workflow_board import WorkflowRow, workflow_row

_AT_ONCE = 10
_PATIENCE_SECONDS = 0.5
_FRESH_SECONDS = 2.0
_MOST_KEPT = 1_000
_MOST_STEPS = 100
"""A graph with more is read on its own page alone: each step is a request to the broker."""


class WorkflowWait(msgspec.Struct, frozen=True, kw_only=True):
    """Why a workflow does not go on.

    Attributes:
        text: the steps that it waits for, in a few words; or why it is blocked or paused.
        since: when it last went on, or was paused.
        status: what a coded one shows of itself.
    """

    text: str
    since: datetime | None = None
    status: Status = {}


class WorkflowWaits:
    """Reads them from the workflows' own events, once in two seconds however many pages are open.

    Args:
        console: its parts.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._kept: dict[str, tuple[float, WorkflowWait]] = {}

    async def of(self, items: Sequence[WorkflowItem]) -> dict[str, WorkflowWait]:
        """By id, of those that wait; without those that could not be read in half a second."""
        waiting = [item for item in items if _waits(item)]
        now = time.monotonic()
        stale = [one for one in waiting if now - self._read_at(one.id) > _FRESH_SECONDS]
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await bounded.gather(self._read, stale, _AT_ONCE)
        except TimeoutError:
            pass  # the rows that were read are shown, the others at the next look
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return {one.id: self._kept[one.id][1] for one in waiting if one.id in self._kept}

    def _read_at(self, workflow_id: str) -> float:
        return self._kept[workflow_id][0] if workflow_id in self._kept else float("-inf")

    async def _read(self, item: WorkflowItem) -> None:
        try:
            row = await (self._coded(item) if item.kind == "coded" else self._graph(item))
        except (BusError, JobsError):
            return
        self._kept.pop(item.id, None)
        self._kept[item.id] = (time.monotonic(), _wait(row))

    async def _coded(self, item: WorkflowItem) -> WorkflowRow:
        return workflow_row(await self._console.client.workflows.get(item.id))

    async def _graph(self, item: WorkflowItem) -> WorkflowRow:
        graphs = self._console.client.graphs
        graph = await graphs.show(item.id)
        return graph_detail(graph, await graphs.jobs(graph), utc_now()).workflow


def _waits(item: WorkflowItem) -> bool:
    if item.kind == "coded":
        return item.state == State.SUSPENDED or item.is_paused
    return item.ended_at is None and (item.steps or 0) <= _MOST_STEPS


def _wait(row: WorkflowRow) -> WorkflowWait:
    text, since = row.waits_for, row.waiting_since
    if row.paused_at is not None:
        text, since = row.pause_reason or "paused", row.paused_at
    elif row.blocked:
        text = f"blocked: {row.blocked}"
    return WorkflowWait(text=text, since=since, status=row.status)
