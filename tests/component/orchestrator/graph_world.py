"""One graph in memory: the real orchestrator, which may be killed at each message that it stores.

Jobs end, signals come and time passes only while the orchestrator has nothing to do, and always in
the same order: so what a graph comes to may not depend on where its orchestrator was killed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.bus.protocol import BusError, Outgoing, Stored
from penstock.events.envelope import Event, encode
from penstock.events.graph import GRAPH_EVENTS, GraphCompleted, GraphFailed
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobError,
    JobStarted,
)
from penstock.jobs import Client, derived_ids
from penstock.jobs.batches.slots import Slot
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload
from penstock.jobs.workflows import graph_waits
from penstock.jobs.workflows.declared.definition import Definition
from penstock.jobs.workflows.graph_record import GraphRecord
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.testing.memory.bus import MemoryBus
from penstock.verifying.rules import Violation
from penstock.verifying.workflows import check_graph

START = datetime(2026, 11, 20, tzinfo=UTC).timestamp()
_MOST_STEPS = 300
_ENDED = (JobCompleted, JobDead, JobCancelled)


class Killed(BaseException):
    """The orchestrator ends here."""


class Kill:
    """Ends the orchestrator once, at the message with this number.

    Args:
        number: among all that it stores; 0: never.
        after: whether the broker still takes the message.
    """

    def __init__(self, number: int = 0, after: bool = False) -> None:
        self._number, self._after = number, after
        self.stored = 0

    def before(self) -> None:
        self.stored += 1
        if self.stored == self._number and not self._after:
            raise Killed

    def behind(self) -> None:
        if self.stored == self._number and self._after:
            raise Killed


class MortalBus(MemoryBus):
    """The connection of a process that may be killed at each message that it stores."""

    def __init__(self, bus: MemoryBus, kill: Kill) -> None:
        self.__dict__ |= bus.client().__dict__
        self._kill = kill

    async def append(self, message: Outgoing) -> int:
        self._kill.before()
        sequence = await super().append(message)
        self._kill.behind()
        return sequence

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        answers: list[int | BusError] = []
        for message in messages:
            self._kill.before()
            answers += await super().append_many([message])
            self._kill.behind()
        return answers


class GraphWorld:
    """Runs one graph to its end.

    Args:
        ends: how the jobs and waits of steps end, by the names of the steps; else they complete.
        results: of those that complete, by the names of the steps.
        kill: of its orchestrator.
    """

    def __init__(
        self, ends: Mapping[str, Slot], results: Mapping[str, Any], kill: Kill | None = None
    ) -> None:
        self._ends, self._results, self._kill = ends, results, kill or Kill()
        self._now = START
        self.bus = MemoryBus("graphs", now=lambda: self._now)
        self.client = Client(self.bus, prefix="graphs")
        self.id = "g"

    async def start(self, definition: Definition, **terms: Any) -> None:
        """Starts it. Args: terms: of the client's verb."""
        await self.client.definitions.run(definition, graph_id=self.id, **terms)

    async def until_ended(self, ends: Mapping[str, Slot] | None = None) -> GraphRecord:
        """Until it has ended and its callbacks are dispatched.

        Args:
            ends: instead of those of before.
        """
        self._ends = self._ends if ends is None else ends
        orchestrator = await self._orchestrator()
        for _ in range(_MOST_STEPS):
            try:
                await self._go_on(orchestrator)
            except Killed:
                orchestrator = await self._orchestrator()
                continue
            if not orchestrator.unfinished:
                return await self.client.graphs.show(self.id)
            await self._let_something_happen()
        raise AssertionError(f"it does not end: {await self.client.graphs.show(self.id)}")

    # --- the orchestrator -------------------------------------------------------------------------
    async def _orchestrator(self) -> WorkflowTracker:
        bus = MortalBus(self.bus, self._kill)
        orchestrator = WorkflowTracker(bus, bus.subjects, Client(bus, prefix="graphs"))
        await orchestrator.load()
        return orchestrator

    async def _go_on(self, orchestrator: WorkflowTracker) -> None:
        """As long as there is something to do."""
        last = -1
        while last != (last := self._last()) or orchestrator.position < last:
            for stored in self._events(after=orchestrator.position):
                await orchestrator.see(stored)
            orchestrator._tried.clear()  # no time passes until it would try again by itself
            for name in tuple(orchestrator.unfinished):
                await orchestrator.settle(name)
            await orchestrator.keep()

    def _events(self, after: int = 0) -> list[Stored]:
        stored = self.bus.stored(self.bus.subjects.events_stream, self.bus.subjects.events())
        return [message for message in stored if message.sequence > after]

    def _last(self) -> int:
        return max((message.sequence for message in self._events()), default=0)

    # --- all else ---------------------------------------------------------------------------------
    async def _let_something_happen(self) -> None:
        """The first job that runs ends; else the first wait; else time passes."""
        record = await self.client.graphs.show(self.id)
        for position, step in enumerate(record.steps):
            job_id = derived_ids.step_id(self.id, position)
            if await self._runs(job_id):
                await self._end(job_id, step.name)
                return
        for position, slot in sorted(graph_waits.slots(record).items()):
            if slot is Slot.PENDING:
                await self._answer(record, position)
                return
        self._now += 3_600

    async def _runs(self, job_id: str) -> bool:
        if await self.bus.last(self.bus.subjects.events_stream, self.bus.subjects.job(job_id)):
            return not (await self.client.job(job_id)).state.ended
        return False

    async def _end(self, job_id: str, name: str) -> None:
        end, queue = self._ends.get(name, Slot.COMPLETED), "q"
        about = {"job_id": job_id, "source": "worker", "queue": queue}
        record = (await self.client.job(job_id)).record
        if record.state is not State.RUNNING:
            await self._append(JobStarted(attempt=1, host="h", worker="w", message=1, **about))
        if end is Slot.COMPLETED:
            result = msgspec.msgpack.encode(self._results.get(name))
            await self._append(JobCompleted(attempt=1, run_seconds=0.1, result=result, **about))
        elif end is Slot.FAILED:
            error = JobError(kind="ValueError", message="as told")
            await self._append(JobDead(error=error, **about))
        else:
            await self._append(JobCancelled(job_id=job_id, source="worker", reason="by hand"))

    async def _answer(self, record: GraphRecord, position: int) -> None:
        wait, name = record.steps[position].wait, record.steps[position].name
        assert wait is not None
        if wait.signal and self._ends.get(name, Slot.COMPLETED) is Slot.COMPLETED:
            await self.client.graphs.signal(self.id, wait.signal, self._results.get(name))
            return
        until = record.waits[position]
        assert until is not None, "nobody answers, for ever"
        self._now = max(self._now, (until + timedelta(seconds=1)).timestamp())

    async def _append(self, event: Any) -> None:
        await self.bus.append(Outgoing(self.bus.subjects.event(event), encode(event)))

    # --- what came of it --------------------------------------------------------------------------
    def history(self, noun: str, key: str = "*") -> list[tuple[int, Event]]:
        """All events of a noun with their sequences, in order."""
        codec = GRAPH_EVENTS if noun == "graph" else JOB_EVENTS
        stored = self.bus.stored(
            self.bus.subjects.events_stream, self.bus.subjects.events(noun, key)
        )
        read = [(message.sequence, read_event(message, codec)) for message in stored]
        return [(sequence, event) for sequence, event in read if isinstance(event, Event)]

    def events(self, noun: str) -> list[Event]:
        """All of a noun, in order."""
        return [event for _, event in self.history(noun)]

    def violations(self) -> list[Violation]:
        """What `penstock verify` says of the log."""
        steps: dict[int, list[tuple[int, Event]]] = {}
        for sequence, event in self.history("job"):
            if step := derived_ids.step(event.key):
                steps.setdefault(step[1], []).append((sequence, event))
        return list(check_graph(self.id, self.history("graph"), steps))

    async def outcome(self) -> dict[str, Any]:
        """All that may not depend on kills; of each event that matters, how often it happened."""
        record = await self.client.graphs.show(self.id)
        jobs = [event for event in self.events("job") if isinstance(event, JobDispatched)]
        ends = [event for event in self.events("job") if isinstance(event, _ENDED)]
        own = self.events("graph")
        assert self.violations() == []
        return {
            "state": record.state,
            "reason": record.reason,
            "failed": record.failed_step,
            "waits": sorted(record.waits),
            "elapsed": record.elapsed,
            "jobs": sorted(job.job_id for job in jobs),
            "arguments": {job.job_id: _arguments(job) for job in jobs},
            "ends": sorted((event.key, event.name) for event in ends),
            "graph": [event.name for event in own],
            "completions": sum(isinstance(event, GraphCompleted | GraphFailed) for event in own),
        }


def _arguments(job: JobDispatched) -> Any:
    return msgspec.msgpack.decode(payload.decode(job.payload).all_arguments())
