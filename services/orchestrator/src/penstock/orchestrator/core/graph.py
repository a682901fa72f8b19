"""A graph as the orchestrator follows it: events in, instructions out. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import msgspec

from penstock.events.batch import Counts
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.graph import (
    GraphCancelled,
    GraphCarried,
    GraphCompleted,
    GraphEvent,
    GraphFailed,
    GraphReopened,
)
from penstock.jobs.batches.outcome import Outcome
from penstock.jobs.batches.slots import Slot
from penstock.jobs.derived_ids import step_id
from penstock.jobs.workflows import graph_record
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.orchestrator.core.instructions import (
    Append,
    CallBack,
    Cancel,
    Instruction,
    Requeue,
    StartSteps,
)
from penstock.orchestrator.core.tally import SLOTS, may_follow

_BAD = (Slot.FAILED, Slot.CANCELLED)


class GraphSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a graph as of ``position`` in the log.

    Attributes:
        to_requeue: steps whose jobs failed or were cancelled and are to be requeued.
    """

    record: GraphRecord
    slots: dict[int, Slot]
    position: int
    to_requeue: tuple[int, ...] = msgspec.field(default=(), name="again")


class Graph:
    """One graph that has not been finished with.

    Args:
        record: as of its start.
        source: of its events.
    """

    def __init__(self, record: GraphRecord, source: str) -> None:
        self.record, self._source = record, source
        self.position = record.sequence
        self._slots: dict[int, Slot] = {}
        self._to_requeue: set[int] = set()
        self._dispatched: set[int] = set()
        self._refused: tuple[int, str] | None = None

    @staticmethod
    def restored(snapshot: GraphSnapshot, source: str) -> Graph:
        graph = Graph(snapshot.record, source)
        graph.position, graph._slots = snapshot.position, snapshot.slots
        graph._to_requeue = set(snapshot.to_requeue)
        return graph

    @staticmethod
    def carried_on(event: GraphCarried, sequence: int, source: str) -> Graph:
        """As it was when its earlier events left the log; what came since is to be read again.

        Raises:
            IllegalTransition
        """
        graph = Graph(graph_record.evolve(None, event, sequence), source)
        graph.position = event.counted_to
        graph._slots = {index: Slot(slot) for index, slot in (event.slots or {}).items()}
        graph._to_requeue = set(event.again)
        return graph

    def carried(self, counted_to: int) -> GraphCarried:
        """What takes the place of its events. Args: counted_to: all up to it was seen."""
        slots = {index: int(slot) for index, slot in self._slots.items()}
        to_requeue = tuple(sorted(self._to_requeue))
        return graph_record.carried(self.record, self._source, slots, to_requeue, counted_to)

    def snapshot(self) -> GraphSnapshot:
        return GraphSnapshot(
            record=self.record,
            slots=self._slots,
            position=self.position,
            to_requeue=tuple(sorted(self._to_requeue)),
        )

    # --- events in --------------------------------------------------------------------------------
    def see(self, event: Event | UnknownEvent, sequence: int) -> None:
        """An event of the graph itself. Raises IllegalTransition."""
        if sequence <= self.position:
            return
        self.position = sequence
        try:
            if isinstance(event, GraphEvent):
                self.record = graph_record.evolve(self.record, event, sequence)
        finally:  # an event that is skipped moves the sequence, too
            self.record = msgspec.structs.replace(self.record, sequence=sequence)
        if isinstance(event, GraphReopened):
            self._to_requeue = {index for index, slot in self._slots.items() if slot in _BAD}
            self._refused, self._dispatched = None, set()

    def see_job(self, index: int, event: str, sequence: int) -> None:
        """An event of the job of step ``index``, by name."""
        if sequence > self.position and event in SLOTS and index < len(self.record.steps):
            self.position = sequence
            if may_follow(self._slots.get(index, Slot.UNKNOWN), event):
                self._slots[index] = SLOTS[event]
                self._to_requeue.discard(index)

    def dispatched(self, index: int) -> None:
        """The job of this step was dispatched, its event is on its way."""
        self._dispatched.add(index)

    def refused(self, index: int, reason: str) -> None:
        """The job of this step cannot be dispatched at all."""
        self._refused = index, reason

    # --- instructions out -------------------------------------------------------------------------
    def decide(self, now: datetime) -> Instruction | None:
        """What is to be done now, if anything."""
        if self.record.state.ended:
            return self._call_back()
        running = [index for index, slot in self._slots.items() if slot is Slot.PENDING]
        if self.record.state is GraphState.STOPPING:
            if running:
                names = tuple(step_id(self.record.id, index) for index in running)
                return Cancel(names, f"graph {self.record.id}: {self.record.reason}"[:1000])
            event = GraphCancelled(reason=self.record.reason, **self._about(now))
            return Append(event, self.record.sequence)
        if self._to_requeue and not self._refused:
            return Requeue(tuple(sorted(self._to_requeue)))
        if failure := self._failure():
            return None if running else self._failed(*failure, now)
        if ready := self._ready():
            return StartSteps(tuple(ready))
        if all(self._is_done(index) for index in range(len(self.record.steps))):
            return Append(GraphCompleted(**self._about(now)), self.record.sequence)
        return None

    def _is_done(self, index: int) -> bool:
        return self._slots.get(index) is Slot.COMPLETED

    def _ready(self) -> list[int]:
        return [
            index
            for index, step in enumerate(self.record.steps)
            if index not in self._slots
            and index not in self._dispatched
            and all(self._is_done(need) for need in step.needs)
        ]

    def _failure(self) -> tuple[int, str] | None:
        for index, slot in sorted(self._slots.items()):
            if slot in _BAD and index not in self._to_requeue:
                how = "failed" if slot is Slot.FAILED else "was cancelled"
                return index, f"step {self.record.steps[index].name!r} {how}"
        return self._refused

    def _failed(self, index: int, reason: str, now: datetime) -> Append:
        event = GraphFailed(
            step=self.record.steps[index].name,
            job_id=step_id(self.record.id, index),
            reason=reason,
            **self._about(now),
        )
        return Append(event, self.record.sequence)

    def _call_back(self) -> CallBack:
        record, jobs = self.record, Counter(self._slots.values())
        success = {GraphState.COMPLETED: True, GraphState.FAILED: False}.get(record.state)
        counts = Counts(
            pending=len(record.steps) - sum(jobs.values()) + jobs[Slot.PENDING],
            completed=jobs[Slot.COMPLETED],
            failed=jobs[Slot.FAILED],
            cancelled=jobs[Slot.CANCELLED],
        )
        outcome = Outcome(
            id=record.id,
            state=record.state,
            counts=counts,
            title=record.title,
            reason=record.reason,
            failed_job=record.failed_job,
        )
        return CallBack(record.callbacks, outcome, success, record.round)

    def _about(self, now: datetime) -> dict[str, Any]:
        about = {"graph_id": self.record.id, "correlation_id": self.record.id}
        return {**about, "source": self._source, "at": now}
