"""Batches and graphs: followed through the event log, brought to their end, their callbacks made.

Every step is a compare-and-set or the dispatch of a job of a fixed name, so that it is taken once
however many orchestrators take it, and may be taken again after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Any

from penstock.bus.protocol import Bus, BusError, BusUnavailable, Stored, broker_time
from penstock.events.batch import BATCH_EVENTS, BatchCarried, BatchCreated
from penstock.events.envelope import UnknownEvent
from penstock.events.graph import GRAPH_EVENTS, GraphCarried, GraphStarted
from penstock.events.job import JOB_EVENTS, JobDead, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs import derived_ids
from penstock.jobs.batches import batch_record
from penstock.jobs.batches.batch_record import BatchState
from penstock.jobs.client import Client
from penstock.jobs.errors import JobsError
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.workflows import graph_record
from penstock.jobs.workflows.graph_record import GraphState
from penstock.orchestrator.core.batch import Batch
from penstock.orchestrator.core.graph import Graph
from penstock.orchestrator.core.instructions import (
    Append,
    Instruction,
    ReadResults,
    Requeue,
    StartSteps,
)
from penstock.orchestrator.core.tally import SLOTS
from penstock.orchestrator.workflows.alarms import Rounds
from penstock.orchestrator.workflows.ended_workflows import has_ended
from penstock.orchestrator.workflows.graph_meters import GraphMeters
from penstock.orchestrator.workflows.instruction_executor import InstructionExecutor
from penstock.orchestrator.workflows.snapshots import WorkflowSnapshots
from penstock.orchestrator.workflows.step_meters import GraphStepMeters
from penstock.runtime.limited_log import LimitedLog
from penstock.runtime.tasks import within
from penstock.telemetry.meters import Meters

log = logging.getLogger("penstock.orchestrator")

Workflow = Batch | Graph
_START = JobStarted.__name__
_ROUND_SECONDS = 0.25
_IDLE_ROUND_SECONDS = 1.0
_AT_ONCE = 32
_STOPPED_SECONDS = 3.0
_STATES: dict[str, Any] = {"batch": BatchState, "graph": GraphState}
_CODECS = {"batch": BATCH_EVENTS, "graph": GRAPH_EVENTS}
_FINAL = {
    *("BatchCompleted", "BatchFailed", "BatchCancelled"),
    *("GraphCompleted", "GraphFailed", "GraphCancelled"),
}


class WorkflowTracker:
    """All batches and graphs that have not ended, or whose end is not finished with.

    Args:
        client: dispatches their jobs; its source is that of their events.
        now: the time that decisions are made by; the broker's where none is given.
        meters: what is counted is counted there; None for nowhere.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        client: Client,
        now: Callable[[], datetime] | None = None,
        meters: Meters | None = None,
    ) -> None:
        self._now = now or (lambda: broker_time(bus))
        source = client.dispatcher.source
        self._bus, self._subjects, self._source = bus, subjects, source
        self._executor = InstructionExecutor(bus, subjects, client)
        self._snapshots = WorkflowSnapshots(bus, subjects, source)
        self._skipped, self._steps = LimitedLog(log), GraphStepMeters(meters or Meters(), bus.now())
        self._woken = asyncio.Event()
        self._touched: set[tuple[str, str]] = set()
        self._rounds = Rounds()
        self._tried: dict[tuple[str, str], tuple[int, float]] = {}
        self._reload = False
        self._reading: asyncio.Future[None] | None = None
        self._acted_at = time.monotonic()
        self.position = 0
        self.unfinished: dict[tuple[str, str], Workflow] = {}
        self._meters = GraphMeters(meters or Meters(), bus.now, lambda: self.unfinished)

    # --- starting and keeping the place -----------------------------------------------------------
    async def load(self) -> None:
        """Restores the snapshots of an earlier process. Raises BusError."""
        self.position, self.unfinished = await self._snapshots.load()

    async def look_for_gap(self) -> None:
        """Has the snapshots loaded again if the log no longer holds what would be read next.

        Another orchestrator shortened it while this one was behind, and has kept what was there.

        Raises:
            BusError
        """
        if not self.unfinished or self._reload:
            return
        stream, following = self._subjects.events_stream, self.position + 1
        extent = await self._bus.extent(stream)
        begins = extent.first
        if begins < following <= extent.last:  # earlier ones may have stayed, of uncarried jobs
            first = await self._bus.next(stream, ">", following)
            begins = first.sequence if first else following
        if begins > following and not self._reload:
            self._reload = True
            if self._reading is not None:
                self._reading.cancel()
            log.info("loading batches and graphs again: the event log begins at %d now", begins)

    async def keep(self) -> None:
        """Stores snapshots, so that the next process goes on from here. Raises BusError."""
        await self._snapshots.keep(self.position, self.unfinished)

    # --- events in --------------------------------------------------------------------------------
    async def follow(self) -> None:
        """Reads the event log without end: all of it only while there is something to count."""
        while True:
            if self._reload:
                await self._load_again()
            self._reading = asyncio.ensure_future(self._read_on())
            try:
                await self._reading
            except asyncio.CancelledError:
                # `look_for_gap` cancels only the reading, to have it begin elsewhere; a
                # cancellation of this task itself must get through.
                if not self._reload or self._is_cancelled():
                    self._reading.cancel()
                    raise

    async def _read_on(self) -> None:
        everything = bool(self.unfinished)
        following: Any = self._bus.follow(
            self._subjects.events_stream, self.patterns(), self.position + 1
        )
        async with aclosing(following) as messages:
            async for stored in messages:
                await self.see(stored)
                # The first workflow begins, or the last has ended: other events are wanted now.
                if bool(self.unfinished) is not everything:
                    return

    def _is_cancelled(self) -> bool:
        """Whether it is the task itself that is to end, not just the reading."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    async def _load_again(self) -> None:
        while self._reload:
            try:
                self.position, self.unfinished = await self._snapshots.load()
                self._rounds.begin_anew()
                self._reload = False
            except BusError as error:
                log.warning("batches and graphs wait for the broker: %s", error)
                await asyncio.sleep(_ROUND_SECONDS)

    def patterns(self) -> Sequence[str]:
        """What is read: the jobs' events only while there is something to count."""
        own = [self._subjects.events("batch"), self._subjects.events("graph")]
        jobs = [self._subjects.events("job", "*", name) for name in (*SLOTS, _START)]
        return [*own, *jobs] if self.unfinished else own

    async def see(self, stored: Stored) -> None:
        """The next event of the log."""
        if stored.sequence <= self.position:
            return
        _, noun, key, name = stored.subject.rsplit(".", 3)
        try:
            if name == _START:
                self._see_start(key, stored)
            elif noun == "job":
                self._see_job(key, name, stored)
            else:
                await self._see_workflow(noun, key, name, stored)
        except BusError:
            raise
        except (
            Exception
        ) as error:  # any key that may dispatch can store it; the log keeps it for days
            self._skipped.write(
                logging.WARNING, f"{noun} {key}",
                "%s %s: event %d is skipped: %r", noun, key, stored.sequence, error,
            )  # fmt: skip
        self.position = stored.sequence

    def _see_start(self, job_id: str, stored: Stored) -> None:
        """Most starts are passed over unread: of a batch, only the first counts."""
        member = derived_ids.member(job_id)
        batch = self.unfinished.get(("batch", member.batch)) if member else None
        if not isinstance(batch, Batch) or batch.record.started_at is not None:
            return
        if isinstance(read_event(stored, JOB_EVENTS), JobStarted):
            batch.see_start(stored.sequence, stored.at)
            self._touch("batch", batch.record.id)

    def _see_job(self, job_id: str, name: str, stored: Stored) -> None:
        event = read_event(stored, JOB_EVENTS)
        if isinstance(event, UnknownEvent):
            return
        if member := derived_ids.member(job_id):
            batch = self.unfinished.get(("batch", member.batch))
            if isinstance(batch, Batch):
                error = event.error if isinstance(event, JobDead) else None
                batch.see_job(member, name, stored.sequence, stored.at.timestamp(), error)
                self._touch("batch", member.batch)
        elif step := derived_ids.step(job_id):
            graph = self.unfinished.get(("graph", step[0]))
            if isinstance(graph, Graph):
                graph.see_job(step[1], name, stored.sequence)
                self._steps.see_job(graph.record, step[1], name, stored.at.timestamp())
                self._touch("graph", step[0])

    async def _see_workflow(self, noun: str, key: str, name: str, stored: Stored) -> None:
        event = read_event(stored, _CODECS[noun])
        workflow = self.unfinished.get((noun, key))
        if workflow is not None:
            is_new = stored.sequence > workflow.position
            workflow.see(event, stored.sequence)
            if is_new and name in _FINAL and isinstance(workflow, Graph):
                self._meters.ended(workflow.record, stored.at)
        elif isinstance(event, UnknownEvent):
            return
        elif name in ("BatchCreated", "GraphStarted"):
            self.unfinished[noun, key] = self._new(event, stored.sequence)
        elif isinstance(event, BatchCarried | GraphCarried):
            if not _STATES[noun](event.state).ended:
                await self._read_again(noun, key, stored.sequence)
        elif name not in _FINAL:
            await self._read_again(noun, key, stored.sequence)
        self._touch(noun, key)

    def _new(self, event: Any, sequence: int) -> Workflow:
        if event.noun == "batch":
            return Batch(batch_record.evolve(None, event, sequence), self._source)
        return Graph(graph_record.evolve(None, event, sequence), self._source)

    async def _read_again(self, noun: str, key: str, until: int) -> None:
        """One that was finished with goes on (a batch reopened): its events from the first."""
        if await has_ended(self._bus, self._subjects, noun, key, until):
            return  # the event may not follow its end
        stream, own = self._subjects.events_stream, self._subjects.events(noun, key)
        first = await self._patiently_next(stream, own)
        replayed = WorkflowTracker(self._bus, self._subjects, self._executor.client)
        start = (
            replayed.begin(noun, key, first) if first is not None and first.sequence <= until else 0
        )
        if not start:
            log.error("%s %s cannot be followed: its first events have left the log", noun, key)
            return
        jobs = [self._subjects.events("job", "*", name) for name in SLOTS]
        following: Any = self._bus.follow(stream, [own, *jobs], start)
        async with aclosing(following) as messages:
            async for stored in messages:
                await replayed.see(stored)
                if stored.sequence >= until:
                    break
        self.unfinished.update(replayed.unfinished)

    def begin(self, noun: str, key: str, first: Stored) -> int:
        """Begins with the first event there is of a batch or graph.

        Returns:
            The sequence from which the log must be read for what came then; 0 where none is known.
        """
        event = read_event(first, _CODECS[noun])
        if isinstance(event, BatchCreated | GraphStarted):
            return first.sequence
        if not isinstance(event, BatchCarried | GraphCarried) or event.slots is None:
            return 0
        with suppress(JobsError):
            workflow: Workflow
            if isinstance(event, BatchCarried):
                workflow = Batch.carried_on(event, first.sequence, self._source)
            else:
                workflow = Graph.carried_on(event, first.sequence, self._source)
            self.unfinished[noun, key] = workflow
            self.position = event.counted_to
            return event.counted_to + 1
        return 0

    async def _patiently_next(self, stream: str, subject: str) -> Stored | None:
        while True:
            try:
                return await self._bus.next(stream, subject, 1)
            except BusUnavailable:
                await asyncio.sleep(_ROUND_SECONDS)

    def _touch(self, noun: str, key: str) -> None:
        self._touched.add((noun, key))
        self._woken.set()

    # --- instructions out -------------------------------------------------------------------------
    async def act(self) -> None:
        """Executes what is due, as soon as it is, without end."""
        away, looked = False, time.monotonic()
        while True:
            # Events wake it at once; the round is for steps that become due by time alone.
            wait_seconds = _ROUND_SECONDS if self.unfinished else _IDLE_ROUND_SECONDS
            await within(wait_seconds, self._woken.wait())
            self._woken.clear()
            await self._resume_after_pause()
            names = self._touched
            self._touched = set()
            if time.monotonic() - looked >= _ROUND_SECONDS:
                looked = time.monotonic()
                names |= self._rounds.due(self.unfinished, self._now())
            try:
                await self._settle_all(tuple(names))
                away = False
            except BusError as error:
                if not away:
                    log.warning("batches and graphs wait for the broker: %s", error)
                away = True
                self._rounds.look_soon(names)
                await asyncio.sleep(_ROUND_SECONDS)

    async def _settle_all(self, names: Sequence[tuple[str, str]]) -> None:
        """Several at a time: each waits for the broker, and none for another. Raises BusError."""
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            answers = await asyncio.gather(*map(self.settle, some), return_exceptions=True)
            for answer in answers:
                if answer is not None:
                    raise answer

    async def _resume_after_pause(self) -> None:
        """A process that was stopped for a while decides nothing by what it knew before."""
        paused, self._acted_at = time.monotonic() - self._acted_at, time.monotonic()
        if paused > _STOPPED_SECONDS:
            with suppress(BusError):
                await self.look_for_gap()
        while self._reload:  # noqa: ASYNC110 - a moment, seldom
            await asyncio.sleep(_ROUND_SECONDS / 10)
        self._acted_at = time.monotonic()

    async def settle(self, name: tuple[str, str]) -> None:
        """Takes the step that is due for one batch or graph, if one is. Raises BusError."""
        try:
            await self._settle(name)
        except BusError:
            raise
        except Exception as error:  # whatever it holds, the others go on
            log.error("%s %s is given up: %r", *name, error)
            await self._finish_with(name)

    async def _settle(self, name: tuple[str, str]) -> None:
        workflow = self.unfinished.get(name)
        step = await self._due(workflow) if workflow else None
        if workflow is None or (step is None and isinstance(workflow, Graph)):
            self._rounds.rests(name, workflow.goes_on_at if isinstance(workflow, Graph) else None)
            return
        self._rounds.look_soon([name])
        if step is None:
            return
        position, tried_at = self._tried.get(name, (0, 0.0))
        if position == workflow.position and time.monotonic() - tried_at < _ROUND_SECONDS:
            return  # executed already; its events are on their way through the log
        self._tried[name] = workflow.position, time.monotonic()
        finished = await self._executor.execute(workflow, step)
        if isinstance(step, StartSteps | Requeue):
            # A step that was refused has no event, and may be what ends the whole.
            step = workflow.decide(self._now())
            if isinstance(step, Append):
                finished = await self._executor.execute(workflow, step)
        if finished:
            await self._finish_with(name)

    async def _finish_with(self, name: tuple[str, str]) -> None:
        """Nothing is left to be done for it, or can be done."""
        self.unfinished.pop(name, None)
        self._tried.pop(name, None)
        self._rounds.rests(name)
        self._steps.forget(name[1])
        with suppress(BusError):  # what is left of it would do no harm
            await self._snapshots.forget(name)

    async def _due(self, workflow: Workflow) -> Instruction | None:
        """What is due, after the results were read that conditions need. Raises BusError."""
        step = workflow.decide(self._now())
        while isinstance(step, ReadResults):
            await self._executor.execute(workflow, step)
            step = workflow.decide(self._now())
        return step
