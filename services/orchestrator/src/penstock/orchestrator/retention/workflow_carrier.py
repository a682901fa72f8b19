"""Batches and graphs whose events leave the log: counted first, then carried past its old end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from penstock.bus.protocol import (
    Bus,
    BusError,
    Expect,
    Outgoing,
    PayloadTooLarge,
    WrongSequence,
)
from penstock.events.batch import BATCH_EVENTS, BatchCarried
from penstock.events.envelope import Event, encode
from penstock.events.graph import GRAPH_EVENTS, GraphCarried
from penstock.events.subjects import Subjects
from penstock.jobs import derived_ids
from penstock.jobs.batches import batch_record
from penstock.jobs.event_store import event_log
from penstock.jobs.job_log import JobLog
from penstock.jobs.workflows import graph_record
from penstock.orchestrator.retention.unfinished_workflows import awaited_steps
from penstock.orchestrator.retention.window import Window
from penstock.orchestrator.workflows.tracker import WorkflowTracker

_CATCH_UP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_TRIES = 100


class NotCounted(BusError):
    """What would leave the log is not in the counts of batches and graphs yet."""


class WorkflowCarrier:
    """Carries batches and graphs as this process follows them."""

    def __init__(
        self, bus: Bus, subjects: Subjects, source: str, workflows: WorkflowTracker
    ) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._workflows = workflows
        self._log = JobLog(bus, subjects)

    async def catch_up(self, window: Window) -> None:
        """Returns when all of the window that counts was counted, and is kept outside the log.

        Raises:
            BusError: it is not yet.
        """
        deadline = asyncio.get_running_loop().time() + _CATCH_UP_SECONDS
        while self._workflows.position < self._needed(window):
            if asyncio.get_running_loop().time() > deadline:
                raise NotCounted("batches and graphs lag behind the event log; trying again")
            await asyncio.sleep(_POLL_SECONDS)
        if self._workflows.unfinished:
            await self._workflows.keep()

    def _needed(self, window: Window) -> int:
        """Sequence of the last event of the window that the counting has to reach."""
        needed = window.workflow_events
        for job_id, names in window.members.items():
            place = derived_ids.member(job_id)
            step = None if place else derived_ids.step(job_id)
            name = ("batch", place.batch) if place else ("graph", step[0]) if step else None
            if name in self._workflows.unfinished:
                needed = max(needed, names)
        return needed

    async def carry(self, names: Iterable[tuple[str, str]], through: int) -> list[tuple[str, str]]:
        """Returns when each that needs it has an event behind the window.

        Returns:
            Those that are too large for that.

        Raises:
            BusError
        """
        too_large = []
        for noun, key in names:
            try:
                await self._carry(noun, key, through)
            except PayloadTooLarge:
                too_large.append((noun, key))
        return too_large

    async def _carry(self, noun: str, key: str, through: int) -> None:
        for _ in range(_TRIES):
            event, sequence = await self._event(noun, key, through)
            if event is None:
                return
            expect = Expect(sequence, self._subjects.events(noun, key))
            try:
                await self._bus.append(
                    Outgoing(self._subjects.event(event), encode(event), {}, expect)
                )
                return
            except WrongSequence:  # it went on: its events are on their way to the counting
                await asyncio.sleep(_POLL_SECONDS)
        raise NotCounted(f"{noun} {key} changes too quickly to be carried; trying again")

    async def _is_step(self, noun: str, key: str) -> bool:
        """Whether it is a step of a workflow that may go on, and need to know how it ended."""
        step = derived_ids.step(key) if noun == "batch" else None
        return step is not None and step[1] in awaited_steps(await self._log.read(step[0]))

    async def _event(self, noun: str, key: str, through: int) -> tuple[Event | None, int]:
        """What takes the place of its events, and the last of these; None where nothing must."""
        workflow = self._workflows.unfinished.get((noun, key))
        if workflow is not None:
            return workflow.carried(self._workflows.position), workflow.record.sequence
        stream, subject = self._subjects.events_stream, self._subjects.events(noun, key)
        codec = BATCH_EVENTS if noun == "batch" else GRAPH_EVENTS
        events = await event_log.read_subject(self._bus, stream, subject, codec)
        batch, graph = batch_record.fold(events), graph_record.fold(events)
        record = batch if noun == "batch" else graph
        if record is None:
            return None, 0
        if record.state.ended and record.sequence <= through and not await self._is_step(noun, key):
            return None, 0
        if any(
            at > through and isinstance(event, BatchCarried | GraphCarried) for at, event in events
        ):
            return None, 0  # another orchestrator was at it, too
        if batch is not None:
            return batch_record.carried(batch, self._source), batch.sequence
        assert graph is not None
        return graph_record.carried(graph, self._source), graph.sequence
