"""A graph as the orchestrator follows it: events in, instructions out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from penstock.events.batch import Counts
from penstock.events.condition import Path
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
from penstock.jobs.workflows.declared.progress import End, Outcomes, Progress, StepState
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.orchestrator.core.instructions import (
    Append,
    CallBack,
    Cancel,
    Instruction,
    ReadResults,
    Requeue,
    StartSteps,
)
from penstock.orchestrator.core.tally import SLOTS, may_follow

_BAD = (Slot.FAILED, Slot.CANCELLED)
_MAX_REASON_LENGTH = 2_000


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
        self._refused: dict[int, str] = {}
        self._results: dict[int, Any] = {}
        self._plan = graph_record.plan_of(record)

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
            self._refused, self._dispatched = {}, set()

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
        self._refused[index] = reason

    def see_result(self, index: int, result: Any) -> None:
        """The result of a completed step was read: plain data, or ``Unreadable``."""
        self._results[index] = result

    # --- instructions out -------------------------------------------------------------------------
    def decide(self, now: datetime) -> Instruction | None:
        """What is to be done now, if anything."""
        if self.record.state.ended:
            return self._call_back()
        if self.record.is_paused:
            return None
        is_stopping = self.record.state is GraphState.STOPPING
        if is_stopping and (running := self._running()):
            names = tuple(step_id(self.record.id, index) for index in running)
            return Cancel(names, f"graph {self.record.id}: {self.record.reason}"[:1000])
        if not is_stopping and self._to_requeue and not self._refused:
            return Requeue(tuple(sorted(self._to_requeue)))
        progress = self.progress()
        if progress.unread and not is_stopping:
            return ReadResults(progress.unread)
        if progress.ready:
            return StartSteps(progress.ready)
        return None if progress.end is None else self._ended(progress.end, now)

    def progress(self) -> Progress:
        """How far it is, by what is known of its jobs."""
        return self._plan.progress(
            self._slots,
            self._results,
            self._dispatched,
            self._refused,
            is_cancelled=self.record.state in (GraphState.STOPPING, GraphState.CANCELLED),
        )

    def needed(self, index: int, path: Path) -> set[int]:
        """The steps whose results a parameter of a step may come from."""
        return self._plan.needed(path, index, self.progress().states)

    def value(self, index: int, path: Path) -> Any:
        """The value of a parameter, once the results that are needed were read; or ``UNSET``.

        Raises:
            ConditionError: one of these results is not readable.
        """
        return self._plan.value(path, index, Outcomes(self.progress().states, self._results))

    def unread(self, indices: Iterable[int]) -> list[int]:
        """Those of these steps whose results were not read yet."""
        return [index for index in indices if index not in self._results]

    def lacks_result(self, index: int) -> bool:
        """Whether a step has ended without a result: it was skipped, or has failed."""
        is_step = index in range(len(self.record.steps))
        return is_step and self._slots.get(index) is not Slot.COMPLETED

    def _running(self) -> list[int]:
        """Steps that are cancelled with the whole; one that undoes another is not."""
        return [
            index
            for index, slot in self._slots.items()
            if slot is Slot.PENDING and self.record.steps[index].compensates is None
        ]

    def _ended(self, end: End, now: datetime) -> Append:
        about, sequence = self._about(now), self.record.sequence
        if self.record.state is GraphState.STOPPING:
            return Append(GraphCancelled(reason=self.record.reason, **about), sequence)
        if not end.reason:
            return Append(GraphCompleted(**about), sequence)
        event = GraphFailed(
            step="" if end.step is None else self.record.steps[end.step].name,
            job_id="" if end.step is None else step_id(self.record.id, end.step),
            reason=end.reason[:_MAX_REASON_LENGTH],
            **about,
        )
        return Append(event, sequence)

    def _call_back(self) -> CallBack:
        record, jobs = self.record, Counter(self._slots.values())
        success = {GraphState.COMPLETED: True, GraphState.FAILED: False}.get(record.state)
        counts = Counts(
            pending=self._unfinished(),
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

    def _unfinished(self) -> int:
        """Steps that never began or did not end; not those that were skipped or have no job."""
        if self.record.state is GraphState.COMPLETED:
            return 0
        ended = (StepState.COMPLETED, StepState.SKIPPED, StepState.FAILED, StepState.CANCELLED)
        states = zip(self.record.steps, self.progress().states, strict=True)
        return sum(state not in ended for step, state in states if not step.join)

    def _about(self, now: datetime) -> dict[str, Any]:
        about = {"graph_id": self.record.id, "correlation_id": self.record.id}
        return {**about, "source": self._source, "at": now}
