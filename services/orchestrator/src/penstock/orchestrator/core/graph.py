"""A graph as the orchestrator follows it: events in, instructions out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.events.batch import Counts
from penstock.events.condition import Path
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.graph import (
    GraphCancelled,
    GraphCarried,
    GraphCompleted,
    GraphElapsed,
    GraphEvent,
    GraphFailed,
    GraphReopened,
    GraphTimedOut,
    GraphWaiting,
)
from penstock.jobs.batches.outcome import Outcome
from penstock.jobs.batches.slots import Slot
from penstock.jobs.derived_ids import step_id
from penstock.jobs.workflows import graph_record, graph_waits
from penstock.jobs.workflows.declared.outcomes import Outcomes, Unreadable, read
from penstock.jobs.workflows.declared.progress import STOPPED, End, Progress
from penstock.jobs.workflows.declared.step_graph import positions_of
from penstock.jobs.workflows.declared.step_state import StepState
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
        self._waits: dict[int, Slot] = {}
        self._values: dict[int, Any] = {}
        self._plan = graph_record.plan_of(record)
        self._progress: Progress | None = None
        self._outcomes: Outcomes | None = None
        self._see_waits()

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
        self.position, earlier = sequence, self.record
        try:
            if isinstance(event, GraphEvent):
                self.record = graph_record.evolve(self.record, event, sequence)
        finally:  # an event that is skipped moves the sequence, too
            self.record = msgspec.structs.replace(self.record, sequence=sequence)
            if _judged_by(self.record) != _judged_by(earlier):
                self._see_waits()
        if isinstance(event, GraphReopened):
            self._to_requeue = {index for index, slot in self._slots.items() if slot in _BAD}
            self._refused, self._dispatched = {}, set()
            self._judge_anew()

    def _see_waits(self) -> None:
        self._waits = graph_waits.slots(self.record)
        values = graph_waits.values(self.record)
        self._values = {index: _decoded(value) for index, value in values.items()}
        self._judge_anew()

    def _judge_anew(self) -> None:
        self._progress = self._outcomes = None

    def see_job(self, index: int, event: str, sequence: int) -> None:
        """An event of the job of step ``index``, by name."""
        if sequence > self.position and event in SLOTS and self._is_job(index):
            self.position = sequence
            if may_follow(self._slots.get(index, Slot.UNKNOWN), event):
                self._slots[index] = SLOTS[event]
                self._to_requeue.discard(index)
                self._judge_anew()

    def dispatched(self, index: int) -> None:
        """The job of this step was dispatched, its event is on its way."""
        self._dispatched.add(index)
        self._progress = None

    def refused(self, index: int, reason: str) -> None:
        """The job of this step cannot be dispatched at all."""
        self._refused[index] = reason
        self._progress = None

    def see_result(self, index: int, result: Any) -> None:
        """The result of a completed step was read: plain data, or ``Unreadable``."""
        self._results[index] = result
        self._progress = None
        if self._outcomes is not None:
            self._outcomes.add(index, result)

    def forget_arguments(self) -> None:
        """Steps were started: what was read for their arguments alone is not kept."""
        kept = self._plan.graph.looked_into
        dropped = [index for index in self._results if not kept >> index & 1]
        for index in dropped:
            del self._results[index]
        if dropped:
            self._judge_anew()

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
        if not is_stopping and (by_time := self._due(now)):
            return by_time
        if not is_stopping and self._to_requeue and not self._refused:
            return Requeue(tuple(sorted(self._to_requeue)))
        progress = self.progress()
        if progress.unread:
            return ReadResults(progress.unread)
        if jobs := tuple(index for index in progress.ready if self._is_job(index)):
            return StartSteps(jobs)
        if progress.ready:
            until = self._until(progress.ready, now)
            return self._append(GraphWaiting(until=until, **self._about(now)))
        return None if progress.end is None else self._append(self._end(progress.end, now))

    def _due(self, now: datetime) -> Append | None:
        """What follows from the time alone."""
        deadline = self.record.deadline
        if deadline is not None and deadline <= now:
            reason = f"it has not ended within {self.record.timeout_seconds:g} s"
            return self._append(GraphTimedOut(reason=reason, **self._about(now)))
        if elapsed := graph_waits.due(self.record, now):
            return self._append(GraphElapsed(steps=elapsed, **self._about(now)))
        return None

    def _until(self, indices: Iterable[int], now: datetime) -> dict[int, datetime | None]:
        """Until when steps wait whose turn comes now; those that await a signal may have no end."""
        until: dict[int, datetime | None] = {}
        for index in indices:
            if (wait := self.record.steps[index].wait) is not None:
                has_end = not wait.signal or wait.seconds
                until[index] = now + timedelta(seconds=wait.seconds) if has_end else None
        return until

    @property
    def goes_on_at(self) -> datetime | None:
        """When it is to be looked at although nothing happens; None: it need not be."""
        if self.record.state is not GraphState.RUNNING or self.record.is_paused:
            return None
        waiting = [index for index, slot in self._waits.items() if slot is Slot.PENDING]
        times = [self.record.deadline, *(self.record.waits[index] for index in waiting)]
        return min((at for at in times if at is not None), default=None)

    def progress(self) -> Progress:
        """How far it is, by what is known of its jobs."""
        if self._progress is None:
            self._progress = self._plan.progress(
                {**self._slots, **self._waits},
                {**self._results, **self._values},
                self._dispatched,
                self._refused,
                is_cancelled=_is_cancelled(self.record),
            )
            self._outcomes = self._progress.outcomes
        return self._progress

    def unread(self, index: int) -> tuple[int, ...]:
        """The steps whose results a step's parameters may come from, and that were not read."""
        paths = self.record.steps[index].reads.values()
        return tuple(positions_of(self._settled.unread(index, paths)))

    def value(self, index: int, path: Path) -> Any:
        """The value of a parameter, once the results that are needed were read; or ``UNSET``.

        Raises:
            ConditionError: one of these results is not readable.
        """
        return self._settled.value(index, path)

    @property
    def _settled(self) -> Outcomes:
        """What completed steps left behind; it is the same after others were dispatched."""
        return self._outcomes or self.progress().outcomes

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

    def _is_job(self, index: int) -> bool:
        step = self.record.steps[index] if index < len(self.record.steps) else None
        return step is not None and step.wait is None and step.join is None

    def _append(self, event: GraphEvent) -> Append:
        return Append(event, self.record.sequence)

    def _end(self, end: End, now: datetime) -> GraphEvent:
        about = self._about(now)
        if self.record.timed_out:
            return GraphFailed(step="", job_id="", reason=self._stopped_by(end), **about)
        if self.record.state is GraphState.STOPPING:
            return GraphCancelled(reason=self._stopped_by(end), **about)
        if not end.reason:
            return GraphCompleted(**about)
        is_job = end.step is not None and self._is_job(end.step)
        return GraphFailed(
            step="" if end.step is None else self.record.steps[end.step].name,
            job_id=step_id(self.record.id, end.step) if end.step is not None and is_job else "",
            reason=end.reason[:_MAX_REASON_LENGTH],
            **about,
        )

    def _stopped_by(self, end: End) -> str:
        """Why it was stopped, and which steps could not be undone since."""
        reason = self.record.reason + end.reason.removeprefix(STOPPED)
        return reason[:_MAX_REASON_LENGTH]

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
        return sum(state not in ended for step, state in states if not (step.join or step.wait))

    def _about(self, now: datetime) -> dict[str, Any]:
        about = {"graph_id": self.record.id, "correlation_id": self.record.id}
        return {**about, "source": self._source, "at": now}


def _judged_by(record: GraphRecord) -> tuple[Any, ...]:
    """What decides how far a graph is, besides its jobs."""
    return _is_cancelled(record), record.waits, record.elapsed, record.signals


def _is_cancelled(record: GraphRecord) -> bool:
    return record.state in (GraphState.STOPPING, GraphState.CANCELLED)


def _decoded(value: bytes) -> Any:
    decoded = read(value)
    if isinstance(decoded, Unreadable):
        return Unreadable(f"the value of a signal cannot be read: {decoded.reason}")
    return decoded
